//! `ebb images`: each image with what it takes up, alone and together with others, when it was last in use, and why it stays or when it goes.

use super::configured::ConfigArgs;
use super::node::NodeArgs;
use super::plan::Output;
use super::runtime::{RuntimeArgs, Sight, ago, short, table};
use super::{Failure, event_loop, json, warn};
use anyhow::{Context as _, anyhow};
use ebb_journal::text::bytes;
use ebb_policy::limits::{Limits, RawEviction};
use ebb_policy::plan::{Action, SkipReason, Subject};
use ebb_policy::snapshot::{Image, Observation, Task};
use ebb_policy::{Signal, Snapshot, decide};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write as _;

/// Arguments of `ebb images`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    node: NodeArgs,
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    runtime: RuntimeArgs,
    /// Form of the answer; as JSON a list of images.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// One image as it is shown.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shown<'a> {
    pub(super) id: &'a str,
    pub(super) tags: &'a [String],
    /// As the runtime reports it, bytes.
    pub(super) size: u64,
    /// On disk, shared or not, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) total: Option<u64>,
    /// What would go with it alone, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unique: Option<u64>,
    /// What it shares with others that stay, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    shared: Option<u64>,
    /// Milliseconds since the Unix epoch; absent when never, as far as is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_used: Option<u64>,
    #[serde(flatten)]
    pub(super) fate: Fate,
}

/// Why an image stays, or when it goes.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase", tag = "status")]
pub(super) enum Fate {
    /// It is not removed.
    Skipped {
        /// Why.
        why: SkipReason,
    },
    /// It may be removed when space is needed, after this many others.
    Unused {
        /// Its place in the order, from 1.
        place: usize,
    },
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let sight = event_loop()?.block_on(Sight::take(&args.node, &args.config, &args.runtime))?;
    for note in &sight.notes {
        warn("note", note);
    }
    let shown = shown(&sight)?;
    let answer = match args.output {
        Output::Json => json::pretty(&shown)? + "\n",
        Output::Text => text(&shown, sight.snapshot.taken_at.0),
    };
    std::io::stdout().write_all(answer.as_bytes()).context("cannot write the images")?;
    Ok(())
}

/// Every image and what becomes of it. Decides as if everything had to go: what is kept then is kept always, and the order is that in which the rest would go.
pub(super) fn shown(sight: &Sight) -> Result<Vec<Shown<'_>>, Failure> {
    let raw = RawEviction {
        image_gc_high_threshold_percent: Some(1),
        image_gc_low_threshold_percent: Some(0),
        ..sight.config.eviction.clone()
    };
    let limits = Limits::new(&raw).map_err(|errors| {
        let list: Vec<String> = errors.iter().map(ToString::to_string).collect();
        anyhow!("{}", list.join("\n"))
    })?;
    let full = Observation { available: 0, capacity: Some(u64::MAX), observed_at: None };
    let mut snapshot = sight.snapshot.clone();
    snapshot.tasks = Some(vec![Task::ImageGc]);
    snapshot.signals.insert(Signal::ImageFsAvailable, full);
    let (plan, history) = decide(&snapshot, &limits, &sight.history);
    let mut fates: BTreeMap<String, Fate> = BTreeMap::new();
    for kept in &plan.skipped {
        if let Subject::Image { id } = &kept.subject {
            fates.insert(id.clone(), Fate::Skipped { why: kept.reason.clone() });
        }
    }
    let goes = plan.actions.iter().filter_map(|action| match action {
        Action::RemoveImage(image) => Some(image),
        _ => None,
    });
    for (place, image) in goes.enumerate() {
        fates.insert(image.id.clone(), Fate::Unused { place: place + 1 });
    }
    let holders = holders(&sight.snapshot);
    let totals = sight.state.storage().images().map(|images| &images.totals);
    let mut shown: Vec<Shown<'_>> = sight
        .snapshot
        .images
        .iter()
        .filter_map(|image| {
            let total = totals.and_then(|totals| totals.get(&image.id)).copied();
            let unique = unique(image, &sight.snapshot, &holders);
            let records = history.images.as_ref();
            let known = sight.history.images.is_some();
            Some(Shown {
                id: &image.id,
                tags: &image.tags,
                size: image.size,
                total,
                unique,
                shared: total.zip(unique).map(|(total, unique)| total.saturating_sub(unique)),
                // Without a memory only what is in use now is known.
                last_used: records
                    .and_then(|records| records.get(&image.id)?.last_used)
                    .filter(|used| known || *used == snapshot.taken_at)
                    .map(|used| used.0),
                fate: fates.get(&image.id)?.clone(),
            })
        })
        .collect();
    shown.sort_by_key(|image| match image.fate {
        Fate::Unused { place } => (0, place, image.id),
        Fate::Skipped { .. } => (1, 0, image.id),
    });
    Ok(shown)
}

fn holders(snapshot: &Snapshot) -> BTreeMap<&str, u32> {
    let mut holders = BTreeMap::new();
    for layer in snapshot.images.iter().flat_map(|image| image.layers.iter().flatten()) {
        *holders.entry(&**layer).or_insert(0) += 1;
    }
    holders
}

fn unique(image: &Image, snapshot: &Snapshot, holders: &BTreeMap<&str, u32>) -> Option<u64> {
    let own = image.layers.as_ref()?.iter().filter(|layer| holders.get(&***layer) == Some(&1));
    Some(own.filter_map(|layer| snapshot.layers.get(layer)).sum())
}

const HEAD: [&str; 6] = ["IMAGE", "SIZE", "UNIQUE", "SHARED", "LAST USED", "FATE"];

fn text(images: &[Shown<'_>], now: u64) -> String {
    let or_unknown = |value: Option<u64>| value.map_or_else(|| "?".to_owned(), bytes);
    let row = |image: &Shown<'_>| {
        vec![
            image.tags.first().map_or_else(|| short(image.id).to_owned(), Clone::clone),
            bytes(image.total.unwrap_or(image.size)),
            or_unknown(image.unique),
            or_unknown(image.shared),
            match image.last_used {
                Some(used) if used >= now => "now".to_owned(),
                Some(used) => ago(now - used),
                None => "-".to_owned(),
            },
            match &image.fate {
                Fate::Unused { place } => format!("unused, {place} to go"),
                Fate::Skipped { why } => skipped(why),
            },
        ]
    };
    table(&HEAD, &images.iter().map(row).collect::<Vec<_>>())
}

pub(super) fn skipped(why: &SkipReason) -> String {
    match why {
        SkipReason::InUse => "skipped: in use".into(),
        SkipReason::Pinned => "skipped: pinned".into(),
        SkipReason::TooYoung { wait } => format!("skipped: too young for {} s", wait.0),
        SkipReason::EnoughFreed => "skipped: removing it would free nothing".into(),
        other => format!("skipped: {}", ebb_journal::text::reason(other)),
    }
}
