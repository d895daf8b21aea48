//! A directory in memory for targets that read files.
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex};

static DIRS: LazyLock<Mutex<BTreeMap<&'static str, &'static Path>>> = LazyLock::new(Mutex::default);

/// The directory of this process with that name; it stays for as long as the process, and its files with it.
pub fn dir(name: &'static str) -> &'static Path {
    let mut dirs = DIRS.lock().expect("nobody panics with it");
    dirs.entry(name).or_insert_with(|| {
        let shm = Path::new("/dev/shm");
        let base = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        let dir: PathBuf = base.join(format!("ebb-fuzz-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory in memory");
        Box::leak(dir.into_boxed_path())
    })
}
