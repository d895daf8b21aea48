//! From a sequence that ends otherwise under ebb to one without an operation that it could do without.
//!
//! All candidates of a round, each with one operation less, are played at once.
use crate::random::{Trace, play_both};
use crate::sequence::Sequence;
use crate::session::Session;
use anyhow::Result;
use std::fmt;

/// A sequence, and how it was played by each.
pub(crate) struct Difference {
    sequence: Sequence,
    kcm: Trace,
    ebb: Trace,
}

/// A shortest one that differs; `None` when none of the whole ones does when they are played again.
pub(crate) fn shrink(session: &Session, whole: Vec<Sequence>) -> Result<Option<Difference>> {
    let mut shortest = first_that_differs(session, whole)?;
    while let Some(found) = &shortest {
        let without = |at: usize| {
            let mut sequence = found.sequence.clone();
            sequence.remove(at);
            sequence
        };
        let candidates = (0..found.sequence.len()).map(without).collect();
        match first_that_differs(session, candidates)? {
            None => break,
            shorter => shortest = shorter,
        }
    }
    Ok(shortest)
}

fn first_that_differs(session: &Session, candidates: Vec<Sequence>) -> Result<Option<Difference>> {
    let [kcm, ebb] = play_both(session, &candidates)?;
    let played = candidates.into_iter().zip(kcm.into_iter().zip(ebb));
    let mut different = played.filter(|(_, (kcm, ebb))| kcm != ebb);
    Ok(different.next().map(|(sequence, (kcm, ebb))| Difference::new(&sequence, &kcm, &ebb)))
}

impl Difference {
    pub(crate) fn new(sequence: &Sequence, kcm: &Trace, ebb: &Trace) -> Self {
        Self { sequence: sequence.clone(), kcm: kcm.clone(), ebb: ebb.clone() }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "as in:")?;
        for (step, operation) in self.sequence.iter().enumerate() {
            writeln!(f, "  {operation}")?;
            let (kcm, ebb) = (&self.kcm[step], &self.ebb[step]);
            if kcm == ebb {
                writeln!(f, "      both {kcm:?}")?;
            } else {
                writeln!(f, "      kcm  {kcm:?}\n      ebb  {ebb:?}")?;
            }
        }
        Ok(())
    }
}
