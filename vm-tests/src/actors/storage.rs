//! Actors that keep the disk and the page cache busy. Their files are on the guest's throw-away root disk.
use super::ready;
use anyhow::{Context, Result};
use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::num::NonZeroUsize;
use std::path::PathBuf;

const MIB: usize = 1 << 20;

/// Fill the page cache: write a file of `mib` MiB and read it over and over.
///
/// In a cgroup whose limit is below `mib` every pass misses the cache: memory and IO pressure with the node's memory
/// free.
pub(super) fn cacher(mib: u64) -> Result<()> {
    let (mut file, path) = fresh_file("cacher")?;
    let mut chunk = vec![1_u8; MIB];
    for _ in 0..mib {
        file.write_all(&chunk).with_context(|| format!("cannot write {}", path.display()))?;
    }
    ready();
    loop {
        file.rewind().with_context(|| format!("cannot rewind {}", path.display()))?;
        while file.read(&mut chunk).with_context(|| format!("cannot read {}", path.display()))? > 0
        {
        }
    }
}

/// Keep a mapped file of `mib` MiB in use, as a program does with its text: look at it in no order, over and over.
///
/// Who reads in a ring loses each page just before it needs it again, for which no memory would be enough, and what is
/// read through a descriptor counts as in use only after several times: the kernel calls neither waiting for memory.
pub(super) fn mapper(mib: u64) -> Result<()> {
    const PAGE: usize = 4096;
    let (mut file, path) = fresh_file("mapper")?;
    let chunk = vec![1_u8; MIB];
    for _ in 0..mib {
        file.write_all(&chunk).with_context(|| format!("cannot write {}", path.display()))?;
    }
    file.sync_all().with_context(|| format!("cannot sync {}", path.display()))?;
    let size = MIB * usize::try_from(mib)?;
    let length = NonZeroUsize::new(size).context("a file of nothing")?;
    // SAFETY: a new mapping at an address of the kernel's choice; the file is ours alone and stays as it is.
    let map = unsafe { mmap(None, length, ProtFlags::PROT_READ, MapFlags::MAP_SHARED, &file, 0) };
    let map = map.with_context(|| format!("cannot map {}", path.display()))?;
    // SAFETY: that many bytes are mapped for as long as this process lives, and nobody writes to them.
    let bytes = unsafe { std::slice::from_raw_parts(map.cast::<u8>().as_ptr(), size) };
    let look = |at: usize| std::hint::black_box(bytes.get(at).copied());
    (0..size).step_by(PAGE).for_each(|at| _ = look(at));
    ready();
    // As many as a small service has: each waits by itself.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    look(fastrand::usize(..size));
                }
            });
        }
    });
    Ok(())
}

/// Hold `mib` MiB of clean page cache and do nothing.
pub(super) fn cached(mib: u64) -> Result<()> {
    let (mut file, path) = fresh_file("cached")?;
    let chunk = vec![1_u8; MIB];
    for _ in 0..mib {
        file.write_all(&chunk).with_context(|| format!("cannot write {}", path.display()))?;
    }
    file.sync_all().with_context(|| format!("cannot sync {}", path.display()))?;
    ready();
    super::memory::park(&[])
}

/// Write and sync for ever: the disk is never idle, dirty pages never pile up.
pub(super) fn syncer(mib: u64) -> Result<()> {
    let (mut file, path) = fresh_file("syncer")?;
    let chunk = vec![1_u8; MIB];
    ready();
    loop {
        file.rewind().with_context(|| format!("cannot rewind {}", path.display()))?;
        for _ in 0..mib {
            file.write_all(&chunk).with_context(|| format!("cannot write {}", path.display()))?;
            file.sync_data().with_context(|| format!("cannot sync {}", path.display()))?;
        }
    }
}

fn fresh_file(name: &str) -> Result<(File, PathBuf)> {
    let path = PathBuf::from(format!("/{name}.{}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path);
    let file = file.with_context(|| format!("cannot create {}", path.display()))?;
    // Unlinked at once: however we end, the space comes back.
    std::fs::remove_file(&path).with_context(|| format!("cannot unlink {}", path.display()))?;
    Ok((file, path))
}
