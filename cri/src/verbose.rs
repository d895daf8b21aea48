//! What runtimes tell of a container or sandbox beyond CRI: its first process, and its cgroup.

use serde::Deserialize;
use std::collections::BTreeMap;

/// What containerd and CRI-O add on demand, as JSON under the key `info`. Nothing in it is promised.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Verbose {
    #[serde(default)]
    pub(crate) pid: Option<u32>,
    #[serde(default, rename = "runtimeSpec")]
    spec: Option<Spec>,
}

#[derive(Debug, Deserialize)]
struct Spec {
    linux: Option<Linux>,
}

#[derive(Debug, Deserialize)]
struct Linux {
    #[serde(rename = "cgroupsPath")]
    cgroups_path: Option<String>,
}

impl Verbose {
    /// What is understood; nothing when it is absent or has another form.
    pub(crate) fn read(info: &BTreeMap<String, String>) -> Self {
        let found = info.get("info").and_then(|text| serde_json::from_str::<Self>(text).ok());
        let mut found = found.unwrap_or_default();
        found.pid = found.pid.filter(|&pid| pid != 0);
        found
    }

    /// The path that the OCI runtime makes of `cgroupsPath`.
    pub(crate) fn cgroup(&self) -> Option<String> {
        let path = self.spec.as_ref()?.linux.as_ref()?.cgroups_path.as_ref()?;
        cgroup_of(path)
    }
}

/// An absolute path is one of cgroupfs; `SLICE:PREFIX:NAME` is a unit that systemd makes.
fn cgroup_of(path: &str) -> Option<String> {
    if path.starts_with('/') {
        return Some(path.to_owned());
    }
    let mut parts = path.split(':');
    let (slice, prefix, name) = (parts.next()?, parts.next()?, parts.next()?);
    let stem = slice.strip_suffix(".slice")?;
    if parts.next().is_some() || name.is_empty() {
        return None;
    }
    let mut at = String::new();
    // "a-b.slice" lies in "a.slice"; the root slice "-.slice" is the root itself.
    if stem != "-" {
        let ends = stem.match_indices('-').map(|(end, _)| end).chain([stem.len()]);
        for end in ends {
            at.push('/');
            at.push_str(stem.get(..end)?);
            at.push_str(".slice");
        }
    }
    let unit = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}-{name}") };
    let unit = if unit.ends_with(".slice") { unit } else { format!("{unit}.scope") };
    Some(format!("{at}/{unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_is_found_under_both_drivers() {
        let plain = "/kubepods/burstable/pod1/c1";
        assert_eq!(cgroup_of(plain).as_deref(), Some(plain));
        assert_eq!(
            cgroup_of("kubepods-burstable-pod1_2.slice:cri-containerd:c1").as_deref(),
            Some(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-c1.scope"
            )
        );
        assert_eq!(cgroup_of("-.slice:crio:c1").as_deref(), Some("/crio-c1.scope"));
        for odd in ["", "x", "a.slice:b", "a:b:c", "a.slice:b:", "a.slice:b:c:d"] {
            assert_eq!(cgroup_of(odd), None, "{odd}");
        }
    }

    #[test]
    fn verbose_information_that_is_not_understood_is_none() {
        for text in ["", "no", "[]", r#"{"pid":"x"}"#, r#"{"pid":0}"#] {
            let info = BTreeMap::from([("info".to_owned(), text.to_owned())]);
            let read = Verbose::read(&info);
            assert_eq!((read.pid, read.cgroup()), (None, None), "{text}");
        }
        let text = r#"{"pid":7,"sandboxID":"s","runtimeSpec":{"linux":{"cgroupsPath":"/a/b"}}}"#;
        let read = Verbose::read(&BTreeMap::from([("info".to_owned(), text.to_owned())]));
        assert_eq!((read.pid, read.cgroup().as_deref()), (Some(7), Some("/a/b")));
    }
}
