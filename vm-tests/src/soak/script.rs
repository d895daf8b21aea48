//! What happens in a soak, made from a seed alone: the same seed plays the same again.
//!
//! Faults and disturbances are dealt like cards, so that each comes up before any comes up again: a short soak has all of them.
use fastrand::Rng;
use std::fmt;
use std::time::Duration;

/// What a pod does wrong: ebb has to evict it, and nobody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// It takes memory, as the actor of this name and arguments does.
    Leak(&'static str),
    /// It fills the disk by this command.
    Fill(&'static str),
}

/// What happens on the node meanwhile: nobody is to be evicted for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disturbance {
    /// A pod comes and goes.
    Churn,
    /// Hundreds of processes that end at once.
    Forks,
    /// More events than the rings hold, while ebb is stopped.
    Flood,
    /// The container runtime is killed and started.
    Restart,
    /// The wall clock is stepped by so many seconds, and back.
    Clock(i64),
    /// Another configuration.
    Reload,
    /// A configuration with a mistake.
    Refused,
}

/// One after the other, until the time is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Round {
    /// One, and in every third round two at once.
    pub(super) faults: Vec<Fault>,
    /// Each with how long after the faults it begins.
    pub(super) disturbances: Vec<(Disturbance, Duration)>,
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |fault: &Fault| match fault {
            Fault::Leak(actor) => format!("leak ({actor})"),
            Fault::Fill(command) => format!("full disk ({command})"),
        };
        let faults: Vec<String> = self.faults.iter().map(words).collect();
        write!(f, "{}", faults.join(" and "))?;
        self.disturbances.iter().try_for_each(|(what, after)| {
            write!(f, ", {what:?} after {:.1} s", after.as_secs_f64())
        })
    }
}

const FAULTS: [Fault; 7] = [
    Fault::Leak("hog 0"),
    Fault::Leak("hog 100"),
    Fault::Leak("rush 500 20"),
    Fault::Leak("stubborn 200"),
    Fault::Leak("leaderless 100"),
    Fault::Fill("dd if=/dev/zero of=/data/f bs=1M"),
    Fault::Fill("while dd if=/dev/zero bs=1M count=2 >> /f 2>/dev/null; do sleep 0.1; done"),
];
const KINDS: usize = 7;
/// Disturbances of one round.
const AT_ONCE: usize = 3;
/// Within which a round's disturbances begin, milliseconds.
const SPREAD: u64 = 3000;
const HOUR: i64 = 3600;

/// The rounds of a seed, without end.
#[derive(Debug)]
pub(super) struct Script {
    rng: Rng,
    faults: Vec<Fault>,
    kinds: Vec<usize>,
    rounds: usize,
}

impl Script {
    pub(super) fn of(seed: u64) -> Self {
        Self { rng: Rng::with_seed(seed), faults: Vec::new(), kinds: Vec::new(), rounds: 0 }
    }

    fn fault(&mut self) -> Fault {
        if self.faults.is_empty() {
            self.faults = FAULTS.to_vec();
            self.rng.shuffle(&mut self.faults);
        }
        self.faults.pop().unwrap_or(FAULTS[0])
    }

    /// The kinds of one round's disturbances. None comes twice: they go on at the same time, and would get into each other's way.
    fn kinds(&mut self) -> Vec<usize> {
        let mut dealt: Vec<usize> = Vec::new();
        while dealt.len() < AT_ONCE {
            if self.kinds.is_empty() {
                self.kinds = (0..KINDS).collect();
                self.rng.shuffle(&mut self.kinds);
            }
            // Of a deck that was begun in this round the first that is not out yet.
            let Some(at) = self.kinds.iter().rposition(|kind| !dealt.contains(kind)) else { break };
            dealt.push(self.kinds.remove(at));
        }
        dealt
    }

    fn disturbance(&mut self, kind: usize) -> Disturbance {
        match kind {
            1 => Disturbance::Forks,
            2 => Disturbance::Flood,
            3 => Disturbance::Restart,
            4 => {
                let step = self.rng.i64(1..=2 * HOUR);
                Disturbance::Clock(if self.rng.bool() { step } else { -step })
            }
            5 => Disturbance::Reload,
            6 => Disturbance::Refused,
            _ => Disturbance::Churn,
        }
    }
}

impl Iterator for Script {
    type Item = Round;

    fn next(&mut self) -> Option<Round> {
        self.rounds += 1;
        let faults = if self.rounds.is_multiple_of(3) { 2 } else { 1 };
        let faults = (0..faults).map(|_| self.fault()).collect();
        let mut disturbances = Vec::new();
        for kind in self.kinds() {
            let after = Duration::from_millis(self.rng.u64(..SPREAD));
            disturbances.push((self.disturbance(kind), after));
        }
        Some(Round { faults, disturbances })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_plays_the_same_again_and_another_one_does_not() {
        let of = |seed| Script::of(seed).take(20).collect::<Vec<_>>();
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
    }

    #[test]
    fn seven_rounds_have_every_fault_and_every_disturbance() {
        for seed in 0..50 {
            let rounds: Vec<Round> = Script::of(seed).take(7).collect();
            let faults = rounds.iter().flat_map(|round| &round.faults);
            assert!(FAULTS.iter().all(|fault| faults.clone().any(|one| one == fault)), "{seed}");
            let kinds = rounds.iter().flat_map(|round| &round.disturbances);
            let mut kinds: Vec<_> = kinds.map(|(what, _)| std::mem::discriminant(what)).collect();
            kinds.dedup();
            let different: std::collections::HashSet<_> = kinds.into_iter().collect();
            assert_eq!(different.len(), KINDS, "{seed}");
        }
    }

    #[test]
    fn no_kind_of_disturbance_comes_twice_in_a_round() {
        for seed in 0..50 {
            for round in Script::of(seed).take(20) {
                let kinds = round.disturbances.iter();
                let kinds = kinds.map(|(what, _)| std::mem::discriminant(what));
                let different: std::collections::HashSet<_> = kinds.collect();
                assert_eq!(different.len(), AT_ONCE, "{seed}: {round}");
            }
        }
    }
}
