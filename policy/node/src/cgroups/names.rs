//! Names of pod cgroups under the kubelet's two drivers, both ways.
//!
//! ```text
//!  internal      ["kubepods", "burstable", "pod1234-ab"]
//!  cgroupfs      /kubepods/burstable/pod1234-ab
//!  systemd       /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1234_ab.slice
//! ```
//! systemd builds a slice's place from its name, where `-` separates the levels; inside a component it is therefore written `_`.
use crate::snapshot::Qos;
use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};

const SLICE: &str = ".slice";
/// The cgroup of all pods, below the configured root.
pub const KUBEPODS: &str = "kubepods";

/// Who makes cgroups, and how they are named for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "json",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "lowercase")
)]
pub enum Driver {
    /// Directories.
    #[default]
    Cgroupfs,
    /// systemd units.
    Systemd,
}

/// A cgroup by its components below the root of the hierarchy, whatever the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CgroupName(Vec<String>);

impl CgroupName {
    /// The root itself.
    #[must_use]
    pub const fn root() -> CgroupName {
        CgroupName(Vec::new())
    }

    /// The cgroup `component` below this one.
    ///
    /// # Errors
    /// What is wrong with the component: it must be a plain name, and `_` is how systemd names write `-`.
    pub fn child(&self, component: &str) -> Result<CgroupName, &'static str> {
        check(component)?;
        let mut parts = self.0.clone();
        parts.push(component.to_string());
        Ok(CgroupName(parts))
    }

    /// Reads an absolute path of plain names, such as the kubelet's `cgroupRoot`. Here `_` is a letter like any other, as the kubelet takes it.
    ///
    /// # Errors
    /// What is wrong with one of its components.
    pub fn from_path(path: &str) -> Result<CgroupName, &'static str> {
        let parts: Vec<String> =
            path.split('/').filter(|part| !part.is_empty()).map(ToString::to_string).collect();
        parts.iter().try_for_each(|part| plain(part))?;
        Ok(CgroupName(parts))
    }

    /// The path below the cgroup mount, absolute.
    #[must_use]
    pub fn path(&self, driver: Driver) -> String {
        match driver {
            Driver::Cgroupfs => format!("/{}", self.0.join("/")),
            Driver::Systemd => match self.unit() {
                Some(unit) => slice_path(&unit).unwrap_or_default(),
                None => String::from("/"),
            },
        }
    }

    /// The slice's name; the root is no unit that could be named here.
    #[must_use]
    pub fn unit(&self) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let parts: Vec<String> = self.0.iter().map(|part| part.replace('-', "_")).collect();
        Some(parts.join("-") + SLICE)
    }

    /// Undoes [`CgroupName::path`]; `None` for what it cannot have made.
    #[must_use]
    pub fn parse(path: &str, driver: Driver) -> Option<CgroupName> {
        let below = path.strip_prefix('/')?;
        if below.is_empty() {
            return Some(CgroupName::root());
        }
        let name = match driver {
            Driver::Cgroupfs => CgroupName(below.split('/').map(ToString::to_string).collect()),
            Driver::Systemd => {
                let unit = below.rsplit('/').next()?.strip_suffix(SLICE)?;
                CgroupName(unit.split('-').map(|part| part.replace('_', "-")).collect())
            }
        };
        let is_plain = name.0.iter().all(|part| check(part).is_ok());
        (is_plain && name.path(driver) == path).then_some(name)
    }

    /// The last component.
    #[must_use]
    pub fn last(&self) -> Option<&str> {
        self.0.last().map(String::as_str)
    }

    fn parent(&self) -> Option<CgroupName> {
        let (_, parents) = self.0.split_last()?;
        Some(CgroupName(parents.to_vec()))
    }
}

/// The three cgroups that hold pods, and the pods in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodTree {
    driver: Driver,
    kubepods: CgroupName,
}

