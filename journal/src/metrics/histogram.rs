//! Times by their upper bound, each bound with the incident that was last counted there.

use super::Counter;
use ebb_policy::Time;
use std::sync::Mutex;

/// Upper bounds, in seconds: from a kill in time to one that came too late for anything.
pub(super) const BOUNDS: [f64; 12] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// Bytes of an incident's name that are told: a line's labels may have 128 characters.
const LONGEST: usize = 100;

#[derive(Debug, Default)]
pub(super) struct Histogram {
    pub(super) buckets: [Bucket; BOUNDS.len() + 1],
    pub(super) microseconds: Counter,
}

#[derive(Debug, Default)]
pub(super) struct Bucket {
    pub(super) count: Counter,
    /// Neither side waits for the other: what is held is left as it is, or left out.
    exemplar: Mutex<Option<Exemplar>>,
}

/// What was counted last.
#[derive(Clone, Debug)]
pub(super) struct Exemplar {
    pub(super) incident: String,
    pub(super) seconds: f64,
    pub(super) at: Time,
}

impl Histogram {
    /// Counts a time in milliseconds, and the incident that it is of.
    pub(super) fn observe(&self, milliseconds: f64, at: Time, incident: Option<&str>) {
        let place = BOUNDS.iter().position(|bound| milliseconds <= bound * 1e3);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        self.microseconds.add((milliseconds * 1e3) as u64);
        let Some(bucket) = self.buckets.get(place.unwrap_or(BOUNDS.len())) else { return };
        bucket.count.add(1);
        let Some(incident) = incident.filter(|name| is_told(name)) else { return };
        if let Ok(mut exemplar) = bucket.exemplar.try_lock() {
            let incident = incident.to_owned();
            *exemplar = Some(Exemplar { incident, seconds: milliseconds / 1e3, at });
        }
    }
}

impl Bucket {
    pub(super) fn exemplar(&self) -> Option<Exemplar> {
        self.exemplar.try_lock().ok()?.clone()
    }
}

/// Whether a name can stand in a label as it is. One of a cgroup has the cgroup's path in it, which a workload may have chosen.
fn is_told(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    name.len() <= LONGEST && name.bytes().all(is_plain)
}
