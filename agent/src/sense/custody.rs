//! Whose word a cgroup's name and attributes are: the administrator's, or that of somebody whom a part of the tree was handed to.
//!
//! ```text
//!  /  ─ system.slice ─ web.service                    named and marked by the administrator
//!  /  ─ user.slice ─ user-1000.slice ─ user@1000.service ─ kubelet.service     named by user 1000
//!  /  ─ system.slice ─ docker-ID.scope ─ init.scope   named by what runs in the container
//! ```
//! The administrator is the owner of the cgroup mount: root on a node.
//! A directory hands over everything below it when it belongs to somebody else, when systemd has marked it as delegated
//! (`trusted.delegate`, `user.delegate`), when it is a user's manager (`user@UID.service`), or when it is a container's.
//! What cannot be looked at counts as handed over: a name or a mark that nobody vouches for protects nobody.

use super::tree::{container_id, pod_uid};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Who stands behind one cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Custody {
    /// How many names of its path, from the root, were given by the administrator.
    named: usize,
    /// How many names its path has.
    length: usize,
    /// UID of the pod that it belongs to, if the administrator named that pod's cgroup.
    pod: Option<String>,
    /// It is a container's cgroup or lies in one.
    in_container: bool,
    /// It and every cgroup above belong to the administrator, and none above was handed over.
    is_owned: bool,
    /// It is a scope that systemd has delegated: its marks can be written by what runs in it.
    is_delegated_scope: bool,
}

impl Custody {
    /// Looks at the cgroup at `path` below the mount `root`, and at all above it: two system calls for each, and more where there are attributes.
    #[must_use]
    pub fn of(root: &Path, path: &Path) -> Self {
        let owner = |at: &Path| std::fs::symlink_metadata(at).ok().map(|dir| dir.uid());
        let administrator = owner(root);
        let mut custody = Self { is_owned: administrator.is_some(), ..Self::default() };
        let mut handed_over = administrator.is_none();
        let mut in_pod = false;
        let mut at = root.to_owned();
        for name in path {
            at.push(name);
            custody.length += 1;
            custody.is_owned &= !handed_over && owner(&at) == administrator;
            if handed_over {
                continue;
            }
            custody.named += 1;
            let is_container = in_pod || has_container_id(name);
            custody.in_container |= is_container;
            in_pod = false;
            if let Some(uid) = pod_uid(name.as_bytes()) {
                custody.pod = Some(uid);
                in_pod = true;
            }
            let is_delegated = is_delegated(&at, name);
            custody.is_delegated_scope = is_delegated && name.as_bytes().ends_with(b".scope");
            handed_over = is_container || is_delegated || !custody.is_owned;
        }
        custody
    }

    /// Whether every name of its path was given by the administrator.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.named == self.length
    }

    /// The leading part of `path`, for which this was made, that the administrator named.
    #[must_use]
    pub fn named_part(&self, path: &Path) -> PathBuf {
        path.iter().take(self.named).collect()
    }

    /// UID of the pod that it belongs to, if the administrator named that pod's cgroup.
    #[must_use]
    pub fn pod(&self) -> Option<&str> {
        self.pod.as_deref()
    }

    /// Whether `user.*` attributes of its directory count: whoever owns a cgroup writes them, and so does root in a container to whom it was delegated.
    #[must_use]
    pub fn vouches_for_marks(&self) -> bool {
        self.is_owned && !self.in_container && !self.is_delegated_scope
    }

    /// Whether daemons of the node may live here: not below a pod, a container, a user's session or anything delegated.
    #[must_use]
    pub fn is_for_daemons(&self, path: &Path) -> bool {
        self.is_owned && self.pod.is_none() && !self.in_container && !path.starts_with("user.slice")
    }

    /// Whether the kubelet or the runtime made it directly below a pod's cgroup, as each container and each sandbox is.
    #[must_use]
    pub fn is_made_for_a_pod(&self) -> bool {
        self.is_owned && self.pod.is_some() && self.in_container && self.is_named()
    }
}

