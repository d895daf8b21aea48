//! Under which device `io.stat` counts what is written to a filesystem: whole disks, by `major:minor`.
//!
//! ```text
//!  st_dev of a directory ─► a partition: its disk                          (/sys/dev/block/M:m/../dev)
//!                        ─► a disk, a volume of LVM, a loop device: itself
//!                        ─► no device at all (btrfs): the source of the mount, if that is a device
//!                        ─► anything else (overlay, network): nothing is counted by device
//! ```

use nix::sys::stat::{SFlag, major, makedev, minor, stat};
use std::fs;
use std::path::Path;

/// The device that counts for the filesystem of device number `device`; `None` when there is none.
///
/// `sys` is the mount of sysfs, `mounts` what `/proc/self/mountinfo` says.
#[must_use]
pub fn counted_as(device: u64, sys: &Path, mounts: &str) -> Option<u64> {
    if major(device) != 0 {
        return disk_of(device, sys);
    }
    let source = source_of(device, mounts)?;
    let about = stat(Path::new(source)).ok()?;
    let is_block = SFlag::from_bits_truncate(about.st_mode) & SFlag::S_IFMT == SFlag::S_IFBLK;
    if is_block { disk_of(about.st_rdev, sys) } else { None }
}

/// The disk of a partition; whatever is no partition is a disk itself.
fn disk_of(device: u64, sys: &Path) -> Option<u64> {
    let place = sys.join(format!("dev/block/{}:{}", major(device), minor(device)));
    if !place.join("partition").exists() {
        return Some(device);
    }
    // The kernel resolves the link before it goes up.
    parse(fs::read_to_string(place.join("../dev")).ok()?.trim())
}

/// `major:minor` as a device number.
#[must_use]
pub fn parse(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// The source of the first mount with that device number.
fn source_of(device: u64, mounts: &str) -> Option<&str> {
    mounts.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let own = parse(before.split(' ').nth(2)?)?;
        let source = after.split(' ').nth(1)?;
        (own == device && source.starts_with('/')).then_some(source)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_partition_counts_as_its_disk_and_a_disk_as_itself() {
        let dir = tempfile::tempdir().unwrap();
        let sda1 = dir.path().join("devices/sda/sda1");
        fs::create_dir_all(&sda1).unwrap();
        fs::create_dir_all(dir.path().join("dev/block")).unwrap();
        fs::write(dir.path().join("devices/sda/dev"), "8:0\n").unwrap();
        fs::write(sda1.join("dev"), "8:1\n").unwrap();
        fs::write(sda1.join("partition"), "1\n").unwrap();
        symlink("../../devices/sda/sda1", dir.path().join("dev/block/8:1")).unwrap();
        symlink("../../devices/sda", dir.path().join("dev/block/8:0")).unwrap();
        assert_eq!(counted_as(makedev(8, 1), dir.path(), ""), Some(makedev(8, 0)));
        assert_eq!(counted_as(makedev(8, 0), dir.path(), ""), Some(makedev(8, 0)));
        assert_eq!(counted_as(makedev(253, 3), dir.path(), ""), Some(makedev(253, 3)));
    }

    #[test]
    fn a_filesystem_without_a_device_is_looked_up_among_the_mounts() {
        let mounts = "25 1 0:31 / / rw - btrfs /dev/vda2 rw\n\
            36 25 0:40 / /run rw shared:2 - tmpfs tmpfs rw\n";
        assert_eq!(source_of(makedev(0, 31), mounts), Some("/dev/vda2"));
        assert_eq!(source_of(makedev(0, 40), mounts), None, "no path");
        assert_eq!(counted_as(makedev(0, 40), Path::new("/nowhere"), mounts), None);
    }
}
