//! The compilers and linkers of the BPF machine: found, or installed where that is possible, or named.
//!
//! | what | first | else |
//! |---|---|---|
//! | sources of Rust's core library | `rustup component add rust-src` | Debian's package of exactly the compiler's version |
//! | bpf-linker | a copy in the cache | built there with cargo, against the compiler's own LLVM |
//! | clang, llvm-strip, libelf, zlib | installed | apt-get, as root; else the names of the packages |
//!
//! Nothing of rustup's is changed except through rustup: Debian's sources go into a sysroot of ours that is otherwise
//! made of links to the compiler's.
use super::packages;
use crate::alone::{self, Lock};
use crate::{debs, sh};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The version of bpf-linker that goes with the compiler this project is pinned to.
const BPF_LINKER: &str = "0.13.0";

/// Suites that carry the compiler's sources, each with several versions.
const RUST_SUITES: [&str; 3] = ["trixie-backports", "sid", "trixie"];

/// Everything that compiling needs. Its `Debug` text names all versions.
#[derive(Debug)]
pub(super) struct Toolchain {
    /// `rustc -vV`, which changes whenever the compiler does.
    _rustc: String,
    /// Version of clang in full.
    _clang: String,
    /// A stand-in for rustc whose sysroot has the sources, when its own has not.
    pub rustc_with_source: Option<PathBuf>,
    pub rust_sysroot: PathBuf,
    pub bpf_linker: PathBuf,
    pub clang: PathBuf,
    pub llvm_strip: PathBuf,
    /// Directory of `bpf_helpers.h`.
    pub libbpf_headers: PathBuf,
}

/// Where the sources of Rust's core library come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RustSource {
    /// The compiler's own sysroot, else rustup, else Debian.
    #[default]
    Auto,
    /// Debian's package, even when the compiler has its own.
    Debian,
}

impl Toolchain {
    pub(super) fn find_or_install(source: RustSource) -> Result<Self> {
        let rustc = Rustc::ask()?;
        // What is missing is installed by one, whatever checkout it is of; the others find it there.
        let _lock = Lock::take(&sh::cache()?.join("toolchain.lock"), "the BPF toolchain")?;
        packages::install()?;
        let clang = packages::newest_clang().context("clang was installed and is not there")?;
        let sysroot = rustc.sysroot_with_source(source)?;
        let stand_in = sysroot.join("bin/rustc-with-source");
        Ok(Self {
            bpf_linker: rustc.bpf_linker()?,
            llvm_strip: packages::llvm_strip(&clang)
                .context("llvm-strip was installed and is not there")?,
            libbpf_headers: libbpf_headers()?,
            rustc_with_source: stand_in.exists().then_some(stand_in),
            rust_sysroot: sysroot,
            _rustc: rustc.verbose,
            _clang: sh::read(Command::new(&clang).arg("--version"))?,
            clang,
        })
    }
}

/// The installed Rust compiler.
struct Rustc {
    verbose: String,
    release: String,
    llvm_major: u32,
    sysroot: PathBuf,
}

impl Rustc {
    fn ask() -> Result<Self> {
        let verbose = sh::read(Command::new("rustc").arg("-vV"))?;
        let field = |key: &str| {
            let value = verbose.lines().find_map(|line| line.strip_prefix(key));
            value.map(str::trim).with_context(|| format!("rustc -vV does not say `{key}`"))
        };
        let llvm = field("LLVM version:")?;
        let major = llvm.split('.').next().and_then(|number| number.parse().ok());
        Ok(Self {
            release: field("release:")?.to_owned(),
            llvm_major: major.with_context(|| format!("{llvm} is no version of LLVM"))?,
            sysroot: sh::read(Command::new("rustc").args(["--print", "sysroot"]))?.into(),
            verbose,
        })
    }

    /// A sysroot in which cargo finds the sources of the core library.
    fn sysroot_with_source(&self, source: RustSource) -> Result<PathBuf> {
        if source == RustSource::Auto {
            if has_source(&self.sysroot) {
                return Ok(self.sysroot.clone());
            }
            println!("bpf: asking rustup for rust-src");
            let added = Command::new("rustup").args(["component", "add", "rust-src"]).status();
            if added.is_ok_and(|status| status.success()) && has_source(&self.sysroot) {
                return Ok(self.sysroot.clone());
            }
            println!("bpf: rustup has no rust-src here; asking Debian");
        }
        self.linked_sysroot()
    }

    /// Our own sysroot: links to the compiler's, Debian's sources, and a stand-in for rustc that says where both are.
    fn linked_sysroot(&self) -> Result<PathBuf> {
        let sysroot = sh::cache()?.join(format!("sysroot-{}", self.release));
        if has_source(&sysroot) && sysroot.join("bin/rustc-with-source").exists() {
            return Ok(sysroot);
        }
        let source = self.debian_source()?;
        let unfinished = alone::partial(&sysroot)?;
        let rustlib = unfinished.join("lib/rustlib");
        fs::create_dir_all(rustlib.join("src"))?;
        fs::create_dir_all(unfinished.join("bin"))?;
        link_all(&self.sysroot.join("lib"), &unfinished.join("lib"), "rustlib")?;
        link_all(&self.sysroot.join("lib/rustlib"), &rustlib, "src")?;
        symlink(source, rustlib.join("src/rust"))?;
        let rustc = self.sysroot.join("bin/rustc");
        let stand_in = unfinished.join("bin/rustc-with-source");
        let script =
            format!("#!/bin/sh\nexec {} --sysroot {} \"$@\"\n", rustc.display(), sysroot.display());
        fs::write(&stand_in, script)?;
        fs::set_permissions(&stand_in, fs::Permissions::from_mode(0o755))?;
        if sysroot.exists() {
            fs::remove_dir_all(&sysroot)?;
        }
        fs::rename(&unfinished, &sysroot)
            .with_context(|| format!("cannot create {}", sysroot.display()))?;
        Ok(sysroot)
    }

