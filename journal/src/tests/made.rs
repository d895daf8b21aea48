//! Records of every kind, with whatever may stand in them.

use crate::cgroups::{Dying, Written};
use crate::*;
use ebb_policy::cgroups::Level;
use ebb_policy::cgroups::compare::{Difference, Kind};
use ebb_policy::cgroups::orphans::{Action, Orphan};
use ebb_policy::limits::{MemoryPressure, Threshold, ThresholdValue};
use ebb_policy::plan::{
    EventType, Evict, EvictionCause, Note, PodEvent, RankKey, Ranked, Strength, ThresholdState,
    ThresholdStatus,
};
use ebb_policy::snapshot::{CgroupId, ProtectedReason, Qos, WorkloadKey};
use ebb_policy::{Millis, Quantity, Secs, Signal, StallShare, Time};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::path::PathBuf;

/// Any record.
pub(super) fn records() -> impl Strategy<Value = Record> {
    prop_oneof![15 => of_episodes(), 9 => of_the_outside(), 11 => of_ebb()]
}

/// Names as workloads have them, or wish they had.
fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z0-9/.-]{1,20}", any::<String>()]
}

fn path() -> impl Strategy<Value = PathBuf> {
    name().prop_map(|name| format!("/{name}").into())
}

fn signal() -> impl Strategy<Value = Signal> {
    prop::sample::select(Signal::ALL.to_vec())
}

/// A time as [`ms`] makes it: whole microseconds up to some weeks.
fn after() -> impl Strategy<Value = f64> {
    (0_u64..1 << 40).prop_map(|us| ms(std::time::Duration::from_micros(us)))
}

fn share() -> impl Strategy<Value = StallShare> {
    (0_u32..=10_000).prop_map(StallShare)
}

fn key() -> impl Strategy<Value = WorkloadKey> {
    (name(), option::of(name()), option::of(any::<u64>().prop_map(CgroupId)))
        .prop_map(|(name, uid, cgroup)| WorkloadKey { name, uid, cgroup, process: None })
}

fn target() -> impl Strategy<Value = Target> {
    let payload = (any::<u64>(), path()).prop_map(|(id, path)| Payload { id, path });
    prop_oneof![
        (any::<u64>(), path()).prop_map(|(id, path)| Target::Cgroup { id, path }),
        (name(), vec(payload, 0..3)).prop_map(|(uid, payloads)| Target::Pod { uid, payloads }),
        any::<(i32, u64)>().prop_map(|(pid, start)| Target::Process { pid, start }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Kill),
        Just(Step::Terminate),
        any::<u64>().prop_map(|bytes| Step::Rung(Rung::Reclaim { bytes })),
        any::<u64>().prop_map(|high| Step::Rung(Rung::Throttle { high })),
        any::<u64>().prop_map(|thaw_after_ms| Step::Rung(Rung::Freeze { thaw_after_ms })),
        Just(Step::Rung(Rung::Release)),
    ]
}

fn need() -> impl Strategy<Value = Need> {
    prop_oneof![
        any::<u64>().prop_map(|bytes| Need::MemoryBelow { bytes }),
        any::<u64>().prop_map(|bytes| Need::SwapBelow { bytes }),
        any::<u64>().prop_map(|bytes| Need::MemoryWithSwapBelow { bytes }),
        any::<(u64, u64)>().prop_map(|(bytes, swap)| Need::MemoryAndSwapBelow { bytes, swap }),
        any::<u64>().prop_map(|count| Need::PidsBelow { count }),
        (name(), share()).prop_map(|(cgroup, limit)| Need::MemoryPressureAbove { cgroup, limit }),
    ]
}

fn decision() -> impl Strategy<Value = Option<Time>> {
    option::of(any::<u64>().prop_map(Time))
}

fn job() -> impl Strategy<Value = Job> {
    (any::<u64>(), target(), step(), option::of(need()), decision()).prop_map(
        |(number, target, step, need, decision)| Job { number, target, step, need, decision },
    )
}

