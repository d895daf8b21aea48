//! Workloads that try to be taken for something else, and what the whole agent does about them.

use crate::lab::{self, Lab};
use crate::{CONFIG, config, start};
use ebb_tests::fake_node::{FakeCgroup, FakeNode, wait_for};
use ebb_tests::runtime::Flavour;
use serde_json::Value;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What procfs says of a user's process of that name.
fn users_process(node: &FakeNode, cgroup: &FakeCgroup, name: &str) {
    process_of_user(node, cgroup.pid(), name);
}

/// The same of a process by its number.
fn process_of_user(node: &FakeNode, pid: u32, name: &str) {
    let stat = format!(
        "{pid} ({name}) S 1 17 17 0 -1 4194304 100 0 0 0 1 2 0 0 20 0 1 0 7 1000000 250 1 0"
    );
    node.add_process(
        pid,
        &[
            ("comm", &format!("{name}\n")),
            ("stat", &stat),
            ("status", "Uid:\t1000\t1000\t1000\t1000\nNSpid:\t7\n"),
            ("oom_score_adj", "0\n"),
        ],
    );
}

/// A leak at `path` is killed, and the innocent beside it is not.
fn is_killed(path: &str, name: &str) {
    let mut node = FakeNode::new();
    let leak = node.add(path, 1500);
    users_process(&node, &leak, name);
    let innocent = node.add("apps/web", 100);
    let config = config(CONFIG);
    let agent = start(&node, config.path(), &["--enforce"]);
    node.gives_back_when_killed(&leak, 1500);
    node.set_available(60);
    wait_for(&format!("the kill of {name} at {path}"), || leak.is_killed());
    agent.stop();
    assert!(!innocent.is_killed());
}

#[test]
fn a_leak_that_calls_itself_as_a_daemon_does_is_killed() {
    for name in ["pause", "kubelet"] {
        is_killed("system.slice/leak.service", name);
    }
}

#[test]
fn a_leak_in_a_users_unit_with_a_daemons_name_is_killed() {
    let users = "user.slice/user-1000.slice/user@1000.service";
    is_killed(&format!("{users}/kubelet.service"), "leak");
}

/// The kernel leaves memory charged to the cgroup in which it was taken, and to the one above when that is removed.
#[test]
fn a_leak_that_has_moved_away_from_what_it_took_is_killed() {
    holder_is_killed(
        &format!("anon {}\nfile 0\n", 1500_u64 << 20),
        "Name:\tleak\nRssAnon:\t 1500000 kB\n",
    );
}

/// A memfd that was filled in one cgroup and is mapped in another goes with whoever maps it.
#[test]
fn a_leak_of_shared_memory_that_is_charged_elsewhere_is_killed() {
    holder_is_killed(
        &format!("anon {}\nfile 0\nshmem {}\n", 30 << 20, 1500_u64 << 20),
        "Name:\tleak\nRssAnon:\t 10240 kB\nRssShmem:\t 1500000 kB\n",
    );
}

/// Of a user's tree with this `memory.stat`, whose workloads are charged with little of it, the one goes whose process has this status.
fn holder_is_killed(stat: &str, status: &str) {
    let users = "user.slice/user-1000.slice/user@1000.service";
    let mut node = FakeNode::new();
    let idle = node.add(&format!("{users}/idle.scope"), 20);
    let leak = node.add(&format!("{users}/leak.scope"), 10);
    node.slice(users).set("memory.stat", stat);
    node.add_process(leak.pid(), &[("status", status)]);
    let innocent = node.add("apps/web", 300);
    let config = config(CONFIG);
    let agent = start(&node, config.path(), &["--enforce"]);
    node.gives_back_when_killed(&leak, 1500);
    node.set_available(60);
    wait_for("the kill of whoever holds it", || leak.is_killed());
    agent.stop();
    assert!(!innocent.is_killed() && !idle.is_killed());
}

