//! The decision: eviction first, then beside it the collectors whose time has come, admissions, preemption and reports of OOM kills.
//! The eviction part is in [`crate::pass`].
use crate::{
    History, Limits, Millis, Plan, Signal, Snapshot, Time, admit,
    extensions::memory_pressure,
    gc,
    history::Waiting,
    limits::{AfterEviction, Options},
    pass::{Pass, follows_growth},
    plan::{Note, SubjectRef, ThresholdState},
    preempt,
    snapshot::{SCHEMA_VERSION, Task, Workload, WorkloadKey, WorkloadKind},
};
use alloc::{collections::BTreeSet, vec::Vec};

/// Decides what to do about a snapshot, and what to remember for the next.
pub fn decide(snapshot: &Snapshot, limits: &Limits, before: &History) -> (Plan, History) {
    let mut history = before.without_lists();
    history.schema_version = SCHEMA_VERSION;
    let mut plan = empty(snapshot.taken_at);
    let mut all: Vec<&Workload> = snapshot.workloads.iter().collect();
    if follows_growth(limits.options()) {
        // Growth is kept in this order, so that it is found without searching.
        sort(&mut all);
    }
    let active: Vec<&Workload> =
        all.iter().copied().filter(|workload| !workload.is_finished()).collect();
    let tasks = due(snapshot, limits.options(), &history);
    let mut reclaimed = false;
    if tasks.contains(&Task::Eviction) {
        let pass = Pass {
            snapshot,
            limits,
            all: &all,
            active: &active,
            whose: Vec::new(),
            before,
            history: &mut history,
            plan: &mut plan,
        };
        reclaimed = pass.run();
        memory_pressure::enforce(snapshot, limits, &active, &mut history, &mut plan);
        wait_for_victims(limits.options(), &mut history, &plan);
    } else {
        history.growth.clone_from(&before.growth);
    }
    collect(snapshot, limits, &tasks, reclaimed, before, &mut history, &mut plan);
    admit::answer(snapshot, &history, &mut plan);
    preempt::preempt(snapshot, &active, limits.options(), &mut plan);
    gc::death::collect(snapshot, limits.container_gc(), &mut plan);
    admit::report_oom_kills(snapshot, &mut plan);
    plan.skipped.sort();
    plan.skipped.dedup();
    settle(&mut plan);
    plan.notes.sort();
    plan.notes.dedup();
    plan.wake_in = wake_in(snapshot, limits, &history, &plan);
    (plan, history)
}

/// Puts workloads in the order of who they are.
///
/// Names are far apart in memory and begin alike: what tells most of them apart, the bytes after what all begin with, is gathered once.
fn sort(workloads: &mut [&Workload]) {
    let Some(first) = workloads.first().map(|workload| workload.key.name.as_bytes()) else {
        return;
    };
    let alike = workloads.iter().fold(first.len(), |alike, workload| {
        let pairs = first[..alike].iter().zip(workload.key.name.as_bytes());
        pairs.take_while(|(a, b)| a == b).count()
    });
    let start = |name: &str| {
        let rest = &name.as_bytes()[alike..];
        let mut start = [0; 16];
        let length = rest.len().min(start.len());
        start[..length].copy_from_slice(&rest[..length]);
        u128::from_be_bytes(start)
    };
    let mut begun: Vec<(u128, &Workload)> =
        workloads.iter().map(|workload| (start(&workload.key.name), *workload)).collect();
    begun.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.key.cmp(&b.1.key)));
    for (place, (_, workload)) in workloads.iter_mut().zip(begun) {
        *place = workload;
    }
}

/// Remembers who was told to end, so that the next passes wait for it.
fn wait_for_victims(options: &Options, history: &mut History, plan: &Plan) {
    if options.after_eviction == AfterEviction::Continue {
        (history.waiting, history.waiting_for_disk) = (None, None);
        return;
    }
    let mut workloads: Vec<WorkloadKey> =
        plan.evictions().map(|evict| evict.workload.clone()).collect();
    if !workloads.is_empty() {
        workloads.sort();
        let is_for_disk = plan.evictions().any(|evict| evict.signal.is_some_and(Signal::is_disk));
        let slot = if is_for_disk { &mut history.waiting_for_disk } else { &mut history.waiting };
        *slot = Some(Waiting::begin(workloads, plan.decided_at));
    }
}

/// What one part of a pass skips, another may evict or remove: a pod that was told to end is skipped for its disk, and killed before its
/// grace is over once memory is short. What is taken was not skipped. What was skipped is in order.
fn settle(plan: &mut Plan) {
    if plan.skipped.is_empty() {
        return;
    }
    let mut taken: Vec<SubjectRef<'_>> =
        plan.actions.iter().filter_map(SubjectRef::taken).collect();
    taken.sort_unstable();
    // Both are in the same order: they are gone through side by side.
    let mut taken = taken.into_iter().peekable();
    plan.skipped.retain(|skipped| {
        let skipped = SubjectRef::of(&skipped.subject);
        while taken.next_if(|taken| *taken < skipped).is_some() {}
        taken.peek() != Some(&skipped)
    });
}

/// A plan that does nothing yet.
fn empty(decided_at: Time) -> Plan {
    Plan {
        schema_version: SCHEMA_VERSION,
        decided_at,
        handled: None,
        actions: Vec::new(),
        skipped: Vec::new(),
        ranking: Vec::new(),
        thresholds: Vec::new(),
        memory_pressure: Vec::new(),
        conditions: Vec::new(),
        events: Vec::new(),
        admissions: Vec::new(),
        stats_age: Default::default(),
        notes: Vec::new(),
        wake_in: None,
    }
}

