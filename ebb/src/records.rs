//! Where records of incidents are, and reading them, for every command that shows one.

use super::{Failure, json};
use anyhow::{Context as _, anyhow, ensure};
use ebb_agent::config::Config;
use ebb_journal::incident::{Incident, SCHEMA_VERSION};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The configuration of the service (deploy/systemd/ebb.service).
const SERVICE_CONFIG: &str = "/etc/ebb/ebb.yaml";

/// Where the service keeps records when that names no other place.
const SERVICE_DIRECTORY: &str = "/var/lib/ebb/incidents";

/// How many ids are named where one that was given fits several.
const NAMED: usize = 5;

/// A directory of records.
#[derive(Debug)]
pub(super) struct Place(PathBuf);

/// A record that was read.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) file: PathBuf,
    pub(super) incident: Incident,
}

/// The directory that a configuration names.
fn configured(file: &Path) -> Result<Option<PathBuf>, Failure> {
    let config = Config::load(file).map_err(|errors| Failure::Input(errors.into()))?;
    Ok(config.incidents.map(|incidents| incidents.directory))
}

impl Place {
    /// The directory that was named, else that of the configuration.
    ///
    /// # Errors
    /// The configuration is wrong, or names none.
    pub(super) fn named(directory: Option<&Path>, config: Option<&Path>) -> Result<Self, Failure> {
        if let Some(directory) = directory {
            return Ok(Self(directory.to_owned()));
        }
        match config {
            Some(file) => Self::configured(file),
            None => Self::of_service(),
        }
    }

    /// The directory that was named, else that of a configuration that has been read, else the service's.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn known(
        directory: Option<&Path>,
        config: Option<&Config>,
    ) -> Result<Self, Failure> {
        let configured = || Some(&config?.incidents.as_ref()?.directory);
        match directory.or_else(|| configured().map(PathBuf::as_path)) {
            Some(directory) => Ok(Self(directory.to_owned())),
            None => Self::of_service(),
        }
    }

    pub(super) fn directory(&self) -> &Path {
        &self.0
    }

    fn of_service() -> Result<Self, Failure> {
        Self::of_service_at(Path::new(SERVICE_CONFIG), Path::new(SERVICE_DIRECTORY))
    }

    /// The directory that the service's configuration names, else its usual one.
    fn of_service_at(config: &Path, usual: &Path) -> Result<Self, Failure> {
        let named = if config.exists() { configured(config)? } else { None };
        let usual = usual.is_dir().then(|| usual.to_owned());
        named.or(usual).map(Self).ok_or_else(|| {
            Failure::Input(anyhow!(
                "no directory of incidents is known: name it, as `ebb run --incidents DIR` has it, or a configuration that does (ebb.incidents.directory); {SERVICE_CONFIG} names none, and there is no {SERVICE_DIRECTORY}"
            ))
        })
    }

    fn configured(file: &Path) -> Result<Self, Failure> {
        configured(file)?.map(Self).ok_or_else(|| {
            Failure::Input(anyhow!(
                "{}: ebb.incidents.directory: missing; name the directory that `ebb run --incidents` has",
                file.display()
            ))
        })
    }

    /// The files in it, by their names.
    fn files(&self) -> Result<Vec<PathBuf>, Failure> {
        let read = || {
            let entries = fs::read_dir(&self.0)?.collect::<io::Result<Vec<_>>>()?;
            let mut files: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
            files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
            files.sort();
            Ok(files)
        };
        read().map_err(|error: io::Error| {
            let hint = match error.kind() {
                io::ErrorKind::NotFound => "; name the directory that `ebb run --incidents` has",
                io::ErrorKind::NotADirectory => "; `ebb incident show` takes one file",
                io::ErrorKind::PermissionDenied => "; it takes the rights of whoever runs ebb",
                _ => "",
            };
            Failure::Input(anyhow!("incidents in {}: {error}{hint}", self.0.display()))
        })
    }

    /// The file of the record with this id.
    fn find(&self, id: &str) -> Result<PathBuf, Failure> {
        let files = self.files()?;
        let at = self.0.display();
        let stem = |file: &PathBuf| {
            file.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
        };
        if let Some(own) = files.iter().find(|file| stem(file) == id) {
            return Ok(own.clone());
        }
        // Names begin with the time.
        let latest = (id == "latest").then(|| files.last()).flatten();
        let fitting: Vec<&PathBuf> = match latest {
            Some(latest) => vec![latest],
            None => files.iter().filter(|file| stem(file).starts_with(id)).collect(),
        };
        match fitting.as_slice() {
            [one] => Ok((*one).clone()),
            [] => Err(Failure::Input(anyhow!(
                "incident {id}: there is no such file, and no such record in {at}; `ebb incident list {at}` shows the {} that there are",
                files.len()
            ))),
            several => {
                let names: Vec<String> =
                    several.iter().take(NAMED).map(|file| stem(file)).collect();
                Err(Failure::Input(anyhow!(
                    "incident {id}: {} records in {at} begin so; give more of {}",
                    several.len(),
                    names.join(", ")
                )))
            }
        }
    }
}

