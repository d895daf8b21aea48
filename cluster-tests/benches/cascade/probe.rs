//! A client that has nothing to do with the collector: how long its reads take.
use anyhow::Result;
use ebb_cluster_tests::api::Api;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Between two reads.
const BEAT: Duration = Duration::from_millis(4);
/// What is read: nobody else asks for it.
const PATH: &str = "/api/v1/namespaces/default";

/// What reads took, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Latency {
    pub(crate) p99: f64,
}

/// Reads again and again while `what` is done.
pub(crate) fn during(api: &Api, what: impl FnOnce() -> Result<()>) -> Result<Latency> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let reads = scope.spawn(|| -> Result<Vec<f64>> {
            let mut took = Vec::new();
            while !is_over.load(Ordering::Relaxed) || took.is_empty() {
                let begun = Instant::now();
                api.get(PATH)?;
                took.push(begun.elapsed().as_secs_f64() * 1_000.0);
                thread::sleep(BEAT);
            }
            Ok(took)
        });
        let done = what();
        is_over.store(true, Ordering::Relaxed);
        let reads = reads.join().map_err(|_| anyhow::anyhow!("the reader panicked"))?;
        done?;
        let mut reads = reads?;
        reads.sort_by(f64::total_cmp);
        Ok(Latency { p99: reads[(reads.len() - 1) * 99 / 100] })
    })
}
