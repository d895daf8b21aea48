//! Which clients were refused, and when that is to be told: at most once a minute for each reason. Pure.

use crate::peer::Peer;
use ebb_journal::{ClientRefusal, Record};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Between two records for the same reason.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// What was told of each reason.
#[derive(Debug, Default)]
pub(crate) struct Refusals(BTreeMap<ClientRefusal, Told>);

#[derive(Debug)]
struct Told {
    at: Instant,
    others: u64,
}

impl Refusals {
    /// Takes in a refusal at `now`; the record that is to be told of it, if one is.
    pub(crate) fn observe(
        &mut self,
        peer: &Peer,
        why: ClientRefusal,
        now: Instant,
    ) -> Option<Record> {
        let others = match self.0.get_mut(&why) {
            Some(told) if now.saturating_duration_since(told.at) < TOLD_EVERY => {
                told.others += 1;
                return None;
            }
            Some(told) => told.others,
            None => 0,
        };
        self.0.insert(why, Told { at: now, others: 0 });
        Some(Record::ApiClientRefused { uid: peer.uid, pid: peer.pid, why, others })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_told_once_a_minute_with_how_many_there_were() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        let peer = Peer { uid: 7, pid: Some(8) };
        let told =
            |why, others| Some(Record::ApiClientRefused { uid: 7, pid: Some(8), why, others });
        let after = |seconds| now + Duration::from_secs(seconds);
        let (too_many, not_allowed) = (ClientRefusal::TooMany, ClientRefusal::NotAllowed);
        assert_eq!(refusals.observe(&peer, too_many, now), told(too_many, 0));
        assert_eq!(refusals.observe(&peer, too_many, after(1)), None);
        assert_eq!(refusals.observe(&peer, not_allowed, after(2)), told(not_allowed, 0));
        assert_eq!(refusals.observe(&peer, too_many, after(59)), None);
        assert_eq!(refusals.observe(&peer, too_many, after(60)), told(too_many, 2));
        assert_eq!(refusals.observe(&peer, too_many, after(121)), told(too_many, 0));
    }
}
