//! ebb under test: the real binary as a service of the guest, and the records that it writes.
//!
//! Tests read what an operator reads: one JSON object a line on standard output. Nothing of the agent is linked in.
use crate::cgroup::Cgroup;
use crate::init::SELF;
use crate::registry::Context as TestContext;
use crate::runner;
use crate::wait;
use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The agent's binary in the guest.
pub(crate) const EBB: &str = "/payload/ebb";
pub(crate) const CONFIG: &str = "/run/ebb.yaml";
const STARTING: Duration = Duration::from_secs(60);
const STOPPING: Duration = Duration::from_secs(30);
/// From there to its end the kernel takes its programs off, for each on the entry of a function with a walk over every function that can be traced: 8 to 10 s beside a busy disk in an emulated guest, and more than 30 with other guests beside it.
const DETACHING: Duration = Duration::from_secs(120);
/// Records that are shown when one was waited for in vain.
const LAST_WORDS: usize = 12;
/// Of a ranking, those that are shown.
const RANKED: usize = 4;
/// What every test's configuration ends with: the test itself is not a workload.
const OWN: &str = "ebb:\n  protected: [\"test.scope\"]\n";

/// A running agent and its records so far.
#[derive(Debug)]
pub(crate) struct Agent {
    test: TestContext,
    child: Child,
    lines: Receiver<Value>,
    records: Vec<Value>,
}

/// What a run of the agent differs in.
#[derive(Debug, Default)]
pub(crate) struct Settings<'a> {
    /// The eviction fields of its configuration, as YAML.
    pub(crate) thresholds: &'a str,
    /// More arguments of `ebb run`.
    pub(crate) arguments: &'a [&'a str],
    /// What stands in its section `ebb:` beside the test's own, as indented lines.
    pub(crate) own: &'a str,
    /// Where it finds its configuration, if not where the test writes it.
    pub(crate) config: Option<&'a str>,
    /// Give up all capabilities but those that killing needs.
    pub(crate) without_bpf: bool,
    /// Withhold these capabilities from it.
    pub(crate) without: &'a [u32],
}

impl Drop for Agent {
    /// What a test that failed leaves would keep the next one's from starting: one agent a node. Why it failed is often in what ebb wrote, which is told where the failure is.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            for words in [self.last_words(), self.last_decision()] {
                // The failure itself is what must be told.
                let _ = runner::note(&self.test, &words);
            }
            let _ = self.child.kill().and_then(|()| self.child.wait());
        }
    }
}

impl Agent {
    /// Start ebb with enforcement and wait until it says that it has begun.
    pub(crate) fn enforce(test: &TestContext, thresholds: &str) -> Result<Self> {
        let arguments = &["--enforce"];
        Self::start(test, &Settings { thresholds, arguments, ..Settings::default() })
    }

    /// Start ebb and wait until it says that it has begun.
    pub(crate) fn start(test: &TestContext, settings: &Settings<'_>) -> Result<Self> {
        configure(settings.thresholds, settings.own)?;
        let cgroup = Cgroup::create("system.slice/ebb.service")?;
        let dir = runner::out_dir(test)?;
        // One of several agents of a test does not overwrite what the ones before it have said.
        let nth = (1..).find(|n| !dir.join(log_name(*n, "json")).exists()).unwrap_or(1);
        let said = dir.join(log_name(nth, "stderr"));
        let errors = File::create(&said).context("cannot create ebb's log")?;
        let log =
            File::create(dir.join(log_name(nth, "json"))).context("cannot create ebb's log")?;
        let withheld: Vec<String> = settings.without.iter().map(u32::to_string).collect();
        let withheld = withheld.join(",");
        let how: &[&str] = match (settings.without_bpf, withheld.as_str()) {
            (true, _) => &["exec-in-to-kill"],
            (false, "") => &["exec-in"],
            (false, withheld) => &["exec-in-without", withheld],
        };
        let mut child = Command::new(SELF)
            .args(how)
            .arg(cgroup.path())
            .args([EBB, "run", "--output", "json", "--config"])
            .arg(settings.config.unwrap_or(CONFIG))
            .args(settings.arguments)
            .env("RUST_LOG", "warn,ebb=debug")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .context("cannot start ebb")?;
        let stdout = child.stdout.take().context("ebb has no standard output")?;
        let mut agent =
            Self { test: *test, child, lines: read_records(stdout, log), records: Vec::new() };
        let started = agent.wait_for(STARTING, "ebb has begun", |record| is(record, "started"));
        if let Err(error) = started {
            let said = fs::read_to_string(said).unwrap_or_default();
            bail!("{error:#}; ebb said: {said}");
        }
        Ok(agent)
    }