/// Reads the records of a directory; of those that cannot be read, why.
///
/// # Errors
/// The directory cannot be read.
pub(super) fn all(place: &Place) -> Result<(Vec<Recorded>, Vec<String>), Failure> {
    let (mut found, mut unreadable) = (Vec::new(), Vec::new());
    for file in place.files()? {
        match record(&file) {
            Ok(incident) => found.push(Recorded { file, incident }),
            Err(error) => unreadable.push(format!("{error:#}")),
        }
    }
    Ok((found, unreadable))
}

/// Reads one record: a file, or one of a directory by its id.
///
/// # Errors
/// There is none, or it is wrong: file, key, and what belongs there.
pub(super) fn one(
    named: &Path,
    place: impl FnOnce() -> Result<Place, Failure>,
) -> Result<Recorded, Failure> {
    let is_file = named == Path::new("-")
        || named.exists()
        || named.components().count() > 1
        || named.extension().is_some_and(|extension| extension == "json");
    let file = if is_file { named.to_owned() } else { place()?.find(&named.to_string_lossy())? };
    let incident = record(&file).map_err(Failure::Input)?;
    Ok(Recorded { file, incident })
}

fn record(file: &Path) -> anyhow::Result<Incident> {
    if file.is_dir() {
        return Err(anyhow!("it is a directory: `ebb incident list` takes one"))
            .with_context(|| file.display().to_string());
    }
    let incident: Incident = json::read(file)?;
    ensure!(
        incident.schema_version == SCHEMA_VERSION,
        "{}: schemaVersion = {}: this ebb reads version {SCHEMA_VERSION}",
        file.display(),
        incident.schema_version
    );
    Ok(incident)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_has_its_usual_directory_unless_its_configuration_names_another() {
        let root = tempfile::tempdir().unwrap();
        let [config, usual, other] =
            ["ebb.yaml", "usual", "other"].map(|name| root.path().join(name));
        let place = || Place::of_service_at(&config, &usual).map(|place| place.0);
        assert!(place().is_err());
        fs::create_dir(&usual).unwrap();
        assert_eq!(place().ok().as_ref(), Some(&usual));
        fs::write(&config, "evictionHard: {memory.available: 100Mi}\n").unwrap();
        assert_eq!(place().ok().as_ref(), Some(&usual));
        let named = format!("ebb: {{incidents: {{directory: {}}}}}\n", other.display());
        fs::write(&config, named).unwrap();
        assert_eq!(place().ok().as_ref(), Some(&other));
        fs::write(&config, "evictionHard: 7\n").unwrap();
        assert!(place().is_err(), "what is wrong with it is told");
    }
}
