//! Any text as what an earlier pass remembered (`--history`): what can be read is written as the same, can be decided with, and what is remembered then can be decided with again.
#![no_main]
use ebb_policy::limits::{Forecast, Ladder, Limits, Options, RawEviction};
use ebb_policy::{History, Snapshot, Time, decide};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

/// A node that is short of everything, with one of each that a history may remember.
const NODE: &str = include_str!("history-node.json");

static SNAPSHOT: LazyLock<Snapshot> =
    LazyLock::new(|| serde_json::from_str(NODE).expect("the node is valid"));

static LIMITS: LazyLock<[Limits; 3]> = LazyLock::new(|| {
    let everything = Options {
        forecast: Forecast { enabled: true, ..Forecast::default() },
        ladder: Ladder { enabled: true, ..Ladder::default() },
        ..Options::standalone()
    };
    [Options::kubelet(), Options::standalone(), everything].map(|options| {
        let soft = [("memory.available".to_owned(), "60%".to_owned())];
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
    let Ok(history) = serde_json::from_str::<History>(text) else { return };
    let written = serde_json::to_string(&history).expect("what was read can be written");
    let again: History = serde_json::from_str(&written).expect("what was written can be read");
    assert_eq!(again, history);
    for limits in &*LIMITS {
        // What is remembered may be of any time, also of one to come.
        for taken_at in [SNAPSHOT.taken_at, Time(0), Time(u64::MAX)] {
            let snapshot = Snapshot { taken_at, ..SNAPSHOT.clone() };
            let (_, next) = decide(&snapshot, limits, &history);
            let (plan, _) = decide(&snapshot, limits, &next);
            assert_eq!(decide(&snapshot, limits, &next).0, plan);
        }
    }
});
