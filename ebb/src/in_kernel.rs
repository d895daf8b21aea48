//! What ebb has in the kernel, and what that costs: its BPF programs and maps, as `/proc/self/fdinfo` tells of those that it holds. No privilege is needed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::DirEntry;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Programs and maps that are held.
#[derive(Debug, Default, PartialEq, Eq)]
struct InKernel {
    programs: BTreeMap<u64, Program>,
    /// Bytes of each map.
    maps: BTreeMap<u64, u64>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Program {
    bytes: u64,
    runs: u64,
    nanoseconds: u64,
}

/// Which of the descriptors are programs or maps, found out anew at an interval: ebb has a few of those among thousands.
#[derive(Debug, Default)]
pub(super) struct Descriptors(Mutex<Option<(Instant, Vec<OsString>)>>);

/// Between two looks at all descriptors: programs and maps are made at the start.
const LOOK: Duration = Duration::from_secs(60);

impl Descriptors {
    /// Writes what they cost as OpenMetrics; what cannot be read is left out.
    pub(super) fn write(&self, out: &mut String) {
        let is_counted = std::fs::read_to_string("/proc/sys/kernel/bpf_stats_enabled")
            .is_ok_and(|text| text.trim() == "1");
        if let Some(found) = self.read(Path::new("/proc/self")) {
            found.write(out, is_counted);
        }
    }

    fn read(&self, process: &Path) -> Option<InKernel> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_none_or(|(at, _)| at.elapsed() >= LOOK) {
            *known = Some((Instant::now(), of_bpf(&process.join("fd")).ok()?));
        }
        let mut found = InKernel::default();
        for name in known.iter().flat_map(|(_, names)| names) {
            // It may be closed meanwhile, or be something else, which says so.
            if let Ok(text) = std::fs::read_to_string(process.join("fdinfo").join(name)) {
                found.take(&text);
            }
        }
        Some(found)
    }
}

/// The descriptors that lead to something of BPF, by their names.
fn of_bpf(directory: &Path) -> io::Result<Vec<OsString>> {
    let entries = std::fs::read_dir(directory)?.flatten();
    let is_of_bpf = |entry: &DirEntry| {
        let target = std::fs::read_link(entry.path());
        target.is_ok_and(|to| to.as_os_str().as_encoded_bytes().starts_with(b"anon_inode:bpf-"))
    };
    Ok(entries.filter(is_of_bpf).map(|entry| entry.file_name()).collect())
}

