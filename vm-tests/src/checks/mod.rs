//! The tests, one file per family.
pub(crate) mod attribution;
pub(crate) mod kernel;
pub(crate) mod programs;
