//! What a guest is given: the freshly built agent and test runner as an initramfs.
//!
//! Both are static, so they run on any root file system. The runner is `/init`: it mounts the root disk, moves itself
//! and the payload there and goes on as process 1. An initramfs needs no driver to boot from.
use crate::arch::Arch;
use crate::{build, image, manifests, package, sh};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What guests know ebb's image by.
const IMAGE: &str = "ebb-image.tar";

/// The static binaries of this build.
#[derive(Debug)]
pub(crate) struct Payload {
    agent: PathBuf,
    runner: PathBuf,
}

/// A test as its registry declares it.
#[derive(Debug, Clone)]
pub(crate) struct Test {
    pub(crate) name: String,
    /// A machine of the matrix.
    pub(crate) machine: String,
    /// Seconds.
    pub(crate) timeout: u64,
}

impl Payload {
    /// Build the agent and the runner with the BPF programs inside.
    pub(crate) fn build(arch: Arch) -> Result<Self> {
        let dir = build::release(arch, &["ebb", "ebb-vm-tests"])?;
        Ok(Self { agent: dir.join("ebb"), runner: dir.join("ebb-guest") })
    }

    /// The tests in the runner's registry.
    pub(crate) fn tests(&self) -> Result<Vec<Test>> {
        self.list(&["list"])
    }

    /// The tests that take long, and are only run when asked for.
    pub(crate) fn long_tests(&self) -> Result<Vec<Test>> {
        self.list(&["list", "long"])
    }

    /// The measurements in the runner's registry.
    pub(crate) fn benches(&self) -> Result<Vec<Test>> {
        self.list(&["list", "bench"])
    }

    /// The play of the demo.
    pub(crate) fn demo(&self) -> Result<Vec<Test>> {
        self.list(&["list", "demo"])
    }

    /// The soak, which lasts as long as it is told.
    pub(crate) fn soak(&self) -> Result<Vec<Test>> {
        self.list(&["list", "soak"])
    }

    fn list(&self, words: &[&str]) -> Result<Vec<Test>> {
        let list = sh::read(Command::new(&self.runner).args(words))?;
        let parse = |line: &str| {
            let mut words = line.split_whitespace();
            Some(Test {
                name: words.next()?.to_owned(),
                machine: words.next()?.to_owned(),
                timeout: words.next()?.parse().ok()?,
            })
        };
        list.lines()
            .map(|line| parse(line).with_context(|| format!("the runner lists {line:?}")))
            .collect()
    }

    /// What a cluster is given to run ebb: its image, of the agent of this build, and every overlay of `deploy/`.
    pub(crate) fn deployment(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let agent = fs::read(&self.agent)
            .with_context(|| format!("cannot read {}", self.agent.display()))?;
        let mut files = vec![(IMAGE.to_owned(), image::layout(Arch::Amd64, &agent)?)];
        for overlay in fs::read_dir(manifests::build()?).context("cannot list manifests")? {
            let overlay = overlay.context("cannot list manifests")?;
            let text = fs::read(overlay.path())
                .with_context(|| format!("cannot read {}", overlay.path().display()))?;
            files.push((overlay.file_name().to_string_lossy().into_owned(), text));
        }
        Ok(files)
    }

    /// What a guest installs: ebb as a package of Debian, and an upgrade of it.
    pub(crate) fn packages(&self) -> Result<Vec<(String, Vec<u8>)>> {
        package::upgrade(&self.agent)
    }

    /// Write the initramfs; beside the agent are `files`, by name and content, and the kernel's `modules`.
    pub(crate) fn write_initrd(
        &self,
        to: &Path,
        files: &[(String, Vec<u8>)],
        modules: &[PathBuf],
    ) -> Result<()> {
        let read =
            |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
        let mut archive = Cpio::default();
        archive.directory("dev")?;
        // The kernel opens it as the standard streams of process 1.
        archive.device("dev/console", 5, 1)?;
        archive.directory("payload")?;
        archive.file("init", &read(&self.runner)?)?;
        archive.file("payload/ebb", &read(&self.agent)?)?;
        for (name, content) in files {
            archive.file(&format!("payload/{name}"), content)?;
        }
        for module in modules {
            let name = module.file_name().context("a module without a name")?.to_string_lossy();
            archive.file(&format!("payload/{name}"), &read(module)?)?;
        }
        fs::write(to, archive.finish()?).with_context(|| format!("cannot write {}", to.display()))
    }
}

/// A `newc` archive, the format that the kernel unpacks.
#[derive(Debug, Default)]
struct Cpio {
    bytes: Vec<u8>,
    entries: u32,
}

impl Cpio {
    fn directory(&mut self, name: &str) -> Result<()> {
        self.entry(name, 0o040_755, (0, 0), &[])
    }

    fn file(&mut self, name: &str, content: &[u8]) -> Result<()> {
        self.entry(name, 0o100_755, (0, 0), content)
    }

    fn device(&mut self, name: &str, major: u32, minor: u32) -> Result<()> {
        self.entry(name, 0o020_600, (major, minor), &[])
    }

    fn finish(mut self) -> Result<Vec<u8>> {
        self.entry("TRAILER!!!", 0, (0, 0), &[])?;
        Ok(self.bytes)
    }

    fn entry(&mut self, name: &str, mode: u32, rdev: (u32, u32), content: &[u8]) -> Result<()> {
        self.entries += 1;
        let size = u32::try_from(content.len()).with_context(|| format!("{name} is too large"))?;
        let name_size = u32::try_from(name.len() + 1).context("a file name is too long")?;
        // ino, mode, uid, gid, nlink, mtime, filesize, dev and rdev as major and minor, namesize, check
        let (major, minor) = rdev;
        let header = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, major, minor, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in header {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(content);
        self.align();
        Ok(())
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_says_its_size_and_is_padded() {
        let mut archive = Cpio::default();
        archive.directory("payload").unwrap();
        archive.file("payload/odd", b"12345").unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(&bytes[..6], b"070701");
        // The size field says how much follows the padded name.
        let at = bytes.windows(12).position(|w| w == b"payload/odd\0").unwrap();
        assert_eq!(&bytes[at - 110 + 54..at - 110 + 62], b"00000005");
        assert_eq!(&bytes[at + 14..at + 19], b"12345");
    }
}
