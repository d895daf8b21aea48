//! What the collectors remove, as the kubelet's rules say it.
use super::pods::is_active;
use super::world::Rules;
use ebb_policy::snapshot::{Container, ContainerState, Snapshot, Workload};
use std::collections::{BTreeMap, BTreeSet};

/// Where a pod stands for its remains.
struct Remains {
    content: bool,
    runtime: bool,
}

fn remains(snapshot: &Snapshot, uid: &str, all_of_ended: bool) -> Remains {
    let known: Option<&Workload> =
        snapshot.workloads.iter().find(|pod| pod.key.uid.as_deref() == Some(uid));
    let (content, ended) = match known {
        None => (snapshot.sources_ready, snapshot.sources_ready),
        Some(pod) => (pod.evicted || pod.deleted && !is_active(pod), !is_active(pod)),
    };
    Remains { content, runtime: content || all_of_ended && ended }
}

/// Dead containers by pod and name.
type Units<'a> = BTreeMap<(&'a str, &'a str), Vec<&'a Container>>;

fn newest_first(list: &mut [&Container]) {
    list.sort_by_key(|c| std::cmp::Reverse((c.created_at, c.id.clone())));
}

/// Leaves the newest `most` of each unit.
fn cut<'a>(units: &mut Units<'a>, most: usize, gone: &mut BTreeSet<&'a str>) {
    for list in units.values_mut() {
        newest_first(list);
        gone.extend(list.split_off(most.min(list.len())).iter().map(|c| c.id.as_str()));
    }
}

/// Dead containers, sandboxes and log directories that go.
pub(super) fn containers(
    snapshot: &Snapshot,
    rules: &Rules,
    all_of_ended: bool,
    removed: &mut BTreeSet<String>,
) {
    let mut units = Units::new();
    for container in &snapshot.containers {
        let age = i128::from(snapshot.taken_at.0) - i128::from(container.created_at.0);
        let is_old = age >= i128::from(rules.container_min_age_s) * 1_000;
        if container.state != ContainerState::Running && is_old {
            let unit = (container.pod_uid.as_str(), container.name.as_str());
            units.entry(unit).or_default().push(container);
        }
    }
    let mut gone: BTreeSet<&str> = BTreeSet::new();
    if snapshot.sources_ready {
        for (unit, list) in &mut units {
            if remains(snapshot, unit.0, all_of_ended).runtime {
                gone.extend(list.drain(..).map(|c| c.id.as_str()));
            }
        }
    }
    units.retain(|_, list| !list.is_empty());
    // The number of units is taken before any is cut short to nothing.
    let count = units.len();
    if let Ok(most) = usize::try_from(rules.per_container) {
        cut(&mut units, most, &mut gone);
    }
    if let Ok(most) = usize::try_from(rules.on_node) {
        let total = |units: &Units<'_>| units.values().map(Vec::len).sum::<usize>();
        if total(&units) > most {
            cut(&mut units, (most / count.max(1)).max(1), &mut gone);
            if total(&units) > most {
                let mut all: Vec<&Container> = units.values().flatten().copied().collect();
                newest_first(&mut all);
                gone.extend(all.split_off(most).iter().map(|c| c.id.as_str()));
            }
        }
    }
    let owners: BTreeSet<&str> = snapshot
        .containers
        .iter()
        .filter(|c| !gone.contains(c.id.as_str()))
        .filter_map(|c| c.sandbox_id.as_deref())
        .collect();
    for sandbox in &snapshot.sandboxes {
        let is_newest = snapshot
            .sandboxes
            .iter()
            .filter(|other| other.pod_uid == sandbox.pod_uid)
            .all(|other| (other.created_at, &other.id) <= (sandbox.created_at, &sandbox.id));
        let all = remains(snapshot, &sandbox.pod_uid, all_of_ended).runtime;
        if !sandbox.ready && !owners.contains(sandbox.id.as_str()) && (all || !is_newest) {
            removed.insert(format!("sandbox {}", sandbox.id));
        }
    }
    for dir in &snapshot.log_dirs {
        if snapshot.sources_ready && remains(snapshot, &dir.pod_uid, false).content {
            removed.insert(format!("logs {}", dir.path));
        }
    }
    removed.extend(gone.iter().map(|id| format!("container {id}")));
}

