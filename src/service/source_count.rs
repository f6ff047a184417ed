//! Counts what a node has open, by the source of the calls, and limits the calls that wait.

use std::collections::HashMap;
use std::sync::Arc;

use super::{NotSent, ServiceError, Source};
use crate::limits::{PLACES_FEW_ONE_IN, PLACES_KEPT_ONE_IN};
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

/// A number of places for calls that wait: in the gRPC calls, at the HTTP port, and for the leader. The last quarter of
/// them is kept for sources that have few, so that one source cannot use all. Clones share the places.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    most: usize,
    taken: Arc<SourceCount>,
}

/// One place, which is free again once this is dropped.
pub(crate) type TakenPlace = Counted;

impl Places {
    /// Creates this number of free places.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, taken: Arc::default() }
    }

    /// Takes a place for a call of this source.
    ///
    /// # Errors
    /// [`NotSent::Overloaded`]: there is none for it.
    pub(crate) fn take(&self, source: Source) -> Result<TakenPlace, ServiceError> {
        let shared = self.most - self.most / PLACES_KEPT_ONE_IN;
        let few = (self.most / PLACES_FEW_ONE_IN).max(1);
        let most = |of_source| if of_source < few { self.most } else { shared };
        let admitted = |all, of_source| if all < most(of_source) { Ok(()) } else { Err(NotSent::OVERLOADED) };
        self.taken.add(source, admitted).map_err(ServiceError::not_sent)
    }

    /// Returns the number of places that are taken.
    #[cfg(test)]
    pub(crate) fn in_use(&self) -> usize {
        self.taken.0.lock().all
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

    /// A source that asks without end gets three quarters of the places. The others are for sources that have few,
    /// until all are taken. A place is free again when it is dropped.
    #[test]
    fn one_source_leaves_room() {
        let places = Places::new(64);
        let fill = |source: u64| -> Vec<TakenPlace> {
            std::iter::from_fn(|| places.take(Source::Connection(source)).ok()).collect()
        };
        let mut greedy = fill(1);
        assert_eq!(greedy.len(), 48);
        let modest: Vec<_> = (2..=6).map(fill).collect();
        assert_eq!(modest.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 4, 4, 0]);
        greedy.truncate(47);
        assert!(places.take(Source::Connection(1)).is_err(), "the place is for another source");
        assert!(places.take(Source::Connection(6)).is_ok());
        drop((greedy, modest));
        assert_eq!(places.in_use(), 0);
        assert!(Places::new(1).take(Source::InProcess).is_ok(), "a single place is for all");
    }
}
