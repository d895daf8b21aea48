//! `ebb-guest`: everything that runs inside a guest of ebb's kernel matrix, as one static binary.
//!
//! ```text
//! /init (process 1)      mounts, the root disk, a node-like cgroup tree        init.rs
//!   └─ run               one test after the other, each in a process           runner.rs
//!        └─ test NAME    a function of the registry                            registry.rs, checks/
//!             ├─ act …   the workloads it needs                                actors/
//!             └─ ebb …   the agent under test                                  agent.rs
//! ```
//! On the host, `ebb-guest list` prints the registry; everything else wants to be in a guest.
use crate::privileges::{CAP_DAC_OVERRIDE, CAP_KILL};
use anyhow::{Context, Result, bail};

mod actors;
mod agent;
mod bench;
mod cgroup;
mod checks;
mod containerd;
mod init;
mod kernel_log;
mod kube;
mod node;
mod observer;
mod privileges;
mod probing;
mod registry;
mod runner;
mod scene;
mod soak;
mod systemd;
mod wait;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["list"] => {
            registry::list(registry::TESTS);
            Ok(())
        }
        ["list", "long"] => {
            registry::list(registry::LONG);
            Ok(())
        }
        ["list", "bench"] => {
            registry::list(registry::BENCHES);
            Ok(())
        }
        ["list", "demo"] => {
            registry::list(registry::DEMO);
            Ok(())
        }
        ["list", "soak"] => {
            registry::list(registry::SOAK);
            Ok(())
        }
        ["run"] => runner::run(),
        ["test", name] => runner::run_one(name),
        ["act", rest @ ..] => actors::run(rest).context("as an actor"),
        ["act-here", rest @ ..] => actors::act_here(rest).context("as an actor"),
        ["exec-in", cgroup, program, rest @ ..] => Err(cgroup::exec_in(cgroup, program, rest)),
        ["exec-in-to-kill", cgroup, program, rest @ ..] => {
            privileges::bound_to(&[CAP_DAC_OVERRIDE, CAP_KILL])?;
            Err(cgroup::exec_in(cgroup, program, rest))
        }
        ["exec-in-without", withheld, cgroup, program, rest @ ..] => {
            privileges::without(withheld)?;
            Err(cgroup::exec_in(cgroup, program, rest))
        }
        ["init"] => init::second_stage(),
        // The kernel passes its own parameters that it did not understand.
        _ if std::process::id() == 1 => init::first_stage(),
        _ => bail!(
            "usage: ebb-guest list [long|bench|demo|soak] | run | test NAME | act … | act-here … | exec-in CGROUP PROGRAM …"
        ),
    }
}
