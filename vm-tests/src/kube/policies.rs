//! Services and disruption budgets, and what the controllers make of them.
use super::{ApiPod, Kube};
use anyhow::Result;
use serde_json::{Value, json};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";
const BUDGETS: &str = "/apis/policy/v1beta1/namespaces/default/poddisruptionbudgets";

impl Kube {
    /// Make a Service of the pods with this label.
    pub(crate) fn serve(&self, name: &str) -> Result<()> {
        let object = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"selector": {"app": name}, "ports": [{"port": 80}]},
        });
        self.api.create(SERVICES, &object).map(drop)
    }

    /// Remove a Service; one that is not there is fine.
    pub(crate) fn remove_service(&self, name: &str) -> Result<()> {
        self.api.delete(&format!("{SERVICES}/{name}"))
    }

    /// UIDs of the pods that a Service leads to.
    pub(crate) fn endpoints(&self, name: &str) -> Result<Vec<String>> {
        let object = self.api.get(&format!("{ENDPOINTS}/{name}"))?;
        let list = |of: &Value, key: &str| {
            of.get(key).and_then(Value::as_array).cloned().unwrap_or_default()
        };
        let addresses = list(&object, "subsets").into_iter().flat_map(|s| list(&s, "addresses"));
        let uid = |address: Value| {
            address.pointer("/targetRef/uid").and_then(Value::as_str).map(str::to_owned)
        };
        Ok(addresses.filter_map(uid).collect())
    }

    /// Have one pod with this label stay, whoever asks for its eviction.
    pub(crate) fn budget_of_one(&self, name: &str) -> Result<()> {
        let object = json!({
            "apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}},
        });
        self.api.create(BUDGETS, &object).map(drop)
    }

    /// How many healthy pods a budget has counted, and how many of them may go; `None` before it was looked at.
    pub(crate) fn allowed_by(&self, name: &str) -> Result<Option<(u64, u64)>> {
        let object = self.api.get(&format!("{BUDGETS}/{name}"))?;
        let number = |key: &str| object.pointer(&format!("/status/{key}")).and_then(Value::as_u64);
        Ok(number("currentHealthy").zip(number("disruptionsAllowed")))
    }

    /// Remove a budget; one that is not there is fine.
    pub(crate) fn remove_budget(&self, name: &str) -> Result<()> {
        self.api.delete(&format!("{BUDGETS}/{name}"))
    }

    /// Whether the API server is deleting a pod, or has deleted it.
    pub(crate) fn is_being_deleted(&self, pod: &ApiPod) -> Result<bool> {
        let found = self.find(pod)?;
        Ok(found.is_none_or(|object| object.pointer("/metadata/deletionTimestamp").is_some()))
    }
}
