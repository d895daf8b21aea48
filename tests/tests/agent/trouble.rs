//! The whole agent when what it depends on hangs, lies or dies.

use crate::lab::Lab;
use crate::{CONFIG, config, ebb, kinds, start, start_as};
use ebb_tests::fake_node::{FakeNode, is_read, wait_for};
use ebb_tests::runtime::Flavour;
use serde_json::Value;
use std::process::{Command, Output};

/// Opening a pipe that nobody writes to waits for ever, as a file on a mount that hangs does.
#[test]
fn a_configuration_that_hangs_does_not_keep_the_loop_from_killing() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ebb.yaml");
    std::fs::write(&file, CONFIG).unwrap();
    let mut agent = start(&node, &file, &["--enforce"]);
    make_hang(&file);
    agent.signal(nix::sys::signal::Signal::SIGHUP);
    node.gives_back_when_killed(&hog, 1500);
    node.set_available(60);
    let acted = agent.wait("evicted");
    assert_eq!(acted["byWatchdog"], false, "{acted}");
    wait_for("the kill", || hog.is_killed());
    agent.wait("pressureRelieved");
    agent.stop();
}

#[test]
fn a_changed_configuration_is_obeyed_without_a_signal() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &["--enforce"]);
    std::fs::write(config.path(), CONFIG.replace("100Mi", "500Mi")).unwrap();
    assert_eq!(agent.wait("reloaded")["accepted"], true);
    node.set_available(400);
    wait_for("the kill by the new threshold", || hog.is_killed());
    hog.empty();
    agent.stop();
}

/// Puts a pipe that nobody reads or writes in the place of a file: whoever opens it waits for ever.
pub(crate) fn make_hang(path: &std::path::Path) {
    let pipe = path.with_extension("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::fs::rename(pipe, path).unwrap();
}

/// A workload of which nobody can read the memory without waiting for ever. It comes into the tree as that: who has read it once keeps the file open.
pub(crate) fn add_trap(node: &mut FakeNode) -> std::path::PathBuf {
    let made = node.add("../trap", 1).path;
    make_hang(&made.join("memory.current"));
    let trap = node.cgroups().join("trap");
    std::fs::rename(made, &trap).unwrap();
    trap.join("memory.current")
}

/// Makes a regular file that hangs whoever opens it, as one of a network file system may: a lease on it is held, and not given back when the kernel asks for it. The kernel waits for that as long as `/proc/sys/fs/lease-break-time` says, 45 s unless it was changed.
fn make_hanging_file(path: &std::path::Path) -> std::fs::File {
    use nix::libc;
    use nix::sys::signal::{SigHandler, Signal, signal};
    use std::os::fd::AsRawFd as _;
    // SAFETY: nobody handles this signal here; the kernel asks with it for the lease, and its default is the end of the process.
    unsafe { signal(Signal::SIGIO, SigHandler::SigIgn) }.unwrap();
    // Not in its place, where it would be read before it hangs.
    let made = tempfile::NamedTempFile::new().unwrap();
    // SAFETY: the descriptor is open, and this command takes an integer.
    let done = unsafe { libc::fcntl(made.as_file().as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) };
    assert_eq!(done, 0, "no lease on {}: {}", path.display(), std::io::Error::last_os_error());
    made.persist_noclobber(path).unwrap()
}

/// A thread that serves somebody panics: that is told of this `part`, with these words, and a leak is evicted all the same.
pub(crate) fn goes_on_after_a_panic(thread: &str, extra: &[&str], part: &str, words: &str) {
    let mut node = FakeNode::new();
    let (hog, config) = (node.add("apps/hog", 1500), config(CONFIG));
    let mut command = ebb();
    command.env("EBB_TEST_PANIC", thread);
    let extra: Vec<&str> = ["--enforce"].into_iter().chain(extra.iter().copied()).collect();
    let mut agent = start_as(command, &node, config.path(), &extra);
    let is_told = |record: &Value| {
        let what = record["what"].as_str().unwrap_or_default();
        record["event"] == "degraded" && record["part"] == part && what.contains(words)
    };
    while !agent.seen.iter().any(is_told) {
        agent.wait("degraded");
    }
    node.gives_back_when_killed(&hog, 1500);
    node.set_available(60);
    wait_for("the kill", || hog.is_killed());
    agent.wait("pressureRelieved");
    agent.stop();
}

#[test]
fn a_kill_that_hangs_is_taken_over_and_its_victim_counts_until_its_deadline() {
    let mut node = FakeNode::new();
    let hangs = node.add("apps/hangs", 1500);
    let second = node.add("apps/second", 1000);
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &["--enforce"]);
    make_hang(&hangs.path.join("cgroup.kill"));
    node.set_available(60);
    let not_done = agent.wait("notDone");
    assert!(not_done["why"].as_str().unwrap().contains("hangs"), "{not_done}");
    // The kill may have come through, or come through yet: nobody else goes before its time is over.
    let timed_out = agent.told("terminated");
    assert_eq!(timed_out["workload"]["name"], "/apps/hangs", "{timed_out}");
    assert_eq!(timed_out["outcome"], "timedOut", "{timed_out}");
    let acted = agent.told("evicted");
    let place = |record| agent.seen.iter().position(|seen| seen == record).unwrap();
    assert!(place(&timed_out) < place(&acted), "somebody went before: {:#?}", agent.seen);
    assert_eq!(acted["workload"]["name"], "/apps/second", "{acted}");
    assert!(second.is_killed());
    agent.kill();
}

