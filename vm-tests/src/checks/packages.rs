//! ebb as Debian's package, on a machine with the real dpkg, apt and systemd, as a new user has it: installed and observing, told to enforce, a first incident and all that shows it, upgraded, removed, purged.
//!
//! The machine's own packages are unpacked and dpkg knows none of them. ebb's needs none, so apt installs it all the same, without lists and without a network.
use crate::init::SELF;
use crate::registry::{Context as TestContext, Outcome};
use crate::runner::{self, out_dir};
use crate::wait;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const FIRST: &str = "/payload/ebb-1.deb";
const SECOND: &str = "/payload/ebb-2.deb";
const CONFIGURATION: &str = "/etc/ebb/ebb.yaml";
const LEAK: &str = "/sys/fs/cgroup/work.slice/leak.service";
const LEAK_NAME: &str = "/work.slice/leak.service";
const SOON: Duration = Duration::from_secs(60);

/// A leak of this size, in MiB, is below the threshold of [`changed`] and far from the machine's end.
const SIZE: &str = "600";

/// The leak of docs/first-incident.md, of 10 MiB a second: there is time to see it coming.
const SLOW_LEAK: &str = "while sleep 0.1; do head -c 1M /dev/zero; done | tail";

/// What docs/operating.md has for metrics of the service; a test holds the two together.
const METRICS: &str = "\
[Service]
ExecStart=
ExecStart=/usr/bin/ebb run --config /etc/ebb/ebb.yaml --incidents /var/lib/ebb/incidents --api /run/ebb/api.sock --listen 127.0.0.1:9808
PrivateNetwork=no
RestrictAddressFamilies=AF_INET
IPAddressAllow=localhost
";
const METRICS_AT: &str = "127.0.0.1:9808";
const DROP_INS: &str = "/etc/systemd/system/ebb.service.d";
const METRICS_DROP_IN: &str = "/etc/systemd/system/ebb.service.d/metrics.conf";

/// As an operator would change it: a threshold, and whether ebb acts. The runner is no workload.
fn changed(enforce: bool) -> String {
    format!(
        "evictionHard:\n  memory.available: 800Mi\nebb:\n  mode: standalone\n  enforce: {enforce}\n  \
         protected: [\"system.slice/guest.service\"]\n"
    )
}

pub(crate) fn a_life(test: &TestContext) -> Result<Outcome> {
    prepare()?;
    let before = Left::look()?;
    install(test)?;
    observes(test)?;
    enforces(test)?;
    first_incident(test)?;
    upgrade(test)?;
    remove()?;
    output("dpkg", &["--purge", "ebb"])?;
    let left = Left::look()?.without(&before);
    ensure!(left.is_empty(), "purging it left {left:?}");
    Ok(Outcome::Passed)
}

/// What the machine lacks because nothing was installed on it: dpkg's book, and a home for temporary files.
fn prepare() -> Result<()> {
    for directory in ["/var/lib/dpkg/info", "/var/lib/dpkg/updates", "/var/log/apt"] {
        fs::create_dir_all(directory).with_context(|| format!("cannot create {directory}"))?;
    }
    for file in ["/var/lib/dpkg/status", "/var/lib/dpkg/available"] {
        fs::write(file, "").with_context(|| format!("cannot write {file}"))?;
    }
    Ok(())
}

/// apt installs it; it is enabled, runs, is ready and only observes.
fn install(test: &TestContext) -> Result<()> {
    output("apt-get", &["install", "--yes", FIRST])?;
    ensure!(installed()? == "installed 0.1.0-1", "dpkg says {}", installed()?);
    ensure!(output("systemctl", &["is-enabled", "ebb.service"])?.trim() == "enabled");
    wait::until(SOON, "the service is ready", || {
        property("ActiveState").is_ok_and(|state| state == "active")
    })
    .with_context(journal)?;
    let status = output("systemctl", &["status", "--no-pager", "--lines=0", "ebb.service"])?;
    ensure!(status.contains("Status: \"dry run, "), "it does not observe: {status}");
    runner::note(test, &status)?;
    let own = output("ebb", &["status"])?;
    ensure!(own.contains(", dry run, "), "it does not say that it observes: {own}");
    output("ebb", &["check", "--config", CONFIGURATION])?;
    for file in ["man/man1/ebb-run.1.gz", "ebb/presets/server.yaml", "doc/ebb/operating.md"] {
        ensure!(Path::new("/usr/share").join(file).exists(), "there is no {file}");
    }
    Ok(())
}

