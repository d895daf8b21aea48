//! Facts about this host that decide which programs it can run. Facts only: what follows from them is `probe_set`.
//!
//! Nothing here compares versions: distributions backport, and a hook is there or it is not.
use crate::attach::Refusal;
use crate::catalogue::{Arg, CALLED, Hook, WAYS};
use crate::{core_tier, objects};
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// What was found out about a host. Unknown is `None`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostSupport {
    /// Kernel release, for people to read; nothing is decided by it.
    pub release: String,
    /// The kernel's type information.
    pub btf: Presence,
    /// What this process may do.
    pub capabilities: Capabilities,
    /// What lockdown withholds even from root; `None` when the kernel does not say.
    pub lockdown: Option<Lockdown>,
    /// `kernel.unprivileged_bpf_disabled`: 0 allows BPF to everybody, 1 and 2 to the privileged.
    pub unprivileged_bpf_disabled: Option<u8>,
    /// What the kernel's BTF says about each hook that a program could use; empty without BTF.
    #[serde(serialize_with = "by_name")]
    pub hooks: BTreeMap<Hook, HookSupport>,
    /// Those of the functions that programs call, and iterators that they run in, which the kernel's BTF has.
    pub functions: BTreeSet<&'static str>,
    /// The BPF objects that this binary was built with.
    pub objects: Vec<String>,
}

impl HostSupport {
    /// The first reason against an object whose programs trace and call these functions of the kernel, and, where one of them `peeks`, read its memory; `None` when there is none.
    pub(crate) fn obstacle<'a>(
        &self,
        object: &str,
        calls: impl IntoIterator<Item = &'a str>,
        peeks: bool,
    ) -> Option<String> {
        if !self.objects.iter().any(|built| built == object) {
            return Some(Refusal::no_object(object).0);
        }
        if !self.capabilities.allow_tracing() {
            return Some("CAP_BPF and CAP_PERFMON are missing".to_owned());
        }
        if let Presence::Absent(reason) = &self.btf {
            return Some(reason.clone());
        }
        if let Some(lacks) = calls.into_iter().find(|name| !self.functions.contains(name)) {
            return Some(format!("this kernel has no function {lacks}"));
        }
        (peeks && self.lockdown >= Some(Lockdown::Confidentiality))
            .then(|| "lockdown forbids reading kernel memory".to_owned())
    }
}

/// Whether something is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// It is.
    Present,
    /// It is not, for this reason.
    Absent(String),
}

/// What is known of one hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HookSupport {
    /// It exists and passes these arguments. The kernel can still refuse a program there.
    Passes(Vec<Arg>),
    /// It does not exist, for this reason.
    Absent(String),
}

/// The effective capabilities that matter to BPF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "four independent facts, each the kernel's own name"
)]
pub struct Capabilities {
    /// Implies all the others.
    pub sys_admin: bool,
    /// Lets maps be made and programs be loaded.
    pub bpf: bool,
    /// Lets tracing programs be loaded.
    pub perfmon: bool,
    /// Lets limits on locked memory be raised, which kernels before cgroup accounting of BPF memory ask for.
    pub sys_resource: bool,
}

/// How far the kernel is locked down, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lockdown {
    /// Not at all.
    None,
    /// User space cannot change the running kernel; no hindrance to ebb.
    Integrity,
    /// User space cannot read kernel memory either: programs cannot copy strings.
    Confidentiality,
}

/// Look at this host. Needs no privilege: what cannot be read is reported as absent or unknown.
pub fn survey() -> HostSupport {
    let (btf, hooks, functions) = match core_tier::KernelTypes::load() {
        Ok(types) => (Presence::Present, hooks(&types), functions(&types)),
        Err(reason) => (Presence::Absent(reason), BTreeMap::new(), BTreeSet::new()),
    };
    HostSupport {
        release: read("/proc/sys/kernel/osrelease").unwrap_or_default(),
        btf,
        capabilities: read("/proc/self/status")
            .and_then(|status| Capabilities::from_status(&status))
            .unwrap_or_default(),
        lockdown: read("/sys/kernel/security/lockdown").and_then(|text| Lockdown::parse(&text)),
        unprivileged_bpf_disabled: read("/proc/sys/kernel/unprivileged_bpf_disabled")
            .and_then(|text| text.parse().ok()),
        hooks,
        functions,
        objects: objects::names().map(str::to_owned).collect(),
    }
}

fn hooks(types: &core_tier::KernelTypes) -> BTreeMap<Hook, HookSupport> {
    let hooks = WAYS.iter().flat_map(|way| way.programs).map(|program| program.hook);
    hooks.map(|hook| (hook, types.look_up(hook))).collect()
}

fn functions(types: &core_tier::KernelTypes) -> BTreeSet<&'static str> {
    CALLED.iter().copied().filter(|name| types.has_function(name)).collect()
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn by_name<S: Serializer>(
    hooks: &BTreeMap<Hook, HookSupport>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(hooks.iter().map(|(hook, support)| (hook.to_string(), support)))
}

impl Capabilities {
    /// Whether tracing programs can be loaded.
    pub fn allow_tracing(self) -> bool {
        self.sys_admin || (self.bpf && self.perfmon)
    }

    /// From the text of `/proc/PID/status`; `None` when it has no `CapEff` line.
    fn from_status(status: &str) -> Option<Self> {
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        let mask = u64::from_str_radix(line.trim(), 16).ok()?;
        // Bit numbers of linux/capability.h.
        let has = |bit: u32| mask & (1 << bit) != 0;
        Some(Self { sys_admin: has(21), sys_resource: has(24), perfmon: has(38), bpf: has(39) })
    }
}

impl Lockdown {
    /// From the text of the lockdown file, in which the level in force stands in brackets.
    fn parse(text: &str) -> Option<Self> {
        match text.split_once('[')?.1.split_once(']')?.0 {
            "none" => Some(Self::None),
            "integrity" => Some(Self::Integrity),
            "confidentiality" => Some(Self::Confidentiality),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_by_bit_number() {
        let root = Capabilities::from_status("Name:\tx\nCapEff:\t000001ffffffffff\n").unwrap();
        assert!(root.sys_admin && root.bpf && root.perfmon && root.sys_resource);
        let two = Capabilities::from_status("CapEff:\t000000c000000000").unwrap();
        assert_eq!(two, Capabilities { bpf: true, perfmon: true, ..Capabilities::default() });
        assert!(two.allow_tracing());
        let one = Capabilities::from_status("CapEff:\t0000008000000000").unwrap();
        assert!(one.bpf && !one.allow_tracing());
        assert_eq!(Capabilities::from_status("Name:\tx\n"), None);
    }

    #[test]
    fn the_lockdown_level_in_force_is_the_one_in_brackets() {
        assert_eq!(Lockdown::parse("none [integrity] confidentiality"), Some(Lockdown::Integrity));
        assert_eq!(Lockdown::parse("[none] integrity confidentiality"), Some(Lockdown::None));
        assert_eq!(Lockdown::parse("none [everything]"), None);
        assert_eq!(Lockdown::parse(""), None);
    }

    #[test]
    fn a_survey_needs_no_privilege_and_names_the_kernel() {
        let host = survey();
        assert!(!host.release.is_empty());
        match host.btf {
            Presence::Present => assert!(!host.hooks.is_empty()),
            Presence::Absent(reason) => assert!(!reason.is_empty()),
        }
    }
}
