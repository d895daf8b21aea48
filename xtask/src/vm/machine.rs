//! One virtual machine from power-on to verdicts, whatever happens to it on the way.
//!
//! ```text
//! QEMU ── second serial port ──► lines ──► verdicts
//!      └─ first serial port ──► console.log ──► panic, oops, lockup
//! deadlines: boot until `hello`, each test until its verdict, then the end
//! ```
//! A guest that dies takes down only the test it was in and those it had not reached; both are named.
use super::kernel::Image;
use super::matrix::Machine;
use super::payload::Test;
use super::qemu::{Accel, Boot, Qemu};
use crate::arch::Arch;
use anyhow::{Context, Result};
use ebb_vm_protocol::Line;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// From power-on to `hello`: 4 s alone under TCG, several times that on a loaded host.
const BOOT_DEADLINE: Duration = Duration::from_secs(90);
/// What is said of a guest from which nothing was heard until then.
const NO_BOOT: &str = "did not boot in time";
/// On top of a test's own timeout, which the guest enforces: the host steps in only when the guest itself is stuck.
const GRACE: Duration = Duration::from_secs(45);
/// What a kernel prints when it is broken, and what that is called.
const TROUBLE: [(&str, &str); 7] = [
    ("Kernel panic - not syncing", "the kernel panicked"),
    ("Oops:", "the kernel oopsed"),
    ("BUG: soft lockup", "soft lockup"),
    ("BUG: ", "the kernel reported a bug"),
    ("general protection fault", "general protection fault in the kernel"),
    ("blocked for more than", "a task hangs"),
    ("WARNING: CPU", "the kernel warned"),
];

/// What is booted and what it is asked to do.
#[derive(Debug)]
pub(crate) struct Job {
    /// The kernel's name in the matrix.
    pub(crate) kernel: String,
    pub(crate) arch: Arch,
    pub(crate) image: Image,
    pub(crate) machine: Machine,
    pub(crate) initrd: PathBuf,
    pub(crate) disk: PathBuf,
    pub(crate) tests: Vec<Test>,
    /// Where the logs go.
    pub(crate) dir: PathBuf,
    /// Show notes as they come, for a person who watches.
    pub(crate) live: bool,
}

impl Job {
    /// Unpack what the tests left behind; returns the directory that holds one directory for each test.
    pub(crate) fn unpack_files(&self) -> Result<PathBuf> {
        let dir = self.dir.join("files");
        fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let mut tar = Command::new("tar");
        // One archive after the other, each with an end of its own.
        tar.arg("--ignore-zeros").arg("-xf").arg(self.dir.join("files.tar"));
        crate::sh::run(tar.arg("-C").arg(&dir))?;
        Ok(dir)
    }
}

/// What came of one test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Pass,
    Fail(String),
    Skip(String),
}

/// What came of one machine.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) verdicts: Vec<(String, Verdict)>,
    /// Lines that a test wanted shown.
    pub(crate) notes: Vec<(String, String)>,
    /// What was wrong with the machine itself.
    pub(crate) trouble: Option<String>,
    pub(crate) took: Duration,
}

/// Boot, listen until the end, kill what is left.
///
/// Two things that the emulator does to a guest have it booted once more, and that is told; its first console stays beside the second:
/// - Now and then it loses its timer while it boots and hangs (`rcu: Possible timer handling issue`), before anything of ours has run.
/// - It executes an instruction that is no longer there, see [`ran_stale_code`].
///
/// # Errors
/// Only when QEMU cannot be started or its files cannot be written; a guest that fails is a [`Report`].
pub(crate) fn run(qemu: &Qemu, job: &Job) -> Result<Report> {
    let console = job.dir.join("console.log");
    let report = run_once(qemu, job, &console)?;
    let log = fs::read(&console).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let why = if report.trouble.as_deref() == Some(NO_BOOT) && first_trouble(&console).is_none() {
        NO_BOOT
    } else if qemu.accel == Accel::Tcg && ran_stale_code(&log) {
        "was made to execute what is no longer there"
    } else {
        return Ok(report);
    };
    let kept = job.dir.join("console-first.log");
    fs::rename(&console, &kept).with_context(|| format!("cannot write {}", kept.display()))?;
    println!("vm: {} {why} and is booted once more; see {}", job.kernel, kept.display());
    let again = run_once(qemu, job, &console)?;
    Ok(Report { took: report.took + again.took, ..again })
}