/// Which loops run: those that the snapshot names, else eviction and the collectors whose periods have passed.
fn due(snapshot: &Snapshot, options: &Options, history: &History) -> BTreeSet<Task> {
    if let Some(tasks) = &snapshot.tasks {
        return tasks.iter().copied().collect();
    }
    let passed = |period: Millis, last: Option<Time>| {
        period.0 > 0 && last.is_none_or(|last| snapshot.taken_at.since(last) >= period)
    };
    let mut tasks = BTreeSet::from([Task::Eviction]);
    if passed(options.container_gc_period, history.last_container_gc) {
        tasks.insert(Task::ContainerGc);
    }
    if passed(options.image_gc_period, history.last_image_gc) {
        tasks.insert(Task::ImageGc);
    }
    tasks
}

/// The regular collectors. After node-level reclaim they have nothing left to do in this pass.
fn collect(
    snapshot: &Snapshot,
    limits: &Limits,
    tasks: &BTreeSet<Task>,
    reclaimed: bool,
    before: &History,
    history: &mut History,
    plan: &mut Plan,
) {
    let mut removed = BTreeSet::new();
    if tasks.contains(&Task::ContainerGc) {
        history.last_container_gc = Some(snapshot.taken_at);
        if !reclaimed {
            removed = gc::containers::collect(snapshot, limits.container_gc(), false, plan);
        }
    }
    if snapshot.images.is_empty() {
        // A runtime that lists none may not have listed any yet: when they were first seen is not forgotten for that.
        history.images.clone_from(&before.images);
        return;
    }
    if tasks.contains(&Task::ImageGc) && !reclaimed {
        history.last_image_gc = Some(snapshot.taken_at);
        gc::images::collect(
            snapshot,
            limits.image_gc(),
            limits.options(),
            &removed,
            before,
            history,
            plan,
        );
    } else if history.images.is_none() {
        // Images in use are noted in every pass, so that "unused since" is as fresh as the snapshots are.
        gc::images::remember(snapshot, &removed, before, history);
    }
}

/// When the answer can change although nothing new is observed.
fn wake_in(snapshot: &Snapshot, limits: &Limits, history: &History, plan: &Plan) -> Option<Millis> {
    let now = snapshot.taken_at;
    let options = limits.options();
    let mut soonest: Option<Millis> = None;
    let mut at = |when: Millis| soonest = Some(soonest.map_or(when, |soonest| soonest.min(when)));
    // What each pod has written is looked at on this beat, and whether what is short still is. A node with enough of everything is told by whoever reads it.
    let is_short = plan.thresholds.iter().any(|status| {
        matches!(status.state, ThresholdState::Grace | ThresholdState::Stale | ThresholdState::Met)
    });
    let has_pods = snapshot.workloads.iter().any(|workload| workload.kind == WorkloadKind::Pod);
    if is_short || limits.local_storage_isolation() && has_pods {
        at(options.monitoring_period);
    }
    if history.reclaiming.is_some() {
        at(Millis(0));
    }
    let waits = history.waiting.is_some() || history.waiting_for_disk.is_some();
    if waits || plan.evictions().next().is_some() {
        at(Millis(1_000));
    }
    for note in &plan.notes {
        if let Note::UsageAwaited { until, .. } = note {
            at(until.since(now));
        }
    }
    for status in plan.thresholds.iter().filter(|status| status.state == ThresholdState::Grace) {
        status.grace_left.into_iter().for_each(&mut at);
    }
    for condition in &history.conditions {
        if let Some(last) = history.conditions_last_observed.get(condition) {
            at(last.plus(limits.pressure_transition_period()).since(now));
        }
    }
    for ends in snapshot.workloads.iter().filter_map(|workload| workload.termination) {
        if ends.counts_at(now) {
            at(ends.deadline.since(now));
        }
    }
    for (period, last) in [
        (options.container_gc_period, history.last_container_gc),
        (options.image_gc_period, history.last_image_gc),
    ] {
        if let Some(last) = last
            && period.0 > 0
        {
            at(last.plus(period).since(now));
        }
    }
    soonest
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{string::ToString as _, vec};

    /// Names that begin alike for longer than what is compared first, that others begin with, and that end in what a gap is filled with.
    #[test]
    fn workloads_are_in_the_order_of_who_they_are_however_their_names_begin() {
        let ends =
            ["", "\0", "\0\0", "a", "a\0", "a-much-longer-name", "a-much-longer-namf", "ä", "~"];
        for begin in ["", "ns/", "a-namespace-of-some-length/pod-"] {
            let mut names: Vec<_> = ends.iter().map(|end| begin.to_string() + end).collect();
            names.extend(ends.iter().map(|end| begin.to_string() + "0123456789abcdef" + end));
            for turned in 0..names.len() {
                names.rotate_left(turned);
                let of = |name: &alloc::string::String, uid: &str| {
                    let key = WorkloadKey {
                        name: name.clone(),
                        uid: Some(uid.to_string()),
                        ..WorkloadKey::default()
                    };
                    Workload { key, ..Workload::default() }
                };
                let workloads: Vec<_> =
                    names.iter().flat_map(|name| vec![of(name, "2"), of(name, "1")]).collect();
                let mut sorted: Vec<&Workload> = workloads.iter().collect();
                sort(&mut sorted);
                assert!(sorted.is_sorted_by(|a, b| a.key < b.key));
            }
        }
        sort(&mut []);
    }
}
