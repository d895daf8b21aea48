//! Steps below ending a workload: reclaim from it, slow it down, stop it, and undo the last two.
//!
//! What was done to a cgroup is noted ([`Marks`]) before it is done, so a later ebb can undo what an earlier one left behind.
//! Only that is undone: a limit that somebody else has changed since stays as it is, and what ebb did not freeze is not thawed.

use super::marks::{Mark, Marks};
use super::victim::HeldCgroup;
use crate::sense::file::number_or_max;
use crate::sense::process::page_size;
use ebb_journal::Rung;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

/// Takes one step on a held cgroup.
pub(super) fn take(held: &HeldCgroup, rung: Rung, marks: &Marks) -> io::Result<()> {
    match rung {
        Rung::Reclaim { bytes } => match held.write("memory.reclaim", &bytes.to_string()) {
            // The kernel got back less than was asked for: that is all there was.
            Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => Ok(()),
            other => other,
        },
        Rung::Throttle { high } => {
            note(held, marks, |mark| mark.write(high))?;
            held.write("memory.high", &high.to_string())
        }
        Rung::Freeze { .. } => {
            note(held, marks, |mark| mark.is_frozen = true)?;
            held.write("cgroup.freeze", "1")
        }
        Rung::Release => release(held, marks).map(drop),
    }
}

/// Puts back what ebb has changed, and takes the mark away last; returns whether there was one. A cgroup without is left as it is.
pub(super) fn release(held: &HeldCgroup, marks: &Marks) -> io::Result<bool> {
    let (id, at) = (held.cgroup.id(), directory(held));
    let Some(Mark { high_before, written, is_frozen }) = marks.get(id, &at)? else {
        return Ok(false);
    };
    if is_frozen {
        held.write("cgroup.freeze", "0")?;
    }
    let before = number_or_max(&high_before).ok_or_else(|| {
        let what = format!("the memory.high noted for it is no limit: {high_before:?}");
        io::Error::new(io::ErrorKind::InvalidData, what)
    })?;
    if !written.is_empty() {
        let now = number_or_max(&held.read("memory.high")?).flatten();
        let is_ours = |high: &u64| now == Some(*high) || now == Some(in_pages(*high));
        if written.iter().any(is_ours) {
            let before = before.map_or_else(|| "max".to_owned(), |bytes| bytes.to_string());
            held.write("memory.high", &before)?;
        }
    }
    marks.clear(id, &at)?;
    Ok(true)
}

/// Notes a step that is about to be taken; what `memory.high` was before the first one stands.
fn note(held: &HeldCgroup, marks: &Marks, step: impl FnOnce(&mut Mark)) -> io::Result<()> {
    let (id, at) = (held.cgroup.id(), directory(held));
    let mut mark = match marks.get(id, &at)? {
        Some(mark) => mark,
        None => Mark {
            high_before: held.read("memory.high")?.trim().to_owned(),
            written: Vec::new(),
            is_frozen: false,
        },
    };
    step(&mut mark);
    marks.set(id, &at, &mark)
}

/// What the kernel keeps of a limit: whole pages.
fn in_pages(bytes: u64) -> u64 {
    let page = page_size();
    bytes / page * page
}

