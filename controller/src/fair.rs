//! A queue that is fair by root: whoever has one thing to do waits for one thing of each other, not for all of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Jobs by root, taken in turn.
#[derive(Debug)]
pub(crate) struct Queue<R, J> {
    by_root: BTreeMap<R, VecDeque<J>>,
    turn: VecDeque<R>,
    queued: BTreeSet<J>,
}

impl<R: Ord + Clone, J: Ord + Clone> Default for Queue<R, J> {
    fn default() -> Self {
        Self { by_root: BTreeMap::new(), turn: VecDeque::new(), queued: BTreeSet::new() }
    }
}

impl<R: Ord + Clone, J: Ord + Clone> Queue<R, J> {
    /// Adds a job, unless it is queued already.
    pub(crate) fn push(&mut self, root: R, job: J) {
        if !self.queued.insert(job.clone()) {
            return;
        }
        let of_root = self.by_root.entry(root.clone()).or_default();
        if of_root.is_empty() {
            self.turn.push_back(root);
        }
        of_root.push_back(job);
    }

    /// Adds a job that goes before all others, unless it is queued already: the second half of what was begun.
    pub(crate) fn push_first(&mut self, root: R, job: J) {
        if !self.queued.insert(job.clone()) {
            return;
        }
        self.turn.retain(|other| *other != root);
        self.turn.push_front(root.clone());
        self.by_root.entry(root).or_default().push_front(job);
    }

    /// The next job: the oldest of the root whose turn it is.
    pub(crate) fn pop(&mut self) -> Option<J> {
        let root = self.turn.pop_front()?;
        let of_root = self.by_root.get_mut(&root)?;
        let job = of_root.pop_front();
        if of_root.is_empty() {
            self.by_root.remove(&root);
        } else {
            self.turn.push_back(root);
        }
        if let Some(job) = &job {
            self.queued.remove(job);
        }
        job
    }

    pub(crate) fn len(&self) -> usize {
        self.queued.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_huge_root_does_not_starve_another() {
        let mut queue = Queue::default();
        (0..1_000).for_each(|n| queue.push("huge", n));
        queue.push("small", 5_000);
        assert_eq!(queue.pop(), Some(0));
        assert_eq!(queue.pop(), Some(5_000));
        assert_eq!(queue.pop(), Some(1));
        assert_eq!(queue.len(), 998);
    }

    #[test]
    fn what_was_begun_goes_first() {
        let mut queue = Queue::default();
        queue.push("a", 1);
        queue.push("b", 2);
        queue.push("b", 3);
        queue.push_first("b", 4);
        queue.push_first("b", 4);
        assert_eq!(queue.len(), 4);
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [4, 1, 2, 3]);
    }

    #[test]
    fn a_job_is_queued_once() {
        let mut queue = Queue::default();
        queue.push("a", 1);
        queue.push("b", 1);
        assert_eq!((queue.pop(), queue.pop()), (Some(1), None));
        queue.push("a", 1);
        assert_eq!(queue.pop(), Some(1));
    }
}
