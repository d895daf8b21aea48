//! The limit on locked memory, which kernels that do not charge BPF memory to cgroups (before 5.11) hold maps against.
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};

/// Lift the limit. `false` when that changed nothing: it was lifted already, or this process may not.
pub(crate) fn lift() -> bool {
    match getrlimit(Resource::RLIMIT_MEMLOCK) {
        Ok((RLIM_INFINITY, _)) | Err(_) => false,
        Ok(_) => setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY).is_ok(),
    }
}

/// What to add to the report of a refused map: nothing when the limit cannot be the reason.
pub(crate) fn hint() -> String {
    match getrlimit(Resource::RLIMIT_MEMLOCK) {
        Ok((RLIM_INFINITY, _)) | Err(_) => String::new(),
        Ok((bytes, _)) => format!(
            "; locked memory is limited to {bytes} bytes, which kernels before 5.11 hold maps against: raise \
             RLIMIT_MEMLOCK or grant CAP_SYS_RESOURCE"
        ),
    }
}
