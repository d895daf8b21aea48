//! ebb's policy core: `decide(&Snapshot, &Limits, &History) -> (Plan, History)`.
#![no_std]
extern crate alloc;
