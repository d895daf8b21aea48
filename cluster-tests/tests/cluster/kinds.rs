//! The kinds of objects that cases make, none of which anybody acts on but the collector.
use anyhow::Result;
use ebb_cluster_tests::api::Api;
use ebb_cluster_tests::wait;
use serde_json::{Value, json};
use std::time::Duration;

const GROUP: &str = "tests.ebb.dev";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    ConfigMap,
    Secret,
    Pod,
    ReplicaSet,
    Deployment,
    ClusterRole,
    /// Custom, in namespaces.
    Gadget,
    /// Custom, of the cluster.
    Fleet,
}

impl Kind {
    pub(crate) fn name(self) -> String {
        format!("{self:?}")
    }

    pub(crate) fn api_version(self) -> String {
        match self {
            Self::ConfigMap | Self::Secret | Self::Pod => "v1".into(),
            Self::ReplicaSet | Self::Deployment => "apps/v1".into(),
            Self::ClusterRole => "rbac.authorization.k8s.io/v1".into(),
            Self::Gadget | Self::Fleet => format!("{GROUP}/v1"),
        }
    }

    pub(crate) fn is_of_the_cluster(self) -> bool {
        matches!(self, Self::ClusterRole | Self::Fleet)
    }

    /// All objects of the kind, whatever their namespace.
    pub(crate) fn everywhere(self) -> String {
        format!("{}/{}s", self.root(), self.name().to_lowercase())
    }

    /// The objects of the kind in a namespace, or all where they have none.
    pub(crate) fn path(self, namespace: &str) -> String {
        if self.is_of_the_cluster() {
            return self.everywhere();
        }
        format!("{}/namespaces/{namespace}/{}s", self.root(), self.name().to_lowercase())
    }

    /// What an object of the kind has beside its metadata.
    pub(crate) fn body(self) -> Value {
        let spec = json!({"containers": [{"name": "main", "image": "none"}]});
        let labels = json!({"app": "tests"});
        let replicas = json!({
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        });
        match self {
            Self::Pod => json!({"spec": spec}),
            Self::ReplicaSet | Self::Deployment => json!({"spec": replicas}),
            _ => json!({}),
        }
    }

    fn root(self) -> String {
        let version = self.api_version();
        if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") }
    }
}

/// Teaches the server the custom kinds.
pub(crate) fn define_custom(api: &Api) -> Result<()> {
    define(api, "Gadget", "Namespaced")?;
    define(api, "Fleet", "Cluster")?;
    for kind in [Kind::Gadget, Kind::Fleet] {
        served(api, &kind.everywhere())?;
    }
    Ok(())
}

/// Teaches the server one kind of [`GROUP`].
pub(crate) fn define(api: &Api, kind: &str, scope: &str) -> Result<String> {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    define_as(api, GROUP, kind, scope, &schema)
}

/// Teaches the server one kind; returns the version that its objects have.
pub(crate) fn define_as(
    api: &Api,
    group: &str,
    kind: &str,
    scope: &str,
    schema: &Value,
) -> Result<String> {
    let (singular, plural) = (kind.to_lowercase(), format!("{}s", kind.to_lowercase()));
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": scope,
            "names": {"kind": kind, "singular": singular, "plural": plural, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition)?;
    Ok(format!("{group}/v1"))
}

/// Waits until objects at a path can be listed.
pub(crate) fn served(api: &Api, path: &str) -> Result<()> {
    wait::until_some(
        Duration::from_secs(180),
        || format!("{path} is served"),
        || Ok((api.ask("GET", path, None)?.0 == 200).then_some(())),
    )
}