/// What its kill had begun to do gives back enough, after a second and before its deadline.
#[test]
fn a_victim_whose_kill_hangs_and_that_dies_all_the_same_is_the_only_one() {
    let mut node = FakeNode::new();
    let hangs = node.add("apps/hangs", 1500);
    let second = node.add("apps/second", 1000);
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &["--enforce"]);
    make_hang(&hangs.path.join("cgroup.kill"));
    node.set_available(60);
    agent.wait("notDone");
    node.gives_back(&hangs, 1500);
    let gone = agent.told("terminated");
    assert_eq!(gone["workload"]["name"], "/apps/hangs", "{gone}");
    agent.told("pressureRelieved");
    // This process may have been kept from running until the deadline was over.
    let is_late = gone["outcome"] == "timedOut";
    assert!(is_late || !second.is_killed(), "it was evicted for what the first was to give back");
    agent.kill();
}

#[test]
fn a_loop_that_hangs_is_stood_in_for_by_the_watchdog() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let config = config(CONFIG);
    // So near that workloads are read every few milliseconds.
    node.set_available(120);
    let mut agent = start(&node, config.path(), &["--enforce"]);
    let pipe = add_trap(&mut node);
    wait_for("the loop to open it", || is_in_open(agent.child.id(), &pipe));
    node.set_available(60);
    wait_for("the kill", || hog.is_killed());
    node.gives_back(&hog, 1500);
    // Somebody at the other end lets the loop go on, and it tells who did it and what came of it.
    drop(std::fs::OpenOptions::new().write(true).open(&pipe).unwrap());
    let acted = agent.wait("evicted");
    assert_eq!(acted["byWatchdog"], true, "{acted}");
    assert!(acted["workload"]["name"].is_string(), "it is told by name whom it killed: {acted}");
    let departed = agent.wait("terminated");
    assert_eq!(
        (&departed["workload"]["name"], &departed["outcome"]),
        (&acted["workload"]["name"], &"exited".into())
    );
    agent.kill();
}

/// Whether the first thread of the process opens that file, which only takes long where it is a pipe.
pub(crate) fn is_in_open(pid: u32, file: &std::path::Path) -> bool {
    use std::os::unix::fs::FileExt as _;
    let of_process = |name: &str| format!("/proc/{pid}/{name}");
    let syscall = std::fs::read_to_string(of_process("syscall")).unwrap_or_default();
    let mut words = syscall.split(' ');
    let number = words.next().and_then(|number| number.parse::<i64>().ok());
    let mut hex = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (Some(dir), Some(name)) = (hex(), hex()) else { return false };
    if number != Some(nix::libc::SYS_openat) {
        return false;
    }
    let mut read = vec![0; 4096];
    let memory = std::fs::File::open(of_process("mem")).unwrap();
    let length = memory.read_at(&mut read, name).unwrap_or(0);
    let name: Vec<u8> = read.iter().take(length).copied().take_while(|byte| *byte != 0).collect();
    let below = std::fs::read_link(of_process(&format!("fd/{dir}"))).unwrap_or_default();
    below.join(String::from_utf8_lossy(&name).as_ref()) == file
}

