//! The reflex's programs: attached, and armed by running one of them.
use crate::attach::Refusal;
use crate::costs::Cost;
use crate::objects;
use ebb_wire::{Arm, Reflex};
use libbpf_rs::{
    ErrorExt as _, Link, MapCore as _, MapFlags, MapHandle, Object, ObjectBuilder, ProgramInput,
};
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd as _;
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

const FIRST: [u8; 4] = 0u32.to_ne_bytes();

/// Programs in the kernel that wait for a line to be crossed. Dropping it takes them out.
pub(crate) struct Trigger {
    object: Object,
    asked: MapHandle,
    reflex: MapHandle,
    /// Held for what is attached.
    _links: Vec<Link>,
    /// While somebody is named, where the kernel has such a place.
    fault: Option<Link>,
}

impl Trigger {
    /// `has_faults` says whether the kernel tells of users' page faults.
    pub(crate) fn open(has_faults: bool) -> Result<Self, Refusal> {
        super::listen();
        let refused = |what: &str, error: libbpf_rs::Error| Refusal(format!("{what}: {error:#}"));
        let bytes = objects::find(OBJECT).ok_or_else(|| Refusal::no_object(OBJECT))?;
        let mut open = ObjectBuilder::default()
            .open_memory(bytes)
            .map_err(|error| refused("opening the object", error))?;
        for mut program in open.progs_mut() {
            let load = has_faults || program.name() != FIRES_WHILE_ARMED;
            program.set_autoload(load);
        }
        let object = open.load().map_err(|error| refused("loading", error))?;
        let fires = |name: &OsStr| FIRES.iter().any(|program| name == *program);
        let links = object.progs_mut().filter(|program| fires(program.name()));
        let links = links.map(|program| program.attach()).collect::<Result<Vec<_>, _>>();
        let links = links.map_err(|error| refused("attaching", error))?;
        let map = |name: &str| {
            let map = object.maps().find(|map| map.name() == name);
            let map = map.ok_or_else(|| Refusal(format!("the object `{OBJECT}` has no {name}")))?;
            MapHandle::try_from(&map).map_err(|error| refused("keeping a map", error))
        };
        let (asked, reflex) = (map("ASKED")?, map("REFLEX")?);
        Ok(Self { asked, reflex, object, _links: links, fault: None })
    }

    /// Have the kernel look at the counters that are asked for; returns its answer.
    pub(crate) fn measure(&mut self, asked: &Arm) -> io::Result<u32> {
        self.ask(asked, MEASURES)
    }

    /// Arm as asked for; returns the kernel's answer.
    pub(crate) fn arm(&mut self, asked: &Arm) -> io::Result<u32> {
        self.ask(asked, ARMS)
    }

    /// Fire if the line is crossed by what is said to be available; returns whether that could be told.
    pub(crate) fn pull(&mut self, asked: &Arm) -> io::Result<u32> {
        self.ask(asked, PULLS)
    }

    fn ask(&mut self, asked: &Arm, program: &str) -> io::Result<u32> {
        self.asked.update(&FIRST, asked.as_bytes(), MapFlags::ANY).map_err(io::Error::other)?;
        self.run(program)
    }

    fn run(&self, name: &str) -> io::Result<u32> {
        let program = self.object.progs_mut().find(|program| program.name() == name);
        let program = program.ok_or_else(|| io::Error::other("it has gone"))?;
        let output = program.test_run(ProgramInput::default()).context("running the program");
        Ok(output.map_err(io::Error::other)?.return_value)
    }

    /// Fire at users' page faults too, or no longer.
    pub(crate) fn watch_faults(&mut self, on: bool) {
        if !on {
            self.fault = None;
        } else if self.fault.is_none() {
            let program = self.object.progs_mut().find(|p| p.name() == FIRES_WHILE_ARMED);
            // Without it the reflex still fires at reclaim, which comes later.
            self.fault = program
                .filter(|program| program.autoload())
                .and_then(|program| program.attach().ok());
        }
    }

    /// What each of its programs has cost while that was measured.
    pub(crate) fn costs(&self) -> io::Result<Vec<Cost>> {
        let names = [MEASURES, ARMS, PULLS, FIRES_WHILE_ARMED].into_iter().chain(FIRES);
        let program = |name: &'static str| {
            let program = self.object.progs_mut().find(|program| program.name() == name)?;
            program.autoload().then(|| super::cost(name, program.as_fd()))
        };
        names.filter_map(program).collect()
    }

    /// How it stands.
    pub(crate) fn look(&self) -> io::Result<Reflex> {
        let bytes = self.reflex.lookup(&FIRST, MapFlags::ANY).map_err(io::Error::other)?;
        let bytes = bytes.ok_or_else(|| io::Error::other("an array without its only value"))?;
        Reflex::read_from_bytes(&bytes).map_err(|_| io::ErrorKind::InvalidData.into())
    }
}