fn run_once(qemu: &Qemu, job: &Job, console: &Path) -> Result<Report> {
    let boot = Boot {
        kernel: &job.image.vmlinuz,
        initrd: Some(&job.initrd),
        disk: Some(&job.disk),
        memory: job.machine.memory,
        cpus: job.machine.cpus,
        cmdline: &job.machine.cmdline,
        devices: &job.machine.devices,
        console,
        files: &job.dir.join("files.tar"),
    };
    let began = Instant::now();
    let mut child = start(&mut qemu.command(&boot), &job.dir)?;
    let lines = listen(&mut child, &job.dir.join("verdicts.log"))?;
    let mut session = Session { live: job.live, ..Session::new(&job.tests, began) };
    session.follow(&lines, console);
    // Powering off takes a moment; a panicked or stuck guest never gets there.
    let patience = Instant::now() + if session.finished { GRACE } else { Duration::ZERO };
    while Instant::now() < patience && child.try_wait().is_ok_and(|status| status.is_none()) {
        std::thread::sleep(Duration::from_millis(50));
    }
    // It may be gone already, and then there is nothing to kill.
    let _ = child.kill();
    child.wait().context("cannot wait for QEMU")?;
    Ok(session.report(console))
}

fn start(command: &mut Command, dir: &Path) -> Result<Child> {
    let errors = dir.join("qemu.log");
    let file =
        fs::File::create(&errors).with_context(|| format!("cannot write {}", errors.display()))?;
    command.stdout(Stdio::piped()).stderr(file).spawn().context("cannot start QEMU")
}

/// Lines of the second serial port, kept in a file too. The channel closes when QEMU is gone.
fn listen(child: &mut Child, log: &Path) -> Result<Receiver<String>> {
    let stdout = child.stdout.take().context("QEMU has no standard output")?;
    let mut log =
        fs::File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            // A full disk loses the copy, not the verdict.
            let _ = std::io::Write::write_all(&mut log, format!("{line}\n").as_bytes());
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    Ok(lines)
}

/// The conversation so far.
struct Session<'a> {
    tests: &'a [Test],
    verdicts: Vec<(String, Verdict)>,
    notes: Vec<(String, String)>,
    running: Option<&'a Test>,
    /// It has booted and said so.
    greeted: bool,
    finished: bool,
    trouble: Option<String>,
    live: bool,
    began: Instant,
    deadline: Instant,
}

impl<'a> Session<'a> {
    fn new(tests: &'a [Test], began: Instant) -> Self {
        Self {
            tests,
            verdicts: Vec::new(),
            notes: Vec::new(),
            running: None,
            greeted: false,
            finished: false,
            trouble: None,
            live: false,
            began,
            deadline: began + BOOT_DEADLINE,
        }
    }