/// What a container leaves in a volume of medium `Memory` is charged to its pod once it has ended: so a pod fills it, is started again, and its containers are small.
#[test]
fn what_a_pods_dead_container_left_in_memory_counts_for_the_pod() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let leak = lab.pod("leak", &image, 10);
    let calm = lab.pod("calm", &image, 300);
    let of_pod = lab.node.slice(&format!("kubepods/burstable/pod{}", leak.uid));
    let left = 1500_u64 << 20;
    let stat = format!("anon {}\nfile {left}\nshmem {left}\ninactive_file 0\n", 11 << 20);
    of_pod.set("memory.stat", &stat);
    of_pod.set("memory.current", &format!("{}\n", left + (11 << 20)));
    let config = config(crate::lab::CONFIG);
    let mut agent = lab.start(config.path(), &["--enforce"]);
    agent.wait("inventory");
    lab.node.gives_back_when_killed(&leak.payload, 1500);
    lab.node.set_available(60);
    wait_for("the kill of what is left of the leak", || leak.payload.is_killed());
    agent.stop();
    assert!(!calm.payload.is_killed());
}

/// The kernel has one `cgroup.kill` for all that is below; here it is that of the cgroup at which following ends.
#[test]
fn a_leak_in_seventy_nested_cgroups_is_killed() {
    let mut node = FakeNode::new();
    let mut path = String::from("apps");
    let mut deepest = Vec::new();
    for _ in 0..70 {
        path.push_str("/n");
        deepest.push(node.add(&path, 1500));
    }
    // The process is in the last one.
    for cgroup in deepest.iter().rev().skip(1) {
        cgroup.has_no_process_of_its_own();
    }
    let innocent = node.add("system.slice/web.service", 100);
    let config = config(CONFIG);
    let agent = start(&node, config.path(), &["--enforce"]);
    node.gives_back_when_one_is_killed(&deepest, 1500);
    node.set_available(60);
    wait_for("the kill", || deepest.iter().any(FakeCgroup::is_killed));
    agent.stop();
    assert!(!innocent.is_killed());
}

#[test]
fn whose_members_cannot_be_read_is_not_killed_and_the_record_says_why() {
    let mut node = FakeNode::new();
    let elsewhere = node.add("apps/elsewhere", 1500);
    elsewhere.lists("0\n0\n");
    let second = node.add("apps/second", 1000);
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &["--enforce"]);
    node.gives_back_when_killed(&second, 1500);
    node.set_available(60);
    let refused = agent.wait("notDone");
    wait_for("the kill of another", || second.is_killed());
    agent.stop();
    assert!(refused["why"].as_str().unwrap().contains("cannot be read"), "{refused}");
    assert!(!elsewhere.is_killed());
}

/// Since Linux 7.0 a process that exits is no longer listed while it holds its memory still.
#[test]
fn nobody_goes_in_place_of_what_is_exiting_unless_that_takes_too_long() {
    for after in ["continue", "wait"] {
        let mut node = FakeNode::new();
        let exiting = node.add("apps/exiting", 1500);
        let second = node.add("apps/second", 1000);
        let config = config(&format!("{CONFIG}  afterEviction: {after}\n"));
        let agent = start(&node, config.path(), &["--enforce"]);
        exiting.lists("");
        node.set_available(60);
        wait_for("the kill of another", || second.is_killed());
        second.empty();
        node.gives_back(&exiting, 1500);
        let records = agent.stop();
        let at = |what: &str, is_it: &dyn Fn(&Value) -> bool| {
            let found = records.iter().position(is_it);
            found.unwrap_or_else(|| panic!("no record of {what} in {records:#?}"))
        };
        let refused = at("the refusal", &|record| record["event"] == "notDone");
        let why = records[refused]["why"].as_str().unwrap();
        assert!(why.contains("exiting"), "{why}");
        let stuck =
            at("the deadline", &|r| r["event"] == "terminated" && r["outcome"] == "timedOut");
        let killed = at("the kill", &|record| record["event"] == "evicted");
        assert!(refused < stuck && stuck < killed, "{records:#?}");
        let after = records[killed]["at"].as_u64().zip(records[refused]["at"].as_u64());
        // The end of a victim is waited for up to 30 s, but not of one that does not come.
        assert!(after.is_some_and(|(killed, refused)| killed - refused < 20_000), "{records:#?}");
    }
}