/// The held directory under a name that leads to it and nowhere else. It is a link, so it has to be followed.
fn directory(held: &HeldCgroup) -> PathBuf {
    // A victim's directory is always held; without one there is nothing to mark.
    let dir = held.cgroup.dir();
    dir.map_or_else(PathBuf::new, |dir| PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sense::cgroup::Cgroup;
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;
    use std::path::Path;

    struct Fake {
        dir: tempfile::TempDir,
        state: tempfile::TempDir,
        held: HeldCgroup,
    }

    impl Fake {
        fn new(high: &str) -> Self {
            // Not /tmp, which may be a tmpfs of a kernel that keeps no attributes for users there.
            let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
            fs::write(dir.path().join("memory.high"), high).unwrap();
            fs::write(dir.path().join("cgroup.freeze"), "0").unwrap();
            let id = fs::metadata(dir.path()).unwrap().ino();
            let cgroup = Cgroup::open(dir.path(), id).unwrap();
            let held = HeldCgroup::unasked(cgroup, dir.path(), Path::new("/proc"));
            Self { dir, state: tempfile::tempdir().unwrap(), held }
        }

        /// The marks as of the boot of that name.
        fn marks(&self, boot: &str) -> Marks {
            let proc = tempfile::tempdir().unwrap();
            let random = proc.path().join("sys/kernel/random");
            fs::create_dir_all(&random).unwrap();
            fs::write(random.join("boot_id"), format!("{boot}\n")).unwrap();
            Marks::within(self.state.path(), proc.path())
        }

        fn is_marked(&self) -> bool {
            self.marks("a").get(self.held.cgroup.id(), self.dir.path()).unwrap().is_some()
        }

        fn take(&self, rung: Rung) {
            take(&self.held, rung, &self.marks("a")).unwrap();
        }

        fn read(&self) -> (String, String) {
            let read = |file| fs::read_to_string(self.dir.path().join(file)).unwrap();
            (read("memory.high"), read("cgroup.freeze"))
        }
    }

    fn pair(high: &str, freeze: &str) -> (String, String) {
        (high.to_owned(), freeze.to_owned())
    }

    #[test]
    fn release_puts_back_what_was_there_before_the_first_step() {
        let fake = Fake::new("9000000");
        fake.take(Rung::Throttle { high: 5_000_000 });
        fake.take(Rung::Freeze { thaw_after_ms: 1 });
        fake.take(Rung::Throttle { high: 4_000_000 });
        assert!(fake.is_marked());
        assert_eq!(fake.read(), pair("4000000", "1"));
        fake.take(Rung::Release);
        assert_eq!(fake.read(), pair("9000000", "0"));
        assert!(!fake.is_marked());
    }

    #[test]
    fn what_ebb_never_touched_is_not_released() {
        let fake = Fake::new("9000000");
        fs::write(fake.dir.path().join("cgroup.freeze"), "1").unwrap();
        fake.take(Rung::Release);
        assert_eq!(fake.read().1, "1", "somebody else has stopped it");
        fake.take(Rung::Throttle { high: 5_000_000 });
        fake.take(Rung::Release);
        assert_eq!(fake.read(), pair("9000000", "1"), "ebb has slowed it down, and no more");
    }

    /// Whoever owns a cgroup writes what they like into the `user` space of its attributes.
    #[test]
    fn a_mark_that_the_owner_wrote_is_none() {
        let fake = Fake::new("9000000");
        fs::write(fake.dir.path().join("cgroup.freeze"), "1").unwrap();
        for name in ["user.ebb.high_before", "user.ebb.steps"] {
            let mark = br#"{"highBefore":"max","written":[9000000],"isFrozen":true}"#;
            xattr::set(fake.dir.path(), name, mark).unwrap();
        }
        assert!(!fake.is_marked());
        fake.take(Rung::Release);
        assert_eq!(fake.read(), pair("9000000", "1"));
    }

    #[test]
    fn a_limit_that_somebody_else_has_changed_since_stays_as_it_is() {
        let fake = Fake::new("9000000");
        fake.take(Rung::Throttle { high: 5_000_000 });
        fs::write(fake.dir.path().join("memory.high"), "7000000").unwrap();
        fake.take(Rung::Release);
        assert_eq!(fake.read().0, "7000000");
        assert!(!fake.is_marked());
    }

    #[test]
    fn a_cgroup_that_cannot_carry_a_mark_has_it_in_the_state_of_this_boot() {
        let fake = Fake::new("9000000");
        let (id, nowhere) = (fake.held.cgroup.id(), Path::new("/nonexistent"));
        let mark = Mark { high_before: "max".into(), written: vec![1], is_frozen: false };
        fake.marks("a").set(id, nowhere, &mark).unwrap();
        assert_eq!(fake.marks("a").get(id, nowhere).unwrap(), Some(mark));
        assert_eq!(fake.marks("b").get(id, nowhere).unwrap(), None, "ids of another boot");
        assert_eq!(fake.marks("a").get(id, nowhere).unwrap(), None, "forgotten with that boot");
        fake.marks("a").clear(id, nowhere).unwrap();
    }

    #[test]
    fn a_step_that_could_not_be_undone_is_not_taken() {
        let mark = Mark { high_before: "max".into(), written: Vec::new(), is_frozen: true };
        let error = Marks::default().set(1, Path::new("/nonexistent"), &mark).unwrap_err();
        assert!(error.to_string().contains("CAP_SYS_ADMIN"), "{error}");
    }
}