impl PodTree {
    /// The tree below `root`.
    ///
    /// # Errors
    /// Never for a checked root; the signature is that of [`CgroupName::child`].
    pub fn below(root: &CgroupName, driver: Driver) -> Result<PodTree, &'static str> {
        Ok(PodTree { driver, kubepods: root.child(KUBEPODS)? })
    }

    /// The driver.
    #[must_use]
    pub fn driver(&self) -> Driver {
        self.driver
    }

    /// The cgroup of all pods.
    #[must_use]
    pub fn kubepods(&self) -> &CgroupName {
        &self.kubepods
    }

    /// The cgroup in which pods of a class are; guaranteed ones are in that of all pods.
    #[must_use]
    pub fn class(&self, qos: Qos) -> CgroupName {
        let mut name = self.kubepods.clone();
        match qos {
            Qos::Guaranteed => {}
            Qos::Burstable => name.0.push("burstable".to_string()),
            Qos::BestEffort => name.0.push("besteffort".to_string()),
        }
        name
    }

    /// The cgroup of a pod.
    ///
    /// # Errors
    /// Why the UID cannot be part of a cgroup's name.
    pub fn pod(&self, uid: &str, qos: Qos) -> Result<CgroupName, &'static str> {
        check_uid(uid)?;
        if self.driver == Driver::Systemd && uid.contains('_') {
            return Err(
                "under the systemd driver `_` stands for `-`, so the name would be another's",
            );
        }
        let mut name = self.class(qos);
        name.0.push(format!("pod{uid}"));
        Ok(name)
    }

    /// Undoes [`PodTree::pod`]: the pod's UID and class; `None` for every path that is not a pod's own cgroup.
    ///
    /// Like the kubelet, it does not recognise a UID that contains "pod".
    #[must_use]
    pub fn parse_pod(&self, path: &str) -> Option<(String, Qos)> {
        let name = match self.driver {
            // `_` is a letter like any other here.
            Driver::Cgroupfs => {
                let parts = path.strip_prefix('/')?.split('/').map(ToString::to_string).collect();
                CgroupName(parts)
            }
            Driver::Systemd => CgroupName::parse(path, self.driver)?,
        };
        let parent = name.parent()?;
        let qos = [Qos::Guaranteed, Qos::Burstable, Qos::BestEffort]
            .into_iter()
            // By path: under systemd a `_` of the root reads back as `-`.
            .find(|qos| self.class(*qos).path(self.driver) == parent.path(self.driver))?;
        let uid = name.last()?.strip_prefix("pod")?;
        (!uid.contains("pod") && check_uid(uid).is_ok()).then(|| (uid.to_string(), qos))
    }
}

/// Where systemd puts a slice: below one slice for every `-` in its name; `None` for what is not a slice's name.
#[must_use]
pub fn slice_path(unit: &str) -> Option<String> {
    let name = unit.strip_suffix(SLICE)?;
    if name == "-" {
        return Some(String::from("/"));
    }
    let (mut path, mut so_far) = (String::new(), String::new());
    for part in name.split('-') {
        if part.is_empty() || part.contains('/') {
            return None;
        }
        if !so_far.is_empty() {
            so_far.push('-');
        }
        so_far += part;
        path += &format!("/{so_far}{SLICE}");
    }
    Some(path)
}

/// A component that stays one component under either driver.
fn check(component: &str) -> Result<(), &'static str> {
    plain(component)?;
    match component.contains('_') {
        true => Err("`_` cannot be used: systemd names write `-` so"),
        false => Ok(()),
    }
}

/// A component that stays in its directory.
fn plain(component: &str) -> Result<(), &'static str> {
    match component {
        "" | "." | ".." => Err("it is not a name"),
        c if c.contains('/') || c.contains('\0') => Err("it would lead to another cgroup"),
        c if c.chars().any(char::is_control) => Err("it has a control character in it"),
        c if c.len() > 200 => Err("it is longer than a file name may be"),
        _ => Ok(()),
    }
}

/// The cgroup of reserved daemons by the operator's path: as it is under cgroupfs; under systemd the slice of the last component's name, wherever the path says it is, as the kubelet takes it.
///
/// # Errors
/// What is wrong with the path.
pub(super) fn reserved(path: &str, driver: Driver) -> Result<String, &'static str> {
    let name = CgroupName::from_path(path)?;
    let Some(last) = name.last() else {
        return Err("the root of the hierarchy cannot be limited");
    };
    match driver {
        Driver::Cgroupfs => Ok(name.path(driver)),
        Driver::Systemd => {
            let unit = format!("{}{SLICE}", last.strip_suffix(SLICE).unwrap_or(last));
            slice_path(&unit).filter(|path| path != "/").ok_or("it is not a slice's name")
        }
    }
}

