//! What ownerReference GC and pod GC promise, held by kube-controller-manager and by `ebb controller --enforce` alike.
//!
//! ```text
//! kcm::…           each case under kube-controller-manager
//! ebb::…           the same cases under ebb
//! together::…      random sequences under one and then the other; what ebb does in observe mode, and under faults; the calls of a node's agent
//! ```
//! One control plane serves all; only one collector runs at a time, and each case has a namespace of its own.
//! Run by `cargo xtask cluster`, which makes the programs; words behind `--` choose cases and options as usual.
mod deploy;
mod faults;
mod graphs;
mod kinds;
mod monitoring;
mod node_calls;
mod observe;
mod owners;
mod pods;
mod random;
mod sequence;
mod session;
mod shrink;
mod state;
mod world;

use anyhow::Result;
use ebb_cluster_tests::ASSETS;
use ebb_cluster_tests::collector::Collector;
use libtest_mimic::{Arguments, Trial};
use session::Session;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;
use world::World;

/// A case: its name is a claim, and it holds under both collectors.
type Case = (&'static str, fn(&World) -> Result<()>);
/// A test that runs collectors as it needs them.
type Alone = (&'static str, fn(&Session) -> Result<()>);

/// Cases wait far more than they work.
const THREADS: usize = 8;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    let Some(assets) = std::env::var_os(ASSETS) else {
        if !arguments.list {
            eprintln!("run by: cargo xtask cluster");
        }
        return libtest_mimic::run(&arguments, vec![]).exit_code();
    };
    let session = Arc::new(Session::new(assets.into()));
    let has_kcm = session.has_kcm();
    if !has_kcm {
        eprintln!("ignored is what needs kube-controller-manager: there is none in {ASSETS}");
    }
    // What takes long begins first.
    let cases: Vec<Case> = pods::CASES.into_iter().chain(owners::CASES).collect();
    arguments.test_threads.get_or_insert(THREADS);
    let mut failed = false;
    for (prefix, collector) in [("kcm", Collector::Kcm), ("ebb", Collector::Ebb)] {
        let is_ignored = collector == Collector::Kcm && !has_kcm;
        let trial = |&(name, run): &Case| {
            let session = Arc::clone(&session);
            Trial::test(format!("{prefix}::{name}"), move || {
                Ok(World::play(&session, collector, run).map_err(said)?)
            })
            .with_ignored_flag(is_ignored)
        };
        failed |= libtest_mimic::run(&arguments, cases.iter().map(trial).collect()).has_failed();
    }
    let mut alone: Vec<(Alone, bool)> = vec![(random::TEST, !has_kcm)];
    alone.push((graphs::TEST, false));
    alone.push((pods::LIMITS, false));
    alone.extend(observe::TESTS.map(|test| (test, false)));
    alone.extend(node_calls::TESTS.map(|test| (test, false)));
    alone.extend(deploy::TESTS.map(|test| (test, false)));
    alone.extend(faults::TESTS.map(|test| (test, false)));
    let trial = |((name, run), is_ignored): (Alone, bool)| {
        let session = Arc::clone(&session);
        Trial::test(format!("together::{name}"), move || {
            let begun = Instant::now();
            let result = run(&session).map_err(said);
            eprintln!("{name}: {} s", begun.elapsed().as_secs());
            Ok(result?)
        })
        .with_ignored_flag(is_ignored)
    };
    // Each has the cluster for itself.
    arguments.test_threads = Some(1);
    failed |= libtest_mimic::run(&arguments, alone.into_iter().map(trial).collect()).has_failed();
    if let Err(error) = session.end() {
        eprintln!("{error:#}");
        failed = true;
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn said(error: anyhow::Error) -> String {
    format!("{error:#}")
}
