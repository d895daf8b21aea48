//! ebb and kube-controller-manager, measured on one control plane, one after the other.
//!
//! ```text
//! for each limit, for each collector: idle ─► chains background, foreground, orphan ─► one owner of many, background, foreground
//! the same writes by clients that know what is to be written: what no collector can be faster than
//! for each collector: start beside many owned objects
//! ```
//! No other controller runs: Deployments, ReplicaSets and Pods are objects that only the collector touches.
//! Progress goes to standard error and the tables, as Markdown, to standard output.
//! Without `EBB_CLUSTER_ASSETS` nothing is measured; `EBB_CHAINS` and `EBB_OWNED` are how many chains and owned objects.
use anyhow::{Context, Result};
use cascades::{By, CASES, Case, Taken};
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

/// Runs at a limit that nobody reaches.
const ROUNDS: usize = 2;
/// Requests a second: more than a control plane of this size answers, and what an operator may allow a collector.
const UNREACHED: u32 = 5_000;
const REACHED: u32 = 100;
/// How many times as long as ebb's own start kube-controller-manager's is waited for where its rate decides.
const TIMES: f64 = 6.0;

/// What one collector took with one limit.
struct Session {
    idle: Latency,
    cases: Vec<(Case, Taken)>,
    resident: u64,
}

impl Session {
    /// What was faster of each.
    fn or(self, other: Option<Self>) -> Self {
        let Some(other) = other else { return self };
        let both = self.cases.into_iter().zip(other.cases);
        let cases = both.map(|((case, a), (_, b))| (case, faster(a, b))).collect();
        let idle = Latency { p99: self.idle.p99.min(other.idle.p99) };
        Self { idle, cases, resident: self.resident.max(other.resident) }
    }
}

/// What the control plane takes without any collector.
struct ByHand {
    alone: Latency,
    cases: Vec<Taken>,
}

impl ByHand {
    /// What was faster of each.
    fn or(self, other: Option<Self>) -> Self {
        let Some(other) = other else { return self };
        let cases = self.cases.into_iter().zip(other.cases).map(|(a, b)| faster(a, b)).collect();
        Self { alone: Latency { p99: self.alone.p99.min(other.alone.p99) }, cases }
    }
}

fn faster(a: Taken, b: Taken) -> Taken {
    if a.seconds <= b.seconds { a } else { b }
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
    let (mut kcm, mut ebb, mut hands) = (None, None, None);
    // The host has other things to do, now and then: they take turns, and the fastest counts.
    for _ in 0..ROUNDS {
        kcm = Some(
            session(Collector::Kcm, Limits::Equal(UNREACHED), chains, &plane, assets)?.or(kcm),
        );
        ebb = Some(
            session(Collector::Ebb, Limits::Equal(UNREACHED), chains, &plane, assets)?.or(ebb),
        );
        hands = Some(by_hand(chains, &plane)?.or(hands));
    }
    let mut figures = String::new();
    if let (Some(kcm), Some(ebb)) = (&kcm, &ebb) {
        let limits = Limits::Equal(UNREACHED);
        figures.push_str(&cascade_figures(limits, kcm, ebb));
        text.push_str(&cascade_table(limits, chains, kcm, ebb, hands.as_ref()));
    }
    let few = (chains / 10).max(1);
    for (limits, count) in [(Limits::Equal(REACHED), chains.div_ceil(2)), (Limits::Defaults, few)] {
        let kcm = session(Collector::Kcm, limits, count, &plane, assets)?;
        let ebb = session(Collector::Ebb, limits, count, &plane, assets)?;
        text.push_str(&cascade_table(limits, count, &kcm, &ebb, None));
        figures.push_str(&cascade_figures(limits, &kcm, &ebb));
    }
    text.push_str(&beside(chains, &plane, assets)?);
    start::fill(&plane, owned)?;
    for limits in [Limits::Defaults, Limits::Equal(UNREACHED)] {
        let ebb = start::measure(Collector::Ebb, limits, start::PATIENCE, &plane, assets)?;
        let patience = match limits {
            Limits::Defaults => Duration::from_secs_f64(ebb.seconds * TIMES),
            Limits::Equal(_) => start::PATIENCE,
        };
        let kcm = start::measure(Collector::Kcm, limits, patience, &plane, assets)?;
        text.push_str(&start_table(limits, owned, &kcm, &ebb));
        let limits = title(limits);
        _ = writeln!(figures, "figure! lower s {:.3} ebb starts, {limits}", ebb.seconds);
        _ = writeln!(
            figures,
            "figure! lower MiB {} ebb starts, {limits}, resident",
            ebb.resident >> 20
        );
    }
    start::empty(&plane)?;
    println!("{}\n{figures}", text.trim_end());
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
        let taken = cascades::measure(case, count, By::Collector(&mut running), plane)?;
        eprintln!(
            "{collector:?} {limits:?} {count} {case:?}: {taken:.2?}, idle p99 {:.1} ms, resident {}",
            idle.p99,
            mib(running.resident()?),
        );
        cases.push((case, taken));
    }
    let resident = running.resident()?;
    running.end()?;
    Ok(Session { idle, cases, resident })
}

