//! `ebb status`: how the node stands, as the running agent knows it.

use super::client::{ClientArgs, failure};
use super::plan::Output;
use super::runtime::{ago, table};
use super::{Failure, event_loop, json};
use anyhow::Context as _;
use ebb_api::client::Client;
use ebb_api::wire::{GetNodeResponse, Mode, Ranking, Strength, Threshold, ThresholdState, Unit};
use ebb_journal::text::{bytes, plain, time_of_day};
use serde::Serialize;
use std::io::Write as _;

const HEAD: [&str; 6] = ["SIGNAL", "STRENGTH", "LIMIT", "AVAILABLE", "STATE", "FORECAST"];

/// Arguments of `ebb status`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    api: ClientArgs,
    /// Form of the answer.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let node = event_loop()?.block_on(async {
        let mut client = Client::connect(args.api.path()).await?;
        client.node().await
    });
    let node = node.map_err(failure)?;
    let answer = match args.output {
        Output::Text => text(&node),
        Output::Json => json::pretty(&Node::of(&node))? + "\n",
    };
    std::io::stdout().write_all(answer.as_bytes()).context("cannot write the answer")?;
    Ok(())
}

/// The answer for people.
fn text(node: &GetNodeResponse) -> String {
    let mut text = format!(
        "ebb {}, {}, {} workloads, looked at the node at {} UTC\n",
        plain(&node.version),
        mode(node.mode()),
        node.workloads,
        time_of_day(node.looked_at_ms)
    );
    let rows: Vec<Vec<String>> = node.thresholds.iter().map(row).collect();
    if !rows.is_empty() {
        text.push_str(&table(&HEAD, &rows));
    }
    for pressure in &node.memory_pressure {
        let now = pressure.full_avg10.map_or("unavailable".to_owned(), percent);
        let (cgroup, limit) = (plain(&pressure.cgroup), percent(pressure.limit));
        text.push_str(&format!("memory pressure of {cgroup}: full avg10 {now}, limit {limit}\n"));
    }
    for incident in &node.incidents {
        text.push_str(&format!("incident going on: {}\n", plain(incident)));
    }
    match &node.ranking {
        Some(ranking) => text.push_str(&ranked(ranking, node.answered_at_ms)),
        None => text.push_str("no eviction candidates for a hard threshold of memory\n"),
    }
    text
}

fn row(threshold: &Threshold) -> Vec<String> {
    let mut limit = amount(threshold.limit, threshold.unit());
    if let Some(also) = &threshold.also_below {
        let bound = amount(also.limit, also.unit());
        limit.push_str(&format!(" while {} < {bound}", also.signal));
    }
    let state = match (threshold.state(), threshold.grace_left_ms) {
        (ThresholdState::Grace, Some(left)) => format!("grace, {} left", seconds(left)),
        (state, _) => word(state).to_owned(),
    };
    vec![
        threshold.signal.clone(),
        strength(threshold.strength()).to_owned(),
        limit,
        amount(threshold.available, threshold.unit()),
        state,
        threshold.time_left_ms.map_or("-".to_owned(), |left| format!("met in {}", seconds(left))),
    ]
}

fn ranked(ranking: &Ranking, now: u64) -> String {
    let age = ago(now.saturating_sub(ranking.at_ms));
    let mut text = format!("would be evicted first for want of memory, ranked {age} ago:\n");
    for (n, candidate) in ranking.candidates.iter().enumerate() {
        text.push_str(&format!("  {}. {}\n", n + 1, plain(&candidate.workload)));
    }
    text
}

/// Whether an agent acts.
pub(super) fn mode(of: Mode) -> &'static str {
    match of {
        Mode::Enforce => "enforcing",
        Mode::DryRun => "dry run",
        Mode::Unspecified => "mode unknown",
    }
}

/// A figure of a signal; `-` where it is not known.
pub(super) fn amount(value: Option<u64>, unit: Unit) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if unit == Unit::Bytes => bytes(value),
        Some(value) => value.to_string(),
    }
}

