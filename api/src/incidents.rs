//! The records of incidents: which there are, told by their names alone, and one in pieces.
//!
//! A name that a client gives is only ever compared with those that are there; no path is made of it.

use crate::pace::{Hand, PIECE};
use crate::wire::{GetIncidentResponse, Incident};
use std::fs::{DirEntry, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use tonic::Status;

/// The incidents in `directory`, the newest first, at most `limit`.
pub(crate) fn list(directory: &Path, limit: usize) -> io::Result<Vec<Incident>> {
    let mut found: Vec<Incident> =
        std::fs::read_dir(directory)?.flatten().filter_map(|entry| incident(&entry)).collect();
    found.sort_by(|a, b| (b.crossed_at_ms, &b.id).cmp(&(a.crossed_at_ms, &a.id)));
    found.truncate(limit);
    Ok(found)
}

/// The file of the incident `id`; `None` when there is none.
pub(crate) fn open(directory: &Path, id: &str) -> io::Result<Option<File>> {
    let entries = std::fs::read_dir(directory)?.flatten();
    let mut own = entries.filter(|entry| incident(entry).is_some_and(|incident| incident.id == id));
    let Some(entry) = own.next() else { return Ok(None) };
    // It may be forgotten between the two.
    match OpenOptions::new().read(true).custom_flags(nix::libc::O_NOFOLLOW).open(entry.path()) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Hands out a file piece by piece, as the client takes them in.
pub(crate) async fn hand_out(mut file: File, hand: &Hand<Result<GetIncidentResponse, Status>>) {
    loop {
        let mut json = vec![0; PIECE];
        let answer = match file.read(&mut json) {
            Ok(0) => return,
            Ok(read) => {
                json.truncate(read);
                Ok(GetIncidentResponse { json })
            }
            Err(error) => Err(Status::internal(format!("the record cannot be read: {error}"))),
        };
        let is_end = answer.is_err();
        if !hand.over(answer).await || is_end {
            return;
        }
    }
}

/// What a file's name and size say, if it is the record of an incident.
fn incident(entry: &DirEntry) -> Option<Incident> {
    let about = entry.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let path = PathBuf::from(entry.file_name());
    let is_record = path.extension().is_some_and(|extension| extension == "json");
    let id = path.file_stem().filter(|_| is_record)?.to_str()?.to_owned();
    let what = ebb_journal::incident::about(&id)?.to_owned();
    let crossed_at_ms = id.split_once('-')?.0.parse().ok()?;
    Some(Incident { id, crossed_at_ms, about: what, size_bytes: about.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: [&str; 2] = ["1700000000001-memory.available", "1700000000002-nodefs.available"];

    fn directory() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str| std::fs::write(directory.path().join(name), "{}").unwrap();
        IDS.iter().for_each(|id| write(&format!("{id}.json")));
        ["1700000000003-memory.available.partial", "notes.json", "secret"]
            .iter()
            .for_each(|name| write(name));
        write("1700000000004-pid.available_dryRun.json");
        let target = directory.path().join("secret");
        std::os::unix::fs::symlink(target, directory.path().join("1700000000009-link.json"))
            .unwrap();
        directory
    }

    #[test]
    fn records_are_listed_the_newest_first_and_nothing_else_is() {
        let directory = directory();
        let all = list(directory.path(), usize::MAX).unwrap();
        let ids: Vec<&str> = all.iter().map(|incident| incident.id.as_str()).collect();
        // A dry run's is told by its name, and is about the same things.
        let rehearsed = "1700000000004-pid.available_dryRun";
        assert_eq!(ids, [rehearsed, IDS[1], IDS[0]]);
        let first = Incident {
            id: rehearsed.to_owned(),
            crossed_at_ms: 1_700_000_000_004,
            about: "pid.available".into(),
            size_bytes: 2,
        };
        assert_eq!(list(directory.path(), 1).unwrap(), [first]);
    }

    #[test]
    fn only_what_is_listed_is_opened() {
        let directory = directory();
        let opens = |id: &str| open(directory.path(), id).unwrap().is_some();
        assert!(opens(IDS[0]));
        for id in ["", "..", "../etc/passwd", "secret", "notes", "1700000000009-link"] {
            assert!(!opens(id), "{id}");
        }
    }
}