/// A leak is told in the journal, and lives.
fn observes(test: &TestContext) -> Result<()> {
    fs::write(CONFIGURATION, changed(false)).context("cannot change the configuration")?;
    output("systemctl", &["reload", "ebb.service"]).with_context(journal)?;
    start_leak(&[SELF, "act", LEAK, "idle", SIZE])?;
    let told = told("dryRun")?;
    runner::note(test, &told)?;
    ensure!(is_running()?, "the leak is gone although ebb only observes");
    Ok(())
}

fn start_leak(command: &[&str]) -> Result<()> {
    let unit = ["--quiet", "--unit=leak", "--slice=work"];
    output("systemd-run", &[&unit, command].concat()).map(drop)
}

/// Told to enforce, ebb evicts the same leak.
fn enforces(test: &TestContext) -> Result<()> {
    fs::write(CONFIGURATION, changed(true)).context("cannot change the configuration")?;
    output("systemctl", &["restart", "ebb.service"])?;
    ensure!(property("StatusText")?.starts_with("enforcing, "), "{}", journal());
    let told = told("cgroupKill")?;
    runner::note(test, &told)?;
    wait::until(SOON, "the leak is gone", || is_running().is_ok_and(|running| !running))?;
    // systemd keeps a unit that was killed, for whoever wants to know.
    output("systemctl", &["reset-failed", "leak.service"]).map(drop)
}

/// A leak as it grows: `ebb top` shows it coming, ebb evicts it, and the journal, the metrics and a page tell of it. Screens and pages are kept for a person to look at.
fn first_incident(test: &TestContext) -> Result<()> {
    fs::create_dir_all(DROP_INS).with_context(|| format!("cannot create {DROP_INS}"))?;
    fs::write(METRICS_DROP_IN, METRICS).context("cannot write the drop-in")?;
    output("systemctl", &["daemon-reload"])?;
    output("systemctl", &["restart", "ebb.service"]).with_context(journal)?;
    let (out, before) = (out_dir(test)?, incidents()?);
    let keep = |name: &str, text: &str| {
        fs::write(out.join(name), text).with_context(|| format!("cannot keep {name}"))
    };
    start_leak(&["sh", "-c", SLOW_LEAK])?;
    let coming = wait::until_some(SOON, "ebb top shows the leak coming", || {
        top().ok().filter(|screen| shows_it_coming(screen))
    })
    .with_context(journal)?;
    keep("top-coming.txt", &coming)?;
    let gone = || is_running().is_ok_and(|running| !running);
    wait::until(SOON, "the leak is gone", gone).with_context(journal)?;
    keep("top-after.txt", &top()?)?;
    keep("journal.txt", &journal())?;
    let own = wait::until_some(SOON, "the incident is recorded", || {
        let new = incidents().ok()?.into_iter().find(|incident| !before.contains(incident))?;
        let shown = output("ebb", &["incident", "show", &new]).ok()?;
        (shown.contains(LEAK_NAME) && shown.contains("back above the threshold")).then_some(new)
    })?;
    let shown = output("ebb", &["incident", "show", &own])?;
    keep("incident.txt", &shown)?;
    let page = out.join("incident.html");
    output("ebb", &["incident", "html", &own, "--output", &page.display().to_string()])?;
    let written = fs::read_to_string(&page).context("there is no page")?;
    ensure!(written.contains(LEAK_NAME) && written.contains("Killed after"), "{written}");
    let record = Path::new("/var/lib/ebb/incidents").join(format!("{own}.json"));
    fs::copy(&record, out.join("incident.json")).context("cannot keep the record")?;
    let metrics = scrape()?;
    keep("metrics.txt", &metrics)?;
    ensure!(metrics.contains("\nebb_evictions_total{method=\"kill\"} 1\n"), "{metrics}");
    runner::note(test, shown.lines().next().unwrap_or_default())?;
    output("systemctl", &["reset-failed", "leak.service"])?;
    fs::remove_dir_all(DROP_INS).with_context(|| format!("cannot remove {DROP_INS}"))?;
    output("systemctl", &["daemon-reload"])?;
    output("systemctl", &["restart", "ebb.service"]).map(drop)
}

