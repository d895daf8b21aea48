//! The two collectors, each as the program that operators run.
use crate::api::Api;
use crate::children::Child;
use crate::plane::{Plane, User, free_ports};
use crate::proxy::Proxy;
use crate::wait;
use anyhow::{Context, Result, ensure};
use ebb_tests::program;
use nix::sys::signal::Signal;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

/// How many terminated pods may stay.
pub const TERMINATED: usize = 4;
/// The option of one that needs no Lease.
pub const ALONE: &str = "--no-leader-election";
/// Until it acts: it lists everything first.
const STARTS_IN: Duration = Duration::from_secs(300);
const HIGH_LIMITS: [&str; 2] = ["--kube-api-qps=5000", "--kube-api-burst=5000"];

/// Which collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collector {
    /// kube-controller-manager with its garbage collector and its pod collector, and nothing else.
    Kcm,
    /// `ebb controller --enforce`.
    Ebb,
}

/// How many requests a second a measured collector may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limits {
    /// Each one's own: kube-controller-manager's fixed rate, and ebb's window.
    Defaults,
    /// So many for both.
    Equal(u32),
}

/// A collector that runs.
#[derive(Debug)]
pub struct Running {
    collector: Collector,
    child: Child,
    /// Where ebb shows its metrics, on this host.
    metrics: Option<u16>,
}

impl Running {
    /// Starts a collector, and waits until it collects.
    ///
    /// # Errors
    /// When it cannot be started, ends, or collects nothing in time.
    pub fn start(collector: Collector, plane: &Plane, assets: &Path) -> Result<Self> {
        let kubeconfig = plane.kubeconfig(User::Admin)?;
        let child = match collector {
            Collector::Kcm => {
                let program = assets.join("kube-controller-manager");
                let mut arguments = kcm(&program, &kubeconfig, plane.dir())?;
                arguments.extend([
                    "--controllers=garbagecollector,podgc".into(),
                    format!("--terminated-pod-gc-threshold={TERMINATED}"),
                ]);
                arguments.extend(HIGH_LIMITS.map(str::to_owned));
                Child::start("kube-controller-manager", &program, &arguments, plane.dir())?
            }
            Collector::Ebb => {
                let threshold = format!("--terminated-pod-gc-threshold={TERMINATED}");
                let arguments = ["--enforce", ALONE, &threshold];
                ebb("ebb", &kubeconfig, &arguments, program()?, plane.dir())?
            }
        };
        let mut running = Self { collector, child, metrics: None };
        running.collects(&plane.api(User::Admin)?)?;
        Ok(running)
    }

