//! One lane of the proposer's queue: calls of one kind in the order of their arrival.

use std::collections::{HashMap, VecDeque};

use tokio::sync::oneshot;

use crate::limits::{PROPOSALS_OF_A_SOURCE_MAX, PROPOSALS_SHARED_MAX, PROPOSALS_WAITING_MAX};
use crate::model::Reply;
use crate::service::{ServiceError, Source};

/// Channel to a waiting call.
pub(in crate::node) type ReplySender = oneshot::Sender<Result<Reply, ServiceError>>;

/// A queued command or renewal with the channel to its caller.
#[derive(Debug)]
pub(in crate::node) struct Waiting<T> {
    /// Command or renewal for the entry.
    pub(in crate::node) what: T,
    /// Where the call comes from.
    pub(in crate::node) source: Source,
    /// Number of renewals that the queue had received before this call.
    pub(in crate::node) renewals_before: u64,
    /// Channel for the reply.
    pub(in crate::node) answer: ReplySender,
}

/// The waiting calls of one kind. The last quarter of its places is kept for sources that have few calls waiting, so
/// that one source cannot use all places.
#[derive(Debug)]
pub(super) struct Lane<T> {
    waiting: VecDeque<Waiting<T>>,
    /// Number of calls that were taken out so far.
    taken: u64,
    /// Number of waiting calls of each source. Counted only while more than [`PROPOSALS_SHARED_MAX`] wait.
    of_source: Option<HashMap<Source, usize>>,
}

impl<T> Default for Lane<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), taken: 0, of_source: None }
    }
}

impl<T> Lane<T> {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns how many calls were taken out so far.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns how many calls were received so far.
    pub(super) fn received(&self) -> u64 {
        self.taken + self.waiting.len() as u64
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Waiting<T>> {
        self.waiting.iter()
    }

    /// Whether there are places for this number of calls of one source.
    pub(super) fn admits(&mut self, source: &Source, calls: usize) -> bool {
        let then = self.waiting.len() + calls;
        if then <= PROPOSALS_SHARED_MAX {
            self.of_source = None;
            return true;
        }
        let waiting = &self.waiting;
        let of_source = self.of_source.get_or_insert_with(|| {
            let mut counts = HashMap::new();
            waiting.iter().for_each(|waiting| *counts.entry(waiting.source.clone()).or_default() += 1);
            counts
        });
        let of_source = of_source.get(source).copied().unwrap_or_default();
        then <= PROPOSALS_WAITING_MAX && of_source + calls <= PROPOSALS_OF_A_SOURCE_MAX
    }

    pub(super) fn push(&mut self, waiting: Waiting<T>) {
        if let Some(of_source) = &mut self.of_source {
            *of_source.entry(waiting.source.clone()).or_default() += 1;
        }
        self.waiting.push_back(waiting);
    }

    /// Takes this number of calls from the front.
    pub(super) fn take(&mut self, calls: usize) -> Vec<Waiting<T>> {
        self.of_source = None;
        self.taken += calls as u64;
        self.waiting.drain(..calls).collect()
    }

    pub(super) fn take_all(&mut self) -> Vec<Waiting<T>> {
        self.take(self.waiting.len())
    }

    /// Returns how many calls from the front fit into the limits, and their bytes. The first call always fits.
    pub(super) fn fitting(&self, most: usize, bytes: usize, weigh: impl Fn(&T) -> usize) -> (usize, usize) {
        let mut used = 0;
        for (count, waiting) in self.waiting.iter().take(most).enumerate() {
            let next = used + weigh(&waiting.what);
            if bytes < next && 0 < count {
                return (count, used);
            }
            used = next;
        }
        (self.waiting.len().min(most), used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(lane: &mut Lane<usize>, source: &Source) -> usize {
        (0..)
            .take_while(|number| {
                let admitted = lane.admits(source, 1);
                if admitted {
                    let (source, answer) = (source.clone(), oneshot::channel().0);
                    lane.push(Waiting { what: *number, source, renewals_before: 0, answer });
                }
                admitted
            })
            .count()
    }

    /// H-12: a source that sends without end uses three quarters of the places. The other places are for sources with
    /// few waiting calls, until all places are used. Calls that leave make space for all sources.
    #[test]
    fn one_client_leaves_room() {
        let mut lane = Lane::default();
        let (greedy, second) = (&Source::Connection(1), &Source::Connection(2));
        assert_eq!(fill(&mut lane, greedy), PROPOSALS_SHARED_MAX);
        assert!(lane.admits(second, PROPOSALS_OF_A_SOURCE_MAX));
        assert!(!lane.admits(second, PROPOSALS_OF_A_SOURCE_MAX + 1), "a list counts as its calls");
        let others: usize = [second, &Source::Node(2), &Source::InProcess]
            .into_iter()
            .map(|source| {
                let places = fill(&mut lane, source);
                assert_eq!(places, PROPOSALS_OF_A_SOURCE_MAX);
                assert!(!lane.admits(greedy, 1), "it has too many");
                places
            })
            .sum();
        let left = PROPOSALS_WAITING_MAX - PROPOSALS_SHARED_MAX - others;
        assert_eq!(
            (3..)
                .map_while(|id| Some(fill(&mut lane, &Source::Connection(id))).filter(|places| 0 < *places))
                .sum::<usize>(),
            left
        );
        assert_eq!(lane.len(), PROPOSALS_WAITING_MAX);
        let taken = lane.take(PROPOSALS_WAITING_MAX / 2);
        assert!(taken.iter().map(|waiting| waiting.what).eq(0..taken.len()), "in the order of their arrival");
        assert_eq!(fill(&mut lane, greedy), PROPOSALS_SHARED_MAX - PROPOSALS_WAITING_MAX / 2);
        lane.take_all();
        assert_eq!(fill(&mut lane, greedy), PROPOSALS_SHARED_MAX);
    }
}
