//! The tests, one file per family.
pub(crate) mod kernel;
