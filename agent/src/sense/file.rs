//! Small kernel files, read often: kept open, read with one `pread` into a buffer that is reused.
//!
//! A pseudo file is produced anew by every read from offset 0, so one open descriptor serves for as long as the object lives.
//! When the object is gone (a removed cgroup, an ended process) the read fails with `ENODEV` or `ESRCH`, and the caller forgets it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// The largest file content that is read; what lies past it is an error, never silently cut.
const LIMIT: usize = 1 << 20;

/// The buffer that a reading starts with: more than `meminfo` or `memory.stat` on any kernel.
const FIRST: usize = 8192;

/// A kernel file kept open, with no buffer of its own.
#[derive(Debug)]
pub struct KeptFile(File);

impl KeptFile {
    /// Opens `path` for reading.
    ///
    /// # Errors
    /// Whatever `open` says; the path is not part of the error, the caller names what it wanted.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(File::open(path)?))
    }

    /// Takes over a descriptor that is open for reading.
    #[must_use]
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self(File::from(fd))
    }

    /// Reads a file that the kernel writes in one piece (a value, `meminfo`, `memory.stat`): one call where [`Self::read`] needs two.
    ///
    /// Not for lists, of which the kernel may return a part at a time.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_value<'a>(&self, buffer: &'a mut Vec<u8>) -> io::Result<&'a str> {
        text(self.read_bytes(buffer)?)
    }

    /// The same of what need not be text: a process chooses its own name.
    ///
    /// # Errors
    /// As [`Self::read`], for any bytes.
    pub fn read_bytes<'a>(&self, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        if buffer.len() < FIRST {
            buffer.resize(FIRST, 0);
        }
        let n = self.0.read_at(buffer, 0)?;
        let n = if n == buffer.len() { self.fill(buffer)? } else { n };
        Ok(buffer.get(..n).unwrap_or_default())
    }

    /// Reads the whole content from the start into `buffer`, and returns it as text.
    ///
    /// # Errors
    /// The read's own error, `InvalidData` when the content is not UTF-8 or larger than 1 MiB.
    pub fn read<'a>(&self, buffer: &'a mut Vec<u8>) -> io::Result<&'a str> {
        let filled = self.fill(buffer)?;
        text(buffer.get(..filled).unwrap_or_default())
    }

    /// Reads the whole content from the start; returns how many bytes of the buffer it takes.
    fn fill(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        if buffer.len() < FIRST {
            buffer.resize(FIRST, 0);
        }
        let mut filled = 0;
        loop {
            let space = buffer.get_mut(filled..).unwrap_or_default();
            let n = self.0.read_at(space, filled as u64)?;
            if n == 0 {
                return Ok(filled);
            }
            filled += n;
            if filled == buffer.len() {
                if filled >= LIMIT {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "larger than 1 MiB"));
                }
                buffer.resize(filled * 2, 0);
            }
        }
    }
}

fn text(bytes: &[u8]) -> io::Result<&str> {
    std::str::from_utf8(bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

/// Reads a file that is not worth keeping open.
///
/// # Errors
/// As [`KeptFile::open`] and [`KeptFile::read`].
pub fn read_once(path: &Path) -> io::Result<String> {
    let mut buffer = Vec::new();
    KeptFile::open(path)?.read(&mut buffer).map(str::to_owned)
}

/// Parses the files that hold one number, where `max` means no limit: `Some(None)` is `max`, `None` is not a number.
#[must_use]
pub fn number_or_max(text: &str) -> Option<Option<u64>> {
    match text.trim() {
        "max" => Some(None),
        digits => digits.parse().ok().map(Some),
    }
}

/// The value behind `key` in a file of `key value` lines.
#[must_use]
pub fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        (name == key).then(|| value.trim().parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn a_file_larger_than_the_buffer_is_read_whole() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let content = "0123456789".repeat(2000);
        file.write_all(content.as_bytes()).unwrap();
        let mut buffer = Vec::new();
        let kept = KeptFile::open(file.path()).unwrap();
        assert_eq!(kept.read(&mut buffer).unwrap(), content);
        assert_eq!(kept.read_value(&mut Vec::new()).unwrap(), content);
    }

    #[test]
    fn a_shorter_content_does_not_keep_the_tail_of_the_longer_one() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "123456").unwrap();
        let kept = KeptFile::open(file.path()).unwrap();
        let mut buffer = Vec::new();
        assert_eq!(kept.read(&mut buffer).unwrap(), "123456");
        std::fs::write(file.path(), "7").unwrap();
        assert_eq!(kept.read(&mut buffer).unwrap(), "7");
    }

    #[test]
    fn keys_match_whole_words_only() {
        let stat = "anon 1\nanon_thp 2\nfile 3\n";
        assert_eq!(keyed(stat, "anon"), Some(1));
        assert_eq!(keyed(stat, "anon_thp"), Some(2));
        assert_eq!(keyed(stat, "ano"), None);
    }

    #[test]
    fn max_is_no_limit_and_garbage_is_not_a_number() {
        assert_eq!(number_or_max("max\n"), Some(None));
        assert_eq!(number_or_max("42\n"), Some(Some(42)));
        assert_eq!(number_or_max("-1\n"), None);
    }
}
