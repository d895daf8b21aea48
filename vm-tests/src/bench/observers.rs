//! The race of an agent that is watched: by a scraper that asks once a second, three `ebb watch` and an `ebb top`.
//!
//! Every second run is watched, so that both kinds meet the same machine and the same agent.
use super::peers::{self, Running};
use super::race;
use crate::agent::EBB;
use crate::cgroup::Cgroup;
use crate::init::SELF;
use crate::observer::Observer;
use crate::registry::{Context as TestContext, Outcome};
use crate::runner;
use crate::wait;
use anyhow::{Context, Result, ensure};
use nix::pty::{Winsize, openpty};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Runs of the race of each kind.
const RUNS: u32 = 30;
const WATCHERS: usize = 3;
/// Between two questions of the scraper.
const SCRAPED_EVERY: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_secs(60);

pub(crate) fn ebb(test: &TestContext) -> Result<Outcome> {
    let lo = Command::new("busybox").args(["ip", "link", "set", "lo", "up"]).status();
    ensure!(lo.context("cannot start busybox")?.success(), "there is no loopback");
    let running = peers::OBSERVED.start()?;
    let dir = runner::out_dir(test)?;
    let observer = Observer::start()?;
    let mut rows = [String::new(), String::new()];
    for run in 0..=2 * RUNS {
        let is_watched = run % 2 == 0;
        let observers = is_watched.then(Observers::start).transpose()?;
        let row = race::row(peers::OBSERVED, &observer, run)?;
        if let Some(observers) = observers {
            ensure!(observers.stop()? > 0, "nothing was scraped in run {run}");
        }
        // What runs for the first time is translated by the emulator then.
        if run > 0 {
            writeln!(rows[usize::from(is_watched)], "{row}")?;
        }
        runner::note(test, &format!("{} {row}", if is_watched { "watched" } else { "alone" }))?;
    }
    for (name, rows) in ["alone", "watched"].iter().zip(&rows) {
        fs::write(dir.join(name), rows).context("cannot leave the runs")?;
    }
    fs::copy(Running::log(), dir.join("log")).context("cannot leave the log")?;
    running.stop()?;
    Ok(Outcome::Passed)
}

/// Everybody who watches.
#[derive(Debug)]
struct Observers {
    clients: Vec<Child>,
    cgroup: Cgroup,
    is_over: Arc<AtomicBool>,
    scrapes: Arc<AtomicU64>,
    scraper: JoinHandle<()>,
}

impl Observers {
    /// Starts them, and waits until each has been answered.
    fn start() -> Result<Self> {
        let cgroup = Cgroup::create("system.slice/observers.service")?;
        let client = |words: &[&str]| {
            let mut command = Command::new(SELF);
            command.arg("exec-in").arg(cgroup.path()).arg(EBB).args(words);
            command.args(["--api", peers::API]).stdin(Stdio::null()).stderr(Stdio::null());
            command
        };
        let mut clients = Vec::new();
        for _ in 0..WATCHERS {
            let mut command = client(&["watch", "--output", "json"]);
            clients.push(command.stdout(Stdio::null()).spawn().context("cannot start a watcher")?);
        }
        let size = Winsize { ws_row: 40, ws_col: 140, ws_xpixel: 0, ws_ypixel: 0 };
        let terminal = openpty(Some(&size), None).context("no terminal")?;
        let [input, output] = [terminal.slave.try_clone(), Ok(terminal.slave)];
        let mut top = client(&["top"]);
        top.env("TERM", "xterm-256color").stdin(input.context("cannot share the terminal")?);
        clients.push(top.stdout(output?).spawn().context("cannot start ebb top")?);
        // The terminal belongs to the child alone, so that its screen ends with it.
        drop(top);
        let shown = Arc::new(AtomicU64::new(0));
        let (mut screen, drawn) = (File::from(terminal.master), Arc::clone(&shown));
        std::thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(length @ 1..) = screen.read(&mut some) {
                drawn.fetch_add(length as u64, Ordering::Relaxed);
            }
        });
        let (is_over, scrapes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let scraper = {
            let (is_over, scrapes) = (Arc::clone(&is_over), Arc::clone(&scrapes));
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    if scrape().is_some() {
                        scrapes.fetch_add(1, Ordering::Relaxed);
                    }
                    std::thread::sleep(SCRAPED_EVERY);
                }
            })
        };
        wait::until(SOON, "somebody watches", || {
            shown.load(Ordering::Relaxed) > 1000 && scrapes.load(Ordering::Relaxed) > 0
        })?;
        Ok(Self { clients, cgroup, is_over, scrapes, scraper })
    }

    /// Ends them; how often was scraped.
    fn stop(self) -> Result<u64> {
        self.is_over.store(true, Ordering::Relaxed);
        ensure!(self.scraper.join().is_ok(), "the scraper panicked");
        for mut client in self.clients {
            let ended = client.try_wait().context("cannot look at a client")?;
            ensure!(ended.is_none(), "a client has ended by itself: {ended:?}");
            client.kill().context("cannot end a client")?;
            client.wait().context("cannot wait for a client")?;
        }
        self.cgroup.remove()?;
        Ok(self.scrapes.load(Ordering::Relaxed))
    }
}

/// One whole answer, as a scraper reads it.
fn scrape() -> Option<()> {
    let mut stream = TcpStream::connect(peers::METRICS).ok()?;
    stream.set_read_timeout(Some(SOON)).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: ebb\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.ends_with("# EOF\n").then_some(())
}
