//! What may be at the end of a socket, and what ebb says about it.

use super::{DEADLINES, SHORT, at_once, endpoint, start, until};
use ebb_cri::{Deadlines, DialError, Error, Link, Runtime};
use ebb_tests::runtime::Flavour;
use nix::unistd::{Uid, setfsuid};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// What the first attempt to connect met.
async fn met(path: &Path) -> Arc<DialError> {
    met_by(&Runtime::start(endpoint(path), DEADLINES).0).await
}

async fn met_by(runtime: &Runtime) -> Arc<DialError> {
    match until(runtime, |link| matches!(link, Link::Down { .. })).await {
        Link::Down { why, .. } => why,
        link => panic!("{link:?}"),
    }
}

#[tokio::test]
async fn every_runtime_is_known_by_its_own_name() {
    let flavours = [
        (Flavour::Containerd16, "containerd", "1.6.20~ds1"),
        (Flavour::Containerd2, "containerd", "2.1.9+unknown"),
        (Flavour::CriO, "cri-o", "1.33.0"),
    ];
    for (flavour, name, version) in flavours {
        let fake = start(flavour);
        let (runtime, _events) = super::client(&fake);
        let link = until(&runtime, |link| link.identity().is_some()).await;
        let identity = link.identity().unwrap();
        assert_eq!((identity.runtime.as_str(), identity.version.as_str()), (name, version));
        assert_eq!(identity.is_containerd(), name == "containerd");
    }
}

#[tokio::test]
async fn a_runtime_from_before_v1_is_named_with_what_to_do() {
    let fake = start(Flavour::Containerd14);
    let why = met(&fake.socket()).await;
    let text = why.to_string();
    assert!(matches!(*why, DialError::OldCri { .. }), "{text}");
    for part in ["containerd 1.4.13~ds1", "v1alpha2", "upgrade", "1.6"] {
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn a_socket_that_is_not_there_is_said_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("no.sock");
    assert!(matches!(&*met(&path).await, DialError::NoSocket(at) if *at == path));
    assert!(matches!(&*met(&path.join("below")).await, DialError::NoSocket(_)));
}

#[tokio::test]
async fn another_kind_of_file_is_no_socket() {
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(matches!(&*met(file.path()).await, DialError::NotASocket(_)));
    assert!(matches!(&*met(Path::new("/")).await, DialError::NotASocket(_)));
}

#[tokio::test]
async fn a_socket_nobody_listens_on_is_deserted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("old.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert!(matches!(&*met(&path).await, DialError::Deserted(_)));
}

#[tokio::test]
async fn a_socket_of_someone_else_names_the_user_who_may_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("roots.sock");
    let _listener = UnixListener::bind(&path).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    // Of this thread only, on which this test's tasks run; root would be let through.
    setfsuid(Uid::from_raw(65534));
    let why = met(&path).await;
    setfsuid(Uid::effective());
    assert!(matches!(&*why, DialError::Forbidden { .. }), "{why}");
}

#[tokio::test]
async fn a_server_of_another_protocol_is_no_runtime() {
    let dir = tempfile::tempdir().unwrap();
    for (name, answer) in [("http", &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..]), ("mute", b"")] {
        let path = dir.path().join(name);
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let server = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut greeting = [0; 24];
                stream.read_exact(&mut greeting).await.unwrap();
                stream.write_all(answer).await.unwrap();
            }
        });
        let why = met(&path).await;
        assert!(matches!(&*why, DialError::NotGrpc { .. }), "{name}: {why}");
        server.abort();
    }
}

#[tokio::test]
async fn a_grpc_server_without_cri_is_told_from_an_old_runtime() {
    let fake = start(Flavour::ContainerdWithoutCri);
    let why = met(&fake.socket()).await;
    assert!(matches!(&*why, DialError::NotCri(_)), "{why}");
}

#[tokio::test]
async fn a_server_that_says_nothing_is_silent_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hung.sock");
    let _listener = UnixListener::bind(&path).unwrap();
    let short = Deadlines { connect: SHORT, ..DEADLINES };
    let (runtime, _events) = Runtime::start(endpoint(&path), short);
    assert!(matches!(&*met_by(&runtime).await, DialError::Silent { .. }));
    assert!(matches!(at_once(runtime.images()).await, Err(Error::Unreachable { .. })));
}

#[tokio::test]
async fn a_first_call_waits_for_the_first_connection() {
    let fake = start(Flavour::Containerd2);
    let (runtime, _events) = super::client(&fake);
    assert_eq!(runtime.images().await.unwrap(), Vec::new());
}