/// What ebb at its defaults leaves of an unrelated client's time, in cascades that are long enough for a p99.
fn beside(count: usize, plane: &Plane, assets: &Path) -> Result<String> {
    let one = cascades::one_by_one(count, plane)?.p99;
    let owners = cascades::alone(count, plane)?.p99;
    let ebb = session(Collector::Ebb, Limits::Defaults, count, plane, assets)?;
    let nothing = ebb.idle.p99;
    let mut text = format!(
        "An unrelated client beside ebb at its defaults, {count} chains and an owner of {count} ConfigMaps:\n\n\
         | | p99 | for nothing | for the least of a cascade |\n|---|---|---|---|\n\
         | nothing | {nothing:.1} ms | 1.0 × | |\n"
    );
    let one_row =
        format!("one client deletes {count} ConfigMaps one after the other, no collector runs");
    let owners_row = format!(
        "the same four clients delete {count} Deployments that own nothing, no collector runs"
    );
    let least = [(one_row, one, one), (owners_row, owners, owners)];
    let cascades = ebb.cases.into_iter().map(|(case, taken)| {
        let least = if matches!(case, Case::FanOut(_)) { one } else { owners };
        (case.name(), taken.unrelated.p99, least)
    });
    for (name, p99, least) in least.into_iter().chain(cascades) {
        let (for_nothing, for_least) = (p99 / nothing, p99 / least);
        _ = writeln!(text, "| {name} | {p99:.1} ms | {for_nothing:.1} × | {for_least:.1} × |");
    }
    text.push('\n');
    Ok(text)
}

/// The same writes by clients that need not find anything out.
fn by_hand(count: usize, plane: &Plane) -> Result<ByHand> {
    let alone = cascades::alone(count, plane)?;
    eprintln!("owners of nothing alone: unrelated p99 {:.1} ms", alone.p99);
    let measured = CASES.into_iter().map(|case| {
        let taken = cascades::measure(case, count, By::Hands, plane)?;
        eprintln!("by hand {count} {case:?}: {taken:.2?}");
        Ok(taken)
    });
    Ok(ByHand { alone, cases: measured.collect::<Result<_>>()? })
}

