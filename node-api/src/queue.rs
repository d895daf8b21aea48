//! The evictions that the API server is still to be told of, in their order.
//!
//! ```text
//!  add ──► waits ──begin──► is told ──take──► told
//!            ▲                 └─put_back─┐
//!            └── in its turn; behind the others after three errors of the API server's own in a row
//! ```
use ebb_agent::cluster::Eviction;
use ebb_kube::Failure;
use std::collections::BTreeMap;
use tokio::sync::watch;
use tokio::time::Instant;

/// After so many errors of the API server's own about one eviction the others are told first.
const BEHIND_AFTER: u32 = 3;

/// All of them, by their turn.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    items: BTreeMap<u64, Item>,
    next: u64,
    /// What was there when telling failed last is told one by one, in its order: the numbers below this.
    one_by_one: u64,
}

/// An eviction that is to be told.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) eviction: Eviction,
    /// When it was added.
    pub(crate) began: Instant,
    /// Whether nothing of the pod runs any more; `None` for one of an earlier run, of which that is not known.
    pub(crate) death: Option<watch::Receiver<bool>>,
    is_running: bool,
    deadlines: u32,
    /// How often the API server has said in a row that it failed by itself.
    errors: u32,
}

impl Item {
    /// How often the API server has kept it waiting past the deadline of a call.
    pub(crate) fn deadlines(&self) -> u32 {
        self.deadlines
    }
}

impl Queue {
    /// Adds one, behind all others.
    pub(crate) fn add(&mut self, eviction: Eviction, death: Option<watch::Receiver<bool>>) {
        let began = Instant::now();
        let item = Item { eviction, began, death, is_running: false, deadlines: 0, errors: 0 };
        self.items.insert(self.next, item);
        self.next += 1;
    }

    /// What there is by now is told one by one, in its order.
    pub(crate) fn tell_one_by_one(&mut self) {
        self.one_by_one = self.next;
    }

    /// All of them, in their order.
    pub(crate) fn evictions(&self) -> impl Iterator<Item = &Eviction> {
        self.items.values().map(|item| &item.eviction)
    }

    /// Gives up the oldest, as long as there are more than `most`; returns how many. One that is just being told stays.
    pub(crate) fn give_up_beyond(&mut self, most: usize) -> usize {
        let mut given_up = 0;
        while self.items.len() > most {
            let oldest = self.items.iter().find(|(_, item)| !item.is_running);
            let Some(oldest) = oldest.map(|(number, _)| *number) else { break };
            self.items.remove(&oldest);
            given_up += 1;
        }
        given_up
    }

    /// Those whose turn it is while `most` are told at the same time, and one where telling `is_failing`; each is returned once.
    pub(crate) fn begin(&mut self, most: usize, is_failing: bool) -> Vec<(u64, &Item)> {
        let first = self.items.keys().next().copied().unwrap_or_default();
        let most = if is_failing || first < self.one_by_one { 1 } else { most };
        let running = self.items.values().filter(|item| item.is_running).count();
        let waiting = self.items.iter_mut().filter(|(_, item)| !item.is_running);
        let due = waiting.take(most.saturating_sub(running)).map(|(number, item)| {
            item.is_running = true;
            (*number, &*item)
        });
        due.collect()
    }

    /// Takes out one that was told.
    pub(crate) fn take(&mut self, number: u64) -> Option<Item> {
        self.items.remove(&number)
    }

