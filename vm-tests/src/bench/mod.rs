//! Measurements of the agent beside its peers, in guests that run nothing else.

mod peers;

pub(crate) mod idle;
pub(crate) mod observers;
pub(crate) mod programs;
pub(crate) mod race;
pub(crate) mod reflex;
pub(crate) mod sweep;
