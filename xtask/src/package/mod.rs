//! `cargo xtask package`: ebb as operators install it, for Debian, for systems with rpm, and as a tarball, with what it is made of and checksums.
//!
//! ```text
//! program, stripped ─► contents ─► deb · rpm · tarball ┐
//!                   └► bill of materials (CycloneDX)   ┴─► SHA256SUMS
//! ```
//! Nothing of the machine or the moment is in them: the same program and commit are the same bytes.
use crate::arch::Arch;
use crate::{build, sh};
use anyhow::{Context, Result, ensure};
use contents::{Contents, DOCUMENTS, Zsh};
use release::Release;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

mod contents;
mod deb;
mod gzip;
mod release;
mod rpm;
mod sbom;
mod tarball;

const SUMS: &str = "SHA256SUMS";

/// Options of `cargo xtask package`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which package of this version of ebb it is.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    revision: u32,
    /// Who answers for the packages, `NAME <ADDRESS>`: whoever publishes them.
    #[arg(long, default_value = release::MAINTAINER, value_name = "WHO")]
    maintainer: String,
    /// For which architecture; without it, for that of this machine.
    #[arg(long, value_enum, default_value_t)]
    arch: Arch,
    /// Pack twice and compare every byte.
    #[arg(long)]
    check: bool,
    /// Where to write them; below the target directory unless this is given.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let arch = args.arch;
    let built = build::agent(arch)?;
    // What cannot run here cannot tell of its commands: this machine's own does, of the same sources.
    let teller = if arch == Arch::HOST { built.clone() } else { build::agent(Arch::HOST)? };
    let program = stripped(&built, arch)?;
    let release = Release::of_commit(args.revision, &args.maintainer, arch)?;
    let packages = pack(&release, &program, &teller)?;
    if args.check {
        compare(&packages, &pack(&release, &stripped(&built, arch)?, &teller)?)?;
        println!("packed twice, and every byte is the same");
    }
    let output = args.output.clone().unwrap_or_else(|| match arch {
        Arch::HOST => sh::target().join("package"),
        other => sh::target().join("package").join(other.debian()),
    });
    fs::create_dir_all(&output).with_context(|| format!("cannot create {}", output.display()))?;
    for Package { name, bytes } in &packages {
        let path = output.join(name);
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}: {} bytes", path.display(), bytes.len());
    }
    println!(
        "the program in them: {} bytes, {} before it was stripped",
        size(&program)?,
        size(&built)?
    );
    Ok(())
}

/// Two packages of Debian, the second an upgrade of the first, for guests that install them: names and bytes.
pub(crate) fn upgrade(built: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let program = stripped(built, Arch::Amd64)?;
    let contents = contents_for(&program, built, Zsh::Debian, None)?;
    let one = |revision| {
        let release = Release::of_commit(revision, release::MAINTAINER, Arch::Amd64)?;
        Ok((format!("ebb-{revision}.deb"), deb::pack(&release, &contents)?))
    };
    (1..=2).map(one).collect()
}

/// One file that is published.
#[derive(Debug, PartialEq, Eq)]
struct Package {
    name: String,
    bytes: Vec<u8>,
}

/// All of them; the sums of the others last.
fn pack(release: &Release, program: &Path, teller: &Path) -> Result<Vec<Package>> {
    let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let bill = sbom::write(release, &bytes)?;
    let debian = contents_for(program, teller, Zsh::Debian, Some(&bill))?;
    let others = contents_for(program, teller, Zsh::Others, Some(&bill))?;
    let mut packages = vec![
        Package { name: deb::file_name(release), bytes: deb::pack(release, &debian)? },
        Package { name: rpm::file_name(release), bytes: rpm::pack(release, &others)? },
        Package { name: tarball::file_name(release), bytes: tarball::pack(release, &others)? },
        Package { name: sbom::file_name(release), bytes: bill },
    ];
    let sums = sums(&packages)?;
    packages.push(Package { name: SUMS.to_owned(), bytes: sums.into_bytes() });
    Ok(packages)
}

fn contents_for(program: &Path, teller: &Path, zsh: Zsh, bill: Option<&[u8]>) -> Result<Contents> {
    let mut contents = Contents::gather(program, teller)?;
    contents.complete_zsh(teller, zsh)?;
    if let Some(bill) = bill {
        contents.add(&format!("{DOCUMENTS}/ebb.cdx.json.gz"), gzip::gzip(bill)?);
    }
    Ok(contents)
}

/// For `sha256sum --check`.
fn sums(packages: &[Package]) -> Result<String> {
    let mut text = String::new();
    for Package { name, bytes } in packages {
        for byte in Sha256::digest(bytes) {
            write!(text, "{byte:02x}")?;
        }
        writeln!(text, "  {name}")?;
    }
    Ok(text)
}

/// # Errors
/// Names the packages that differ.
fn compare(first: &[Package], second: &[Package]) -> Result<()> {
    ensure!(first.len() == second.len(), "the second time there were other packages");
    let pairs = first.iter().zip(second).filter(|(one, other)| one != other);
    let differ: Vec<&str> = pairs.map(|(one, _)| one.name.as_str()).collect();
    ensure!(differ.is_empty(), "the second time other bytes came out: {}", differ.join(", "));
    Ok(())
}

/// The program without the names of its functions: panics tell file and line all the same.
fn stripped(program: &Path, arch: Arch) -> Result<PathBuf> {
    let to = sh::target().join("package/program");
    if let Some(directory) = to.parent() {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
    }
    // It comes with the linker that made the program.
    let strip = match arch {
        Arch::HOST => "strip".to_owned(),
        other => format!("{}-strip", other.gnu()),
    };
    sh::run(Command::new(strip).args(["--strip-all", "-o"]).arg(&to).arg(program))?;
    Ok(to)
}

fn size(file: &Path) -> Result<u64> {
    Ok(fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packages(bytes: &[u8]) -> Vec<Package> {
        let package = |name: &str| Package { name: name.to_owned(), bytes: bytes.to_vec() };
        vec![package("a.deb"), package("b.tar.gz")]
    }

    #[test]
    fn what_differs_is_named() {
        assert!(compare(&packages(b"one"), &packages(b"one")).is_ok());
        let mut other = packages(b"one");
        other[1].bytes.push(0);
        let error = compare(&packages(b"one"), &other).unwrap_err().to_string();
        assert!(error.contains("b.tar.gz") && !error.contains("a.deb"), "{error}");
        assert!(compare(&packages(b"one"), &[]).is_err());
    }

    #[test]
    fn sums_are_as_sha256sum_has_them() {
        let sums = sums(&packages(b"one")).unwrap();
        let one = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";
        assert_eq!(sums, format!("{one}  a.deb\n{one}  b.tar.gz\n"));
    }
}
