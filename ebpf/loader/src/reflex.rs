//! The reflex: a line drawn and victims named beforehand, so that the kernel can act when user space cannot.
//!
//! ```text
//!  arm(whom, line, lease) ─► the kernel looks at each process and takes those that are what they are taken for
//!      line crossed while the lease lasts ─► it looks again, sends SIGKILL, and fires no second time
//!  pull() ─► it looks now, with what user space reads meanwhile
//!  shot() ─► what it did
//! ```
//! How much is available is read by the caller and measured by the kernel from then on. The kernel looks before and after
//! the caller reads: a reading that memory came or went around, or whose reader was held up, is not used.
//! The kernel never ends process 1, the agent, a kernel thread, or what has an `oom_score_adj` of -1000, whoever names it,
//! and a process that is not what it was when it was named stops the whole shot. Where the caller wants that, nobody is killed
//! either while memory has fallen by more than the named cgroup can answer for. What else is protected is the caller's to
//! know, as is whom to name at all.
use crate::attach::Refusal;
use crate::core_tier::{TRIGGER_OBJECT, Trigger};
use crate::costs::Cost;
use crate::host::HostSupport;
use crate::machine::{boot_time, page_size, possible_nodes};
use ebb_wire::{Arm, Gauge, Process, TARGETS, answer, fate, reflex_state};
use std::io;
use std::time::Duration;

/// Kernel functions without which there is no reflex.
const CALLS: [&str; 3] = ["bpf_task_from_pid", "bpf_task_release", "bpf_send_signal_task"];

/// The tracepoint of users' page faults, as the kernel's types name it.
const FAULTS: &str = "btf_trace_page_fault_user";

/// Processes that can be named at once; a cgroup with more than these is for user space to finish.
pub const MOST_PROCESSES: usize = TARGETS;

/// Bytes that may come or go around a reading: it is wrong by no more than this.
const SLACK: u64 = 4 << 20;
/// Readings in a row that may be disturbed.
const TRIES: u32 = 3;

/// Whom to end at which line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Armament {
    /// Id of the cgroup to be ended.
    pub cgroup: u64,
    /// Its processes and those below it: id, and start in hundredths of a second since boot.
    /// Those beyond [`MOST_PROCESSES`] are left out.
    pub processes: Vec<(i32, u64)>,
    /// What available memory changes with. Whatever it leaves out stays as it is while this stands.
    pub gauge: Gauge,
    /// Fewer available bytes than this are too few.
    pub line: u64,
    /// Bytes that available memory may fall by from now on without the cgroup taking half of them; then nobody is killed,
    /// as somebody else may have come who takes it. `None`: any number.
    pub unexplained: Option<u64>,
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

/// Why nobody was named. Whoever was named before is not any more after [`ArmError::Nobody`] and [`ArmError::Protected`];
/// otherwise that stands until [`Reflex::disarm`].
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
    /// Fewer bytes are available than the line already: who was named before is to be ended, or nobody.
    #[error("cannot arm the reflex: the line is crossed")]
    Crossed,
    /// Memory came or went each time while it was read how much is available, or the reader was held up.
    #[error("cannot arm the reflex: it could not be read in peace how much memory is available")]
    Disturbed,
    /// The kernel cannot tell there how much memory is available.
    #[error("cannot arm the reflex: the kernel's counters of available memory cannot be read")]
    Unknown,
    /// The kernel would not run the program, or it could not be read how much is available.
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
    /// What was measured when it was last armed.
    gauge: Gauge,
}

impl Reflex {
    /// Put it into the kernel, with nobody named.
    ///
    /// # Errors
    /// Says why this host has none.
    pub fn open(host: &HostSupport) -> Result<Self, String> {
        if let Some(reason) = host.obstacle(TRIGGER_OBJECT, CALLS, true) {
            return Err(reason);
        }
        let (page, nodes) = (page_size()?, possible_nodes()?);
        let has_faults = host.functions.contains(FAULTS);
        let trigger = Trigger::open(has_faults).map_err(|Refusal(reason)| reason)?;
        Ok(Self { trigger, page, nodes, seen_ns: 0, is_armed: false, gauge: Gauge::default() })
    }