impl InKernel {
    /// Takes in what is told of one descriptor. Two may be of the same program.
    fn take(&mut self, text: &str) {
        let of = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|value| value.trim().parse::<u64>().ok())
        };
        let bytes = of("memlock").unwrap_or_default();
        // A link names the program that it attaches, too.
        if let (Some(id), Some(_)) = (of("prog_id"), of("prog_type")) {
            let runs = of("run_cnt").unwrap_or_default();
            let nanoseconds = of("run_time_ns").unwrap_or_default();
            self.programs.insert(id, Program { bytes, runs, nanoseconds });
        } else if let (Some(id), Some(_)) = (of("map_id"), of("map_type")) {
            self.maps.insert(id, bytes);
        }
    }

    fn write(&self, out: &mut String, is_counted: bool) {
        let programs = self.programs.values();
        let bytes: u64 = programs.clone().map(|program| program.bytes).sum();
        // Writing into a String cannot fail.
        _ = write!(
            out,
            "# TYPE ebb_kernel_programs gauge\n# HELP ebb_kernel_programs BPF programs that ebb has loaded.\nebb_kernel_programs {}\n\
            # TYPE ebb_kernel_memory_bytes gauge\n# UNIT ebb_kernel_memory_bytes bytes\n# HELP ebb_kernel_memory_bytes Memory of ebb's BPF programs and maps.\nebb_kernel_memory_bytes{{kind=\"program\"}} {bytes}\nebb_kernel_memory_bytes{{kind=\"map\"}} {}\n",
            self.programs.len(),
            self.maps.values().sum::<u64>()
        );
        if !is_counted {
            return;
        }
        let runs: u64 = programs.clone().map(|program| program.runs).sum();
        let nanoseconds: u64 = programs.map(|program| program.nanoseconds).sum();
        _ = write!(
            out,
            "# TYPE ebb_kernel_program_runs counter\n# HELP ebb_kernel_program_runs Times that ebb's BPF programs ran.\nebb_kernel_program_runs_total {runs}\n\
            # TYPE ebb_kernel_program_seconds counter\n# UNIT ebb_kernel_program_seconds seconds\n# HELP ebb_kernel_program_seconds Processor time of ebb's BPF programs.\nebb_kernel_program_seconds_total {}.{:09}\n",
            nanoseconds / 1_000_000_000,
            nanoseconds % 1_000_000_000
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Linux 6.12 tells of a program, of the link that attaches it, of a map and of a file.
    const PROGRAM: &str = "pos:\t0\nflags:\t02000002\nmnt_id:\t16\nino:\t10\nprog_type:\t5\nprog_jited:\t1\nprog_tag:\t6deef7357e7b4530\nmemlock:\t4096\nprog_id:\t73\nrun_time_ns:\t1500000000\nrun_cnt:\t3\nrecursion_misses:\t0\nverified_insns:\t9\n";
    const LINK: &str = "pos:\t0\nflags:\t02000000\nlink_type:\traw_tracepoint\nlink_id:\t4\nprog_tag:\t6deef7357e7b4530\nprog_id:\t73\ntp_name:\tsched_process_exit\n";
    const MAP: &str = "pos:\t0\nflags:\t02000002\nmap_type:\t27\nkey_size:\t0\nvalue_size:\t0\nmax_entries:\t4096\nmap_flags:\t0x0\nmap_extra:\t0x0\nmemlock:\t16696\nmap_id:\t12\nfrozen:\t0\n";

    #[test]
    fn each_program_and_map_counts_once() {
        let mut found = InKernel::default();
        for text in [PROGRAM, LINK, MAP, PROGRAM, MAP, "pos:\t0\nflags:\t00\n"] {
            found.take(text);
        }
        let mut text = String::new();
        found.write(&mut text, true);
        for line in [
            "ebb_kernel_programs 1",
            "ebb_kernel_memory_bytes{kind=\"program\"} 4096",
            "ebb_kernel_memory_bytes{kind=\"map\"} 16696",
            "ebb_kernel_program_runs_total 3",
            "ebb_kernel_program_seconds_total 1.500000000",
        ] {
            assert!(text.lines().any(|told| told == line), "{line}: {text}");
        }
    }

    #[test]
    fn only_descriptors_of_bpf_are_read_and_one_that_is_another_now_says_so() {
        let process = tempfile::tempdir().unwrap();
        let at = |name: &str| process.path().join(name);
        ["fd", "fdinfo"].iter().for_each(|name| std::fs::create_dir(at(name)).unwrap());
        let descriptors = [
            ("3", "anon_inode:bpf-prog", PROGRAM),
            ("4", "anon_inode:bpf-map", MAP),
            ("5", "anon_inode:bpf_link", LINK),
            ("6", "/sys/fs/cgroup/a/memory.stat", PROGRAM),
        ];
        for (name, target, text) in descriptors {
            std::os::unix::fs::symlink(target, at("fd").join(name)).unwrap();
            std::fs::write(at("fdinfo").join(name), text).unwrap();
        }
        let own = Descriptors::default();
        let counts = || {
            let found = own.read(process.path()).unwrap();
            (found.programs.len(), found.maps.len())
        };
        assert_eq!(counts(), (1, 1));
        std::fs::write(at("fdinfo/4"), "pos:\t0\nflags:\t00\n").unwrap();
        std::fs::remove_file(at("fdinfo/3")).unwrap();
        assert_eq!(counts(), (0, 0));
    }

    #[test]
    fn what_the_kernel_does_not_count_is_not_zero() {
        let mut text = String::new();
        InKernel::default().write(&mut text, false);
        assert!(text.contains("ebb_kernel_programs 0\n") && !text.contains("runs"), "{text}");
    }
}
