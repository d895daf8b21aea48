//! Unused images: by age, then by space, the longest unused first.
use super::layers::Shelf;
use crate::{
    Secs, Signal, Time,
    history::{History, ImageRecord},
    limits::{ImageGcPolicy, ImageOrder, Options},
    plan::{
        Action, EventType, NodeEvent, Note, Plan, RemoveImage, RemoveReason, SkipReason, Skipped,
        Subject,
    },
    snapshot::{Image, Snapshot},
};
use alloc::{
    collections::BTreeSet,
    format,
    string::{String, ToString},
    sync::Arc,
    vec::Vec,
};

/// An image with what is remembered of it.
#[derive(Clone, Copy)]
struct Known<'a> {
    image: &'a Image,
    /// Its place among the snapshot's images.
    place: usize,
    record: ImageRecord,
    is_used: bool,
}

/// Images that are neither in use nor pinned, the longest unused first.
pub(crate) struct Candidates<'a> {
    images: Vec<Known<'a>>,
    snapshot: &'a Snapshot,
    /// Once something is to be removed, where the runtime tells of layers.
    shelf: Option<Shelf>,
}

/// How an image is remembered: by id, and by handler where images are kept per handler.
fn record_key(image: &Image) -> String {
    match &image.runtime_handler {
        Some(handler) => format!("{},{handler}", image.id),
        None => image.id.clone(),
    }
}

/// Looks at the images: notes new ones and those in use, forgets those that are gone.
pub(crate) fn remember(
    snapshot: &Snapshot,
    removed_containers: &BTreeSet<&str>,
    before: &History,
    history: &mut History,
) {
    known(snapshot, removed_containers, before, history);
}

/// Does the same, and returns the candidates.
pub(crate) fn detect<'a>(
    snapshot: &'a Snapshot,
    removed_containers: &BTreeSet<&str>,
    before: &History,
    history: &mut History,
    plan: &mut Plan,
) -> Candidates<'a> {
    let mut images = known(snapshot, removed_containers, before, history);
    images.retain(|known| {
        let is_candidate = !known.is_used && !known.image.pinned;
        if !is_candidate {
            let reason = if known.is_used { SkipReason::InUse } else { SkipReason::Pinned };
            keep(known.image, reason, plan);
        }
        is_candidate
    });
    Candidates::oldest_first(images, snapshot)
}

/// All images with what is remembered of them, now.
///
/// An image that is seen for the first time was detected now, those of the very first look as well: right after a start none is older than the minimum age.
fn known<'a>(
    snapshot: &'a Snapshot,
    removed_containers: &BTreeSet<&str>,
    before: &History,
    history: &mut History,
) -> Vec<Known<'a>> {
    let now = snapshot.taken_at;
    let in_use = in_use(snapshot, removed_containers);
    let old = before.images.as_ref();
    let mut records = Vec::with_capacity(snapshot.images.len());
    let mut images = Vec::with_capacity(snapshot.images.len());
    for (place, image) in snapshot.images.iter().enumerate() {
        let key = record_key(image);
        let mut record = old
            .and_then(|old| old.get(&key))
            .copied()
            .unwrap_or(ImageRecord { first_detected: now, last_used: None });
        record.first_detected = image.first_detected.unwrap_or(record.first_detected);
        record.last_used = image.last_used.or(record.last_used);
        let is_used = in_use.contains(image.id.as_str());
        if is_used {
            record.last_used = Some(now);
        }
        records.push((key, record));
        images.push(Known { image, place, record, is_used });
    }
    history.images = Some(Arc::new(records.into_iter().collect()));
    images
}

/// Images of any container that stays, dead ones too, and images mounted as volumes.
fn in_use<'a>(snapshot: &'a Snapshot, removed: &BTreeSet<&str>) -> BTreeSet<&'a str> {
    let containers = snapshot.containers.iter().filter(|c| !removed.contains(c.id.as_str()));
    let volumes = snapshot.workloads.iter().flat_map(|workload| &workload.mounted_images);
    containers.filter_map(|c| c.image.as_deref()).chain(volumes.map(String::as_str)).collect()
}

