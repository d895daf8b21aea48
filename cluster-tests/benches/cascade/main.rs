//! ebb and kube-controller-manager, measured on one control plane, one after the other.
//!
//! ```text
//! for each limit, for each collector: idle ─► chains background, foreground, orphan ─► one owner of many, background, foreground
//! for each collector: start beside many owned objects
//! ```
//! No other controller runs: Deployments, ReplicaSets and Pods are objects that only the collector touches.
//! Progress goes to standard error and the tables, as Markdown, to standard output.
//! Without `EBB_CLUSTER_ASSETS` nothing is measured; `EBB_CHAINS` and `EBB_OWNED` are how many chains and owned objects.
use anyhow::{Context, Result};
use cascades::{CASES, Case, Taken};
use ebb_cluster_tests::collector::{Collector, Limits, Running};
use ebb_cluster_tests::plane::{Plane, User};
use probe::Latency;
use start::Start;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

mod cascades;
mod counts;
mod probe;
mod start;

/// How long an unrelated client is watched while nothing else happens.
const IDLE: Duration = Duration::from_secs(5);

/// What one collector took with one limit.
struct Session {
    idle: Latency,
    cases: Vec<(Case, Taken)>,
    resident: u64,
}

fn main() -> Result<()> {
    let Some(assets) = std::env::var_os(ebb_cluster_tests::ASSETS) else {
        println!("nothing is measured: {} is not set", ebb_cluster_tests::ASSETS);
        return Ok(());
    };
    let assets = Path::new(&assets);
    let chains = number("EBB_CHAINS", 1_000)?;
    let owned = number("EBB_OWNED", 100_000)?;
    Running::build()?;
    let plane = Plane::start(assets)?;
    let mut text = String::new();
    for (limits, count) in [(Limits::Equal, chains), (Limits::Defaults, (chains / 10).max(1))] {
        let kcm = session(Collector::Kcm, limits, count, &plane, assets)?;
        let ebb = session(Collector::Ebb, limits, count, &plane, assets)?;
        text.push_str(&cascade_table(limits, count, &kcm, &ebb));
    }
    for (limits, count) in [(Limits::Defaults, owned / 20), (Limits::Equal, owned)] {
        start::fill(&plane, count)?;
        let kcm = start::measure(Collector::Kcm, limits, &plane, assets)?;
        let ebb = start::measure(Collector::Ebb, limits, &plane, assets)?;
        start::empty(&plane)?;
        text.push_str(&start_table(limits, count, &kcm, &ebb));
    }
    println!("{}", text.trim_end());
    Ok(())
}

fn number(name: &str, otherwise: usize) -> Result<usize> {
    let value = std::env::var(name).ok().map(|value| value.parse());
    Ok(value.transpose().with_context(|| format!("{name} is no number"))?.unwrap_or(otherwise))
}

fn session(
    collector: Collector,
    limits: Limits,
    count: usize,
    plane: &Plane,
    assets: &Path,
) -> Result<Session> {
    let api = plane.api(User::Admin)?;
    let mut running = Running::measured(collector, limits, plane, assets)?;
    running.collects(&api)?;
    let idle = probe::during(&api, || {
        std::thread::sleep(IDLE);
        Ok(())
    })?;
    let mut cases = Vec::new();
    for case in CASES {
        let taken = cascades::measure(case, count, &mut running, plane)?;
        eprintln!(
            "{collector:?} {limits:?} {count} {case:?}: {:.2} s, {:.2} requests each, unrelated p99 {:.1} ms (idle {:.1} ms), resident {}",
            taken.seconds,
            taken.requests,
            taken.unrelated.p99,
            idle.p99,
            mib(running.resident()?),
        );
        cases.push((case, taken));
    }
    let resident = running.resident()?;
    running.end()?;
    Ok(Session { idle, cases, resident })
}

fn cascade_table(limits: Limits, count: usize, kcm: &Session, ebb: &Session) -> String {
    let mut text = format!(
        "{}, {count} chains and an owner of {count} ConfigMaps:\n\n\
         | | kcm | ebb | ratio | requests kcm | ebb | unrelated p99 kcm | ebb |\n|---|---|---|---|---|---|---|---|\n",
        title(limits)
    );
    _ = writeln!(text, "| nothing | | | | | | {:.1} ms | {:.1} ms |", kcm.idle.p99, ebb.idle.p99);
    for ((case, kcm), (_, ebb)) in kcm.cases.iter().zip(&ebb.cases) {
        _ = writeln!(
            text,
            "| {} | {:.2} s | {:.2} s | {:.1} × | {:.2} | {:.2} | {:.1} ms | {:.1} ms |",
            case.name(),
            kcm.seconds,
            ebb.seconds,
            kcm.seconds / ebb.seconds,
            kcm.requests,
            ebb.requests,
            kcm.unrelated.p99,
            ebb.unrelated.p99,
        );
    }
    _ = writeln!(
        text,
        "\nResident after it: kcm {}, ebb {}.\n",
        mib(kcm.resident),
        mib(ebb.resident)
    );
    text
}

fn title(limits: Limits) -> &'static str {
    match limits {
        Limits::Equal => "At most 5,000 requests a second for each",
        Limits::Defaults => "At each one's defaults",
    }
}

fn start_table(limits: Limits, owned: usize, kcm: &Start, ebb: &Start) -> String {
    let mut text = format!(
        "{}, a start beside {owned} owned objects, two of each owner, until garbage that is listed last is gone ({:.1} × for kcm):\n\n\
         | | collects after | requests about objects | resident |\n|---|---|---|---|\n",
        title(limits),
        kcm.seconds / ebb.seconds
    );
    for (name, start) in [("kcm", kcm), ("ebb", ebb)] {
        _ = writeln!(
            text,
            "| {name} | {:.1} s | {} | {} |",
            start.seconds,
            start.requests,
            mib(start.resident)
        );
    }
    text.push('\n');
    text
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}
