//! Reading a cgroup v1 host as if it were v2, as far as its files say the same: an audit there is read-only and names what it cannot see.
//!
//! Shares are read as the weight that the level's curve makes of them. Protection (`memory.min`, `memory.low`), `memory.high`, `memory.oom.group` and swap limits do not exist or mean something else.

use super::beneath::Beneath;
use crate::sense::host::v1_mount;
use ebb_policy::cgroups::compare::Found;
use ebb_policy::cgroups::cpu::Curve;
use std::io;
use std::path::Path;

/// Above this v1 writes no limit: the largest number of whole pages.
const NO_LIMIT: u64 = i64::MAX as u64 / 4096 * 4096;

/// Mounts of the controllers whose files can be compared.
#[derive(Debug)]
pub(super) struct V1 {
    cpu: Option<Beneath>,
    cpuset: Option<Beneath>,
    memory: Option<Beneath>,
    pids: Option<Beneath>,
    hugetlb: Option<Beneath>,
}

impl V1 {
    /// Finds the mounts.
    #[must_use]
    pub(super) fn find(proc: &Path) -> V1 {
        let mount = |controller| v1_mount(proc, controller).map(|at| Beneath::new(&at));
        V1 {
            cpu: mount("cpu"),
            cpuset: mount("cpuset"),
            memory: mount("memory"),
            pids: mount("pids"),
            hugetlb: mount("hugetlb"),
        }
    }

    /// Whether a file has the same meaning there, by its v2 name.
    #[must_use]
    pub(super) fn tells(file: &str) -> bool {
        matches!(file, "memory.max" | "cpu.max" | "cpu.weight" | "pids.max" | "cpuset.cpus")
            || file.starts_with("hugetlb.") && !file.ends_with(".rsvd.max")
    }

    /// Whether the controller that a file belongs to is here.
    #[must_use]
    pub(super) fn has(&self, file: &str) -> bool {
        let V1 { cpu, cpuset, memory, pids, hugetlb } = self;
        let mount = match file.split('.').next() {
            Some("cpu") => cpu,
            Some("cpuset") => cpuset,
            Some("memory") => memory,
            Some("pids") => pids,
            Some("hugetlb") => hugetlb,
            _ => return false,
        };
        mount.is_some()
    }

    /// The files of one cgroup by their v2 names and in v2's notation.
    ///
    /// # Errors
    /// `NotFound` when no controller has the cgroup.
    pub(super) fn read<'f>(
        &self,
        path: &str,
        files: impl Iterator<Item = &'f str>,
        curve: Curve,
        reads: &mut u64,
    ) -> io::Result<Found> {
        let V1 { cpu, cpuset, memory, pids, hugetlb } = self;
        let mounts = [cpu, cpuset, memory, pids, hugetlb].into_iter().flatten();
        if !mounts.into_iter().any(|mount| mount.is_there(path)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut found = Found::default();
        for file in files {
            if let Some(text) = self.file(path, file, curve, reads) {
                found.files.insert(file.to_owned(), text);
            }
        }
        Ok(found)
    }

    fn file(&self, path: &str, file: &str, curve: Curve, reads: &mut u64) -> Option<String> {
        let mut get = |mount: &Option<Beneath>, name: &str| {
            *reads += 1;
            let text = mount.as_ref()?.read(path, name).ok()?;
            Some(text.trim().to_owned())
        };
        match file {
            "memory.max" => {
                let bytes: u64 = get(&self.memory, "memory.limit_in_bytes")?.parse().ok()?;
                Some(if bytes >= NO_LIMIT { "max".to_owned() } else { bytes.to_string() })
            }
            "cpu.weight" => {
                let shares: u64 = get(&self.cpu, "cpu.shares")?.parse().ok()?;
                Some(curve.weight(shares).to_string())
            }
            "cpu.max" => {
                let quota = get(&self.cpu, "cpu.cfs_quota_us")?;
                let period = get(&self.cpu, "cpu.cfs_period_us")?;
                let quota = if quota.starts_with('-') { "max".to_owned() } else { quota };
                Some(format!("{quota} {period}"))
            }
            "pids.max" => get(&self.pids, "pids.max"),
            "cpuset.cpus" => get(&self.cpuset, "cpuset.cpus"),
            other => {
                let page = other.strip_prefix("hugetlb.")?.strip_suffix(".max")?;
                get(&self.hugetlb, &format!("hugetlb.{page}.limit_in_bytes"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn v1_files_read_in_the_notation_of_v2() {
        let root = tempfile::tempdir().unwrap();
        let (memory, cpu) = (root.path().join("memory"), root.path().join("cpu"));
        for dir in [&memory, &cpu] {
            fs::create_dir_all(dir.join("kubepods")).unwrap();
        }
        fs::write(memory.join("kubepods/memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
        fs::write(cpu.join("kubepods/cpu.cfs_quota_us"), "-1\n").unwrap();
        fs::write(cpu.join("kubepods/cpu.shares"), "1024\n").unwrap();
        fs::write(cpu.join("kubepods/cpu.cfs_period_us"), "100000\n").unwrap();
        let v1 = V1 {
            cpu: Some(Beneath::new(&cpu)),
            memory: Some(Beneath::new(&memory)),
            cpuset: None,
            pids: None,
            hugetlb: None,
        };
        let files = ["memory.max", "cpu.max", "cpu.weight", "memory.high"].into_iter();
        let found = v1.read("/kubepods", files, Curve::Old, &mut 0).unwrap().files;
        let found: Vec<_> = found.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let expected = [("cpu.max", "max 100000"), ("cpu.weight", "39"), ("memory.max", "max")];
        assert_eq!(found, expected);
        assert!(v1.read("/other", ["cpu.max"].into_iter(), Curve::Old, &mut 0).is_err());
        assert!(V1::tells("memory.max") && !V1::tells("memory.high"));
    }
}
