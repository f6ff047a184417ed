//! The count of a lease's refreshes. Whoever has the handle may refresh a lease, from any process, so that they count by
//! what they have in common: log time.

use crate::clock::Clock;
use crate::model::LogTime;

/// Below a millisecond of log time: attempts of one caller grow there, and two callers begin at different points.
const FINE: u64 = 1 << 16;

/// One caller's count.
///
/// - Every attempt is larger than those before it of the same caller.
/// - It is larger than those of any caller who had his answer before this caller last heard of log time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempts {
    last: u64,
    known: LogTime,
}

impl Attempts {
    /// For a caller who knows that it is so late.
    pub(super) fn since(known: LogTime) -> Self {
        Self { last: 0, known }
    }

    /// An answer says that it is so late.
    pub(super) fn heard(&mut self, stamp: LogTime) {
        self.known = self.known.max(stamp);
    }

    /// The number of the next attempt.
    pub(super) fn next(&mut self, clock: &dyn Clock) -> u64 {
        let begin = self.known.0.saturating_mul(FINE).saturating_add(clock.random_below(FINE));
        self.last = self.last.saturating_add(1).max(begin);
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    /// Attempts grow, and those of a caller who heard of a later time are above those of one who did not.
    #[test]
    fn attempts_grow_with_log_time() {
        let clock = ManualClock::new(1);
        let mut early = Attempts::since(LogTime(1_000));
        let first: Vec<_> = (0..100).map(|_| early.next(&clock)).collect();
        assert!(first.is_sorted_by(|one, next| one < next), "{first:?}");
        let mut late = Attempts::since(LogTime(1_002));
        let other = late.next(&clock);
        assert!(first.iter().all(|attempt| *attempt < other));
        early.heard(LogTime(1_010));
        assert!(other < early.next(&clock));
        early.heard(LogTime(5));
        assert!(other < early.next(&clock), "it never goes back");
    }
}
