//! Any bytes as files of `/proc` and of a cgroup: what cannot be read is unknown, and what can be is read the same twice.
//!
//! The first byte says which files they are.
#![no_main]
use ebb_agent::sense::cgroup::Cgroup;
use ebb_agent::sense::host::{CgroupLayout, hierarchies, kernel_release, v1_controllers, v1_mount};
use ebb_agent::sense::members::Members;
use ebb_agent::sense::node::NodeSensor;
use ebb_agent::sense::process::{Process, oom_score_adj};
use ebb_agent::sense::role::Role;
use ebb_agent::sense::{Roots, block};
use libfuzzer_sys::fuzz_target;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

#[path = "../src/scratch.rs"]
mod scratch;

const NODE: [&str; 6] = [
    "meminfo",
    "loadavg",
    "pressure/memory",
    "pressure/io",
    "sys/kernel/pid_max",
    "sys/kernel/threads-max",
];
const PROCESS: [&str; 5] = ["7/stat", "7/status", "7/comm", "7/cgroup", "7/oom_score_adj"];
const HOST: [&str; 3] = ["mounts", "cgroups", "sys/kernel/osrelease"];
const CGROUP: [&str; 18] = [
    "memory.current",
    "memory.stat",
    "memory.events",
    "memory.pressure",
    "memory.min",
    "memory.low",
    "memory.high",
    "memory.max",
    "memory.swap.current",
    "pids.current",
    "pids.max",
    "io.stat",
    "cgroup.events",
    "cgroup.procs",
    "cgroup.threads",
    "cgroup.controllers",
    "cgroup.stat",
    // Of the procfs that a thread is looked up in.
    "7/status",
];

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, text)) = bytes.split_first() else { return };
    let dir = scratch::dir("files");
    match kind % 4 {
        0 => {
            write(dir, &NODE, text);
            let roots = Roots { proc: dir.to_owned(), cgroup: dir.to_owned() };
            let mut sensor = NodeSensor::open(&roots).expect("meminfo is there");
            let read = sensor.read().map(|reading| {
                let _ = (reading.memory.working_set_available(), reading.pids_available());
                format!("{:?} {:?}", reading.memory, reading.tasks)
            });
            let again = sensor.read().map(|reading| format!("{:?} {:?}", reading.memory, reading.tasks));
            assert_eq!(read.is_ok(), again.is_ok());
            if let (Ok(read), Ok(again)) = (read, again) {
                assert_eq!(read, again);
            }
        }
        1 => {
            write(dir, &PROCESS, text);
            assert_eq!(Process::read(dir, 7), Process::read(dir, 7));
            let score = oom_score_adj(dir, 7);
            assert!(score.is_none_or(|score| (-1000..=1000).contains(&score)), "{score:?}");
            let _ = Role::of(7, dir);
        }
        2 => {
            write(dir, &HOST, text);
            let _ = (CgroupLayout::detect(dir, None), hierarchies(dir), kernel_release(dir));
            let _ = (v1_controllers(dir), v1_mount(dir, "memory"));
            let text = String::from_utf8_lossy(text);
            let _ = (block::parse(&text), block::counted_as(7, dir, &text));
        }
        _ => {
            write(dir, &CGROUP, text);
            let id = fs::metadata(dir).expect("the directory is there").ino();
            let mut cgroup = Cgroup::open(dir, id).expect("the directory is there");
            let mut buffer = Vec::new();
            let usage = cgroup.read_usage(&mut buffer);
            assert_eq!(usage, cgroup.read_usage(&mut buffer));
            assert_eq!(cgroup.read_populated(&mut buffer), cgroup.populated(&mut buffer));
            assert_eq!(cgroup.read_writes(&mut buffer), cgroup.read_writes(&mut buffer));
            let members = cgroup.members(dir, &Members::default());
            let _ = members.map(|members| cgroup.members(dir, &members));
            let _ = cgroup.processes(64);
        }
    }
});

fn write(dir: &Path, names: &[&str], text: &[u8]) {
    for name in names {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().expect("it is below a directory")).expect("a directory");
        fs::write(&path, text).expect("a file can be written");
    }
}
