//! Several `cargo xtask` at once: who changes what others use takes a lock, says whom it waits for, and puts things in place in one step.
use anyhow::{Context, Result};
use std::fs::{self, File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A lock that is held until this is dropped, or its process ends in any other way.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock at `path` on `what`; says who has it before it waits for that.
    pub(crate) fn take(path: &Path, what: &str) -> Result<Self> {
        Self::take_or_tell(path, what, |line| println!("{line}"))
    }

    fn take_or_tell(path: &Path, what: &str, tell: impl FnOnce(String)) -> Result<Self> {
        let cannot = || format!("cannot lock {what} ({})", path.display());
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).with_context(cannot)?;
        }
        let mut options = File::options();
        let mut file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Whoever has just taken it may not have written its name yet.
                let _ = file.read_to_string(&mut holder);
                let holder = if holder.is_empty() { "another cargo xtask" } else { holder.trim() };
                tell(format!("xtask: waiting for {holder}, which has {what}"));
                file.lock().with_context(cannot)?;
            }
            Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
        }
        let words: Vec<String> =
            std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
        let name = format!("cargo xtask {} (process {})", words.join(" "), std::process::id());
        file.set_len(0).and_then(|()| file.rewind()).with_context(cannot)?;
        file.write_all(name.as_bytes()).with_context(cannot)?;
        Ok(Self { _file: file })
    }
}

/// Has `make` fill a new directory, and puts it at `dir` when that is done: what is there is complete. Nothing is made when it is there already.
pub(crate) fn once(dir: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if dir.exists() {
        return Ok(());
    }
    let partial = partial(dir)?;
    fs::create_dir_all(&partial).with_context(|| format!("cannot create {}", partial.display()))?;
    make(&partial)?;
    // Whoever was faster made the same.
    match fs::rename(&partial, dir) {
        Err(_) if dir.exists() => remove(&partial),
        other => other.with_context(|| format!("cannot create {}", dir.display())),
    }
}

/// A name beside `path` under which it can be made: nobody else's, and free of what an interrupted run of the same name has left there.
///
/// A number of a process is not enough: a cache may be shared with another container, where another process has it.
pub(crate) fn partial(path: &Path) -> Result<PathBuf> {
    // Appended: a version in the name has dots of its own.
    let namespace = fs::read_link("/proc/self/ns/pid").context("cannot name the pid namespace")?;
    let namespace: String =
        namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    let me = format!("{namespace}.{}", std::process::id());
    let partial = PathBuf::from(format!("{}.partial.{me}", path.display()));
    remove(&partial)?;
    Ok(partial)
}

/// Removes whatever is at `path`, if anything is.
pub(crate) fn remove(path: &Path) -> Result<()> {
    if path.symlink_metadata().is_err() {
        return Ok(());
    }
    crate::sh::run(Command::new("rm").arg("-rf").arg("--").arg(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;

    #[test]
    fn the_second_waits_for_the_first_and_says_for_whom() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("below/lock");
        let first = Lock::take(&path, "the guests").unwrap();
        let (tell, told) = channel();
        let waits = path.clone();
        let released = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&released);
        let second = std::thread::spawn(move || {
            let line = |line| tell.send(line).unwrap();
            let _second = Lock::take_or_tell(&waits, "the guests", line).unwrap();
            seen.load(Ordering::SeqCst)
        });
        let line = told.recv().unwrap();
        let me = format!("(process {})", std::process::id());
        assert!(line.contains(&me) && line.ends_with("which has the guests"), "{line}");
        released.store(true, Ordering::SeqCst);
        drop(first);
        assert!(second.join().unwrap(), "it did not wait");
    }

    #[test]
    fn what_is_half_made_has_the_name_of_its_maker_in_any_pid_namespace() {
        let dir = tempfile::tempdir().unwrap();
        let partial = partial(&dir.path().join("tool-1.2")).unwrap();
        let name = partial.file_name().unwrap().to_str().unwrap();
        let own = fs::read_link("/proc/self/ns/pid").unwrap();
        let own = own.to_str().unwrap().trim_matches(|c: char| !c.is_ascii_digit()).to_owned();
        assert_eq!(name, format!("tool-1.2.partial.{own}.{}", std::process::id()));
    }

    #[test]
    fn an_interrupted_run_leaves_nothing_that_the_next_takes_for_complete() {
        let dir = tempfile::tempdir().unwrap();
        let tool = dir.path().join("tool-1.2");
        let interrupted = once(&tool, |partial| {
            fs::write(partial.join("half"), "")?;
            bail!("no power")
        });
        assert!(interrupted.is_err() && !tool.exists());
        once(&tool, |partial| {
            assert!(!partial.join("half").exists(), "what is half made is begun anew");
            fs::write(partial.join("whole"), "").map_err(Into::into)
        })
        .unwrap();
        assert!(tool.join("whole").exists() && !tool.join("half").exists());
        once(&tool, |_| bail!("it is there")).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    }
}