fn method() -> impl Strategy<Value = Method> {
    prop::sample::select(vec![
        Method::CgroupKill,
        Method::FreezeAndSignal,
        Method::Signal,
        Method::Terminate,
        Method::Reclaim,
        Method::Throttle,
        Method::Freeze,
        Method::Release,
        Method::DryRun,
    ])
}

fn done() -> impl Strategy<Value = Done> {
    let numbers = (option::of(after()), any::<(u64, bool, Option<u64>)>());
    (job(), option::of(key()), method(), numbers).prop_map(
        |(job, workload, method, (after_ms, (took_us, by_watchdog, assumes_freed)))| Done {
            job,
            workload,
            method,
            after_ms,
            took_us,
            by_watchdog,
            assumes_freed,
        },
    )
}

fn not_done() -> impl Strategy<Value = NotDone> {
    prop_oneof![
        Just(Refusal::Gone.into()),
        Just(Refusal::Exiting.into()),
        any::<(i32, Option<u64>)>().prop_map(|(pid, cgroup)| {
            Refusal::Protected { pid, because: ProtectedReason::OomScoreAdj, cgroup }.into()
        }),
        name().prop_map(|error| Refusal::Unreadable { error }.into()),
        any::<(u64, u64)>()
            .prop_map(|(available, threshold)| NotDone::NotNeeded { available, threshold }),
        (name(), share(), share()).prop_map(|(cgroup, full_avg10, limit)| {
            NotDone::PressureGone { cgroup, full_avg10, limit }
        }),
        name().prop_map(|why| NotDone::UnknownNeed { why }),
        name().prop_map(|why| NotDone::Failed { why }),
        Just(NotDone::Hung),
        Just(NotDone::Behind),
    ]
}

fn notes() -> impl Strategy<Value = Vec<Worded<PlanNote>>> {
    let note = prop_oneof![
        Just(Note::NoEvictionCandidates),
        any::<(u64, u64)>().prop_map(|(expected, need)| Note::TerminatingCovers { expected, need }),
        key().prop_map(|workload| Note::LocalPressure { workload }),
    ];
    let awaited = option::of(Just(ProtectedReason::Undescribed));
    let of = (note, signal(), awaited, 0..3_u64)
        .prop_map(|(note, signal, awaited, more)| PlanNote { note, signal, awaited, more }.into());
    vec(of, 0..3)
}

fn moments() -> impl Strategy<Value = Vec<Moment>> {
    let one = (name(), after(), option::of(name())).prop_map(|(what, after_ms, detail)| Moment {
        what: what.into(),
        after_ms,
        detail,
    });
    vec(one, 0..3)
}

fn evict() -> impl Strategy<Value = Evict> {
    (key(), option::of(signal()), any::<Option<u64>>(), name()).prop_map(
        |(workload, signal, expected_free, message)| Evict {
            workload,
            cause: EvictionCause::MemoryPressure,
            signal,
            strength: Some(Strength::Hard),
            threshold: None,
            threshold_value: expected_free,
            available: None,
            memory_pressure: None,
            grace: Secs(1),
            overdue_after: Secs(2),
            expected_free,
            phase: "Failed".into(),
            reason: "Evicted".into(),
            message: message.clone(),
            condition: None,
            event: PodEvent {
                event_type: EventType::Warning,
                reason: "Evicted".into(),
                message,
                annotations: Default::default(),
            },
            metric: "memory.available".into(),
            why: vec![RankKey::Priority { priority: -3 }],
        },
    )
}

fn ranked() -> impl Strategy<Value = Ranked> {
    let keys = prop_oneof![
        any::<i64>().prop_map(|per_second| RankKey::Growth { per_second }),
        any::<bool>().prop_map(|found| RankKey::Stats { found }),
    ];
    (any::<u32>(), key(), option::of(signal()), vec(keys, 0..3))
        .prop_map(|(place, workload, signal, keys)| Ranked { place, workload, signal, keys })
}