/// The ids of the incidents that are recorded.
fn incidents() -> Result<Vec<String>> {
    let list = output("ebb", &["incident", "list", "--output", "json"])?;
    let list: Vec<Value> = serde_json::from_str(&list).context("the list is no JSON")?;
    let ids = list.iter().filter_map(|incident| incident["id"].as_str());
    Ok(ids.map(str::to_owned).collect())
}

/// One screen, wide enough for names.
fn top() -> Result<String> {
    output("env", &["COLUMNS=160", "ebb", "top", "--once"])
}

/// Whether a screen says when the threshold will be met, and that the leak goes first.
fn shows_it_coming(screen: &str) -> bool {
    let mut lines = screen.lines();
    let is_forecast = |line: &str| {
        let line = line.trim_end();
        line.starts_with("memory.available") && line.contains(" clear ") && !line.ends_with(" -")
    };
    lines.any(is_forecast)
        && lines.any(|line| line.trim_start().starts_with("1 /work.slice/leak.service"))
}

/// What a scraper on this machine gets.
fn scrape() -> Result<String> {
    let mut socket = TcpStream::connect(METRICS_AT).context("nobody answers for metrics")?;
    socket.set_read_timeout(Some(SOON)).context("cannot bound the wait")?;
    write!(socket, "GET /metrics HTTP/1.1\r\nHost: ebb\r\nConnection: close\r\n\r\n")
        .context("cannot ask for metrics")?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).context("the answer breaks off")?;
    ensure!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    Ok(answer)
}

/// Another version is another process, by the same changed configuration.
fn upgrade(test: &TestContext) -> Result<()> {
    let first = property("MainPID")?;
    output("dpkg", &["--install", SECOND])?;
    ensure!(installed()? == "installed 0.1.0-2", "dpkg says {}", installed()?);
    let kept = fs::read_to_string(CONFIGURATION).context("the configuration is gone")?;
    ensure!(kept == changed(true), "the upgrade changed the configuration: {kept}");
    wait::until(SOON, "the service was started again", || {
        property("MainPID").is_ok_and(|pid| pid != first && pid != "0")
            && property("ActiveState").is_ok_and(|state| state == "active")
    })
    .with_context(journal)?;
    ensure!(property("StatusText")?.starts_with("enforcing, "), "{}", journal());
    runner::note(test, "upgraded; the changed configuration is in force")
}

/// Removed, it does not run and is not known; what the operator has of it stays.
fn remove() -> Result<()> {
    output("dpkg", &["--remove", "ebb"])?;
    ensure!(property("ActiveState")? == "inactive", "it still runs");
    ensure!(!Path::new("/usr/bin/ebb").exists(), "the program is still there");
    let kept = fs::read_to_string(CONFIGURATION).context("the configuration is gone")?;
    ensure!(kept == changed(true), "the removal changed the configuration: {kept}");
    ensure!(Path::new("/var/lib/ebb/incidents").exists(), "the incidents are gone");
    ensure!(installed()? == "config-files 0.1.0-2", "dpkg says {}", installed()?);
    Ok(())
}

/// What a package could leave: files where packages and services put them, and units.
struct Left(BTreeSet<String>);

