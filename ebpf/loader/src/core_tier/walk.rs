//! One program run over every cgroup of a subtree, and the array that it writes to.
use super::window::Window;
use crate::attach::Refusal;
use crate::objects;
use ebb_wire::{Sweep, Swept};
use libbpf_rs::{
    CgroupIterOpts, CgroupIterOrder, Iter, IterOpts, Link, MapCore as _, ObjectBuilder,
};
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};

/// Name of the object with the programs that sweep.
pub(crate) const OBJECT: &str = "sweep";

/// A program that can be run over a subtree again and again.
pub(crate) struct Walk {
    link: Link,
    sweep: Window<Sweep>,
    swept: Window<Swept>,
}

impl Walk {
    /// Load `program` alone and tie it to the subtree of `cgroup`, with room for `entries` cgroups.
    pub(crate) fn open(
        program: &str,
        cgroup: BorrowedFd<'_>,
        entries: u32,
    ) -> Result<Self, Refusal> {
        super::listen();
        let refused = |what: &str, error: libbpf_rs::Error| Refusal(format!("{what}: {error:#}"));
        let bytes = objects::find(OBJECT).ok_or_else(|| Refusal::no_object(OBJECT))?;
        let mut open = ObjectBuilder::default()
            .open_memory(bytes)
            .map_err(|error| refused("opening the object", error))?;
        for mut other in open.progs_mut() {
            let load = other.name() == program;
            other.set_autoload(load);
        }
        for mut map in open.maps_mut() {
            if map.name() == "SWEPT" {
                map.set_max_entries(entries).map_err(|error| refused("sizing a map", error))?;
            }
        }
        let loaded = open.load().map_err(|error| refused("loading", error))?;
        let found = loaded.progs_mut().find(|p| p.name() == program);
        let found = found.ok_or_else(|| Refusal::no_program(OBJECT, program))?;
        let mut options = CgroupIterOpts::from_fd(cgroup);
        options.order = CgroupIterOrder::DescendantsPre;
        let link = found.attach_iter_with_opts(IterOpts::Cgroup(options));
        let link = link.map_err(|error| refused("attaching", error))?;
        let map = |name: &str| {
            let map = loaded.maps().find(|map| map.name() == name);
            map.ok_or_else(|| Refusal(format!("the object `{OBJECT}` has no map `{name}`")))
        };
        let unseen = |error: io::Error| Refusal(format!("seeing the records: {error}"));
        // The link keeps the program and the windows keep the maps: the object itself is not needed any more.
        Ok(Self {
            sweep: Window::open(map("SWEEP")?.as_fd(), 1).map_err(unseen)?,
            swept: Window::open(map("SWEPT")?.as_fd(), entries).map_err(unseen)?,
            link,
        })
    }

    /// Run over the subtree now; returns the number of cgroups there, which can be more than there is room for.
    ///
    /// # Errors
    /// What the kernel says, and `Interrupted` when it stopped on the way.
    pub(crate) fn run(&mut self) -> io::Result<usize> {
        let mut iterator = Iter::new(&self.link).map_err(io::Error::other)?;
        // The program writes nothing here: the one read goes over all of them and finds the end.
        let mut nothing = [0; 64];
        while iterator.read(&mut nothing)? > 0 {}
        let sweep = self.sweep.get(0).unwrap_or_default();
        if sweep.whole != 1 {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "the sweep did not end"));
        }
        Ok(sweep.found as usize)
    }

    /// How many cgroups there is room for.
    pub(crate) fn room(&self) -> usize {
        self.swept.len()
    }

    /// The record of one cgroup, in the order of the walk.
    pub(crate) fn record(&self, index: usize) -> Option<Swept> {
        self.swept.get(index)
    }
}
