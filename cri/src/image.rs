//! Images as a runtime lists them.

use crate::wire::runtime as v1;

/// An image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Id: the digest of its configuration. Removing by id removes all its names.
    pub id: String,
    /// Names with a tag; may be empty.
    pub tags: Vec<String>,
    /// Names with a digest; may be empty.
    pub digests: Vec<String>,
    /// Size as the runtime gives it, bytes. What that measures differs: containerd counts compressed blobs, CRI-O
    /// unpacked layers; both count a shared layer in every image.
    pub bytes: u64,
    /// Pinned by the runtime: nobody should remove it, though the runtime itself will when asked to.
    pub pinned: bool,
    /// Runtime handler, from runtimes that keep images for each.
    pub runtime_handler: Option<String>,
}

impl Image {
    pub(crate) fn new(from: v1::Image) -> Self {
        let handler = from.spec.map(|spec| spec.runtime_handler);
        Self {
            id: from.id,
            tags: from.repo_tags,
            digests: from.repo_digests,
            bytes: from.size,
            pinned: from.pinned,
            runtime_handler: handler.filter(|name| !name.is_empty()),
        }
    }

    /// Whether a name means this image: its id with or without the algorithm, a tag, or a digest.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        if name.is_empty() {
            return false;
        }
        let bare = |id: &str| id.strip_prefix("sha256:").unwrap_or(id).to_owned();
        bare(&self.id) == bare(name) || self.tags.iter().chain(&self.digests).any(|own| own == name)
    }
}
