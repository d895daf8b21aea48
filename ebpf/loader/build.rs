//! Embeds the BPF objects that `cargo xtask bpf` made, or none, so that the workspace builds without clang.
//!
//! Looks in `$EBB_BPF_DIR`, else in `target/bpf` of the repository. A build without objects runs, and says in its
//! status why every probe is absent.
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let dir = env::var_os("EBB_BPF_DIR").map_or_else(default_dir, PathBuf::from);
    // Cargo takes a watched path that does not exist for a change, every time; an empty directory it can watch.
    let watched = fs::create_dir_all(&dir).is_ok();
    println!("cargo::rerun-if-env-changed=EBB_BPF_DIR");
    if watched {
        println!("cargo::rerun-if-changed={}", dir.display());
    }
    let objects = objects_in(&dir)?;
    if objects.is_empty() {
        println!(
            "cargo::warning=no BPF objects in {}: the agent will see no kernel events; `cargo xtask bpf` makes them",
            dir.display()
        );
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?);
    fs::write(out.join("objects.rs"), list(&objects))
}

fn default_dir() -> PathBuf {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    repository.unwrap_or(Path::new("/")).join("target/bpf")
}

/// The objects, by name, so that the list does not depend on the directory's order.
fn objects_in(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut objects = Vec::new();
    if dir.is_dir() {
        for entry in fs::read_dir(dir)? {
            let path = entry?.path().canonicalize()?;
            if path.extension() == Some(OsStr::new("o")) {
                objects.push(path);
            }
        }
    }
    objects.sort();
    Ok(objects)
}

/// Source text of a slice of (name, bytes); both loaders want the bytes aligned.
fn list(objects: &[PathBuf]) -> String {
    let mut text = String::from("&[");
    for path in objects {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let _ = write!(text, "({name:?}, aya::include_bytes_aligned!({path:?})),");
    }
    text.push(']');
    text
}
