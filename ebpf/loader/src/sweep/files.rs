//! The same from files: what a sweep is held against, and what is left where none can be made.
use super::record::{Source, Swept, Told};
use std::fs;
use std::io;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::Path;

/// Deeper than any real tree.
const MAX_DEPTH: u32 = 64;

/// Replace `into` by what the files of every cgroup at `root` and below say, parents before their children.
///
/// Unlike a sweep this is spread over time: a cgroup that goes away meanwhile is left out, or has unknown values.
///
/// # Errors
/// When `root` itself cannot be looked at.
pub fn read_files(root: &Path, into: &mut Vec<Swept>) -> io::Result<()> {
    into.clear();
    let id = fs::metadata(root)?.ino();
    visit(root, Swept { id, ..Swept::default() }, into);
    Ok(())
}

fn visit(dir: &Path, mut swept: Swept, into: &mut Vec<Swept>) {
    fill(dir, &mut swept);
    into.push(swept);
    let Ok(entries) = fs::read_dir(dir) else { return };
    if swept.depth == MAX_DEPTH {
        return;
    }
    for entry in entries.filter_map(Result::ok) {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let (id, depth) = (entry.ino(), swept.depth + 1);
            let below = Swept { id, parent: Some(swept.id), depth, ..Swept::default() };
            visit(&entry.path(), below, into);
        }
    }
}

fn fill(dir: &Path, swept: &mut Swept) {
    let told = |value| Told { value, from: Source::File };
    let read = |name: &str| fs::read_to_string(dir.join(name)).ok();
    let number = |name: &str| {
        Some(told(match read(name)?.trim() {
            "max" => Told::NO_LIMIT,
            digits => digits.parse().ok()?,
        }))
    };
    swept.usage = number("memory.current");
    swept.min = number("memory.min");
    swept.low = number("memory.low");
    swept.high = number("memory.high");
    swept.max = number("memory.max");
    swept.swap = number("memory.swap.current");
    swept.pids = number("pids.current");
    for (key, value) in lines(&read("memory.events").unwrap_or_default()) {
        let slot = match key {
            "low" => &mut swept.low_events,
            "high" => &mut swept.high_events,
            "max" => &mut swept.max_events,
            "oom" => &mut swept.oom_events,
            "oom_kill" => &mut swept.oom_kills,
            _ => continue,
        };
        *slot = Some(told(value));
    }
    for (key, value) in lines(&read("memory.stat").unwrap_or_default()) {
        let slot = match key {
            "anon" => &mut swept.anon,
            "file" => &mut swept.file,
            "active_file" => &mut swept.active_file,
            "inactive_file" => &mut swept.inactive_file,
            "shmem" => &mut swept.shmem,
            "kernel" => &mut swept.kernel,
            "workingset_refault_file" => &mut swept.refaults,
            "pgscan" => &mut swept.scans,
            _ => continue,
        };
        *slot = Some(told(value));
    }
}

fn lines(text: &str) -> impl Iterator<Item = (&str, u64)> {
    text.lines().filter_map(|line| {
        let (key, value) = line.split_once(' ')?;
        Some((key, value.trim().parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_of_files_is_read_parents_first_and_what_is_missing_is_unknown() {
        let root = tempfile::tempdir().unwrap();
        let child = root.path().join("child");
        fs::create_dir(&child).unwrap();
        fs::write(child.join("memory.current"), "4096\n").unwrap();
        fs::write(child.join("memory.max"), "max\n").unwrap();
        fs::write(child.join("memory.stat"), "anon 1\nanon_thp 2\n").unwrap();
        let mut swept = Vec::new();
        read_files(root.path(), &mut swept).unwrap();
        let [top, below] = swept.as_slice() else { panic!("{swept:?}") };
        assert_eq!((top.usage, top.parent, top.depth), (None, None, 0));
        assert_eq!((below.parent, below.depth), (Some(top.id), 1));
        assert_eq!(below.usage, Some(Told { value: 4096, from: Source::File }));
        assert_eq!(below.max.map(|max| max.value), Some(Told::NO_LIMIT));
        assert_eq!(below.anon.map(|anon| anon.value), Some(1));
        assert_eq!((below.high, below.refaults), (None, None));
    }
}