fn has_container_id(name: &OsStr) -> bool {
    container_id(Path::new(name)).is_some()
}

/// Whether a tree is delegated to what runs in it, as systemd says; a user's manager is known by its name too.
fn is_delegated(at: &Path, name: &OsStr) -> bool {
    let marks = Marks::of(at);
    name.as_bytes().starts_with(b"user@")
        || marks.has("user.delegate")
        || marks.has("trusted.delegate")
}

/// The extended attributes of a cgroup's directory that say yes: those whose value is `1`.
#[derive(Debug)]
pub struct Marks<'a> {
    at: &'a Path,
    /// Names of all attributes, asked for once since most cgroups have none; `None` when they could not be listed.
    names: Option<Vec<OsString>>,
}

impl<'a> Marks<'a> {
    /// Looks at the directory `at`.
    #[must_use]
    pub fn of(at: &'a Path) -> Self {
        Self { at, names: xattr::list(at).ok().map(Iterator::collect) }
    }

    /// Whether the attribute `name` is there and says yes.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        let may_be_there =
            self.names.as_ref().is_none_or(|names| names.iter().any(|there| there == name));
        may_be_there && xattr::get(self.at, name).is_ok_and(|v| v.as_deref() == Some(b"1"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    const POD: &str = "pod5a0b9c1e-1111-2222-3333-444455556666";

    fn custody(path: &str) -> Custody {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join(path)).unwrap();
        Custody::of(root.path(), Path::new(path))
    }

    #[test]
    fn what_lies_below_a_users_manager_or_in_a_container_is_named_by_whoever_runs_there() {
        for path in [
            "user.slice/user-1000.slice/user@1000.service/kubelet.service".to_owned(),
            format!("system.slice/docker-{ID}.scope/init.scope"),
            format!("kubepods/{POD}/{ID}/kubelet.service"),
            format!("kubepods/{POD}/c1/kubelet.service"),
        ] {
            let custody = custody(&path);
            assert!(!custody.is_named(), "{path}");
            assert!(!custody.vouches_for_marks() && !custody.is_for_daemons(Path::new(&path)));
        }
        for path in ["system.slice/web.service", "user.slice/user-1000.slice/user@1000.service"] {
            assert!(custody(path).is_named(), "{path}");
        }
    }

    #[test]
    fn a_pods_cgroup_in_a_tree_that_somebody_else_names_is_no_pods() {
        let real = format!("kubepods/{POD}/{ID}");
        assert_eq!(custody(&real).pod(), POD.strip_prefix("pod"));
        assert!(custody(&real).is_made_for_a_pod());
        assert_eq!(custody(&format!("user@7.service/{real}")).pod(), None);
        assert!(!custody(&format!("{real}/{ID}")).is_made_for_a_pod(), "it is in the container");
    }

    #[test]
    fn a_directory_that_belongs_to_somebody_else_hands_over_what_is_below_it() {
        if !nix::unistd::geteuid().is_root() {
            // Only root can give a directory away; the guest test does it on a real tree.
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let given = root.path().join("apps/given");
        std::fs::create_dir_all(given.join("kubelet.service")).unwrap();
        std::os::unix::fs::chown(&given, Some(1000), None).unwrap();
        let at = |path: &str| Custody::of(root.path(), Path::new(path));
        assert!(at("apps/given").is_named() && !at("apps/given").vouches_for_marks());
        assert!(!at("apps/given/kubelet.service").is_named());
        assert!(at("apps").vouches_for_marks());
    }

    #[test]
    fn what_cannot_be_looked_at_is_nobodys_word() {
        let custody = Custody::of(Path::new("/nonexistent"), Path::new("a/b"));
        assert!(!custody.is_named() && !custody.vouches_for_marks());
    }
}