    /// Name whom to end from now on in place of whoever was named; returns how many processes were taken.
    ///
    /// `available` reads how many bytes are available; it is called once, and again when that was disturbed.
    ///
    /// # Errors
    /// Says why nobody was named, and so who is named now.
    pub fn arm(
        &mut self,
        armament: &Armament,
        mut available: impl FnMut() -> io::Result<u64>,
    ) -> Result<usize, ArmError> {
        let Armament { cgroup, processes, gauge, line, unexplained, lease } = armament;
        let until = boot_time()?.saturating_add(*lease);
        let named = processes.iter().take(TARGETS);
        let mut arm = self.blank();
        arm.cgroup = *cgroup;
        arm.until_ns = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
        // Up to a whole page: whoever compares bytes finds it crossed no sooner than the kernel does.
        arm.line = self.pages(*line) + i64::from(!line.is_multiple_of(self.page.unsigned_abs()));
        arm.unexplained = unexplained.map_or(0, |bytes| self.pages(bytes).max(1));
        arm.gauge = *gauge;
        for (slot, (pid, start_ticks)) in arm.processes.iter_mut().zip(named) {
            *slot = Process { start_ticks: *start_ticks, pid: *pid, reserved: 0 };
            arm.count += 1;
        }
        if arm.count == 0 {
            self.disarm()?;
            return Err(ArmError::Nobody);
        }
        let mut answer = answer::DISTURBED;
        for _ in 0..TRIES {
            if self.trigger.measure(&arm)? != answer::MEASURED {
                return Err(ArmError::Unknown);
            }
            let bytes = available()?;
            if bytes < *line {
                return Err(ArmError::Crossed);
            }
            arm.available = self.pages(bytes);
            answer = self.trigger.arm(&arm)?;
            if answer != answer::DISTURBED {
                break;
            }
        }
        verdict(answer)?;
        self.gauge = *gauge;
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
        match verdict(self.trigger.arm(&self.blank())?) {
            Ok(()) | Err(ArmError::Nobody) => {
                self.is_armed = false;
                self.trigger.watch_faults(false);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Fire now if the line is crossed, and say what it did. Does nothing when nobody is named.
    ///
    /// `available` reads how many bytes are available; it is called once, and again when that was disturbed.
    /// Disturbed each time, the kernel goes by what it knows.
    ///
    /// # Errors
    /// When the kernel would not run the program, its record cannot be read, or `available` fails.
    pub fn pull(
        &mut self,
        mut available: impl FnMut() -> io::Result<u64>,
    ) -> io::Result<Option<Shot>> {
        if self.is_armed {
            let mut asked = self.blank();
            asked.gauge = self.gauge;
            for _ in 0..TRIES {
                self.trigger.measure(&asked)?;
                asked.available = self.pages(available()?);
                if self.trigger.pull(&asked)? != answer::DISTURBED {
                    break;
                }
            }
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
            slack: self.pages(SLACK),
            unexplained: 0,
            gauge: Gauge::default(),
            agent: i32::try_from(std::process::id()).unwrap_or(0),
            nodes: self.nodes,
            count: 0,
            reserved: 0,
            processes: [Process::default(); TARGETS],
        }
    }

    /// Whole pages in so many bytes.
    fn pages(&self, bytes: u64) -> i64 {
        i64::try_from(bytes).unwrap_or(i64::MAX) / self.page
    }
}

/// What the kernel answered.
fn verdict(answer: u32) -> Result<(), ArmError> {
    match answer {
        answer::ARMED => Ok(()),
        answer::NOBODY => Err(ArmError::Nobody),
        answer::PROTECTED => Err(ArmError::Protected),
        answer::SHOT => Err(ArmError::Fired),
        answer::DISTURBED => Err(ArmError::Disturbed),
        _ => Err(ArmError::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_that_it_calls_is_looked_up() {
        for name in CALLS {
            assert!(crate::catalogue::CALLED.contains(&name), "{name} is not looked up");
        }
    }
}
