//! A configuration on the node that it is for: what the machine has room for, and what cannot change while the agent runs.

use super::Failure;
use super::configured::ConfigArgs;
use ebb_agent::config::Seccomp;
use ebb_agent::config::{Capacities, Config, Incidents, placed};
use ebb_agent::sense::meminfo::Measure;
use ebb_policy::limits::ConfigError;
use std::time::Duration;

/// Everything that speaks against obeying this configuration here.
pub(super) fn objections(config: &Config, capacities: &Capacities) -> Vec<ConfigError> {
    let mut errors = config.out_of_reach(capacities);
    errors.extend(config.unfed());
    errors
}

/// Refuses a configuration that cannot be obeyed here.
pub(super) fn refuse(
    args: &ConfigArgs,
    config: &Config,
    capacities: &Capacities,
) -> Result<(), Failure> {
    let errors = objections(config, capacities);
    if errors.is_empty() {
        return Ok(());
    }
    Err(Failure::Input(placed(args.file(), errors).into()))
}

/// What is built into a running agent: its threads, its descriptors, its reflex in the kernel.
#[derive(Clone, Debug)]
pub(super) struct Fixed {
    pub(super) enforce: bool,
    pub(super) measure: Measure,
    pub(super) reflex: Option<Duration>,
    pub(super) seccomp: Seccomp,
    pub(super) incidents: Option<Incidents>,
}

impl Fixed {
    /// The fields by which a new configuration asks for something else than what runs.
    pub(super) fn changes(&self, new: &Fixed) -> Vec<ConfigError> {
        let Fixed { enforce, measure, reflex, seccomp, incidents } = self;
        let flag = |is_on: bool| is_on.to_string();
        let mut errors = Vec::new();
        let mut say = |key: &str, value: String, now: String| {
            errors.push(ConfigError {
                key: key.to_owned(),
                value: Some(value),
                problem: format!("it cannot change while ebb runs, and is {now}"),
                fix: "restart ebb, or take the change back".to_owned(),
            });
        };
        if *enforce != new.enforce {
            say("ebb.enforce", flag(new.enforce), flag(*enforce));
        }
        if *measure != new.measure {
            say("ebb.memoryAvailable", name(new.measure).into(), name(*measure).into());
        }
        let shown = |reflex: Option<Duration>| match reflex {
            Some(_) => "enabled",
            None => "disabled",
        };
        if reflex.is_some() != new.reflex.is_some() {
            say("ebb.reflex", shown(new.reflex).into(), shown(*reflex).into());
        } else if let (Some(now), Some(then)) = (reflex, new.reflex)
            && *now != then
        {
            say(
                "ebb.reflexLease",
                format!("{}ms", then.as_millis()),
                format!("{}ms", now.as_millis()),
            );
        }
        if *seccomp != new.seccomp {
            say("ebb.seccomp", new.seccomp.word().into(), seccomp.word().into());
        }
        if *incidents != new.incidents {
            let shown = |incidents: &Option<Incidents>| match incidents {
                Some(Incidents { directory, keep }) => {
                    format!("{} (keep {keep})", directory.display())
                }
                None => "absent".to_owned(),
            };
            say("ebb.incidents", shown(&new.incidents), shown(incidents));
        }
        errors
    }
}

fn name(measure: Measure) -> &'static str {
    match measure {
        Measure::WorkingSet => "workingSet",
        Measure::MemAvailable => "memAvailable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_field_that_cannot_change_is_named_with_both_values() {
        let fixed = Fixed {
            enforce: false,
            measure: Measure::MemAvailable,
            reflex: Some(Duration::from_secs(1)),
            seccomp: Seccomp::Enforce,
            incidents: None,
        };
        assert!(fixed.changes(&fixed.clone()).is_empty());
        let keys = |new: &Fixed| -> Vec<String> {
            fixed.changes(new).into_iter().map(|error| error.key).collect()
        };
        let incidents = Some(Incidents { directory: "/a".into(), keep: 1 });
        let seccomp = Seccomp::Log;
        let other =
            Fixed { enforce: true, measure: Measure::WorkingSet, reflex: None, seccomp, incidents };
        assert_eq!(
            keys(&other),
            ["ebb.enforce", "ebb.memoryAvailable", "ebb.reflex", "ebb.seccomp", "ebb.incidents"]
        );
        let longer = Fixed { reflex: Some(Duration::from_secs(2)), ..fixed.clone() };
        assert_eq!(
            fixed.changes(&longer)[0].to_string(),
            "ebb.reflexLease = \"2000ms\": it cannot change while ebb runs, and is 1000ms; restart ebb, or take the change back"
        );
    }
}