fn cascade_table(
    limits: Limits,
    count: usize,
    kcm: &Session,
    ebb: &Session,
    hands: Option<&ByHand>,
) -> String {
    let runs =
        if hands.is_some() { format!(", the faster of {ROUNDS} runs") } else { String::new() };
    let mut text = format!(
        "{}, {count} chains and an owner of {count} ConfigMaps{runs}:\n\n\
         | | kcm | ebb | ratio | by hand | requests kcm | ebb | unrelated p99 kcm | ebb |\n|---|---|---|---|---|---|---|---|---|\n",
        title(limits)
    );
    _ = writeln!(text, "| nothing | | | | | | | {:.1} ms | {:.1} ms |", kcm.idle.p99, ebb.idle.p99);
    let mut costs = String::from(
        "| | control plane kcm | ebb | by hand | collector kcm | ebb |\n|---|---|---|---|---|---|\n",
    );
    for (at, ((case, kcm), (_, ebb))) in kcm.cases.iter().zip(&ebb.cases).enumerate() {
        let hand = hands.map(|hands| &hands.cases[at]);
        _ = writeln!(
            text,
            "| {} | {:.2} s | {:.2} s | {:.1} × | {} | {:.2} | {:.2} | {:.1} ms | {:.1} ms |",
            case.name(),
            kcm.seconds,
            ebb.seconds,
            kcm.seconds / ebb.seconds,
            hand.map(|hand| format!("{:.2} s", hand.seconds)).unwrap_or_default(),
            kcm.requests,
            ebb.requests,
            kcm.unrelated.p99,
            ebb.unrelated.p99,
        );
        _ = writeln!(
            costs,
            "| {} | {:.2} ms | {:.2} ms | {} | {:.2} ms | {:.2} ms |",
            case.name(),
            kcm.plane,
            ebb.plane,
            hand.map(|hand| format!("{:.2} ms", hand.plane)).unwrap_or_default(),
            kcm.own,
            ebb.own,
        );
    }
    let resident = (mib(kcm.resident), mib(ebb.resident));
    _ = writeln!(text, "\nResident after it: kcm {}, ebb {}.\n", resident.0, resident.1);
    if let Some(hands) = hands {
        _ = writeln!(
            text,
            "While the same clients delete {count} Deployments that own nothing and no collector runs, unrelated p99 is {:.1} ms.\n",
            hands.alone.p99
        );
        _ = writeln!(text, "Processor time for each object:\n\n{costs}");
    }
    text
}

/// As numbers, for `cargo xtask bench`, which takes these lines out of the text.
fn cascade_figures(limits: Limits, kcm: &Session, ebb: &Session) -> String {
    let (mut text, limits) = (String::new(), title(limits));
    for (mark, who, session) in [("figure!", "ebb", ebb), ("figure", "kcm", kcm)] {
        for (case, taken) in &session.cases {
            let name = format!("{who}, {}, {limits}", case.name());
            _ = writeln!(text, "{mark} lower s {:.3} {name}", taken.seconds);
            _ = writeln!(text, "figure lower ms {:.3} {name}, unrelated p99", taken.unrelated.p99);
            _ = writeln!(text, "figure lower ms {:.3} {name}, collector for each", taken.own);
        }
        _ = writeln!(text, "{mark} lower MiB {} {who}, {limits}, resident", session.resident >> 20);
    }
    text
}

fn title(limits: Limits) -> String {
    match limits {
        Limits::Equal(rate) => format!("At most {rate} requests a second for each"),
        Limits::Defaults => "At each one's defaults".into(),
    }
}

fn start_table(limits: Limits, owned: usize, kcm: &Start, ebb: &Start) -> String {
    let mut text = format!(
        "{}, a start beside {owned} owned objects, two of each owner and half of them listed before it, until garbage that is listed last is gone ({}{:.1} × for kcm):\n\n\
         | | collects after | requests about objects | resident |\n|---|---|---|---|\n",
        title(limits),
        if kcm.is_given_up { "more than " } else { "" },
        kcm.seconds / ebb.seconds
    );
    for (name, start) in [("kcm", kcm), ("ebb", ebb)] {
        _ = writeln!(
            text,
            "| {name} | {}{:.1} s | {} | {} |",
            if start.is_given_up { "not within " } else { "" },
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
