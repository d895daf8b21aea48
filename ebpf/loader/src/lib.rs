//! Loads ebb's BPF programs and turns what they write into kernel events: the one crate that names aya and libbpf.
//!
//! ```text
//!  survey()  ──HostSupport──►  ProbeSet::for_host  ──►  Probes::attach  ──►  Probes
//!  facts                       rules, pure               effects               │ next()      KernelEvent, vital ring first
//!                                                                              │ totals()    what is only counted, in batches
//!                                                                              │ lost()      records that found no room
//!                                                                              └ status()    every program, and why it is not there
//! ```
//! - `catalogue` is the one list of facts and programs; `host` and `probe_set` decide which fit.
//! - `rust_tier` (aya) loads `ebpf/probes`, `core_tier` (libbpf-rs) loads `ebpf/core`; they share their maps by file descriptor
//!   (`shared_maps`), so that there is one pair of rings however many halves could be loaded.
//! - `sweep` reads what every cgroup uses in one pass, beside the events and without them.
//! - `reflex` ends what it was told to end, without waiting for user space.
//! - `fall` wakes user space when available memory has fallen by so much.
//! - `costs` says what programs cost, for whoever measures.
//! - `ring` reads records, `polling` says when unasked, `event` says what they mean, `totals` reads what is only counted.
//!
//! BPF is optional: a refused program costs only the fact it tells, and a host that refuses all of them still gets a
//! [`Probes`] whose status says why. What the agent does with events, and what it does without them, is not decided here.
mod attach;
mod catalogue;
mod core_tier;
mod costs;
mod event;
mod fall;
mod host;
mod machine;
mod memlock;
mod objects;
mod options;
mod polling;
mod probe_set;
mod probes;
mod reflex;
mod ring;
mod rust_tier;
mod shared_maps;
mod sweep;
mod totals;

pub use attach::{AttachError, ProbeState, ProbeStatus};
pub use catalogue::{Arg, Fact, Hook, Point, Tier, program_names};
pub use costs::{Cost, Meter, share};
pub use ebb_wire::Gauge;
pub use event::{CgroupChange, Comm, ExitScope, ExitStatus, KernelEvent, MemoryCounter, OomLimit};
pub use fall::FallWatch;
pub use host::{Capabilities, HookSupport, HostSupport, Lockdown, Presence, survey};
pub use options::Options;
pub use probe_set::ProbeSet;
pub use probes::Probes;
pub use reflex::{ArmError, Armament, MOST_PROCESSES, Reflex, Shot};
pub use ring::RingError;
pub use sweep::{Refused, Source, Sweep, SweepError, Swept, Told, read_files};
pub use totals::{CgroupTotals, Lost, Totals, TotalsError};
