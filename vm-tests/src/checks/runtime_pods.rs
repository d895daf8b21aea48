//! Cgroups of pods that only a container runtime tells of: held to what follows from the runtime's word, and no further.
use super::enforcement::{CONFIG, ebb_of};
use crate::agent::{Agent, Settings, is};
use crate::cgroup::Cgroup;
use crate::containerd::{Containerd, Pod, SOCKET, SOON};
use crate::registry::{Context as TestContext, Outcome};
use crate::{runner, wait};
use anyhow::{Context, Result, ensure};
use ebb_cri::launch::ContainerSpec;
use ebb_vm_protocol::images::APP;
use serde_json::Value;
use std::fs;

const FIELDS: &str = "podPidsLimit: 500\nevictionHard: {memory.available: 10Mi}\n";
const KEPT: &str = "500";
const WRONG: &str = "77";
/// Bytes; what the Burstable pod's container is given, and what somebody makes of it.
const LIMIT: u64 = 32 << 20;
const OTHER_LIMIT: u64 = 64 << 20;

/// Values that are certain are there soon after the runtime told of the pod and come back when they are changed; what may be otherwise is left alone, and a container's limit is reported, never written.
pub(crate) fn held(test: &TestContext) -> Result<Outcome> {
    let containerd = Containerd::ensure()?;
    fs::write(CONFIG, FIELDS).context("cannot write the configuration")?;
    let early = run(&containerd, "besteffort", "early", None)?;
    let partly = run(&containerd, "burstable", "partly", Some(LIMIT))?;
    let (early, container) = (at(&early.0), at(&partly.0).child(&partly.1));
    let partly = at(&partly.0);
    // Whether this is right depends on requests, of which the runtime does not tell.
    partly.write("cpu.weight", "55")?;
    let own = "  mode: kubernetes\n  cgroups: {mode: enforce, beside: nobody}\n";
    let arguments = ["--enforce", "--cri", SOCKET, "--state", "/run/ebb-state"];
    let settings = Settings {
        thresholds: FIELDS,
        own,
        arguments: &arguments,
        config: None,
        without_bpf: false,
        without: &[],
    };
    let mut agent = Agent::start(test, &settings)?;
    let has = |cgroup: &Cgroup, file: &str, value: &str| {
        cgroup.read(file).is_ok_and(|text| text.trim() == value)
    };
    let is_held = |cgroup: &Cgroup| has(cgroup, "pids.max", KEPT);
    wait::until(SOON, "pods that were there are held", || is_held(&early) && is_held(&partly))?;
    let late = at(&run(&containerd, "besteffort", "late", None)?.0);
    wait::until(SOON, "a pod that came later is held", || is_held(&late))?;
    for cgroup in [&early, &partly, &late] {
        cgroup.write("pids.max", WRONG)?;
    }
    early.write("cpu.weight", WRONG)?;
    container.write("memory.max", &OTHER_LIMIT.to_string())?;
    wait::until(SOON, "what was changed is as it was", || {
        is_held(&early) && is_held(&partly) && is_held(&late) && !has(&early, "cpu.weight", WRONG)
    })?;
    ensure!(has(&partly, "cpu.weight", "55"), "a weight that is not known was written");
    let (audit, same) = ebb_of(&["audit"], &["--cri", SOCKET])?;
    let differences = audit.get("differences").and_then(Value::as_array).context("no audit")?;
    let left: Vec<String> = differences.iter().map(place).collect();
    ensure!(!same && left == [format!("{} memory.max", container.name())], "left: {left:?}");
    ensure!(
        has(&container, "memory.max", &OTHER_LIMIT.to_string()),
        "a container's limit was written"
    );
    let repairs = agent.records().iter().filter(|record| is(record, "cgroups")).count();
    agent.stop()?;
    runner::note(test, &format!("3 pods held by {repairs} rounds; left to the runtime: {left:?}"))?;
    containerd.remove_all_pods()?;
    Ok(Outcome::Passed)
}

/// A pod with one container that sleeps, and that container's id.
fn run(
    containerd: &Containerd,
    class: &str,
    name: &str,
    limit: Option<u64>,
) -> Result<(Pod, String)> {
    let pod = containerd.pod(class, name)?;
    let container = ContainerSpec {
        name: "main".to_owned(),
        image: APP.to_owned(),
        command: vec!["/bin/busybox".to_owned()],
        args: vec!["sleep".to_owned(), "100000".to_owned()],
        memory_limit: limit,
        ..ContainerSpec::default()
    };
    let id = containerd.container(&pod, &container)?;
    Ok((pod, id))
}

fn at(pod: &Pod) -> Cgroup {
    Cgroup::at(pod.spec.cgroup_parent.trim_start_matches('/'))
}

fn place(difference: &Value) -> String {
    let word = |key: &str| difference.get(key).and_then(Value::as_str).unwrap_or_default();
    format!("{} {}", word("path"), word("file"))
}
