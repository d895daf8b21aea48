//! A map of the kernel's, seen as memory of this process: what programs write there is read without a system call.
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::io;
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use zerocopy::FromBytes;

/// An array map of `T`, which must have been made with `BPF_F_MMAPABLE` and values of exactly that size.
pub(crate) struct Window<T> {
    at: NonNull<c_void>,
    bytes: NonZeroUsize,
    entries: usize,
    holds: PhantomData<T>,
}

impl<T: FromBytes + Copy> Window<T> {
    /// Values of an array lie this far apart.
    const ALIGNED: () = assert!(size_of::<T>().is_multiple_of(8) && size_of::<T>() > 0);

    /// See the map `fd` of `entries` values.
    pub(crate) fn open(fd: BorrowedFd<'_>, entries: u32) -> io::Result<Self> {
        const { Self::ALIGNED };
        let entries = entries as usize;
        let bytes = entries.checked_mul(size_of::<T>()).and_then(NonZeroUsize::new);
        let bytes = bytes.ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let at = unsafe { mmap(None, bytes, ProtFlags::PROT_READ, MapFlags::MAP_SHARED, fd, 0) }?;
        Ok(Self { at, bytes, entries, holds: PhantomData })
    }

    /// A copy of one value; `None` past the end. A value that a program writes meanwhile may be half old, half new.
    pub(crate) fn get(&self, index: usize) -> Option<T> {
        if index >= self.entries {
            return None;
        }
        // SAFETY: the mapping holds `entries` values of `T`, lives as long as `self`, and starts at a page, so every
        // value is aligned; any bytes are a `T`. The read is volatile because the kernel writes behind the compiler's back.
        Some(unsafe { self.at.cast::<T>().add(index).read_volatile() })
    }

    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        self.entries
    }
}

impl<T> Drop for Window<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours alone and nothing borrowed from it is left: `get` copies.
        // It fails only for addresses that are not a mapping's.
        let _ = unsafe { munmap(self.at, self.bytes.get()) };
    }
}