pub(super) fn seconds(milliseconds: u64) -> String {
    format!("{}.{} s", milliseconds / 1000, milliseconds / 100 % 10)
}

pub(super) fn percent(hundredths: u32) -> String {
    format!("{}.{:02} %", hundredths / 100, hundredths % 100)
}

pub(super) fn strength(of: Strength) -> &'static str {
    match of {
        Strength::Hard => "hard",
        Strength::Soft => "soft",
        Strength::Unspecified => "unknown",
    }
}

pub(super) fn word(of: ThresholdState) -> &'static str {
    match of {
        ThresholdState::Unobserved => "unobserved",
        ThresholdState::Clear => "clear",
        ThresholdState::Grace => "grace",
        ThresholdState::Stale => "stale",
        ThresholdState::Met => "met",
        ThresholdState::Inert => "inert",
        ThresholdState::Unspecified => "unknown",
    }
}

/// The answer for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Node<'a> {
    version: &'a str,
    run: &'a str,
    mode: &'static str,
    answered_at: u64,
    looked_at: u64,
    workloads: u32,
    thresholds: Vec<ThresholdLine<'a>>,
    memory_pressure: Vec<PressureLine<'a>>,
    incidents: &'a [String],
    ranking: Option<RankingLines<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ThresholdLine<'a> {
    signal: &'a str,
    strength: &'static str,
    limit: Option<u64>,
    available: Option<u64>,
    state: &'static str,
    met_since: Option<u64>,
    grace_left_ms: Option<u64>,
    time_left_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    also_below: Option<AlsoBelowLine<'a>>,
}

#[derive(Serialize)]
struct AlsoBelowLine<'a> {
    signal: &'a str,
    limit: Option<u64>,
    available: Option<u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PressureLine<'a> {
    cgroup: &'a str,
    limit: u32,
    full_avg10: Option<u32>,
}

#[derive(Serialize)]
struct RankingLines<'a> {
    at: u64,
    candidates: Vec<CandidateLine<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CandidateLine<'a> {
    workload: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod_uid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cgroup_id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
}

impl<'a> Node<'a> {
    fn of(node: &'a GetNodeResponse) -> Self {
        let pressures = node.memory_pressure.iter().map(|pressure| PressureLine {
            cgroup: &pressure.cgroup,
            limit: pressure.limit,
            full_avg10: pressure.full_avg10,
        });
        Self {
            version: &node.version,
            run: &node.run,
            mode: match node.mode() {
                Mode::Enforce => "enforce",
                Mode::DryRun => "dryRun",
                Mode::Unspecified => "unknown",
            },
            answered_at: node.answered_at_ms,
            looked_at: node.looked_at_ms,
            workloads: node.workloads,
            thresholds: node.thresholds.iter().map(ThresholdLine::of).collect(),
            memory_pressure: pressures.collect(),
            incidents: &node.incidents,
            ranking: node.ranking.as_ref().map(|ranking| RankingLines {
                at: ranking.at_ms,
                candidates: ranking
                    .candidates
                    .iter()
                    .map(|candidate| CandidateLine {
                        workload: &candidate.workload,
                        pod_uid: candidate.pod_uid.as_deref(),
                        cgroup_id: candidate.cgroup_id,
                        pid: candidate.pid,
                    })
                    .collect(),
            }),
        }
    }
}

impl<'a> ThresholdLine<'a> {
    fn of(threshold: &'a Threshold) -> Self {
        Self {
            signal: &threshold.signal,
            strength: strength(threshold.strength()),
            limit: threshold.limit,
            available: threshold.available,
            state: word(threshold.state()),
            met_since: threshold.met_since_ms,
            grace_left_ms: threshold.grace_left_ms,
            time_left_ms: threshold.time_left_ms,
            also_below: threshold.also_below.as_ref().map(|also| AlsoBelowLine {
                signal: &also.signal,
                limit: also.limit,
                available: also.available,
            }),
        }
    }
}
