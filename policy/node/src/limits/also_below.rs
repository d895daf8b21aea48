//! Thresholds on two signals: memory counts as short only while swap is short too, or the other way round.
use super::{
    RawEviction, Threshold, ThresholdValue,
    parse::{Checker, VALUE_FIX, parse_value},
    threshold::AlsoBelow,
};
use crate::Signal;
use alloc::{
    collections::BTreeMap,
    format,
    string::{String, ToString},
};

/// What may be combined, for messages.
const PAIRS: &str =
    "write alsoBelow: {memory.available: {swap.available: \"10%\"}}, or the other way round";

impl Checker {
    /// Gives each threshold its second condition.
    pub(super) fn combine(
        &mut self,
        raw: &RawEviction,
        thresholds: &mut [Threshold],
        bounded: impl Fn(Signal, ThresholdValue) -> ThresholdValue,
    ) {
        for (name, others) in raw.also_below.iter().flatten() {
            let Some(also) = self.also_below(name, others) else { continue };
            let also = AlsoBelow { value: bounded(also.signal, also.value), ..also };
            let mut any = false;
            for threshold in thresholds.iter_mut().filter(|t| t.signal.name() == name) {
                threshold.also = Some(also);
                any = true;
            }
            if !any {
                self.warnings.push(super::ConfigError {
                    key: format!("ebb.alsoBelow[{name:?}]"),
                    value: None,
                    problem: "there is no threshold of that signal, so it has no effect"
                        .to_string(),
                    fix: format!("set evictionHard[{name:?}] or remove this key"),
                });
            }
        }
    }

    fn also_below(&mut self, name: &str, others: &BTreeMap<String, String>) -> Option<AlsoBelow> {
        let key = format!("ebb.alsoBelow[{name:?}]");
        let partner = match Signal::from_name(name) {
            Some(Signal::MemoryAvailable) => Signal::SwapAvailable,
            Some(Signal::SwapAvailable) => Signal::MemoryAvailable,
            _ => {
                let problem = "only memory.available and swap.available can be combined";
                self.refuse(key, None, problem, PAIRS);
                return None;
            }
        };
        if let Some((other, text)) = others.iter().find(|(other, _)| *other != partner.name()) {
            let key = format!("{key}[{other:?}]");
            let problem = format!("{name} can be combined with {partner} alone");
            self.refuse(key, Some(text), problem, format!("write {:?}", partner.name()));
            return None;
        }
        let text = others.get(partner.name())?;
        let key = format!("{key}[{:?}]", partner.name());
        let problem = match parse_value(text) {
            Err(problem) => problem,
            Ok(ThresholdValue::Share { share, .. }) if !(share > 0.0 && share <= 1.0) => {
                "a percentage here is above 0% and at most 100%".to_string()
            }
            Ok(ThresholdValue::Amount(amount)) if !amount.is_positive() => {
                "a threshold must be positive".to_string()
            }
            Ok(value) => return Some(AlsoBelow { signal: partner, value }),
        };
        let fix = format!("{VALUE_FIX}; {} switches the combination off", off(name));
        self.refuse(key, Some(text), problem, fix);
        None
    }
}

fn off(name: &str) -> String {
    format!("alsoBelow: {{{name}: {{}}}}")
}