fn work() -> impl Strategy<Value = Work> {
    prop_oneof![
        (name(), any::<bool>())
            .prop_map(|(id, stop_first)| Work::RemoveContainer { id, stop_first }),
        name().prop_map(|id| Work::RemoveSandbox { id }),
        (name(), any::<u64>()).prop_map(|(id, expected)| Work::RemoveImage { id, expected }),
        name().prop_map(|path| Work::RemoveLogDir { path }),
        name().prop_map(|path| Work::RemoveLogLink { path }),
    ]
}

fn limit() -> impl Strategy<Value = OomConstraint> {
    prop_oneof![
        Just(OomConstraint::Node),
        (any::<u64>(), option::of(name()))
            .prop_map(|(id, path)| OomConstraint::Cgroup { id, path }),
        any::<u64>().prop_map(|id| OomConstraint::CgroupV1 { id }),
        Just(OomConstraint::Unknown),
    ]
}

fn guard_band() -> impl Strategy<Value = GuardBand> {
    let band = (signal(), name(), option::of(name()), any::<Option<bool>>()).prop_map(
        |(signal, kubelet, ebb, has_room)| Band {
            signal,
            strength: Strength::Soft,
            kubelet,
            needed: ebb.clone(),
            change: ebb.clone(),
            ebb,
            has_room,
        },
    );
    (option::of(path()), vec(name(), 0..2), vec(band, 0..3))
        .prop_map(|(file, errors, thresholds)| GuardBand { file, errors, thresholds })
}

fn difference() -> impl Strategy<Value = Difference> {
    (name(), option::of(name())).prop_map(|(path, file)| Difference {
        kind: if file.is_some() { Kind::Value } else { Kind::NoCgroup },
        path,
        level: Level::Pod,
        pod: None,
        container: None,
        expected: file.clone(),
        found: file.clone(),
        rule: file.clone(),
        file,
    })
}

fn in_force() -> impl Strategy<Value = Worded<InForce>> {
    let value = || {
        prop_oneof![
            (0_u64..1 << 50).prop_map(|bytes| ThresholdValue::Amount(Quantity::bytes(bytes))),
            (0_u8..=100).prop_map(|percent| ThresholdValue::Share {
                share: f32::from(percent) / 100.0,
                at_most: None
            }),
        ]
    };
    let threshold = (signal(), value()).prop_map(|(signal, value)| Threshold {
        signal,
        list: Strength::Hard,
        value,
        grace: Millis(0),
        min_reclaim: None,
        also: None,
        inert: false,
    });
    let status = (signal(), any::<Option<u64>>()).prop_map(|(signal, available)| ThresholdStatus {
        signal,
        strength: Strength::Soft,
        state: ThresholdState::Clear,
        threshold: None,
        available,
        by_minimum_reclaim: false,
        since: None,
        grace_left: None,
        also_below: None,
    });
    let pressure = (name(), share(), any::<u64>()).prop_map(|(cgroup, limit, duration)| {
        MemoryPressure { cgroup, limit, duration: Millis(duration) }
    });
    prop_oneof![
        threshold.prop_map(InForce::Configured),
        status.prop_map(InForce::Resolved),
        pressure.prop_map(InForce::MemoryPressure),
    ]
    .prop_map(Worded::from)
}

fn losses() -> impl Strategy<Value = Losses> {
    let kinds = vec![
        Loss::Exits,
        Loss::OomKills,
        Loss::MemoryEvents,
        Loss::CgroupChanges,
        Loss::KswapdWakes,
        Loss::Corrupt,
    ];
    vec((prop::sample::select(kinds), any::<u64>()), 0..7).prop_map(Losses)
}

