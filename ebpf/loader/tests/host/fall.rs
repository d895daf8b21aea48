//! The watch for falls of available memory, on this kernel.
use ebb_probes::{FallWatch, Gauge, survey};
use libtest_mimic::Failed;
use std::time::Duration;

const MIB: usize = 1 << 20;
/// More than others are likely to give back at the same moment.
const TAKEN: usize = 256 * MIB;
const FALL: u64 = 64 << 20;
/// What the kernel assumes that is taken: looks are as close as they get.
const PER_SECOND: u64 = 1 << 40;
const LONG: Duration = Duration::from_secs(60);

/// Who waits is woken once memory is taken, and not a second time.
pub(crate) fn wakes() -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut watch = FallWatch::open(&survey())?;
        let gauge = Gauge { free: 1, ..Gauge::default() };
        // Somebody else may take memory before this does: then it is watched again.
        for _ in 0..10 {
            if !watch.watch(gauge, FALL, PER_SECOND, LONG)? {
                return Err("the counters cannot be read".into());
            }
            let is_early = tokio::time::timeout(Duration::from_millis(20), watch.fallen()).await;
            if is_early.is_ok() {
                continue;
            }
            let taken = vec![1_u8; TAKEN];
            let told = tokio::time::timeout(LONG, watch.fallen()).await;
            told.map_err(|_| "memory was taken, and nobody was woken")??;
            drop(taken);
            let again = tokio::time::timeout(Duration::from_millis(50), watch.fallen()).await;
            return if again.is_ok() { Err("it is told twice".into()) } else { Ok(()) };
        }
        Err("this machine has no rest".into())
    })
}

/// What is watched for a while is not told of after it.
pub(crate) fn ends() -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut watch = FallWatch::open(&survey())?;
        let gauge = Gauge { free: 1, ..Gauge::default() };
        watch.watch(gauge, FALL, PER_SECOND, Duration::ZERO)?;
        let taken = vec![1_u8; TAKEN];
        let told = tokio::time::timeout(Duration::from_millis(300), watch.fallen()).await;
        drop(taken);
        if told.is_ok() { Err("its time was over".into()) } else { Ok(()) }
    })
}
