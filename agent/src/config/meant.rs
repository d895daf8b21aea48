//! A mistake that policy found, with its line and what was probably meant.
use super::{Mistake, section, source::line_of, tree::Placed};
use ebb_policy::{Signal, limits::ConfigError};

/// With its line, and the signal that was probably meant.
pub(super) fn placed(root: &Placed, error: ConfigError) -> Mistake {
    Mistake { line: line_of(root, &error.key), error: with_nearest_signal(error) }
}

/// Says which signal was probably meant, where the policy crate only knows that there is none of that name.
fn with_nearest_signal(error: ConfigError) -> ConfigError {
    let written = error.key.split_once("[\"").map(|(_, name)| name.trim_end_matches("\"]"));
    let meant = written.filter(|_| error.problem.starts_with("unknown eviction signal"));
    let nearest = meant.and_then(|name| {
        other_name(name).or_else(|| section::nearest(name, Signal::ALL.map(Signal::name)))
    });
    match nearest {
        Some(signal) => {
            ConfigError { fix: format!("did you mean {signal}? {}", error.fix), ..error }
        }
        None => error,
    }
}

/// The signal that goes by another name elsewhere, such as `disk.available`.
fn other_name(written: &str) -> Option<&'static str> {
    let written = written.to_lowercase();
    let subject = written.split(['.', '_', '-']).next().unwrap_or_default();
    let (bytes, inodes) = match subject {
        "disk" | "fs" | "filesystem" | "rootfs" | "root" | "storage" | "ephemeral" | "inodes"
        | "inode" => (Signal::NodeFsAvailable, Signal::NodeFsInodesFree),
        "image" | "images" => (Signal::ImageFsAvailable, Signal::ImageFsInodesFree),
        "container" | "containers" => (Signal::ContainerFsAvailable, Signal::ContainerFsInodesFree),
        "swap" | "zram" | "zswap" => (Signal::SwapAvailable, Signal::SwapAvailable),
        "mem" | "ram" => (Signal::MemoryAvailable, Signal::MemoryAvailable),
        "pids" | "process" | "processes" | "task" | "tasks" | "threads" => {
            (Signal::PidAvailable, Signal::PidAvailable)
        }
        _ => return None,
    };
    Some(if written.contains("inode") { inodes } else { bytes }.name())
}
