//! Giving up capabilities, as a service file or a pod's security context would.
use anyhow::{Context, Result, ensure};
use nix::sys::resource::{RLIM_INFINITY, Resource, setrlimit};

pub(crate) const CAP_DAC_OVERRIDE: u32 = 1;
pub(crate) const CAP_DAC_READ_SEARCH: u32 = 2;
pub(crate) const CAP_KILL: u32 = 5;
pub(crate) const CAP_IPC_LOCK: u32 = 14;
pub(crate) const CAP_SYS_PTRACE: u32 = 19;
pub(crate) const CAP_SYS_ADMIN: u32 = 21;
pub(crate) const CAP_SYS_NICE: u32 = 23;
pub(crate) const CAP_SYS_RESOURCE: u32 = 24;
pub(crate) const CAP_PERFMON: u32 = 38;
pub(crate) const CAP_BPF: u32 = 39;
/// More than any kernel has.
const CAPABILITIES: u32 = 64;

const VERSION_3: u32 = 0x2008_0522;

/// As `struct __user_cap_header_struct` of capabilities(7).
#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

/// As `struct __user_cap_data_struct`; two of them hold 64 capabilities.
#[repr(C)]
#[derive(Clone, Copy)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Keep only these capabilities in this process, for good. Locked memory is made unlimited before: old kernels charge
/// BPF maps to it, and raising it is a privilege of its own.
pub(crate) fn keep_only(capabilities: &[u32]) -> Result<()> {
    setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY)?;
    let mask = capabilities.iter().fold(0_u64, |mask, cap| mask | 1 << cap);
    let half = |bits: u64| {
        let bits = u32::try_from(bits & 0xffff_ffff).unwrap_or(0);
        Data { effective: bits, permitted: bits, inheritable: bits }
    };
    let header = Header { version: VERSION_3, pid: 0 };
    let data = [half(mask), half(mask >> 32)];
    // SAFETY: both pointers are to live values of the layout that version 3 of this call asks for.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) };
    ensure!(result == 0, "cannot give up capabilities: {}", std::io::Error::last_os_error());
    Ok(())
}

/// Let what is executed from here on have none of these capabilities, which are listed with commas, although it runs as root.
pub(crate) fn without(withheld: &str) -> Result<()> {
    let withheld = withheld.split(',').map(str::parse);
    let withheld: Vec<u32> = withheld.collect::<Result<_, _>>().context("odd capabilities")?;
    let others: Vec<u32> = (0..CAPABILITIES).filter(|cap| !withheld.contains(cap)).collect();
    bound_to(&others)
}

/// Let what is executed from here on have only these capabilities, although it runs as root.
pub(crate) fn bound_to(capabilities: &[u32]) -> Result<()> {
    for cap in (0..CAPABILITIES).filter(|cap| !capabilities.contains(cap)) {
        // SAFETY: this call takes two numbers and touches no memory of ours.
        let result =
            unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(cap), 0, 0, 0) };
        // The first number that this kernel has no capability for ends the list.
        if result != 0 {
            let error = std::io::Error::last_os_error();
            ensure!(
                error.raw_os_error() == Some(libc::EINVAL),
                "cannot bound capabilities: {error}"
            );
            return Ok(());
        }
    }
    Ok(())
}