impl<'a> Candidates<'a> {
    fn oldest_first(mut images: Vec<Known<'a>>, snapshot: &'a Snapshot) -> Candidates<'a> {
        images.sort_by(|a, b| {
            let (x, y) = (&a.record, &b.record);
            x.last_used
                .cmp(&y.last_used)
                .then(x.first_detected.cmp(&y.first_detected))
                .then_with(|| a.image.id.cmp(&b.image.id))
                .then_with(|| a.image.runtime_handler.cmp(&b.image.runtime_handler))
        });
        Candidates { images, snapshot, shelf: None }
    }

    /// Puts all images on the shelf, where the runtime tells of layers.
    fn stock(&mut self) {
        if self.shelf.is_none() && !self.snapshot.layers.is_empty() {
            self.shelf = Some(Shelf::new(self.snapshot));
        }
    }

    /// Leaves all of them alone: there is room enough.
    fn spare(self, plan: &mut Plan) {
        for known in self.images {
            keep(known.image, SkipReason::EnoughFreed, plan);
        }
    }

    /// Removes images until `wanted` bytes are freed; the longest unused first, and then at least one, as the kubelet looks at what is freed after each. Returns the bytes that go: as the runtime reports sizes, or by layers where those decide.
    pub(crate) fn free(
        mut self,
        wanted: u64,
        policy: ImageGcPolicy,
        order: ImageOrder,
        reason: RemoveReason,
        plan: &mut Plan,
    ) -> u64 {
        self.stock();
        let now = self.snapshot.taken_at;
        let mut old_enough = Vec::with_capacity(self.images.len());
        for known in core::mem::take(&mut self.images) {
            let age = now.since(known.record.first_detected);
            let refusal = if known.record.last_used.is_some_and(|used| used >= now) {
                Some(SkipReason::UsedSince)
            } else if age < policy.min_age {
                Some(SkipReason::TooYoung { wait: Secs((policy.min_age.0 - age.0).div_ceil(1000)) })
            } else {
                None
            };
            match refusal {
                Some(reason) => keep(known.image, reason, plan),
                None => old_enough.push(known),
            }
        }
        match (&self.shelf, order) {
            (Some(shelf), ImageOrder::LeastToPullAgain) => {
                if shelf.unknown() > 0 {
                    plan.notes.push(Note::LayersUnknown { images: shelf.unknown() });
                }
                let places: Vec<usize> = old_enough.iter().map(|known| known.place).collect();
                let goes = shelf.choose(&places, wanted);
                let mut freed: u64 = 0;
                for (known, goes) in old_enough.into_iter().zip(goes) {
                    if goes {
                        freed = freed.saturating_add(self.remove(known, reason, "space", plan));
                    } else {
                        keep(known.image, SkipReason::EnoughFreed, plan);
                    }
                }
                freed
            }
            (shelf, _) => {
                if shelf.is_none() && order == ImageOrder::LeastToPullAgain && wanted > 0 {
                    plan.notes.push(Note::LayersUnknown { images: old_enough.len() as u64 });
                }
                let mut freed: u64 = 0;
                for (place, known) in old_enough.into_iter().enumerate() {
                    if place > 0 && freed >= wanted {
                        keep(known.image, SkipReason::EnoughFreed, plan);
                    } else {
                        freed = freed.saturating_add(known.image.size);
                        self.remove(known, reason, "space", plan);
                    }
                }
                freed
            }
        }
    }

    /// Plans a removal; returns what goes with it, by layers where they are known.
    fn remove(
        &mut self,
        known: Known<'_>,
        reason: RemoveReason,
        metric: &str,
        plan: &mut Plan,
    ) -> u64 {
        let Known { image, place, record, .. } = known;
        let frees = self.shelf.as_mut().map(|shelf| shelf.take(place));
        let frees = frees.map(|bytes| u64::try_from(bytes).unwrap_or(u64::MAX));
        plan.actions.push(Action::RemoveImage(RemoveImage {
            id: image.id.clone(),
            runtime_handler: image.runtime_handler.clone(),
            size: image.size,
            frees,
            last_used: record.last_used,
            reason,
            metric: metric.to_string(),
        }));
        frees.unwrap_or(image.size)
    }

    /// Removes images unused for longer than the maximum age, whatever their own age. Returns the bytes that go.
    fn free_old(
        &mut self,
        policy: ImageGcPolicy,
        order: ImageOrder,
        never_used_is_old: bool,
        plan: &mut Plan,
    ) -> u64 {
        let Some(max_age) = policy.max_age else { return 0 };
        let now = self.snapshot.taken_at;
        let is_old = |record: &ImageRecord| {
            let unused_since = match record.last_used {
                Some(used) => used,
                None if never_used_is_old => Time(0),
                None => record.first_detected,
            };
            now.since(unused_since) > max_age
        };
        let (old, rest): (Vec<_>, Vec<_>) =
            core::mem::take(&mut self.images).into_iter().partition(|known| is_old(&known.record));
        self.images = rest;
        if !old.is_empty() {
            self.stock();
        }
        old.into_iter().fold(0, |freed: u64, known| {
            let size = known.image.size;
            let frees = self.remove(known, RemoveReason::Age, "age", plan);
            freed.saturating_add(match order {
                ImageOrder::LeastRecentlyUsed => size,
                ImageOrder::LeastToPullAgain => frees,
            })
        })
    }
}

fn keep(image: &Image, reason: SkipReason, plan: &mut Plan) {
    plan.skipped.push(Skipped { subject: Subject::Image { id: image.id.clone() }, reason });
}

/// How full the image filesystem is.
#[derive(Clone, Copy)]
struct Fullness {
    available: u64,
    capacity: u64,
    percent: u64,
}

