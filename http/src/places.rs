//! Who has a connection: few at a time, fewer from one address, and never so that a newcomer has none.
//!
//! A newcomer that finds no place gets that of somebody from whose address there are too many, else of somebody from an address with the most: of those the one that has asked for nothing for the longest, else the one that has been there for the longest.
//! So whoever opens many connections closes their own, and a probe is answered beside as many other clients as like to ask.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;

/// Connections at the same time.
const ALL: usize = 64;

/// Of them, from one address.
const OF_ONE: usize = 8;

/// How long a newcomer has its place to itself: it may have asked already, and nobody has looked yet.
pub(crate) const MOMENT: Duration = Duration::from_millis(10);

/// How long it has it at least from when somebody wants it: a thread that was kept from running looks first at what has come meanwhile.
const LOOK: Duration = Duration::from_millis(1);

/// Bits of an IPv6 address that a host does not choose itself.
const NETWORK: u32 = 64;

/// Whether a connection has asked for something.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answering(Arc<AtomicBool>);

impl Answering {
    pub(crate) fn begin(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn has_begun(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct Place {
    peer: IpAddr,
    since: Instant,
    answering: Answering,
    connection: AbortHandle,
}

/// Whoever goes for a newcomer.
#[derive(Debug)]
pub(crate) struct Leaving {
    connection: AbortHandle,
    /// What is left of its moment.
    rest: Duration,
}

impl Leaving {
    /// Ends the connection once it has had its moment, and what it had asked for by then was looked at.
    pub(crate) async fn leave(self) {
        tokio::time::sleep(self.rest.max(LOOK)).await;
        // What was heard of at the same time as the end of the sleep has its turn.
        tokio::task::yield_now().await;
        self.connection.abort();
    }
}

/// The connections that there are.
#[derive(Debug, Default)]
pub(crate) struct Places(Vec<Place>);

impl Places {
    /// Sees to it that there is a place for a connection from `peer`; returns whoever has to leave for that.
    pub(crate) fn make_room(&mut self, peer: IpAddr, now: Instant) -> Option<Leaving> {
        self.0.retain(|place| !place.connection.is_finished());
        let at = self.leaves(network(peer))?;
        let place = self.0.swap_remove(at);
        let age = now.saturating_duration_since(place.since);
        Some(Leaving { connection: place.connection, rest: MOMENT.saturating_sub(age) })
    }

    /// Gives it to the connection.
    pub(crate) fn take(
        &mut self,
        peer: IpAddr,
        since: Instant,
        answering: Answering,
        connection: AbortHandle,
    ) {
        self.0.push(Place { peer: network(peer), since, answering, connection });
    }

    /// Whose place a connection from `peer` gets; `None` while there is another.
    fn leaves(&self, peer: IpAddr) -> Option<usize> {
        let mut crowds: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for place in &self.0 {
            *crowds.entry(place.peer).or_default() += 1;
        }
        let has_too_many = crowds.get(&peer).is_some_and(|own| *own >= OF_ONE);
        if !has_too_many && self.0.len() < ALL {
            return None;
        }
        let most = crowds.values().max();
        let may_leave = |place: &Place| match has_too_many {
            true => place.peer == peer,
            false => crowds.get(&place.peer) == most,
        };
        let those = self.0.iter().enumerate().filter(|(_, place)| may_leave(place));
        let oldest = those.min_by_key(|(_, place)| (place.answering.has_begun(), place.since));
        oldest.map(|(at, _)| at)
    }
}

/// What of an address tells hosts apart: of IPv6 the network, within which a host takes as many addresses as it likes.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let kept = u128::MAX << (Ipv6Addr::BITS - NETWORK);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & kept))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    /// Connections that last for ever.
    struct Case {
        places: Places,
        executor: tokio::runtime::Runtime,
        begun: Instant,
    }

    impl Case {
        fn new() -> Self {
            let executor = tokio::runtime::Builder::new_current_thread().build().unwrap();
            Self { places: Places::default(), executor, begun: Instant::now() }
        }

        /// One more, so long after the first; what is left of the moment of whoever goes for it.
        fn comes(&mut self, from: IpAddr, ms: u64) -> (Option<Duration>, Answering) {
            let now = self.begun + Duration::from_millis(ms);
            let leaving = self.places.make_room(from, now);
            let rest = leaving.map(|leaving| {
                leaving.connection.abort();
                leaving.rest
            });
            let answering = Answering::default();
            let connection = self.executor.spawn(std::future::pending::<()>());
            self.places.take(from, now, answering.clone(), connection.abort_handle());
            // What was aborted ends in its turn.
            self.executor.block_on(tokio::task::yield_now());
            (rest, answering)
        }

        fn of(&self, peer: IpAddr) -> usize {
            self.places.0.iter().filter(|place| place.peer == network(peer)).count()
        }
    }

    #[test]
    fn one_address_has_a_few_and_loses_its_oldest_that_asked_for_nothing() {
        let mut case = Case::new();
        let (_, first) = case.comes(peer(1), 0);
        first.begin();
        (1..100).for_each(|n| drop(case.comes(peer(1), n * 100)));
        assert_eq!(case.of(peer(1)), OF_ONE);
        let stays = case.places.0.iter().any(|place| place.since == case.begun);
        assert!(stays, "it is being answered");
        assert_eq!(case.comes(peer(2), 10_000).0, None);
    }

    #[test]
    fn a_newcomer_has_a_place_beside_any_number_of_clients_from_many_addresses() {
        let mut case = Case::new();
        for n in 0..200 {
            drop(case.comes(peer(n % 16), u64::from(n)));
        }
        assert_eq!(case.places.0.len(), ALL);
        case.comes(peer(100), 1000);
        assert_eq!((case.of(peer(100)), case.places.0.len()), (1, ALL));
        // The others go on: who has one place keeps it while others have several.
        for n in 0..40 {
            drop(case.comes(peer(n % 16), 1000 + u64::from(n)));
        }
        assert_eq!(case.of(peer(100)), 1);
    }

    /// As a scraper among as many others: which of them goes is no matter of its address.
    #[test]
    fn among_addresses_with_as_many_connections_who_is_being_answered_stays() {
        let mut case = Case::new();
        let (_, scraper) = case.comes(peer(200), 0);
        scraper.begin();
        (0..63).for_each(|n| drop(case.comes(peer(n), 1)));
        (100..150).for_each(|n| drop(case.comes(peer(n), 100)));
        assert_eq!((case.of(peer(200)), case.places.0.len()), (1, ALL));
    }

    #[test]
    fn who_has_only_just_come_has_a_moment_before_the_next_takes_its_place() {
        let mut case = Case::new();
        for n in 0..8 {
            assert_eq!(case.comes(peer(1), n).0, None);
        }
        assert_eq!(case.comes(peer(1), 8).0, Some(Duration::from_millis(2)));
        assert_eq!(case.comes(peer(1), 50).0, Some(Duration::ZERO));
    }

    #[test]
    fn a_host_has_one_address_however_it_writes_it() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("::ffff:10.0.0.1"), peer(1));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("::1"), of("::2"));
    }
}
