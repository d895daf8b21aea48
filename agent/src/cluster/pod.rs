//! A pod as the API server has it, reduced to what ebb decides by; and the disruption budgets around it.

use crate::config::Contract;
use crate::sense::manifests;
use ebb_model::class_priority;
use ebb_policy::snapshot::{DisruptionBudget, OwnerRef, Preference, ProtectedReason, Workload};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The annotation by which a pod asks to be evicted before or after its equals, or never.
const EVICT: &str = "ebb.dev/evict";

/// Its value that protects the pod, in the namespaces where the configuration says so.
const NEVER: &str = "never";

/// Its value that puts the pod behind its equals, in the namespaces where the configuration says so.
const AVOID: &str = "avoid";

/// As much of a value that makes no sense as a record shows: whoever may change the pod may write what they like.
const SHOWN: usize = 64;

/// Set by the kubelet on the mirror of a static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// A pod's object, by all that must fit when something is done to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodObject {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Its own UID: of a mirror pod not that of the static pod behind it.
    pub uid: String,
}

/// A pod of this node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePod {
    /// What its specification says; its key has the UID under which the kubelet runs it.
    pub workload: Workload,
    /// The object, by its own UID.
    pub object: PodObject,
    /// Its kubelet made it to show a static pod: the object is never changed.
    pub is_mirror: bool,
    /// The object has a deletion time.
    pub is_deleting: bool,
    /// Labels, by which budgets cover it.
    pub labels: BTreeMap<String, String>,
    /// It asks never to be evicted.
    pub asks_never: bool,
    /// What is wrong with what it says, for people.
    #[serde(skip)]
    pub problems: Vec<String>,
}

/// Pods by the UID under which their kubelet runs them.
pub type NodePods = BTreeMap<String, Arc<NodePod>>;

impl NodePod {
    /// What of a pod's object is kept.
    #[must_use]
    pub fn read(object: &Value) -> Self {
        let at = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let reference = PodObject {
            namespace: at("/metadata/namespace").to_owned(),
            name: at("/metadata/name").to_owned(),
            uid: at("/metadata/uid").to_owned(),
        };
        let full = format!("{}/{}", reference.namespace, reference.name);
        let annotation = |key: &str| object.get("metadata")?.get("annotations")?.get(key)?.as_str();
        let mut problems = Vec::new();
        let mut workload = match manifests::pod_of(object) {
            Ok(pod) => Workload::from(&pod),
            Err(problem) => {
                // It runs all the same: what it uses is told by the runtime, and its priority, which may make it critical, does not go with a field beside it.
                problems.push(format!("pod {full} of the API server: {problem:#}"));
                let spec = object.get("spec").unwrap_or(&Value::Null);
                let priority_class = manifests::priority_class(spec);
                let of_class = || priority_class.as_deref().and_then(class_priority);
                let mut workload = Workload {
                    priority: manifests::priority(spec).unwrap_or_else(|_| of_class()),
                    priority_class,
                    ..Workload::default()
                };
                workload.key.name.clone_from(&full);
                workload.key.uid = Some(annotation(MIRROR).unwrap_or(&reference.uid).to_owned());
                workload
            }
        };
        workload.owner = owner(object);
        workload.mirror = annotation(MIRROR).is_some();
        let asked = annotation(EVICT);
        workload.preference = match asked {
            None | Some(NEVER) => Preference::Neutral,
            Some("prefer") => Preference::Prefer,
            Some(AVOID) => Preference::Avoid,
            Some(other) => {
                problems.push(format!(
                    "pod {full}: metadata.annotations[{EVICT:?}] = {:?}: it counts as absent; write prefer or avoid, or never where the configuration honours it",
                    shown(other)
                ));
                Preference::Neutral
            }
        };
        Self {
            is_mirror: workload.mirror,
            is_deleting: object.pointer("/metadata/deletionTimestamp").is_some(),
            asks_never: asked == Some(NEVER),
            labels: texts(object.pointer("/metadata/labels")),
            object: reference,
            workload,
            problems,
        }
    }

