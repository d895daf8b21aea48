//! Actors that hold or take memory.
use super::ready;
use anyhow::Result;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

/// Hold `mib` MiB resident and do nothing.
pub(super) fn idle(mib: u64) -> Result<()> {
    let mut held = Vec::new();
    for _ in 0..mib {
        held.push(vec![1_u8; MIB]);
    }
    ready();
    park(&held)
}

/// Take memory for ever at `rate` MiB/s; 0 is as fast as it goes.
pub(super) fn hog(rate: u64) -> Result<()> {
    let mut held = Vec::new();
    ready();
    let began = Instant::now();
    for taken in 1_u64.. {
        held.push(vec![1_u8; MIB]);
        if let Some(nanos) = (taken * 1_000_000_000).checked_div(rate) {
            let due = Duration::from_nanos(nanos);
            std::thread::sleep(due.saturating_sub(began.elapsed()));
        }
    }
    park(&held)
}

/// Keep what is held until somebody ends us.
fn park(held: &[Vec<u8>]) -> ! {
    loop {
        std::hint::black_box(held);
        std::thread::park();
    }
}
