//! All entries of a hash map in few system calls.
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Entries asked for at once; 8192 cgroups are 32 calls.
const BATCH: u32 = 256;

/// Every key and value of a hash map with `u64` keys and values of `value_size` bytes.
///
/// Entries that come or go meanwhile may or may not be among them.
pub(crate) fn read_all(
    map: BorrowedFd<'_>,
    value_size: usize,
    mut each: impl FnMut(u64, &[u8]),
) -> io::Result<()> {
    let mut keys = vec![0u64; BATCH as usize];
    let mut values = vec![0u8; BATCH as usize * value_size];
    // The kernel's position between calls; opaque, and as large as a key but at least 4 bytes.
    let mut position = 0u64;
    let mut first = true;
    loop {
        let mut count = BATCH;
        let from = if first { std::ptr::null_mut() } else { (&raw mut position).cast() };
        // SAFETY: `keys` and `values` hold `count` keys of 8 and values of `value_size` bytes, the sizes of the map that
        // this is called for; `position` outlives the call and holds a key; the options may be null.
        let result = unsafe {
            libbpf_sys::bpf_map_lookup_batch(
                map.as_raw_fd(),
                from,
                (&raw mut position).cast(),
                keys.as_mut_ptr().cast(),
                values.as_mut_ptr().cast(),
                &raw mut count,
                std::ptr::null(),
            )
        };
        let error = (result != 0).then(io::Error::last_os_error);
        // At the end of the map the kernel reports "no such entry" beside the last, partly filled batch.
        let ended = match &error {
            None => false,
            Some(error) if error.raw_os_error() == Some(nix::libc::ENOENT) => true,
            Some(_) => return error.map_or(Ok(()), Err),
        };
        let filled = values.chunks_exact(value_size).zip(&keys).take(count as usize);
        filled.for_each(|(value, key)| each(*key, value));
        if ended {
            return Ok(());
        }
        first = false;
    }
}
