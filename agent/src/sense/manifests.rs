//! Pod manifests in a directory: what each pod asked for, where there is no API server to say so.
//!
//! A file holds one Kubernetes `Pod` as YAML or JSON; of it only what a decision needs is read.
//! Files whose names begin with a dot are left out, as the kubelet does.
//! A file that is wrong costs only its own pod, and is named: see [`Manifests::problems`].

use ebb_policy::snapshot::{
    ContainerKind, ContainerSpec, ResourceList, Resources, VolumeSpec, VolumeType, Workload,
    WorkloadKey,
};
use ebb_policy::{Quantity, Secs, class_priority};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// A manifest larger than this is none.
const LARGEST: u64 = 1 << 20;

/// All pods of a directory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Manifests {
    /// One workload for each pod, with what its specification says and nothing that was measured; in the order of names.
    pub pods: Vec<Workload>,
    /// Files that could not be taken for a pod, each with what is wrong.
    pub problems: Vec<String>,
}

impl Manifests {
    /// Reads every manifest of `dir`.
    ///
    /// # Errors
    /// When the directory itself cannot be read.
    pub fn read(dir: &Path) -> io::Result<Self> {
        let mut found = Self::default();
        let mut paths = Vec::new();
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            let is_hidden =
                path.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b"."));
            let kind = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
            if !is_hidden && ["yaml", "yml", "json"].contains(&kind) {
                paths.push(path);
            }
        }
        paths.sort();
        for path in paths {
            match read(&path) {
                Ok(pod) => match found.pods.iter().find(|known| known.key == pod.key) {
                    Some(known) => found.problems.push(format!(
                        "{}: there is already a manifest of {}; this one is not used",
                        path.display(),
                        known.key.name
                    )),
                    None => found.pods.push(pod),
                },
                // Removed since the directory was listed.
                Err(_) if path.symlink_metadata().is_err() => {}
                Err(problem) => found.problems.push(format!("{}: {problem}", path.display())),
            }
        }
        found.pods.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(found)
    }
}

fn read(path: &Path) -> Result<Workload, String> {
    let size = fs::metadata(path).map_err(|e| e.to_string())?.len();
    if size > LARGEST {
        return Err(format!("{size} bytes are too many for a manifest; at most {LARGEST}"));
    }
    parse(&fs::read_to_string(path).map_err(|e| e.to_string())?)
}

/// The pod that a manifest describes.
fn parse(text: &str) -> Result<Workload, String> {
    let manifest: Manifest =
        serde_saphyr::from_str(text).map_err(|e| crate::config::yaml_problem(&e))?;
    if manifest.kind != "Pod" {
        return Err(format!("kind is {:?}; only \"Pod\" is read here", manifest.kind));
    }
    Ok(manifest.into_workload())
}

