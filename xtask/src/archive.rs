//! Tars that follow from their content alone: entries belong to root, are of one time, and come in the order in which they are added.
use anyhow::{Context, Result, ensure};
use tar::{Builder, EntryType, Header};

/// A tar that is being written.
pub(crate) struct Archive {
    tar: Builder<Vec<u8>>,
    /// Seconds since the Unix epoch.
    time: u64,
    /// What stands before each name.
    prefix: &'static str,
}

impl Default for Archive {
    /// From the beginning of time.
    fn default() -> Self {
        Self { tar: Builder::new(Vec::new()), time: 0, prefix: "" }
    }
}

impl Archive {
    /// As packages of Debian have it: names begin with `./`, and the time is that of what was built.
    pub(crate) fn of_debian(time: u64) -> Self {
        Self { tar: Builder::new(Vec::new()), time, prefix: "./" }
    }

    /// Names as they are, and everything from `time`, in seconds since the Unix epoch.
    pub(crate) fn at(time: u64) -> Self {
        Self { time, ..Self::default() }
    }

    /// Adds a directory; the empty name is the root of a Debian archive.
    pub(crate) fn directory(&mut self, name: &str) -> Result<()> {
        let name = if name.is_empty() { String::new() } else { format!("{name}/") };
        self.add(EntryType::Directory, &name, 0o755, &[])
    }

    /// Adds a regular file.
    pub(crate) fn file(&mut self, name: &str, mode: u32, bytes: &[u8]) -> Result<()> {
        self.add(EntryType::Regular, name, mode, bytes)
    }

    /// Another name of a file that is in it.
    pub(crate) fn link(&mut self, name: &str, to: &str) -> Result<()> {
        let mut header = self.header(EntryType::Link, 0o755, 0);
        let added = self.tar.append_link(&mut header, name, to);
        added.with_context(|| format!("cannot add {name}"))
    }

    /// The whole archive.
    pub(crate) fn finish(self) -> Result<Vec<u8>> {
        self.tar.into_inner().context("cannot end an archive")
    }

    fn add(&mut self, kind: EntryType, name: &str, mode: u32, bytes: &[u8]) -> Result<()> {
        let mut header = self.header(kind, mode, u64::try_from(bytes.len())?);
        let added = if self.prefix.is_empty() {
            self.tar.append_data(&mut header, name, bytes)
        } else {
            // Written as it is: the library takes a leading `./` away.
            let name = format!("{}{name}", self.prefix);
            let field = header.as_old_mut().name.get_mut(..name.len());
            ensure!(field.is_some(), "{name} is too long a name");
            field.into_iter().for_each(|field| field.copy_from_slice(name.as_bytes()));
            header.set_cksum();
            self.tar.append(&header, bytes)
        };
        added.with_context(|| format!("cannot add {name}"))
    }

    fn header(&self, kind: EntryType, mode: u32, size: u64) -> Header {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(size);
        header.set_mtime(self.time);
        header.set_uid(0);
        header.set_gid(0);
        header
    }
}
