//! `ebpf/core/wire.h` says the same as this crate: every size, offset and number, as a C compiler sees them.
use ebb_wire::{
    Arm, Cgroup, CgroupNamed, Counters, Exit, FallAsked, Gauge, Header, KswapdWake, MemoryEvent,
    OomKill, Process, QUIET_NS, Reflex, Sweep, Swept, TARGETS, Target, answer, change, exit_flags,
    fate, kind, oom_limit, reflex_state, told, unhurried, which,
};
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

/// What C is asked, beside what Rust says.
type Claims = Vec<(String, u64)>;

macro_rules! layout {
    ($claims:ident, $rust:ident, $c:literal, $($field:ident)*) => {
        $claims.push((format!("sizeof(struct {})", $c), size_of::<$rust>() as u64));
        $($claims.push((
            format!("offsetof(struct {}, {})", $c, stringify!($field)),
            offset_of!($rust, $field) as u64,
        ));)*
        // Destructuring without `..` makes a forgotten field a compile error.
        let _ = |value: $rust| { let $rust { $($field: _),* } = value; };
    };
}

macro_rules! numbers {
    ($claims:ident, $module:ident, $c:literal, $($name:ident)*) => {
        $($claims.push((format!("{}{}", $c, stringify!($name)), u64::from($module::$name)));)*
    };
}

fn claims() -> Claims {
    let mut claims = Claims::new();
    layout!(claims, Header, "ebb_header", kind len cpu ts_ns);
    layout!(claims, Exit, "ebb_exit", header cgroup start_ns pid ppid status flags comm);
    layout!(claims, OomKill, "ebb_oom_kill",
        header victim_cgroup limit_cgroup start_ns pid oom_score_adj limit reserved comm);
    layout!(claims, MemoryEvent, "ebb_memory_event", header cgroup which folded);
    layout!(claims, Cgroup, "ebb_cgroup", header cgroup parent level change);
    layout!(claims, CgroupNamed, "ebb_cgroup_named", what path);
    layout!(claims, KswapdWake, "ebb_kswapd_wake", header node folded);
    layout!(claims, Counters, "ebb_counters",
        forks execs stall_ns direct_reclaims direct_reclaim_ns refaults memcg_reclaims
        memcg_reclaim_ns reclaimed_pages memory_events);
    layout!(claims, Sweep, "ebb_sweep", found whole);
    layout!(claims, Swept, "ebb_swept",
        cgroup parent level told usage min low high max swap low_events high_events max_events
        oom_events oom_kills pids anon file active_file inactive_file shmem kernel refaults scans);
    layout!(claims, Process, "ebb_process", start_ticks pid reserved);
    layout!(claims, Gauge, "ebb_gauge",
        free inactive_file active_file anon file slab_reclaimable);
    layout!(claims, FallAsked, "ebb_fall_asked", until_ns page_ns pages gauge nodes reserved);
    layout!(claims, Arm, "ebb_arm",
        cgroup until_ns seen_ns available line slack unexplained gauge agent nodes count reserved
        processes);
    layout!(claims, Target, "ebb_target", start_ns cgroup pid fate);
    layout!(claims, Reflex, "ebb_reflex",
        state count doubts killed refused reserved cgroup until_ns fired_ns done_ns base line pages
        before unexplained named charged gauge agent crossed targets);
    numbers!(claims, reflex_state, "EBB_REFLEX_", FREE ARMED BUSY SHOT);
    numbers!(claims, fate, "EBB_FATE_", NONE KILLED GONE DOUBT REFUSED);
    numbers!(claims, answer, "EBB_ANSWER_", ARMED NOBODY PROTECTED SHOT UNKNOWN MEASURED
        DISTURBED);
    claims.push(("EBB_REFLEX_TARGETS".to_owned(), TARGETS as u64));
    numbers!(claims, told, "EBB_TOLD_", MEMORY EVENTS PIDS STAT SCANS);
    numbers!(claims, kind, "EBB_KIND_",
        EXIT OOM_KILL MEMORY_EVENT CGROUP CGROUP_NAMED KSWAPD_WAKE COUNT);
    numbers!(claims, exit_flags, "EBB_EXIT_", STATUS LEADER_ONLY);
    numbers!(claims, oom_limit, "EBB_OOM_LIMIT_", UNKNOWN NODE CGROUP CGROUP_V1);
    numbers!(claims, which, "EBB_WHICH_",
        UNKNOWN LOW HIGH MAX OOM OOM_KILL OOM_GROUP_KILL SWAP_HIGH SWAP_MAX SWAP_FAIL
        SOCK_THROTTLED);
    numbers!(claims, change, "EBB_CHANGE_",
        CREATED REMOVED RENAMED RELEASED POPULATED EMPTIED);
    numbers!(claims, unhurried, "EBB_UNHURRIED_", VITAL EVENTS COUNT);
    claims.push(("EBB_QUIET_NS".to_owned(), QUIET_NS));
    claims
}

#[test]
fn the_c_header_agrees_with_the_rust_types() {
    let claims = claims();
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/wire.h");
    let mut source = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include \"{}\"\nint main(void) {{\n",
        header.display()
    );
    for (expression, _) in &claims {
        source += &format!("printf(\"%llu\\n\", (unsigned long long)({expression}));\n");
    }
    source += "return 0; }\n";

    let dir = tempfile::tempdir().unwrap();
    let (c, program) = (dir.path().join("twin.c"), dir.path().join("twin"));
    std::fs::write(&c, source).unwrap();
    let cc = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let status = Command::new(cc)
        .args(["-std=c11", "-Wall", "-Werror", "-o"])
        .arg(&program)
        .arg(&c)
        .status();
    assert!(status.unwrap().success(), "the C compiler refused ebpf/core/wire.h");

    let output = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();
    let answers: Vec<u64> = output.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(answers.len(), claims.len());
    for ((expression, rust), c) in claims.iter().zip(answers) {
        assert_eq!(*rust, c, "{expression}: Rust says {rust}, C says {c}");
    }
}
