//! How the node's filesystems are laid out, from the devices behind them.
use crate::{
    Signal,
    snapshot::{FsLayout, LayoutFacts, Snapshot},
};
use alloc::string::String;

/// The layout in force: the one seen first stays, since a later change of mounts is not noticed.
///
/// An error of the look-up gives up the whole pass; a layout that is merely unknown leaves thresholds on disk unjudged.
pub(crate) fn layout(
    snapshot: &Snapshot,
    remembered: Option<FsLayout>,
) -> Result<Option<FsLayout>, String> {
    if let Some(layout) = remembered.or(snapshot.layout) {
        return Ok(Some(layout));
    }
    match &snapshot.layout_facts {
        None => Ok(None),
        Some(LayoutFacts { error: Some(error), .. }) => Err(error.clone()),
        Some(facts) => Ok(FsLayout::from_facts(facts)),
    }
}

impl FsLayout {
    /// The layout that follows from the devices; `None` when the devices of the kubelet or of the images are unknown.
    pub fn from_facts(facts: &LayoutFacts) -> Option<FsLayout> {
        let (root, image) = (facts.root_device.as_ref()?, facts.image_device.as_ref()?);
        let split = facts.container_device.as_ref().is_some_and(|container| container != image);
        Some(if root == image && !facts.image_stats_differ {
            FsLayout::Single
        } else if split {
            FsLayout::SplitImageFs
        } else {
            FsLayout::DedicatedImageFs
        })
    }

    /// Whether images have a filesystem of their own.
    pub(crate) fn has_image_fs(self) -> bool {
        self != FsLayout::Single
    }
}

/// The kinds of disk usage that count for a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    /// Writable layers.
    pub(crate) rootfs: bool,
    /// Container logs.
    pub(crate) logs: bool,
    /// Local volumes.
    pub(crate) volumes: bool,
}

/// What counts for a signal under a layout; nothing at all for the images' own filesystem when layers are elsewhere.
pub(crate) fn counted(signal: Signal, layout: FsLayout) -> Counted {
    let everything = Counted { rootfs: true, logs: true, volumes: true };
    let nothing = Counted { rootfs: false, logs: false, volumes: false };
    let image = matches!(signal, Signal::ImageFsAvailable | Signal::ImageFsInodesFree);
    let node = matches!(signal, Signal::NodeFsAvailable | Signal::NodeFsInodesFree);
    match layout {
        FsLayout::Single => everything,
        FsLayout::DedicatedImageFs if node => Counted { rootfs: false, ..everything },
        FsLayout::DedicatedImageFs => Counted { rootfs: true, ..nothing },
        FsLayout::SplitImageFs if image => nothing,
        FsLayout::SplitImageFs => everything,
    }
}
