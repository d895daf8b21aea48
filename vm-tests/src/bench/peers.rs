//! The daemons that race: how each is started at its most aggressive legal setting, and how it says that it is ready.
use crate::cgroup::Cgroup;
use crate::init::SELF;
use crate::wait;
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Percent of `MemTotal` that every contender is told to keep available.
pub(crate) const THRESHOLD: u64 = 10;
const READY: Duration = Duration::from_secs(60);
const LOG: &str = "/run/contender.log";

/// One contender.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    /// What its settings are, for the table.
    pub(crate) settings: &'static str,
    /// What starts it.
    command: &'static [&'static str],
    /// What it prints when it watches.
    ready: &'static str,
}

/// ebb itself.
pub(crate) const EBB: Peer = Peer {
    name: "ebb",
    settings: "evictionHard memory.available<10%, measured as MemAvailable",
    command: &["/payload/ebb", "run", "--enforce", "--config", "/run/ebb.yaml", "--output", "json"],
    ready: "started",
};

/// Where [`OBSERVED`] can be watched.
pub(super) const API: &str = "/run/ebb-api.sock";
pub(super) const METRICS: &str = "127.0.0.1:9808";

/// ebb that can be watched.
pub(crate) const OBSERVED: Peer = Peer {
    name: EBB.name,
    settings: EBB.settings,
    command: &[
        "/payload/ebb",
        "run",
        "--enforce",
        "--config",
        "/run/ebb.yaml",
        "--output",
        "json",
        "--api",
        API,
        "--listen",
        METRICS,
    ],
    ready: EBB.ready,
};

/// Polls MemAvailable, sleeping between 0.1 and 1 s by its own forecast; SIGKILL at once.
pub(crate) const EARLYOOM: Peer = Peer {
    name: "earlyoom",
    settings: "-m 10,10 -s 100,100 -r 0 -p (SIGKILL at 10 % without SIGTERM before; its poll interval of 0.1 to 1 s cannot be set)",
    command: &["/usr/bin/earlyoom", "-m", "10,10", "-s", "100,100", "-r", "0", "-p"],
    ready: "SIGKILL when mem avail",
};

/// Polls MemAvailable at its smallest interval; SIGKILL at once.
pub(crate) const NOHANG: Peer = Peer {
    name: "nohang",
    settings: "soft and hard threshold 10 %, min_sleep = max_sleep = 0.01, post_zombie_delay = 0 (the smallest legal values), the rest as shipped",
    command: &["/usr/bin/python3", "/usr/sbin/nohang", "--monitor", "--config", "/run/nohang.conf"],
    ready: "Monitoring has started",
};

/// Watches pressure stall information of a slice, never available memory; kills the cgroup below that reclaims most.
/// A service of the systemd that runs the guest: its log is followed in its place.
pub(crate) const OOMD: Peer = Peer {
    name: "systemd-oomd",
    settings: "ManagedOOMMemoryPressure=kill on the slice, DefaultMemoryPressureLimit=1% (with 0.01 % it ends innocents for the pressure of the run before), duration 1 s (the smallest legal value); it has no threshold on available memory",
    command: &["/usr/bin/journalctl", "--unit=systemd-oomd.service", "--follow"],
    ready: "Started systemd-oomd.service",
};

/// A started contender.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    cgroup: Cgroup,
}

impl Peer {
    /// Start it in a service cgroup of its own and wait until it says that it watches.
    pub(crate) fn start(&self) -> Result<Running> {
        self.prepare()?;
        let cgroup = Cgroup::create("system.slice/ebb.service")?;
        let log = File::create(LOG).context("cannot create the contender's log")?;
        let errors = log.try_clone().context("cannot share the contender's log")?;
        let child = Command::new(SELF)
            .arg("exec-in")
            .arg(cgroup.path())
            .args(self.command)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .with_context(|| format!("cannot start {}", self.name))?;
        let mut running = Running { child, cgroup };
        wait::until_some(READY, "the contender watches", || {
            let said = fs::read_to_string(LOG).unwrap_or_default();
            let ended = running.child.try_wait().ok().flatten();
            match ended {
                Some(status) => Some(Err(anyhow::anyhow!("it ended with {status}: {said}"))),
                None => said.contains(self.ready).then_some(Ok(())),
            }
        })
        .and_then(|ready| ready)
        .with_context(|| {
            let said = fs::read_to_string(LOG).unwrap_or_default();
            format!("{} does not come up; it said: {said}", self.name)
        })?;
        Ok(running)
    }
}

impl Peer {
    fn prepare(&self) -> Result<()> {
        if self.name == EBB.name {
            fs::write("/run/ebb.yaml", include_str!("ebb.yaml"))
                .context("cannot write ebb.yaml")?;
        }
        if self.name == NOHANG.name {
            fs::write("/run/nohang.conf", nohang_conf()?).context("cannot write nohang.conf")?;
        }
        if self.name == OOMD.name {
            systemctl(&["start", "work.slice", "dbus.service", "systemd-oomd.service"])?;
        }
        Ok(())
    }

    /// Who goes by averages must not be held to those of the run before: a new slice has none.
    pub(crate) fn forget_the_last_run(&self) -> Result<()> {
        if self.name == OOMD.name {
            systemctl(&["stop", "work.slice"])?;
            systemctl(&["start", "work.slice"])?;
        }
        Ok(())
    }
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where it logs.
    pub(crate) fn log() -> PathBuf {
        PathBuf::from(LOG)
    }

    /// End it, and say so if it had ended before.
    pub(crate) fn stop(mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait().context("cannot look at the contender")? {
            bail!("the contender had ended with {status}");
        }
        self.cgroup.kill()?;
        self.child.wait().context("cannot wait for the contender")?;
        Ok(())
    }
}

fn systemctl(words: &[&str]) -> Result<()> {
    let status = Command::new("/usr/bin/systemctl").args(words).status();
    let status = status.context("cannot start systemctl")?;
    ensure!(status.success(), "systemctl {} failed: {status}", words.join(" "));
    Ok(())
}

/// The shipped configuration with the keys of the race replaced: nohang wants every key to be there.
fn nohang_conf() -> Result<String> {
    let shipped = fs::read_to_string("/usr/share/nohang/nohang.conf")
        .context("cannot read nohang's shipped configuration")?;
    let ours = [
        ("soft_threshold_min_mem", "10 %"),
        ("hard_threshold_min_mem", "10 %"),
        ("min_sleep", "0.01"),
        ("max_sleep", "0.01"),
        ("post_zombie_delay", "0"),
    ];
    let set = |line: &str| {
        let key = line.split('=').next().unwrap_or_default().trim();
        match ours.iter().find(|(ours, _)| *ours == key) {
            Some((key, value)) => format!("{key} = {value}\n"),
            None => format!("{line}\n"),
        }
    };
    Ok(shipped.lines().map(set).collect())
}
