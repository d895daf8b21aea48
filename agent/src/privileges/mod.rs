//! What ebb may do, and how it gives up the rest once everything is set up.
//!
//! ```text
//!  set-up (BPF loaded, limits raised, memory locked) ─► confine ─► threads, sockets, the loop
//! ```
//! Capabilities, `no_new_privs` and seccomp filters belong to a thread and are inherited by the threads that it starts, so ebb confines itself while it has one thread only.
//! [`TABLE`] is the one list of capabilities: the agent keeps what it says, `ebb check` prints it, and a test holds the operating guide and the unit against it.

mod capabilities;
mod held;
mod seccomp;

use crate::config::Seccomp;
pub use capabilities::{Features, Row, TABLE, kept};
pub use held::{Held, threads_that_hold_more};

use caps::{CapSet, Capability, CapsHashSet};
use std::path::Path;

/// What came of [`confine`].
#[derive(Debug, Default)]
pub struct Confined {
    /// What is in force, in one line for people.
    pub in_force: String,
    /// What could not be given up, each with its reason.
    pub missing: Vec<String>,
}

/// Gives up, for good and in every thread that is started from here on, all capabilities but those that `features` need, the right to gain any by executing a program, and system calls that it does not make.
///
/// Each measure is its own; one that is refused is named in [`Confined::missing`] and costs only itself.
#[must_use]
pub fn confine(features: &Features, seccomp: Seccomp) -> Confined {
    // Its own, wherever the node's is mounted.
    let proc = Path::new("/proc");
    let mut missing = Vec::new();
    let wanted: CapsHashSet = kept(features).map(|row| row.capability).collect();
    match give_up_all_but(&wanted) {
        Ok(()) => {}
        Err(error) => missing.push(format!("give up capabilities: {error}")),
    }
    if let Err(error) = nix::sys::prctl::set_no_new_privs() {
        missing.push(format!("set no_new_privs: {error}"));
    }
    if let Err(error) = seccomp::filter(seccomp) {
        missing.push(format!("filter system calls (seccomp): {error}"));
    }
    let in_force = match Held::of_this_thread(proc) {
        Some(held) => {
            let more = threads_that_hold_more(proc, &held);
            if !more.is_empty() {
                missing.push(format!("give up capabilities in the threads {}", more.join(", ")));
            }
            if held.seccomp { format!("{held} ({})", seccomp.word()) } else { held.to_string() }
        }
        None => {
            missing.push(format!("tell what is in force: {}/self/status", proc.display()));
            "not known".to_owned()
        }
    };
    Confined { in_force: format!("privileges: {in_force}"), missing }
}

/// Leaves this thread those of `wanted` that it has, and nothing else in any set.
fn give_up_all_but(wanted: &CapsHashSet) -> Result<(), caps::errors::CapsError> {
    let permitted = caps::read(None, CapSet::Permitted)?;
    let keep = permitted.iter().filter(|held| wanted.contains(held)).copied().collect();
    // The bounding set first: it takes CAP_SETPCAP, which is about to go. Without it, no_new_privs alone keeps a program that is executed from more.
    if permitted.contains(&Capability::CAP_SETPCAP) {
        for capability in caps::all() {
            // One that this kernel has not heard of is refused, and cannot be had either.
            if !wanted.contains(&capability)
                && caps::has_cap(None, CapSet::Bounding, capability).unwrap_or(false)
            {
                caps::drop(None, CapSet::Bounding, capability)?;
            }
        }
    }
    caps::clear(None, CapSet::Ambient)?;
    caps::clear(None, CapSet::Inheritable)?;
    // Effective before permitted: the one must stay within the other.
    caps::set(None, CapSet::Effective, &keep)?;
    caps::set(None, CapSet::Permitted, &keep)
}
