//! Takes part in the election, and tells until when this process may act.

use crate::election::{Election, RENEW, Step};
use ebb_kube::Api;
use ebb_policy_cluster::Time;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;

/// The Lease of ebb's controllers.
pub const LEASE_NAME: &str = "ebb-controller";
/// How long one read or write of the Lease may take.
const DEADLINE: Duration = Duration::from_secs(3);

/// Whether this process may act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Leadership {
    /// It is the only one.
    Alone,
    /// Another holds the Lease, or nobody is known to.
    Standby {
        /// Who holds it.
        holder: Option<String>,
        /// Why the Lease could not be read or written.
        error: Option<String>,
    },
    /// It holds the Lease.
    Leading {
        /// Until then, unless renewed.
        until: Instant,
    },
}

impl Leadership {
    pub(crate) fn may_act(&self, now: Instant) -> bool {
        match self {
            Self::Alone => true,
            Self::Standby { .. } => false,
            Self::Leading { until } => now < *until,
        }
    }

    /// Whether it is to be said that this is so, at `now`, after `before` was.
    pub(crate) fn is_news_after(&self, before: &Self, now: Instant) -> bool {
        match (before, self) {
            (Self::Standby { holder: a, error: e }, Self::Standby { holder: b, error: f }) => {
                a != b || e.is_some() != f.is_some()
            }
            (Self::Leading { .. }, Self::Leading { .. }) => {
                before.may_act(now) != self.may_act(now)
            }
            // Also where the time of who led was over before anybody looked.
            _ => before != self,
        }
    }
}

/// Runs until `stop`, and gives the Lease up then.
pub(crate) async fn take_part(
    api: Api,
    namespace: String,
    me: String,
    tell: watch::Sender<Leadership>,
    mut stop: oneshot::Receiver<()>,
) {
    let mut election = Election::new(me);
    let mut must_read = true;
    loop {
        let mut error = None;
        if must_read {
            match api.lease(&namespace, LEASE_NAME, DEADLINE).await {
                Ok(record) => {
                    election.read(record, Instant::now());
                    must_read = false;
                }
                Err(failure) => error = Some(failure.to_string()),
            }
        }
        let mut pause = Duration::from_secs(1);
        if !must_read {
            let sent = Instant::now();
            match election.next(sent) {
                Step::Wait(wait) => (pause, must_read) = (wait, true),
                Step::Put(record) => {
                    let put =
                        api.put_lease(&namespace, LEASE_NAME, &record, wall(), DEADLINE).await;
                    match put {
                        Ok(record) => {
                            election.written(record, sent);
                            pause = RENEW;
                        }
                        Err(failure) => {
                            must_read = true;
                            // Somebody was faster: nothing is wrong.
                            if failure.code() == Some(409) {
                                pause = Duration::from_millis(50);
                            } else {
                                error = Some(failure.to_string());
                            }
                        }
                    }
                }
            }
        }
        tell.send_replace(standing(&election, error));
        let pause = pause.mul_f64(0.9 + fastrand::f64() / 10.0);
        tokio::select! {
            _ = &mut stop => break,
            () = sleep(pause) => {}
        }
    }
    tell.send_replace(Leadership::Standby { holder: None, error: None });
    if let Some(record) = election.release() {
        // Who cannot give it up lets it expire.
        _ = api.put_lease(&namespace, LEASE_NAME, &record, wall(), DEADLINE).await;
    }
}

fn standing(election: &Election, error: Option<String>) -> Leadership {
    match election.acts_until() {
        Some(until) if Instant::now() < until => Leadership::Leading { until },
        _ => {
            let holder = election.holder().filter(|holder| !holder.is_empty()).cloned();
            Leadership::Standby { holder, error }
        }
    }
}

/// What the clock on the wall says, for what others read.
pub(crate) fn wall() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// A name that no other process has.
pub(crate) fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{:016x}", host.trim(), fastrand::u64(..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leads_no_more_says_so_also_when_its_time_was_over_before() {
        let now = Instant::now();
        let leading = |seconds| Leadership::Leading { until: now + Duration::from_secs(seconds) };
        let standby =
            |holder: &str| Leadership::Standby { holder: Some(holder.into()), error: None };
        for at in [now, now + Duration::from_secs(60)] {
            assert!(standby("other").is_news_after(&leading(10), at));
            assert!(leading(10).is_news_after(&standby("other"), at));
            assert!(standby("other").is_news_after(&standby("me"), at));
            assert!(!standby("other").is_news_after(&standby("other"), at));
        }
        assert!(!leading(20).is_news_after(&leading(10), now), "renewed in time");
        let late = now + Duration::from_secs(15);
        assert!(leading(20).is_news_after(&leading(10), late), "it did not act in between");
        assert!(!Leadership::Alone.is_news_after(&Leadership::Alone, now));
    }
}
