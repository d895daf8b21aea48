//! Whether ebb acts before the kubelet beside it, threshold by threshold. Pure.

use super::finding::{Finding, Status};
use ebb_journal::{Band, GuardBand};

/// What the findings on thresholds are about.
const FIRST: &str = "act before the kubelet";

/// Where the kubelet's thresholds come from, and each on which ebb does not act first.
pub(super) fn findings(guard_band: &GuardBand) -> Vec<Finding> {
    let mut findings = vec![source(guard_band)];
    let wanting = guard_band.thresholds.iter().filter(|band| band.has_room != Some(true));
    findings.extend(wanting.map(of_band));
    if findings.len() == 1 {
        let signals = guard_band.thresholds.iter().map(|band| band.signal.name());
        let signals: Vec<&str> = signals.collect();
        let source = match signals.as_slice() {
            [] => "the kubelet has no thresholds".to_owned(),
            signals => format!("with room between the two: {}", signals.join(", ")),
        };
        findings.push(Finding { what: FIRST, status: Status::Live, source, advice: None });
    }
    findings
}

fn source(guard_band: &GuardBand) -> Finding {
    let is_read = guard_band.errors.is_empty();
    let advice = format!(
        "{}; if it is elsewhere, name it with --kubelet-config FILE",
        guard_band.errors.join("; ")
    );
    Finding {
        what: "know the kubelet's thresholds",
        status: if is_read { Status::Live } else { Status::Degraded },
        source: format!("{}; its flags and drop-in files are not read", guard_band.source()),
        advice: (!is_read).then_some(advice),
    }
}

fn of_band(band: &Band) -> Finding {
    let unknown = || "how much there is is not known: write a percentage in both files".to_owned();
    Finding {
        what: FIRST,
        status: Status::Degraded,
        source: band.shown(),
        advice: match band.has_room {
            None => Some(unknown()),
            Some(_) => band.change.clone(),
        },
    }
}
