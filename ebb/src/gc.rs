//! `ebb gc`: one collection now, by the same policy and the same checks as `ebb run`; a dry run unless told otherwise.

use super::configured::ConfigArgs;
use super::node::NodeArgs;
use super::plan::Output;
use super::runtime::{RuntimeArgs, Sight};
use super::{Failure, event_loop, json, takes_escapes};
use anyhow::{Context as _, anyhow};
use ebb_agent::act::runtime::{Outcome, RuntimeHand};
use ebb_agent::sense::disk::DiskReading;
use ebb_agent::store::ImageStore;
use ebb_journal::Work;
use ebb_journal::text::{bytes, piece, plain};
use ebb_policy::limits::{Limits, RawEviction};
use ebb_policy::plan::{Action, Plan, SkipReason, Skipped};
use ebb_policy::snapshot::Task;
use ebb_policy::{Signal, decide};
use serde::Serialize;
use std::io::Write as _;

/// Arguments of `ebb gc`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What to collect.
    #[arg(value_enum)]
    what: What,
    #[command(flatten)]
    node: NodeArgs,
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    runtime: RuntimeArgs,
    /// Remove. Without this, only say what would be removed.
    #[arg(long, conflicts_with = "dry_run")]
    enforce: bool,
    /// Only say what would be removed; this is what happens without any flag, too.
    #[arg(long)]
    dry_run: bool,
    /// Images only: collect until the filesystem is this full, percent, whatever the configured thresholds.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=99))]
    down_to: Option<u8>,
    /// Form of the answer; as JSON one object with what was done and what was skipped.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// What to collect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// Dead containers, and sandboxes in which nothing runs.
    Containers,
    /// Unused images.
    Images,
    /// Log directories of pods that are gone, and links to logs that are gone.
    Logs,
}

impl What {
    /// Whether an action of the collector is of this kind.
    fn is_of(self, work: &Work) -> bool {
        match work {
            Work::RemoveContainer { .. } | Work::RemoveSandbox { .. } => self == Self::Containers,
            Work::RemoveImage { .. } => self == Self::Images,
            Work::RemoveLogDir { .. } | Work::RemoveLogLink { .. } => self == Self::Logs,
        }
    }
}

/// The answer as JSON.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    enforced: bool,
    done: Vec<Work>,
    skipped: Vec<SkippedWork>,
    /// Bytes that the removed images should free.
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<u64>,
    /// Bytes by which what is available on the images' filesystem has grown.
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<i64>,
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct SkippedWork {
    work: Work,
    why: String,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if args.down_to.is_some() && args.what != What::Images {
        return Err(Failure::Input(anyhow!("--down-to is for images")));
    }
    let answer = event_loop()?.block_on(collect(args))?;
    let text = match args.output {
        Output::Json => json::pretty(&answer)? + "\n",
        Output::Text => text(&answer),
    };
    std::io::stdout().write_all(text.as_bytes()).context("cannot write the answer")?;
    if answer.skipped.is_empty() {
        return Ok(());
    }
    Err(Failure::Failed(anyhow!("{} not removed", answer.skipped.len())))
}

async fn collect(args: &Args) -> Result<Answer, Failure> {
    let enforce = args.enforce && !args.dry_run;
    let mut sight = Sight::take(&args.node, &args.config, &args.runtime).await?;
    let limits = limits(args, &sight)?;
    let task = if args.what == What::Images { Task::ImageGc } else { Task::ContainerGc };
    sight.snapshot.tasks = Some(vec![task]);
    let (plan, history) = decide(&sight.snapshot, &limits, &sight.history);
    let mut notes = std::mem::take(&mut sight.notes);
    notes.extend(ebb_journal::notes(&plan).iter().map(ToString::to_string));
    notes.extend(plan.events.iter().map(|event| event.message.clone()));
    let list: Vec<Work> =
        plan.actions.iter().filter_map(Work::of).filter(|work| args.what.is_of(work)).collect();
    if list.is_empty() {
        notes.push(nothing(args.what, &sight, &limits, &plan));
    }
    let hand = if enforce {
        RuntimeHand::Enforce(sight.runtime.clone())
    } else {
        RuntimeHand::DryRun(sight.runtime.clone())
    };
    let before = sight.state.disk().available(Signal::ImageFsAvailable);
    let outcomes = perform(&hand, list).await;
    let measured = if enforce { measured(&mut sight, before) } else { None };
    if enforce
        && let Some(images) = &history.images
        && let Err(error) = ImageStore::open(&sight.store).and_then(|store| store.save(images))
    {
        notes.push(format!("what was learnt of images is not remembered: {error}"));
    }
    let expected = expected(&plan, &outcomes).filter(|_| args.what == What::Images);
    let (done, undone): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(|o| o.result.is_ok());
    let skipped = undone.into_iter().filter_map(|outcome| {
        let why = outcome.result.err()?.to_string();
        Some(SkippedWork { work: outcome.work, why })
    });
    Ok(Answer {
        enforced: enforce,
        done: done.into_iter().map(|outcome| outcome.work).collect(),
        skipped: skipped.collect(),
        measured: measured.filter(|_| expected.is_some()),
        expected,
        notes,
    })
}

