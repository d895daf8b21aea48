//! The Rust half, loaded by aya: the one module that attaches through it. aya reports a refusal per program.
use crate::attach::{Refusal, Running, keep};
use crate::catalogue::{Point, Program, RUST_OBJECT, Way};
use crate::shared_maps::SharedMaps;
use crate::{memlock, objects};
use aya::maps::{Map, MapError};
use aya::programs::{FEntry, ProgramError, RawTracePoint};
use aya::{Btf, Ebpf, EbpfError, EbpfLoader};
use aya_log::EbpfLogger;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// The object, with what is attached; dropping it detaches.
pub(crate) struct RustTier {
    ebpf: Ebpf,
    /// Read once, when the first program asks for it.
    btf: Option<Btf>,
    programs: Vec<Running>,
}

impl RustTier {
    /// Create the maps; no program is loaded yet.
    pub(crate) fn load(maps: &mut SharedMaps) -> Result<Self, Refusal> {
        let bytes = objects::find(RUST_OBJECT).ok_or_else(|| Refusal::no_object(RUST_OBJECT))?;
        let load = |maps: &SharedMaps| {
            let mut loader = EbpfLoader::new();
            // Rust emits nothing to relocate against the kernel's types.
            loader.btf(None);
            for (name, entries) in maps.sizes() {
                loader.map_max_entries(name, *entries);
            }
            loader.load(bytes)
        };
        let ebpf = match load(maps) {
            Err(error) if is_permission(&error) && memlock::lift() => load(maps),
            other => other,
        };
        let ebpf = ebpf.map_err(|error| {
            let hint = if is_permission(&error) { memlock::hint() } else { String::new() };
            Refusal(format!("loading the object: {}{hint}", chain(&error)))
        })?;
        for (name, map) in ebpf.maps() {
            if let Map::RingBuf(data)
            | Map::PerCpuArray(data)
            | Map::Array(data)
            | Map::LruHashMap(data) = map
            {
                maps.insert(name, data.fd().as_fd())?;
            }
        }
        Ok(Self { ebpf, btf: None, programs: Vec::new() })
    }

    /// Attach one way: all of its programs, or none.
    pub(crate) fn attach(&mut self, way: &Way) -> Result<(), Refusal> {
        let mut programs = Vec::new();
        for (done, program) in way.programs.iter().enumerate() {
            match self.attach_program(program) {
                Ok(fd) => programs.push(Running { fact: way.fact, name: program.name, fd }),
                Err(refusal) => {
                    for undone in &way.programs[..done] {
                        self.unload(undone);
                    }
                    return Err(refusal);
                }
            }
        }
        self.programs.append(&mut programs);
        Ok(())
    }

    /// The attached programs.
    pub(crate) fn programs(&self) -> &[Running] {
        &self.programs
    }

    /// The reader of the programs' own messages; `None` when the object has none to give.
    pub(crate) fn logger(&mut self) -> Option<EbpfLogger<Forward>> {
        EbpfLogger::init_with_logger(&mut self.ebpf, Forward).ok()
    }

    /// Let go of what only attaching needs.
    pub(crate) fn settle(&mut self) {
        self.btf = None;
    }

    fn attach_program(&mut self, program: &Program) -> Result<OwnedFd, Refusal> {
        let refused = |what: &str, error: ProgramError| refusal(program, what, &error);
        if program.hook.point.needs_btf() && self.btf.is_none() {
            let btf =
                Btf::from_sys_fs().map_err(|error| Refusal(format!("reading BTF: {error}")))?;
            self.btf = Some(btf);
        }
        let handle = self.ebpf.program_mut(program.name);
        let handle = handle.ok_or_else(|| Refusal::no_program(RUST_OBJECT, program.name))?;
        let target = program.hook.target;
        let fd = match (program.hook.point, &self.btf) {
            (Point::RawTp, _) => {
                let handle: &mut RawTracePoint =
                    handle.try_into().map_err(|error| refused("finding", error))?;
                handle.load().map_err(|error| refused("loading", error))?;
                handle.attach(target).map_err(|error| refused("attaching", error))?;
                handle.fd()
            }
            (Point::Fentry, Some(btf)) => {
                let handle: &mut FEntry =
                    handle.try_into().map_err(|error| refused("finding", error))?;
                handle.load(target, btf).map_err(|error| refused("loading", error))?;
                handle.attach().map_err(|error| refused("attaching", error))?;
                handle.fd()
            }
            (Point::Fentry | Point::Fexit | Point::TpBtf, _) => {
                return Err(Refusal(format!("no Rust program is attached at {}", program.hook)));
            }
        };
        keep(fd.map_err(|error| refused("finding", error))?.as_fd(), program.name)
    }

    /// Unloading drops the program's links too.
    fn unload(&mut self, program: &Program) {
        let result = match self.ebpf.program_mut(program.name) {
            Some(aya::programs::Program::RawTracePoint(handle)) => handle.unload(),
            Some(aya::programs::Program::FEntry(handle)) => handle.unload(),
            _ => Ok(()),
        };
        if let Err(error) = result {
            tracing::warn!("cannot unload {}: {error}", program.name);
        }
    }
}

fn is_permission(error: &EbpfError) -> bool {
    matches!(error, EbpfError::MapError(MapError::CreateError { io_error, .. })
        if io_error.kind() == io::ErrorKind::PermissionDenied)
}

/// The kernel's errno as text; the verifier's log, which can be long, goes to the debug log.
fn refusal(program: &Program, what: &str, error: &ProgramError) -> Refusal {
    if let ProgramError::LoadError { io_error, verifier_log } = error {
        tracing::debug!("the verifier on {}: {verifier_log}", program.name);
        return Refusal(format!("{what}: {io_error}"));
    }
    Refusal(format!("{what}: {}", chain(error)))
}

/// An error with its sources.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = error.source();
    }
    text
}

/// Hands the kernel side's messages to `tracing`.
pub(crate) struct Forward;

impl log::Log for Forward {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        match record.level() {
            log::Level::Error => tracing::error!(target: "ebpf", "{}", record.args()),
            log::Level::Warn => tracing::warn!(target: "ebpf", "{}", record.args()),
            log::Level::Info => tracing::info!(target: "ebpf", "{}", record.args()),
            log::Level::Debug | log::Level::Trace => {
                tracing::debug!(target: "ebpf", "{}", record.args());
            }
        }
    }

    fn flush(&self) {}
}
