//! From text to checked limits, by the kubelet's rules; every mistake is collected before anything is refused.
use super::{
    ConfigError, Limits, Options, RawEviction, Threshold, ThresholdValue, duration, percentage,
};
use crate::{Millis, Quantity, Signal, plan::Strength};
use alloc::{
    collections::BTreeMap,
    format,
    string::{String, ToString},
    vec::Vec,
};

/// The kubelet's hard thresholds on Linux when none are configured.
const DEFAULT_HARD: [(&str, &str); 5] = [
    ("imagefs.available", "15%"),
    ("imagefs.inodesFree", "5%"),
    ("memory.available", "100Mi"),
    ("nodefs.available", "10%"),
    ("nodefs.inodesFree", "5%"),
];

/// What a threshold may look like, for messages.
pub(super) const VALUE_FIX: &str =
    "write a positive quantity such as \"100Mi\", or a percentage such as \"5%\"";

/// What a duration may look like, for messages.
pub(super) const DURATION_FIX: &str = "write a duration such as \"90s\", \"5m\" or \"1h30m\"";

pub(super) fn limits(raw: &RawEviction) -> Result<Limits, Vec<ConfigError>> {
    let mut check = Checker { errors: Vec::new(), warnings: Vec::new() };
    let options = raw.options.clone().unwrap_or_else(Options::kubelet);
    let thresholds = check.thresholds(raw, &options);
    let pressure_transition_period = check.duration(
        "evictionPressureTransitionPeriod",
        raw.eviction_pressure_transition_period.as_deref(),
        Millis(300_000),
    );
    let container_gc = check.container_gc(raw);
    let image_gc = check.image_gc(raw);
    let memory_pressure = check.memory_pressure(&raw.memory_pressure);
    check.options(&options);
    let Checker { errors, warnings } = check;
    if !errors.is_empty() {
        return Err(errors);
    }
    Ok(Limits {
        thresholds,
        pressure_transition_period,
        max_pod_grace: raw.eviction_max_pod_grace_period.unwrap_or(0),
        local_storage_isolation: raw.local_storage_capacity_isolation.unwrap_or(true),
        container_gc,
        image_gc,
        memory_pressure,
        options,
        warnings,
    })
}

/// Mistakes and warnings so far.
pub(super) struct Checker {
    pub(super) errors: Vec<ConfigError>,
    pub(super) warnings: Vec<ConfigError>,
}

impl Checker {
    pub(super) fn refuse(
        &mut self,
        key: impl Into<String>,
        value: Option<&str>,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) {
        self.errors.push(ConfigError {
            key: key.into(),
            value: value.map(ToString::to_string),
            problem: problem.into(),
            fix: fix.into(),
        });
    }

    fn thresholds(&mut self, raw: &RawEviction, options: &Options) -> Vec<Threshold> {
        let mut hard_text = raw.eviction_hard.clone().unwrap_or_default();
        if raw.eviction_hard.is_none() || raw.merge_default_eviction_settings == Some(true) {
            for (signal, value) in DEFAULT_HARD {
                hard_text.entry(signal.to_string()).or_insert_with(|| value.to_string());
            }
        }
        let hard = self.values("evictionHard", &hard_text);
        let soft =
            self.values("evictionSoft", raw.eviction_soft.as_ref().unwrap_or(&BTreeMap::new()));
        let graces = self.graces(raw.eviction_soft_grace_period.as_ref());
        let reclaims = self.min_reclaims(raw.eviction_minimum_reclaim.as_ref());

        let bounded = |signal: Signal, value| match value {
            ThresholdValue::Share { share, .. } => ThresholdValue::Share {
                share,
                at_most: options.percentage_at_most.get(&signal).copied(),
            },
            amount @ ThresholdValue::Amount(_) => amount,
        };
        let mut thresholds = Vec::new();
        for (&signal, &value) in &hard {
            thresholds.push(Threshold {
                signal,
                list: Strength::Hard,
                value: bounded(signal, value),
                grace: Millis(0),
                min_reclaim: reclaims.get(&signal).copied(),
                also: None,
                inert: false,
            });
        }
        for (&signal, &value) in &soft {
            let Some(&grace) = graces.get(&signal) else {
                if !raw
                    .eviction_soft_grace_period
                    .as_ref()
                    .is_some_and(|map| map.contains_key(signal.name()))
                {
                    self.refuse(
                        format!("evictionSoftGracePeriod[{:?}]", signal.name()),
                        None,
                        format!("a soft threshold on {signal} needs a grace period"),
                        DURATION_FIX,
                    );
                }
                continue;
            };
            thresholds.push(Threshold {
                signal,
                list: Strength::Soft,
                value: bounded(signal, value),
                grace,
                min_reclaim: reclaims.get(&signal).copied(),
                also: None,
                inert: false,
            });
        }
        self.combine(raw, &mut thresholds, bounded);
        let pods = String::from("pods");
        if raw.enforce_node_allocatable.as_ref().is_none_or(|list| list.contains(&pods)) {
            // What acts on the node's memory at once acts on the memory of all pods together too.
            let memory = |t: &&Threshold| t.signal == Signal::MemoryAvailable && t.grace.0 == 0;
            let copies: Vec<Threshold> = thresholds.iter().filter(memory).copied().collect();
            thresholds.extend(copies.into_iter().map(|t| Threshold {
                signal: Signal::AllocatableMemoryAvailable,
                also: None,
                ..t
            }));
        }
        self.contradictions(&hard_text, raw, &thresholds);
        thresholds
    }

