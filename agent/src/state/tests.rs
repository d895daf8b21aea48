//! The state on a fake node: what a snapshot says of it, and what kernel events change.
use super::*;
use crate::sense::node::NodeSensor;
use ebb_policy::Signal;
use ebb_policy::snapshot::Preference;
use rules::Patterns;
use std::fs;
use std::path::PathBuf;

struct Fake {
    dir: tempfile::TempDir,
}

impl Fake {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for sub in ["proc", "cgroup"] {
            fs::create_dir(dir.path().join(sub)).unwrap();
        }
        fs::write(dir.path().join("cgroup/cgroup.controllers"), "memory pids\n").unwrap();
        let meminfo = "MemTotal: 1000 kB\nMemAvailable: 400 kB\nAnonPages: 500 kB\nCached: 200 kB\nBuffers: 0 kB\nInactive(file): 100 kB\n";
        fs::write(dir.path().join("proc/meminfo"), meminfo).unwrap();
        Self { dir }
    }

    fn roots(&self) -> Roots {
        Roots { proc: self.dir.path().join("proc"), cgroup: self.dir.path().join("cgroup") }
    }

    /// Adds a cgroup and returns its id.
    fn add(&self, path: &str, usage: u64) -> u64 {
        use std::os::unix::fs::MetadataExt as _;
        let dir = self.roots().cgroup.join(path);
        fs::create_dir_all(&dir).unwrap();
        // A pid that no process can have.
        fs::write(dir.join("cgroup.procs"), "4194305\n").unwrap();
        fs::write(dir.join("cgroup.events"), "populated 1\n").unwrap();
        fs::write(dir.join("memory.current"), format!("{usage}\n")).unwrap();
        fs::metadata(&dir).unwrap().ino()
    }

    fn state(&self, patterns: &Patterns) -> NodeState {
        let layout = CgroupLayout::Unified { root: self.roots().cgroup };
        let rules = Rules::new(patterns).unwrap();
        let mut state = NodeState::new(self.roots(), layout, Measure::MemAvailable, rules);
        state.observe_node(NodeSensor::open(&self.roots()).unwrap().read().unwrap());
        state.sample(Boot::now(), Depth::Full).unwrap();
        state
    }
}

fn event(change: CgroupChange, id: u64, path: Option<&str>) -> KernelEvent {
    let path = path.map(str::to_owned);
    KernelEvent::Cgroup { ts_ns: 1, change, id, parent: None, level: 1, path }
}

fn names(state: &NodeState) -> Vec<String> {
    let mut names: Vec<_> =
        state.snapshot(Boot::now()).workloads.into_iter().map(|w| w.key.name).collect();
    names.sort();
    names
}

#[test]
fn a_snapshot_says_what_was_read_and_leaves_the_rest_unknown() {
    let fake = Fake::new();
    fake.add("apps/a", 4096);
    let patterns = Patterns { prefer: vec!["apps/*".into()], ..Patterns::default() };
    let snapshot = fake.state(&patterns).snapshot(Boot::now());
    let signal = snapshot.signals[&Signal::MemoryAvailable];
    assert_eq!((signal.available, signal.capacity), (400 * 1024, Some(1000 * 1024)));
    assert!(!snapshot.signals.contains_key(&Signal::PidAvailable), "there is no loadavg");
    let workload = &snapshot.workloads[0];
    assert_eq!((workload.key.name.as_str(), workload.preference), ("/apps/a", Preference::Prefer));
    let memory = workload.stats.as_ref().unwrap().memory.unwrap();
    assert_eq!((memory.usage, memory.anon, memory.swap), (Some(4096), None, None));
}

#[test]
fn a_new_cgroup_is_followed_from_its_event_without_reading_the_tree() {
    let fake = Fake::new();
    fake.add("apps/a", 1);
    let mut state = fake.state(&Patterns::default());
    state.tree_events_are_live(true);
    let unseen = fake.add("apps/unseen", 1);
    let told = fake.add("apps/told", 1);
    state.observe_kernel(&event(CgroupChange::Created, told, Some("/apps/told")));
    state.sample(Boot::now(), Depth::Full).unwrap();
    assert_eq!(names(&state), ["/apps/a", "/apps/told"]);
    // An event about a cgroup that was never seen shows that something was missed.
    state.observe_kernel(&event(CgroupChange::Populated(true), unseen, None));
    state.sample(Boot::now(), Depth::Full).unwrap();
    assert_eq!(names(&state), ["/apps/a", "/apps/told", "/apps/unseen"]);
}

#[test]
fn what_is_removed_is_forgotten_at_once_and_cannot_be_a_target() {
    let fake = Fake::new();
    let id = fake.add("apps/a", 1);
    let mut state = fake.state(&Patterns::default());
    let key = state.snapshot(Boot::now()).workloads[0].key.clone();
    assert!(state.target(&key).is_some());
    state.observe_kernel(&event(CgroupChange::Removed, id, None));
    assert_eq!(state.target(&key), None);
    assert!(names(&state).is_empty());
}

