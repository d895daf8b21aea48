//! The play of `cargo xtask demo`: services at work, one of them starts to leak, ebb ends it and says when it did what.
//!
//! Every number shown is ebb's own record or the kernel's; nothing here measures or decides.
use crate::agent::{Agent, EBB, is, name_of};
use crate::node;
use crate::registry::{Context as TestContext, Outcome};
use crate::runner;
use crate::scene::Workload;
use crate::wait;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);
const CAST: [(&str, &[&str]); 5] = [
    ("database.service", &["idle", "180"]),
    ("web.service", &["idle", "90"]),
    ("queue.service", &["idle", "40"]),
    ("backup.service", &["cacher", "64"]),
    ("metrics.service", &["idle", "20"]),
];
const LEAK: &str = "report-generator.service";
const RATE: &str = "150";

/// The whole play.
pub(crate) fn play(test: &TestContext) -> Result<Outcome> {
    let say = |text: &str| runner::note(test, text);
    let mib = |bytes: u64| bytes >> 20;
    let version = Command::new(EBB).arg("--version").output().context("cannot start ebb")?;
    let version = String::from_utf8_lossy(&version.stdout).trim().to_owned();
    say(&format!("Linux {}, {} MiB", node::release(), mib(node::meminfo("MemTotal")?)))?;
    let mut cast = Vec::new();
    for (name, words) in CAST {
        cast.push(Workload::start(&format!("work.slice/{name}"), words)?);
        say(&format!("  {name:<26} {}", words.join(" ")))?;
    }
    let kills = node::vmstat("oom_kill ")?;
    let mut agent = Agent::enforce(test, "evictionHard:\n  memory.available: \"15%\"\n")?;
    say(&format!("{version} run --enforce, evictionHard memory.available 15%"))?;
    let mut leak = Workload::start(&format!("work.slice/{LEAK}"), &["hog", RATE])?;
    say(&format!("  {LEAK:<26} starts to leak {RATE} MiB/s"))?;
    let planned = agent.wait_for(SOON, "ebb decides", |record| is(record, "decided"))?;
    let recovered =
        agent.wait_for(SOON, "the memory is back", |record| is(record, "pressureRelieved"))?;
    wait::until(SOON, "the leak is gone", || leak.actor.is_alive().is_ok_and(|alive| !alive))?;
    say("timeline, in ms since the threshold was crossed")?;
    for moment in list(&recovered, "timeline") {
        let after = moment.get("afterMs").and_then(Value::as_f64).unwrap_or_default();
        let what = moment.get("what").and_then(Value::as_str).unwrap_or_default();
        let detail = moment.get("detail").and_then(Value::as_str).unwrap_or_default();
        say(&format!("  {after:>9.1}  {what}  {detail}"))?;
        if what == "decided" {
            rank(&planned, &say)?;
        }
    }
    let records = agent.stop()?;
    let ended: Vec<String> =
        records.iter().filter(|r| is(r, "evicted")).filter_map(name_of).collect();
    for workload in &mut cast {
        ensure!(workload.actor.is_alive()?, "{} died", workload.cgroup.name());
    }
    ensure!(ended.iter().all(|name| name.ends_with(LEAK)), "ebb ended {ended:?}");
    ensure!(node::vmstat("oom_kill ")? == kills, "the kernel's OOM killer was faster");
    say(&format!(
        "{LEAK} is gone, {} of {} others are alive, {} MiB available, no OOM kill",
        cast.len(),
        CAST.len(),
        mib(node::meminfo("MemAvailable")?)
    ))?;
    Ok(Outcome::Passed)
}

/// The ranking behind the decision: who was considered, by which numbers.
fn rank(planned: &Value, say: &impl Fn(&str) -> Result<()>) -> Result<()> {
    for ranked in list(planned, "ranking") {
        let place = ranked.get("place").and_then(Value::as_u64).unwrap_or_default();
        let name = name_of(ranked).unwrap_or_default();
        let key = |key: &str, field: &str| {
            let found =
                list(ranked, "keys").iter().find(|k| k.get("key").is_some_and(|k| k == key));
            found.and_then(|found| found.get(field)?.as_i64()).unwrap_or_default() >> 20
        };
        say(&format!(
            "             {place}. {name:<36} {:>5} MiB, growing {:>4} MiB/s",
            key("exceedsRequest", "usage"),
            key("growth", "perSecond"),
        ))?;
    }
    Ok(())
}

fn list<'a>(record: &'a Value, field: &str) -> &'a [Value] {
    record.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}
