//! The limit on locked memory, which kernels that do not charge BPF memory to cgroups (before 5.11) hold maps against.
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};

/// Lift the limit. `false` when that changed nothing: it was lifted already, or this process may not.
pub(crate) fn lift() -> bool {
    match getrlimit(Resource::RLIMIT_MEMLOCK) {
        Ok((RLIM_INFINITY, _)) | Err(_) => false,
        Ok(_) => setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY).is_ok(),
    }
}