    /// What is wrong with what it says, for people, where this is honoured.
    pub fn problems<'a>(&'a self, contract: &Contract) -> impl Iterator<Item = String> + use<'a> {
        let PodObject { namespace, name, .. } = &self.object;
        let avoids = self.workload.preference == Preference::Avoid;
        let in_vain = if self.asks_never && !contract.honours_never(namespace) {
            Some((NEVER, "evictNeverIn"))
        } else if avoids && !contract.honours_avoid(namespace) {
            Some((AVOID, "evictAvoidIn"))
        } else {
            None
        };
        let in_vain = in_vain.map(|(value, option)| format!(
            "pod {namespace}/{name}: metadata.annotations[{EVICT:?}] = {value:?}: it counts as absent; it is honoured only in namespaces that `{option}` lists in ebb's configuration"
        ));
        self.problems.iter().cloned().chain(in_vain)
    }

    /// The workload with the budget that leaves it the least room, protected where its annotation is honoured.
    #[must_use]
    pub fn with_budgets<'a>(
        &self,
        budgets: impl Iterator<Item = &'a Arc<Budget>>,
        contract: &Contract,
    ) -> Workload {
        let mut workload = self.workload.clone();
        if self.asks_never && contract.honours_never(&self.object.namespace) {
            workload.protected = Some(ProtectedReason::Annotated);
        }
        // Its equals would pay for it: a leak whose author asks for that is not to outlive them.
        if workload.preference == Preference::Avoid
            && !contract.honours_avoid(&self.object.namespace)
        {
            workload.preference = Preference::Neutral;
        }
        let own = budgets.filter(|budget| budget.covers(self));
        let tightest = own.min_by_key(|budget| (budget.disruptions_allowed, &budget.name));
        workload.disruption_budget = tightest.map(|budget| DisruptionBudget {
            name: format!("{}/{}", budget.namespace, budget.name),
            disruptions_allowed: budget.disruptions_allowed,
        });
        workload
    }
}

/// The beginning of a text that anybody may have written.
fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

fn owner(object: &Value) -> Option<OwnerRef> {
    let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
    let controls = |owner: &&Value| owner.get("controller").and_then(Value::as_bool) == Some(true);
    let controller = owners.iter().find(controls)?;
    let text = |key: &str| controller.get(key)?.as_str().map(str::to_owned);
    Some(OwnerRef { kind: text("kind")?, name: text("name")?, uid: text("uid") })
}

fn texts(object: Option<&Value>) -> BTreeMap<String, String> {
    let entries = object.and_then(Value::as_object).into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// A PodDisruptionBudget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    namespace: String,
    name: String,
    /// How many of its pods may be disrupted now, as the disruption controller last said.
    disruptions_allowed: u32,
    /// Which pods; `None` covers none.
    selector: Option<Selector>,
}

/// A label selector.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Selector {
    labels: BTreeMap<String, String>,
    expressions: Vec<Expression>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Expression {
    key: String,
    operator: String,
    values: Vec<String>,
}

impl Budget {
    /// What of a budget's object is kept.
    #[must_use]
    pub fn read(object: &Value) -> Self {
        let at = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let allowed = object.pointer("/status/disruptionsAllowed").and_then(Value::as_u64);
        let is_beta = at("/apiVersion").ends_with("v1beta1");
        let selector = object.pointer("/spec/selector").filter(|s| s.is_object()).map(selector);
        // An empty selector covers all pods of the namespace, and in the beta none.
        let selector = selector.filter(|s| !is_beta || *s != Selector::default());
        Self {
            namespace: at("/metadata/namespace").to_owned(),
            name: at("/metadata/name").to_owned(),
            // What nobody has counted yet allows nothing.
            disruptions_allowed: allowed.and_then(|n| u32::try_from(n).ok()).unwrap_or_default(),
            selector,
        }
    }

    fn covers(&self, pod: &NodePod) -> bool {
        self.namespace == pod.object.namespace
            && self.selector.as_ref().is_some_and(|selector| selector.matches(&pod.labels))
    }
}

fn selector(object: &Value) -> Selector {
    let expressions = object.get("matchExpressions").and_then(Value::as_array);
    let expressions = expressions.into_iter().flatten().map(|expression| {
        let text =
            |key: &str| expression.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
        Expression {
            key: text("key"),
            operator: text("operator"),
            values: values.filter_map(|value| value.as_str().map(str::to_owned)).collect(),
        }
    });
    Selector { expressions: expressions.collect(), labels: texts(object.get("matchLabels")) }
}

impl Selector {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let has = |key: &String, value: &String| labels.get(key) == Some(value);
        self.labels.iter().all(|(key, value)| has(key, value))
            && self.expressions.iter().all(|e| e.matches(labels))
    }
}