/// Its owner may have one of its processes hang in the kernel for as long as they like; what the others held is back.
#[test]
fn a_victim_that_hangs_does_not_keep_ebb_from_holding_the_next_ahead() {
    let mut node = FakeNode::new();
    let hanging = node.add("apps/hanging", 1500);
    let leak = node.add("apps/leak", 1000);
    let process = Sleeping::start();
    process_of_user(&node, process.0.id(), "leak");
    leak.lists(&format!("{}\n", process.0.id()));
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &["--enforce"]);
    node.gives_back_and_hangs_when_killed(&hanging, 1500);
    node.set_available(60);
    wait_for("the kill", || hanging.is_killed());
    assert_eq!(agent.wait("terminated")["outcome"], "timedOut");
    let forgotten = Instant::now() + Duration::from_secs(55);
    // From far above the threshold to right above it, again and again.
    let fall = (600, 110, 400);
    let is_held = || has_pidfd_of(agent.child.id(), process.0.id());
    node.falls_until("it to be held", fall, &[(&leak, 1000)], is_held);
    assert!(Instant::now() < forgotten, "it was held when the other was remembered no more");
    agent.stop();
    assert!(!leak.is_killed());
}

/// A process that can be held, and ends with this.
struct Sleeping(Child);

impl Sleeping {
    fn start() -> Self {
        Self(Command::new("sleep").arg("3600").stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Sleeping {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether the process `pid` has a pidfd of the process `of`.
fn has_pidfd_of(pid: u32, of: u32) -> bool {
    let line = format!("Pid:\t{of}\n");
    let all = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap().flatten();
    all.filter_map(|entry| std::fs::read_to_string(entry.path()).ok()).any(|of| of.contains(&line))
}

/// Whoever protected it has gone: what it left is a candidate like any other.
#[test]
fn a_refusal_is_not_remembered_for_the_life_of_the_cgroup() {
    let mut node = FakeNode::new();
    let leak = node.add("apps/leak", 1500);
    // Beyond the first ones, which are looked at when it is found.
    let list: String = (0..9).map(|n| format!("{}\n", leak.pid() + n)).collect();
    leak.lists(&list);
    let ninth = leak.pid() + 8;
    node.add_process(ninth, &[("oom_score_adj", "-1000\n")]);
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &["--enforce"]);
    node.gives_back_when_killed(&leak, 1500);
    let began = Instant::now();
    node.set_available(60);
    let refused = agent.wait("notDone");
    assert!(refused["why"].as_str().unwrap().contains("-1000"), "{refused}");
    assert!(!leak.is_killed());
    node.add_process(ninth, &[("oom_score_adj", "0\n")]);
    wait_for("the kill", || leak.is_killed());
    let records = agent.stop();
    let refusals = records.iter().filter(|record| record["event"] == "notDone").count();
    // One that was under way when the first was told, and one when it was over.
    let may_be = usize::try_from(began.elapsed().as_secs()).unwrap() + 3;
    assert!(refusals <= may_be, "at most once a second: {refusals}, not {may_be}");
}

/// The cgroup of a killed workload stays until somebody removes it.
#[test]
fn a_cgroup_that_has_been_emptied_is_not_chosen_again() {
    let mut node = FakeNode::new();
    let leak = node.add("apps/leak", 1500);
    let second = node.add("apps/second", 1000);
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &["--enforce"]);
    node.set_available(60);
    wait_for("the kill", || leak.is_killed());
    leak.empty();
    wait_for("the next, since the memory is still short", || second.is_killed());
    second.empty();
    agent.wait("evictionDeferred");
    node.set_available(1500);
    agent.wait("pressureRelieved");
    let records = agent.stop();
    let planned = records.iter().filter(|record| record["event"] == "decided");
    let chosen: Vec<&Value> = planned.flat_map(|p| p["evict"].as_array().unwrap()).collect();
    assert_eq!(chosen.len(), 2, "{chosen:?}");
}

/// A pod of two containers, each with ten processes, of which the last of the first container has a score of -1000.
fn half_protected(lab: &mut Lab) -> (FakeCgroup, FakeCgroup, FakeCgroup) {
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let pod = lab.pod("web", &image, 100);
    let second = lab.world().add_container(&pod.sandbox, "second", &image);
    let beside = pod.payload.path.parent().unwrap().join(second);
    let beside = beside.strip_prefix(lab.node.cgroups()).unwrap().to_str().unwrap().to_owned();
    let second = lab.node.add(&beside, 1500);
    let list: String = (0..10).map(|n| format!("{}\n", pod.payload.pid() + n)).collect();
    pod.payload.lists(&list);
    lab.node.add_process(pod.payload.pid() + 9, &[("oom_score_adj", "-1000\n")]);
    (pod.payload, second, pod.pause)
}

#[test]
fn a_protected_container_keeps_itself_and_the_sandbox_and_not_the_leak_beside_it() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let (protected, leak, sandbox) = half_protected(&mut lab);
    let config = config(lab::CONFIG);
    let mut agent = lab.start(config.path(), &["--enforce"]);
    agent.wait("inventory");
    lab.node.gives_back_when_killed(&leak, 1500);
    lab.node.set_available(60);
    wait_for("the kill of the leak", || leak.is_killed());
    agent.wait("pressureRelieved");
    agent.stop();
    assert!(!protected.is_killed() && !sandbox.is_killed());
    assert_eq!(lab.world().count("StopPodSandbox"), 0, "the protected one lives in it");
}

#[test]
fn the_runtime_is_not_asked_to_stop_a_container_with_a_protected_process() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let (protected, leak, _) = half_protected(&mut lab);
    let config = config(
        "evictionHard:\n  memory.available: 10Mi\nevictionSoft:\n  memory.available: 100Mi\nevictionSoftGracePeriod:\n  memory.available: 100ms\nevictionMaxPodGracePeriod: 1\nebb:\n  mode: kubernetes\n  memoryAvailable: memAvailable\n",
    );
    let mut agent = lab.start(config.path(), &["--enforce"]);
    agent.wait("inventory");
    lab.node.gives_back_when_killed(&leak, 1500);
    lab.node.set_available(60);
    wait_for("the kill of the leak, its grace over", || leak.is_killed());
    agent.wait("pressureRelieved");
    agent.stop();
    assert!(!protected.is_killed());
    assert_eq!(lab.world().count("StopContainer"), 0);
}

/// Whoever was handed a tree chooses the names in it, how many there are, and what their limits are.
#[test]
fn long_names_at_their_own_limits_make_no_record_large() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let long = vec!["n".repeat(250); 10].join("/");
    for n in 0..100 {
        let name = format!("user.slice/user-7.slice/user@7.service/{n}/{long}");
        node.add(&name, 1).set("memory.max", &format!("{}\n", 1 << 20));
    }
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &["--enforce"]);
    let told = agent.told("localPressure");
    assert_eq!(told["workloads"].as_array().unwrap().len(), 10);
    assert_eq!(told["more"], 90);
    node.gives_back_when_killed(&hog, 1500);
    node.set_available(60);
    agent.wait("pressureRelieved");
    let records = agent.stop();
    assert!(records.iter().any(|record| record["event"] == "evicted"));
    for record in records {
        let size = record.to_string().len();
        assert!(size < 64 << 10, "{size} bytes: {}", record["event"]);
    }
}
