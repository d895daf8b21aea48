//! Filesystems in user space that leave whoever asks them waiting, and processes that wait for them: with the lock of their memory held, or with all that they have taken.
//!
//! The filesystem speaks the protocol of `/dev/fuse` itself (`include/uapi/linux/fuse.h`): a library would answer whom this one must not.
use super::ready;
use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// The one file; of one page, where nobody gets to read it.
pub(crate) const FILE: &str = "file";
const PAGE: u16 = 4096;

const ROOT_NODE: u64 = 1;
const FILE_NODE: u64 = 2;
/// Seconds for which the kernel need not ask again.
const VALID: u64 = 3600;
/// Beside the directory of a filesystem: somebody waits for a page, and its server knows.
const ASKED: &str = "asked";

/// Larger than any request of a filesystem to which nobody writes.
const LONGEST: usize = 1 << 16;
/// Header of a request: length, operation (u32), number, node (u64), who asks.
const REQUEST_HEADER: usize = 40;
/// Header of an answer: length, error (u32), number (u64).
const ANSWER_HEADER: usize = 16;

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

/// The kernel reads ahead without waiting for it.
const ASYNC_READ: u32 = 1;
/// This open goes past the page cache.
const DIRECT_IO: u32 = 1;

/// Serve a directory `at`, mounted for this process alone, and never answer who reads its file.
///
/// Who opens the file to read has it cached; who opens it to write too goes past the cache.
pub(super) fn mute(at: &str) -> Result<()> {
    let asked = asked_of(Path::new(at));
    // Of an earlier one.
    let _ = fs::remove_file(&asked);
    serve(at, |request| match request.operation {
        READ => fs::write(&asked, "").context("cannot tell that somebody waits").map(|()| None),
        _ => Ok(request.answer(u64::from(PAGE), VALID)),
    })
}

fn asked_of(at: &Path) -> PathBuf {
    at.with_extension(ASKED)
}

/// Serve a directory `at`, mounted for this process alone, with one file that reads as the file `of` does, and from when there is a file `hang` on answer nobody, whatever is asked.
///
/// The kernel keeps nothing of it: whoever looks at the file, or at its name alone, asks.
pub(super) fn shows_until(at: &str, of: &str, hang: &str) -> Result<()> {
    serve(at, |request| {
        if fs::exists(hang).context("cannot look whether to hang")? {
            return Ok(None);
        }
        // As it is mounted, there need be nothing to show.
        if request.operation == INIT {
            return Ok(request.answer(0, 0));
        }
        let shown = fs::read(of).with_context(|| format!("cannot read {of}"))?;
        Ok(match request.operation {
            READ => request.part_of(&shown),
            _ => request.answer(shown.len().try_into()?, 0),
        })
    })
}

/// Mount a directory for this process alone, and give the kernel what `reply` has for a request, if anything.
fn serve(at: &str, reply: impl Fn(&Request<'_>) -> Result<Option<Vec<u8>>>) -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).context("cannot have mounts of its own")?;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>)
        .context("cannot keep mounts to itself")?;
    fs::create_dir_all(at).with_context(|| format!("cannot create {at}"))?;
    let kernel = File::options().read(true).write(true).open("/dev/fuse");
    let mut kernel = kernel.context("cannot open /dev/fuse")?;
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", kernel.as_raw_fd());
    mount(Some("mute"), at, Some("fuse"), MsFlags::empty(), Some(options.as_str()))
        .with_context(|| format!("cannot mount at {at}"))?;
    ready();
    let mut request = vec![0; LONGEST];
    loop {
        let length = kernel.read(&mut request).context("cannot read a request")?;
        let request = request.get(..length).unwrap_or_default();
        let header = Request::parse(request).context("a request without a header")?;
        if let Some(answer) = reply(&header)? {
            kernel.write_all(&answer).context("cannot answer")?;
        }
    }
}

struct Request<'a> {
    operation: u32,
    number: u64,
    node: u64,
    body: &'a [u8],
}

