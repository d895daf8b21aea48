//! Values that many objects share, kept once: namespaces, kinds, finalizers.
//!
//! A value goes with the last object that has it, so what users make up cannot fill the memory.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;

/// Shared values, each once.
#[derive(Debug)]
pub(crate) struct Names<T: ?Sized + Ord>(BTreeSet<Arc<T>>);

impl<T: ?Sized + Ord> Clone for Names<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: ?Sized + Ord> Default for Names<T> {
    fn default() -> Self {
        Self(BTreeSet::new())
    }
}

impl<T: ?Sized + Ord> Names<T> {
    /// The shared form of `value`, made by `make` where nobody has it yet.
    pub(crate) fn share(&mut self, value: &T, make: impl FnOnce(&T) -> Arc<T>) -> Arc<T> {
        if let Some(known) = self.0.get(value) {
            return known.clone();
        }
        let new = make(value);
        self.0.insert(Arc::clone(&new));
        new
    }

    /// Gives one use of a value back.
    pub(crate) fn release(&mut self, value: &Arc<T>) {
        // Ours and the set's: nobody else has it.
        if Arc::strong_count(value) == 2 {
            self.0.remove(value);
        }
    }
}