#[test]
fn manifests_that_hang_do_not_keep_a_pod_from_being_stopped() {
    let mut lab = Lab::new(Flavour::Containerd2);
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let pod = lab.pod("hog", &image, 1500);
    let manifests = lab.manifests(&["hog"]);
    let config = config(
        "evictionHard:\n  memory.available: 10Mi\nevictionSoft:\n  memory.available: 100Mi\nevictionSoftGracePeriod:\n  memory.available: 100ms\nevictionMaxPodGracePeriod: 600\nebb:\n  mode: kubernetes\n  memoryAvailable: memAvailable\n",
    );
    let dir = manifests.to_str().unwrap();
    let mut agent = lab.start(config.path(), &["--enforce", "--pod-manifests", dir]);
    agent.wait("inventory");
    let hanging = make_hanging_file(&manifests.join("hangs.yaml"));
    // A new container has everything listed again, the manifests first.
    let said = agent.wait_while("degraded", || {
        lab.world().add_container(&pod.sandbox, "another", &image);
    });
    assert!(said["what"].as_str().unwrap().contains("do not answer"), "{said}");
    assert_eq!(said["part"], "podDescriptions");
    lab.node.set_available(60);
    wait_for("the pod to be stopped", || lab.world().count("StopContainer") > 0);
    drop(hanging);
    agent.kill();
}

/// Kernel events told of every cgroup until now; from here on files have to.
#[test]
fn an_agent_that_hears_no_more_of_the_kernel_says_so_and_finds_what_is_made_later() {
    let mut node = FakeNode::new();
    let config = config(CONFIG);
    let mut deaf = ebb();
    deaf.env("EBB_TEST_KERNEL_LOST", "1");
    let mut agent = crate::start_as(deaf, &node, config.path(), &["--enforce"]);
    let told = agent.wait("degraded");
    assert!(told["what"].as_str().unwrap().contains("kernel events are lost for good"), "{told}");
    assert_eq!(told["part"], "kernelEvents");
    let hog = node.add("apps/hog", 1500);
    node.gives_back_when_killed(&hog, 1500);
    node.set_available(60);
    wait_for("the kill", || hog.is_killed());
    agent.stop();
}

/// How an agent ends whose threads panic when they are asked to.
fn panicking(thread: &str) -> Output {
    let mut node = FakeNode::new();
    node.add("apps/hog", 1500);
    // Its thread is there where a hook is configured.
    let hook = "  hooks: {beforeEviction: {socket: /nobody/listens.sock}}\n";
    let config = config(&format!("{CONFIG}{hook}"));
    ebb()
        .args(["run", "--output", "json", "--leave-out", "all", "--enforce", "--proc-root"])
        .arg(node.proc())
        .arg("--cgroup-root")
        .arg(node.cgroups())
        .arg("--state")
        .arg(node.state())
        .arg("--incidents")
        .arg(node.state())
        .arg("--config")
        .arg(config.path())
        .env("EBB_TEST_PANIC", thread)
        .output()
        .unwrap()
}

#[test]
fn a_panic_in_any_thread_ends_the_agent_with_a_last_record() {
    let threads = [
        "ebb-act",
        "ebb-ladder",
        "ebb-watchdog",
        "ebb-release",
        "ebb-hurry",
        "ebb-config",
        "ebb-disk",
        "ebb-hook",
        "ebb-incidents",
        "ebb-log",
        "ebb-report",
    ];
    for thread in threads {
        ends_the_agent(&panicking(thread), thread);
    }
}

/// The session with the runtime, the reconciler of cgroups, and what they start.
#[test]
fn so_does_one_in_a_thread_that_is_there_beside_a_runtime_only() {
    let threads = ["ebb-runtime", "ebb-cgroups", "ebb-cgroup-watch", "ebb-memory"];
    for thread in threads {
        let mut lab = Lab::new(Flavour::Containerd2);
        let image = lab.world().add_image("app:1", &[("base", 10)]);
        lab.pod("web", &image, 10);
        let manifests = lab.manifests(&["web"]);
        let more = format!(
            "  cgroups: {{mode: enforce, podManifests: {}, period: 100ms}}\n",
            manifests.display()
        );
        let config = config(&format!("{}{more}", crate::lab::CONFIG));
        let mut command = ebb();
        command.env("EBB_TEST_PANIC", thread);
        let run = ["run", "--output", "json", "--leave-out", "all", "--enforce", "--config"];
        let ended = lab.run_as(command, &[&run[..], &[config.path().to_str().unwrap()]].concat());
        ends_the_agent(&ended, thread);
    }
}