    /// Give it another configuration and have it read that.
    pub(crate) fn reconfigure(&self, thresholds: &str, own: &str) -> Result<()> {
        reconfigure(self.pid()?, thresholds, own)
    }

    pub(crate) fn pid(&self) -> Result<Pid> {
        Ok(Pid::from_raw(i32::try_from(self.child.id()).context("an impossible process id")?))
    }

    /// Every record so far, oldest first.
    pub(crate) fn records(&mut self) -> &[Value] {
        self.records.extend(self.lines.try_iter());
        &self.records
    }

    /// How many records of `event` there are so far.
    pub(crate) fn count(&mut self, event: &str) -> usize {
        self.records().iter().filter(|record| is(record, event)).count()
    }

    /// The first record, past or to come, that fits.
    pub(crate) fn wait_for(
        &mut self,
        limit: Duration,
        what: &str,
        fits: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let deadline = Instant::now() + limit;
        loop {
            // Before the look, so that the last one is after the deadline.
            let left = deadline.saturating_duration_since(Instant::now());
            if let Some(found) = self.records().iter().find(|record| fits(record)) {
                return Ok(found.clone());
            }
            if let Some(status) = self.child.try_wait().context("cannot look at ebb")? {
                bail!("ebb ended with {status} before {what}");
            }
            ensure!(
                !left.is_zero(),
                "waited {} s in vain until {what}; {}",
                limit.as_secs(),
                self.last_words()
            );
            if let Ok(record) = self.lines.recv_timeout(left.min(Duration::from_millis(200))) {
                self.records.push(record);
            }
        }
    }

    /// Waits until an eviction of one whose name is meant is on record, and no episode is open.
    ///
    /// Where the loop is held up, as by a guest that stands still, the watchdog kills: the loop then tells of an episode only if memory is still short when it comes back.
    pub(crate) fn until_recovered(
        &mut self,
        limit: Duration,
        is_meant: impl Fn(&str) -> bool,
    ) -> Result<()> {
        let recovered = wait::until(limit, "ebb has evicted it and recovered", || {
            let is_gone = self.victims().iter().any(|name| is_meant(name));
            is_gone && is_calm(self.records())
        });
        recovered.with_context(|| self.last_words())
    }

    /// Its last records in short, for the report of a failure: when, what, and about whom.
    pub(crate) fn last_words(&mut self) -> String {
        let text = |record: &Value, key| record.get(key)?.as_str().map(str::to_owned);
        let short = |record: &Value| {
            let at = record.get("at").map(Value::to_string);
            let whom = name_of(record).or_else(|| text(record, "what"));
            let parts = [at, text(record, "event"), whom];
            parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
        };
        let records = self.records();
        let last = records.iter().skip(records.len().saturating_sub(LAST_WORDS));
        format!("ebb wrote last: {}", last.map(short).collect::<Vec<_>>().join("; "))
    }

    /// Whom it decided on last, and who came next: those that are ranked first, as it has them.
    fn last_decision(&mut self) -> String {
        let decided = self.records().iter().rfind(|record| is(record, "decided"));
        let Some(decided) = decided else { return "ebb has decided on nobody".to_owned() };
        let ranking = decided.get("ranking").and_then(Value::as_array);
        let first = ranking.into_iter().flatten().take(RANKED);
        let first: Vec<String> = first.map(Value::to_string).collect();
        format!("ebb's last ranking: {}", first.join(" "))
    }

    /// Names of the workloads it acted on, in order.
    pub(crate) fn victims(&mut self) -> Vec<String> {
        victims(self.records())
    }

