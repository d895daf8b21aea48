//! The whole agent with a hook before evictions for a soft threshold: whatever the hook does, the eviction comes, by its deadline at the latest, and a hard threshold waits for nobody.

use crate::lab::Lab;
use crate::{Agent, config, kinds, start};
use ebb_tests::fake_node::{FakeCgroup, FakeNode, PATIENCE, is_read, wait_for};
use ebb_tests::runtime::Flavour;
use nix::sys::statvfs::statvfs;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Longer than any test waits: an eviction that comes has not waited for it.
const LONG: &str = "10s";

/// Two thresholds on memory, and a hook at `socket`.
fn text(socket: &Path, deadline: &str, more: &str) -> String {
    format!("{}{}", without(more), hook(socket, deadline))
}

fn without(more: &str) -> String {
    format!(
        "evictionHard:\n  memory.available: 10Mi\nevictionSoft:\n  memory.available: 100Mi\nevictionSoftGracePeriod:\n  memory.available: 100ms\nevictionMaxPodGracePeriod: 60\nebb:\n  memoryAvailable: memAvailable\n{more}"
    )
}

fn hook(socket: &Path, deadline: &str) -> String {
    let socket = socket.display();
    format!("  hooks: {{beforeEviction: {{socket: {socket}, deadline: {deadline}}}}}\n")
}

/// Somebody who listens, and answers when the test says so.
struct Hook {
    _dir: tempfile::TempDir,
    socket: PathBuf,
    calls: Receiver<Call>,
}

/// One call: what was said, and the way back.
struct Call {
    said: Value,
    back: UnixStream,
}

impl Hook {
    fn listen() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("hook.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let (send, calls) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).unwrap();
                let said = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line}"));
                if send.send(Call { said, back: stream }).is_err() {
                    return;
                }
            }
        });
        Self { _dir: dir, socket, calls }
    }

    /// The next call, which is about this workload.
    fn call(&self, name: &str) -> Call {
        let call = self.calls.recv_timeout(PATIENCE).expect("a call of the hook");
        assert_eq!(call.said["workload"]["name"], name, "{}", call.said);
        call
    }

    fn calls_nobody_else(self) {
        assert!(self.calls.try_recv().is_err(), "called once more");
    }
}

impl Call {
    fn answer(mut self) {
        self.back.write_all(b"done\n").unwrap();
    }
}

/// Lets the agent look some more times, at each of which it could evict.
fn some_looks(node: &FakeNode) {
    is_read(&node.proc().join("meminfo"), 10);
}

fn names<'a>(records: &'a [Value], event: &str) -> Vec<&'a str> {
    let of = records.iter().filter(|record| record["event"] == event);
    of.map(|record| record["workload"]["name"].as_str().unwrap()).collect()
}

/// The records about the hook and evictions, in order.
fn story(records: &[Value]) -> Vec<&str> {
    let told = ["hookCalled", "hookEnded", "evicted"];
    kinds(records).into_iter().filter(|kind| told.contains(kind)).collect()
}

fn node() -> (FakeNode, FakeCgroup, FakeCgroup) {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 1500);
    let web = node.add("apps/web", 800);
    (node, hog, web)
}

fn ended(agent: &mut Agent, outcome: &str) -> Value {
    let ended = agent.wait("hookEnded");
    assert_eq!(ended["outcome"], outcome, "{ended}");
    ended
}