/// What is said of an agent that a panic of this thread has ended.
fn ends_the_agent(ended: &Output, thread: &str) {
    assert_eq!(ended.status.code(), Some(5), "{thread}: {ended:?}");
    let said = std::str::from_utf8(&ended.stdout).unwrap();
    let last: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!((&last["event"], &last["thread"]), (&"panicked".into(), &thread.into()));
    assert!(last["what"].as_str().unwrap().contains(thread), "{last}");
    let said = std::str::from_utf8(&ended.stderr).unwrap();
    assert!(said.contains(&format!("thread {thread} panicked at")), "{said}");
}

#[test]
fn a_second_agent_that_enforces_is_refused_and_a_dry_run_is_not() {
    let node = FakeNode::new();
    let config = config(CONFIG);
    let first = start(&node, config.path(), &["--enforce"]);
    let mut second = ebb();
    second.args(["run", "--leave-out", "all", "--enforce", "--proc-root"]).arg(node.proc());
    second.arg("--cgroup-root").arg(node.cgroups()).arg("--state").arg(node.state());
    let second = second.output().unwrap();
    assert_eq!(second.status.code(), Some(6), "{second:?}");
    let said = String::from_utf8(second.stderr).unwrap();
    let holder = format!("process {} (", first.child.id());
    assert!(said.contains(&holder) && said.contains("--enforce"), "{said}");
    start(&node, config.path(), &[]).stop();
    // However the first one ends, the lock goes with it.
    first.kill();
    start(&node, config.path(), &["--enforce"]).stop();
}

#[test]
fn with_fewer_descriptors_than_workloads_the_largest_is_still_found() {
    let mut node = FakeNode::new();
    for n in 0..150 {
        node.add(&format!("apps/small{n}"), 1);
    }
    let hog = node.add("apps/hog", 1500);
    let config = config(CONFIG);
    let plain = ebb();
    let mut few = Command::new("sh");
    few.args(["-c", "ulimit -n 200; exec \"$0\" \"$@\""]).arg(plain.get_program());
    let mut agent = crate::start_as(few, &node, config.path(), &["--enforce"]);
    node.gives_back_when_killed(&hog, 1500);
    node.set_available(60);
    wait_for("the kill", || hog.is_killed());
    agent.wait("pressureRelieved");
    let records = agent.stop();
    let said = records.iter().filter(|r| r["event"] == "degraded").find_map(|r| r["what"].as_str());
    assert!(said.unwrap().contains("of 151 workloads are not held open"), "{:?}", kinds(&records));
}

#[test]
fn limits_of_task_ids_that_are_raised_cost_nobody_anything() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let database = node.add("apps/database", 10);
    let config = config(
        "evictionHard:\n  memory.available: 100Mi\n  pid.available: 5%\nebb:\n  memoryAvailable: memAvailable\n",
    );
    let agent = start(&node, config.path(), &["--enforce"]);
    for limit in ["pid_max", "threads-max"] {
        std::fs::write(node.proc().join("sys/kernel").join(limit), "4194304\n").unwrap();
    }
    // With the limits of the start that would be nearly all.
    std::fs::write(node.proc().join("loadavg"), "0.00 0.00 0.00 1/29900 300\n").unwrap();
    node.gives_back_when_killed(&hog, 1500);
    node.set_available(60);
    wait_for("the kill for memory", || hog.is_killed());
    let records = agent.stop();
    let of_ids = records
        .iter()
        .filter(|r| r["event"] == "thresholdCrossed" && r["signal"] == "pid.available");
    assert_eq!(of_ids.count(), 0, "{records:#?}");
    assert!(!database.is_killed());
}

