//! Checks over all clients: hand-overs of one lock, and outages.

use std::time::Duration;

use crate::clock::Instant;
use crate::model::FencingToken;
use crate::mutex::Mutex;

/// The hand-overs of one lock from client to client.
#[derive(Debug, Default)]
pub(super) struct HandOvers(Mutex<Passes>);

#[derive(Debug, Default)]
struct Passes {
    /// Number of clients that hold the lock.
    holders: u64,
    /// The last client that was granted the lock.
    last: Option<u64>,
    largest: Option<FencingToken>,
    /// When the last release was called.
    released: Instant,
}

/// What a grant proves about the previous hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Passed {
    /// Time since the previous release was called.
    pub(super) gap: Option<Duration>,
    /// Whether the previous holder was another client.
    pub(super) handed_over: bool,
    /// Whether another client still held the lock, or had a larger token.
    pub(super) violated: bool,
}

impl HandOvers {
    /// Records that a client holds the lock.
    pub(super) fn granted(&self, client: u64, token: FencingToken, now: Instant) -> Passed {
        let mut passes = self.0.lock();
        let gap = passes.last.map(|_| now.since(passes.released));
        let handed_over = passes.last.is_some_and(|last| last != client);
        let violated = passes.holders != 0 || Some(token) <= passes.largest;
        passes.holders += 1;
        passes.last = Some(client);
        passes.largest = passes.largest.max(Some(token));
        Passed { gap, handed_over, violated }
    }

    /// Records that the holder is about to release the lock.
    pub(super) fn releasing(&self, now: Instant) {
        let mut passes = self.0.lock();
        passes.released = now;
        passes.holders -= 1;
    }
}

/// Outages: times in which no client was served.
#[derive(Debug)]
pub(super) struct Outages {
    /// The shortest time that counts as an outage.
    least: Duration,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// When a client was served last.
    last: Instant,
    /// Start and end of each time in which no client was served.
    gaps: Vec<(Instant, Instant)>,
    /// Start and end of each time in which one client was not served.
    waits: Vec<(Instant, Instant)>,
}

/// A time in which no client was served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outage {
    /// When a client was served last.
    pub(super) from: Instant,
    /// Time from then until the first waiting client was served, until half of them were, and until all were.
    pub(super) again: [Duration; 3],
}

impl Outages {
    /// Counts outages from `began` on.
    pub(super) fn new(least: Duration, began: Instant) -> Self {
        Self { least, seen: Mutex::new(Seen { last: began, ..Seen::default() }) }
    }

    /// Records that a client was served. It was last served at `own`.
    pub(super) fn served(&self, own: Instant, now: Instant) {
        let mut seen = self.seen.lock();
        let last = seen.last;
        seen.last = last.max(now);
        let outage = self.least <= now.since(last);
        seen.gaps.extend(outage.then_some((last, now)));
        if outage || self.least <= now.since(own) {
            seen.waits.push((own, now));
        }
    }

    /// Number of outages so far.
    pub(super) fn count(&self) -> usize {
        self.seen.lock().gaps.len()
    }

    /// Returns all outages in order. An outage that has not ended counts until `end`.
    pub(super) fn all(&self, end: Instant) -> Vec<Outage> {
        let seen = self.seen.lock();
        let open = (self.least <= end.since(seen.last)).then_some((seen.last, end));
        let mut gaps: Vec<_> = seen.gaps.iter().copied().chain(open).collect();
        gaps.sort_unstable();
        gaps.iter().map(|(from, to)| outage(*from, *to, &seen.waits)).collect()
    }
}

fn outage(from: Instant, to: Instant, waits: &[(Instant, Instant)]) -> Outage {
    let over = waits.iter().filter(|(began, ended)| *began <= from && to <= *ended);
    let mut again: Vec<_> = over.map(|(_, ended)| ended.since(from)).collect();
    again.sort_unstable();
    let first = to.since(from);
    let at = |index: usize| again.get(index).copied().unwrap_or(first);
    Outage { from, again: [first, at(again.len() / 2), at(again.len().saturating_sub(1))] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn token(counter: u64) -> FencingToken {
        FencingToken::new(1, counter)
    }

    /// Hand-overs are allowed. Two holders at once are a violation, and so is a token that does not grow.
    #[test]
    fn two_holders_are_detected() {
        let hand_overs = HandOvers::default();
        let first = Passed { gap: None, handed_over: false, violated: false };
        assert_eq!(hand_overs.granted(0, token(5), at(1)), first);
        hand_overs.releasing(at(2));
        let next = Passed { gap: Some(ms(3)), handed_over: true, violated: false };
        assert_eq!(hand_overs.granted(1, token(6), at(5)), next);
        assert!(hand_overs.granted(2, token(7), at(6)).violated, "together");
        hand_overs.releasing(at(7));
        hand_overs.releasing(at(7));
        assert!(!hand_overs.granted(2, token(8), at(8)).handed_over, "the same client again");
        hand_overs.releasing(at(9));
        assert!(hand_overs.granted(0, token(8), at(10)).violated, "an old token");
    }

    /// A time in which no client is served is an outage; a single client that waits is not. An outage that has not
    /// ended counts until the end.
    #[test]
    fn outages_end_for_the_clients_that_waited() {
        let outages = Outages::new(ms(100), at(0));
        outages.served(at(0), at(50));
        outages.served(at(10), at(140));
        assert_eq!(outages.count(), 0, "others were served meanwhile");
        outages.served(at(140), at(640));
        outages.served(at(50), at(700));
        outages.served(at(60), at(720));
        let first = Outage { from: at(140), again: [ms(500), ms(560), ms(580)] };
        assert_eq!(outages.all(at(730)), std::slice::from_ref(&first));
        let second = Outage { from: at(720), again: [ms(280); 3] };
        assert_eq!(outages.all(at(1_000)), [first, second]);
    }
}
