//! The filesystem of containerd's root: an ext4 of its own in a file, small enough to be filled and emptied in a test.
//!
//! It keeps totals of projects, so a directory can be given a quota's project as a kubelet does, and a file another one as its owner may.
//! It holds images and writable layers, and a directory that stands for the kubelet's: an agent that is given that one
//! sees one filesystem for everything, any other sees images apart.
use super::daemon::{ROOT, load};
use anyhow::{Context, Result, ensure};
use nix::fcntl::posix_fallocate;
use nix::mount::{MsFlags, mount};
use nix::sys::statvfs::{Statvfs, statvfs};
use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const FILE: &str = "/var/store.ext4";
/// Unless the machine says otherwise, by `guest.store=` on its command line.
const MIB: u64 = 128;
const INODES: u32 = 16_384;
const BALLAST: &str = "/var/lib/containerd/ballast";

/// `FS_XFLAG_PROJINHERIT` of linux/fs.h.
const INHERITED: u32 = 0x200;

/// `struct fsxattr` of linux/fs.h.
#[repr(C)]
#[derive(Debug, Default)]
struct Attributes {
    flags: u32,
    sizes: [u32; 2],
    project: u32,
    rest: [u32; 3],
}

nix::ioctl_read!(
    /// `FS_IOC_FSGETXATTR`.
    get_attributes,
    b'X',
    31,
    Attributes
);
nix::ioctl_write_ptr!(
    /// `FS_IOC_FSSETXATTR`.
    set_attributes,
    b'X',
    32,
    Attributes
);

/// That filesystem.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Store;

impl Store {
    /// Make it and mount it, unless it is.
    pub(crate) fn mount() -> Result<()> {
        let mounts = fs::read_to_string("/proc/self/mounts").context("cannot list mounts")?;
        if mounts.lines().any(|line| line.split(' ').nth(1) == Some(ROOT)) {
            return Ok(());
        }
        ensure!(super::Daemon::running().is_none(), "a containerd runs whose root would vanish");
        ["loop", "quota_tree", "quota_v2"].into_iter().try_for_each(load)?;
        fs::create_dir_all(ROOT).with_context(|| format!("cannot create {ROOT}"))?;
        let file = File::create(FILE).with_context(|| format!("cannot create {FILE}"))?;
        file.set_len(mib()? << 20).with_context(|| format!("cannot make {FILE} larger"))?;
        let mut format = Command::new("/usr/sbin/mke2fs");
        format.args(["-q", "-t", "ext4", "-O", "^has_journal,quota,project", "-m", "0"]);
        let extended = "lazy_itable_init=1,quotatype=prjquota";
        run(format.args(["-I", "256", "-E", extended, "-N", &INODES.to_string(), FILE]))?;
        let mut mount = Command::new("busybox");
        run(mount.args(["mount", "-t", "ext4", "-o", "loop", FILE, ROOT]))
    }

    /// What stands for the kubelet's directory.
    pub(crate) fn kubelet() -> PathBuf {
        Path::new(ROOT).join("kubelet")
    }

    /// Give a file a project, or a directory and what is made in it from now on.
    pub(crate) fn give_project(path: &Path, project: u32) -> Result<()> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let is_dir = file.metadata()?.is_dir();
        let mut attributes = Attributes::default();
        // SAFETY: the descriptor is open during the calls, and the kernel reads and writes one fsxattr where there is one.
        unsafe {
            get_attributes(file.as_raw_fd(), &raw mut attributes)?;
            attributes.project = project;
            if is_dir {
                attributes.flags |= INHERITED;
            }
            set_attributes(file.as_raw_fd(), &raw const attributes)?;
        }
        Ok(())
    }

    /// How full it is, percent, as the kubelet rounds it.
    pub(crate) fn percent() -> Result<u64> {
        let fs = look()?;
        Ok(100 - fs.blocks_available() * 100 / fs.blocks())
    }

    /// Bytes left.
    pub(crate) fn available() -> Result<u64> {
        let fs = look()?;
        Ok(fs.blocks_available() * fs.fragment_size())
    }

    /// Inodes left.
    pub(crate) fn inodes_free() -> Result<u64> {
        Ok(look()?.files_available())
    }

    /// Fill it until it is `percent` full, in one step.
    pub(crate) fn fill(percent: u64) -> Result<()> {
        let fs = look()?;
        let stays = fs.blocks() * (100 - percent) / 100;
        let bytes = fs.blocks_available().saturating_sub(stays) * fs.fragment_size();
        let file = File::create(BALLAST).context("cannot create ballast")?;
        posix_fallocate(&file, 0, i64::try_from(bytes)?).context("cannot add ballast")
    }

    /// Fill it until `bytes` are left, in one step.
    pub(crate) fn leave(bytes: u64) -> Result<()> {
        let left = Self::available()?.saturating_sub(bytes);
        let file = File::create(BALLAST).context("cannot create ballast")?;
        posix_fallocate(&file, 0, i64::try_from(left)?).context("cannot add ballast")
    }

    /// Have the logs of pods on it too, as they are on a node with one filesystem.
    pub(crate) fn hold_logs() -> Result<()> {
        hold("pod-logs", "/var/log/pods")
    }

    /// Have the directory of a real kubelet on it.
    pub(crate) fn hold_kubelet() -> Result<()> {
        hold("real-kubelet", "/var/lib/kubelet")
    }

    /// Take what was filled in away again.
    pub(crate) fn drop_ballast() -> Result<()> {
        if Path::new(BALLAST).exists() {
            fs::remove_file(BALLAST).context("cannot remove ballast")?;
        }
        Ok(())
    }
}

/// Have the directory `to` on it, as `name`.
fn hold(name: &str, to: &str) -> Result<()> {
    let from = format!("{ROOT}/{name}");
    for dir in [from.as_str(), to] {
        fs::create_dir_all(dir).with_context(|| format!("cannot create {dir}"))?;
    }
    let none = None::<&str>;
    mount(Some(from.as_str()), to, none, MsFlags::MS_BIND, none)
        .with_context(|| format!("cannot have {to} on {ROOT}"))
}

/// How large it is to be.
fn mib() -> Result<u64> {
    let line = fs::read_to_string("/proc/cmdline").context("cannot read the command line")?;
    let told = line.split_whitespace().find_map(|word| word.strip_prefix("guest.store="));
    told.map_or(Ok(MIB), |told| told.parse().context("guest.store= is no number"))
}

fn look() -> Result<Statvfs> {
    statvfs(ROOT).with_context(|| format!("cannot measure {ROOT}"))
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}
