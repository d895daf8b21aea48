//! The C half, loaded by libbpf: the one module that names libbpf-rs.
//!
//! libbpf loads an object as a whole, so one refused program costs its whole object. That is why each family of programs
//! is an object of its own, and why [`CoreTier::attach`] takes the ways to attempt together: its caller tries all that it
//! wants from an object at once, and one by one when that fails.
mod batch;
mod callable;
mod fall;
mod kernel_types;
mod nothing;
mod runs;
mod trigger;
mod walk;
mod window;

pub(crate) use batch::read_all;
pub(crate) use fall::{Fall, OBJECT as FALL_OBJECT};
pub(crate) use kernel_types::KernelTypes;
pub(crate) use nothing::Nothing;
pub(crate) use runs::{cost, play, skipped_runs};
pub(crate) use trigger::{OBJECT as TRIGGER_OBJECT, Trigger};
pub(crate) use walk::{OBJECT as SWEEP_OBJECT, Walk};

use crate::attach::{Refusal, Running, keep};
use crate::catalogue::{Fact, Way};
use crate::objects;
use crate::shared_maps::SharedMaps;
use libbpf_rs::{Link, MapCore as _, ObjectBuilder, PrintLevel};
use std::os::fd::AsFd;

/// What is attached; dropping it detaches.
#[derive(Default)]
pub(crate) struct CoreTier {
    links: Vec<Link>,
    programs: Vec<Running>,
}

impl CoreTier {
    pub(crate) fn new() -> Self {
        listen();
        Self::default()
    }

    /// Load the object that the ways have in common with only their programs in it, and attach those. All or nothing.
    pub(crate) fn attach(&mut self, ways: &[&Way], maps: &mut SharedMaps) -> Result<(), Refusal> {
        let Some(object) = ways.first().map(|way| way.object) else { return Ok(()) };
        let refused = |what: &str, error: libbpf_rs::Error| Refusal(format!("{what}: {error:#}"));
        let bytes = objects::find(object).ok_or_else(|| Refusal::no_object(object))?;
        let mut open = ObjectBuilder::default()
            .open_memory(bytes)
            .map_err(|error| refused("opening the object", error))?;

        let wanted = |name: &str| ways.iter().flat_map(|w| w.programs).any(|p| p.name == name);
        for mut program in open.progs_mut() {
            let load = program.name().to_str().is_some_and(wanted);
            program.set_autoload(load);
        }
        for mut map in open.maps_mut() {
            let Some(name) = map.name().to_str().map(str::to_owned) else { continue };
            if let Some(fd) = maps.get(&name) {
                map.reuse_fd(fd).map_err(|error| refused("sharing a map", error))?;
            } else if let Some(entries) = maps.max_entries(&name) {
                map.set_max_entries(entries).map_err(|error| refused("sizing a map", error))?;
            }
        }

        let loaded = open.load().map_err(|error| refused("loading", error))?;
        for map in loaded.maps() {
            if let Some(name) = map.name().to_str() {
                maps.insert(name, map.as_fd())?;
            }
        }
        let (mut links, mut programs) = (Vec::new(), Vec::new());
        for (fact, program) in
            ways.iter().flat_map(|way| way.programs.iter().map(|p| (way.fact, p)))
        {
            let found = loaded.progs_mut().find(|p| p.name() == program.name);
            let found = found.ok_or_else(|| Refusal::no_program(object, program.name))?;
            links.push(found.attach().map_err(|error| refused("attaching", error))?);
            let fd = keep(found.as_fd(), program.name)?;
            programs.push(Running { fact, name: program.name, fd });
        }
        // A link keeps its program and the program its maps: the object itself is not needed any more.
        self.links.append(&mut links);
        self.programs.append(&mut programs);
        Ok(())
    }

    /// Takes those out that tell one of these.
    pub(crate) fn detach(&mut self, facts: &[Fact]) {
        // Each program has its link at the same place.
        let links = std::mem::take(&mut self.links);
        let programs = std::mem::take(&mut self.programs);
        let all = links.into_iter().zip(programs);
        (self.links, self.programs) =
            all.filter(|(_, program)| !facts.contains(&program.fact)).unzip();
    }

    /// The attached programs.
    pub(crate) fn programs(&self) -> &[Running] {
        &self.programs
    }
}

/// Have libbpf's messages go where ours go.
fn listen() {
    libbpf_rs::set_print(Some((PrintLevel::Info, forward)));
}

/// libbpf's own messages, the verifier's log among them. Which program was refused and why is reported by whoever asked.
fn forward(level: PrintLevel, message: String) {
    let message = message.trim_end();
    match level {
        PrintLevel::Warn | PrintLevel::Info => tracing::debug!(target: "libbpf", "{message}"),
        PrintLevel::Debug => tracing::trace!(target: "libbpf", "{message}"),
    }
}