    /// SIGKILL, and wait until it is gone.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.child.kill().context("cannot kill ebb")?;
        self.child.wait().context("cannot wait for ebb").map(drop)
    }

    /// Ask it to end, and hold it to that.
    pub(crate) fn stop(mut self) -> Result<Vec<Value>> {
        ensure!(
            self.child.try_wait().context("cannot look at ebb")?.is_none(),
            "ebb had ended before it was asked to"
        );
        kill(self.pid()?, Signal::SIGTERM).context("cannot ask ebb to end")?;
        self.wait_for(STOPPING, "ebb says that it ends", |record| is(record, "stopping"))?;
        let ended = wait::until_some(DETACHING, "ebb has ended", || self.child.try_wait().ok()?);
        let status = match ended {
            Ok(status) => status,
            Err(error) => bail!("{error:#}; its threads:{}", self.threads()),
        };
        ensure!(status.success(), "ebb ended with {status}");
        // The pipe is closed now, so this takes the rest.
        self.records.extend(self.lines.iter());
        Ok(std::mem::take(&mut self.records))
    }

    /// Each of its threads, in what state it is and where in the kernel: for the report of a hang.
    fn threads(&self) -> String {
        let tasks = format!("/proc/{}/task", self.child.id());
        let ids = fs::read_dir(tasks).into_iter().flatten().flatten();
        ids.map(|task| {
            let read = |name| fs::read_to_string(task.path().join(name)).unwrap_or_default();
            let state =
                read("stat").rsplit(')').next().unwrap_or_default().get(1..2).map(str::to_owned);
            let stack = read("stack").lines().take(6).collect::<Vec<_>>().join(" < ");
            format!("\n{} {} {stack}", read("comm").trim(), state.unwrap_or_default())
        })
        .collect()
    }
}

/// Give an ebb that runs another configuration and have it read that.
pub(crate) fn reconfigure(ebb: Pid, thresholds: &str, own: &str) -> Result<()> {
    configure(thresholds, own)?;
    kill(ebb, Signal::SIGHUP).context("cannot ask ebb to read its configuration")
}

/// Whole or not at all: ebb may read it at any moment.
fn configure(thresholds: &str, own: &str) -> Result<()> {
    let next = format!("{CONFIG}.{:?}", std::thread::current().id());
    fs::write(&next, format!("{thresholds}{OWN}{own}"))
        .and_then(|()| fs::rename(&next, CONFIG))
        .context("cannot write ebb's configuration")
}

/// How long ago a record was made.
///
/// # Errors
/// It has no time, or the clock was set back since.
pub(crate) fn since(record: &Value) -> Result<Duration> {
    let at = record.get("at").and_then(Value::as_u64).context("a record without time")?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    now.checked_sub(Duration::from_millis(at)).context("a record of the future")
}

/// Whether a record is of this kind.
pub(crate) fn is(record: &Value, event: &str) -> bool {
    record.get("event").and_then(Value::as_str) == Some(event)
}

/// Whether each episode of a signal's pressure that has begun is over.
pub(crate) fn is_calm(records: &[Value]) -> bool {
    let count = |event| records.iter().filter(|record| is(record, event)).count();
    count("thresholdCrossed") == count("pressureRelieved")
}

/// The name of the workload that a record is about: its cgroup's path.
pub(crate) fn name_of(record: &Value) -> Option<String> {
    Some(record.get("workload")?.get("name")?.as_str()?.to_owned())
}

/// Whether it was the watchdog that killed: whom the loop had ranked first, when the loop itself is held up. It writes no decision.
pub(crate) fn is_by_watchdog(record: &Value) -> bool {
    record.get("byWatchdog").and_then(Value::as_bool) == Some(true)
}

/// Names of the workloads that were acted on, in order. The last may be on record after its end is seen: all are when ebb has stopped.
///
/// Where the loop is held up the watchdog kills too, perhaps whom the loop has just had killed: that is one victim.
pub(crate) fn victims(records: &[Value]) -> Vec<String> {
    let mut all: Vec<(String, bool)> = Vec::new();
    for record in records.iter().filter(|record| is(record, "evicted")) {
        let name = name_of(record).unwrap_or_default();
        let by_watchdog = is_by_watchdog(record);
        let is_again = all.last().is_some_and(|(last, by)| *last == name && (*by || by_watchdog));
        if !is_again {
            all.push((name, by_watchdog));
        }
    }
    all.into_iter().map(|(name, _)| name).collect()
}

/// Where the `nth` agent of a test has its records or diagnostics: `ebb.json`, `ebb-2.json` and so on.
fn log_name(nth: u32, ending: &str) -> String {
    if nth == 1 { format!("ebb.{ending}") } else { format!("ebb-{nth}.{ending}") }
}

fn read_records(from: impl std::io::Read + Send + 'static, mut log: File) -> Receiver<Value> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            // A full disk loses the copy, not the record.
            let _ = writeln!(log, "{line}");
            let record = serde_json::from_str(&line).unwrap_or(Value::String(line));
            if sender.send(record).is_err() {
                break;
            }
        }
    });
    lines
}
