//! A root disk whose process 1 is systemd: what is missing on it because its packages were unpacked and not installed.
//!
//! The runner is then a service; when it has ended the machine powers off.
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// On the kernel's command line.
pub(crate) const ASKED_FOR: &str = "guest.init=systemd";
/// systemd itself.
pub(crate) const INIT: &str = "/usr/lib/systemd/systemd";

/// Path below the root, and content.
const FILES: &[(&str, &str)] = &[
    (
        "etc/passwd",
        "root:x:0:0:root:/root:/bin/sh\nmessagebus:x:101:101::/nonexistent:/bin/false\n\
         systemd-oom:x:102:102::/nonexistent:/bin/false\nnobody:x:65534:65534::/nonexistent:/bin/false\n",
    ),
    ("etc/group", "root:x:0:\ntty:x:5:\nmessagebus:x:101:\nsystemd-oom:x:102:\nnogroup:x:65534:\n"),
    ("etc/machine-id", "0123456789abcdef0123456789abcdef\n"),
    ("etc/fstab", ""),
    (
        "etc/systemd/system/guest.target",
        "[Unit]\nRequires=basic.target\nAfter=basic.target\nWants=guest.service\n",
    ),
    (
        "etc/systemd/system/guest.service",
        "[Unit]\nAfter=basic.target\nSuccessAction=poweroff-force\nFailureAction=poweroff-force\n\
         [Service]\nType=oneshot\nTimeoutStartSec=infinity\nExecStart=/payload/ebb-guest run\n\
         OOMScoreAdjust=-1000\nStandardOutput=tty\nStandardError=tty\nTTYPath=/dev/console\n",
    ),
    // What systemd-oomd may kill in, as soon as it ever may.
    (
        "etc/systemd/system/work.slice",
        "[Slice]\nMemoryAccounting=yes\nManagedOOMMemoryPressure=kill\n\
         ManagedOOMMemoryPressureDurationSec=1s\n",
    ),
    (
        "etc/systemd/oomd.conf.d/99-race.conf",
        "[OOM]\nSwapUsedLimit=0%\nDefaultMemoryPressureLimit=1%\nDefaultMemoryPressureDurationSec=1s\n",
    ),
];

/// Units that have nothing to do here, or that would take the ports that the runner talks through.
const MASKED: &[&str] = &[
    "serial-getty@ttyS0.service",
    "systemd-udevd.service",
    "systemd-udev-trigger.service",
    "systemd-firstboot.service",
    "systemd-sysusers.service",
    "systemd-timesyncd.service",
    "systemd-networkd.service",
    "systemd-resolved.service",
];

/// Lay the files out below `root`.
pub(crate) fn lay_out(root: &Path) -> Result<()> {
    for (path, text) in FILES {
        let path = root.join(path);
        let dir = path.parent().unwrap_or(root);
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    for unit in MASKED {
        let path = root.join("etc/systemd/system").join(unit);
        symlink("/dev/null", &path).with_context(|| format!("cannot mask {unit}"))?;
    }
    Ok(())
}
