//! How long a session or lease is surely held, by the client's own clock.

use std::time::Duration;

use crate::clock::Instant;
use crate::faults::{self, Fault};
use crate::limits::DRIFT_MARGIN_PERMILLE;
use crate::model::LogTime;

/// What one answered attempt says: sent at `sent`, decided by an entry stamped `stamp`, ending after `deadline`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    /// When *this* attempt was sent: the entry that answered it cannot be older.
    pub(crate) sent: Instant,
    /// Log index of that entry: tells the newer of two with the same stamp.
    pub(crate) index: u64,
    /// L: stamp of the entry that answered this attempt.
    pub(crate) stamp: LogTime,
    /// E: the deadline that it set.
    pub(crate) deadline: LogTime,
}

/// The client's side of a deadline in log time.
///
/// - Log time never outruns real time and had not reached L before the attempt was sent at s, so the cluster cannot
///   pass E before s + (E − L), less a margin for clocks that run at different rates.
/// - Every answered attempt gives such a pair (s, L); all of them are true, so the one that promises most serves. That
///   is the one with the largest s − L once the margin is counted, the same one for every E: one number is kept.
/// - Of several deadlines the one with the largest L counts, even when it is the smaller one.
/// - Once passed it stays passed, whatever is answered later.
#[derive(Debug, Clone)]
pub(crate) struct Validity {
    /// The largest s − (1 − margin) · L seen, in thousandths of a nanosecond.
    relation: i128,
    /// Stamp and log index of the entry that set the deadline.
    newest: (LogTime, u64),
    deadline: LogTime,
    /// When the newest answered attempt was sent.
    answered: Instant,
    /// From the send of an attach on, only that stream's answers count for the grace.
    stream_since: Instant,
    grace: Option<Duration>,
    passed: bool,
}

const NANOS_A_MS: i128 = 1_000_000;
const MARGIN_LEFT_PERMILLE: i128 = 1_000 - DRIFT_MARGIN_PERMILLE as i128;

