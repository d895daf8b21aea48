//! What is allowed but can have no effect: warnings, since the kubelet takes such a configuration.
use super::{ConfigError, RawEviction, Threshold, ThresholdValue, parse::Checker};
use crate::{Signal, plan::Strength};
use alloc::{
    collections::BTreeMap,
    format,
    string::{String, ToString},
};

impl Checker {
    /// Soft thresholds that can never act before the hard one of their signal.
    pub(super) fn contradictions(
        &mut self,
        hard: &BTreeMap<String, String>,
        raw: &RawEviction,
        thresholds: &[Threshold],
    ) {
        for soft in thresholds.iter().filter(|t| t.list == Strength::Soft) {
            let name = soft.signal.name();
            let Some(earlier) =
                thresholds.iter().find(|t| t.list == Strength::Hard && t.signal == soft.signal)
            else {
                continue;
            };
            let weaker = match (soft.value, earlier.value) {
                (ThresholdValue::Amount(soft), ThresholdValue::Amount(hard)) => soft <= hard,
                (
                    ThresholdValue::Share { share: soft, .. },
                    ThresholdValue::Share { share: hard, .. },
                ) => soft <= hard,
                _ => false,
            };
            let (Some(hard), Some(text)) =
                (hard.get(name), raw.eviction_soft.as_ref().and_then(|map| map.get(name)))
            else {
                continue;
            };
            if weaker {
                self.warnings.push(ConfigError {
                    key: format!("evictionSoft[{name:?}]"),
                    value: Some(text.clone()),
                    problem: format!("not above evictionHard[{name:?}] = {hard:?}, which acts first and at once"),
                    fix: format!("raise the soft threshold above {hard:?} or lower the hard one below {text:?}"),
                });
            }
        }
        for (map, texts) in
            [("evictionHard", &raw.eviction_hard), ("evictionSoft", &raw.eviction_soft)]
        {
            for (name, text) in
                texts.iter().flatten().filter(|(name, _)| name.starts_with("containerfs."))
            {
                self.warnings.push(ConfigError {
                    key: format!("{map}[{name:?}]"),
                    value: Some(text.clone()),
                    problem: "not used: thresholds on containerfs are copies of those on the filesystem that it shares".to_string(),
                    fix: "remove it, and set nodefs or imagefs".to_string(),
                });
            }
        }
        for name in raw.eviction_soft_grace_period.iter().flat_map(BTreeMap::keys) {
            let soft = raw.eviction_soft.as_ref().is_some_and(|map| map.contains_key(name));
            if !soft && Signal::from_name(name).is_some() {
                self.warnings.push(ConfigError {
                    key: format!("evictionSoftGracePeriod[{name:?}]"),
                    value: None,
                    problem: "there is no soft threshold of that signal, so it has no effect"
                        .to_string(),
                    fix: format!("set evictionSoft[{name:?}] or remove this key"),
                });
            }
        }
    }
}
