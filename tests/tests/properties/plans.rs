//! Properties of plans.
use crate::{
    config::{limits, raw, signals},
    node::{figure, observation, snapshot},
};
use ebb_policy::limits::{
    AfterEviction, ImageOrder, ImageReach, Limits, Options, RawEviction, Victims,
};
use ebb_policy::plan::{Action, Evict, EvictionCause, Note, Plan, Skipped, Strength, Subject};
use ebb_policy::snapshot::{FsLayout, Observation, Task, Termination, WorkloadKey};
use ebb_policy::{History, Signal, Snapshot, Time, decide, last_resort, rank};
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::BTreeSet;

fn shuffled<T>(list: &mut [T], seed: usize) {
    if !list.is_empty() {
        let by = seed % list.len();
        list.rotate_left(by);
        if seed.is_multiple_of(2) {
            list.reverse();
        }
    }
}

fn shuffle(snapshot: &Snapshot, seed: usize) -> Snapshot {
    let mut other = snapshot.clone();
    shuffled(&mut other.workloads, seed);
    shuffled(&mut other.containers, seed / 2);
    shuffled(&mut other.sandboxes, seed / 3);
    shuffled(&mut other.images, seed / 5);
    shuffled(&mut other.log_dirs, seed / 7);
    shuffled(&mut other.log_links, seed / 11);
    shuffled(&mut other.exited, seed / 13);
    for workload in &mut other.workloads {
        shuffled(&mut workload.containers, seed / 17);
        if let Some(stats) = &mut workload.stats {
            shuffled(&mut stats.containers, seed / 19);
        }
    }
    other
}

/// What is ended or removed, each with its kind.
fn taken(plan: &Plan) -> Vec<Subject> {
    let last = |action: &&Action| {
        !matches!(
            action,
            Action::Warn(_)
                | Action::ReclaimMemory(_)
                | Action::Throttle(_)
                | Action::Freeze(_)
                | Action::Release(_)
        )
    };
    plan.actions.iter().filter(last).map(Subject::of).collect()
}

fn ended(plan: &Plan) -> BTreeSet<WorkloadKey> {
    let evicted = plan.actions.iter().filter_map(|action| match action {
        Action::Evict(evict) => Some(evict.workload.clone()),
        _ => None,
    });
    evicted.collect()
}

