//! Amounts as people read them.

use ebb_policy::Signal;

/// An amount in the unit of its signal.
#[must_use]
pub fn amount(signal: Signal, value: u64) -> String {
    if is_in_bytes(signal) { bytes(value) } else { value.to_string() }
}

/// Whether a number of this signal counts bytes; else it counts task ids or inodes.
#[must_use]
pub fn is_in_bytes(signal: Signal) -> bool {
    !matches!(
        signal,
        Signal::PidAvailable
            | Signal::NodeFsInodesFree
            | Signal::ImageFsInodesFree
            | Signal::ContainerFsInodesFree
    )
}

/// Bytes with a unit of 1024, to one decimal.
#[must_use]
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut shown = value as f64;
    while shown >= 1024.0 && unit + 1 < UNITS.len() {
        shown /= 1024.0;
        unit += 1;
    }
    let name = UNITS.get(unit).copied().unwrap_or_default();
    if unit == 0 { format!("{value} {name}") } else { format!("{shown:.1} {name}") }
}