/// What an episode of pressure leads to.
fn of_episodes() -> BoxedStrategy<Record> {
    prop_oneof![
        (signal(), any::<(u64, u64)>(), after()).prop_map(
            |(signal, (threshold, available), seen_after_ms)| Record::ThresholdCrossed {
                signal,
                threshold,
                available,
                seen_after_ms
            }
        ),
        (name(), share(), share(), any::<u64>()).prop_map(
            |(cgroup, full_avg10, limit, duration)| Record::MemoryPressureAboveLimit {
                cgroup,
                full_avg10,
                limit,
                duration: Millis(duration)
            }
        ),
        (name(), option::of(share()), moments()).prop_map(|(cgroup, full_avg10, timeline)| {
            Record::MemoryPressureRelieved { cgroup, full_avg10, timeline }
        }),
        (
            decision(),
            option::of(after()),
            vec(evict(), 0..3),
            vec(ranked(), 0..3),
            any::<usize>(),
            notes()
        )
            .prop_map(|(decision, after_ms, evict, ranking, candidates, notes)| {
                Record::Decided { decision, after_ms, evict, ranking, candidates, notes }
            }),
        (option::of(signal()), notes())
            .prop_map(|(signal, notes)| Record::EvictionDeferred { signal, notes }),
        (key(), signal(), after()).prop_map(|(workload, signal, deadline_ms)| {
            Record::HookCalled { workload, signal, deadline_ms }
        }),
        (key(), signal(), prop::sample::select(&HookOutcome::ALL[..]), after(), option::of(name()))
            .prop_map(|(workload, signal, outcome, took_ms, why)| Record::HookEnded {
                workload,
                signal,
                outcome,
                took_ms,
                why
            }),
        (key(), name()).prop_map(|(workload, message)| Record::Warned { workload, message }),
        done().prop_map(Record::Evicted),
        done().prop_map(Record::StepTaken),
        key().prop_map(|workload| Record::ReflexArmed { workload }),
        (key(), any::<(Vec<i32>, Vec<i32>, u64, u64, u64)>(), after(), decision()).prop_map(
            |(
                workload,
                (killed, skipped, available, threshold, took_us),
                seen_after_ms,
                decision,
            )| {
                Record::ReflexFired {
                    decision,
                    workload,
                    killed,
                    skipped,
                    available,
                    threshold,
                    took_us,
                    seen_after_ms,
                }
            }
        ),
        (job(), option::of(key()), not_done()).prop_map(|(job, workload, why)| Record::NotDone {
            job,
            workload,
            why: why.into()
        }),
        (key(), any::<bool>(), after(), decision()).prop_map(
            |(workload, exited, after_ms, decision)| {
                let outcome = if exited { Outcome::Exited } else { Outcome::TimedOut };
                Record::Terminated { workload, outcome, after_ms, decision }
            }
        ),
        (signal(), any::<u64>(), moments()).prop_map(|(signal, available, timeline)| {
            Record::PressureRelieved { signal, available, timeline }
        }),
        (name(), any::<(u32, Option<u64>, u64, u64, i32, u64)>(), option::of(name()), limit())
            .prop_map(
                |(
                    comm,
                    (pid, cgroup, killed_at, started_at, oom_score_adj, not_told),
                    path,
                    limit,
                )| {
                    Record::OomKill {
                        comm,
                        pid,
                        cgroup,
                        path,
                        limit,
                        killed_at,
                        started_at,
                        oom_score_adj,
                        not_told,
                    }
                }
            ),
        (vec(key(), 0..3), any::<u64>())
            .prop_map(|(workloads, more)| Record::LocalPressure { workloads, more }),
    ]
    .boxed()
}

