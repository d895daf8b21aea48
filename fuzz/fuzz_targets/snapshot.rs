//! Any text as a snapshot: what can be read can be decided on, twice in a row and in every mode, and nothing critical or protected is ended.
#![no_main]
use ebb_policy::limits::{Forecast, Ladder, Limits, Options, RawEviction};
use ebb_policy::plan::{Action, EvictionCause};
use ebb_policy::{History, Snapshot, Time, decide};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static LIMITS: LazyLock<[Limits; 3]> = LazyLock::new(|| {
    let everything = Options {
        forecast: Forecast { enabled: true, ..Forecast::default() },
        ladder: Ladder { enabled: true, ..Ladder::default() },
        spread_owners: true,
        disruption_budgets: true,
        ..Options::standalone()
    };
    [Options::kubelet(), Options::standalone(), everything].map(|options| {
        let soft = [("memory.available".to_owned(), "10%".to_owned())];
        let graces = [("memory.available".to_owned(), "1s".to_owned())];
        let raw = RawEviction {
            eviction_soft: Some(soft.into()),
            eviction_soft_grace_period: Some(graces.into()),
            image_maximum_gc_age: Some("1h".to_owned()),
            options: Some(options),
            ..RawEviction::default()
        };
        Limits::new(&raw).expect("the limits are valid")
    })
});

fuzz_target!(|text: &str| {
    let Ok(snapshot) = serde_json::from_str::<Snapshot>(text) else { return };
    for limits in &*LIMITS {
        let (plan, history) = decide(&snapshot, limits, &History::default());
        check(&snapshot, &plan);
        let later = Snapshot {
            taken_at: Time(snapshot.taken_at.0.saturating_add(1500)),
            ..snapshot.clone()
        };
        let (plan, _) = decide(&later, limits, &history);
        check(&later, &plan);
    }
});

fn check(snapshot: &Snapshot, plan: &ebb_policy::Plan) {
    for action in &plan.actions {
        let Action::Evict(evict) = action else { continue };
        // To admit a critical pod the kubelet ends any pod of a lower priority, a static one too.
        let may_be_critical = evict.cause == EvictionCause::Preemption;
        // A key may be there twice in a text that nobody checked; then one of them must be fair game.
        let mut those = snapshot.workloads.iter().filter(|workload| workload.key == evict.workload);
        assert!(those.any(|workload| (may_be_critical || !workload.is_critical()) && workload.protected.is_none()));
    }
}
