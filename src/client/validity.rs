//! How long a session or lease certainly lasts, by the client's own clock.

use std::time::Duration;

use crate::clock::Instant;
use crate::faults::{self, Fault};
use crate::limits::DRIFT_MARGIN_PERMILLE;
use crate::model::LogTime;

/// An answered attempt: it was sent at `sent`, applied by an entry stamped `stamp`, and set the end to `deadline`. The
/// explanation of [`Validity`] uses the letters s, L and E for these three.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RenewalAnswer {
    /// s: when *this* attempt was sent. The entry that answered it cannot be older.
    pub(crate) sent: Instant,
    /// Log index of that entry, which orders entries with the same stamp.
    pub(crate) index: u64,
    /// L: stamp of the entry that answered this attempt.
    pub(crate) stamp: LogTime,
    /// E: the deadline that it set.
    pub(crate) deadline: LogTime,
}

/// The client's view of a deadline in log time.
///
/// - Log time is never ahead of real time and had not reached L before the attempt was sent at s. So the cluster cannot
///   pass E before s + (E − L), minus a margin for clocks that run at different rates.
/// - Every answered attempt gives such a pair (s, L), and every pair proves a bound, so the pair with the latest end is
///   used. That is the pair with the largest s − (1 − margin) · L. It is the same pair for every E, so only this number
///   is stored.
/// - Of several deadlines the one with the largest L is valid, even if it is an earlier one.
/// - A deadline that has passed remains passed, regardless of later answers.
#[derive(Debug, Clone)]
pub(crate) struct Validity {
    /// The largest s − (1 − margin) · L seen, in thousandths of a nanosecond.
    relation: i128,
    /// Stamp and log index of the entry that set the deadline.
    newest: (LogTime, u64),
    deadline: LogTime,
    /// When the newest answered attempt was sent. For a hold without a renewal so far: when its grant arrived.
    answered: Instant,
    /// When the last attach was sent. For the grace, only answers to attempts sent since then count.
    stream_since: Instant,
    /// The validity ends this long after `answered`, less the margin, even if the deadline is later.
    grace: Option<Duration>,
    /// Whether the validity has ended. It then remains so.
    passed: bool,
}

const NANOS_A_MS: i128 = 1_000_000;
const MARGIN_LEFT_PERMILLE: i128 = 1_000 - DRIFT_MARGIN_PERMILLE as i128;

impl Validity {
    /// Creates the validity after the first answer. With a `grace`, the validity also ends that duration after the
    /// newest answered attempt was sent.
    pub(crate) fn new(first: RenewalAnswer, grace: Option<Duration>) -> Self {
        Self {
            relation: relation(&first),
            newest: (first.stamp, first.index),
            deadline: first.deadline,
            answered: first.sent,
            stream_since: Instant::default(),
            grace,
            passed: false,
        }
    }

    /// Returns the validity of a hold of this session. The entry with this stamp and log index set the `deadline`, and
    /// its answer arrived at `now`. The session's relation between the clock and log time applies to the hold, too. The
    /// session's grace does not, so `now` has no effect on the end of the validity.
    pub(crate) fn for_hold(&self, (stamp, index): (LogTime, u64), deadline: LogTime, now: Instant) -> Self {
        Self { newest: (stamp, index), deadline, answered: now, grace: None, passed: false, ..self.clone() }
    }

    /// Applies another answer. Answers may arrive in any order; one that arrives after the end changes nothing.
    pub(crate) fn answered(&mut self, answer: RenewalAnswer, now: Instant) {
        if self.is_passed(now) {
            return;
        }
        self.relation = self.relation.max(relation(&answer));
        let entry = (answer.stamp, answer.index);
        if entry > self.newest {
            (self.newest, self.deadline) = (entry, answer.deadline);
        } else if entry == self.newest {
            // One entry decided both answers, and they do not show in which order.
            self.deadline = self.deadline.min(answer.deadline);
        }
        if answer.sent >= self.stream_since {
            let proof = if faults::on(Fault::GraceFromArrival) { now } else { answer.sent };
            self.answered = self.answered.max(proof);
        }
    }

    /// Records that an attach is sent now. Answers to earlier attempts no longer prove that the stream works.
    pub(crate) fn attaching(&mut self, now: Instant) {
        self.stream_since = now;
    }