/// What the API server and the container runtime have part in.
fn of_the_outside() -> BoxedStrategy<Record> {
    prop_oneof![
        (any::<bool>(), name()).prop_map(|(up, what)| Record::Runtime { up, what }),
        (any::<bool>(), name()).prop_map(|(up, what)| Record::ApiServer { up, what }),
        (key(), any::<bool>(), vec(name(), 0..3), after(), decision()).prop_map(
            |(workload, was_gone, refused, took_ms, decision)| Record::EvictionTold {
                workload,
                was_gone,
                refused,
                took_ms,
                decision
            }
        ),
        (key(), name()).prop_map(|(workload, why)| Record::EvictionRefused { workload, why }),
        any::<(usize, usize)>()
            .prop_map(|(sandboxes, containers)| Record::Inventory { sandboxes, containers }),
        any::<(u64, u64, u64, u64, Option<u64>)>().prop_map(
            |(containers, sandboxes, images, logs, expected)| Record::Collecting {
                containers,
                sandboxes,
                images,
                logs,
                expected
            }
        ),
        (work(), after()).prop_map(|(work, took_ms)| Record::Removed { work, took_ms }),
        (work(), name()).prop_map(|(work, why)| Record::NotRemoved { work, why }),
        (any::<(u64, u64, Option<u64>, Option<i64>)>(), after()).prop_map(
            |((removed, skipped, expected, measured), took_ms)| Record::Collected {
                removed,
                skipped,
                expected,
                measured,
                took_ms
            }
        ),
    ]
    .boxed()
}

/// What ebb says of itself, and of the cgroups of pods.
fn of_ebb() -> BoxedStrategy<Record> {
    let mode = prop::sample::select(vec![Mode::DryRun, Mode::Enforce]);
    let names = || vec(name(), 0..3);
    let written = (name(), name(), option::of(name())).prop_map(|(path, file, wanted)| Written {
        before: file.clone(),
        now: file.clone(),
        path,
        file,
        wanted,
    });
    let orphan = (name(), name(), any::<bool>()).prop_map(|(path, uid, populated)| Orphan {
        path,
        qos: Qos::Burstable,
        populated,
        action: if populated { Action::Skip } else { Action::ReduceCpu },
        skipped: populated.then(|| uid.clone()),
        uid,
    });
    let dying = (name(), any::<(u64, Option<u64>)>()).prop_map(|(path, (count, bytes))| Dying {
        path,
        count,
        bytes,
    });
    let differences = || vec(difference(), 0..2);
    prop_oneof![
        (name(), mode, names(), names(), vec(in_force(), 0..3), any::<usize>()).prop_map(
            |(version, mode, sources, unavailable, thresholds, workloads)| Record::Started {
                version,
                mode,
                sources,
                unavailable,
                thresholds,
                workloads
            }
        ),
        (any::<u64>(), losses())
            .prop_map(|(records, kinds)| Record::Lost { records, kinds: kinds.into() }),
        any::<u64>().prop_map(|records| Record::Dropped { records }),
        guard_band().prop_map(Record::KubeletThresholds),
        (any::<bool>(), names(), vec(in_force(), 0..3)).prop_map(
            |(accepted, errors, thresholds)| { Record::Reloaded { accepted, errors, thresholds } }
        ),
        (vec(written, 0..2), differences(), differences(), names(), option::of(after())).prop_map(
            |(written, remaining, would_write, names, after_ms)| Record::Cgroups {
                written,
                created: names.clone(),
                remaining,
                would_write,
                would_create: names.clone(),
                errors: names,
                after_ms
            }
        ),
        (vec(orphan, 0..2), vec(dying, 0..2), names(), any::<u64>()).prop_map(
            |(found, dying, names, reclaimed)| Record::OrphanedPodCgroups {
                found,
                cleaned_up: names.clone(),
                would_clean_up: names.clone(),
                empty: names.clone(),
                dying,
                reclaimed,
                errors: names
            }
        ),
        (any::<u32>(), option::of(any::<i32>()), refusal(), any::<u64>())
            .prop_map(|(uid, pid, why, others)| Record::ApiClientRefused { uid, pid, why, others }),
        (prop::sample::select(&Part::ALL[..]), name())
            .prop_map(|(part, what)| Record::Degraded { part, what }),
        (name(), name(), name()).prop_map(|(thread, what, place)| Record::Panicked {
            thread,
            what,
            place
        }),
        name().prop_map(|why| Record::Stopping { why }),
    ]
    .boxed()
}

fn refusal() -> impl Strategy<Value = ClientRefusal> {
    prop::sample::select(vec![
        ClientRefusal::NotAllowed,
        ClientRefusal::TooMany,
        ClientRefusal::NotReading,
    ])
}
