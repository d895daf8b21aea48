//! An object with programs that run when they are called, and a map with what they are asked for.
use crate::attach::Refusal;
use crate::costs::Cost;
use crate::objects;
use libbpf_rs::{
    ErrorExt as _, Link, MapCore as _, MapFlags, MapHandle, Object, ObjectBuilder, ProgramInput,
};
use std::io;
use std::os::fd::AsFd as _;

/// The only key of an array with one value.
pub(crate) const FIRST: [u8; 4] = 0u32.to_ne_bytes();

/// Its programs in the kernel. Dropping it takes them out.
pub(crate) struct Callable {
    name: &'static str,
    object: Object,
    asked: MapHandle,
}

impl Callable {
    /// Load the object `name`, of its programs those that are `wanted`.
    pub(crate) fn open(name: &'static str, wanted: impl Fn(&str) -> bool) -> Result<Self, Refusal> {
        super::listen();
        let bytes = objects::find(name).ok_or_else(|| Refusal::no_object(name))?;
        let mut open = ObjectBuilder::default()
            .open_memory(bytes)
            .map_err(|error| refused("opening the object", &error))?;
        for mut program in open.progs_mut() {
            let load = program.name().to_str().is_some_and(&wanted);
            program.set_autoload(load);
        }
        let object = open.load().map_err(|error| refused("loading", &error))?;
        let asked = find(&object, name, "ASKED")?;
        Ok(Self { name, object, asked })
    }

    /// One of its maps.
    pub(crate) fn map(&self, name: &str) -> Result<MapHandle, Refusal> {
        find(&self.object, self.name, name)
    }

    /// Ask for this by `program`; returns its answer.
    pub(crate) fn ask(&self, asked: &[u8], program: &str) -> io::Result<u32> {
        self.asked.update(&FIRST, asked, MapFlags::ANY).map_err(io::Error::other)?;
        let program = self.object.progs_mut().find(|other| other.name() == program);
        let program = program.ok_or_else(|| io::Error::other("it has gone"))?;
        let output = program.test_run(ProgramInput::default()).context("running the program");
        Ok(output.map_err(io::Error::other)?.return_value)
    }

    /// Attach a program where it says that it belongs; `None` for one that was not wanted.
    pub(crate) fn attach(&self, name: &str) -> Option<Result<Link, Refusal>> {
        let program = self.object.progs_mut().find(|program| program.name() == name)?;
        program.autoload().then(|| program.attach().map_err(|error| refused("attaching", &error)))
    }

    /// What a program has cost while that was measured; `None` for one that was not wanted.
    pub(crate) fn cost(&self, name: &'static str) -> Option<io::Result<Cost>> {
        let program = self.object.progs_mut().find(|program| program.name() == name)?;
        program.autoload().then(|| super::cost(name, program.as_fd()))
    }
}

fn find(object: &Object, of: &str, name: &str) -> Result<MapHandle, Refusal> {
    let map = object.maps().find(|map| map.name() == name);
    let map = map.ok_or_else(|| Refusal(format!("the object `{of}` has no {name}")))?;
    MapHandle::try_from(&map).map_err(|error| refused("keeping a map", &error))
}

fn refused(what: &str, error: &libbpf_rs::Error) -> Refusal {
    Refusal(format!("{what}: {error:#}"))
}