    /// Starts a collector of owner references alone, as an optimised program, to be measured; whether it collects is for the caller to see.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn measured(
        collector: Collector,
        limits: Limits,
        plane: &Plane,
        assets: &Path,
    ) -> Result<Self> {
        let kubeconfig = plane.kubeconfig(User::Admin)?;
        let rate = match limits {
            Limits::Defaults => None,
            Limits::Equal(rate) => Some(rate),
        };
        let child = match collector {
            Collector::Kcm => {
                let program = assets.join("kube-controller-manager");
                let mut arguments = kcm(&program, &kubeconfig, plane.dir())?;
                arguments.push("--controllers=garbagecollector".into());
                if let Some(rate) = rate {
                    // So much at once as ebb allows itself.
                    let burst = (rate / 10).max(1);
                    arguments.push(format!("--kube-api-qps={rate}"));
                    arguments.push(format!("--kube-api-burst={burst}"));
                }
                Child::start("kube-controller-manager", &program, &arguments, plane.dir())?
            }
            Collector::Ebb => {
                let mut more = vec!["--enforce", ALONE, "--collectors=owner-references"];
                let rate = rate.map(|rate| format!("--max-qps={rate}"));
                more.extend(rate.as_deref());
                ebb("ebb", &kubeconfig, &more, optimised()?, plane.dir())?
            }
        };
        Ok(Self { collector, child, metrics: None })
    }

    /// Builds what [`Running::measured`] starts.
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn build() -> Result<()> {
        optimised().map(drop)
    }

    /// Fails when it has ended.
    ///
    /// # Errors
    /// With what it wrote last.
    pub fn runs(&mut self) -> Result<()> {
        self.child.runs()
    }

    /// What it has resident, in bytes.
    ///
    /// # Errors
    /// When it has ended.
    pub fn resident(&self) -> Result<u64> {
        self.child.resident()
    }

    /// The processor time that it has used so far, in seconds.
    ///
    /// # Errors
    /// When it has ended.
    pub fn processor_time(&self) -> Result<f64> {
        self.child.processor_time()
    }

    /// Starts `ebb controller` as a user who may only read, in observe mode.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn observe(plane: &Plane) -> Result<Self> {
        let kubeconfig = plane.kubeconfig(User::Reader)?;
        let child = ebb("ebb", &kubeconfig, &[ALONE], program()?, plane.dir())?;
        Ok(Self { collector: Collector::Ebb, child, metrics: None })
    }

    /// Starts `ebb controller --enforce` with more options, and waits until it collects.
    ///
    /// # Errors
    /// When it cannot be started, ends, or collects nothing in time.
    pub fn with(plane: &Plane, more: &[&str]) -> Result<Self> {
        let kubeconfig = plane.kubeconfig(User::Admin)?;
        let options = [&["--enforce", ALONE], more].concat();
        let child = ebb("ebb", &kubeconfig, &options, program()?, plane.dir())?;
        let mut running = Self { collector: Collector::Ebb, child, metrics: None };
        running.collects(&plane.api(User::Admin)?)?;
        Ok(running)
    }

    /// Starts `ebb controller --enforce` by way of a proxy, with more options.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn through(
        name: &'static str,
        plane: &Plane,
        proxy: &Proxy,
        more: &[&str],
    ) -> Result<Self> {
        let kubeconfig = plane.kubeconfig_through(name, proxy.url())?;
        let [port] = free_ports()?;
        let listen = format!("--listen=127.0.0.1:{port}");
        let options = [&["--enforce", &listen], more].concat();
        let child = ebb(name, &kubeconfig, &options, program()?, plane.dir())?;
        Ok(Self { collector: Collector::Ebb, child, metrics: Some(port) })
    }

    /// How many of its requests are under way, as its metrics say.
    ///
    /// # Errors
    /// When it was not started by [`Running::through`], or does not say.
    pub fn requests_in_flight(&self) -> Result<usize> {
        const NAME: &str = "ebb_controller_requests_in_flight ";
        let port = self.metrics.context("nobody listens for who wants its metrics")?;
        let mut answer = ureq::get(format!("http://127.0.0.1:{port}/metrics")).call()?;
        let text = answer.body_mut().read_to_string()?;
        let line = text.lines().find_map(|line| line.strip_prefix(NAME));
        line.with_context(|| format!("no {NAME}in its metrics"))?.parse().context("no number")
    }

    /// Stops it without its knowledge, until it is resumed.
    ///
    /// # Errors
    /// When it has ended.
    pub fn pause(&mut self) -> Result<()> {
        self.child.signal(Signal::SIGSTOP)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// When it has ended.
    pub fn resume(&mut self) -> Result<()> {
        self.child.signal(Signal::SIGCONT)
    }

    /// Waits until its output has a line with all of these words.
    ///
    /// # Errors
    /// When it has ended, or has not said so in time.
    pub fn says(&mut self, patience: Duration, words: &[&str]) -> Result<()> {
        self.child.says(patience, words)
    }

    /// Which one runs.
    #[must_use]
    pub fn collector(&self) -> Collector {
        self.collector
    }

    /// What it has written to its standard output so far.
    ///
    /// # Errors
    /// When it has ended, or its output cannot be read.
    pub fn output(&mut self) -> Result<String> {
        self.child.output()
    }

    /// The end of what it complained of.
    #[must_use]
    pub fn last_words(&self) -> String {
        self.child.last_words()
    }

    /// Asks it to end.
    ///
    /// # Errors
    /// When it does not end in time, or ebb does not end well.
    pub fn end(mut self) -> Result<()> {
        let status = self.child.end()?;
        let is_well = status.success() || self.collector == Collector::Kcm;
        ensure!(is_well, "ebb controller ended with {status}: {}", self.child.last_words());
        Ok(())
    }

    /// Waits until an object whose owner never was goes, as it does as soon as a collector is at work.
    ///
    /// # Errors
    /// When the collector ends, or does not collect it in time.
    pub fn collects(&mut self, api: &Api) -> Result<()> {
        let path = "/api/v1/namespaces/default/configmaps";
        let garbage = api.create_garbage("default", path, json!({}))?;
        let child = &mut self.child;
        let collector = self.collector;
        let mut last = String::new();
        let found = wait::until_some(
            STARTS_IN,
            || format!("{collector:?} collects"),
            || {
                last = child.last_words();
                child.runs()?;
                Ok(api.is_gone(&garbage)?.then_some(()))
            },
        );
        found.with_context(|| last)
    }
}

fn kcm(program: &Path, kubeconfig: &Path, dir: &Path) -> Result<Vec<String>> {
    let [port] = free_ports()?;
    let mut arguments = vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        "--leader-elect=false".into(),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={port}"),
        format!("--cert-dir={}", dir.join("kcm").display()),
        "--v=2".into(),
    ];
    // Those before 1.24 have a second port, of which two on one host are one too many.
    let help = Command::new(program).arg("--help").output().context("cannot start the kcm")?;
    if String::from_utf8_lossy(&help.stdout).contains("--port int") {
        arguments.push("--port=0".into());
    }
    Ok(arguments)
}

fn ebb(
    name: &'static str,
    kubeconfig: &Path,
    more: &[&str],
    program: &Path,
    dir: &Path,
) -> Result<Child> {
    let mut arguments = vec![
        "controller".into(),
        format!("--kubeconfig={}", kubeconfig.display()),
        "--node-quarantine=2s".into(),
        "--output=json".into(),
    ];
    arguments.extend(more.iter().map(|&word| word.to_owned()));
    Child::start(name, program, &arguments, dir)
}

type Built = LazyLock<Result<PathBuf, String>>;

/// ebb as this workspace builds it, each way once.
static DEBUG: Built = LazyLock::new(|| program::build(false));
static RELEASE: Built = LazyLock::new(|| program::build(true));

/// ebb as users run it, built once.
pub(crate) fn optimised() -> Result<&'static Path> {
    path_of(&RELEASE)
}

/// ebb as this workspace builds it for tests, built once.
///
/// # Errors
/// When it cannot be built.
pub fn program() -> Result<&'static Path> {
    path_of(&DEBUG)
}

fn path_of(built: &'static Built) -> Result<&'static Path> {
    built.as_deref().map_err(|error| anyhow::anyhow!("cannot build ebb: {error}"))
}
