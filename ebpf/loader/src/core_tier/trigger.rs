//! The reflex's programs: attached, and armed by running one of them.
use super::callable::{Callable, FIRST};
use crate::attach::Refusal;
use crate::costs::Cost;
use ebb_wire::{Arm, Reflex};
use libbpf_rs::{Link, MapCore as _, MapFlags, MapHandle};
use std::io;
use zerocopy::{FromBytes as _, IntoBytes as _};

/// Name of the object with the reflex.
pub(crate) const OBJECT: &str = "reflex";

/// The program that measures before user space does.
const MEASURES: &str = "reflex_measure";
/// The program that arms.
const ARMS: &str = "reflex_arm";
/// The program that fires when it is run.
const PULLS: &str = "reflex_pull";
/// The programs that fire as long as there is a reflex.
const FIRES: [&str; 2] = ["reflex_kswapd", "reflex_direct_reclaim"];
/// The one that fires only while somebody is named: what it is attached to is too busy for more.
const FIRES_WHILE_ARMED: &str = "reflex_fault";

/// Programs in the kernel that wait for a line to be crossed. Dropping it takes them out.
pub(crate) struct Trigger {
    programs: Callable,
    reflex: MapHandle,
    /// Held for what is attached.
    _links: Vec<Link>,
    /// While somebody is named, where the kernel has such a place.
    fault: Option<Link>,
}

impl Trigger {
    /// `has_faults` says whether the kernel tells of users' page faults.
    pub(crate) fn open(has_faults: bool) -> Result<Self, Refusal> {
        let programs = Callable::open(OBJECT, |name| has_faults || name != FIRES_WHILE_ARMED)?;
        let links = FIRES.iter().filter_map(|name| programs.attach(name));
        let links = links.collect::<Result<_, _>>()?;
        Ok(Self { reflex: programs.map("REFLEX")?, programs, _links: links, fault: None })
    }

    /// Have the kernel look at the counters that are asked for; returns its answer.
    pub(crate) fn measure(&mut self, asked: &Arm) -> io::Result<u32> {
        self.programs.ask(asked.as_bytes(), MEASURES)
    }

    /// Arm as asked for; returns the kernel's answer.
    pub(crate) fn arm(&mut self, asked: &Arm) -> io::Result<u32> {
        self.programs.ask(asked.as_bytes(), ARMS)
    }

    /// Fire if the line is crossed by what is said to be available; returns whether that could be told.
    pub(crate) fn pull(&mut self, asked: &Arm) -> io::Result<u32> {
        self.programs.ask(asked.as_bytes(), PULLS)
    }

    /// Fire at users' page faults too, or no longer.
    pub(crate) fn watch_faults(&mut self, on: bool) {
        if !on {
            self.fault = None;
        } else if self.fault.is_none() {
            // Without it the reflex still fires at reclaim, which comes later.
            self.fault = self.programs.attach(FIRES_WHILE_ARMED).and_then(Result::ok);
        }
    }

    /// What each of its programs has cost while that was measured.
    pub(crate) fn costs(&self) -> io::Result<Vec<Cost>> {
        let names = [MEASURES, ARMS, PULLS, FIRES_WHILE_ARMED].into_iter().chain(FIRES);
        names.filter_map(|name| self.programs.cost(name)).collect()
    }

    /// How it stands.
    pub(crate) fn look(&self) -> io::Result<Reflex> {
        let bytes = self.reflex.lookup(&FIRST, MapFlags::ANY).map_err(io::Error::other)?;
        let bytes = bytes.ok_or_else(|| io::Error::other("an array without its only value"))?;
        Reflex::read_from_bytes(&bytes).map_err(|_| io::ErrorKind::InvalidData.into())
    }
}
