//! What containers, volumes, logs and images take up on disk, as last told or measured.

use crate::sense::logs::Logs;
use crate::sense::pod_dirs::{Figure, PodSizes};
use crate::sense::runtime::{DiskUsage, Images};
use ebb_policy::Snapshot;
use ebb_policy::snapshot::{VolumeSpec, VolumeType, Workload};
use std::collections::BTreeMap;

/// What is on disk of the pods, and for them.
#[derive(Debug, Default)]
pub struct PodStorage {
    usage: Option<DiskUsage>,
    images: Option<Images>,
    logs: Logs,
}

impl PodStorage {
    /// Takes in what containers and volumes take up on disk.
    pub fn observe_usage(&mut self, mut usage: DiskUsage) {
        let before = self.usage.take().unwrap_or_default();
        let keep = |now: &mut BTreeMap<String, Figure>, before: BTreeMap<String, Figure>| {
            for (name, then) in before {
                let Some(figure) = now.get_mut(&name) else { continue };
                if figure.at < then.at {
                    *figure = then;
                } else if !figure.is_whole {
                    *figure = then.or_more(*figure);
                }
            }
        };
        for (uid, sizes) in before.pods {
            if let Some(known) = usage.pods.get_mut(&uid) {
                keep(&mut known.logs, sizes.logs);
                keep(&mut known.volumes, sizes.volumes);
            }
        }
        self.usage = Some(usage);
    }

    /// Takes in what was measured at once of pods' directories, which is newer than what was walked.
    pub fn observe_sizes(&mut self, sizes: BTreeMap<String, PodSizes>) {
        let usage = self.usage.get_or_insert_default();
        for (uid, sizes) in sizes {
            let known = usage.pods.entry(uid).or_default();
            known.volumes.retain(|name, _| sizes.volume_names.contains(name));
            known.volume_names = sizes.volume_names;
            known.volumes.extend(sizes.volumes);
            known.logs.extend(sizes.logs);
        }
    }

    /// Takes in which logs there are.
    pub fn observe_logs(&mut self, logs: Logs) {
        self.logs = logs;
    }

    /// The images, as last told.
    #[must_use]
    pub fn images(&self) -> Option<&Images> {
        self.images.as_ref()
    }

    /// Takes in the images.
    pub(super) fn observe_images(&mut self, images: Images) {
        self.images = Some(images);
    }

    /// What containers and volumes take up; `None` before anything was measured.
    pub(super) fn usage(&self) -> Option<&DiskUsage> {
        self.usage.as_ref()
    }

    /// Adds the volumes that are there and that no manifest tells of.
    pub(super) fn add_volumes(&self, workload: &mut Workload) {
        let uid = workload.key.uid.as_deref();
        let own = uid.and_then(|uid| self.usage.as_ref()?.pods.get(uid));
        for name in own.iter().flat_map(|own| &own.volume_names) {
            if workload.volumes.iter().all(|volume| &volume.name != name) {
                workload.volumes.push(VolumeSpec {
                    name: name.clone(),
                    volume_type: VolumeType::EmptyDir,
                    medium: None,
                    size_limit: None,
                });
            }
        }
    }

    /// Adds images and logs.
    pub(super) fn fill(&self, snapshot: &mut Snapshot) {
        snapshot.log_dirs.clone_from(&self.logs.dirs);
        snapshot.log_links.clone_from(&self.logs.links);
        if let Some(images) = &self.images {
            snapshot.images.clone_from(&images.list);
            snapshot.layers.clone_from(&images.layers);
        }
    }
}
