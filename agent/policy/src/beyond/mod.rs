//! Beyond the kubelet: growth and trends, forecasts, and steps below ending a workload. All of it optional.
pub(crate) mod blame;
pub(crate) mod forecast;
pub(crate) mod growth;
pub(crate) mod ladder;
