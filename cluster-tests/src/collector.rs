//! The two collectors, each as the program that operators run.
use crate::api::Api;
use crate::children::Child;
use crate::plane::{Plane, User, free_ports};
use crate::proxy::Proxy;
use crate::wait;
use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// How many terminated pods may stay.
pub const TERMINATED: usize = 4;
/// The option of one that needs no Lease.
pub const ALONE: &str = "--no-leader-election";
/// Until it acts: it lists everything first.
const STARTS_IN: Duration = Duration::from_secs(90);

/// Which collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collector {
    /// kube-controller-manager with its garbage collector and its pod collector, and nothing else.
    Kcm,
    /// `ebb controller --enforce`.
    Ebb,
}

/// A collector that runs.
#[derive(Debug)]
pub struct Running {
    collector: Collector,
    child: Child,
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
                let arguments = kcm(&program, &kubeconfig, plane.dir())?;
                Child::start("kube-controller-manager", &program, &arguments, plane.dir())?
            }
            Collector::Ebb => {
                let threshold = format!("--terminated-pod-gc-threshold={TERMINATED}");
                ebb("ebb", &kubeconfig, &["--enforce", ALONE, &threshold], plane.dir())?
            }
        };
        let mut running = Self { collector, child };
        running.collects(&plane.api(User::Admin)?)?;
        Ok(running)
    }

    /// Starts `ebb controller` as a user who may only read, in observe mode.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn observe(plane: &Plane) -> Result<Self> {
        let kubeconfig = plane.kubeconfig(User::Reader)?;
        let child = ebb("ebb", &kubeconfig, &[ALONE], plane.dir())?;
        Ok(Self { collector: Collector::Ebb, child })
    }

    /// Starts `ebb controller --enforce` with more options, and waits until it collects.
    ///
    /// # Errors
    /// When it cannot be started, ends, or collects nothing in time.
    pub fn with(plane: &Plane, more: &[&str]) -> Result<Self> {
        let kubeconfig = plane.kubeconfig(User::Admin)?;
        let options = [&["--enforce", ALONE], more].concat();
        let child = ebb("ebb", &kubeconfig, &options, plane.dir())?;
        let mut running = Self { collector: Collector::Ebb, child };
        running.collects(&plane.api(User::Admin)?)?;
        Ok(running)
    }

    /// Starts `ebb controller --enforce` by way of a proxy, with more options, for owner references only.
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
        let options = [&["--enforce", "--collectors=owner-references"], more].concat();
        let child = ebb(name, &kubeconfig, &options, plane.dir())?;
        Ok(Self { collector: Collector::Ebb, child })
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
        let child = &mut self.child;
        let log = child.log().to_owned();
        let found = wait::until_some(
            patience,
            || format!("it says {words:?}"),
            || {
                child.runs()?;
                let output = std::fs::read_to_string(&log).context("cannot read a log")?;
                let is_said = |line: &str| words.iter().all(|word| line.contains(word));
                Ok(output.lines().any(is_said).then_some(()))
            },
        );
        found.with_context(|| child.last_words())
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
        self.child.runs()?;
        std::fs::read_to_string(self.child.log()).context("cannot read a log")
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
        let garbage = json!({"metadata": {"generateName": "garbage-", "ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "never"}]}});
        let made = api.create(path, &garbage)?;
        let path = format!("{path}/{}", made["metadata"]["name"].as_str().unwrap_or_default());
        let child = &mut self.child;
        let collector = self.collector;
        let mut last = String::new();
        let found = wait::until_some(
            STARTS_IN,
            || format!("{collector:?} collects"),
            || {
                last = child.last_words();
                child.runs()?;
                let (status, _) = api.ask("GET", &path, None)?;
                Ok((status == 404).then_some(()))
            },
        );
        found.with_context(|| last)
    }
}

fn kcm(program: &Path, kubeconfig: &Path, dir: &Path) -> Result<Vec<String>> {
    let [port] = free_ports()?;
    let mut arguments = vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        "--controllers=garbagecollector,podgc".into(),
        "--leader-elect=false".into(),
        "--kube-api-qps=5000".into(),
        "--kube-api-burst=5000".into(),
        format!("--terminated-pod-gc-threshold={TERMINATED}"),
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

fn ebb(name: &'static str, kubeconfig: &Path, more: &[&str], dir: &Path) -> Result<Child> {
    let mut arguments = vec![
        "controller".into(),
        format!("--kubeconfig={}", kubeconfig.display()),
        "--node-quarantine=2s".into(),
        "--output=json".into(),
    ];
    arguments.extend(more.iter().map(|&word| word.to_owned()));
    Child::start(name, program()?, &arguments, dir)
}

/// ebb as this workspace builds it, built once.
///
/// # Errors
/// When it cannot be built.
pub fn program() -> Result<&'static Path> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let built = escargot::CargoBuild::new().package("ebb").bin("ebb").run();
        built.map(|built| built.path().to_owned()).map_err(|error| error.to_string())
    });
    built.as_deref().map_err(|error| anyhow::anyhow!("cannot build ebb: {error}"))
}