impl Expression {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let is_listed = value.is_some_and(|value| self.values.contains(value));
        match self.operator.as_str() {
            "In" => is_listed,
            "NotIn" => !is_listed,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            // What is not known may cover it: a pod is rather spared.
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(metadata: Value) -> NodePod {
        let mut object = json!({
            "metadata": { "namespace": "shop", "name": "web", "uid": "u" },
            "spec": { "nodeName": "n", "priority": 7, "containers": [{ "name": "main", "resources": { "requests": { "memory": "1Gi" } } }] },
        });
        for (key, value) in metadata.as_object().unwrap() {
            object["metadata"][key] = value.clone();
        }
        NodePod::read(&object)
    }

    #[test]
    fn a_pod_is_read_with_its_requests_its_owner_and_what_it_asks_of_ebb() {
        let owners = json!([
            { "kind": "Node", "name": "n", "uid": "n" },
            { "kind": "ReplicaSet", "name": "web", "uid": "r", "controller": true },
        ]);
        let pod = pod(json!({ "ownerReferences": owners, "annotations": { EVICT: AVOID } }));
        let workload = &pod.workload;
        assert_eq!((workload.key.name.as_str(), workload.priority), ("shop/web", Some(7)));
        assert_eq!(workload.containers[0].requests.memory.unwrap().to_string(), "1Gi");
        assert_eq!(workload.owner.as_ref().map(|owner| owner.kind.as_str()), Some("ReplicaSet"));
        assert_eq!(workload.preference, Preference::Avoid);
        assert!(!pod.is_mirror && !pod.is_deleting && pod.problems.is_empty());
    }

    #[test]
    fn a_mirror_goes_by_the_uid_of_its_static_pod_and_keeps_its_own() {
        let pod = pod(json!({ "annotations": { MIRROR: "hash" } }));
        assert!(pod.is_mirror && pod.workload.mirror && pod.workload.static_pod);
        assert_eq!((pod.workload.key.uid.as_deref(), &*pod.object.uid), (Some("hash"), "u"));
    }

    #[test]
    fn nobody_makes_a_pod_static_by_calling_another_its_mirror() {
        let objects = |claims: &str| {
            let real = pod(json!({ "annotations": {} }));
            let mut mirror = pod(json!({ "annotations": { MIRROR: claims } }));
            mirror.object.uid = "z".to_owned();
            BTreeMap::from([("u".to_owned(), Arc::new(real)), ("z".to_owned(), Arc::new(mirror))])
        };
        let mirrors = |claims| {
            let pods = super::super::by_pod(objects(claims));
            pods.into_iter().map(|(uid, pod)| (uid, pod.is_mirror)).collect::<Vec<_>>()
        };
        assert_eq!(mirrors("u"), [("u".to_owned(), false)]);
        assert_eq!(mirrors("hash"), [("hash".to_owned(), true), ("u".to_owned(), false)]);
    }

    #[test]
    fn nonsense_in_an_annotation_counts_as_absent_and_says_what_would_be_right() {
        let pod = pod(json!({ "annotations": { EVICT: "Never" } }));
        assert_eq!((pod.workload.preference, pod.asks_never), (Preference::Neutral, false));
        assert_eq!(
            pod.problems,
            [
                "pod shop/web: metadata.annotations[\"ebb.dev/evict\"] = \"Never\": it counts as absent; write prefer or avoid, or never where the configuration honours it"
            ]
        );
    }

    #[test]
    fn never_protects_only_where_the_operator_honours_it_and_says_so_elsewhere() {
        let pod = pod(json!({ "annotations": { EVICT: NEVER } }));
        let under = |listed: &[&str]| {
            let evict_never_in = listed.iter().map(|name| (*name).to_owned()).collect();
            let contract = Contract { evict_never_in, ..Contract::default() };
            let protected = pod.with_budgets([].iter(), &contract).protected;
            (protected, pod.problems(&contract).collect::<Vec<_>>())
        };
        assert_eq!(under(&["shop"]), (Some(ProtectedReason::Annotated), Vec::new()));
        for elsewhere in [&[][..], &["sho"], &["shop2"], &["web"], &["other"]] {
            let (protected, problems) = under(elsewhere);
            assert_eq!(protected, None, "{elsewhere:?}");
            assert_eq!(
                problems,
                [
                    "pod shop/web: metadata.annotations[\"ebb.dev/evict\"] = \"never\": it counts as absent; it is honoured only in namespaces that `evictNeverIn` lists in ebb's configuration"
                ]
            );
        }
    }

    #[test]
    fn avoid_puts_a_pod_behind_its_equals_only_where_the_operator_honours_it() {
        let pod = pod(json!({ "annotations": { EVICT: AVOID } }));
        let under = |listed: &[&str]| {
            let evict_avoid_in = listed.iter().map(|name| (*name).to_owned()).collect();
            let contract = Contract { evict_avoid_in, ..Contract::default() };
            let preference = pod.with_budgets([].iter(), &contract).preference;
            (preference, pod.problems(&contract).count())
        };
        assert_eq!(under(&["shop"]), (Preference::Avoid, 0));
        assert_eq!(under(&["shops"]), (Preference::Neutral, 1));
    }

    #[test]
    fn a_field_that_makes_no_sense_does_not_cost_a_pod_its_priority() {
        let object = json!({
            "metadata": { "namespace": "kube-system", "name": "cni", "uid": "u" },
            "spec": {
                "priority": 2_000_001_000, "terminationGracePeriodSeconds": "soon",
                "containers": [{ "name": "main" }],
            },
        });
        let pod = NodePod::read(&object);
        assert_eq!(pod.problems.len(), 1);
        assert!(pod.workload.is_critical());
        let mut negative = object.clone();
        negative["spec"]["terminationGracePeriodSeconds"] = json!(-1);
        let pod = NodePod::read(&negative);
        assert_eq!(
            (pod.workload.termination_grace.map(|grace| grace.0), pod.problems),
            (Some(1), vec![])
        );
    }

    #[test]
    fn a_field_that_is_newer_than_ebb_is_a_mistake_in_a_file_and_none_in_an_object() {
        let mut object = json!({
            "metadata": { "name": "a", "uid": "u", "resourceVersion": "7" },
            "spec": { "containers": [{ "name": "main", "resources": {
                "requests": { "memory": "1Gi" }, "newer": {},
            } }] },
        });
        let pod = NodePod::read(&object);
        assert_eq!(pod.problems, [""; 0]);
        let requests = &pod.workload.containers[0].requests;
        assert!(requests.memory.is_some(), "{requests:?}");
        object["metadata"]["resourceVersion"] = Value::Null;
        assert!(NodePod::read(&object).problems[0].contains("resources.newer"));
    }

    #[test]
    fn of_a_long_text_the_beginning_is_shown() {
        let pod = pod(json!({ "annotations": { EVICT: "é".repeat(100_000) } }));
        assert!(pod.problems[0].len() < 400 && pod.problems[0].contains('…'));
    }

    fn budget(selector: Value, allowed: u64) -> Arc<Budget> {
        let object = json!({
            "apiVersion": "policy/v1",
            "metadata": { "namespace": "shop", "name": format!("b{allowed}") },
            "spec": { "selector": selector }, "status": { "disruptionsAllowed": allowed },
        });
        Arc::new(Budget::read(&object))
    }

    #[test]
    fn the_tightest_budget_that_covers_a_pod_counts() {
        let pod = pod(json!({ "labels": { "app": "web", "tier": "front" } }));
        let all = [
            budget(json!({ "matchLabels": { "app": "db" } }), 0),
            budget(json!({}), 3),
            budget(json!({ "matchLabels": { "app": "web" } }), 2),
            budget(
                json!({ "matchExpressions": [{ "key": "tier", "operator": "In", "values": ["front"] }, { "key": "x", "operator": "DoesNotExist" }] }),
                1,
            ),
            budget(
                json!({ "matchExpressions": [{ "key": "tier", "operator": "NotIn", "values": ["front"] }] }),
                0,
            ),
        ];
        let found = pod.with_budgets(all.iter(), &Contract::default()).disruption_budget.unwrap();
        assert_eq!((found.name.as_str(), found.disruptions_allowed), ("shop/b1", 1));
        assert_eq!(pod.with_budgets(all[..1].iter(), &Contract::default()).disruption_budget, None);
    }

    #[test]
    fn a_budget_that_nobody_has_counted_yet_allows_nothing() {
        let object = json!({ "apiVersion": "policy/v1", "metadata": { "namespace": "shop", "name": "b" }, "spec": { "selector": {} } });
        assert_eq!(Budget::read(&object).disruptions_allowed, 0);
        let object =
            json!({ "apiVersion": "policy/v1beta1", "metadata": {}, "spec": { "selector": {} } });
        assert_eq!(Budget::read(&object).selector, None, "in the beta an empty one covers nothing");
    }
}
