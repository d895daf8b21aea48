//! The running kernel's BTF, asked which hooks exist and what they pass.
use crate::catalogue::{Arg, CALLED, Hook, WAYS};
use crate::host::HookSupport;
use libbpf_rs::btf::types::FuncProto;
use libbpf_rs::btf::{Btf, BtfKind, BtfType};
use std::collections::{BTreeMap, BTreeSet};

/// The signatures of all hooks in the catalogue that this kernel has. Reading the kernel's types takes tens of milliseconds
/// and megabytes, so they are walked once and let go of.
pub(crate) struct KernelTypes {
    signatures: BTreeMap<String, Vec<Arg>>,
}

/// The type that carries a tracepoint's arguments is named after it.
const TRACEPOINT_PREFIX: &str = "btf_trace_";

impl KernelTypes {
    /// # Errors
    /// Says why the kernel's BTF cannot be used.
    pub(crate) fn load() -> Result<Self, String> {
        let path = "/sys/kernel/btf/vmlinux";
        let btf = Btf::from_path(path).map_err(|error| format!("no BTF in {path}: {error:#}"))?;
        let wanted: BTreeSet<String> =
            WAYS.iter().flat_map(|way| way.programs).map(|program| symbol(program.hook)).collect();
        let wanted: BTreeSet<String> =
            wanted.into_iter().chain(CALLED.iter().map(|name| (*name).to_owned())).collect();
        let signatures = btf
            .type_by_kind::<BtfType<'_>>()
            .filter(|ty| matches!(ty.kind(), BtfKind::Func | BtfKind::Typedef))
            .filter_map(|ty| {
                let name = ty.name()?.to_str().filter(|name| wanted.contains(*name))?;
                Some((name.to_owned(), arguments(&btf, ty)?))
            })
            .collect();
        Ok(Self { signatures })
    }

    /// Whether there is a function of this name, which must be one that the catalogue lists as called.
    pub(crate) fn has_function(&self, name: &str) -> bool {
        self.signatures.contains_key(name)
    }

    pub(crate) fn look_up(&self, hook: Hook) -> HookSupport {
        match self.signatures.get(&symbol(hook)) {
            Some(args) => HookSupport::Passes(args.clone()),
            None if hook.point.is_function() => {
                HookSupport::Absent(format!("this kernel has no function {}", hook.target))
            }
            None => HookSupport::Absent(format!("this kernel has no tracepoint {}", hook.target)),
        }
    }
}

fn symbol(hook: Hook) -> String {
    if hook.point.is_function() {
        hook.target.to_owned()
    } else {
        format!("{TRACEPOINT_PREFIX}{}", hook.target)
    }
}

/// What a function passes, or a tracepoint, whose type is a pointer to a function with the probe's own data in front.
fn arguments<'a>(btf: &'a Btf<'_>, ty: BtfType<'a>) -> Option<Vec<Arg>> {
    let (prototype, own) = match ty.kind() {
        BtfKind::Func => (ty.next_type()?, 0),
        _ => (ty.next_type().filter(|ty| ty.kind() == BtfKind::Ptr)?.next_type()?, 1),
    };
    let prototype = FuncProto::try_from(prototype).ok()?;
    let kind = |parameter: libbpf_rs::btf::types::FuncProtoParam<'_>| {
        let ty = btf.type_by_id::<BtfType<'_>>(parameter.ty)?.skip_mods_and_typedefs();
        Some(if ty.kind() == BtfKind::Ptr { Arg::Pointer } else { Arg::Scalar })
    };
    prototype.iter().skip(own).map(kind).collect()
}
