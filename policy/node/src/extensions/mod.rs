//! Beyond the kubelet: growth and trends, who fills a disk, forecasts, memory pressure of single cgroups. All of it optional.
pub(crate) mod attribution;
pub(crate) mod fill;
pub(crate) mod forecast;
pub(crate) mod growth;
pub(crate) mod memory_pressure;