#[derive(Deserialize)]
struct Manifest {
    kind: String,
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    namespace: Option<String>,
    uid: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    containers: Vec<ContainerManifest>,
    #[serde(default)]
    init_containers: Vec<ContainerManifest>,
    #[serde(default)]
    volumes: Vec<VolumeManifest>,
    priority: Option<i32>,
    priority_class_name: Option<String>,
    termination_grace_period_seconds: Option<u64>,
    resources: Option<ResourcesManifest>,
    overhead: Option<Amounts>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerManifest {
    name: String,
    restart_policy: Option<String>,
    #[serde(default)]
    resources: ResourcesManifest,
}

#[derive(Deserialize, Default)]
struct ResourcesManifest {
    requests: Option<Amounts>,
    limits: Option<Amounts>,
}

/// Amounts by resource; extended resources and huge pages are let pass.
#[derive(Deserialize, Default)]
#[serde(transparent)]
struct Amounts(BTreeMap<String, Amount>);

/// A quantity written as text or as a number.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "serde_json::Value")]
struct Amount(Quantity);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VolumeManifest {
    name: String,
    empty_dir: Option<EmptyDir>,
    #[serde(flatten)]
    source: BTreeMap<String, serde_json::Value>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct EmptyDir {
    medium: Option<String>,
    size_limit: Option<Amount>,
}

impl Manifest {
    fn into_workload(self) -> Workload {
        let Self { kind: _, metadata, spec } = self;
        let namespace = metadata.namespace.as_deref().unwrap_or("default");
        let init = spec.init_containers.into_iter().enumerate().map(|(place, container)| {
            let is_sidecar = container.restart_policy.as_deref() == Some("Always");
            let kind = if is_sidecar { ContainerKind::Sidecar } else { ContainerKind::Init };
            container.into_spec(kind, u32::try_from(place).ok())
        });
        let regular =
            spec.containers.into_iter().map(|c| c.into_spec(ContainerKind::Regular, None));
        Workload {
            key: WorkloadKey {
                name: format!("{namespace}/{}", metadata.name),
                uid: metadata.uid,
                ..WorkloadKey::default()
            },
            priority: spec
                .priority
                .or_else(|| class_priority(spec.priority_class_name.as_deref()?)),
            priority_class: spec.priority_class_name,
            containers: init.chain(regular).collect(),
            volumes: spec.volumes.into_iter().map(VolumeManifest::into_spec).collect(),
            pod_resources: spec.resources.map(|r| Box::new(r.into_resources())),
            overhead: spec.overhead.map(|o| Box::new(o.into_list())),
            termination_grace: spec.termination_grace_period_seconds.map(Secs),
            ..Workload::default()
        }
    }
}

impl ContainerManifest {
    fn into_spec(self, kind: ContainerKind, start_order: Option<u32>) -> ContainerSpec {
        let Resources { requests, limits } = self.resources.into_resources();
        ContainerSpec { name: self.name, kind, start_order, requests, limits }
    }
}

impl ResourcesManifest {
    /// A limit without a request is the request too, as the API server fills it in.
    fn into_resources(self) -> Resources {
        let limits = self.limits.unwrap_or_default().into_list();
        let requests = self.requests.unwrap_or_default().into_list();
        let requests = ResourceList {
            cpu: requests.cpu.or(limits.cpu),
            memory: requests.memory.or(limits.memory),
            ephemeral_storage: requests.ephemeral_storage.or(limits.ephemeral_storage),
        };
        Resources { requests, limits }
    }
}

impl Amounts {
    fn into_list(self) -> ResourceList {
        let get = |name: &str| Some(self.0.get(name)?.0);
        ResourceList {
            cpu: get("cpu"),
            memory: get("memory"),
            ephemeral_storage: get("ephemeral-storage"),
        }
    }
}

impl TryFrom<serde_json::Value> for Amount {
    type Error = anyhow::Error;

