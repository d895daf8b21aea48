//! An answer that is dear to make, kept for a moment: however many ask, it is made no oftener.

use crate::Answer;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long it is good for.
const GOOD_FOR: Duration = Duration::from_millis(100);

/// The latest answer.
#[derive(Debug, Default)]
pub struct Kept(Mutex<Option<(Instant, Answer)>>);

impl Kept {
    /// The answer that was made last, unless that was too long ago by `now`: then the one that `make` makes.
    pub fn get(&self, now: Instant, make: impl FnOnce() -> Answer) -> Answer {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, answer)) = &*kept
            && now.saturating_duration_since(*at) < GOOD_FOR
        {
            return answer.clone();
        }
        let answer = make();
        *kept = Some((now, answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_made_once_in_a_while_however_many_ask() {
        let (kept, now) = (Kept::default(), Instant::now());
        let mut made = 0;
        for ms in 0..250 {
            let answer = kept.get(now + Duration::from_millis(ms), || {
                made += 1;
                Answer::metrics(ms.to_string())
            });
            assert_eq!(answer, Answer::metrics((ms / 100 * 100).to_string()));
        }
        assert_eq!(made, 3);
    }
}