    /// The directory with `library/` from Debian's package of exactly this version.
    fn debian_source(&self) -> Result<PathBuf> {
        let dir = sh::cache()?.join(format!("rust-source-{}", self.release));
        let below = Path::new("usr/src").join(format!("rustc-{}", self.release));
        alone::once(&dir, |partial| self.unpack_debian_source(partial, &below))?;
        Ok(dir.join(below))
    }

    /// Unpacks that package into `dir`, where the sources are then `below`.
    fn unpack_debian_source(&self, dir: &Path, below: &Path) -> Result<()> {
        let upstream = format!("{}+", self.release);
        for suite in RUST_SUITES {
            let suite = debs::Suite::open(suite)?;
            let versions = suite.versions("rust-src")?;
            let Some(version) = versions.iter().find(|version| version.starts_with(&upstream))
            else {
                continue;
            };
            let package = suite.fetch(&[format!("rust-src={version}")])?;
            for deb in &package {
                debs::unpack(deb, dir)?;
            }
            ensure!(
                dir.join(below).join("library/core").is_dir(),
                "rust-src {version} from Debian has no library in {}",
                below.display()
            );
            return Ok(());
        }
        bail!(
            "no rust-src for rustc {}: neither `rustup component add rust-src` nor Debian's {} has it",
            self.release,
            RUST_SUITES.join(", ")
        )
    }

    /// A bpf-linker that uses this compiler's LLVM, since it has to read what the compiler writes.
    fn bpf_linker(&self) -> Result<PathBuf> {
        let name = format!("bpf-linker-{BPF_LINKER}-rustc-{}", self.release);
        let dir = sh::cache()?.join(name);
        let linker = dir.join("bin/bpf-linker");
        let works = |linker: &Path| {
            let version = Command::new(linker).arg("--version").stderr(Stdio::null()).output();
            version.is_ok_and(|output| output.status.success())
        };
        if works(&linker) {
            return Ok(linker);
        }
        println!("bpf: building bpf-linker {BPF_LINKER} against LLVM {}", self.llvm_major);
        sh::run(
            Command::new("cargo")
                .args(["install", "bpf-linker", "--version", BPF_LINKER, "--locked", "--force"])
                .args(["--no-default-features", "--features"])
                .arg(format!("llvm-{}", self.llvm_major))
                .arg("--root")
                .arg(&dir)
                .env("LLVM_PREFIX", self.llvm_prefix(&dir)?)
                .env("CARGO_TARGET_DIR", dir.join("build"))
                .env_remove("RUSTFLAGS"),
        )?;
        ensure!(works(&linker), "{} was built and does not start", linker.display());
        fs::remove_dir_all(dir.join("build")).context("cannot remove bpf-linker's build")?;
        Ok(linker)
    }

    /// A directory laid out like an installed LLVM whose library is the compiler's own.
    fn llvm_prefix(&self, dir: &Path) -> Result<PathBuf> {
        let lib = dir.join("llvm/lib");
        fs::create_dir_all(&lib).with_context(|| format!("cannot create {}", lib.display()))?;
        let own =
            fs::read_dir(self.sysroot.join("lib")).context("cannot list rustc's libraries")?;
        let shared = format!("libLLVM.so.{}.", self.llvm_major);
        for entry in own {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default();
            if name.to_string_lossy().starts_with(&shared) {
                // By both names: one to link with, one to be found by at run time.
                for link in [Path::new("libLLVM.so"), Path::new(name)] {
                    let link = lib.join(link);
                    let _ = fs::remove_file(&link);
                    symlink(&path, &link)
                        .with_context(|| format!("cannot create {}", link.display()))?;
                }
                return Ok(dir.join("llvm"));
            }
        }
        let system = PathBuf::from(format!("/usr/lib/llvm-{}", self.llvm_major));
        ensure!(
            system.join("lib/libLLVM.so").exists(),
            "rustc brings no shared LLVM library; install llvm-{}-dev",
            self.llvm_major
        );
        Ok(system)
    }
}

fn has_source(sysroot: &Path) -> bool {
    sysroot.join("lib/rustlib/src/rust/library/core/Cargo.toml").exists()
}

/// Links in `to` to everything in `from` but one entry.
fn link_all(from: &Path, to: &Path, except: &str) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))? {
        let entry = entry?;
        if entry.file_name() != except {
            symlink(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// The headers for C programs that come with the libbpf in this workspace's lock file.
fn libbpf_headers() -> Result<PathBuf> {
    let metadata = sh::read(Command::new("cargo").current_dir(sh::root()).args([
        "metadata",
        "--format-version",
        "1",
        "--quiet",
    ]))?;
    let metadata: Metadata =
        serde_json::from_str(&metadata).context("cannot read what cargo says of the workspace")?;
    let package = metadata.packages.iter().find(|package| package.name == "libbpf-sys");
    let manifest = &package.context("the workspace does not depend on libbpf-sys")?.manifest_path;
    let headers = manifest.parent().context("libbpf-sys has no directory")?.join("libbpf/src");
    ensure!(
        headers.join("bpf_helpers.h").exists(),
        "libbpf-sys has no headers in {}",
        headers.display()
    );
    Ok(headers)
}

/// The part of `cargo metadata` that is used.
#[derive(serde::Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(serde::Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
}
