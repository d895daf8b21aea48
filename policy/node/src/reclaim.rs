//! What can be reclaimed on the node itself before a workload is ended, by signal and layout.
use crate::{Signal, limits::Quirks, signal::Resource, snapshot::FsLayout};

/// What to remove before a workload is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reclaim {
    /// All dead containers.
    pub(crate) containers: bool,
    /// All unused images.
    pub(crate) images: bool,
}

pub(crate) fn for_signal(signal: Signal, layout: FsLayout, quirks: &Quirks) -> Reclaim {
    let image = matches!(signal, Signal::ImageFsAvailable | Signal::ImageFsInodesFree);
    let node = matches!(signal, Signal::NodeFsAvailable | Signal::NodeFsInodesFree);
    if matches!(signal.resource(), Resource::Memory | Resource::Pids) {
        return Reclaim { containers: false, images: false };
    }
    match layout {
        FsLayout::Single => Reclaim { containers: true, images: true },
        FsLayout::DedicatedImageFs if node => {
            Reclaim { containers: !quirks.no_reclaim_for_node_fs, images: false }
        }
        FsLayout::DedicatedImageFs => Reclaim { containers: true, images: true },
        FsLayout::SplitImageFs => Reclaim { containers: !image, images: image },
    }
}