    /// An attempt has failed: it is gone on with in its turn, or behind the others where the API server fails at this one again and again.
    pub(crate) fn put_back(&mut self, number: u64, failure: &Failure, is_deleted: bool) {
        self.tell_one_by_one();
        let Some(mut item) = self.take(number) else { return };
        item.is_running = false;
        // What was deleted is not deleted again with another grace.
        item.eviction.is_deleting |= is_deleted;
        item.deadlines += u32::from(matches!(failure, Failure::Deadline(_)));
        // 503 and 504 are about the whole server.
        let is_own = failure.code().is_some_and(|code| code >= 500 && !matches!(code, 503 | 504));
        item.errors = if is_own { item.errors + 1 } else { 0 };
        let number = if item.errors >= BEHIND_AFTER {
            item.errors = 0;
            self.next += 1;
            self.next - 1
        } else {
            number
        };
        self.items.insert(number, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn eviction(name: &str) -> Eviction {
        Eviction {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            uid: name.to_owned(),
            grace: 1,
            reason: "Evicted".to_owned(),
            message: String::new(),
            condition: false,
            annotations: Vec::new(),
            at: 0,
            is_deleting: false,
        }
    }

    fn queue(names: &[&str]) -> Queue {
        let mut queue = Queue::default();
        names.iter().for_each(|name| queue.add(eviction(name), None));
        queue
    }

    fn names(queue: &Queue) -> Vec<&str> {
        queue.evictions().map(|eviction| eviction.name.as_str()).collect()
    }

    fn begun(queue: &mut Queue, is_failing: bool) -> Vec<u64> {
        queue.begin(2, is_failing).into_iter().map(|(number, _)| number).collect()
    }

    fn failure(code: u16) -> Failure {
        Failure::Status {
            code,
            message: String::new(),
            name: None,
            retry_after: None,
            by_budget: false,
            other_uid: false,
        }
    }

    #[test]
    fn so_many_are_told_at_once_in_their_order_and_each_once() {
        let mut queue = queue(&["a", "b", "c"]);
        assert_eq!(begun(&mut queue, false), [0, 1]);
        assert!(begun(&mut queue, false).is_empty());
        assert_eq!(queue.take(1).map(|item| item.eviction.name).as_deref(), Some("b"));
        assert_eq!(begun(&mut queue, false), [2]);
    }

    #[test]
    fn what_was_there_when_one_failed_is_told_one_by_one_and_what_comes_later_is_not() {
        let mut queue = queue(&["a", "b"]);
        assert_eq!(begun(&mut queue, false), [0, 1]);
        queue.put_back(0, &failure(503), false);
        queue.put_back(1, &failure(503), false);
        queue.add(eviction("c"), None);
        queue.add(eviction("d"), None);
        assert_eq!(begun(&mut queue, false), [0]);
        queue.take(0);
        assert_eq!(begun(&mut queue, false), [1]);
        queue.take(1);
        assert_eq!(begun(&mut queue, true), [2], "the API server still fails");
        assert_eq!(begun(&mut queue, false), [3]);
    }

    #[test]
    fn one_at_which_the_api_server_fails_by_itself_goes_behind_the_others() {
        let mut queue = queue(&["a", "b"]);
        for _ in 0..BEHIND_AFTER - 1 {
            queue.put_back(0, &failure(500), false);
        }
        // Of these the whole server speaks, or nobody.
        queue.put_back(0, &failure(503), false);
        queue.put_back(0, &Failure::Deadline(Duration::from_secs(1)), true);
        assert_eq!(names(&queue), ["a", "b"]);
        for _ in 0..BEHIND_AFTER {
            queue.put_back(0, &failure(500), false);
        }
        assert_eq!(names(&queue), ["b", "a"]);
        let last = queue.take(2).unwrap();
        assert!(last.eviction.is_deleting, "as was said once");
        assert_eq!(last.deadlines(), 1);
    }

    #[test]
    fn the_oldest_are_given_up_but_not_those_that_are_being_told() {
        let mut queue = queue(&["a", "b", "c", "d", "e"]);
        begun(&mut queue, false);
        assert_eq!(queue.give_up_beyond(3), 2);
        assert_eq!(names(&queue), ["a", "b", "e"]);
        assert_eq!(queue.give_up_beyond(1), 1);
        assert_eq!(queue.give_up_beyond(1), 0, "both are being told");
    }
}
