//! Counts what a node has open, by the source of the calls.

use std::collections::HashMap;
use std::sync::Arc;

use super::Source;
use crate::mutex::Mutex;

/// The number of things of one kind that are open, of each source and of all together.
#[derive(Debug, Default)]
pub(crate) struct SourceCount(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    /// The counts of the sources that have something open.
    of_source: HashMap<Source, usize>,
}

/// One of the things that are counted, until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    among: Arc<SourceCount>,
    source: Source,
}

impl SourceCount {
    /// Counts one more of a source, unless `admit` refuses it. `admit` is called with the count of all sources and the
    /// count of this one.
    pub(crate) fn add<E>(
        self: &Arc<Self>,
        source: Source,
        admit: impl FnOnce(usize, usize) -> Result<(), E>,
    ) -> Result<Counted, E> {
        let mut counts = self.0.lock();
        admit(counts.all, counts.of_source.get(&source).copied().unwrap_or_default())?;
        counts.all += 1;
        *counts.of_source.entry(source.clone()).or_default() += 1;
        drop(counts);
        Ok(Counted { among: Arc::clone(self), source })
    }

    /// Returns the count of all sources.
    #[cfg(test)]
    pub(crate) fn all(&self) -> usize {
        self.0.lock().all
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = self.among.0.lock();
        counts.all -= 1;
        if let Some(of_source) = counts.of_source.get_mut(&self.source) {
            *of_source -= 1;
            if *of_source == 0 {
                counts.of_source.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// What is dropped is no longer counted, and a source that has nothing open uses no memory.
    #[test]
    fn what_is_dropped_is_not_counted() {
        let count = Arc::new(SourceCount::default());
        let add = |connection, counts| {
            let added = count.add(Source::Connection(connection), |all, of_source| {
                assert_eq!((all, of_source), counts);
                Ok::<_, Infallible>(())
            });
            added.expect("never refused")
        };
        let (first, second, other) = (add(1, (0, 0)), add(1, (1, 1)), add(2, (2, 0)));
        assert_eq!(count.add(Source::Connection(1), |all, of_source| Err((all, of_source))).err(), Some((3, 2)));
        drop((first, other));
        let third = add(2, (1, 0));
        drop((second, third));
        assert!(count.0.lock().all == 0 && count.0.lock().of_source.is_empty());
    }
}
