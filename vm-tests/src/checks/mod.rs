//! The tests, one file per family.
pub(crate) mod attribution;
pub(crate) mod collection;
pub(crate) mod demo;
pub(crate) mod edges;
pub(crate) mod enforcement;
pub(crate) mod eviction;
pub(crate) mod innocence;
pub(crate) mod keeping;
pub(crate) mod kernel;
pub(crate) mod leaks;
pub(crate) mod pressure;
pub(crate) mod programs;
pub(crate) mod reflex;
pub(crate) mod runtime;
pub(crate) mod runtime_pods;
pub(crate) mod sweep;
