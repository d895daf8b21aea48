//! QEMU: which one, with which accelerator, and the command line of a guest.
//!
//! QEMU comes from Debian with everything it needs and runs beside the host's own (`$EBB_QEMU` names another one).
//! Before 8.1 its TCG corrupts x86-64 guests in a way that looks like a kernel bug, so the version is asserted.
//! KVM is used only where a short boot proves it: a `/dev/kvm` that exists may still not run a stock kernel, and then
//! QEMU does not fall back but waits for ever.
use super::kernel::Image;
use super::userland;
use crate::arch::Arch;
use crate::sh;
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const OLDEST: (u32, u32) = (8, 1);
/// A working KVM reaches the panic that ends the probe in about a second.
const PROBE_DEADLINE: Duration = Duration::from_secs(15);

/// A QEMU that may be used, and how it runs guests.
#[derive(Debug, Clone)]
pub(crate) struct Qemu {
    arch: Arch,
    binary: Option<PathBuf>,
    tree: PathBuf,
    pub(crate) accel: Accel,
    pub(crate) version: String,
}

/// How guest instructions are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accel {
    Kvm,
    Tcg,
}

impl Accel {
    fn arguments(self, arch: Arch) -> &'static [&'static str] {
        match (self, arch) {
            (Self::Kvm, _) => &["-accel", "kvm", "-cpu", "host"],
            // Five-level paging makes every emulated page walk longer, with ERMS and FSRM the kernel copies and clears
            // byte by byte, and SMAP ends an emulated block at both ends of every access to user memory.
            (Self::Tcg, Arch::Amd64) => {
                &["-accel", "tcg,thread=multi", "-cpu", "max,la57=off,erms=off,fsrm=off,smap=off"]
            }
            // Authentication of pointers is costly to emulate, and addresses of 52 bits are: this one has neither.
            (Self::Tcg, Arch::Arm64) => &["-accel", "tcg,thread=multi", "-cpu", "cortex-a76"],
        }
    }

    /// Kernel parameters: an emulated CPU does not speculate, but pays for each guarded jump many times over.
    fn cmdline(self) -> &'static str {
        match self {
            Self::Kvm => "",
            Self::Tcg => "mitigations=off init_on_alloc=0",
        }
    }
}

/// One boot.
#[derive(Debug)]
pub(crate) struct Boot<'a> {
    pub(crate) kernel: &'a Path,
    pub(crate) initrd: Option<&'a Path>,
    /// A raw ext4 image; what the guest writes to it is thrown away.
    pub(crate) disk: Option<&'a Path>,
    /// MiB.
    pub(crate) memory: u32,
    pub(crate) cpus: u32,
    /// More kernel parameters.
    pub(crate) cmdline: &'a str,
    /// As `-device` takes them.
    pub(crate) devices: &'a [String],
    /// The guest's first serial port: kernel messages.
    pub(crate) console: &'a Path,
    /// The guest's third serial port: a tar of what its tests left behind. The second is QEMU's standard output.
    pub(crate) files: &'a Path,
}

impl Qemu {
    /// Fetch or find QEMU, assert its version, choose the accelerator (`$EBB_VM_ACCEL` = `kvm` or `tcg`, else by a probe boot of `kernel`).
    pub(crate) fn prepare(kernel: Option<&Image>) -> Result<Self> {
        let tree = userland::tree("qemu", &["qemu-system-x86", "e2fsprogs"])?;
        let binary = std::env::var_os("EBB_QEMU").map(PathBuf::from);
        let (arch, version) = (Arch::Amd64, String::new());
        let mut qemu = Self { arch, binary, tree, accel: Accel::Tcg, version };
        qemu.version = qemu.assert_version()?;
        qemu.accel = match std::env::var("EBB_VM_ACCEL").as_deref() {
            Ok("kvm") => Accel::Kvm,
            Ok("tcg") => Accel::Tcg,
            Ok(other) => bail!("EBB_VM_ACCEL is {other}; it may be kvm or tcg"),
            Err(_) => kernel.map_or(Ok(Accel::Tcg), |kernel| qemu.probe(kernel))?,
        };
        println!("vm: QEMU {}, {:?}", qemu.version, qemu.accel);
        Ok(qemu)
    }

    /// The same for an architecture that this machine has to emulate.
    pub(crate) fn emulating(arch: Arch) -> Result<Self> {
        let tree = userland::tree("qemu-arm", &["qemu-system-arm"])?;
        let (accel, version) = (Accel::Tcg, String::new());
        let mut qemu = Self { arch, binary: None, tree, accel, version };
        qemu.version = qemu.assert_version()?;
        println!("vm: QEMU {} for {}, {:?}", qemu.version, arch.debian(), qemu.accel);
        Ok(qemu)
    }

    /// The tree QEMU runs from; it also holds mke2fs.
    pub(crate) fn tools(&self) -> &Path {
        &self.tree
    }

