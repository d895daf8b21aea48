//! Cgroups whose memory pressure is watched: from text to checked values, with systemd-oomd's defaults.
use super::{
    duration,
    parse::{Checker, DURATION_FIX},
    raw::RawMemoryPressure,
};
use crate::{Millis, StallShare};
use alloc::{format, string::String, vec::Vec};

/// systemd-oomd's `DefaultMemoryPressureLimit=`.
const DEFAULT_LIMIT: StallShare = StallShare(6000);

/// systemd-oomd's `DefaultMemoryPressureDurationSec=`.
const DEFAULT_DURATION: Millis = Millis(30_000);

/// Pressure is an average over ten seconds, looked at once a second: less than this says nothing. systemd-oomd has the same bound.
const LEAST_DURATION: Millis = Millis(1_000);

/// All of the time, in hundredths of a percent.
const ALL: StallShare = StallShare(10_000);

/// A cgroup whose memory pressure is watched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemoryPressure {
    /// Its path from the root of the hierarchy, beginning with a slash.
    pub cgroup: String,
    /// `full avg10` of its `memory.pressure` above this counts; above 0 and below 100 percent.
    pub limit: StallShare,
    /// For how long it must have been above the limit; at least a second.
    pub duration: Millis,
}

impl Checker {
    /// Checks the list; in the order of the paths.
    pub(super) fn memory_pressure(&mut self, raw: &[RawMemoryPressure]) -> Vec<MemoryPressure> {
        let mut list: Vec<MemoryPressure> = Vec::new();
        for (nth, raw) in raw.iter().enumerate() {
            let key = format!("ebb.memoryPressure[{nth}]");
            let cgroup = self.watched_cgroup(&key, raw.cgroup.as_deref());
            let limit = self.stall_limit(&key, raw.limit.as_deref());
            let duration = self.stall_duration(&key, raw.duration.as_deref());
            let (Some(cgroup), Some(limit), Some(duration)) = (cgroup, limit, duration) else {
                continue;
            };
            if list.iter().any(|other| other.cgroup == cgroup) {
                let key = format!("{key}.cgroup");
                self.refuse(key, Some(&cgroup), "given twice", "keep one of them");
                continue;
            }
            list.push(MemoryPressure { cgroup, limit, duration });
        }
        list.sort();
        list
    }

    fn watched_cgroup(&mut self, key: &str, text: Option<&str>) -> Option<String> {
        const FIX: &str = "write the path of one cgroup, such as \"/user.slice\"";
        let key = format!("{key}.cgroup");
        let Some(text) = text else {
            self.refuse(key, None, "missing", FIX);
            return None;
        };
        let problem = match text.strip_prefix('/') {
            None => "a path from the root of the hierarchy begins with a slash",
            Some("") => "that is the whole node, which thresholds such as memory.available are for",
            Some(path) if path.contains(['*', '?', '[']) => "a pattern where one cgroup belongs",
            Some(path) if path.split('/').any(|part| matches!(part, "" | "." | "..")) => {
                "not the path of a cgroup"
            }
            Some(_) => return Some(text.into()),
        };
        self.refuse(key, Some(text), problem, FIX);
        None
    }

    fn stall_limit(&mut self, key: &str, text: Option<&str>) -> Option<StallShare> {
        let Some(text) = text else { return Some(DEFAULT_LIMIT) };
        let share = text.strip_suffix('%').and_then(StallShare::parse);
        let problem = match share {
            None => "not a percentage",
            Some(StallShare(0)) => "pressure is above 0% all the time",
            Some(share) if share >= ALL => "pressure is never above 100%",
            Some(share) => return Some(share),
        };
        let fix = "write a percentage above 0% and below 100%, such as \"60%\"";
        self.refuse(format!("{key}.limit"), Some(text), problem, fix);
        None
    }

    fn stall_duration(&mut self, key: &str, text: Option<&str>) -> Option<Millis> {
        let Some(text) = text else { return Some(DEFAULT_DURATION) };
        let nanos = duration::parse_nanos(text).ok().and_then(|nanos| u64::try_from(nanos).ok());
        let millis = nanos.map(|nanos| Millis(nanos / 1_000_000));
        let problem = match millis {
            None => "not a duration",
            Some(millis) if millis < LEAST_DURATION => "shorter than a second",
            Some(millis) => return Some(millis),
        };
        self.refuse(format!("{key}.duration"), Some(text), problem, DURATION_FIX);
        None
    }
}