impl Validity {
    /// From the first answer. With a `grace` it also ends that long after the newest answered attempt was sent.
    pub(crate) fn new(first: Answer, grace: Option<Duration>) -> Self {
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

    /// The end of a hold of this session, set by an entry whose answer came at `now`: what is known of the clocks holds for
    /// it, too.
    pub(crate) fn for_hold(&self, (stamp, index): (LogTime, u64), deadline: LogTime, now: Instant) -> Self {
        Self { newest: (stamp, index), deadline, answered: now, grace: None, passed: false, ..self.clone() }
    }

    /// Takes another answer into account. Answers may come in any order; one that comes too late changes nothing.
    pub(crate) fn answered(&mut self, answer: Answer, now: Instant) {
        if self.is_passed(now) {
            return;
        }
        self.relation = self.relation.max(relation(&answer));
        let entry = (answer.stamp, answer.index);
        if entry > self.newest {
            (self.newest, self.deadline) = (entry, answer.deadline);
        } else if entry == self.newest {
            // Both were decided by one entry, in an order that the answers do not tell.
            self.deadline = self.deadline.min(answer.deadline);
        }
        if answer.sent >= self.stream_since {
            let proof = if faults::on(Fault::GraceFromArrival) { now } else { answer.sent };
            self.answered = self.answered.max(proof);
        }
    }

    /// An attach is sent now: answers to what was sent before no longer prove that the stream is alive.
    pub(crate) fn attaching(&mut self, now: Instant) {
        self.stream_since = now;
    }

    /// The first instant at which it may have ended.
    pub(crate) fn until(&self) -> Instant {
        let ends = self.relation + i128::from(self.deadline.0) * NANOS_A_MS * MARGIN_LEFT_PERMILLE;
        let ends = Instant::from_nanos(u64::try_from((ends / 1_000).max(0)).unwrap_or(u64::MAX));
        match self.grace {
            Some(grace) => ends.min(self.answered.after(less_margin(grace))),
            None => ends,
        }
    }

    /// It has ended, whatever the clocks say.
    pub(crate) fn end(&mut self) {
        self.passed = true;
    }

    /// How much is left.
    pub(crate) fn left(&self, now: Instant) -> Duration {
        if self.passed { Duration::ZERO } else { self.until().since(now) }
    }

    /// Whether it may have ended. True for ever once it was found so.
    pub(crate) fn is_passed(&mut self, now: Instant) -> bool {
        self.passed |= now >= self.until();
        self.passed
    }

    /// When the newest answered attempt was sent.
    pub(crate) fn newest_answered(&self) -> Instant {
        self.answered
    }

    /// The end in log time, as the cluster last said it.
    pub(crate) fn deadline(&self) -> LogTime {
        self.deadline
    }
}

fn relation(answer: &Answer) -> i128 {
    i128::from(answer.sent.as_nanos()) * 1_000 - i128::from(answer.stamp.0) * NANOS_A_MS * MARGIN_LEFT_PERMILLE
}

fn less_margin(duration: Duration) -> Duration {
    duration.saturating_sub(duration / 1_000 * DRIFT_MARGIN_PERMILLE as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, ManualClock};

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn answer(sent: Instant, stamp: u64, deadline: u64) -> Answer {
        Answer { sent, index: stamp, stamp: LogTime(stamp), deadline: LogTime(deadline) }
    }

    /// A deadline is worth E − L from the send of the attempt, less one per cent, and not a nanosecond more.
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

    /// The pair that promises most serves for a later deadline too: an answer that came over a slow way does not
    /// shorten what a faster one proved.
    #[test]
    fn the_best_clock_relation_serves_every_deadline() {
        let clock = ManualClock::new(1);
        let start = clock.now();
        // Log time was 1000 at the earliest 100 ms after the start: the entry followed its send at once.
        let mut validity = Validity::new(answer(start.after(ms(100)), 1_000, 11_000), None);
        // Sent at 200 ms, but its entry was stamped 400 ms later: taken alone it would promise less.
        validity.answered(answer(start.after(ms(200)), 1_500, 11_500), start.after(ms(700)));
        // s − L is largest for the first pair: 100 ms + 0.99 × (11 500 − 1 000).
        assert_eq!(validity.until(), start.after(ms(100)).after(Duration::from_micros(10_395_000)));
    }

    /// An old pair loses to a newer one as soon as the margin on its age weighs more, so that validity does not shrink
    /// with the age of a session.
    #[test]
    fn the_margin_is_taken_off_a_fresh_pair_not_off_the_age_of_the_session() {
        let clock = ManualClock::new(1);
        let start = clock.now();
        let mut validity = Validity::new(answer(start, 0, 10_000), None);
        for second in 1..=3_600 {
            let sent = start.after(ms(second * 1_000));
            // Each later answer took a millisecond more than the first.
            validity.answered(answer(sent, second * 1_000 + 1, second * 1_000 + 10_001), sent.after(ms(2)));
        }
        let last = start.after(ms(3_600_000));
        assert_eq!(validity.left(last), ms(9_900));
    }

    /// The deadline of the newest entry counts, also when it is the smaller one and when answers come out of order.
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

    /// Of two entries in the same millisecond of log time the later one decides; of two answers from one entry the
    /// smaller deadline is believed.
    #[test]
    fn the_log_orders_what_has_the_same_stamp() {
        let start = ManualClock::new(1).now();
        let at = |index, deadline| Answer { index, ..answer(start, 1_000, deadline) };
        let mut validity = Validity::new(at(5, 2_000), None);
        validity.answered(at(6, 9_000), start);
        assert_eq!(validity.deadline(), LogTime(9_000));
        validity.answered(at(6, 8_000), start);
        validity.answered(at(4, 10_000), start);
        assert_eq!(validity.deadline(), LogTime(8_000));
    }

    /// The end of a hold is counted by what its session knows of the clocks, and without the session's grace.
    #[test]
    fn another_end_is_counted_by_the_same_clocks() {
        let start = ManualClock::new(1).now();
        let session = Validity::new(answer(start, 1_000, 31_000), Some(ms(4_000)));
        let hold = session.for_hold((LogTime(2_000), 7), LogTime(3_000), start);
        assert_eq!(hold.until(), start.after(Duration::from_micros(1_980_000)));
        assert_eq!(session.until(), start.after(ms(3_960)));
    }

    /// What has passed stays passed: a renewal that is answered after the local deadline revives nothing.
    #[test]
    fn a_late_answer_revives_nothing() {
        let clock = ManualClock::new(1);
        let start = clock.now();
        let mut validity = Validity::new(answer(start, 1_000, 2_000), None);
        clock.advance(ms(995));
        validity.answered(answer(start.after(ms(900)), 1_900, 11_900), clock.now());
        assert!(validity.is_passed(clock.now()));
        assert_eq!(validity.left(clock.now()), Duration::ZERO);
    }

    /// With a grace, validity also ends the grace after the send of the newest answered attempt.
    #[test]
    fn a_grace_ends_validity_early() {
        let clock = ManualClock::new(1);
        let start = clock.now();
        let mut validity = Validity::new(answer(start, 1_000, 31_000), Some(ms(4_000)));
        assert_eq!(validity.left(start), ms(3_960));
        validity.answered(answer(start.after(ms(1_000)), 2_000, 32_000), start.after(ms(1_100)));
        assert_eq!(validity.until(), start.after(ms(1_000 + 3_960)));
    }

    /// From the send of an attach on, an answer to something older does not count for the grace, for it came over the
    /// stream that broke.
    #[test]
    fn after_an_attach_only_its_own_stream_counts_for_the_grace() {
        let clock = ManualClock::new(1);
        let start = clock.now();
        let mut validity = Validity::new(answer(start, 1_000, 31_000), Some(ms(4_000)));
        validity.attaching(start.after(ms(2_000)));
        validity.answered(answer(start.after(ms(1_900)), 2_900, 32_900), start.after(ms(2_100)));
        assert_eq!(validity.until(), start.after(ms(3_960)), "the old stream's answer moved the grace");
        validity.answered(answer(start.after(ms(2_000)), 3_000, 33_000), start.after(ms(2_200)));
        assert_eq!(validity.until(), start.after(ms(2_000 + 3_960)));
    }
}