impl Left {
    fn look() -> Result<Self> {
        let mut all = BTreeSet::new();
        for root in ["/etc", "/run/systemd", "/usr", "/var"] {
            list(Path::new(root), &mut all)?;
        }
        let units = output("systemctl", &["list-unit-files", "--no-legend", "--no-pager"])?;
        all.extend(units.lines().map(|unit| format!("unit file {unit}")));
        let units = ["list-units", "--all", "--no-legend", "--no-pager", "--plain", "ebb*"];
        let units = output("systemctl", &units)?;
        all.extend(units.lines().map(|unit| format!("unit {unit}")));
        Ok(Self(all))
    }

    fn without(self, before: &Self) -> Vec<String> {
        self.0.difference(&before.0).cloned().collect()
    }
}

/// Every name below a directory but those that dpkg, apt, the loader, the journal and logind write for themselves.
fn list(directory: &Path, all: &mut BTreeSet<String>) -> Result<()> {
    const OTHERS: [&str; 8] = [
        "/var/lib/dpkg",
        "/var/lib/apt",
        "/var/log",
        "/var/cache",
        "/run/systemd",
        "/etc/ld.so",
        "/var/lib/systemd/linger",
        "/var/tmp/systemd-private-",
    ];
    let entries = fs::read_dir(directory);
    let entries = entries.with_context(|| format!("cannot list {}", directory.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot list {}", directory.display()))?;
        let path = entry.path();
        let name = path.display().to_string();
        if OTHERS.iter().any(|other| name.starts_with(other)) && !name.contains("ebb") {
            continue;
        }
        if entry.file_type().context("cannot read a file's type")?.is_dir() {
            list(&path, all)?;
        }
        all.insert(name);
    }
    Ok(())
}

/// What the journal says of the leak's eviction by this method, and nobody else's.
fn told(method: &str) -> Result<String> {
    let query = [
        "--unit=ebb.service",
        "--output=cat",
        "--no-pager",
        "EBB_EVENT=evicted",
        &format!("EBB_METHOD={method}"),
    ];
    let found = wait::until_some(SOON, "ebb tells of the leak", || {
        output("journalctl", &query).ok().filter(|found| !found.trim().is_empty())
    })
    .with_context(journal)?;
    let others = found.lines().find(|line| !line.contains("/work.slice/leak.service"));
    ensure!(others.is_none(), "ebb chose another: {others:?}");
    Ok(found.trim().to_owned())
}

fn is_running() -> Result<bool> {
    let events = format!("{LEAK}/cgroup.events");
    if !Path::new(&events).exists() {
        return Ok(false);
    }
    let text = fs::read_to_string(&events).with_context(|| format!("cannot read {events}"))?;
    Ok(text.contains("populated 1"))
}

fn installed() -> Result<String> {
    output("dpkg-query", &["--show", "--showformat=${db:Status-Status} ${Version}", "ebb"])
}

fn property(name: &str) -> Result<String> {
    let text = output("systemctl", &["show", "--value", "--property", name, "ebb.service"])?;
    Ok(text.trim().to_owned())
}

fn journal() -> String {
    output("journalctl", &["--unit=ebb.service", "--output=cat", "--no-pager"])
        .unwrap_or_else(|error| format!("no journal: {error:#}"))
}

fn output(program: &str, words: &[&str]) -> Result<String> {
    let out = Command::new(program)
        .args(words)
        .env("PATH", "/usr/sbin:/usr/bin")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .env("LC_ALL", "C")
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    let said = String::from_utf8_lossy(&out.stdout);
    let complained = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{program} {} failed: {said}{complained}", words.join(" "));
    Ok(said.into_owned())
}

#[cfg(test)]
mod tests {
    use super::METRICS;

    #[test]
    fn the_guide_has_the_drop_in_that_is_tried() {
        let guide = include_str!("../../../docs/operating.md");
        assert!(guide.contains(&format!("```ini\n{METRICS}```")));
    }
}
