//! The reflex: a line drawn and victims named beforehand, so that the kernel can act when user space cannot.
//!
//! ```text
//!  arm(whom, line, lease) ─► the kernel looks at each process and takes those that are what they are taken for
//!      line crossed while the lease lasts ─► it looks again, sends SIGKILL, and fires no second time
//!  shot() ─► what it did
//! ```
//! The kernel never ends process 1, the agent, a kernel thread, or what has an `oom_score_adj` of -1000, whoever names it,
//! and a process that is not what it was when it was named stops the whole shot. What else is protected is the caller's to
//! know, as is whom to name at all.
use crate::attach::Refusal;
use crate::core_tier::{TRIGGER_OBJECT, Trigger};
use crate::costs::Cost;
use crate::host::{HostSupport, Lockdown, Presence};
use ebb_wire::{Arm, Process, TARGETS, answer, fate, reflex_state};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};
use std::io;
use std::time::Duration;

/// Kernel functions without which there is no reflex.
const CALLS: [&str; 3] = ["bpf_task_from_pid", "bpf_task_release", "bpf_send_signal_task"];

/// The tracepoint of users' page faults, as the kernel's types name it.
const FAULTS: &str = "btf_trace_page_fault_user";

/// Processes that can be named at once; a cgroup with more than these is for user space to finish.
pub const MOST_PROCESSES: usize = TARGETS;

/// Which of the kernel's counters available memory goes up (1) or down (-1) with, page for page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauge {
    /// Free memory.
    pub free: i32,
    /// Inactive page cache.
    pub inactive_file: i32,
    /// Active page cache.
    pub active_file: i32,
    /// Anonymous memory.
    pub anon: i32,
    /// All page cache, shared memory and swap cache included.
    pub file: i32,
    /// Reclaimable slab.
    pub slab_reclaimable: i32,
}

/// Whom to end at which line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Armament {
    /// Id of the cgroup to be ended.
    pub cgroup: u64,
    /// Its processes and those below it: id, and start in hundredths of a second since boot.
    /// Those beyond [`MOST_PROCESSES`] are left out.
    pub processes: Vec<(i32, u64)>,
    /// Bytes that are available now. Whatever the gauge leaves out stays as it is while this stands.
    pub available: u64,
    /// How that changes.
    pub gauge: Gauge,
    /// Fewer available bytes than this are too few.
    pub line: u64,
    /// How long this stands.
    pub lease: Duration,
}

/// What the reflex did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shot {
    /// When the line was found to be crossed, since boot.
    pub at: Duration,
    /// From then until the last signal had been sent.
    pub took: Duration,
    /// The cgroup that was to be ended.
    pub cgroup: u64,
    /// What was available then, in bytes.
    pub available: i64,
    /// The line, in bytes.
    pub line: i64,
    /// Processes that were sent SIGKILL.
    pub killed: Vec<i32>,
    /// Processes that were not what they had been. Where there is one before the first signal, nobody is ended.
    pub doubted: Vec<i32>,
}

/// Why nobody is named now. Whoever was named before is not any more, except after [`ArmError::Fired`].
#[derive(Debug, thiserror::Error)]
pub enum ArmError {
    /// None of the processes is what it was taken for any more.
    #[error("cannot arm the reflex: none of the processes is there any more")]
    Nobody,
    /// One of them must not be ended.
    #[error("cannot arm the reflex: one of the processes is protected")]
    Protected,
    /// It has fired before: see [`Reflex::shot`].
    #[error("cannot arm the reflex: it has fired, and nobody has looked")]
    Fired,
    /// The kernel cannot tell there how much memory is available.
    #[error("cannot arm the reflex: the kernel's counters of available memory cannot be read")]
    Unknown,
    /// The kernel would not run the program.
    #[error("cannot arm the reflex")]
    Failed(#[from] io::Error),
}

/// The reflex of this host. Dropping it takes it out of the kernel.
pub struct Reflex {
    trigger: Trigger,
    page: i64,
    nodes: u32,
    seen_ns: u64,
    is_armed: bool,
}

impl Reflex {
    /// Put it into the kernel, with nobody named.
    ///
    /// # Errors
    /// Says why this host has none.
    pub fn open(host: &HostSupport) -> Result<Self, String> {
        if let Some(reason) = obstacle(host) {
            return Err(reason);
        }
        let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
        let page = page.ok_or("the size of a page is unknown")?;
        let nodes = std::fs::read_to_string("/sys/devices/system/node/possible");
        // Without the directory the kernel knows of no other node than the first.
        let nodes = nodes.map_or(Some(1), |text| highest(&text)?.checked_add(1));
        let nodes = nodes.ok_or("the number of NUMA nodes is unknown")?;
        let has_faults = host.functions.contains(FAULTS);
        let trigger = Trigger::open(has_faults).map_err(|Refusal(reason)| reason)?;
        Ok(Self { trigger, page, nodes, seen_ns: 0, is_armed: false })
    }

