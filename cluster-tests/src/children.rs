//! Programs that end with this process, however it ends.
//!
//! The kernel kills a child when the *thread* that started it ends. Tests come and go on threads of their own, so one
//! thread that stays until the end starts them all.
use crate::{usage, wait};
use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a program may take to end by itself once it is asked to.
const GRACE: Duration = Duration::from_secs(60);

type Order = (Command, Sender<io::Result<process::Child>>);

static STARTER: LazyLock<Mutex<Sender<Order>>> = LazyLock::new(|| {
    let (orders, ordered) = channel::<Order>();
    std::thread::spawn(move || {
        for (mut command, answer) in ordered {
            // Whoever asked waits for this.
            let _ = answer.send(command.spawn());
        }
    });
    Mutex::new(orders)
});

/// A running program, whose output is in a file.
#[derive(Debug)]
pub(crate) struct Child {
    name: &'static str,
    log: PathBuf,
    process: process::Child,
}

impl Child {
    /// Starts a program; its standard output goes to `NAME.log` in `dir`, its standard error to `NAME.err`.
    pub(crate) fn start(
        name: &'static str,
        program: &Path,
        arguments: &[String],
        dir: &Path,
    ) -> Result<Self> {
        let log = dir.join(format!("{name}.log"));
        let errors = dir.join(format!("{name}.err"));
        let create =
            |path: &Path| File::create(path).with_context(|| format!("cannot create {path:?}"));
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(program).args(arguments).stdin(Stdio::null());
        command.stdout(create(&log)?).stderr(create(&errors)?).current_dir(dir);
        let (answer, answered) = channel();
        let starter = STARTER.lock().unwrap_or_else(PoisonError::into_inner);
        starter.send((command, answer)).context("nobody starts programs any more")?;
        drop(starter);
        let process = answered.recv().context("nobody starts programs any more")?;
        let process = process.context("cannot start setpriv (install the package util-linux)")?;
        Ok(Self { name, log, process })
    }

    /// Fails when the program has ended.
    pub(crate) fn runs(&mut self) -> Result<()> {
        match self.process.try_wait().context("cannot wait for a child")? {
            None => Ok(()),
            Some(status) => bail!("{} ended: {status}; {}", self.name, self.last_words()),
        }
    }

    /// What it has resident, in bytes.
    pub(crate) fn resident(&self) -> Result<u64> {
        usage::resident(self.process.id())
    }

    /// The processor time that it has used so far, in seconds.
    pub(crate) fn processor_time(&self) -> Result<f64> {
        usage::processor_time(self.process.id())
    }

    /// What it has written to its standard output so far.
    pub(crate) fn output(&mut self) -> Result<String> {
        self.runs()?;
        fs::read_to_string(&self.log).context("cannot read a log")
    }

    /// Waits until its output has a line with all of these words.
    pub(crate) fn says(&mut self, patience: Duration, words: &[&str]) -> Result<()> {
        let found = wait::until_some(
            patience,
            || format!("it says {words:?}"),
            || {
                let output = self.output()?;
                let is_said = |line: &str| words.iter().all(|word| line.contains(word));
                Ok(output.lines().any(is_said).then_some(()))
            },
        );
        found.with_context(|| self.last_words())
    }

    /// The end of what it wrote.
    pub(crate) fn last_words(&self) -> String {
        let last = |path: &Path| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let last = lines.iter().skip(lines.len().saturating_sub(5)).copied();
            last.collect::<Vec<_>>().join(" / ")
        };
        format!("{}: {} / {}", self.name, last(&self.log), last(&self.log.with_extension("err")))
    }

    /// Sends a signal to a program that runs.
    pub(crate) fn signal(&mut self, signal: Signal) -> Result<()> {
        self.runs()?;
        // The process is ours and not waited for yet: the number is still its own.
        let pid = Pid::from_raw(i32::try_from(self.process.id())?);
        kill(pid, signal).with_context(|| format!("cannot send {signal} to {}", self.name))
    }

    /// Asks the program to end, and waits for it.
    pub(crate) fn end(&mut self) -> Result<ExitStatus> {
        if let Some(status) = self.process.try_wait().context("cannot wait for a child")? {
            return Ok(status);
        }
        self.signal(Signal::SIGTERM)?;
        let begun = Instant::now();
        while begun.elapsed() < GRACE {
            if let Some(status) = self.process.try_wait().context("cannot wait for a child")? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("{} did not end within {} s of SIGTERM", self.name, GRACE.as_secs())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // What ended before is fine, and there is nobody to tell.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
