//! What was last seen of the node's filesystems, as policy takes it in.

use crate::clock::Clock;
use crate::sense::disk::{DiskReading, FsReading, Places};
use ebb_policy::snapshot::{FsFacts, LayoutFacts};
use ebb_policy::{Signal, Snapshot};
use std::path::PathBuf;

/// The filesystems that are watched, and the last reading of them.
#[derive(Debug, Default)]
pub struct Disk {
    places: Option<Places>,
    reading: Option<DiskReading>,
}

impl Disk {
    /// Says where the kubelet's directory is: from then on filesystems are watched.
    pub fn watch(&mut self, node: PathBuf) {
        self.places = Some(Places { node, ..self.places.take().unwrap_or_default() });
    }

    /// Says where the runtime keeps images, and writable layers if elsewhere.
    /// Returns whether that is new.
    pub fn set_image_store(&mut self, images: PathBuf, layers: Option<PathBuf>) -> bool {
        let Some(places) = &mut self.places else { return false };
        let new = (Some(images), layers);
        let is_new = (&places.images, &places.layers) != (&new.0, &new.1);
        (places.images, places.layers) = new;
        is_new
    }

    /// Where to look; `None` when filesystems are not watched.
    #[must_use]
    pub fn places(&self) -> Option<&Places> {
        self.places.as_ref()
    }

    /// Takes in a reading.
    pub fn observe(&mut self, reading: DiskReading) {
        self.reading = Some(reading);
    }

    /// The last reading.
    #[must_use]
    pub fn reading(&self) -> Option<&DiskReading> {
        self.reading.as_ref()
    }

    /// The last reading with the filesystems of the node, the images and the writable layers in it.
    #[must_use]
    pub fn filesystems(&self) -> Option<(&DiskReading, [Option<&FsReading>; 3])> {
        let reading = self.reading.as_ref()?;
        let (node, images, layers) = filesystems(reading);
        Some((reading, [node, images, layers]))
    }

    /// What is left by a signal on disk; `None` for any other, and for what could not be read.
    #[must_use]
    pub fn available(&self, signal: Signal) -> Option<u64> {
        let reading = self.reading.as_ref()?;
        let (node, images, layers) = filesystems(reading);
        match signal {
            Signal::NodeFsAvailable => Some(node?.available),
            Signal::NodeFsInodesFree => node?.inodes_free,
            Signal::ImageFsAvailable => Some(images?.available),
            Signal::ImageFsInodesFree => images?.inodes_free,
            Signal::ContainerFsAvailable => Some(layers?.available),
            Signal::ContainerFsInodesFree => layers?.inodes_free,
            Signal::MemoryAvailable
            | Signal::AllocatableMemoryAvailable
            | Signal::SwapAvailable
            | Signal::MemoryWithSwapAvailable
            | Signal::PidAvailable => None,
        }
    }

    /// Adds what was read to a snapshot.
    pub fn fill(&self, snapshot: &mut Snapshot, clock: &Clock) {
        let Some(reading) = &self.reading else { return };
        let facts = |fs: &FsReading| FsFacts {
            available: Some(fs.available),
            capacity: Some(fs.capacity),
            inodes_free: fs.inodes_free,
            inodes: fs.inodes,
            observed_at: Some(clock.time(reading.at)),
            fall: None,
        };
        let (node, images, layers) = filesystems(reading);
        snapshot.node.node_fs = node.map(facts);
        snapshot.node.image_fs = images.map(facts);
        snapshot.node.container_fs = layers.map(facts);
        let device = |fs: Option<&FsReading>| fs.map(|fs| fs.device.to_string());
        let told_apart = reading.layers.is_some();
        snapshot.layout_facts = Some(LayoutFacts {
            root_device: device(node),
            image_device: device(images),
            container_device: told_apart.then(|| device(layers)).flatten(),
            image_stats_differ: false,
            error: None,
        });
    }
}

/// The filesystems of the node, the images and the writable layers, which are with the images unless the runtime says otherwise.
fn filesystems(
    reading: &DiskReading,
) -> (Option<&FsReading>, Option<&FsReading>, Option<&FsReading>) {
    let node = reading.node.as_ref().ok();
    let images = reading.images.as_ref().and_then(|fs| fs.as_ref().ok());
    let layers = match &reading.layers {
        Some(layers) => layers.as_ref().ok(),
        None => images,
    };
    (node, images, layers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Boot;
    use ebb_policy::Time;
    use ebb_policy::snapshot::FsLayout;

    fn fs(device: u64, available: u64) -> FsReading {
        FsReading {
            device,
            available,
            capacity: 1000,
            inodes_free: Some(available / 10),
            inodes: Some(100),
        }
    }

    fn seen(images: Option<FsReading>, layers: Option<FsReading>) -> (Disk, Snapshot) {
        let mut disk = Disk::default();
        disk.observe(DiskReading {
            at: Boot(0),
            places: Places::default(),
            node: Ok(fs(1, 400)),
            images: images.map(Ok),
            layers: layers.map(Ok),
            pods: None,
        });
        let mut snapshot = Snapshot::at(Time(0));
        disk.fill(&mut snapshot, &Clock::of_process());
        (disk, snapshot)
    }

    fn layout(snapshot: &Snapshot) -> Option<FsLayout> {
        FsLayout::from_facts(snapshot.layout_facts.as_ref()?)
    }

    #[test]
    fn the_layout_follows_from_the_devices() {
        assert_eq!(layout(&seen(Some(fs(1, 400)), None).1), Some(FsLayout::Single));
        assert_eq!(layout(&seen(Some(fs(2, 90)), None).1), Some(FsLayout::DedicatedImageFs));
        let split = seen(Some(fs(2, 90)), Some(fs(1, 400))).1;
        assert_eq!(layout(&split), Some(FsLayout::SplitImageFs));
    }

    #[test]
    fn without_an_image_store_nothing_is_said_of_it_and_the_layout_is_unknown() {
        let (disk, snapshot) = seen(None, None);
        assert_eq!(layout(&snapshot), None);
        assert_eq!((snapshot.node.image_fs, snapshot.node.container_fs), (None, None));
        assert_eq!(disk.available(Signal::NodeFsAvailable), Some(400));
        assert_eq!(disk.available(Signal::ImageFsAvailable), None);
    }

    #[test]
    fn writable_layers_are_with_the_images_unless_told_apart() {
        let (disk, _) = seen(Some(fs(2, 90)), None);
        assert_eq!(disk.available(Signal::ContainerFsAvailable), Some(90));
        assert_eq!(disk.available(Signal::ContainerFsInodesFree), Some(9));
        let (disk, _) = seen(Some(fs(2, 90)), Some(fs(1, 400)));
        assert_eq!(disk.available(Signal::ContainerFsAvailable), Some(400));
    }
}
