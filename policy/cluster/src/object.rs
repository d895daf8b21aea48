//! Objects as the collector is told of them: their metadata, and nothing of their content.
//!
//! Text becomes a [`Uid`] and a [`Kind`] here; how the graph keeps them is in `graph`.

use alloc::borrow::ToOwned as _;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// The finalizer by which the API server asks that dependents lose their reference before the owner goes.
pub const ORPHAN_FINALIZER: &str = "orphan";
/// The finalizer by which the API server asks that blocking dependents go before the owner.
pub const FOREGROUND_FINALIZER: &str = "foregroundDeletion";

/// Milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Time(pub u64);

/// What names an object for all time: 16 bytes where the text is an RFC 4122 UUID in lower case, the text itself otherwise.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(Form);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Form {
    Uuid([u8; 16]),
    Text(Box<str>),
}

/// Where a UUID's text has its hyphens.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

impl Uid {
    /// The uid that `text` spells. Two texts are the same uid only when they are equal, for so the API server compares them.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(uuid(text.as_bytes()).map_or_else(|| Form::Text(text.into()), Form::Uuid))
    }
}

impl Uid {
    /// The bytes, or else the text.
    pub(crate) fn parts(&self) -> Result<&[u8; 16], &str> {
        match &self.0 {
            Form::Uuid(bytes) => Ok(bytes),
            Form::Text(text) => Err(text),
        }
    }
}

/// The bytes of a UUID in its canonical text; upper case is another text, and so none.
fn uuid(text: &[u8]) -> Option<[u8; 16]> {
    if text.len() != 36 {
        return None;
    }
    let mut bytes = [0; 16];
    let mut digits = 0;
    for (at, &c) in text.iter().enumerate() {
        if HYPHENS.contains(&at) {
            if c != b'-' {
                return None;
            }
            continue;
        }
        let value = match c {
            b'0'..=b'9' => c - b'0',
            b'a'..=b'f' => c - b'a' + 10,
            _ => return None,
        };
        bytes[digits / 2] = bytes[digits / 2] << 4 | value;
        digits += 1;
    }
    Some(bytes)
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Text(text) => f.write_str(text),
            Form::Uuid(bytes) => {
                for (at, byte) in bytes.iter().enumerate() {
                    let hyphen = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
                    write!(f, "{hyphen}{byte:02x}")?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A kind in one version of its group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version, as in `v1`.
    pub version: String,
    /// The kind, as in `Pod`.
    pub kind: String,
}

impl Kind {
    /// The kind that `apiVersion` and `kind` name.
    #[must_use]
    pub fn new(api_version: &str, kind: &str) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Self { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

/// One entry of `metadata.ownerReferences`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnerReference {
    /// The owner's kind, as the reference claims.
    pub kind: Kind,
    /// The owner's name, as the reference claims.
    pub name: String,
    /// The owner's uid.
    pub uid: Uid,
    /// Whether the owner is the managing controller.
    pub controller: bool,
    /// Whether a foreground deletion of the owner waits for this object.
    pub block_owner_deletion: bool,
}

/// An object's metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// `metadata.uid`.
    pub uid: Uid,
    /// `apiVersion` and `kind`.
    pub kind: Kind,
    /// `metadata.namespace`; `None` for a cluster-scoped object.
    pub namespace: Option<String>,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.resourceVersion`, which only the API server can order.
    pub resource_version: String,
    /// `metadata.ownerReferences`.
    pub owners: Vec<OwnerReference>,
    /// `metadata.finalizers`.
    pub finalizers: Vec<String>,
    /// `metadata.deletionTimestamp`; `None` while nobody has deleted the object.
    pub deleting_since: Option<Time>,
    /// Whether the label `ebb.dev/hold: "true"` asks that the collector leaves the object as it is.
    pub held: bool,
}

/// How a delete treats dependents: `propagationPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    /// The owner goes at once, its dependents after it.
    Background,
    /// Blocking dependents go first.
    Foreground,
    /// Dependents lose their reference and stay.
    Orphan,
}

#[cfg(test)]
mod tests {
    use super::Uid;
    use alloc::string::ToString as _;

    #[test]
    fn a_uid_reads_back_as_it_was_written_whatever_its_form() {
        for text in [
            "0f6c5a3e-1d2b-4c3d-8e9f-a0b1c2d3e4f5",
            "0F6C5A3E-1D2B-4C3D-8E9F-A0B1C2D3E4F5",
            "u1",
            "",
        ] {
            assert_eq!(Uid::new(text).to_string(), text);
        }
        let lower = Uid::new("0f6c5a3e-1d2b-4c3d-8e9f-a0b1c2d3e4f5");
        assert_ne!(lower, Uid::new("0F6C5A3E-1D2B-4C3D-8E9F-A0B1C2D3E4F5"));
    }
}
