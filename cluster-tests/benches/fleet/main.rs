//! The Kubernetes part of many agents at once, each as it runs on its node, in this one process beside a real API server.
//!
//! ```text
//! nodes and pods in the store ─► as many threads `ebb-cluster` as nodes ─► all know their pods
//!                            ─► a quiet minute ─► all are short of memory in the same second, and each has evicted a pod
//! ```
//! Before them one whole agent beside a full node's pods, while nothing happens.
//! They are what `ebb run --kubernetes` starts; what stands for their loops takes in the news and gives the orders.
//! The Markdown goes to standard output, and in lines that begin with `figure` the same as numbers, which `cargo xtask bench` takes out. Without `EBB_CLUSTER_ASSETS` nothing is measured; `EBB_AGENTS` and `EBB_PODS` are how many agents, and pods of each; `EBB_ANNOTATION` is how many bytes of annotations a pod has.
//! An agent that takes more than `limits` allows is told after that, and ends this with an error.
use agents::Fleet;
use anyhow::{Context, Result, ensure};
use ebb_cluster_tests::limits;
use ebb_cluster_tests::plane::{Plane, User};
use ebb_cluster_tests::usage;
use server::Counts;
use std::path::Path;
use std::time::{Duration, Instant};

mod agents;
mod server;
mod whole;

/// How long nothing happens.
const QUIET: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    let Some(assets) = std::env::var_os(ebb_cluster_tests::ASSETS) else {
        println!("nothing is measured: {} is not set", ebb_cluster_tests::ASSETS);
        return Ok(());
    };
    let (agents, pods) = (number("EBB_AGENTS", 500)?, number("EBB_PODS", 30)?);
    let plane = Plane::start(Path::new(&assets))?;
    let api = plane.api(User::Admin)?;
    server::prepare(&plane)?;
    let before = server::watches(&api)?;
    let costs = whole::measure(&plane, agents)?;
    eprintln!("a whole agent, alone and connected: {costs:.3?}");
    server::fill(&plane, 0..agents, pods, number("EBB_ANNOTATION", 2_000)?)?;
    let resident = usage::resident(std::process::id())?;
    let (counts, used, begun) = (Counts::of(&api)?, plane.processor_time()?, Instant::now());
    let mut fleet = Fleet::start(&plane, agents, pods)?;
    let synced = begun.elapsed().as_secs_f64();
    let start = (Counts::of(&api)?.since(&counts), plane.processor_time()? - used);
    eprintln!("{agents} agents know their pods after {synced:.1} s: {start:?}");

    let (counts, used, own) =
        (Counts::of(&api)?, plane.processor_time()?, usage::processor_time(std::process::id())?);
    std::thread::sleep(QUIET);
    let quiet = (Counts::of(&api)?.since(&counts), plane.processor_time()? - used);
    let own = usage::processor_time(std::process::id())? - own;
    // The API server has a few of its own.
    let watches = server::watches(&api)?.saturating_sub(before);
    let each = (usage::resident(std::process::id())?.saturating_sub(resident)) / agents as u64;
    eprintln!("quiet: {quiet:?}, {watches} watches, own {own:.2} s, {} KiB each", each >> 10);

    let (counts, used) = (Counts::of(&api)?, plane.processor_time()?);
    let storm = fleet.evict_one_each(pods)?;
    let during = (Counts::of(&api)?.since(&counts), plane.processor_time()? - used);
    server::are_told(&api, agents)?;
    eprintln!("storm: {storm:.2?}, {during:?}");
    let ratio = |requests: u64| requests as f64 / agents as f64;
    println!(
        "| | {agents} agents, {pods} pods each |\n|---|---|\n\
         | from the first start until all know their pods | {synced:.1} s, {:.1} requests each, {:.1} s of the control plane's processors |\n\
         | memory of an agent's Kubernetes part | {} KiB |\n\
         | a quiet minute | {watches} watches open, {:.2} requests each beyond them, {:.2} s of the control plane's processors, {own:.2} s of all agents' |\n\
         | all short of memory in the same second, one eviction each | all told after {:.1} s (half after {:.1} s, 99 % after {:.1} s), {:.1} requests each, {} answers of 429, {:.1} s of the control plane's processors |\n",
        ratio(start.0.all),
        start.1,
        each >> 10,
        ratio(quiet.0.all),
        quiet.1,
        storm.last,
        storm.half,
        storm.p99,
        ratio(during.0.all),
        during.0.too_many,
        during.1,
    );
    println!(
        "One whole agent, `ebb run --kubernetes`, beside {} pods with {} KB of annotations each. Its node is made of files and its runtime is another process, so what a real kernel takes for its files, and BPF programs, are not part of it:\n\n\
         | a quiet minute | of one core | resident | requests beyond watches |\n|---|---|---|---|",
        whole::PODS,
        whole::ANNOTATION / 1_000,
    );
    for (name, cost) in ["without an API server", "connected to it"].iter().zip(&costs) {
        let mib = cost.resident as f64 / f64::from(1 << 20);
        println!("| {name} | {:.2} % | {mib:.1} MiB | {} |", cost.core, cost.requests);
    }
    for (better, unit, value, name) in [
        ("figure! lower", "s", synced, "from the first start until all know their pods"),
        ("figure! lower", "KiB", (each >> 10) as f64, "memory of an agent's Kubernetes part"),
        ("figure! lower", "s", quiet.1, "a quiet minute, of the control plane's processors"),
        ("figure! lower", "s", storm.last, "all told of their evictions"),
        ("figure lower", "s", storm.half, "half told of their evictions"),
        ("figure lower", "s", during.1, "evictions, of the control plane's processors"),
    ] {
        println!("{better} {unit} {value:.3} {name}");
    }
    for (name, cost) in ["without an API server", "connected to it"].iter().zip(&costs) {
        println!("figure! lower % {:.3} one whole agent {name}, of one core", cost.core);
        println!("figure! lower KiB {} one whole agent {name}, resident", cost.resident >> 10);
    }
    let [alone, connected] = &costs;
    let exceeded = limits::exceeded(alone, connected, ratio(quiet.0.all));
    ensure!(exceeded.is_empty(), "more than an agent may take: {}", exceeded.join("; "));
    Ok(())
}

fn number(name: &str, otherwise: usize) -> Result<usize> {
    let value = std::env::var(name).ok().map(|value| value.parse());
    Ok(value.transpose().with_context(|| format!("{name} is no number"))?.unwrap_or(otherwise))
}