/// It was asked to end, and did; the kill at the end of its grace finds nothing. Until somebody has waited for its zombies their ids are on their way back, and when they are its end is told.
#[test]
fn who_has_ended_when_it_is_to_be_killed_departs_and_costs_nobody_else() {
    let mut node = FakeNode::new();
    let bomb = node.add("apps/bomb", 10);
    let web = node.add("apps/web", 100);
    bomb.set("pids.current", "25000\n");
    let config = config(
        "evictionHard:\n  memory.available: 10Mi\nevictionSoft:\n  pid.available: \"3000\"\nevictionSoftGracePeriod:\n  pid.available: 100ms\nevictionMaxPodGracePeriod: 10\nebb:\n  memoryAvailable: memAvailable\n",
    );
    let mut agent = start(&node, config.path(), &["--enforce"]);
    let tasks = |count: u32| {
        let text = format!("0.00 0.00 0.00 1/{count} 300\n");
        std::fs::write(node.proc().join("loadavg"), text).unwrap();
    };
    tasks(29_000);
    let asked = agent.wait("evicted");
    assert_eq!(asked["method"], "terminate", "{asked}");
    bomb.set("cgroup.events", "populated 0\nfrozen 0\n");
    bomb.lists("\n");
    let killed = agent.wait("notDone");
    assert_eq!(killed["workload"]["name"], "/apps/bomb", "{killed}");
    tasks(200);
    bomb.set("pids.current", "0\n");
    agent.wait("pressureRelieved");
    let records = agent.stop();
    let ends: Vec<&Value> =
        records.iter().filter(|record| record["event"] == "terminated").collect();
    let gone = ends.iter().filter(|end| end["outcome"] == "exited");
    assert_eq!(gone.count(), 1, "{records:#?}");
    assert!(ends.iter().all(|end| end["workload"]["name"] == "/apps/bomb"), "{ends:?}");
    assert!(!web.is_killed());
}

/// No kernel event tells of the newcomer, and the tree was read within the last second: near a threshold that is too old.
#[test]
fn a_leak_that_began_a_moment_ago_goes_alone_though_no_kernel_event_told_of_it() {
    let mut node = FakeNode::new();
    let web = node.add("apps/web", 300);
    let config = config(CONFIG);
    let mut agent = start(&node, config.path(), &["--enforce"]);
    for round in 0..5 {
        // Near: the workloads are followed, and the tree with them.
        node.set_available(160);
        is_read(&node.proc().join("meminfo"), 5);
        agent.signal(nix::sys::signal::Signal::SIGSTOP);
        let leak = node.add(&format!("apps/leak{round}"), 1500);
        node.gives_back_when_killed(&leak, 160);
        node.set_available(60);
        agent.signal(nix::sys::signal::Signal::SIGCONT);
        wait_for("the kill of the leak", || leak.is_killed() || web.is_killed());
        assert!(!web.is_killed(), "round {round}: the innocent was killed");
        agent.wait("pressureRelieved");
        node.remove(&leak);
    }
    let records = agent.stop();
    assert!(!web.is_killed(), "{records:#?}");
}

/// A virtual machine is paused, or migrated, right after the kill: nobody could end meanwhile, and nobody else is to go for that.
#[test]
fn who_was_killed_before_the_machine_stood_still_has_its_time_afterwards() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let web = node.add("apps/web", 800);
    let config = config(CONFIG);
    let mut command = ebb();
    command.env_remove("EBB_TEST_BUSY_MACHINE");
    let mut agent = start_as(command, &node, config.path(), &["--enforce"]);
    node.set_available(60);
    assert_eq!(agent.wait("evicted")["workload"]["name"], "/apps/hog");
    agent.signal(nix::sys::signal::Signal::SIGSTOP);
    // For longer than a victim counts as coming back.
    std::thread::sleep(std::time::Duration::from_secs(4));
    let goes_on = std::time::Instant::now();
    agent.signal(nix::sys::signal::Signal::SIGCONT);
    let told = agent.wait("degraded");
    assert_eq!(told["part"], "loop", "{told}");
    is_read(&node.proc().join("meminfo"), 5);
    let took = goes_on.elapsed();
    node.gives_back(&hog, 1500);
    let gone = agent.wait("terminated");
    assert_eq!(gone["workload"]["name"], "/apps/hog", "{gone}");
    agent.wait("pressureRelieved");
    agent.stop();
    // This process may have been kept from running until the rest of its time was over, too.
    assert!(
        took > std::time::Duration::from_secs(1)
            || (gone["outcome"] == "exited" && !web.is_killed()),
        "{gone}"
    );
}
