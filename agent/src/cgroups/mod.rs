//! The cgroups of pods: what they should say, what they say, and bringing the one to the other.
//!
//! ```text
//!  manifests ─┐
//!  node  ─────┼─► ebb_policy::cgroups::plan ─► Plan ─┐
//!  config ────┘                                      ├─► compare ─► differences ─► order ─► writes
//!  live (the tree as it is) ─────────────────────────┘
//! ```
//! [`node`] reads what there is, [`pods::sources`](crate::pods::sources) says which pods there are, [`live`] reads the tree, [`watch`] notices changes to it; none of them writes.
//! [`mod@write`] writes values, [`systemd`] tells units of them, [`orphans`] removes what no pod belongs to; none of them chooses.
//! [`enforce`] is one round of it all, [`reconciler`] the thread that goes round for as long as `ebb run` does: `reconcile` is what it does, `scope` what woke it.
//! `beneath` is the only one that opens a cgroup's directory or file: the kernel resolves every path below the mount.
//! Everything is decided in `ebb-policy`.

pub mod beneath;
mod cleanup;
pub mod detect;
pub mod enforce;
pub mod live;
pub mod node;
pub mod orphans;
mod reconcile;
pub mod reconciler;
mod scope;
pub mod systemd;
mod v1;
pub mod watch;
pub mod write;

/// An error with what is behind it.
#[must_use]
pub fn chain(error: &write::NotWritten) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
