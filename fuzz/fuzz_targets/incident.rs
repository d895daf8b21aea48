//! Any text as an incident record: what can be read is written as the same, and can be decided again.
#![no_main]
use ebb_agent::config::Config;
use ebb_journal::incident::Incident;
use ebb_policy::decide;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(incident) = serde_json::from_str::<Incident>(text) else { return };
    let written = serde_json::to_string(&incident).expect("what was read can be written");
    let again: Incident = serde_json::from_str(&written).expect("what was written can be read");
    assert_eq!(again.timeline.len(), incident.timeline.len());
    let Ok(config) = Config::parse(&incident.config) else { return };
    for decision in &incident.decisions {
        let one = decide(&decision.snapshot, &config.limits, &decision.history);
        let same = decide(&decision.snapshot, &config.limits, &decision.history);
        assert_eq!(one, same);
    }
});