    fn try_from(value: serde_json::Value) -> anyhow::Result<Self> {
        quantity(&value).map(Self)
    }
}

/// The quantity that a manifest gives as text, or as a number that stands for itself.
///
/// # Errors
/// When it is neither, or no quantity, saying what would be one.
pub fn quantity(value: &serde_json::Value) -> anyhow::Result<Quantity> {
    let text = match value {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Number(number) => number.to_string(),
        other => anyhow::bail!("{other}: a quantity belongs here, such as \"100Mi\""),
    };
    text.parse().map_err(|error| anyhow::anyhow!("{text:?}: {error}"))
}

impl VolumeManifest {
    fn into_spec(self) -> VolumeSpec {
        let named = |key: &str| self.source.contains_key(key);
        let volume_type = if self.empty_dir.is_some() {
            VolumeType::EmptyDir
        } else if named("hostPath") {
            VolumeType::HostPath
        } else if named("gitRepo") {
            VolumeType::GitRepo
        } else if named("configMap") {
            VolumeType::ConfigMap
        } else if named("secret") {
            VolumeType::Secret
        } else if named("projected") {
            VolumeType::Projected
        } else if named("downwardAPI") {
            VolumeType::DownwardApi
        } else if named("ephemeral") {
            VolumeType::Ephemeral
        } else if named("persistentVolumeClaim") {
            VolumeType::PersistentVolumeClaim
        } else if named("image") {
            VolumeType::Image
        } else if self.source.is_empty() || named("emptyDir") {
            // The API server makes a volume that names no source an empty directory.
            VolumeType::EmptyDir
        } else {
            VolumeType::Other
        };
        let empty_dir = self.empty_dir.unwrap_or_default();
        VolumeSpec {
            name: self.name,
            volume_type,
            medium: empty_dir.medium,
            size_limit: empty_dir.size_limit.map(|limit| limit.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, uid: 0a1b, labels: {app: web}}
spec:
  priorityClassName: system-node-critical
  terminationGracePeriodSeconds: 7
  initContainers:
  - {name: setup, image: a}
  - {name: proxy, image: b, restartPolicy: Always, resources: {requests: {memory: 10Mi}}}
  containers:
  - name: web
    image: c
    resources:
      requests: {cpu: 1, memory: 64Mi}
      limits: {memory: 128Mi, ephemeral-storage: 1Gi, nvidia.com/gpu: 1}
  volumes:
  - {name: scratch, emptyDir: {sizeLimit: 100Mi}}
  - {name: plain, emptyDir: {}}
  - {name: ram, emptyDir: {medium: Memory}}
  - {name: host, hostPath: {path: /srv}}
  - {name: keys, secret: {secretName: k}}
";

    #[test]
    fn a_pod_is_read_with_what_a_decision_needs() {
        let pod = parse(POD).unwrap();
        assert_eq!((pod.key.name.as_str(), pod.key.uid.as_deref()), ("shop/web", Some("0a1b")));
        assert_eq!(pod.priority, Some(2_000_001_000));
        assert_eq!(pod.termination_grace, Some(Secs(7)));
        let kinds: Vec<_> = pod.containers.iter().map(|c| (c.name.as_str(), c.kind)).collect();
        assert_eq!(
            kinds,
            [
                ("setup", ContainerKind::Init),
                ("proxy", ContainerKind::Sidecar),
                ("web", ContainerKind::Regular)
            ]
        );
        let web = &pod.containers[2];
        assert_eq!(web.requests.cpu, Some("1".parse().unwrap()));
        assert_eq!(web.requests.ephemeral_storage, Some("1Gi".parse().unwrap()), "from its limit");
        let volumes: Vec<_> = pod.volumes.iter().map(|v| v.volume_type).collect();
        let dir = VolumeType::EmptyDir;
        assert_eq!(volumes, [dir, dir, dir, VolumeType::HostPath, VolumeType::Secret]);
        assert_eq!(pod.volumes[0].size_limit, Some("100Mi".parse().unwrap()));
    }

    #[test]
    fn a_file_that_is_wrong_costs_only_its_own_pod_and_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write("a.yaml", POD);
        write("b.yaml", POD);
        write("c.yaml", "kind: Deployment\nmetadata: {name: x}\nspec: {}\n");
        write("d.yaml", "kind: [\n");
        write("e.yaml", &POD.replace("name: web,", "name: x,").replace("64Mi", "64Mib"));
        write(".hidden.yaml", POD);
        write("notes.txt", "not a manifest");
        std::os::unix::fs::symlink("/nowhere", dir.path().join("f.yaml")).unwrap();
        let found = Manifests::read(dir.path()).unwrap();
        assert_eq!(found.pods.len(), 1);
        assert_eq!(found.problems.len(), 5, "{:?}", found.problems);
        assert!(found.problems[0].contains("already a manifest of shop/web"));
        assert!(found.problems[1].contains("only \"Pod\""), "{:?}", found.problems);
        assert!(found.problems[3].contains("64Mib"), "{:?}", found.problems);
        assert!(found.problems[4].contains("f.yaml"), "a link that leads nowhere");
    }

    #[test]
    fn a_directory_that_is_not_there_is_an_error() {
        assert!(Manifests::read(Path::new("/nowhere/at/all")).is_err());
    }
}
