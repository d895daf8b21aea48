//! Leaks in real containers that are called as the node's own daemons and a pod's sandbox are: a name, the program's and the process's, saves nobody, root in its container or not.
use crate::agent::victims;
use crate::cgroup::Cgroup;
use crate::containerd::{GATE, SOON, Site, Wanted, open_gate, volume_of};
use crate::init::SELF;
use crate::node;
use crate::registry::{Context as TestContext, Outcome};
use crate::runner;
use crate::scene::Scene;
use crate::wait;
use anyhow::{Context, Result, ensure};
use nix::unistd::Pid;
use std::fs;
use std::path::Path;

const THRESHOLDS: &str = "evictionHard:\n  memory.available: 25%\n";
const INNOCENTS: [&str; 2] = ["calm-0", "calm-1"];
const STAY: &str = "trap 'exit 0' TERM; while true; do sleep 1; done";
/// More MiB than the node has: whoever leaves as much takes nothing.
const NOTHING: u64 = 1 << 20;
/// The pod, what its leak is called, and as whom it runs there.
const LEAKS: [(&str, &str, u64); 4] = [
    ("leak-0", "pause", 0),
    ("leak-1", "kubelet", 1000),
    ("leak-2", "kubelet", 0),
    ("leak-3", "pause", 1000),
];

/// A pod leaks, whose process is the only one of its container, and has the name of a sandbox's or of a kubelet: it goes each time, and nobody else.
pub(crate) fn leaks_go(test: &TestContext) -> Result<Outcome> {
    let site = Site::new(true)?;
    let innocents: Vec<String> = INNOCENTS
        .iter()
        .map(|name| Ok(site.run(&Wanted { name, script: STAY, ..Wanted::default() })?.1))
        .collect::<Result<_>>()?;
    let mut scene = Scene::with_innocents(0, 0)?;
    let mut agent = site.agent(test, THRESHOLDS, "")?;
    for (pod, called, user) in LEAKS {
        runner::note(test, &format!("{called}, user {user}"))?;
        let dir = volume_of(pod, "programs");
        fs::create_dir_all(&dir).context("cannot create a volume")?;
        fs::copy(SELF, dir.join(called)).context("cannot copy the program")?;
        // It takes nothing before its gate is open.
        let script = format!(
            "exec /programs/{called} act-here named {called} {user} gated {NOTHING} {GATE}/{pod}"
        );
        let volumes = &[("programs", "{}")];
        let (_, id) =
            site.run(&Wanted { name: pod, script: &script, volumes, ..Wanted::default() })?;
        let container = Cgroup::at(&format!("kubepods/burstable/poduid-{pod}")).child(&id);
        wait::until(SOON, "the leak is disguised", || {
            container
                .processes()
                .is_ok_and(|all| all.len() == 1 && is_disguised(all[0], called, user))
        })?;
        open_gate(pod)?;
        let name = format!("default/{pod}");
        site.until_ended(&id).with_context(|| agent.last_words())?;
        agent.until_recovered(SOON, |victim| victim == name)?;
        for id in &innocents {
            ensure!(site.runs(id)?, "a pod beside {called} (user {user}) was touched");
        }
        scene.assert_peace().with_context(|| format!("{called}, user {user}"))?;
    }
    let victims = victims(&agent.stop()?);
    let leaks = LEAKS.map(|(pod, ..)| format!("default/{pod}"));
    ensure!(victims == leaks, "ebb acted on {victims:?}");
    Ok(Outcome::Passed)
}

/// Whether process and program are called that, and who it is.
fn is_disguised(pid: Pid, called: &str, user: u64) -> bool {
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let is_user = node::status(pid, "Uid:").is_ok_and(|id| id == user);
    comm.trim() == called && program == Path::new("/programs").join(called) && is_user
}