impl<'a> Request<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, body) = bytes.split_at_checked(REQUEST_HEADER)?;
        let (operation, number) = (int(header, 4)?, long(header, 8)?);
        Some(Self { operation, number, node: long(header, 16)?, body })
    }

    /// What is written to the kernel, of a file of `size` bytes that it may remember for `valid` seconds; `None` where it waits for nothing, or for a page.
    fn answer(&self, size: u64, valid: u64) -> Option<Vec<u8>> {
        let result = match self.operation {
            READ | FORGET | BATCH_FORGET | INTERRUPT => return None,
            INIT => self.init(),
            LOOKUP if self.body.strip_suffix(b"\0") == Some(FILE.as_bytes()) => {
                // Node, generation, how long name and attributes are valid: seconds, then nanoseconds.
                Ok([pack(&[FILE_NODE, 0, valid, valid], &[0, 0]), attributes(FILE_NODE, size)]
                    .concat())
            }
            LOOKUP => Err(Errno::ENOENT),
            GETATTR => Ok([pack(&[valid], &[0, 0]), attributes(self.node, size)].concat()),
            OPEN => self.open(valid),
            _ => Err(Errno::ENOSYS),
        };
        self.reply(result)
    }

    /// The part of a file that was asked for: from an offset (behind a handle of eight bytes), so many bytes.
    fn part_of(&self, file: &[u8]) -> Option<Vec<u8>> {
        let (offset, size) = (long(self.body, 8)?, int(self.body, 16)?);
        let from = file.get(usize::try_from(offset).ok()?..).unwrap_or_default();
        let part = from.get(..usize::try_from(size).ok()?).unwrap_or(from);
        self.reply(Ok(part.to_vec()))
    }

    fn reply(&self, result: Result<Vec<u8>, Errno>) -> Option<Vec<u8>> {
        let (error, body) = match result {
            Ok(body) => (0, body),
            Err(error) => (-(error as i32), Vec::new()),
        };
        let length = u32::try_from(ANSWER_HEADER + body.len()).ok()?;
        let header = [length.to_ne_bytes(), error.to_ne_bytes()].concat();
        Some([header, pack(&[self.number], &[]), body].concat())
    }

    /// Version 7.31, read ahead as far as the kernel likes to, and writes of a page; the rest, up to 64 bytes, is zero.
    fn init(&self) -> Result<Vec<u8>, Errno> {
        let read_ahead = int(self.body, 8).ok_or(Errno::EIO)?;
        let mut answer = pack(&[], &[7, 31, read_ahead, ASYNC_READ, 0, PAGE.into()]);
        answer.resize(64, 0);
        Ok(answer)
    }

    /// What may be cached is, for who only reads.
    fn open(&self, valid: u64) -> Result<Vec<u8>, Errno> {
        let flags = int(self.body, 0).ok_or(Errno::EIO)?;
        let reads_only = flags & libc::O_ACCMODE.cast_unsigned() == libc::O_RDONLY.cast_unsigned();
        Ok(pack(&[0], &[if reads_only && valid > 0 { 0 } else { DIRECT_IO }, 0]))
    }
}

fn int(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Inode, size, blocks, three times; their nanoseconds, mode, links, user, group, device, block size, flags.
fn attributes(node: u64, size: u64) -> Vec<u8> {
    let (size, mode) = match node {
        ROOT_NODE => (0, libc::S_IFDIR | 0o755),
        _ => (size, libc::S_IFREG | 0o644),
    };
    pack(&[node, size, 1, 0, 0, 0], &[0, 0, 0, mode, 1, 0, 0, 0, PAGE.into(), 0])
}

fn pack(longs: &[u64], ints: &[u32]) -> Vec<u8> {
    let longs = longs.iter().flat_map(|long| long.to_ne_bytes());
    longs.chain(ints.iter().flat_map(|int| int.to_ne_bytes())).collect()
}

/// Wait for a page of a mute filesystem, with the lock of this process's memory (`mmap_lock`) held for writing.
///
/// A page that is read ahead is locked until the filesystem answers, and nobody waits for it.
/// To map a file past the cache the kernel first drops what is cached of it, which waits for that page, and it maps under the lock.
/// A page fault would not do: it lets go of the lock before it waits, or holds it for reading, as `process_mrelease` does.
pub(super) fn holds_its_memory_lock(file: &str) -> Result<()> {
    let open = |options: &mut fs::OpenOptions| {
        options.open(file).with_context(|| format!("cannot open {file}"))
    };
    // First: an open drops what is cached, too.
    let past_the_cache = open(File::options().read(true).write(true))?;
    let cached = open(File::options().read(true))?;
    posix_fadvise(&cached, 0, PAGE.into(), PosixFadviseAdvice::POSIX_FADV_WILLNEED)
        .context("cannot have it read ahead")?;
    ready();
    let length = NonZeroUsize::new(PAGE.into()).context("a file of nothing")?;
    let (access, how) = (ProtFlags::PROT_READ, MapFlags::MAP_PRIVATE);
    // SAFETY: a new mapping at an address of the kernel's choice, which nobody looks at.
    let mapped = unsafe { mmap(None, length, access, how, &past_the_cache, 0) };
    bail!("nothing held it up: {mapped:?}")
}

/// Have one thread wait for a page of a mute filesystem past the cache, and then take memory in tmpfs until only `floor` MiB are available, and at `rate` MiB/s from there on.
///
/// That thread cannot be killed: once the server has a request, the kernel waits for its answer whatever the signal. As long as it is there, so are the open files of its process, and with the file what was written to it; nobody can take that back as one takes back pages of a process (`process_mrelease`).
pub(super) fn hangs_with_what_it_took(file: &str, floor: u64, rate: u64) -> Result<()> {
    let past_the_cache = File::options().read(true).write(true).open(file);
    let mut past_the_cache = past_the_cache.with_context(|| format!("cannot open {file}"))?;
    thread::spawn(move || {
        let read = past_the_cache.read(&mut [0]);
        // Only its server's end gets it so far.
        eprintln!("what could not end has read {read:?}");
    });
    let asked = asked_of(Path::new(file).parent().context("a file without a directory")?);
    // Before that a signal would do.
    while !asked.exists() {
        thread::sleep(Duration::from_millis(5));
    }
    super::memory::shmer_from(floor, rate)
}