/// The image filesystem's figures; impossible ones are put right or, as an error, reported. Unknown ones are an error without a message.
fn fullness(snapshot: &Snapshot, plan: &mut Plan) -> Result<Fullness, Option<&'static str>> {
    let seen = snapshot.signals.get(&Signal::ImageFsAvailable);
    let (available, capacity) = match (seen, snapshot.node.image_fs) {
        (Some(seen), _) => (Some(seen.available), seen.capacity),
        (None, Some(fs)) => (fs.available, fs.capacity),
        (None, None) => (None, None),
    };
    let (Some(available), Some(capacity)) = (available, capacity) else { return Err(None) };
    if capacity == 0 {
        let message = "invalid capacity 0 on image filesystem";
        plan.events.push(warning("InvalidDiskCapacity", message));
        return Err(Some(message));
    }
    if available > capacity {
        let what = format!("available {available} is larger than capacity {capacity}");
        plan.notes.push(Note::ImageFsFigures { what });
    }
    let available = available.min(capacity);
    let free = u128::from(available) * 100 / u128::from(capacity);
    let percent = 100 - u64::try_from(free).unwrap_or(100);
    Ok(Fullness { available, capacity, percent })
}

/// What is missing for the filesystem to be no fuller than the low threshold.
fn to_low_threshold(fullness: Fullness, policy: ImageGcPolicy) -> u64 {
    let goal = u128::from(fullness.capacity) * u128::from(100 - policy.low_percent.min(100)) / 100;
    u64::try_from(goal).unwrap_or(u64::MAX).saturating_sub(fullness.available)
}

/// Bytes to free when the node is short of disk but images need only go down to the low threshold, or as far as the eviction threshold asks (`missing`) if that is further; all if neither is known.
pub(crate) fn wanted_under_pressure(
    snapshot: &Snapshot,
    policy: ImageGcPolicy,
    missing: Option<u64>,
    plan: &mut Plan,
) -> u64 {
    let to_low = fullness(snapshot, plan).ok().map(|fullness| to_low_threshold(fullness, policy));
    to_low.max(missing).filter(|wanted| *wanted > 0).unwrap_or(u64::MAX)
}

/// The regular collection: by age if that applies, then by space if the filesystem is too full.
pub(crate) fn collect(
    snapshot: &Snapshot,
    policy: ImageGcPolicy,
    options: &Options,
    removed_containers: &BTreeSet<&str>,
    before: &History,
    history: &mut History,
    plan: &mut Plan,
) {
    let (order, never_used_is_old) = (options.image_order, options.quirks.never_used_image_is_old);
    let mut candidates = detect(snapshot, removed_containers, before, history, plan);
    if policy.high_percent == 100 && policy.max_age.is_none() {
        candidates.spare(plan);
        return;
    }
    let up_for = snapshot.agent_started_at.map(|start| snapshot.taken_at.since(start));
    let age_applies = matches!((up_for, policy.max_age), (Some(up), Some(most)) if up > most);
    let by_age =
        if age_applies { candidates.free_old(policy, order, never_used_is_old, plan) } else { 0 };
    let mut fullness = match fullness(snapshot, plan) {
        Ok(fullness) => fullness,
        Err(problem) => {
            if let Some(message) = problem {
                failed(message, history, plan);
            }
            return;
        }
    };
    // What goes by age is taken for free already, so that not more than needed goes by space.
    fullness.available = fullness.available.saturating_add(by_age).min(fullness.capacity);
    let free = u128::from(fullness.available) * 100 / u128::from(fullness.capacity);
    fullness.percent = 100 - u64::try_from(free).unwrap_or(100);
    if fullness.percent < u64::from(policy.high_percent) {
        history.image_gc_failures = 0;
        candidates.spare(plan);
        return;
    }
    let wanted = to_low_threshold(fullness, policy);
    let freed = candidates.free(wanted, policy, order, RemoveReason::Space, plan);
    if freed >= wanted {
        history.image_gc_failures = 0;
        return;
    }
    let message = format!(
        "Insufficient free disk space on the node's image filesystem ({}% of {} used). Failed to free sufficient space by deleting unused images (freed {freed} bytes). Investigate disk usage, as it could be used by active images, logs, volumes, or other data.",
        fullness.percent,
        size(fullness.capacity),
    );
    plan.events.push(warning("FreeDiskSpaceFailed", &message));
    failed(&message, history, plan);
}

/// Counts a failure. The first in a row may only mean that figures were not ready yet, so it is no event.
fn failed(message: &str, history: &mut History, plan: &mut Plan) {
    if history.image_gc_failures > 0 {
        plan.events.push(warning("ImageGCFailed", message));
    }
    history.image_gc_failures = history.image_gc_failures.saturating_add(1);
}

fn warning(reason: &str, message: &str) -> NodeEvent {
    NodeEvent {
        event_type: EventType::Warning,
        reason: reason.to_string(),
        message: message.to_string(),
    }
}

/// A size for people as the kubelet writes it: one decimal and a binary unit, TiB for everything above.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}
