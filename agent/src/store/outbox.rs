//! What the API server has not been told yet, on disk: a list that is written whole, by one rename, whenever it changes.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

const NAME: &str = "evictions-to-tell.json";

/// The file.
#[derive(Debug, Clone)]
pub struct OutboxFile {
    path: PathBuf,
}

impl OutboxFile {
    /// The one in the directory of what ebb remembers.
    #[must_use]
    pub fn in_dir(dir: &Path) -> Self {
        Self { path: dir.join(NAME) }
    }

    /// What is in it, for somebody who only looks; nothing where there is none.
    ///
    /// # Errors
    /// It cannot be read, or is no such list.
    pub fn look<T: serde::de::DeserializeOwned>(&self) -> io::Result<Vec<T>> {
        let wrong = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        self.text()?.map_or(Ok(Vec::new()), |text| serde_json::from_slice(&text).map_err(wrong))
    }

    fn text(&self) -> io::Result<Option<Vec<u8>>> {
        match fs::read(&self.path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What is in it; nothing where there is none. One that cannot be read as a list is put aside as `….bad`, and that is the error.
    ///
    /// # Errors
    /// It cannot be read, or is no such list.
    pub fn load<T: serde::de::DeserializeOwned>(&self) -> io::Result<Vec<T>> {
        let Some(text) = self.text()? else { return Ok(Vec::new()) };
        serde_json::from_slice(&text).map_err(|error| {
            // It is in nobody's way there, and a person may still read it.
            let _ = fs::rename(&self.path, self.path.with_extension("json.bad"));
            io::Error::new(io::ErrorKind::InvalidData, error)
        })
    }

    /// Makes the file hold these and no others; without any there is no file.
    ///
    /// # Errors
    /// It cannot be written; what it held before then still stands.
    pub fn save<T: serde::Serialize>(&self, list: &[T]) -> io::Result<()> {
        if list.is_empty() {
            return match fs::remove_file(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            };
        }
        let new = self.path.with_extension("json.new");
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(list)?)?;
        file.sync_data()?;
        fs::rename(&new, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_is_there_again_and_an_empty_list_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = OutboxFile::in_dir(dir.path());
        assert_eq!(file.load::<String>().unwrap(), Vec::<String>::new());
        file.save(&["a", "b"]).unwrap();
        assert_eq!(file.load::<String>().unwrap(), ["a", "b"]);
        file.save::<String>(&[]).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_is_no_list_is_put_aside() {
        let dir = tempfile::tempdir().unwrap();
        let file = OutboxFile::in_dir(dir.path());
        fs::write(dir.path().join(NAME), "half of a li").unwrap();
        assert!(file.look::<String>().is_err(), "who only looks moves nothing");
        assert!(file.load::<String>().is_err());
        assert_eq!(file.load::<String>().unwrap(), Vec::<String>::new());
        assert!(dir.path().join("evictions-to-tell.json.bad").exists());
    }
}