    /// Keys that name a signal which can be set.
    fn signal(&mut self, map: &str, name: &str, value: &str) -> Option<Signal> {
        match Signal::from_name(name) {
            Some(Signal::AllocatableMemoryAvailable) => {
                self.refuse(
                    format!("{map}[{name:?}]"),
                    Some(value),
                    "this signal cannot be set",
                    "set memory.available: with enforceNodeAllocatable: [pods] it applies to the pods' cgroup too",
                );
                None
            }
            Some(signal) => Some(signal),
            None => {
                let known: Vec<&str> = Signal::ALL
                    .into_iter()
                    .filter(|signal| *signal != Signal::AllocatableMemoryAvailable)
                    .map(Signal::name)
                    .collect();
                self.refuse(
                    format!("{map}[{name:?}]"),
                    Some(value),
                    "unknown eviction signal",
                    format!("use one of {}", known.join(", ")),
                );
                None
            }
        }
    }

    fn values(
        &mut self,
        map: &str,
        texts: &BTreeMap<String, String>,
    ) -> BTreeMap<Signal, ThresholdValue> {
        let mut values = BTreeMap::new();
        for (name, text) in texts {
            let Some(signal) = self.signal(map, name, text) else { continue };
            // The two ways to switch a threshold off.
            if text == "0%" || text == "100%" {
                continue;
            }
            let key = format!("{map}[{name:?}]");
            match parse_value(text) {
                Err(problem) => self.refuse(key, Some(text), problem, VALUE_FIX),
                Ok(ThresholdValue::Share { share, .. }) if !(0.0..=1.0).contains(&share) => {
                    self.refuse(key, Some(text), "a percentage is between 0% and 100%", VALUE_FIX);
                }
                Ok(ThresholdValue::Amount(amount)) if !amount.is_positive() => {
                    self.refuse(
                        key,
                        Some(text),
                        "a threshold must be positive",
                        format!("{VALUE_FIX}; \"0%\" switches it off"),
                    );
                }
                Ok(value) => {
                    values.insert(signal, value);
                }
            }
        }
        values
    }

    fn graces(&mut self, texts: Option<&BTreeMap<String, String>>) -> BTreeMap<Signal, Millis> {
        let mut graces = BTreeMap::new();
        for (name, text) in texts.into_iter().flatten() {
            let map = "evictionSoftGracePeriod";
            let Some(signal) = self.signal(map, name, text) else { continue };
            if let Some(grace) = self.checked_duration(&format!("{map}[{name:?}]"), text) {
                graces.insert(signal, grace);
            }
        }
        graces
    }

    fn min_reclaims(
        &mut self,
        texts: Option<&BTreeMap<String, String>>,
    ) -> BTreeMap<Signal, ThresholdValue> {
        let mut reclaims = BTreeMap::new();
        for (name, text) in texts.into_iter().flatten() {
            let map = "evictionMinimumReclaim";
            let Some(signal) = self.signal(map, name, text) else { continue };
            let key = format!("{map}[{name:?}]");
            match parse_value(text) {
                Err(problem) => self.refuse(key, Some(text), problem, VALUE_FIX),
                Ok(ThresholdValue::Share { share, .. }) if share <= 0.0 => {
                    self.refuse(
                        key,
                        Some(text),
                        "a percentage to reclaim must be positive",
                        VALUE_FIX,
                    );
                }
                Ok(ThresholdValue::Amount(amount)) if amount.is_negative() => {
                    self.refuse(
                        key,
                        Some(text),
                        "an amount to reclaim cannot be negative",
                        VALUE_FIX,
                    );
                }
                Ok(value) => {
                    reclaims.insert(signal, value);
                }
            }
        }
        reclaims
    }

    fn checked_duration(&mut self, key: &str, text: &str) -> Option<Millis> {
        match duration::parse_nanos(text) {
            Err(error) => {
                self.refuse(key, Some(text), error.to_string(), DURATION_FIX);
                None
            }
            Ok(nanos) => match u64::try_from(nanos) {
                Ok(nanos) => Some(Millis(nanos.div_ceil(1_000_000))),
                Err(_) => {
                    self.refuse(
                        key,
                        Some(text),
                        "a duration here cannot be negative",
                        DURATION_FIX,
                    );
                    None
                }
            },
        }
    }

    pub(super) fn duration(&mut self, key: &str, text: Option<&str>, default: Millis) -> Millis {
        text.map_or(Some(default), |text| self.checked_duration(key, text)).unwrap_or(default)
    }

    fn options(&mut self, options: &Options) {
        if options.max_victims == 0 {
            self.refuse(
                "maxVictims",
                Some("0"),
                "a pass could never choose anyone",
                "write 1 or more",
            );
        }
        for (signal, bound) in &options.percentage_at_most {
            if !bound.is_positive() {
                self.refuse(
                    format!("percentageAtMost[{:?}]", signal.name()),
                    Some(&bound.to_string()),
                    "a bound must be positive",
                    "write a quantity such as \"2Gi\"",
                );
            }
        }
    }
}

/// A quantity, or a percentage as a share in single precision.
pub(super) fn parse_value(text: &str) -> Result<ThresholdValue, String> {
    if !text.ends_with('%') {
        return text
            .parse::<Quantity>()
            .map(ThresholdValue::Amount)
            .map_err(|error| error.to_string());
    }
    match percentage::parse(text) {
        Some(percent) => Ok(ThresholdValue::Share { share: percent / 100.0, at_most: None }),
        None => Err("not a percentage".to_string()),
    }
}
