//! Runs the tests that the host asked for, each in a process of its own, and cleans up behind each.
//!
//! The process is killed at its deadline, so one stuck test costs itself and not the ones behind it. A test's result
//! travels in a file; what it prints goes to the console, where the kernel's messages around it are.
use crate::cgroup::Cgroup;
use crate::init::SELF;
use crate::kernel_log;
use crate::node;
use crate::registry::{self, Context as TestContext, Outcome, Test};
use crate::wait;
use anyhow::{Context, Result, ensure};
use ebb_vm_protocol::Line;
use nix::unistd::Pid;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Takes the verdicts. The console is ttyS0 on a PC, and no ttyS on arm64.
const PORT: &str = if cfg!(target_arch = "x86_64") { "/dev/ttyS1" } else { "/dev/ttyS0" };
/// Takes a tar for each test that left something: a guest that dies later has handed over what came before.
const FILES_PORT: &str = if cfg!(target_arch = "x86_64") { "/dev/ttyS2" } else { "/dev/ttyS1" };
/// What tests leave here reaches the host in files.tar.
const OUT: &str = "/out";
const RESULT: &str = "/run/result";

/// The host's list, one after the other.
pub(crate) fn run() -> Result<()> {
    say(&Line::Hello(node::release()))?;
    let names = fs::read_to_string("/payload/tests").context("the payload names no tests")?;
    busybox(Command::new("busybox").args(["stty", "-F", FILES_PORT, "raw"]))?;
    let mut told = 0;
    for name in names.lines() {
        say(&Line::Start(name.to_owned()))?;
        let began = Instant::now();
        let result = match registry::find(name) {
            Some(test) => run_apart(test),
            None => Err(anyhow::anyhow!("the runner has no such test")),
        };
        // A call that the filter does not list is refused, and the kernel says so: each test tries the list, too.
        let unlisted = kernel_log::unlisted_calls(&mut told);
        let result = result.and_then(|outcome| {
            let unlisted = unlisted?;
            ensure!(unlisted.is_empty(), "ebb's filter does not list what it called: {unlisted:?}");
            Ok(outcome)
        });
        let clean = clean_up().and_then(|()| hand_over(name));
        let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        say(&match (result, clean) {
            (Err(error), _) => Line::Fail(name.to_owned(), ms, format!("{error:#}")),
            (Ok(_), Err(error)) => {
                Line::Fail(name.to_owned(), ms, format!("left behind: {error:#}"))
            }
            (Ok(Outcome::Passed), Ok(())) => Line::Pass(name.to_owned(), ms),
            (Ok(Outcome::Skipped(reason)), Ok(())) => Line::Skip(name.to_owned(), reason),
        })?;
    }
    say(&Line::Done)
}

/// One test, in this process.
pub(crate) fn run_one(name: &str) -> Result<()> {
    let test = registry::find(name).with_context(|| format!("no test {name}"))?;
    Cgroup::create("test.scope")?.adopt(Pid::this())?;
    let result = match (test.run)(&TestContext { name: test.name }) {
        Ok(Outcome::Passed) => "pass".to_owned(),
        Ok(Outcome::Skipped(reason)) => format!("skip {reason}"),
        Err(error) => format!("fail {error:#}"),
    };
    fs::write(RESULT, result).context("cannot leave the result")
}

/// A measurement for the host to show.
pub(crate) fn note(test: &TestContext, text: &str) -> Result<()> {
    say(&Line::Note(test.name.to_owned(), text.to_owned()))
}

/// Where a test may leave files for the host.
pub(crate) fn out_dir(test: &TestContext) -> Result<std::path::PathBuf> {
    let dir = Path::new(OUT).join(test.name);
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    Ok(dir)
}

fn run_apart(test: &Test) -> Result<Outcome> {
    // It may not be there: most tests leave none behind a failure.
    let _ = fs::remove_file(RESULT);
    let mut child =
        Command::new(SELF).args(["test", test.name]).spawn().context("cannot start the test")?;
    let ended = wait::until_some(Duration::from_secs(test.timeout), "the test ended", || {
        child.try_wait().ok().flatten()
    });
    if ended.is_err() {
        child.kill().context("cannot kill the test")?;
        child.wait().context("cannot wait for the test")?;
    }
    let status = ended?;
    let result = fs::read_to_string(RESULT)
        .with_context(|| format!("the test died without a result: {status}"))?;
    match result.split_once(' ').unwrap_or((&result, "")) {
        ("pass", _) => Ok(Outcome::Passed),
        ("skip", reason) => Ok(Outcome::Skipped(reason.to_owned())),
        (_, reason) => Err(anyhow::anyhow!("{reason}")),
    }
}

/// The next test starts on an idle machine, whatever this one did.
fn clean_up() -> Result<()> {
    Cgroup::clear_workloads()?;
    Cgroup::at("test.scope").kill()?;
    fs::write("/proc/sys/vm/drop_caches", "3").context("cannot drop caches")
}

fn hand_over(name: &str) -> Result<()> {
    let dir = Path::new(OUT).join(name);
    if !dir.exists() {
        return Ok(());
    }
    let port = fs::OpenOptions::new().write(true).open(FILES_PORT);
    let port = port.context("cannot open the port for files")?;
    busybox(Command::new("busybox").args(["tar", "-c", "-C", OUT, name]).stdout(port))?;
    fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))
}

fn busybox(command: &mut Command) -> Result<()> {
    let status = command.status().context("cannot start busybox")?;
    ensure!(status.success(), "{command:?} failed: {status}");
    Ok(())
}

fn say(line: &Line) -> Result<()> {
    let port = fs::OpenOptions::new().write(true).open(PORT);
    let mut port = port.context("cannot open the port for verdicts")?;
    // One write: a line is either there or not.
    port.write_all(format!("{line}\n").as_bytes()).context("cannot write to the host")
}
