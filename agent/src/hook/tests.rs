//! What the thread makes of another side that answers, hangs up, floods, drips, is slow or is not there.

use super::*;
use ebb_journal::Payload;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use tempfile::TempDir;

/// Nothing here takes so long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("hook.sock");
    (dir, socket)
}

fn call(socket: &Path, within: Duration) -> Ended {
    let line = b"{\"version\":1}\n".to_vec();
    perform(&Call { number: 7, socket: socket.into(), line, until: Boot::now().plus(within) })
}

/// Somebody who accepts one connection and does this with it.
fn listen<T: Send + 'static>(
    socket: &Path,
    serve: impl FnOnce(UnixStream) -> T + Send + 'static,
) -> JoinHandle<T> {
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || serve(listener.accept().unwrap().0))
}

fn read_line(stream: &mut UnixStream) -> Vec<u8> {
    let mut said = Vec::new();
    while said.last() != Some(&b'\n') {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        said.extend(byte);
    }
    said
}

#[test]
fn a_line_is_an_answer_whatever_it_says() {
    for answer in [&b"ok\n"[..], b"\n", b"{\"veto\":true}\n", b"\xff\0\n", b"no\nyes"] {
        let (_dir, socket) = place();
        let other = listen(&socket, move |mut stream| {
            let said = read_line(&mut stream);
            stream.write_all(answer).unwrap();
            // It stays open: the line alone is the answer.
            (said, stream)
        });
        let ended = call(&socket, PATIENCE);
        assert_eq!((ended.number, ended.outcome, ended.why), (7, HookOutcome::Answered, None));
        assert_eq!(other.join().unwrap().0, b"{\"version\":1}\n");
    }
}

#[test]
fn closing_is_the_end_of_a_call_read_or_not() {
    for (reads, says) in [(true, &b""[..]), (true, b"half a line"), (false, b"")] {
        let (_dir, socket) = place();
        let other = listen(&socket, move |mut stream| {
            if reads {
                read_line(&mut stream);
            }
            stream.write_all(says).unwrap();
        });
        assert_eq!(call(&socket, PATIENCE).outcome, HookOutcome::Closed, "{reads} {says:?}");
        other.join().unwrap();
    }
}

