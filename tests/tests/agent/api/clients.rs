//! Clients that do harm, or would: none of them delays an eviction, and each is told of.

use super::raw::{self, connect_as, greet, is_closed, watch_and_never_read};
use super::{Served, wait_for};
use ebb_tests::fake_node::PATIENCE;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Connections that root may have at a time.
const CLIENTS: usize = 16;

/// A user and a group that nobody has.
const NOBODY: u32 = 65_534;
const GROUP: u32 = 60_123;

#[test]
fn an_eviction_happens_while_sixteen_clients_do_not_read_and_they_are_disconnected_and_told() {
    let mut served = Served::new(&["--enforce"]);
    let mut clients: Vec<UnixStream> =
        (0..CLIENTS).map(|_| watch_and_never_read(&served.api.path)).collect();
    served.runs_short();
    wait_for("the kill", || served.hog.is_killed());
    served.agent.wait("pressureRelieved");
    let is_refusal = |record: &&serde_json::Value| {
        record["event"] == "apiClientRefused" && record["why"] == "notReading"
    };
    let early = served.agent.seen.iter().filter(is_refusal).count();
    assert_eq!(early, 0, "they were still connected: {:#?}", served.agent.seen);
    let told = served.agent.wait("apiClientRefused");
    assert_eq!((&told["why"], &told["uid"]), (&"notReading".into(), &own_uid().into()));
    assert_eq!(told["pid"], std::process::id());
    for client in &mut clients {
        assert!(is_closed(client, PATIENCE), "a client that never read is still connected");
    }
    wait_for("their places to be free", || may_ask(&served));
    let records = served.agent.stop();
    assert_eq!(records.iter().filter(is_refusal).count(), 1, "at most one a minute");
}

fn own_uid() -> u32 {
    nix::unistd::geteuid().as_raw()
}

#[test]
fn connections_beyond_the_limit_are_refused_and_a_place_that_is_given_back_is_taken_again() {
    let mut served = Served::new(&["--enforce"]);
    let mut clients: Vec<UnixStream> = (0..CLIENTS).map(|_| greet(&served.api.path)).collect();
    let mut one_more = greet_or_not(&served);
    assert!(is_closed(&mut one_more, PATIENCE), "one more than the limit is served");
    assert_eq!(served.agent.wait("apiClientRefused")["why"], "tooMany");
    for _ in 0..200 {
        drop(greet_or_not(&served));
    }
    served.runs_short();
    wait_for("the kill", || served.hog.is_killed());
    assert!(!clients.iter_mut().any(|client| is_closed(client, Duration::from_millis(20))));
    clients.pop();
    wait_for("a place to be free", || may_ask(&served));
    served.agent.wait("pressureRelieved");
    let records = served.agent.stop();
    let refused = records.iter().filter(|record| record["event"] == "apiClientRefused").count();
    assert_eq!(refused, 1, "a flood is told once a minute");
}

/// Whether one more client has a place, and an answer.
fn may_ask(served: &Served) -> bool {
    let asked = ebb_api::client::Client::connect(&served.api.path);
    served.api.runtime.block_on(async { asked.await?.node().await }).is_ok()
}

/// A connection that may be refused before anything is said.
fn greet_or_not(served: &Served) -> UnixStream {
    let mut stream = UnixStream::connect(&served.api.path).unwrap();
    let _ = stream.write_all(raw::PREFACE);
    stream
}

#[test]
fn another_user_is_refused_by_the_sockets_mode_and_by_who_it_is() {
    let mut served = Served::new(&[]);
    let open = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open(served.dir.path(), 0o755);
    let Some(refused) = connect_as(NOBODY, NOBODY, &served.api.path) else {
        // Without root nobody can become another user.
        return;
    };
    assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    // Whatever became of its mode, who connects is asked for.
    open(&served.api.path, 0o666);
    let mut stream = connect_as(NOBODY, NOBODY, &served.api.path).unwrap().unwrap();
    assert!(is_closed(&mut stream, PATIENCE), "another user is served");
    let told = served.agent.wait("apiClientRefused");
    assert_eq!((&told["why"], &told["uid"]), (&"notAllowed".into(), &NOBODY.into()));
    served.agent.stop();
}

#[test]
fn members_of_the_group_that_is_named_are_served_and_others_are_not() {
    if !nix::unistd::geteuid().is_root() {
        // A group that nobody is in can be given by root alone.
        return;
    }
    let mut served = Served::new(&["--api-group", &GROUP.to_string()]);
    let everybody = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(served.dir.path(), everybody).unwrap();
    let mode = std::fs::metadata(&served.api.path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o660);
    let mut member = connect_as(NOBODY, GROUP, &served.api.path).unwrap().unwrap();
    member.write_all(&[raw::PREFACE, &raw::frame(raw::SETTINGS, 0, 0, &[])].concat()).unwrap();
    member.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = [0; 9];
    std::io::Read::read_exact(&mut member, &mut answer).unwrap();
    assert_eq!(answer[3], raw::SETTINGS, "a member is greeted: {answer:?}");
    let other = connect_as(NOBODY, NOBODY, &served.api.path).unwrap();
    assert_eq!(other.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    served.agent.take_in();
    let refused = |record: &serde_json::Value| record["event"] == "apiClientRefused";
    assert!(!served.agent.seen.iter().any(refused), "{:#?}", served.agent.seen);
    served.agent.stop();
}

#[test]
fn what_is_no_http_no_grpc_or_no_message_does_no_harm() {
    let served = Served::new(&["--enforce"]);
    let greeting = [raw::PREFACE, &raw::frame(raw::SETTINGS, 0, 0, &[])].concat();
    let call = |body: &[u8]| [greeting.clone(), raw::head("Watch"), raw::body(body)].concat();
    let malformed: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\nHost: ebb\r\n\r\n".to_vec(),
        vec![0xff; 4096],
        raw::PREFACE[..10].to_vec(),
        // A frame that is longer than any may be.
        [&greeting[..], &[0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]].concat(),
        // Of a stream that was never begun, and of a kind that there is not.
        [greeting.clone(), raw::frame(0, 0, 7, b"lost"), raw::frame(0xfe, 0xff, 9, b"?")].concat(),
        // Heads that are no HPACK.
        [greeting.clone(), raw::frame(1, 4, 1, &[0xff; 64])].concat(),
        // A message that says that it has 4 GiB, one that is larger than any need be, and one that is no message.
        call(&[0, 0xff, 0xff, 0xff, 0xff, 1, 2, 3]),
        call(&[&[0, 0, 0, 0x20, 0][..], &[0x55; 0x2000]].concat()),
        call(&[0, 0, 0, 0, 3, 0xff, 0xff, 0xff]),
        call(&[]),
    ];
    for bytes in malformed {
        let mut stream = UnixStream::connect(&served.api.path).unwrap();
        // It may close the connection before it has read all of it.
        let _ = stream.write_all(&bytes);
        let node = served.api.runtime.block_on(served.api.client().node());
        assert!(node.is_ok(), "{node:?} after {bytes:?}");
    }
    served.runs_short();
    wait_for("the kill", || served.hog.is_killed());
    served.agent.stop();
}
