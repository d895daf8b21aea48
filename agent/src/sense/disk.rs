//! The node's filesystems: how much of each is left, in bytes and in inodes, and which of them are one and the same.
//!
//! ```text
//!  loop ──read now──► thread ebb-disk ──statfs of each place──► DiskReading ──► loop
//! ```
//! A filesystem that has stopped answering (a network mount, a dying disk) blocks whoever asks it, so the loop never asks: [`start`] gives it a thread that does.
//! Which threshold that means something for is decided elsewhere.

use super::pod_dirs::{PodName, PodRoots, PodSizes};
use crate::clock::Boot;
use nix::sys::stat::stat;
use nix::sys::statvfs::statvfs;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use tokio::sync::mpsc::Sender;

/// A directory on each filesystem that matters. What is `None` is not known (yet).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// The kubelet's root directory, or what stands for it.
    pub node: PathBuf,
    /// The image store.
    pub images: Option<PathBuf>,
    /// The containers' writable layers, where the runtime tells them apart from the images.
    pub layers: Option<PathBuf>,
}

/// One filesystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsReading {
    /// Device number: two places with the same one are on the same filesystem.
    pub device: u64,
    /// Bytes free to unprivileged users.
    pub available: u64,
    /// Bytes in total.
    pub capacity: u64,
    /// Inodes free; `None` where the filesystem makes them as it goes (btrfs).
    pub inodes_free: Option<u64>,
    /// Inodes in total, with the same exception.
    pub inodes: Option<u64>,
}

/// What one reading found. A place that could not be read has its error as text, once for each reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskReading {
    /// When it was taken.
    pub at: Boot,
    /// What was asked about.
    pub places: Places,
    /// The filesystem of [`Places::node`].
    pub node: Result<FsReading, String>,
    /// The filesystem of [`Places::images`]; `None` without such a place.
    pub images: Option<Result<FsReading, String>>,
    /// The filesystem of [`Places::layers`]; `None` without such a place.
    pub layers: Option<Result<FsReading, String>>,
    /// What pods' directories take up, by UID; `None` when that was not asked for.
    pub pods: Option<BTreeMap<String, PodSizes>>,
}

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// The filesystems.
    pub places: Places,
    /// Pods whose directories are to be looked at; `None` for none.
    pub pods: Option<(PodRoots, Vec<PodName>)>,
}

impl DiskReading {
    /// Reads every place.
    ///
    /// May block for as long as a filesystem does.
    #[must_use]
    pub fn of(places: &Places) -> Self {
        let read = |path: &Path| {
            FsReading::of(path).map_err(|error| format!("{}: {error}", path.display()))
        };
        Self {
            at: Boot::now(),
            node: read(&places.node),
            images: places.images.as_deref().map(read),
            layers: places.layers.as_deref().map(read),
            places: places.clone(),
            pods: None,
        }
    }

    /// Reads everything that is asked for.
    ///
    /// May block for as long as a filesystem does.
    #[must_use]
    pub fn asked(asked: &Asked) -> Self {
        let pods = asked.pods.as_ref().map(|(roots, pods)| roots.measure(pods));
        Self { pods, ..Self::of(&asked.places) }
    }
}

impl FsReading {
    /// The filesystem that holds `path`.
    ///
    /// # Errors
    /// What the kernel says when it cannot be asked.
    pub fn of(path: &Path) -> io::Result<Self> {
        let fs = statvfs(path)?;
        let fragment = fs.fragment_size();
        let inodes = (fs.files() > 0).then(|| fs.files());
        Ok(Self {
            device: stat(path)?.st_dev,
            available: fs.blocks_available().saturating_mul(fragment),
            capacity: fs.blocks().saturating_mul(fragment),
            inodes_free: inodes.map(|_| fs.files_available()),
            inodes,
        })
    }
}

/// The way to ask for a reading.
#[derive(Clone, Debug)]
pub struct Ask(SyncSender<Asked>);

impl Ask {
    /// Asks for a reading; returns whether the thread will take it up (it does not while it is stuck in an earlier one).
    #[must_use]
    pub fn read(&self, asked: Asked) -> bool {
        self.0.try_send(asked).is_ok()
    }
}

/// Starts the thread; it ends when the last [`Ask`] is dropped.
///
/// # Errors
/// When no thread can be made.
pub fn start(readings: Sender<DiskReading>) -> io::Result<Ask> {
    let (ask, asked): (_, Receiver<Asked>) = sync_channel(1);
    crate::threads::spawn("ebb-disk", move || {
        while let Ok(asked) = asked.recv() {
            if readings.blocking_send(DiskReading::asked(&asked)).is_err() {
                return;
            }
        }
    })?;
    Ok(Ask(ask))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_directories_of_one_filesystem_have_one_device_and_more_capacity_than_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let sub = dir.path().join("images");
        std::fs::create_dir(&sub).unwrap();
        let places = Places { node: dir.path().into(), images: Some(sub), layers: None };
        let reading = DiskReading::of(&places);
        let (node, images) = (reading.node.unwrap(), reading.images.unwrap().unwrap());
        assert_eq!(node.device, images.device);
        assert!(node.available > 0 && node.available <= node.capacity);
        assert_eq!(reading.layers, None);
    }

    #[test]
    fn proc_is_another_filesystem() {
        let proc = FsReading::of(Path::new("/proc")).unwrap();
        let here = FsReading::of(Path::new(".")).unwrap();
        assert_ne!(proc.device, here.device);
    }

    #[test]
    fn a_place_that_is_not_there_is_an_error_that_names_it() {
        let places = Places { node: "/nowhere/at/all".into(), images: None, layers: None };
        let error = DiskReading::of(&places).node.unwrap_err();
        assert!(error.starts_with("/nowhere/at/all: "), "{error}");
    }

    #[tokio::test]
    async fn the_thread_answers_and_ends_with_its_last_asker() {
        let (send, mut readings) = tokio::sync::mpsc::channel(4);
        let ask = start(send).unwrap();
        assert!(
            ask.read(Asked {
                places: Places { node: "/".into(), ..Places::default() },
                pods: None
            })
        );
        assert!(readings.recv().await.unwrap().node.is_ok());
        drop(ask);
        assert!(readings.recv().await.is_none());
    }
}
