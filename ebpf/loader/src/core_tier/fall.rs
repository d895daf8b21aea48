//! The program that watches for a fall of available memory.
use super::callable::Callable;
use crate::attach::Refusal;
use ebb_wire::FallAsked;
use libbpf_rs::MapHandle;
use std::io;
use zerocopy::IntoBytes as _;

/// Name of the object.
pub(crate) const OBJECT: &str = "fall";

/// The program that begins to watch.
const WATCHES: &str = "fall_watch";

/// A program in the kernel, and the ring by which it tells. Dropping it takes it out.
pub(crate) struct Fall {
    programs: Callable,
    falls: MapHandle,
}

impl Fall {
    pub(crate) fn open() -> Result<Self, Refusal> {
        let programs = Callable::open(OBJECT, |_| true)?;
        Ok(Self { falls: programs.map("FALLS")?, programs })
    }

    /// The ring with a record for each fall.
    pub(crate) fn falls(&self) -> &MapHandle {
        &self.falls
    }

    /// Watch as asked for, in place of what was asked for before; returns the kernel's answer.
    pub(crate) fn watch(&self, asked: &FallAsked) -> io::Result<u32> {
        self.programs.ask(asked.as_bytes(), WATCHES)
    }
}
