//! A terminal for a program under test: a pty, and an emulator that keeps the screen which a person would see.

use ebb_tests::fake_node::{PATIENCE, wait_for};
use nix::libc;
use nix::pty::{Winsize, openpty};
use nix::sys::termios::{LocalFlags, tcgetattr};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZeroU16;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// A program on a terminal of its own.
pub(super) struct Terminal {
    pub(super) child: Child,
    /// The end at which a person sits.
    person: File,
    /// The program's end, kept open so that its settings can be read.
    program: OwnedFd,
    screen: Arc<Mutex<Seen>>,
}

/// Begin and end of a synchronized update.
const BEGIN: &[u8] = b"\x1b[?2026h";
const END: &[u8] = b"\x1b[?2026l";

/// What a person sees: no update before it is whole.
struct Seen {
    parser: vt100::Parser,
    /// What was written and is not seen yet.
    held: Vec<u8>,
}

impl Seen {
    fn take(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
        let whole = whole(&self.held);
        self.parser.process(&self.held[..whole]);
        self.held.drain(..whole);
    }
}

/// How many of these bytes come before an update that is open, or may be about to open.
fn whole(bytes: &[u8]) -> usize {
    let find = |what: &[u8], from: usize| {
        let at = bytes[from..].windows(what.len()).position(|found| found == what)?;
        Some(from + at)
    };
    let mut whole = 0;
    while let Some(begin) = find(BEGIN, whole) {
        let Some(end) = find(END, begin) else { return begin };
        whole = end + END.len();
    }
    let is_begun = |count: &usize| bytes[whole..].ends_with(&BEGIN[..*count]);
    bytes.len() - (1..BEGIN.len()).rev().find(is_begun).unwrap_or(0)
}

#[test]
fn an_update_is_seen_once_it_is_whole_however_it_is_read() {
    let written = b"before\x1b[?2026h, within\x1b[?2026l, after\x1b[?2026h, never";
    for size in 1..=written.len() {
        let parser = vt100::Parser::new(some(1), some(80), 0);
        let mut seen = Seen { parser, held: Vec::new() };
        for bytes in written.chunks(size) {
            seen.take(bytes);
            let text = seen.parser.screen().contents();
            let is_open = text.len() > "before".len() && text.len() < "before, within".len();
            assert!(!is_open, "in pieces of {size}: {text}");
        }
        assert_eq!(seen.parser.screen().contents(), "before, within, after");
    }
}

nix::ioctl_write_ptr_bad!(set_size, libc::TIOCSWINSZ, Winsize);

fn size(columns: u16, rows: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

fn some(count: u16) -> NonZeroU16 {
    NonZeroU16::new(count).unwrap()
}

impl Terminal {
    /// Runs `command` on a terminal of this size.
    pub(super) fn run(mut command: Command, columns: u16, rows: u16) -> Self {
        let pty = openpty(Some(&size(columns, rows)), None).unwrap();
        let end = || Stdio::from(pty.slave.try_clone().unwrap());
        command.stdin(end()).stdout(end()).stderr(end());
        let become_its_own = || {
            // SAFETY: both are system calls that take integers, and touch nothing of the parent's after the fork.
            let done = unsafe { libc::setsid() >= 0 && libc::ioctl(0, libc::TIOCSCTTY, 0) == 0 };
            if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        };
        // SAFETY: the function makes system calls alone, which are safe between fork and exec.
        unsafe { command.pre_exec(become_its_own) };
        let child = command.spawn().unwrap();
        let parser = vt100::Parser::new(some(rows), some(columns), 0);
        let screen = Arc::new(Mutex::new(Seen { parser, held: Vec::new() }));
        let person = File::from(pty.master);
        let (mut read, seen) = (person.try_clone().unwrap(), Arc::clone(&screen));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = read.read(&mut bytes) {
                seen.lock().unwrap().take(&bytes[..count]);
            }
        });
        Self { child, person, program: pty.slave, screen }
    }

    pub(super) fn types(&mut self, keys: &str) {
        self.person.write_all(keys.as_bytes()).unwrap();
    }

    /// What is on the screen.
    pub(super) fn text(&self) -> String {
        let rows = self.with(|screen| {
            let (_, columns) = screen.size();
            screen.rows(0, columns.get()).map(|row| row.trim_end().to_owned()).collect::<Vec<_>>()
        });
        rows.join("\n") + "\n"
    }

    pub(super) fn with<T>(&self, look: impl FnOnce(&vt100::Screen) -> T) -> T {
        look(self.screen.lock().unwrap().parser.screen())
    }

    /// Waits until the screen is as it should be.
    pub(super) fn shows(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let text = self.text();
            if is_so(&text) {
                return text;
            }
            assert!(begun.elapsed() < PATIENCE, "no {what} on the screen:\n{text}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Waits until this is somewhere on the screen.
    pub(super) fn says(&self, words: &str) -> String {
        self.shows(words, |text| text.contains(words))
    }

    pub(super) fn resize(&self, columns: u16, rows: u16) {
        self.screen.lock().unwrap().parser.screen_mut().set_size(some(rows), some(columns));
        let size = size(columns, rows);
        // SAFETY: the descriptor is open, and the structure lives through the call.
        unsafe { set_size(self.person.as_raw_fd(), &raw const size) }.unwrap();
    }

    pub(super) fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().try_into().unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
    }

    /// Waits for the program's end, after which the terminal must be as it was. Returns how it ended, and what is on the screen.
    pub(super) fn given_back(self) -> (ExitStatus, String) {
        self.given_back_with("")
    }

    /// The same, with these as its last words: what it wrote may be read a little after it has ended.
    pub(super) fn given_back_with(mut self, words: &str) -> (ExitStatus, String) {
        let mut ended = None;
        wait_for("the end of the program", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        wait_for("the terminal to be given back", || {
            self.with(|screen| !screen.alternate_screen() && !screen.hide_cursor())
        });
        wait_for(words, || self.text().contains(words));
        let flags = tcgetattr(self.program.as_fd()).unwrap().local_flags;
        assert!(flags.contains(LocalFlags::ICANON | LocalFlags::ECHO), "{flags:?}");
        (ended.unwrap(), self.text())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