fn check_uid(uid: &str) -> Result<(), &'static str> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    match uid {
        "" => Err("it is empty"),
        _ if uid.len() > 128 => Err("it is longer than 128 bytes"),
        _ if !uid.bytes().all(is_plain) => {
            Err("only letters, digits, `-`, `_` and `.` may be in it: it becomes part of a path")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "8ad4b1bb-43f6-4a05-8b66-8a09f3ebe12e";

    fn tree(root: &str, driver: Driver) -> PodTree {
        PodTree::below(&CgroupName::from_path(root).unwrap(), driver).unwrap()
    }

    #[test]
    fn a_pod_has_the_kubelets_name_under_either_driver() {
        let (fs, systemd) = (tree("/", Driver::Cgroupfs), tree("/", Driver::Systemd));
        let path = |tree: &PodTree, qos| tree.pod(UID, qos).unwrap().path(tree.driver());
        assert_eq!(path(&fs, Qos::Guaranteed), alloc::format!("/kubepods/pod{UID}"));
        assert_eq!(path(&fs, Qos::Burstable), alloc::format!("/kubepods/burstable/pod{UID}"));
        assert_eq!(
            path(&systemd, Qos::BestEffort),
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod8ad4b1bb_43f6_4a05_8b66_8a09f3ebe12e.slice"
        );
        assert_eq!(
            path(&systemd, Qos::Guaranteed),
            "/kubepods.slice/kubepods-pod8ad4b1bb_43f6_4a05_8b66_8a09f3ebe12e.slice"
        );
    }

    #[test]
    fn a_root_of_its_own_comes_before() {
        let below = tree("/my-node/k8s", Driver::Systemd);
        assert_eq!(
            below.class(Qos::Burstable).path(Driver::Systemd),
            "/my_node.slice/my_node-k8s.slice/my_node-k8s-kubepods.slice/my_node-k8s-kubepods-burstable.slice"
        );
        assert_eq!(
            below.class(Qos::Burstable).path(Driver::Cgroupfs),
            "/my-node/k8s/kubepods/burstable"
        );
    }

    #[test]
    fn only_a_pods_own_cgroup_is_read_as_one() {
        let fs = tree("/", Driver::Cgroupfs);
        for path in [
            "/kubepods/burstable",
            "/kubepods/pod",
            "/kubepods/burstable/pod1/container",
            "/other/podx",
            "/kubepods/besteffort/podmy-podx",
            "kubepods/pod1",
        ] {
            assert_eq!(fs.parse_pod(path), None, "{path}");
        }
        let systemd = tree("/", Driver::Systemd);
        for path in [
            "/kubepods.slice/kubepods-burstable-poda.slice",
            "/kubepods.slice/kubepods-poda.slice/cri-containerd-1.scope",
            "/kubepods-poda.slice",
        ] {
            assert_eq!(systemd.parse_pod(path), None, "{path}");
        }
    }

    #[test]
    fn a_uid_that_could_escape_is_refused() {
        for driver in [Driver::Cgroupfs, Driver::Systemd] {
            for uid in ["", "../../system.slice", "a/b", "a b", "a\n", "ü"] {
                assert!(tree("/", driver).pod(uid, Qos::Burstable).is_err(), "{uid:?}");
            }
        }
        assert!(tree("/", Driver::Systemd).pod("a_b", Qos::Burstable).is_err());
        assert!(tree("/", Driver::Cgroupfs).pod("a_b", Qos::Burstable).is_ok());
    }

    #[test]
    fn a_root_may_have_an_underscore_and_its_pods_are_found() {
        for driver in [Driver::Cgroupfs, Driver::Systemd] {
            let tree = tree("/my_root", driver);
            let path = tree.pod(UID, Qos::Burstable).unwrap().path(driver);
            assert!(path.starts_with("/my_root"), "{path}");
            assert_eq!(tree.parse_pod(&path), Some((UID.to_string(), Qos::Burstable)), "{path}");
        }
    }

    #[test]
    fn a_reserved_cgroup_is_named_through_the_driver() {
        for (path, driver, expected) in [
            ("/kube-daemons", Driver::Systemd, "/kube.slice/kube-daemons.slice"),
            ("/system.slice", Driver::Systemd, "/system.slice"),
            ("/a/b.slice", Driver::Systemd, "/b.slice"),
            ("/kube-daemons", Driver::Cgroupfs, "/kube-daemons"),
            ("a/b", Driver::Cgroupfs, "/a/b"),
        ] {
            assert_eq!(reserved(path, driver).as_deref(), Ok(expected), "{path}");
        }
        for path in ["/", "/a/../b", "/-.slice", "/a\nb"] {
            assert!(reserved(path, Driver::Systemd).is_err(), "{path:?}");
        }
    }

    #[test]
    fn a_slices_place_follows_from_its_name() {
        assert_eq!(slice_path("a-b.slice").as_deref(), Some("/a.slice/a-b.slice"));
        assert_eq!(slice_path("-.slice").as_deref(), Some("/"));
        assert_eq!(slice_path("a--b.slice"), None);
        assert_eq!(slice_path("kubelet.service"), None);
    }
}