#[test]
fn an_eviction_waits_for_the_answer_and_then_comes() {
    let (node, hog, web) = node();
    let hook = Hook::listen();
    let config = config(&text(&hook.socket, LONG, ""));
    let mut agent = start(&node, config.path(), &["--enforce"]);
    node.set_available(60);
    let call = hook.call("/apps/hog");
    let path = hog.path.display().to_string();
    assert_eq!(call.said["workload"]["cgroups"], serde_json::json!([path]), "{}", call.said);
    for (key, value) in [
        ("version", Value::from(1)),
        ("event", "beforeEviction".into()),
        ("signal", "memory.available".into()),
        ("threshold", (100_u64 << 20).into()),
        ("available", (60_u64 << 20).into()),
        ("graceSeconds", 60.into()),
        ("deadlineMs", 10_000.into()),
        ("dryRun", false.into()),
    ] {
        assert_eq!(call.said[key], value, "{}", call.said);
    }
    assert!(call.said["time"].as_u64().unwrap() > 1_500_000_000_000);
    agent.wait("hookCalled");
    some_looks(&node);
    agent.take_in();
    assert_eq!(story(&agent.seen), ["hookCalled"]);
    call.answer();
    ended(&mut agent, "answered");
    let evicted = agent.wait("evicted");
    assert_eq!(evicted["workload"]["name"], "/apps/hog");
    assert_eq!(evicted["method"], "terminate", "with its grace, as without a hook");
    node.gives_back(&hog, 1500);
    let relieved = agent.wait("pressureRelieved");
    let what: Vec<&str> = relieved["timeline"]
        .as_array()
        .unwrap()
        .iter()
        .map(|moment| moment["what"].as_str().unwrap())
        .filter(|what| what.starts_with("hook") || ["decided", "terminating"].contains(what))
        .collect();
    assert_eq!(what, ["hook called", "hook ended", "decided", "terminating"]);
    let records = agent.stop();
    assert_eq!(story(&records), ["hookCalled", "hookEnded", "evicted"]);
    assert!(!web.is_killed());
    hook.calls_nobody_else();
}

#[test]
fn a_hook_that_says_nothing_costs_its_deadline_and_no_more() {
    let (node, hog, _) = node();
    let hook = Hook::listen();
    let config = config(&text(&hook.socket, "2s", ""));
    let mut agent = start(&node, config.path(), &["--enforce"]);
    node.set_available(60);
    let call = hook.call("/apps/hog");
    let told = ended(&mut agent, "timedOut");
    assert!(told["tookMs"].as_f64().unwrap() >= 2000.0, "{told}");
    assert_eq!(agent.wait("evicted")["workload"]["name"], "/apps/hog");
    node.gives_back(&hog, 1500);
    agent.wait("pressureRelieved");
    drop(call);
    let records = agent.stop();
    assert_eq!(story(&records), ["hookCalled", "hookEnded", "evicted"]);
    hook.calls_nobody_else();
}

#[test]
fn a_hook_that_is_not_there_costs_nothing_and_is_told_once() {
    let (node, hog, _) = node();
    let dir = tempfile::tempdir().unwrap();
    let config = config(&text(&dir.path().join("nobody.sock"), LONG, ""));
    let mut agent = start(&node, config.path(), &["--enforce"]);
    node.set_available(60);
    let told = ended(&mut agent, "absent");
    assert!(told["why"].as_str().unwrap().contains("No such file"), "{told}");
    assert_eq!(agent.wait("evicted")["workload"]["name"], "/apps/hog");
    some_looks(&node);
    node.gives_back(&hog, 1500);
    agent.wait("pressureRelieved");
    let records = agent.stop();
    assert_eq!(story(&records), ["hookCalled", "hookEnded", "evicted"]);
}

#[test]
fn a_hard_threshold_does_not_wait_for_the_hook_that_a_soft_one_called() {
    let (node, hog, web) = node();
    let hook = Hook::listen();
    let config = config(&text(&hook.socket, LONG, ""));
    let mut agent = start(&node, config.path(), &["--enforce"]);
    node.set_available(60);
    let call = hook.call("/apps/hog");
    node.gives_back_when_killed(&hog, 1500);
    node.set_available(5);
    let evicted = agent.wait("evicted");
    assert_eq!(evicted["workload"]["name"], "/apps/hog");
    assert_eq!(evicted["method"], "cgroupKill", "{evicted}");
    assert_eq!(story(&agent.seen), ["hookCalled", "evicted"], "it waited: {:#?}", agent.seen);
    // The call goes on meanwhile, and its end is told all the same.
    call.answer();
    ended(&mut agent, "answered");
    agent.told("pressureRelieved");
    agent.stop();
    assert!(!web.is_killed());
}

#[test]
fn a_hard_threshold_that_is_met_first_calls_nobody() {
    let (node, hog, _) = node();
    let hook = Hook::listen();
    let config = config(&text(&hook.socket, LONG, ""));
    let mut agent = start(&node, config.path(), &["--enforce"]);
    node.gives_back_when_killed(&hog, 1500);
    node.set_available(5);
    assert_eq!(agent.wait("evicted")["method"], "cgroupKill");
    agent.wait("pressureRelieved");
    let records = agent.stop();
    assert_eq!(story(&records), ["evicted"]);
    hook.calls_nobody_else();
}

