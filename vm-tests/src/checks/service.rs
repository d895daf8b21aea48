//! ebb as systemd's service, by the unit that is shipped: ready, hardened, reclaiming, and started again when it hangs.
use crate::agent::{EBB, is};
use crate::init::SELF;
use crate::registry::{Context as TestContext, Outcome};
use crate::runner;
use crate::wait;
use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const UNIT: &str = include_str!("../../../deploy/systemd/ebb.service");

/// The guest's runner is no workload, whatever the unit's defaults say.
const CONFIG: &str = "\
evictionHard:
  memory.available: \"20%\"
ebb:
  enforce: true
  protected: [\"system.slice/guest.service\"]
";

/// Records as JSON, and a watchdog that the test need not wait a minute for.
const DROP_IN: &str = "\
[Service]
ExecStart=
ExecStart=/usr/bin/ebb run --output json --config /etc/ebb/ebb.yaml --incidents /var/lib/ebb/incidents --api /run/ebb/api.sock
WatchdogSec=20s
";

const SOON: Duration = Duration::from_secs(60);

/// The watchdog's 20 s, then systemd's own way to a new process, emulated.
const STARTED_AGAIN_WITHIN: Duration = Duration::from_secs(120);

pub(crate) fn shipped_unit(test: &TestContext) -> Result<Outcome> {
    install()?;
    // Returns once ebb has said that it is ready: the unit is `Type=notify`.
    systemctl(&["start", "ebb.service"])?;
    ensure!(property("ActiveState")? == "active", "{}", log());
    let status = property("StatusText")?;
    ensure!(status.starts_with("enforcing, "), "its status is {status:?}");
    // Nothing orders its word to systemd and what it has written to the journal.
    let started = wait::until_some(SOON, "its start is on record", || {
        records().into_iter().find(|record| is(record, "started"))
    })
    .with_context(log)?;
    let missing: Vec<&str> =
        started["unavailable"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    // What is not there for want of a kernel feature may be missing; what the unit would have to allow may not.
    let refused = |what: &&&str| {
        ["mlockall", "oom_score_adj", "nice", "open files", "denied", "permitted", "journal"]
            .iter()
            .any(|word| what.contains(word))
    };
    let refused: Vec<_> = missing.iter().filter(refused).collect();
    ensure!(refused.is_empty(), "the unit withholds what ebb needs: {refused:?}");
    reclaims()?;
    runner::note(test, &in_the_journal()?)?;
    let status = output("/usr/bin/ebb", &["status"])?;
    ensure!(status.contains(", enforcing, "), "it says of itself: {status}");
    let pid = main_pid()?;
    kill(pid, Signal::SIGSTOP).context("cannot stop ebb")?;
    wait::until(STARTED_AGAIN_WITHIN, "systemd has started ebb again", || {
        main_pid().is_ok_and(|now| now != pid)
            && property("ActiveState").is_ok_and(|state| state == "active")
    })?;
    ensure!(property("NRestarts")? == "1", "{} restarts", property("NRestarts")?);
    systemctl(&["stop", "ebb.service"])?;
    ensure!(property("Result")? == "success", "stopping it ended with {}", property("Result")?);
    let exposure = output("/usr/bin/systemd-analyze", &["security", "--no-pager", "ebb.service"])?;
    let overall = exposure.lines().last().unwrap_or_default().trim();
    runner::note(test, overall)?;
    Ok(Outcome::Passed)
}

/// A leak in a service of its own is killed by the hardened ebb, and systemd hears of it.
fn reclaims() -> Result<()> {
    let cgroup = "/sys/fs/cgroup/work.slice/hog.service";
    let hog = ["--quiet", "--unit=hog.service", "--slice=work.slice", "--", SELF, "act", cgroup];
    let hog: Vec<&str> = hog.into_iter().chain(["hog", "300"]).collect();
    output("/usr/bin/systemd-run", &hog)?;
    wait::until(SOON, "ebb has killed the leak", || {
        records().iter().any(|record| {
            is(record, "evicted")
                && record["method"] == "cgroupKill"
                && record["workload"]["name"].as_str().is_some_and(|n| n.ends_with("hog.service"))
        })
    })
    .with_context(log)?;
    wait::until(SOON, "the leak is gone", || {
        !Path::new(cgroup).exists()
            || fs::read_to_string(format!("{cgroup}/cgroup.events"))
                .is_ok_and(|events| events.contains("populated 0"))
    })?;
    let victims: Vec<Value> =
        records().into_iter().filter(|record| is(record, "evicted")).collect();
    ensure!(
        victims.iter().all(|v| v["workload"]["name"]
            .as_str()
            .is_some_and(|name| name.ends_with("hog.service"))),
        "ebb acted on others too: {victims:#?}"
    );
    Ok(())
}

/// The kill is found by the message id of evictions that the operating guide names, with its fields; returns what it says.
fn in_the_journal() -> Result<String> {
    let guide = include_str!("../../../docs/operating.md");
    let id = guide
        .lines()
        .find_map(|line| line.strip_suffix("` | a workload was terminated or killed |"));
    let id =
        id.and_then(|line| line.strip_prefix("| `")).context("the guide names no MESSAGE_ID")?;
    let query = format!("MESSAGE_ID={id}");
    let words = ["--output=json", "--all", "--no-pager", &query];
    // What is written for programs comes another way than the lines.
    let entry = wait::until_some(SOON, "an entry has the id", || {
        let found = output("/usr/bin/journalctl", &words).ok()?;
        serde_json::from_str::<Value>(found.lines().next()?).ok()
    })?;
    for (field, value) in [
        ("_SYSTEMD_UNIT", "ebb.service"),
        ("_TRANSPORT", "journal"),
        ("SYSLOG_IDENTIFIER", "ebb"),
        ("PRIORITY", "4"),
        ("EBB_EVENT", "evicted"),
        ("EBB_METHOD", "cgroupKill"),
        ("EBB_SIGNAL", "memory.available"),
        ("EBB_WORKLOAD", "/work.slice/hog.service"),
        ("EBB_CGROUP", "/work.slice/hog.service"),
    ] {
        ensure!(entry[field] == value, "{field} is not {value}: {entry:#}");
    }
    let started =
        output("/usr/bin/journalctl", &["EBB_EVENT=started", "--output=json", "--no-pager"])?;
    ensure!(started.lines().count() == 1, "{} entries of one start", started.lines().count());
    let episode = entry["EBB_EPISODE"].as_str().context("the kill belongs to no episode")?;
    let incident = format!("/var/lib/ebb/incidents/{episode}.json");
    wait::until(SOON, "the episode has its record", || Path::new(&incident).exists())?;
    Ok(format!("{episode}: {}", entry["MESSAGE"].as_str().unwrap_or_default()))
}

fn install() -> Result<()> {
    for (path, text) in [
        ("/etc/systemd/system/ebb.service", UNIT),
        ("/etc/systemd/system/ebb.service.d/test.conf", DROP_IN),
        ("/etc/ebb/ebb.yaml", CONFIG),
    ] {
        if let Some(dir) = Path::new(path).parent() {
            fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        }
        fs::write(path, text).with_context(|| format!("cannot write {path}"))?;
    }
    fs::copy(EBB, "/usr/bin/ebb").context("cannot install ebb")?;
    systemctl(&["daemon-reload"])
}

/// What ebb has written to the journal so far, from its first start on.
fn records() -> Vec<Value> {
    log().lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn log() -> String {
    output("/usr/bin/journalctl", &["--unit=ebb.service", "--output=cat", "--no-pager"])
        .unwrap_or_else(|error| format!("no journal: {error:#}"))
}

fn main_pid() -> Result<Pid> {
    let pid = property("MainPID")?;
    let pid = pid.parse().with_context(|| format!("no process id: {pid:?}"))?;
    ensure!(pid > 0, "ebb has no process");
    Ok(Pid::from_raw(pid))
}

fn property(name: &str) -> Result<String> {
    let text =
        output("/usr/bin/systemctl", &["show", "--value", "--property", name, "ebb.service"])?;
    Ok(text.trim().to_owned())
}

fn systemctl(words: &[&str]) -> Result<()> {
    output("/usr/bin/systemctl", words).map(drop).with_context(log)
}

fn output(program: &str, words: &[&str]) -> Result<String> {
    let out = Command::new(program)
        .args(words)
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{program} {} failed: {said}", words.join(" "));
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}
