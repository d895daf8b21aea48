//! From sources to objects, with nothing in them of where or when they were made.
use super::toolchain::Toolchain;
use crate::sh;
use anyhow::{Context, Result};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the objects are made from, as paths below the root of a tree.
const INPUTS: [&str; 4] = ["Cargo.toml", "ebpf/wire", "ebpf/probes", "ebpf/core"];

/// Flags of the C half. `v3` is the newest instruction set that the oldest kernel of the matrix takes.
const C_FLAGS: [&str; 10] = [
    "-std=gnu11",
    "-O2",
    "-g",
    "-mcpu=v3",
    "-Wall",
    "-Wextra",
    "-Werror",
    // The macro that unpacks a hook's arguments names them all.
    "-Wno-unused-parameter",
    "-ffile-compilation-dir=/ebb",
    "-c",
];

const TARGET: &str = "bpfel-unknown-none";

/// Flags of the Rust half.
const RUST_FLAGS: [&str; 6] =
    ["--quiet", "--locked", "--release", "-Zbuild-std=core", "--target", TARGET];

/// A tree with the sources of both halves.
pub(super) struct Sources {
    root: PathBuf,
}

impl Sources {
    pub(super) fn in_tree(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The same sources elsewhere.
    pub(super) fn copy_to(&self, root: &Path) -> Result<Self> {
        for file in self.files()? {
            let to = root.join(file.strip_prefix(&self.root).context("an input is elsewhere")?);
            let dir = to.parent().context("an input has no directory")?;
            fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
            fs::copy(&file, &to).with_context(|| format!("cannot copy to {}", to.display()))?;
        }
        Ok(Self::in_tree(root))
    }

    /// A name for exactly these sources and tools.
    pub(super) fn fingerprint(&self, tools: &Toolchain) -> Result<String> {
        let mut all = format!("{tools:?} {C_FLAGS:?} {RUST_FLAGS:?}").into_bytes();
        for file in self.files()? {
            all.extend(file.strip_prefix(&self.root)?.as_os_str().as_encoded_bytes());
            all.extend(fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?);
        }
        sh::sha256(&all)
    }

    /// Compile both halves; returns the objects.
    pub(super) fn compile(&self, tools: &Toolchain, scratch: &Path) -> Result<Vec<PathBuf>> {
        fs::create_dir_all(scratch)
            .with_context(|| format!("cannot create {}", scratch.display()))?;
        let mut objects = vec![self.compile_rust(tools, scratch)?];
        for file in self.files()? {
            let name = file.file_name().and_then(OsStr::to_str);
            if let Some(name) = name.and_then(|name| name.strip_suffix(".bpf.c")) {
                objects.push(self.compile_c(tools, name, scratch)?);
            }
        }
        Ok(objects)
    }

    fn compile_rust(&self, tools: &Toolchain, scratch: &Path) -> Result<PathBuf> {
        println!("bpf: probes (Rust)");
        sh::run(self.cargo(tools, scratch)?.arg("build").args(RUST_FLAGS))?;
        let object = scratch.join("probes.o");
        let made = scratch.join(TARGET).join("release/probes");
        fs::copy(&made, &object).with_context(|| format!("cannot copy {}", made.display()))?;
        Ok(object)
    }

    /// Check format and lints of the Rust half, which cargo leaves out of what it does to the workspace.
    pub(super) fn lint(&self, tools: &Toolchain, scratch: &Path) -> Result<()> {
        sh::run(self.cargo(tools, scratch)?.args(["fmt", "--check"]))?;
        let mut clippy = self.cargo(tools, scratch)?;
        sh::run(clippy.arg("clippy").args(RUST_FLAGS).args(["--", "-D", "warnings"]))
    }

    /// cargo in the Rust half, set up for the BPF machine.
    fn cargo(&self, tools: &Toolchain, scratch: &Path) -> Result<Command> {
        let mut cargo = Command::new("cargo");
        // No flag, wrapper or directory that this process was itself built with may reach the other machine's compiler.
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if name.starts_with("CARGO_") && name != "CARGO_HOME" || name.starts_with("RUSTFLAGS") {
                cargo.env_remove(&*name);
            }
        }
        cargo
            .current_dir(self.root.join("ebpf/probes"))
            .env("CARGO_TARGET_DIR", scratch)
            // The core library for this target has to be compiled, which only an unstable option does.
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", &tools.bpf_linker)
            .env("CARGO_ENCODED_RUSTFLAGS", self.remap(tools)?);
        if let Some(rustc) = &tools.rustc_with_source {
            cargo.env("RUSTC", rustc);
        }
        Ok(cargo)
    }

    /// Flags that replace every path of this machine in what the compiler writes.
    fn remap(&self, tools: &Toolchain) -> Result<OsString> {
        let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
        let home = home.context("neither CARGO_HOME nor HOME is set")?;
        let mut flags = OsString::new();
        for (from, to) in [(&*home, "/cargo"), (&tools.rust_sysroot, "/rust"), (&self.root, "/ebb")]
        {
            if !flags.is_empty() {
                // What separates encoded flags.
                flags.push("\x1f");
            }
            flags.push("--remap-path-prefix=");
            flags.push(from);
            flags.push("=");
            flags.push(to);
        }
        Ok(flags)
    }

    fn compile_c(&self, tools: &Toolchain, name: &str, scratch: &Path) -> Result<PathBuf> {
        println!("bpf: {name} (C)");
        let object = scratch.join(format!("{name}.o"));
        let mut clang = Command::new(&tools.clang);
        clang
            .current_dir(self.root.join("ebpf/core"))
            .args(["-target", "bpf"])
            .args(C_FLAGS)
            .arg(format!("-ffile-prefix-map={}=/libbpf", tools.libbpf_headers.display()))
            .arg("-isystem")
            .arg(&tools.libbpf_headers)
            .arg(format!("{name}.bpf.c"))
            .arg("-o")
            .arg(&object);
        sh::run(&mut clang)?;
        // Type information stays: the loader needs it. DWARF goes: nobody reads it, and it is two thirds of the object.
        sh::run(Command::new(&tools.llvm_strip).arg("--strip-debug").arg(&object))?;
        Ok(object)
    }

    /// All input files, in an order that does not depend on the directories'.
    fn files(&self) -> Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        let mut rest: Vec<PathBuf> = INPUTS.iter().map(|input| self.root.join(input)).collect();
        while let Some(path) = rest.pop() {
            if !path.is_dir() {
                files.push(path);
            } else if !path.ends_with("target") {
                let entries = fs::read_dir(&path);
                for entry in entries.with_context(|| format!("cannot list {}", path.display()))? {
                    rest.push(entry?.path());
                }
            }
        }
        files.sort();
        Ok(files)
    }
}