    /// The command line of a guest; standard output is its second serial port.
    pub(crate) fn command(&self, boot: &Boot<'_>) -> Command {
        let mut command = self.program();
        command.args(self.accel.arguments(self.arch));
        command.arg("-m").arg(boot.memory.to_string()).arg("-smp").arg(boot.cpus.to_string());
        command.args(["-nodefaults", "-display", "none", "-no-reboot"]);
        command.arg("-serial").arg(format!("file:{}", boot.console.display()));
        command.args(["-chardev", "stdio,id=verdicts,signal=off"]);
        command.arg("-chardev").arg(format!("file,id=files,path={}", boot.files.display()));
        let console = match self.arch {
            Arch::Amd64 => {
                command.args(["-serial", "chardev:verdicts", "-serial", "chardev:files"]);
                "ttyS0"
            }
            // The board has one port; the others are cards, which are counted by themselves.
            Arch::Arm64 => {
                command.args(["-machine", "virt"]);
                for port in ["verdicts", "files"] {
                    command.arg("-device").arg(format!("pci-serial,chardev={port}"));
                }
                "ttyAMA0"
            }
        };
        command.arg("-kernel").arg(boot.kernel);
        // psi=1: some configurations build PSI in but leave it off. A soft lockup is two thresholds long: a guest
        // that shares an emulated CPU with another one is slow, not stuck.
        command.arg("-append").arg(format!(
            "console={console} panic=-1 oops=panic quiet loglevel=4 psi=1 watchdog_thresh=30 {} {}",
            self.accel.cmdline(),
            boot.cmdline
        ));
        if let Some(initrd) = boot.initrd {
            command.arg("-initrd").arg(initrd);
        }
        if let Some(disk) = boot.disk {
            // One NVMe controller only: several are probed in any order. Its driver and ext4's are built in.
            command.arg("-drive").arg(format!(
                "file={},format=raw,if=none,id=root,cache=unsafe,snapshot=on",
                disk.display()
            ));
            command.args(["-device", "nvme,serial=root,drive=root"]);
        }
        for device in boot.devices {
            command.arg("-device").arg(device);
        }
        command.stdin(Stdio::null());
        command
    }

    fn program(&self) -> Command {
        let mut command = match &self.binary {
            Some(binary) => Command::new(binary),
            None => userland::program(&self.tree, self.name()),
        };
        // A run that is killed takes its guests with it.
        if let Some(setpriv) = sh::find_program("setpriv") {
            let mut ends_with_us = Command::new(setpriv);
            ends_with_us.args(["--pdeathsig", "KILL"]);
            ends_with_us.arg(command.get_program()).args(command.get_args());
            command = ends_with_us;
        }
        if self.binary.is_none() {
            for data in ["usr/share/qemu", "usr/share/seabios"] {
                command.arg("-L").arg(self.tree.join(data));
            }
            command.env("QEMU_MODULE_DIR", self.tree.join("usr/lib/x86_64-linux-gnu/qemu"));
        }
        command
    }

    fn name(&self) -> &'static str {
        match self.arch {
            Arch::Amd64 => "usr/bin/qemu-system-x86_64",
            Arch::Arm64 => "usr/bin/qemu-system-aarch64",
        }
    }

    fn assert_version(&self) -> Result<String> {
        let text = sh::read(self.program().arg("--version"))?;
        // "QEMU emulator version 10.0.13 (Debian …)"
        let version = text.split_whitespace().nth(3).context("QEMU does not say its version")?;
        let mut numbers = version.split('.').map(str::parse::<u32>);
        let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
            bail!("cannot understand QEMU's version {version}");
        };
        ensure!(
            (major, minor) >= OLDEST,
            "QEMU {version} corrupts guests; {}.{} or newer is needed (unset EBB_QEMU)",
            OLDEST.0,
            OLDEST.1
        );
        Ok(version.to_owned())
    }

    /// Does KVM run this kernel? Boot it with nothing to mount: it must get as far as complaining.
    fn probe(&self, kernel: &Image) -> Result<Accel> {
        if File::options().read(true).write(true).open("/dev/kvm").is_err() {
            return Ok(Accel::Tcg);
        }
        // The answer holds until this machine is booted again.
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let dir = sh::cache()?;
        let memo = dir.join(format!("kvm-{}-{}", self.version, boot_id.trim()));
        if let Ok(answer) = fs::read_to_string(&memo) {
            return Ok(if answer == "works" { Accel::Kvm } else { Accel::Tcg });
        }
        let console = dir.join(format!("kvm-probe.{}", std::process::id()));
        let boot = Boot {
            kernel: &kernel.vmlinuz,
            initrd: None,
            disk: None,
            memory: 256,
            cpus: 1,
            cmdline: "",
            devices: &[],
            console: &console,
            files: Path::new("/dev/null"),
        };
        let kvm = Self { accel: Accel::Kvm, ..self.clone() };
        let mut child = kvm
            .command(&boot)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start QEMU for the KVM probe")?;
        let deadline = Instant::now() + PROBE_DEADLINE;
        let reached = || {
            let log = fs::read(&console).unwrap_or_default();
            String::from_utf8_lossy(&log).contains("Unable to mount root fs")
        };
        let mut works = false;
        while Instant::now() < deadline && !works && child.try_wait().is_ok_and(|s| s.is_none()) {
            std::thread::sleep(Duration::from_millis(100));
            works = reached();
        }
        works |= reached();
        // It may have exited by itself; either way it must be gone before the answer is used.
        let _ = child.kill();
        child.wait().context("cannot wait for the KVM probe")?;
        let _ = fs::remove_file(&console);
        fs::write(&memo, if works { "works" } else { "fails" })
            .with_context(|| format!("cannot write {}", memo.display()))?;
        if !works {
            println!("vm: /dev/kvm is there but does not run this kernel");
        }
        Ok(if works { Accel::Kvm } else { Accel::Tcg })
    }
}