    /// Until the guest is done, dead, or late.
    fn follow(&mut self, lines: &Receiver<String>, console: &Path) {
        while !self.finished {
            match lines.recv_timeout(Duration::from_millis(500)) {
                Ok(line) => {
                    if let Some(line) = Line::parse(&line) {
                        self.take(line);
                    }
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() > self.deadline => {
                    self.trouble = Some(match self.running {
                        Some(test) => format!("hung in {}", test.name),
                        None if !self.greeted => NO_BOOT.to_owned(),
                        None => "hung between tests".to_owned(),
                    });
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    // QEMU exits with 0 after a panic: only `done` means that all went well.
                    let why = first_trouble(console).unwrap_or_else(|| "QEMU exited".to_owned());
                    self.trouble = Some(why);
                    return;
                }
            }
        }
    }

    fn take(&mut self, line: Line) {
        match line {
            Line::Hello(_) => {
                self.greeted = true;
                self.deadline = Instant::now() + GRACE;
            }
            Line::Start(name) => {
                self.running = self.tests.iter().find(|test| test.name == name);
                let timeout = self.running.map_or(0, |test| test.timeout);
                self.deadline = Instant::now() + Duration::from_secs(timeout) + GRACE;
            }
            Line::Note(_, text) if self.live => println!("{text}"),
            Line::Note(name, text) => self.notes.push((name, text)),
            Line::Pass(name, _) => self.conclude(name, Verdict::Pass),
            Line::Fail(name, _, reason) => self.conclude(name, Verdict::Fail(reason)),
            Line::Skip(name, reason) => self.conclude(name, Verdict::Skip(reason)),
            Line::Done => self.finished = true,
        }
    }

    fn conclude(&mut self, name: String, verdict: Verdict) {
        self.running = None;
        self.deadline = Instant::now() + GRACE;
        self.verdicts.push((name, verdict));
    }

    fn report(mut self, console: &Path) -> Report {
        let trouble = self.trouble.take().or_else(|| first_trouble(console));
        let why = trouble.clone().unwrap_or_else(|| "the guest ended".to_owned());
        for test in self.tests {
            if self.verdicts.iter().any(|(name, _)| *name == test.name) {
                continue;
            }
            let was_running = self.running.is_some_and(|running| running.name == test.name);
            let when = if was_running { "during this test" } else { "before this test" };
            self.verdicts.push((test.name.clone(), Verdict::Fail(format!("{why} {when}"))));
        }
        Report { verdicts: self.verdicts, notes: self.notes, trouble, took: self.began.elapsed() }
    }
}

/// The first sign of a broken kernel on its console, with the line that shows it.
fn first_trouble(console: &Path) -> Option<String> {
    let log = fs::read(console).ok()?;
    let log = String::from_utf8_lossy(&log);
    log.lines().find_map(|line| {
        let (_, name) = TROUBLE.iter().find(|(sign, _)| line.contains(sign))?;
        Some(format!("{name} ({})", line.trim()))
    })
}

/// Whether the kernel died of a breakpoint that is not in its memory.
///
/// The kernel patches its code while others run it: first a breakpoint, at last the new instruction, and every CPU is made to look anew in between.
/// QEMU, as far as can be told, drops its translation of such code just before the new byte is stored; another CPU may have the old one translated again in between, and that translation stays.
/// The kernel finds a breakpoint that nobody has set and gives up. Its report shows what memory holds there: not `cc`.
fn ran_stale_code(console: &str) -> bool {
    let Some((_, report)) = console.split_once("Oops: int3:") else { return false };
    let Some(code) = report.lines().find_map(|line| line.split_once("Code: ")) else {
        return false;
    };
    let bytes: Vec<&str> = code.1.split_whitespace().collect();
    // The instruction pointer is behind the breakpoint, at the byte in brackets.
    let next = bytes.iter().position(|byte| byte.starts_with('<'));
    let executed = next.and_then(|next| bytes.get(next.checked_sub(1)?));
    executed.is_some_and(|byte| *byte != "cc")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tests() -> Vec<Test> {
        let test = |name: &str| Test { name: name.into(), machine: "small".into(), timeout: 1 };
        vec![test("first"), test("second"), test("third")]
    }

    #[test]
    fn a_guest_that_dies_fails_what_it_was_in_and_what_it_never_reached() {
        let tests = tests();
        let mut session = Session::new(&tests, Instant::now());
        let (sender, lines) = channel();
        for line in ["@@ hello 6.1", "@@ start first", "@@ pass first 3", "@@ start second"] {
            sender.send(line.to_owned()).unwrap();
        }
        drop(sender);
        let console = tempfile("[ 1.0] Kernel panic - not syncing: Attempted to kill init!");
        session.follow(&lines, &console);
        let report = session.report(&console);
        fs::remove_file(&console).unwrap();
        assert!(report.trouble.unwrap().contains("panicked"));
        assert_eq!(report.verdicts[0], ("first".into(), Verdict::Pass));
        for (at, when) in [(1, "during this test"), (2, "before this test")] {
            assert!(matches!(&report.verdicts[at].1, Verdict::Fail(why) if why.ends_with(when)));
        }
    }

    #[test]
    fn an_oops_is_trouble_even_when_every_test_passed() {
        let console = tempfile("fine\n[ 9.1] BUG: soft lockup - CPU#0 stuck for 61s!\n");
        let report = Session::new(&[], Instant::now()).report(&console);
        fs::remove_file(&console).unwrap();
        assert!(report.trouble.unwrap().starts_with("soft lockup"));
    }

    #[test]
    fn a_guest_that_says_nothing_is_late() {
        let tests = tests();
        let mut session = Session::new(&tests, Instant::now());
        session.deadline = Instant::now();
        let (_sender, lines) = channel();
        session.follow(&lines, Path::new("/nonexistent"));
        assert_eq!(session.trouble.as_deref(), Some(NO_BOOT));
    }

    #[test]
    fn a_guest_that_has_booted_and_then_says_nothing_has_booted() {
        let tests = tests();
        let mut session = Session::new(&tests, Instant::now());
        session.take(Line::parse("@@ hello 6.1").unwrap());
        session.deadline = Instant::now();
        let (_sender, lines) = channel();
        session.follow(&lines, Path::new("/nonexistent"));
        assert_eq!(session.trouble.as_deref(), Some("hung between tests"));
    }

    /// From a guest with 6.18.15 under QEMU 10.0.13, in which tracing of page faults was switched on while another CPU had many.
    #[test]
    fn a_breakpoint_that_is_not_in_memory_is_the_emulators() {
        let report = "[  114.217184] Oops: int3: 0000 [#1] SMP NOPTI\n\
                      [  114.218776] RIP: 0010:exc_page_fault+0xc1/0x1a0\n\
                      [  114.222198] Code: 5b 5d 41 5c 41 5d c3 cc cc cc cc eb <05> e9 77 ff ff ff 65\n\
                      [  114.231672] Kernel panic - not syncing: Fatal exception in interrupt\n";
        assert!(ran_stale_code(report));
        assert!(!ran_stale_code(&report.replace("eb <05>", "cc <05>")), "it is in memory");
        assert!(!ran_stale_code(&report.replace("int3", "0002")), "another oops");
        assert!(!ran_stale_code("[ 1.0] Oops: int3: 0000 [#1]\n"), "nothing is known");
    }

    fn tempfile(text: &str) -> PathBuf {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let n = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ebb-console-{}-{n}", std::process::id()));
        fs::write(&path, text).unwrap();
        path
    }
}
