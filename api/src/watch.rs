//! One Watch: a task that hands a client record after record, at the client's own pace.
//!
//! Nothing is queued for a client but the answer that it is to take next: where it stands is a number, and what it missed is told as a gap.

use crate::pace::Hand;
use crate::recent::{Next, Recent};
use crate::sink::Records;
use crate::wire::watch_response::Item;
use crate::wire::{Begin, Gap, GapReason, WatchRequest, WatchResponse};
use ebb_journal::Entry;
use std::sync::{Mutex, PoisonError};
use tokio::sync::watch;
use tonic::Status;

/// The records of late, and who waits for the next. Only the server's own thread ever has it.
#[derive(Debug)]
pub(crate) struct Board {
    recent: Mutex<Recent>,
    state: watch::Sender<State>,
    run: String,
    version: String,
}

/// What those who wait are woken by.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    newest: u64,
    is_ending: bool,
}

impl Board {
    pub(crate) fn new(run: String, version: String) -> Self {
        Self { recent: Mutex::default(), state: watch::Sender::default(), run, version }
    }

    /// This run of ebb.
    pub(crate) fn run(&self) -> &str {
        &self.run
    }

    /// Puts up what came, and wakes those who wait.
    pub(crate) fn put_up(&self, entry: &Entry, records: &mut Records) {
        let newest = self.with(|recent| {
            records.keep(entry, recent);
            recent.newest()
        });
        self.state.send_modify(|state| state.newest = newest);
    }

    /// Nothing more will come: each Watch ends when its client has all that is there.
    pub(crate) fn end(&self) {
        self.state.send_modify(|state| state.is_ending = true);
    }

    fn with<T>(&self, look: impl FnOnce(&mut Recent) -> T) -> T {
        look(&mut self.recent.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Where a client begins, and what it is told first.
    fn begin(&self, request: &WatchRequest) -> (u64, Vec<Item>) {
        let (oldest, newest) = self.with(|recent| (recent.oldest(), recent.newest()));
        let begin = Begin { run: self.run.clone(), oldest, newest, version: self.version.clone() };
        let mut items = vec![Item::Begin(begin)];
        let is_of_another = request.run.as_ref().is_some_and(|run| *run != self.run);
        let position = match request.after {
            None => newest,
            Some(after) if is_of_another || after > newest => {
                let reason = GapReason::AnotherRun.into();
                items.push(Item::Gap(Gap { reason, first: None, last: None }));
                oldest.map_or(newest, |oldest| oldest - 1)
            }
            Some(after) => after,
        };
        (position, items)
    }
}

/// Hands a client what it asks for until it has gone, takes nothing in, or ebb ends.
pub(crate) async fn hand_out(
    board: &Board,
    request: &WatchRequest,
    hand: &Hand<Result<WatchResponse, Status>>,
) {
    let mut state = board.state.subscribe();
    let (mut position, first) = board.begin(request);
    let mut first = first.into_iter();
    loop {
        let is_ending = state.borrow_and_update().is_ending;
        loop {
            let item = match first.next() {
                Some(item) => item,
                None => match board.with(|recent| recent.after(position)) {
                    Next::Record(record) => {
                        position = record.seq;
                        Item::Record(record.as_ref().clone())
                    }
                    Next::Gap(gap) => {
                        position = gap.last();
                        Item::Gap(gap)
                    }
                    Next::Nothing => break,
                },
            };
            if !hand.over(Ok(WatchResponse { item: Some(item) })).await {
                return;
            }
        }
        if is_ending {
            hand.over(Err(Status::unavailable("ebb ends"))).await;
            return;
        }
        tokio::select! {
            changed = state.changed() => if changed.is_err() { return },
            () = hand.to.closed() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::records;
    use ebb_journal::{Record, Sink as _};
    use ebb_policy::Time;

    fn with_three() -> Board {
        let board = Board::new("now".into(), "0".into());
        let (mut sink, mut inbox) = records();
        for records in 0..3 {
            sink.take(&Entry::new(Time(1), Record::Dropped { records }));
            let entry = inbox.waiting().unwrap();
            board.put_up(&entry, &mut inbox);
        }
        board
    }

    fn begun(after: Option<u64>, run: Option<&str>) -> (u64, bool) {
        let request = WatchRequest { after, run: run.map(str::to_owned) };
        let (position, items) = with_three().begin(&request);
        assert!(matches!(&items[0], Item::Begin(begin) if begin.newest == 3));
        let is_of_another = |item: &Item| matches!(item, Item::Gap(gap) if gap.reason() == GapReason::AnotherRun && gap.first.is_none());
        (position, items.get(1).is_some_and(is_of_another))
    }

    #[test]
    fn a_client_begins_with_what_comes_next_or_after_the_number_that_it_has() {
        assert_eq!(begun(None, None), (3, false));
        assert_eq!(begun(Some(0), None), (0, false));
        assert_eq!(begun(Some(2), Some("now")), (2, false));
    }

    #[test]
    fn a_number_of_another_run_is_a_gap_and_all_that_is_kept_follows() {
        assert_eq!(begun(Some(2), Some("before")), (0, true));
        assert_eq!(begun(Some(9), None), (0, true), "there is no such number in this run");
    }
}
