//! The places of calls that wait: in the gRPC calls, at the HTTP port, and for the leader.

use std::sync::Arc;

use super::{Counted, NotSent, ServiceError, Source, SourceCount};
use crate::limits::{PLACES_FEW_ONE_IN, PLACES_KEPT_ONE_IN};

/// A number of places. The last quarter of them is kept for sources that have few, so that one source cannot use all.
/// Clones share the places.
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
        self.taken.all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