/// What is remembered of an image: when it was first seen, and last in use.
#[derive(Clone, Copy)]
struct Record {
    first_seen: u64,
    last_used: Option<u64>,
}

/// What is remembered of images.
#[derive(Clone, Default)]
pub(super) struct Images {
    records: BTreeMap<String, Record>,
}

impl Images {
    /// Notes which there are; every one that is seen for the first time was first seen now. Returns those that may go, in the kubelet's order.
    pub(super) fn detect(
        &mut self,
        snapshot: &Snapshot,
        removed: &BTreeSet<String>,
    ) -> Vec<String> {
        let now = snapshot.taken_at.0;
        if !snapshot.images.is_empty() {
            self.records.retain(|id, _| snapshot.images.iter().any(|image| &image.id == id));
        }
        let is_used = |id: &str| {
            let mut containers = snapshot.containers.iter();
            containers.any(|c| {
                c.image.as_deref() == Some(id) && !removed.contains(&format!("container {}", c.id))
            })
        };
        let mut free = Vec::new();
        for image in &snapshot.images {
            let new = Record { first_seen: now, last_used: None };
            let record = self.records.entry(image.id.clone()).or_insert(new);
            if is_used(&image.id) {
                record.last_used = Some(now);
            } else if !image.pinned {
                free.push((record.last_used, record.first_seen, image.id.clone()));
            }
        }
        free.sort();
        free.into_iter().map(|(_, _, id)| id).collect()
    }

    /// Removes until `wanted` bytes are freed.
    pub(super) fn free(
        &self,
        snapshot: &Snapshot,
        rules: &Rules,
        candidates: &[String],
        wanted: u64,
        removed: &mut BTreeSet<String>,
    ) {
        let now = snapshot.taken_at.0;
        let mut freed = 0;
        for id in candidates {
            let record = self.records[id];
            if record.last_used.is_some_and(|used| used >= now)
                || now - record.first_seen < rules.image_min_age_s * 1_000
            {
                continue;
            }
            removed.insert(format!("image {id}"));
            freed += snapshot
                .images
                .iter()
                .find(|image| &image.id == id)
                .expect("every world has it")
                .size;
            if freed >= wanted {
                break;
            }
        }
    }

    /// The regular collection.
    pub(super) fn collect(
        &self,
        snapshot: &Snapshot,
        rules: &Rules,
        mut candidates: Vec<String>,
        removed: &mut BTreeSet<String>,
    ) {
        let now = snapshot.taken_at.0;
        let max_age = rules.image_max_age_s * 1_000;
        if rules.image_high == 100 && max_age == 0 {
            return;
        }
        let mut by_age = 0;
        let up = now - snapshot.agent_started_at.expect("every world has it").0;
        if max_age > 0 && up > max_age {
            candidates.retain(|id| {
                let is_old = now - self.records[id].last_used.unwrap_or(0) > max_age;
                if is_old {
                    removed.insert(format!("image {id}"));
                    by_age += snapshot
                        .images
                        .iter()
                        .find(|image| &image.id == id)
                        .expect("every world has it")
                        .size;
                }
                !is_old
            });
        }
        let Some(seen) = snapshot.signals.get(&ebb_policy::Signal::ImageFsAvailable) else {
            return;
        };
        let capacity = seen.capacity.expect("every world has it");
        // ebb counts what goes by age as freed; the kubelet reads the filesystem again.
        let available = (seen.available + by_age).min(capacity);
        if 100 - available * 100 / capacity >= rules.image_high {
            let wanted = (capacity * (100 - rules.image_low) / 100).saturating_sub(available);
            self.free(snapshot, rules, &candidates, wanted, removed);
        }
    }
}
