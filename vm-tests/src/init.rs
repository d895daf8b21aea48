//! Process 1 of a guest: from an empty initramfs to a machine that looks like a node, and off again.
//!
//! Stage one runs in the initramfs: mount the root disk, copy the payload there, move over. Stage two mounts the rest,
//! lays out cgroups like a node's, starts the runner and reaps what is orphaned until the runner is done. Where the
//! kernel's command line asks for it, stage two is systemd's instead (`systemd.rs`).
use crate::cgroup::{self, Cgroup};
use crate::{systemd, wait};
use anyhow::{Context, Result, bail};
use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use nix::sys::wait::{WaitStatus, wait as wait_any};
use nix::unistd::{Pid, chdir, chroot};
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Our own binary after stage one.
pub(crate) const SELF: &str = "/payload/ebb-guest";
const NEW_ROOT: &str = "/newroot";
const ROOT_DISK: &str = "/dev/nvme0n1";

/// Leave the initramfs for the root disk. Returns only with an error, which makes the kernel panic visibly.
pub(crate) fn first_stage() -> Result<()> {
    for dir in ["/proc", "/sys", NEW_ROOT] {
        fs::create_dir_all(dir).with_context(|| format!("cannot create {dir}"))?;
    }
    attach("devtmpfs", "/dev", "")?;
    attach("proc", "/proc", "")?;
    attach("sysfs", "/sys", "")?;
    wait::until(Duration::from_secs(60), "the root disk appears", || {
        Path::new(ROOT_DISK).exists()
    })?;
    mount(Some(ROOT_DISK), NEW_ROOT, Some("ext4"), MsFlags::empty(), None::<&str>)
        .context("cannot mount the root disk")?;
    let payload = format!("{NEW_ROOT}/payload");
    fs::create_dir_all(&payload).context("cannot create the payload directory")?;
    for entry in fs::read_dir("/payload").context("the initramfs has no payload")? {
        let from = entry.context("cannot list the payload")?.path();
        copy(&from, &Path::new(&payload).join(from.file_name().unwrap_or_default()))?;
    }
    copy(Path::new("/init"), &Path::new(NEW_ROOT).join("payload/ebb-guest"))?;
    for dir in ["dev", "proc", "sys", "run", "tmp", "out"] {
        let to = format!("{NEW_ROOT}/{dir}");
        fs::create_dir_all(&to).with_context(|| format!("cannot create {to}"))?;
    }
    let cmdline = fs::read_to_string("/proc/cmdline").context("cannot read /proc/cmdline")?;
    let with_systemd = cmdline.split_whitespace().any(|word| word == systemd::ASKED_FOR);
    if with_systemd {
        systemd::lay_out(Path::new(NEW_ROOT))?;
    }
    for dir in ["dev", "proc", "sys"] {
        let (from, to) = (format!("/{dir}"), format!("{NEW_ROOT}/{dir}"));
        mount(Some(from.as_str()), to.as_str(), None::<&str>, MsFlags::MS_MOVE, None::<&str>)
            .with_context(|| format!("cannot move {from}"))?;
    }
    // The initramfs stays mounted below for ever: what is left in it is memory lost.
    fs::remove_dir_all("/payload").context("cannot empty the initramfs")?;
    fs::remove_file("/init").context("cannot empty the initramfs")?;
    chdir(NEW_ROOT).context("cannot enter the root disk")?;
    mount(Some("."), "/", None::<&str>, MsFlags::MS_MOVE, None::<&str>)
        .context("cannot move the root disk to /")?;
    chroot(".").context("cannot change the root")?;
    chdir("/").context("cannot enter the new root")?;
    let mut second = Command::new(if with_systemd { systemd::INIT } else { SELF });
    if !with_systemd {
        second.arg("init");
    }
    Err(second.exec()).context("cannot start stage two")
}

/// Finish the machine, run the tests, power off.
pub(crate) fn second_stage() -> Result<()> {
    let result = prepare().and_then(|()| supervise());
    if let Err(error) = &result {
        // On the console: without a runner there is nobody on the other port.
        eprintln!("ebb-guest: {error:#}");
    }
    nix::unistd::sync();
    reboot(RebootMode::RB_POWER_OFF).context("cannot power off")?;
    result
}

fn prepare() -> Result<()> {
    attach("tmpfs", "/run", "mode=755")?;
    attach("tmpfs", "/tmp", "mode=1777")?;
    for dir in ["/dev/shm", "/dev/pts"] {
        fs::create_dir_all(dir).with_context(|| format!("cannot create {dir}"))?;
    }
    // As large as memory: what grows here must run into the node's end, not into its own.
    attach("tmpfs", "/dev/shm", "mode=1777,size=100%")?;
    attach("devpts", "/dev/pts", "")?;
    attach("cgroup2", cgroup::ROOT, "nsdelegate,memory_recursiveprot")?;
    attach("tracefs", "/sys/kernel/tracing", "")?;
    attach("bpf", "/sys/fs/bpf", "")?;
    attach("securityfs", "/sys/kernel/security", "")?;
    // Old runtimes and shells look for it; a bare devtmpfs has none.
    std::os::unix::fs::symlink("/proc/self/fd", "/dev/fd").context("cannot link /dev/fd")?;
    Cgroup::node_tree()?;
    Cgroup::at("init.scope").adopt(Pid::this())?;
    Ok(())
}

/// Run the runner; be the parent of every orphan until it has ended.
fn supervise() -> Result<()> {
    let runner = Command::new(SELF).arg("run").spawn().context("cannot start the runner")?;
    let runner = Pid::from_raw(i32::try_from(runner.id()).context("an impossible process id")?);
    loop {
        match wait_any().context("cannot wait for children")? {
            WaitStatus::Exited(pid, 0) if pid == runner => break,
            ended @ (WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..))
                if pid == runner =>
            {
                bail!("the runner has failed: {ended:?}")
            }
            _ => {}
        }
    }
    Ok(())
}

fn attach(kind: &str, at: &str, options: &str) -> Result<()> {
    mount(Some(kind), at, Some(kind), MsFlags::empty(), Some(options))
        .with_context(|| format!("cannot mount {kind} at {at}"))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(())
}
