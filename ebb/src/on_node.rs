//! A configuration and the agent that is to obey it: what its machine has room for, what its arguments forbid, and what cannot change while it runs.
//!
//! The same is asked at the start, by `ebb check`, and whenever the configuration is read anew: what is refused at the start must not come in by a reload.

use super::Failure;
use super::configured::ConfigArgs;
use ebb_agent::config::{Capacities, CgroupMode, Config, Incidents, Mode, Seccomp, placed};
use ebb_agent::sense::meminfo::Measure;
use ebb_policy::limits::ConfigError;
use std::time::Duration;

/// What a configuration is held against, beside itself.
#[derive(Debug)]
pub(super) struct Around {
    /// How much of each signal the machine has.
    pub(super) capacities: Capacities,
    /// An API server tells of pods (`--kubernetes`).
    pub(super) beside_kubelet: bool,
    /// What a reconciler of cgroups would find; `None` for a command that starts none.
    pub(super) reconciler: Option<ForReconciler>,
}

/// What a reconciler of cgroups needs of the arguments and of the host.
#[derive(Clone, Debug)]
pub(super) struct ForReconciler {
    /// A container runtime tells which pods there are (`--cri`).
    pub(super) has_runtime: bool,
    /// Which hierarchies there are, where the unified one is not.
    pub(super) not_unified: Option<String>,
}

/// Everything that speaks against obeying this configuration here.
pub(super) fn objections(config: &Config, around: &Around) -> Vec<ConfigError> {
    let mut errors = input(config, around);
    errors.extend(not_of_this_host(config, around));
    errors
}

/// What is wrong with the file, or does not go with the arguments.
fn input(config: &Config, around: &Around) -> Vec<ConfigError> {
    let mut errors = config.out_of_reach(&around.capacities);
    errors.extend(config.unfed());
    if around.beside_kubelet && config.mode == Mode::Standalone {
        errors.push(ConfigError {
            key: "ebb.mode".to_owned(),
            value: Some(word(config.mode).to_owned()),
            problem: "with --kubernetes pods are the workloads".to_owned(),
            fix: "write `mode: kubernetes`".to_owned(),
        });
    }
    let has_runtime = around.reconciler.as_ref().is_none_or(|of| of.has_runtime);
    let cgroups = &config.cgroups;
    if cgroups.mode != CgroupMode::Off && cgroups.pod_manifests.is_none() && !has_runtime {
        errors.push(ConfigError {
            key: "ebb.cgroups.podManifests".to_owned(),
            value: None,
            problem: "nothing tells which pods there are".to_owned(),
            fix: "name a file or a directory of manifests, or the container runtime with --cri"
                .to_owned(),
        });
    }
    errors
}

/// What this host does not offer.
fn not_of_this_host(config: &Config, around: &Around) -> Option<ConfigError> {
    let hierarchies = around.reconciler.as_ref()?.not_unified.as_ref()?;
    let value = match config.cgroups.mode {
        CgroupMode::Off => return None,
        CgroupMode::Audit => "audit",
        CgroupMode::Enforce => "enforce",
    };
    Some(ConfigError {
        key: "ebb.cgroups.mode".to_owned(),
        value: Some(value.to_owned()),
        problem: format!(
            "the unified hierarchy is needed (cgroup v2 with the memory controller): {hierarchies}"
        ),
        fix: "write `mode: off`".to_owned(),
    })
}

/// Refuses a configuration that cannot be obeyed here.
pub(super) fn refuse(args: &ConfigArgs, config: &Config, around: &Around) -> Result<(), Failure> {
    let errors = objections(config, around);
    if errors.is_empty() {
        return Ok(());
    }
    let failure = if input(config, around).is_empty() { Failure::Host } else { Failure::Input };
    Err(failure(placed(args.file(), errors).into()))
}

/// What is built into a running agent: its threads, its descriptors, its reflex in the kernel.
#[derive(Clone, Debug)]
pub(super) struct Fixed {
    pub(super) enforce: bool,
    /// Which runtime is asked may have followed from it, and on whom ebb may act does.
    pub(super) mode: Mode,
    pub(super) measure: Measure,
    pub(super) reflex: Option<Duration>,
    pub(super) seccomp: Seccomp,
    pub(super) incidents: Option<Incidents>,
}

impl Fixed {
    /// The fields by which a new configuration asks for something else than what runs.
    pub(super) fn changes(&self, new: &Fixed) -> Vec<ConfigError> {
        let Fixed { enforce, mode, measure, reflex, seccomp, incidents } = self;
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
        if *mode != new.mode {
            say("ebb.mode", word(new.mode).into(), word(*mode).into());
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

fn word(mode: Mode) -> &'static str {
    match mode {
        Mode::Standalone => "standalone",
        Mode::Kubernetes => "kubernetes",
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
            mode: Mode::Standalone,
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
        let (mode, measure) = (Mode::Kubernetes, Measure::WorkingSet);
        let other = Fixed { enforce: true, mode, measure, reflex: None, seccomp, incidents };
        let own = ["enforce", "mode", "memoryAvailable", "reflex", "seccomp", "incidents"];
        assert_eq!(keys(&other), own.map(|key| format!("ebb.{key}")));
        let longer = Fixed { reflex: Some(Duration::from_secs(2)), ..fixed.clone() };
        assert_eq!(
            fixed.changes(&longer)[0].to_string(),
            "ebb.reflexLease = \"2000ms\": it cannot change while ebb runs, and is 1000ms; restart ebb, or take the change back"
        );
    }

    fn around(beside_kubelet: bool, reconciler: Option<ForReconciler>) -> Around {
        Around { capacities: Capacities::new(), beside_kubelet, reconciler }
    }

    fn said(text: &str, around: &Around) -> Vec<String> {
        let config = Config::parse(text).unwrap();
        objections(&config, around).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_mode_for_a_node_without_a_kubelet_is_refused_beside_one() {
        let text = "ebb: {mode: standalone, memoryAvailable: memAvailable}";
        assert_eq!(
            said(text, &around(true, None)),
            [
                "ebb.mode = \"standalone\": with --kubernetes pods are the workloads; write `mode: kubernetes`"
            ]
        );
        assert!(said(text, &around(false, None)).is_empty());
        assert!(said("ebb: {mode: kubernetes}", &around(true, None)).is_empty());
    }

    #[test]
    fn a_reconciler_of_cgroups_is_refused_where_nothing_tells_of_pods_or_the_host_has_no_tree() {
        let of = |has_runtime, not_unified: Option<&str>| {
            let not_unified = not_unified.map(str::to_owned);
            around(false, Some(ForReconciler { has_runtime, not_unified }))
        };
        let text = "ebb: {cgroups: {mode: audit}}";
        let [without] = <[String; 1]>::try_from(said(text, &of(false, None))).unwrap();
        assert!(without.starts_with("ebb.cgroups.podManifests: nothing tells which"), "{without}");
        assert!(said(text, &of(true, None)).is_empty());
        assert!(said(text, &around(false, None)).is_empty(), "nobody starts one");
        let [hybrid] = <[String; 1]>::try_from(said(text, &of(true, Some("hybrid")))).unwrap();
        assert!(hybrid.starts_with("ebb.cgroups.mode = \"audit\": the unified"), "{hybrid}");
        assert!(said("", &of(false, Some("hybrid"))).is_empty());
        let config = Config::parse(text).unwrap();
        let refused = refuse(&ConfigArgs::of(None, None), &config, &of(true, Some("hybrid")));
        assert!(matches!(refused, Err(Failure::Host(_))), "{refused:?}");
    }
}
