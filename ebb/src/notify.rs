//! `ebb watch --notify`: whom ebb evicts and whom the kernel kills, shown on a user's desktop.
//!
//! It runs in the user's session, as a client of the API like any other: the agent, which is root, speaks to no user's bus.
//! `notify-send` of libnotify does the showing.

use super::{Failure, warn};
use anyhow::{Context as _, anyhow};
use ebb_api::wire::Record;
use ebb_journal::text::plain;
use std::collections::VecDeque;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Records that are worth a notification.
const SHOWN: [&str; 2] = ["evicted", "oomKill"];

/// At most so many notifications within [`WITHIN`]: a storm of evictions is not to bury the screen.
const MOST: usize = 10;
const WITHIN: Duration = Duration::from_secs(10);

/// A desktop that takes notifications.
#[derive(Debug, Default)]
pub(super) struct Desktop {
    shown: VecDeque<Instant>,
    left_out: u64,
}

impl Desktop {
    /// The desktop of this session.
    ///
    /// # Errors
    /// There is no session bus, or no `notify-send`.
    pub(super) fn of_session() -> Result<Self, Failure> {
        let socket = std::env::var_os("XDG_RUNTIME_DIR").map(|dir| Path::new(&dir).join("bus"));
        let has_bus = std::env::var_os("DBUS_SESSION_BUS_ADDRESS").is_some()
            || socket.is_some_and(|socket| socket.exists());
        if !has_bus {
            return Err(Failure::Host(anyhow!(
                "--notify: there is no session bus; run it in a desktop session, as `systemctl --user start ebb-notify` does"
            )));
        }
        let version = Command::new("notify-send").arg("--version").stdout(Stdio::null()).status();
        version
            .context("--notify: notify-send cannot be started; install it (libnotify-bin)")
            .map_err(Failure::Host)?;
        Ok(Self::default())
    }

    /// Shows a record, if it is worth it.
    pub(super) fn take(&mut self, record: &Record) {
        if !SHOWN.contains(&record.kind.as_str()) || !self.has_room(Instant::now()) {
            return;
        }
        let mut body = body(&record.text);
        match std::mem::take(&mut self.left_out) {
            0 => {}
            more => body.push_str(&format!("\n{more} more before it were not shown")),
        }
        let mut send = Command::new("notify-send");
        send.args(["--app-name=ebb", "--urgency=critical", "--icon=dialog-warning"]);
        send.args(["--", "ebb", &body]);
        match send.status() {
            Ok(status) if status.success() => {}
            Ok(status) => warn("note", &format!("notify-send: {status}; not shown: {body}")),
            Err(error) => warn("note", &format!("notify-send: {error}; not shown: {body}")),
        }
    }

    /// Whether one more may be shown; counts what may not.
    fn has_room(&mut self, now: Instant) -> bool {
        while self.shown.front().is_some_and(|at| now.duration_since(*at) >= WITHIN) {
            self.shown.pop_front();
        }
        let has_room = self.shown.len() < MOST;
        if has_room {
            self.shown.push_back(now);
        } else {
            self.left_out += 1;
        }
        has_room
    }
}

/// The first line of a record without its time of day, as text: names are others' to choose, and a notification may have markup.
fn body(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let said = line.split_once(' ').map_or(line, |(_, said)| said);
    plain(said).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_no_markup_and_the_time_is_left_to_the_desktop() {
        let told = "08:09:30.787 killed /work.slice/<b>&.service via cgroup.kill\n  more";
        assert_eq!(body(told), "killed /work.slice/&lt;b&gt;&amp;.service via cgroup.kill");
    }

    #[test]
    fn of_a_storm_ten_are_shown_and_the_rest_is_counted() {
        let mut desktop = Desktop::default();
        let begun = Instant::now();
        let shown = (0..25).filter(|_| desktop.has_room(begun)).count();
        assert_eq!((shown, desktop.left_out), (MOST, 15));
        assert!(desktop.has_room(begun + WITHIN));
    }
}