    /// Returns the first instant at which the deadline may have passed, or the end of the grace if that is earlier.
    pub(crate) fn until(&self) -> Instant {
        let ends = self.relation + i128::from(self.deadline.0) * NANOS_A_MS * MARGIN_LEFT_PERMILLE;
        let ends = Instant::from_nanos(u64::try_from((ends / 1_000).max(0)).unwrap_or(u64::MAX));
        match self.grace {
            Some(grace) => ends.min(self.answered.after(less_margin(grace))),
            None => ends,
        }
    }

    /// Ends the validity now, regardless of the clock.
    pub(crate) fn end(&mut self) {
        self.passed = true;
    }

    /// Returns the time until the first instant at which the deadline may have passed.
    pub(crate) fn left(&self, now: Instant) -> Duration {
        if self.passed { Duration::ZERO } else { self.until().since(now) }
    }

    /// Whether the deadline may have passed. Once true it remains true.
    pub(crate) fn is_passed(&mut self, now: Instant) -> bool {
        self.passed |= now >= self.until();
        self.passed
    }

    /// Returns when the newest answered attempt was sent.
    pub(crate) fn newest_answered(&self) -> Instant {
        self.answered
    }

    /// Returns the time in milliseconds from the entry that set the deadline until the deadline.
    pub(crate) fn granted_ms(&self) -> u64 {
        self.deadline.ms_since(self.newest.0)
    }

    /// Returns the log time of the entry that set the deadline.
    #[cfg(feature = "cli")]
    pub(crate) fn stamp(&self) -> LogTime {
        self.newest.0
    }

    /// Returns the deadline in log time, as the cluster last reported it.
    pub(crate) fn deadline(&self) -> LogTime {
        self.deadline
    }
}

fn relation(answer: &RenewalAnswer) -> i128 {
    i128::from(answer.sent.as_nanos()) * 1_000 - i128::from(answer.stamp.0) * NANOS_A_MS * MARGIN_LEFT_PERMILLE
}

