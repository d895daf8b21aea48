//! Connections without a client's library, for what no library does.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// What HTTP/2 begins with.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
pub(super) const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A frame of HTTP/2.
pub(super) fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags, 0, 0, 0, stream];
    frame.extend(payload);
    frame
}

/// A connection that has said that it speaks HTTP/2, with no room for a single byte of an answer.
pub(super) fn greet(path: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(path).unwrap();
    // The initial size of windows.
    let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    stream.write_all(&[PREFACE, &settings].concat()).unwrap();
    stream
}

/// The head of a call.
pub(super) fn head(call: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()][..], text.as_bytes()].concat();
    // As HPACK has it: POST and http from its table, everything else as it is.
    let fields = [
        vec![0x83, 0x86, 0x04],
        text(&format!("/ebb.v1.Agent/{call}")),
        vec![0x01],
        text("localhost"),
        vec![0x0f, 0x10],
        text("application/grpc"),
        vec![0x00],
        text("te"),
        text("trailers"),
    ];
    frame(HEADERS, END_HEADERS, 1, &fields.concat())
}

/// The body of a call: these bytes, and nothing more.
pub(super) fn body(bytes: &[u8]) -> Vec<u8> {
    frame(DATA, END_STREAM, 1, bytes)
}

/// A client that asks for every record, and never reads.
pub(super) fn watch_and_never_read(path: &Path) -> UnixStream {
    let mut stream = greet(path);
    // A message of two bytes: its first field, a number, is zero.
    let request = body(&[0, 0, 0, 0, 2, 0x08, 0x00]);
    stream.write_all(&[head("Watch"), request].concat()).unwrap();
    stream
}

/// Whether the other side has closed the connection within `patience`; what it sent before is passed over.
pub(super) fn is_closed(stream: &mut UnixStream, patience: Duration) -> bool {
    let begun = Instant::now();
    let mut buffer = [0; 4096];
    while begun.elapsed() < patience {
        stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return true,
            Err(_) => {}
        }
    }
    false
}

/// Connects as another user and group, on a thread that is it from then on; `None` where this process may not become another.
pub(super) fn connect_as(uid: u32, gid: u32, path: &Path) -> Option<io::Result<UnixStream>> {
    if !nix::unistd::geteuid().is_root() {
        return None;
    }
    let path = path.to_owned();
    let connect = move || {
        let none: *const nix::libc::gid_t = std::ptr::null();
        // SAFETY: these system calls take integers, and a list of no length; made directly they are about this thread alone, which ends with this function.
        let done = unsafe {
            nix::libc::syscall(nix::libc::SYS_setgroups, 0, none)
                | nix::libc::syscall(nix::libc::SYS_setresgid, gid, gid, gid)
                | nix::libc::syscall(nix::libc::SYS_setresuid, uid, uid, uid)
        };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
        UnixStream::connect(&path)
    };
    Some(std::thread::spawn(connect).join().unwrap())
}
