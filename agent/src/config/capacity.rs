//! A configuration held against the machine that it is read on: what can never be enough there, and what nothing feeds there.

use super::{
    Config, ConfigErrors, Mistake,
    source::{line_of, tree},
};
use ebb_journal::text::amount;
use ebb_policy::limits::{ConfigError, Threshold};
use ebb_policy::plan::Strength;
use ebb_policy::{Quantity, Signal};
use std::collections::BTreeMap;
use std::path::Path;

/// How much there is of each signal at most, in its unit; signals of which that is not known are absent.
pub type Capacities = BTreeMap<Signal, u64>;

impl Config {
    /// Thresholds that are met whatever is evicted: at or above what there is.
    #[must_use]
    pub fn out_of_reach(&self, capacities: &Capacities) -> Vec<ConfigError> {
        let configured = self.limits.thresholds().iter();
        // Derived from another that is named itself.
        let configured = configured.filter(|t| t.signal != Signal::AllocatableMemoryAvailable);
        configured.filter_map(|threshold| self.beyond(threshold, capacities)).collect()
    }

    fn beyond(&self, threshold: &Threshold, capacities: &Capacities) -> Option<ConfigError> {
        let signal = threshold.signal;
        // What is 0 was not measured.
        let capacity = capacities.get(&signal).copied().filter(|capacity| *capacity > 0)?;
        let all = Quantity::count(capacity);
        let (field, map) = match threshold.list {
            Strength::Hard => ("evictionHard", &self.eviction.eviction_hard),
            Strength::Soft => ("evictionSoft", &self.eviction.eviction_soft),
        };
        let (field, map, problem) = if threshold.value.resolve(Some(capacity)) >= all {
            (field, map, "so it would be met for ever")
        } else if threshold.goal(Some(capacity)) >= all {
            let map = &self.eviction.eviction_minimum_reclaim;
            ("evictionMinimumReclaim", map, "so with the threshold it could never be reached")
        } else {
            return None;
        };
        let there = amount(signal, capacity);
        let written = map.as_ref().and_then(|map| map.get(signal.name()).cloned());
        Some(ConfigError {
            key: format!("{field}[{:?}]", signal.name()),
            value: Some(written.unwrap_or_else(|| threshold.written())),
            problem: format!("there are only {there} here, {problem}"),
            fix: format!("write less than {there}, or a percentage"),
        })
    }

    /// Options that go by what only an API server tells, where the agent has none.
    #[must_use]
    pub fn unfed(&self) -> Vec<ConfigError> {
        if self.has_api_server {
            return Vec::new();
        }
        let options = self.limits.options();
        let error = |key: &str, value: String, what: &str, more: &str| ConfigError {
            key: key.to_owned(),
            value: Some(value),
            problem: format!(
                "nothing here tells {what} (only an API server does), so it would do nothing"
            ),
            fix: format!("remove it, or connect to the API server with --kubernetes{more}"),
        };
        let fed_by = [
            ("ebb.spreadOwners", options.spread_owners, "who owns a pod"),
            ("ebb.disruptionBudgets", options.disruption_budgets, "what budgets allow"),
        ];
        let flags = fed_by.into_iter().filter(|(_, is_on, _)| *is_on).map(|(key, _, what)| {
            error(key, "true".to_owned(), what, "; `ebb plan` obeys it where the snapshot says so")
        });
        let contract = &self.contract;
        let listed = [
            ("ebb.evictNeverIn", &contract.evict_never_in),
            ("ebb.evictAvoidIn", &contract.evict_avoid_in),
        ];
        let listed = listed.into_iter().filter(|(_, namespaces)| !namespaces.is_empty());
        let annotations = listed.map(|(key, namespaces)| {
            error(key, namespaces.join(", "), "the annotations of pods", "")
        });
        flags.chain(annotations).collect()
    }
}

/// Mistakes with the lines in which they stand in the file.
#[must_use]
pub fn placed(file: Option<&Path>, errors: Vec<ConfigError>) -> ConfigErrors {
    let text = file.and_then(|file| std::fs::read_to_string(file).ok());
    let root = text.and_then(|text| tree(&text).ok());
    let mistake = |error: ConfigError| Mistake {
        line: root.as_ref().and_then(|root| line_of(root, &error.key)),
        error,
    };
    let mut mistakes: Vec<Mistake> = errors.into_iter().map(mistake).collect();
    mistakes.sort();
    ConfigErrors { file: file.map(Path::to_owned), mistakes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str, capacities: &[(Signal, u64)]) -> Vec<String> {
        let config = Config::parse(text).unwrap();
        let capacities = capacities.iter().copied().collect();
        config.out_of_reach(&capacities).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_threshold_at_or_above_what_there_is_names_key_value_and_capacity() {
        let memory = [(Signal::MemoryAvailable, 24 << 30)];
        assert_eq!(
            said("evictionHard: {memory.available: 900Gi}", &memory),
            [
                "evictionHard[\"memory.available\"] = \"900Gi\": there are only 24.0 GiB here, so it would be met for ever; write less than 24.0 GiB, or a percentage"
            ]
        );
        assert_eq!(said("evictionHard: {memory.available: 24Gi}", &memory).len(), 1);
        assert_eq!(said("evictionHard: {memory.available: 23Gi}", &memory).len(), 0);
        assert_eq!(said("evictionHard: {memory.available: 900Gi}", &[]).len(), 0, "unknown");
        assert_eq!(
            said("evictionHard: {pid.available: \"40000\"}", &[(Signal::PidAvailable, 32768)])
                .len(),
            1
        );
        let reclaim = "evictionHard: {memory.available: 1Gi}\nevictionMinimumReclaim: {memory.available: 23Gi}";
        assert!(
            said(reclaim, &memory)[0]
                .starts_with("evictionMinimumReclaim[\"memory.available\"] = \"23Gi\"")
        );
        let both = "evictionHard: {memory.available: 900Gi}\nebb: {mode: kubernetes}";
        assert_eq!(said(both, &memory).len(), 1, "the threshold on all pods is derived from it");
    }

    #[test]
    fn what_nothing_feeds_is_named() {
        let config = Config::parse("ebb: {spreadOwners: true, disruptionBudgets: true}").unwrap();
        let keys: Vec<String> = config.unfed().into_iter().map(|error| error.key).collect();
        assert_eq!(keys, ["ebb.spreadOwners", "ebb.disruptionBudgets"]);
        assert!(Config::standalone_default().unfed().is_empty());
    }
}