/// Returns the duration minus the margin for clocks that run at different rates.
pub(crate) fn less_margin(duration: Duration) -> Duration {
    duration.saturating_sub(duration / 1_000 * DRIFT_MARGIN_PERMILLE as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, ManualClock};

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn answer(sent: Instant, stamp: u64, deadline: u64) -> RenewalAnswer {
        RenewalAnswer { sent, index: stamp, stamp: LogTime(stamp), deadline: LogTime(deadline) }
    }

    /// An answer is valid for E − L from the sending of the attempt, minus one per cent, and not a nanosecond longer.
    #[test]
    fn validity_counts_from_the_send_less_the_margin() {
        let clock = ManualClock::new(1);
        let sent = clock.now();
        clock.advance(ms(300));
        let mut validity = Validity::new(answer(sent, 50_000, 60_000), None);
        assert_eq!(validity.left(clock.now()), ms(9_900 - 300));
        clock.advance(ms(9_600) - Duration::from_nanos(1));
        assert!(!validity.is_passed(clock.now()));
        clock.advance(Duration::from_nanos(1));
        assert!(validity.is_passed(clock.now()));
    }

    /// The pair with the latest end is used for later deadlines too: a slow answer does not shorten what a fast one
    /// proved.
    #[test]
    fn the_best_clock_relation_serves_every_deadline() {
        let clock = ManualClock::new(1);
        let start = clock.now();
        // Log time was 1000 not earlier than 100 ms after the start, because the entry followed its attempt at once.
        let mut validity = Validity::new(answer(start.after(ms(100)), 1_000, 11_000), None);
        // This attempt was sent at 200 ms, but its entry was stamped 400 ms later, so its answer alone would end
        // earlier.
        validity.answered(answer(start.after(ms(200)), 1_500, 11_500), start.after(ms(700)));
        // s − L is largest for the first pair: 100 ms + 0.99 × (11 500 − 1 000).
        assert_eq!(validity.until(), start.after(ms(100)).after(Duration::from_micros(10_395_000)));
    }

    /// A newer pair replaces an old one as soon as the margin for the old one's age is larger, so the validity does not
    /// shrink with the age of a session.
    #[test]
    fn the_margin_does_not_grow_with_the_age_of_the_session() {
        let clock = ManualClock::new(1);
        let start = clock.now();
        let mut validity = Validity::new(answer(start, 0, 10_000), None);
        for second in 1..=3_600 {
            let sent = start.after(ms(second * 1_000));
            // Each later answer took a millisecond longer than the first.
            validity.answered(answer(sent, second * 1_000 + 1, second * 1_000 + 10_001), sent.after(ms(2)));
        }
        let last = start.after(ms(3_600_000));
        assert_eq!(validity.left(last), ms(9_900));
    }

    /// The deadline of the newest entry is valid, even if it is an earlier one and if the answers arrive out of order.
    #[test]
    fn the_newest_stamp_decides_the_deadline() {
        let clock = ManualClock::new(1);
        let start = clock.now();
        let mut validity = Validity::new(answer(start, 1_000, 11_000), None);
        validity.answered(answer(start.after(ms(50)), 1_050, 3_050), start.after(ms(60)));
        assert_eq!(validity.deadline(), LogTime(3_050));
        validity.answered(answer(start.after(ms(20)), 1_020, 11_020), start.after(ms(70)));
        assert_eq!(validity.deadline(), LogTime(3_050), "an older entry's deadline came late");
    }

    /// Of two entries in the same millisecond of log time the later one is valid. Of two answers from one entry the
    /// earlier deadline is used.
    #[test]
    fn the_log_index_orders_entries_with_the_same_stamp() {
        let start = ManualClock::new(1).now();
        let at = |index, deadline| RenewalAnswer { index, ..answer(start, 1_000, deadline) };
        let mut validity = Validity::new(at(5, 2_000), None);
        validity.answered(at(6, 9_000), start);
        assert_eq!(validity.deadline(), LogTime(9_000));
        validity.answered(at(6, 8_000), start);
        validity.answered(at(4, 10_000), start);
        assert_eq!(validity.deadline(), LogTime(8_000));
    }

    /// The end of a hold uses the clock relation of its session, without the session's grace.
    #[test]
    fn a_hold_uses_the_clock_relation_of_its_session() {
        let start = ManualClock::new(1).now();
        let session = Validity::new(answer(start, 1_000, 31_000), Some(ms(4_000)));
        let hold = session.for_hold((LogTime(2_000), 7), LogTime(3_000), start);
        assert_eq!(hold.until(), start.after(Duration::from_micros(1_980_000)));
        assert_eq!(session.until(), start.after(ms(3_960)));
    }

    /// A deadline that has passed remains passed: an answer after the local deadline does not restore it.
    #[test]
    fn a_late_answer_does_not_restore_validity() {
        let clock = ManualClock::new(1);
        let start = clock.now();
        let mut validity = Validity::new(answer(start, 1_000, 2_000), None);
        clock.advance(ms(995));
        validity.answered(answer(start.after(ms(900)), 1_900, 11_900), clock.now());
        assert!(validity.is_passed(clock.now()));
        assert_eq!(validity.left(clock.now()), Duration::ZERO);
    }

    /// With a grace, validity also ends that duration after the sending of the newest answered attempt.
    #[test]
    fn a_grace_ends_validity_early() {
        let clock = ManualClock::new(1);
        let start = clock.now();
        let mut validity = Validity::new(answer(start, 1_000, 31_000), Some(ms(4_000)));
        assert_eq!(validity.left(start), ms(3_960));
        validity.answered(answer(start.after(ms(1_000)), 2_000, 32_000), start.after(ms(1_100)));
        assert_eq!(validity.until(), start.after(ms(1_000 + 3_960)));
    }

    /// After an attach was sent, an answer to an earlier attempt does not count for the grace, because it came over the
    /// broken stream.
    #[test]
    fn after_an_attach_only_the_new_stream_counts_for_the_grace() {
        let clock = ManualClock::new(1);
        let start = clock.now();
        let mut validity = Validity::new(answer(start, 1_000, 31_000), Some(ms(4_000)));
        validity.attaching(start.after(ms(2_000)));
        validity.answered(answer(start.after(ms(1_900)), 2_900, 32_900), start.after(ms(2_100)));
        assert_eq!(validity.until(), start.after(ms(3_960)), "the old stream's answer extended the grace");
        validity.answered(answer(start.after(ms(2_000)), 3_000, 33_000), start.after(ms(2_200)));
        assert_eq!(validity.until(), start.after(ms(2_000 + 3_960)));
    }
}