/// Two passes, the second on another snapshot a second later.
fn two_passes(first: &Snapshot, second: &Snapshot, limits: &Limits) -> [(Plan, History); 2] {
    let one = decide(first, limits, &History::default());
    let later = Snapshot { taken_at: Time(first.taken_at.0 + 1000), ..second.clone() };
    let two = decide(&later, limits, &one.1);
    [one, two]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(512), ..ProptestConfig::default() })]

    #[test]
    fn the_order_of_the_lists_never_changes_a_plan(first in snapshot(), second in snapshot(), limits in limits(), seed in 0..5000_usize) {
        let plain = two_passes(&first, &second, &limits);
        let shuffled = two_passes(&shuffle(&first, seed), &shuffle(&second, seed), &limits);
        prop_assert_eq!(plain, shuffled);
    }

    #[test]
    fn nothing_protected_or_critical_is_ever_ended(first in snapshot(), second in snapshot(), limits in limits()) {
        for ((plan, _), snapshot) in two_passes(&first, &second, &limits).iter().zip([&first, &second]) {
            let ended = ended(plan);
            for workload in &snapshot.workloads {
                let is_counted = workload.termination.is_some_and(|d| !d.restarted && d.kill_at.is_none() && (limits.options().count_terminating || d.dry_run));
                let untouchable = workload.is_critical() || workload.protected.is_some() || workload.is_finished() || is_counted;
                prop_assert!(!(untouchable && ended.contains(&workload.key)), "{workload:?}");
            }
        }
    }

    /// As if nobody had been chosen: of a decision that was put off, the next neither waits for the victims nor counts them.
    #[test]
    fn who_is_put_off_is_neither_waited_for_nor_counted(first in snapshot(), signal in select(signals()), raw in raw(), earlier in 0..3_u64) {
        let of = |text: &str| Some([(signal.name().to_owned(), text.to_owned())].into());
        let options = raw.options.clone().unwrap_or_else(Options::kubelet);
        let limits = Limits::new(&RawEviction {
            eviction_hard: Some([].into()),
            eviction_soft: of("5Gi"),
            eviction_soft_grace_period: of("90s"),
            eviction_minimum_reclaim: None,
            also_below: None,
            options: Some(Options { after_eviction: AfterEviction::Wait, ..options }),
            ..raw
        });
        let limits = limits.unwrap();
        // A day later every grace has passed; what does not say when it was observed is never stale.
        let mut met = Snapshot { taken_at: Time(first.taken_at.0 + 86_400_000), ..first.clone() };
        met.signals.values_mut().for_each(|seen| seen.observed_at = None);
        let (_, since) = decide(&Snapshot { taken_at: first.taken_at, ..met.clone() }, &limits, &History::default());
        let minute = (0..earlier).map(|n| Time(met.taken_at.0 - 30_000 + n)).collect();
        let before = History { evictions: minute, waiting: None, waiting_for_disk: None, ..since };
        let (plan, mut after) = decide(&met, &limits, &before);
        let evictions: Vec<&Evict> = plan.evictions().collect();
        if evictions.iter().any(|evict| evict.strength != Some(Strength::Soft)) {
            return Ok(());
        }
        let who: Vec<WorkloadKey> = evictions.iter().map(|evict| evict.workload.clone()).collect();
        let ordered = after.clone();
        after.put_off(&who, plan.decided_at, &before);
        // All else is remembered as it was found: above all since when thresholds are met.
        let History { evictions, waiting, waiting_for_disk, .. } = ordered.clone();
        prop_assert_eq!(&History { evictions, waiting, waiting_for_disk, ..after.clone() }, &ordered);
        prop_assert_eq!((&after.waiting, &after.waiting_for_disk), (&None, &None));
        if limits.options().max_evictions_per_minute > 0 && !who.is_empty() {
            prop_assert_eq!(&after.evictions, &before.evictions);
        }
        let later = Snapshot { taken_at: Time(met.taken_at.0 + 1000), ..met };
        let (next, _) = decide(&later, &limits, &after);
        let waits = next.notes.iter().any(|note| matches!(note, Note::WaitingForVictims { .. }));
        prop_assert!(!waits, "{:?}", next.notes);
    }

    #[test]
    fn nothing_kept_is_acted_on_and_nothing_is_acted_on_twice(first in snapshot(), second in snapshot(), limits in limits()) {
        for (plan, _) in two_passes(&first, &second, &limits) {
            let taken = taken(&plan);
            let unique: BTreeSet<&Subject> = taken.iter().collect();
            prop_assert_eq!(unique.len(), taken.len(), "{:?}", taken);
            for Skipped { subject, reason } in &plan.skipped {
                prop_assert!(!unique.contains(subject), "{subject:?} is kept ({reason:?}) and acted on");
            }
        }
    }

    #[test]
    fn images_in_use_or_pinned_and_running_containers_stay(first in snapshot(), second in snapshot(), limits in limits()) {
        for ((plan, _), snapshot) in two_passes(&first, &second, &limits).iter().zip([&first, &second]) {
            let taken = taken(plan);
            for container in &snapshot.containers {
                let subject = Subject::Container { id: container.id.clone() };
                let goes = taken.contains(&subject);
                prop_assert!(!(goes && container.state == ebb_policy::snapshot::ContainerState::Running));
                let image = container.image.as_ref().map(|id| Subject::Image { id: id.clone() });
                prop_assert!(goes || image.is_none_or(|image| !taken.contains(&image)), "{container:?}");
            }
            for image in snapshot.images.iter().filter(|image| image.pinned) {
                let subject = Subject::Image { id: image.id.clone() };
                prop_assert!(!taken.contains(&subject));
            }
        }
    }

    #[test]
    fn less_pressure_on_a_signal_never_adds_an_action(
        node in snapshot(), signal in select(signals()), seen in observation(), more in figure(), raw in raw(), layout in select(vec![FsLayout::Single, FsLayout::DedicatedImageFs, FsLayout::SplitImageFs]),
    ) {
        // One signal and one threshold: with several, less of one shortage makes room for handling another.
        let hard = [(signal.name().to_owned(), "5Gi".to_owned())].into();
        // Of what frees enough, the least to pull again is another choice for another need: the lesser need's is no part of the greater's.
        let options = raw.options.clone().unwrap_or_else(Options::kubelet);
        let image_order = match options.images_under_pressure {
            ImageReach::All => options.image_order,
            ImageReach::ToLowThreshold => ImageOrder::LeastRecentlyUsed,
        };
        // Where all candidates together cannot free the need nobody is evicted for it, and for a lesser one somebody is.
        let options = Some(Options { image_order, min_freed_of_need: 0, ..options });
        let raw = RawEviction { options, eviction_hard: Some(hard), eviction_soft: None, eviction_soft_grace_period: None, enforce_node_allocatable: Some(Vec::new()), local_storage_capacity_isolation: Some(false), ..raw };
        let limits = Limits::new(&raw).unwrap();
        let with = |available| Snapshot {
            signals: [(signal, Observation { available, ..seen })].into(),
            node: Default::default(),
            layout: Some(layout),
            tasks: Some(vec![Task::Eviction]),
            ..node.clone()
        };
        let (tight, _) = decide(&with(seen.available), &limits, &History::default());
        let (loose, _) = decide(&with(seen.available.saturating_add(more)), &limits, &History::default());
        let tight: BTreeSet<Subject> = taken(&tight).into_iter().collect();
        for subject in taken(&loose) {
            prop_assert!(tight.contains(&subject), "{subject:?}");
        }
    }

    #[test]
    fn a_plan_never_ends_more_than_one_victim_past_what_is_needed(first in snapshot(), raw in raw()) {
        let options = Options { victims: Victims::Enough, max_victims: 16, ..raw.options.clone().unwrap_or_else(Options::kubelet) };
        let limits = Limits::new(&RawEviction { options: Some(options), ..raw }).unwrap();
        let (plan, _) = decide(&first, &limits, &History::default());
        let frees: Vec<Option<u64>> = plan.actions.iter().filter_map(|action| match action {
            Action::Evict(evict) if evict.cause == EvictionCause::NodePressure => Some(evict.expected_free),
            _ => None,
        }).collect();
        if let (Some(handled), Some((_, before))) = (&plan.handled, frees.split_last())
            && handled.forecast.is_none()
            // With no time to see what one eviction does, all who fill the filesystem go.
            && !plan.notes.iter().any(|note| matches!(note, Note::FullSoon { .. }))
        {
            let freed = before.iter().flatten().fold(handled.terminating, |sum, free| sum.saturating_add(*free));
            prop_assert!(before.is_empty() || freed < handled.need.max(1), "{frees:?} for {handled:?}");
            prop_assert!(before.iter().all(Option::is_some), "someone of unknown size was followed by another");
        }
    }

    #[test]
    fn nobody_who_must_never_be_ended_is_a_last_resort_and_everybody_else_is(node in snapshot(), raw in raw()) {
        let options = Options { min_freed_of_threshold: 0, ..raw.options.clone().unwrap_or_else(Options::kubelet) };
        let limits = Limits::new(&RawEviction { options: Some(options), ..raw }).unwrap();
        let history = History::default();
        let resort = last_resort(&node, &limits, &history, Signal::MemoryAvailable);
        for workload in &node.workloads {
            let is_spared = workload.is_critical() || workload.protected.is_some();
            let may_go = !workload.is_finished() && !is_spared;
            prop_assert_eq!(resort.contains(&workload.key), may_go, "{:?}", workload.key);
        }
        let ranked = rank(&node, &limits, &history, Signal::MemoryAvailable);
        prop_assert!(resort.is_sorted_by_key(|key| ranked.iter().position(|r| &r.workload == key)));
    }

    #[test]
    fn nobody_is_evicted_who_is_known_to_free_less_than_the_least_part_of_the_threshold(node in snapshot(), share in 0..101_u32, raw in raw()) {
        let options = Options { min_freed_of_threshold: share, ..raw.options.clone().unwrap_or_else(Options::kubelet) };
        let limits = Limits::new(&RawEviction { options: Some(options), ..raw }).unwrap();
        let (plan, _) = decide(&node, &limits, &History::default());
        // Who was given time to end and is killed before it is over was worth it then.
        let has_time = |ends: Termination| !ends.dry_run && ends.kill_at.is_some_and(|at| at > node.taken_at);
        let is_hastened = |evict: &Evict| node.workloads.iter().any(|w| w.key == evict.workload && w.termination.is_some_and(has_time));
        let under_pressure = plan.evictions().filter(|evict| evict.cause == EvictionCause::NodePressure);
        for evict in under_pressure.filter(|evict| !is_hastened(evict)) {
            let least = u128::from(evict.threshold_value.unwrap()) * u128::from(share) / 100;
            prop_assert!(evict.expected_free.is_none_or(|free| u128::from(free) >= least), "{evict:?}");
        }
    }

    #[test]
    fn a_decision_on_the_same_node_again_remembers_no_more(node in snapshot(), limits in limits()) {
        let mut history = History::default();
        let sizes: Vec<usize> = (0..24).map(|_| {
            history = decide(&node, &limits, &history).1;
            serde_json::to_string(&history).unwrap().len()
        }).collect();
        // Derived thresholds take part from the second pass on, reclaim and eviction alternate, and up to three evictions are counted.
        prop_assert!(sizes[12..].iter().max() <= sizes[..12].iter().max(), "{sizes:?}");
    }

    #[test]
    fn history_and_plan_read_back_from_json_as_they_were(first in snapshot(), second in snapshot(), limits in limits()) {
        for (plan, history) in two_passes(&first, &second, &limits) {
            let text = serde_json::to_string(&(&plan, &history)).unwrap();
            let back: (Plan, History) = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(back, (plan, history));
        }
        let text = serde_json::to_string(&first).unwrap();
        prop_assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap(), first);
    }
}
