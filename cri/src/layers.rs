//! What images are really made of on disk, from containerd's own stores.
//!
//! ```text
//! names ─► targets ─► content ──labels──► content, snapshots ──parents──► snapshots
//!            what an image keeps alive is what containerd's garbage collector would follow from it
//! ```
//! containerd marks every reference with a label, because its collector needs to know; following the same labels gives
//! the same answer as the collector will, without reading a single manifest. Other runtimes do not tell.

mod read;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use read::{Cache, NAMESPACE, read};

/// What a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PieceKind {
    /// A blob as it was pulled: a compressed layer, a configuration, a manifest. What must be pulled again.
    Content,
    /// An unpacked layer.
    Snapshot,
}

/// Something on disk that exists once, however many images need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Digest of content, chain id of a snapshot.
    pub id: String,
    /// What it is.
    pub kind: PieceKind,
    /// Bytes on disk.
    pub bytes: u64,
    /// Inodes.
    pub inodes: u64,
}

/// All pieces, and who needs them. Pieces are named by their index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layers {
    /// Every piece, in the order of kind and id.
    pub pieces: Vec<Piece>,
    /// By image id: the pieces it needs, ascending.
    pub images: BTreeMap<String, Vec<usize>>,
    /// Pieces that stay whatever images go: below a container, or needed by something that is not one of the images.
    pub held: BTreeSet<usize>,
}

impl Layers {
    /// Bytes and inodes that would be free if exactly these images went. An image that is not known frees nothing.
    #[must_use]
    pub fn freed_by<'a>(&self, images: impl IntoIterator<Item = &'a str>) -> (u64, u64) {
        let gone: BTreeSet<&str> = images.into_iter().collect();
        let mut kept = self.held.clone();
        let stay = self.images.iter().filter(|(id, _)| !gone.contains(id.as_str()));
        kept.extend(stay.flat_map(|(_, pieces)| pieces.iter().copied()));
        let leave = gone.iter().filter_map(|id| self.images.get(*id)).flatten();
        let freed: BTreeSet<usize> = leave.copied().filter(|piece| !kept.contains(piece)).collect();
        freed
            .iter()
            .filter_map(|&piece| self.pieces.get(piece))
            .fold((0, 0), |sum, piece| (sum.0 + piece.bytes, sum.1 + piece.inodes))
    }

    /// Bytes on disk of everything the image needs, shared or not; `None` when it is not known.
    #[must_use]
    pub fn total(&self, image: &str) -> Option<u64> {
        let pieces = self.images.get(image)?;
        Some(pieces.iter().filter_map(|&p| self.pieces.get(p)).map(|piece| piece.bytes).sum())
    }
}

/// What the stores say, before it is put together.
#[derive(Debug, Default)]
struct Stores {
    /// Name of an image to the digest it points to.
    names: BTreeMap<String, String>,
    /// Digest to what is there.
    content: BTreeMap<String, Blob>,
    /// Snapshotter and key to what is there.
    snapshots: BTreeMap<(String, String), Snapshot>,
}

#[derive(Debug, Default)]
struct Blob {
    bytes: u64,
    /// Digests.
    content: Vec<String>,
    /// Snapshotter and key.
    snapshots: Vec<(String, String)>,
    is_root: bool,
}

#[derive(Debug, Default)]
struct Snapshot {
    parent: Option<String>,
    is_committed: bool,
    is_root: bool,
    bytes: u64,
    inodes: u64,
}

/// A piece in the making.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Content(String),
    Snapshot(String, String),
}

impl Stores {
    fn put_together(self) -> Layers {
        let mut index = BTreeMap::new();
        let mut pieces = Vec::new();
        for (digest, blob) in &self.content {
            index.insert(Key::Content(digest.clone()), pieces.len());
            let (id, kind) = (digest.clone(), PieceKind::Content);
            pieces.push(Piece { id, kind, bytes: blob.bytes, inodes: 1 });
        }
        // A snapshot that is written to belongs to a container, not to an image.
        for ((snapshotter, key), snapshot) in &self.snapshots {
            if snapshot.is_committed {
                index.insert(Key::Snapshot(snapshotter.clone(), key.clone()), pieces.len());
                let Snapshot { bytes, inodes, .. } = *snapshot;
                pieces.push(Piece { id: key.clone(), kind: PieceKind::Snapshot, bytes, inodes });
            }
        }
        let indices = |keys: BTreeSet<Key>| -> BTreeSet<usize> {
            keys.iter().filter_map(|key| index.get(key)).copied().collect()
        };

        // Names of the form of a digest are the ids that CRI gives to images.
        let ids: Vec<&String> = self.names.keys().filter(|n| n.starts_with("sha256:")).collect();
        let mut images: BTreeMap<String, BTreeSet<usize>> =
            ids.iter().map(|id| ((*id).clone(), BTreeSet::new())).collect();
        let mut held = BTreeSet::new();
        for target in self.names.values().collect::<BTreeSet<_>>() {
            let keys = self.needed_by([Key::Content(target.clone())]);
            // An id is the digest of a configuration, which each of the image's names leads to.
            let mut owners = ids.iter().filter(|id| keys.contains(&Key::Content((**id).clone())));
            let owner = owners.next().and_then(|id| images.get_mut(*id));
            owner.unwrap_or(&mut held).extend(indices(keys.clone()));
            for id in owners {
                images.entry((*id).clone()).or_default().extend(indices(keys.clone()));
            }
        }
        let roots = self.content.iter().filter(|(_, blob)| blob.is_root);
        let roots = roots.map(|(digest, _)| Key::Content(digest.clone()));
        let used = self.snapshots.iter().filter(|(_, s)| s.is_root || !s.is_committed);
        let used =
            used.map(|((snapshotter, key), _)| Key::Snapshot(snapshotter.clone(), key.clone()));
        held.extend(indices(self.needed_by(roots.chain(used))));
        let images = images.into_iter().map(|(id, set)| (id, set.into_iter().collect())).collect();
        Layers { pieces, images, held }
    }

    /// Everything that can be reached from these, themselves included, whether or not it is there.
    fn needed_by(&self, from: impl IntoIterator<Item = Key>) -> BTreeSet<Key> {
        let mut seen = BTreeSet::new();
        let mut open: Vec<Key> = from.into_iter().collect();
        while let Some(key) = open.pop() {
            if !seen.insert(key.clone()) {
                continue;
            }
            match key {
                Key::Content(digest) => {
                    if let Some(blob) = self.content.get(&digest) {
                        open.extend(blob.content.iter().cloned().map(Key::Content));
                        let snapshots = blob.snapshots.iter().cloned();
                        open.extend(snapshots.map(|(name, key)| Key::Snapshot(name, key)));
                    }
                }
                Key::Snapshot(name, id) => {
                    let found = self.snapshots.get(&(name.clone(), id));
                    let parent = found.and_then(|snapshot| snapshot.parent.clone());
                    open.extend(parent.map(|parent| Key::Snapshot(name, parent)));
                }
            }
        }
        seen
    }
}

#[cfg(test)]
mod tests;