#[test]
fn after_a_loss_the_tree_is_read_again() {
    let fake = Fake::new();
    fake.add("apps/a", 1);
    let mut state = fake.state(&Patterns::default());
    state.tree_events_are_live(true);
    fake.add("apps/lost", 1);
    state.sample(Boot::now(), Depth::Full).unwrap();
    assert_eq!(names(&state), ["/apps/a"]);
    state.forget_tree();
    state.sample(Boot::now(), Depth::Full).unwrap();
    assert_eq!(names(&state), ["/apps/a", "/apps/lost"]);
}

#[test]
fn what_was_found_protected_at_the_last_moment_is_protected_in_the_next_snapshot() {
    let fake = Fake::new();
    fake.add("apps/a", 1);
    let mut state = fake.state(&Patterns::default());
    let key = state.snapshot(Boot::now()).workloads[0].key.clone();
    let target = state.target(&key).unwrap();
    state.protect(&target, ProtectedReason::Runtime);
    let workload = &state.snapshot(Boot::now()).workloads[0];
    assert_eq!(workload.protected, Some(ProtectedReason::Runtime));
}

#[test]
fn of_whom_nothing_was_found_to_end_is_not_chosen_again_at_once() {
    let fake = Fake::new();
    fake.add("apps/a", 1);
    let mut state = fake.state(&Patterns::default());
    let now = Boot::now();
    let protected = |state: &NodeState, at| state.snapshot(at).workloads[0].protected;
    let key = state.snapshot(now).workloads[0].key.clone();
    state.found_empty(&key);
    assert_eq!(protected(&state, Boot::now()), Some(ProtectedReason::NothingRuns));
    assert_eq!(protected(&state, Boot::now().plus(EMPTY_FOR)), None);
}

/// A fork bomb that was killed leaves zombies: nobody else is to be ended for task ids that only wait for their parent.
#[test]
fn what_was_ended_for_task_ids_counts_with_those_that_its_zombies_have() {
    let fake = Fake::new();
    fake.add("apps/a", 1);
    let dir = fake.roots().cgroup.join("apps/a");
    let mut state = fake.state(&Patterns::default());
    let key = state.snapshot(Boot::now()).workloads[0].key.clone();
    let target = state.target(&key).unwrap();
    let frees = (Some(Signal::PidAvailable), Some(900));
    state.departures().begin(key, target, Duration::ZERO, frees);
    fs::write(dir.join("cgroup.procs"), "").unwrap();
    fs::write(dir.join("cgroup.events"), "populated 0\n").unwrap();
    fs::write(dir.join("pids.current"), "900\n").unwrap();
    state.forget_tree();
    state.sample(Boot::now(), Depth::Full).unwrap();
    let snapshot = state.snapshot(Boot::now());
    let dead = &snapshot.workloads[0];
    assert_eq!(dead.stats.as_ref().unwrap().process_count, Some(900));
    assert!(dead.dying.is_some());
    fs::write(dir.join("pids.current"), "0\n").unwrap();
    let (gone, _) = state.departures().look(Path::new("/proc"), Boot::now());
    assert_eq!(gone.len(), 1);
    state.sample(Boot::now(), Depth::Full).unwrap();
    assert!(state.snapshot(Boot::now()).workloads.is_empty());
}

#[test]
fn a_cgroup_root_that_has_gone_away_is_an_error_and_what_was_known_stands() {
    let fake = Fake::new();
    fake.add("apps/a", 1);
    let mut state = fake.state(&Patterns::default());
    let away: PathBuf = fake.dir.path().join("away");
    fs::rename(fake.roots().cgroup, away).unwrap();
    state.forget_tree();
    assert!(state.sample(Boot::now(), Depth::Full).is_err());
    assert_eq!(names(&state), ["/apps/a"]);
}

#[test]
fn a_cgroup_that_was_removed_without_a_word_is_forgotten_with_the_next_sample() {
    let fake = Fake::new();
    fake.add("apps/stays", 10);
    fake.add("apps/goes", 20);
    let mut state = fake.state(&Patterns::default());
    state.tree_events_are_live(true);
    let gone = fake.roots().cgroup.join("apps/goes");
    // What is held open of a removed cgroup can be read no more; of a removed file it can.
    fs::write(gone.join("memory.current"), "").unwrap();
    for file in ["cgroup.procs", "cgroup.events", "memory.current"] {
        fs::remove_file(gone.join(file)).unwrap();
    }
    fs::remove_dir(&gone).unwrap();
    state.sample(Boot::now(), Depth::Memory).unwrap();
    assert_eq!(names(&state), ["/apps/stays"]);
}