#[test]
fn one_that_says_nothing_or_is_never_done_costs_its_deadline() {
    let (_dir, socket) = place();
    let silent = listen(&socket, |stream| stream);
    let begun = Boot::now();
    let within = Duration::from_millis(50);
    let ended = call(&socket, within);
    assert_eq!((ended.outcome, ended.why), (HookOutcome::TimedOut, None));
    assert!(ended.at.since(begun) >= within);
    drop(silent.join().unwrap());
    // Byte by byte, so that no single wait is ever over its time.
    let (_dir, socket) = place();
    let drip = listen(&socket, |mut stream| {
        while stream.write_all(b".").is_ok() {
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    assert_eq!(call(&socket, within).outcome, HookOutcome::TimedOut);
    drip.join().unwrap();
}

#[test]
fn a_flood_without_a_line_is_not_read_to_its_end() {
    let (_dir, socket) = place();
    let flood = listen(&socket, |mut stream| {
        let mut written = 0;
        // Until the other side has gone.
        while let Ok(more) = stream.write(&[b'x'; 1 << 16]) {
            written += more;
        }
        written
    });
    let ended = call(&socket, PATIENCE);
    assert_eq!(ended.outcome, HookOutcome::Failed);
    assert!(ended.why.unwrap().contains("without a line break"));
    flood.join().unwrap();
}

/// The queue of those who wait to be accepted is full, and connecting would wait for ever.
#[test]
fn one_that_never_accepts_costs_its_deadline() {
    let (_dir, socket) = place();
    let listener = UnixListener::bind(&socket).unwrap();
    nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
    let within = Duration::from_millis(50);
    let (done, ends): (_, Receiver<HookOutcome>) = channel();
    std::thread::spawn(move || {
        for _ in 0..3 {
            done.send(call(&socket, within).outcome).unwrap();
        }
    });
    for _ in 0..3 {
        assert_eq!(ends.recv_timeout(PATIENCE).unwrap(), HookOutcome::TimedOut);
    }
}

#[test]
fn a_socket_that_is_not_there_and_one_on_which_nobody_listens_are_told_apart() {
    let (_dir, socket) = place();
    let ended = call(&socket, PATIENCE);
    assert_eq!(ended.outcome, HookOutcome::Absent);
    assert!(ended.why.unwrap().contains("No such file"));
    drop(UnixListener::bind(&socket).unwrap());
    let ended = call(&socket, PATIENCE);
    assert_eq!(ended.outcome, HookOutcome::Refused);
    assert!(ended.why.is_some());
}

#[test]
fn the_thread_answers_each_call_and_ends_with_its_last_caller() {
    let (ends, mut ended) = tokio::sync::mpsc::channel(1);
    let caller = Caller::start(ends).unwrap();
    let (_dir, socket) = place();
    for number in 1..4 {
        let until = Boot::now().plus(PATIENCE);
        assert!(caller.call(Call { number, socket: socket.clone(), line: Vec::new(), until }));
        let end = ended.blocking_recv().unwrap();
        assert_eq!((end.number, end.outcome), (number, HookOutcome::Absent));
    }
    drop(caller);
    assert!(ended.blocking_recv().is_none());
}

/// What the operating guide promises.
#[test]
fn what_is_said_is_one_line_that_names_the_workload_and_the_need() {
    let snapshot = r#"{"schemaVersion": 1, "takenAt": 1800000000000, "node": {},
        "signals": {"memory.available": {"available": 419430400, "capacity": 4294967296}},
        "workloads": [{"key": {"name": "shop/web-1", "uid": "u-1"}, "kind": "pod", "terminationGrace": 20,
            "stats": {"memory": {"workingSet": 1073741824}}}]}"#;
    let snapshot: ebb_policy::Snapshot = serde_json::from_str(snapshot).unwrap();
    let config = crate::config::Config::parse(
        "evictionSoft: {memory.available: 500Mi}\nevictionSoftGracePeriod: {memory.available: 1s}\nevictionMaxPodGracePeriod: 30\nebb: {mode: kubernetes}\n",
    );
    let limits = config.unwrap().limits;
    let (_, history) = ebb_policy::decide(&snapshot, &limits, &ebb_policy::History::default());
    let later = ebb_policy::Snapshot { taken_at: Time(snapshot.taken_at.0 + 2_000), ..snapshot };
    let (plan, _) = ebb_policy::decide(&later, &limits, &history);
    let evict = plan.evictions().next().unwrap_or_else(|| panic!("{plan:#?}"));
    let target = Target::Pod {
        uid: "u-1".into(),
        payloads: vec![Payload { id: 9, path: "/sys/fs/cgroup/kubepods/podu-1/c1".into() }],
    };
    let line = request(evict, &target, Time(1_800_000_002_000), Duration::from_secs(2)).unwrap();
    let line = String::from_utf8(line).unwrap();
    let expected = concat!(
        r#"{"version":1,"event":"beforeEviction","time":1800000002000,"#,
        r#""workload":{"name":"shop/web-1","podUid":"u-1","cgroups":["/sys/fs/cgroup/kubepods/podu-1/c1"]},"#,
        r#""signal":"memory.available","threshold":524288000,"available":419430400,"#,
        r#""graceSeconds":20,"deadlineMs":2000,"dryRun":false}"#,
        "\n"
    );
    assert_eq!(line, expected);
    assert!(include_str!("../../../docs/operating.md").contains(line.trim_end()));
    // Names are others' choice, and make no line of their own.
    let mut odd = evict.clone();
    odd.workload.name = "two\nlines".into();
    let target = Target::Process { pid: 7, start: 1 };
    let line = request(&odd, &target, Time(1), Duration::ZERO).unwrap();
    assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
    let said: serde_json::Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(
        (&said["workload"]["pid"], &said["workload"]["cgroups"]),
        (&7.into(), &serde_json::json!([]))
    );
}