#[test]
fn nobody_is_evicted_when_the_need_has_gone_while_the_hook_was_asked() {
    let (node, hog, web) = node();
    let hook = Hook::listen();
    let config = config(&text(&hook.socket, LONG, ""));
    let mut agent = start(&node, config.path(), &["--enforce"]);
    node.set_available(60);
    let call = hook.call("/apps/hog");
    node.set_available(1500);
    // For longer than an episode goes on of which nothing is under way any more.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(400) {
        some_looks(&node);
    }
    call.answer();
    ended(&mut agent, "answered");
    let relieved = agent.told("pressureRelieved");
    let timeline = relieved["timeline"].to_string();
    assert!(timeline.contains("hook called") && timeline.contains("hook ended"), "{timeline}");
    // The next time is another need: asked again.
    node.set_available(60);
    let again = hook.call("/apps/hog");
    node.set_available(1500);
    again.answer();
    ended(&mut agent, "answered");
    agent.wait("pressureRelieved");
    let records = agent.stop();
    assert_eq!(story(&records), ["hookCalled", "hookEnded", "hookCalled", "hookEnded"]);
    assert!(!hog.is_killed() && !web.is_killed());
}

#[test]
fn a_dry_run_connects_to_nobody() {
    let (node, hog, _) = node();
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("hook.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let config = config(&text(&socket, LONG, ""));
    let mut agent = start(&node, config.path(), &[]);
    node.set_available(60);
    assert_eq!(agent.wait("evicted")["method"], "dryRun");
    node.set_available(1500);
    agent.wait("pressureRelieved");
    let records = agent.stop();
    assert_eq!(story(&records), ["evicted"]);
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    assert!(!hog.is_killed());
}

/// A workload that is first only while another is asked about gets its own call, and the first one none again: by changing places nobody stays.
#[test]
fn who_is_first_after_the_call_is_asked_about_and_nobody_is_twice() {
    let (node, hog, web) = node();
    let hook = Hook::listen();
    let config = config(&text(&hook.socket, LONG, "  ranking: kubelet\n"));
    let mut agent = start(&node, config.path(), &["--enforce"]);
    node.set_available(60);
    let call = hook.call("/apps/hog");
    web.holds(1800);
    some_looks(&node);
    call.answer();
    let call = hook.call("/apps/web");
    let left = call.said["deadlineMs"].as_u64().unwrap();
    assert!(left < 10_000, "all calls of a need have one deadline: {}", call.said);
    // The first is first again, and was asked about: it goes without waiting for the other's call.
    web.holds(800);
    assert_eq!(agent.wait("evicted")["workload"]["name"], "/apps/hog");
    assert_eq!(names(&agent.seen, "hookEnded"), ["/apps/hog"], "it waited: {:#?}", agent.seen);
    node.gives_back(&hog, 1500);
    call.answer();
    agent.wait("pressureRelieved");
    let records = agent.stop();
    assert_eq!(names(&records, "hookCalled"), ["/apps/hog", "/apps/web"]);
    assert_eq!(names(&records, "evicted"), ["/apps/hog"]);
    assert!(!web.is_killed());
    hook.calls_nobody_else();
}

/// Of two victims of one plan the second goes after a call of its own, when the first was not enough.
#[test]
fn several_victims_are_asked_about_one_after_the_other() {
    let mut node = FakeNode::new();
    let hog = node.add("apps/hog", 30);
    let web = node.add("apps/web", 20);
    node.add("apps/third", 1);
    let hook = Hook::listen();
    let more = "  victims: enough\n  maxVictims: 5\n";
    let config = config(&text(&hook.socket, LONG, more));
    let mut agent = start(&node, config.path(), &["--enforce"]);
    node.set_available(55);
    hook.call("/apps/hog").answer();
    assert_eq!(agent.wait("evicted")["workload"]["name"], "/apps/hog");
    let decided = agent.seen.iter().find(|record| record["event"] == "decided").unwrap();
    assert_eq!(decided["evict"].as_array().unwrap().len(), 1, "{decided}");
    node.gives_back(&hog, 85);
    let second = hook.call("/apps/web");
    assert_eq!(second.said["deadlineMs"], 10_000, "a need of its own: {}", second.said);
    second.answer();
    assert_eq!(agent.wait("evicted")["workload"]["name"], "/apps/web");
    node.gives_back(&web, 105);
    agent.wait("pressureRelieved");
    let records = agent.stop();
    for who in ["/apps/hog", "/apps/web"] {
        let own = records.iter().filter(|record| record["workload"]["name"] == who).cloned();
        let own: Vec<Value> = own.collect();
        assert_eq!(story(&own), ["hookCalled", "hookEnded", "evicted"], "{who}");
    }
    // That the first is killed is told by another thread, and may be told after the second call.
    let calls = story(&records).into_iter().filter(|event| event.starts_with("hook"));
    let one = ["hookCalled", "hookEnded"];
    assert_eq!(calls.collect::<Vec<_>>(), [one, one].concat());
    hook.calls_nobody_else();
}

#[test]
fn a_reload_brings_the_hook_and_takes_it_away_while_it_is_asked() {
    let (node, hog, _) = node();
    let hook = Hook::listen();
    let config = config(&without(""));
    let mut agent = start(&node, config.path(), &["--enforce"]);
    let reload = |agent: &mut Agent, text: &str| {
        std::fs::write(config.path(), text).unwrap();
        agent.signal(nix::sys::signal::Signal::SIGHUP);
        assert_eq!(agent.wait("reloaded")["accepted"], true);
    };
    reload(&mut agent, &text(&hook.socket, LONG, ""));
    node.set_available(60);
    let call = hook.call("/apps/hog");
    reload(&mut agent, &without(""));
    assert_eq!(agent.wait("evicted")["workload"]["name"], "/apps/hog");
    assert_eq!(story(&agent.seen), ["hookCalled", "evicted"], "it waited: {:#?}", agent.seen);
    node.gives_back(&hog, 1500);
    drop(call);
    agent.wait("pressureRelieved");
    agent.stop();
}

/// After the call the filesystem is read again: by the figures that called the hook nobody is evicted.
#[test]
fn a_pod_is_asked_about_by_its_uid_for_want_of_disk_and_evicted_on_a_fresh_reading() {
    let _turn = crate::disk::turn();
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut lab = Lab::new(Flavour::Containerd2);
    lab.put_node_fs(dir.path());
    let volume = dir.path().join("pods/uid-writer/volumes/kubernetes.io~empty-dir/data");
    std::fs::create_dir_all(&volume).unwrap();
    std::fs::write(volume.join("large"), vec![b'x'; 8 << 20]).unwrap();
    let image = lab.world().add_image("app:1", &[("base", 10)]);
    let pod = lab.pod("writer", &image, 10);
    let fs = statvfs(dir.path()).unwrap();
    let soft = fs.blocks() * fs.fragment_size() - (4 << 20);
    let hook = Hook::listen();
    let config = config(&format!(
        "evictionHard:\n  memory.available: 10Mi\nevictionSoft:\n  nodefs.available: \"{soft}\"\nevictionSoftGracePeriod:\n  nodefs.available: 100ms\nevictionMaxPodGracePeriod: 60\nebb:\n  mode: standalone\n  memoryAvailable: memAvailable\n  diskAttribution: false\n  minFreedOfThreshold: 0\n  minFreedOfNeed: 0\n{}",
        self::hook(&hook.socket, LONG)
    ));
    let mut agent = lab.start(config.path(), &["--enforce"]);
    let call = hook.call("ns/writer");
    assert_eq!(call.said["workload"]["podUid"], "uid-writer", "{}", call.said);
    let path = pod.payload.path.display().to_string();
    assert_eq!(call.said["workload"]["cgroups"], serde_json::json!([path]), "{}", call.said);
    assert_eq!(call.said["signal"], "nodefs.available");
    assert_eq!(lab.world().count("StopContainer"), 0);
    call.answer();
    ended(&mut agent, "answered");
    wait_for("the eviction", || lab.world().count("StopContainer") > 0);
    let records = agent.stop();
    assert_eq!(names(&records, "hookCalled"), ["ns/writer"]);
    let place = |kind| kinds(&records).iter().position(|told| *told == kind).unwrap();
    assert!(place("hookEnded") < place("decided"), "{records:#?}");
    hook.calls_nobody_else();
}