    /// Name whom to end from now on in place of whoever was named; returns how many processes were taken.
    ///
    /// # Errors
    /// Nobody is named then.
    pub fn arm(&mut self, armament: &Armament) -> Result<usize, ArmError> {
        let Armament { cgroup, processes, available, gauge, line, lease } = armament;
        let until = boot_time()?.saturating_add(*lease);
        let named = processes.iter().take(TARGETS);
        let mut arm = self.blank();
        arm.cgroup = *cgroup;
        arm.until_ns = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
        let pages = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX) / self.page;
        arm.available = pages(*available);
        arm.line = pages(*line);
        arm.free = gauge.free;
        arm.inactive_file = gauge.inactive_file;
        arm.active_file = gauge.active_file;
        arm.anon = gauge.anon;
        arm.file = gauge.file;
        arm.slab_reclaimable = gauge.slab_reclaimable;
        for (slot, (pid, start_ticks)) in arm.processes.iter_mut().zip(named) {
            *slot = Process { start_ticks: *start_ticks, pid: *pid, reserved: 0 };
            arm.count += 1;
        }
        self.ask(&arm)?;
        self.is_armed = true;
        self.trigger.watch_faults(true);
        Ok(self.trigger.look().map_err(ArmError::Failed)?.count as usize)
    }

    /// Name nobody any more. Does nothing when nobody is named.
    ///
    /// # Errors
    /// When it cannot be told whether somebody still is; and [`ArmError::Fired`] when it was too late.
    pub fn disarm(&mut self) -> Result<(), ArmError> {
        if !self.is_armed {
            return Ok(());
        }
        match self.ask(&self.blank()) {
            Ok(()) | Err(ArmError::Nobody) => {
                self.is_armed = false;
                self.trigger.watch_faults(false);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Fire now if the kernel finds the line crossed too, and say what it did. Does nothing when nobody is named.
    ///
    /// # Errors
    /// When the kernel would not run the program, or its record cannot be read.
    pub fn pull(&mut self) -> io::Result<Option<Shot>> {
        if self.is_armed {
            self.trigger.pull()?;
        }
        self.shot()
    }

    /// What it did, once: after this it can be armed again.
    ///
    /// # Errors
    /// When its record cannot be read.
    pub fn shot(&mut self) -> io::Result<Option<Shot>> {
        let reflex = self.trigger.look()?;
        if reflex.state != reflex_state::SHOT || reflex.fired_ns == self.seen_ns {
            return Ok(None);
        }
        self.seen_ns = reflex.fired_ns;
        self.is_armed = false;
        self.trigger.watch_faults(false);
        let of = |wanted| {
            let targets = reflex.targets.iter().take(reflex.count as usize);
            targets.filter(|t| t.fate == wanted).map(|t| t.pid).collect()
        };
        Ok(Some(Shot {
            at: Duration::from_nanos(reflex.fired_ns),
            took: Duration::from_nanos(reflex.done_ns.saturating_sub(reflex.fired_ns)),
            cgroup: reflex.cgroup,
            available: reflex.pages.saturating_mul(self.page),
            line: reflex.line.saturating_mul(self.page),
            killed: of(fate::KILLED),
            doubted: of(fate::DOUBT),
        }))
    }

    /// What the counters of the gauge came to when it was last armed, in bytes.
    ///
    /// # Errors
    /// When its record cannot be read.
    pub fn measured(&self) -> io::Result<i64> {
        let reflex = self.trigger.look()?;
        Ok((reflex.pages - reflex.base).saturating_mul(self.page))
    }

    /// What each of its programs has cost while a [`Meter`](crate::Meter) was held.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn costs(&self) -> io::Result<Vec<Cost>> {
        self.trigger.costs()
    }

    /// A request that names nobody.
    fn blank(&self) -> Arm {
        Arm {
            cgroup: 0,
            until_ns: 0,
            seen_ns: self.seen_ns,
            available: 0,
            line: 0,
            free: 0,
            inactive_file: 0,
            active_file: 0,
            anon: 0,
            file: 0,
            slab_reclaimable: 0,
            agent: i32::try_from(std::process::id()).unwrap_or(0),
            nodes: self.nodes,
            count: 0,
            reserved: 0,
            processes: [Process::default(); TARGETS],
        }
    }

    fn ask(&mut self, arm: &Arm) -> Result<(), ArmError> {
        match self.trigger.arm(arm)? {
            answer::ARMED => Ok(()),
            answer::NOBODY => Err(ArmError::Nobody),
            answer::PROTECTED => Err(ArmError::Protected),
            answer::SHOT => Err(ArmError::Fired),
            _ => Err(ArmError::Unknown),
        }
    }
}

/// Why this host has no reflex, as far as its facts tell.
fn obstacle(host: &HostSupport) -> Option<String> {
    if !host.objects.iter().any(|object| object == TRIGGER_OBJECT) {
        return Some(Refusal::no_object(TRIGGER_OBJECT).0);
    }
    if !host.capabilities.allow_tracing() {
        return Some("CAP_BPF and CAP_PERFMON are missing".to_owned());
    }
    if let Presence::Absent(reason) = &host.btf {
        return Some(reason.clone());
    }
    if let Some(lacks) = CALLS.into_iter().find(|name| !host.functions.contains(name)) {
        return Some(format!("this kernel has no function {lacks}"));
    }
    (host.lockdown >= Some(Lockdown::Confidentiality))
        .then(|| "lockdown forbids reading kernel memory".to_owned())
}

/// The highest number in a list such as `0-3,5`.
fn highest(list: &str) -> Option<u32> {
    list.trim().rsplit([',', '-']).next()?.parse().ok()
}

fn boot_time() -> io::Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_BOOTTIME)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_of_a_list_is_the_highest() {
        assert_eq!(highest("0\n"), Some(0));
        assert_eq!(highest("0-3\n"), Some(3));
        assert_eq!(highest("0-1,6"), Some(6));
        assert_eq!(highest(""), None);
    }

    #[test]
    fn every_function_that_it_calls_is_looked_up() {
        for name in CALLS {
            assert!(crate::catalogue::CALLED.contains(&name), "{name} is not looked up");
        }
    }
}