/// The configured limits, or those that collect down to what was asked for.
fn limits(args: &Args, sight: &Sight) -> Result<Limits, Failure> {
    let Some(percent) = args.down_to else { return Ok(sight.config.limits.clone()) };
    let raw = RawEviction {
        image_gc_high_threshold_percent: Some(i64::from(percent) + 1),
        image_gc_low_threshold_percent: Some(i64::from(percent)),
        ..sight.config.eviction.clone()
    };
    Limits::new(&raw).map_err(|errors| {
        let list: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Failure::Input(anyhow!("{}", list.join("\n")))
    })
}

/// Does one after the other; on a terminal the present one is shown.
async fn perform(hand: &RuntimeHand, list: Vec<Work>) -> Vec<Outcome> {
    let shows = takes_escapes(&std::io::stderr());
    let total = list.len();
    let mut outcomes = Vec::with_capacity(total);
    for (done, work) in list.into_iter().enumerate() {
        if shows {
            // Back to the line's beginning, and what is left of the last one wiped out.
            eprint!("\r\x1b[K[{}/{total}] {}", done + 1, plain(&piece(&work)));
        }
        outcomes.push(hand.perform(work).await);
    }
    if shows && total > 0 {
        eprint!("\r\x1b[K");
    }
    outcomes
}

fn measured(sight: &mut Sight, before: Option<u64>) -> Option<i64> {
    let places = sight.state.disk().places()?.clone();
    sight.state.disk_mut().observe(DiskReading::of(&places));
    let now = sight.state.disk().available(Signal::ImageFsAvailable)?;
    Some(i64::try_from(now).ok()? - i64::try_from(before?).ok()?)
}

/// What the images that went should have freed.
fn expected(plan: &Plan, outcomes: &[Outcome]) -> Option<u64> {
    plan.actions.iter().any(|action| matches!(action, Action::RemoveImage(_))).then(|| {
        let done = outcomes.iter().filter(|outcome| outcome.result.is_ok());
        done.map(|outcome| match outcome.work {
            Work::RemoveImage { expected, .. } => expected,
            _ => 0,
        })
        .sum()
    })
}

fn nothing(what: What, sight: &Sight, limits: &Limits, plan: &Plan) -> String {
    let is_young = |kept: &&Skipped| matches!(kept.reason, SkipReason::TooYoung { .. });
    let young = plan.skipped.iter().filter(is_young).count();
    match (what, sight.image_fs_full()) {
        (What::Images, _) if young > 0 => format!(
            "no image to remove: {young} were first seen less than imageMinimumGCAge ({}) ago; `ebb run`, and this command with --enforce, remember when that was",
            limits.image_gc().min_age
        ),
        (What::Images, Some(full)) => format!(
            "no image to remove: their filesystem is {full} % full, collection starts at {} %",
            limits.image_gc().high_percent
        ),
        (What::Images, None) => "no image to remove: how full their filesystem is is not known".into(),
        (What::Containers, _) => "no container to remove".into(),
        (What::Logs, _) if !sight.snapshot.sources_ready => {
            "no log to remove; directories only go with --pod-manifests, which tells which pods there are".into()
        }
        (What::Logs, _) => "no log to remove".into(),
    }
}

fn text(answer: &Answer) -> String {
    let verb = if answer.enforced { "removed" } else { "would remove" };
    let mut text: String =
        answer.done.iter().map(|work| format!("{verb} {}\n", plain(&piece(work)))).collect();
    for left in &answer.skipped {
        let line = format!("not removed: {}: {}", piece(&left.work), left.why);
        text.push_str(&(plain(&line).into_owned() + "\n"));
    }
    if let Some(expected) = answer.expected {
        let measured = answer.measured.map(|measured| {
            let sign = if measured < 0 { "-" } else { "" };
            format!(", measured {sign}{}", bytes(measured.unsigned_abs()))
        });
        text.push_str(&format!(
            "expected to free {}{}\n",
            bytes(expected),
            measured.unwrap_or_default()
        ));
    }
    for note in &answer.notes {
        text.push_str(&format!("note: {}\n", plain(note)));
    }
    text
}
