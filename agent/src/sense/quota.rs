//! What a directory takes up by its project quota, where it has one: a question to the filesystem instead of a walk.
//!
//! A project is a number that the filesystem keeps totals for; directories hand theirs down to what is made in them. A kubelet gives each `emptyDir` a project of its own when it is told to (`LocalStorageCapacityIsolationFSQuotaMonitoring`).
//! The total is exact at the moment of asking, and counts what is deleted and still open, which no walk can see.
//! ebb gives no project to anything: that is the kubelet's.

use ebb_policy::snapshot::FsUsage;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// `FS_XFLAG_PROJINHERIT` of linux/fs.h.
const INHERITED: u32 = 0x200;
/// `PRJQUOTA` of linux/quota.h.
const PROJECTS: libc::c_int = 2;

/// `struct fsxattr` of linux/fs.h.
#[repr(C)]
struct Attributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    copy_extent_size: u32,
    padding: [u8; 8],
}

nix::ioctl_read!(
    /// `FS_IOC_FSGETXATTR` of linux/fs.h.
    get_attributes,
    b'X',
    31,
    Attributes
);

/// The project that a directory has and hands down, if its parent does not: then the project's total is no more than what is in the directory, unless another has the same project.
///
/// `None` for no project, one that begins further up, a filesystem without projects, and a path that is no directory.
pub(crate) fn project_of(dir: &Path) -> Option<u32> {
    let own = handed_down(dir)?;
    let above = dir.parent().and_then(handed_down);
    (above != Some(own)).then_some(own)
}

/// What a project takes up on the filesystem of `dir`; `None` where it keeps no totals of projects, and before Linux 5.14.
pub(crate) fn usage(dir: &Path, project: u32) -> Option<FsUsage> {
    let dir = open(dir).ok()?;
    let mut totals = MaybeUninit::<libc::dqblk>::zeroed();
    let command = libc::QCMD(libc::Q_GETQUOTA, PROJECTS);
    // SAFETY: the descriptor is open during the call, and the kernel writes at most one dqblk to where one fits.
    let result = unsafe {
        libc::syscall(libc::SYS_quotactl_fd, dir.as_raw_fd(), command, project, totals.as_mut_ptr())
    };
    if result != 0 {
        return None;
    }
    // SAFETY: a dqblk consists of integers, and all of its bytes were zeroed above.
    let totals = unsafe { totals.assume_init() };
    let both = libc::QIF_SPACE | libc::QIF_INODES;
    (totals.dqb_valid & both == both).then_some(FsUsage {
        used_bytes: Some(totals.dqb_curspace),
        inodes_used: Some(totals.dqb_curinodes),
    })
}

fn handed_down(dir: &Path) -> Option<u32> {
    let dir = open(dir).ok()?;
    let mut attributes = MaybeUninit::<Attributes>::zeroed();
    // SAFETY: the descriptor is open during the call, and the kernel writes one fsxattr to where one fits.
    unsafe { get_attributes(dir.as_raw_fd(), attributes.as_mut_ptr()) }.ok()?;
    // SAFETY: it consists of integers, and all of its bytes were zeroed above.
    let attributes = unsafe { attributes.assume_init() };
    (attributes.flags & INHERITED != 0 && attributes.project != 0).then_some(attributes.project)
}

fn open(dir: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(dir)
}
