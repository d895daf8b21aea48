//! The BPF objects inside this binary. What they are made of: `ebpf/probes` (Rust) and `ebpf/core` (C).

/// Name and ELF bytes of every object that `cargo xtask bpf` had made when this crate was built.
static EMBEDDED: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/objects.rs"));

/// The bytes of one object, when this build has it.
pub(crate) fn find(name: &str) -> Option<&'static [u8]> {
    EMBEDDED.iter().find(|(n, _)| *n == name).map(|(_, bytes)| *bytes)
}

/// The names of all objects in this build.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    EMBEDDED.iter().map(|(name, _)| *name)
}
