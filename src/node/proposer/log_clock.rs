//! The leader's log clock: how log time advances, and when it stands still (the rules of A4 in the manual's page on time).

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Instant;
use crate::faults::{self, Fault};
use crate::limits;
use crate::model::LogTime;

/// Log time as one leader reads it, for one term.
///
/// - It begins at the machine's stamp when the leader has applied its first entry of the term.
/// - It advances only when it is read, by at most the cap: a leader that slept or stalled does not make it leap.
/// - It never runs ahead of the newest applied stamp by more than the cap: what cannot be committed is not counted,
///   and not caught up later.
/// - It never outruns real time, and it never goes back.
#[derive(Debug)]
pub(super) struct LogClock {
    at: Duration,
    read: Instant,
    cap: Duration,
    stopped: bool,
    uncounted: VecDeque<(Instant, Duration)>,
}

impl LogClock {
    /// Starts at the machine's stamp. `election_max` is the longest election timeout of the timing profile.
    pub(super) fn start(stamp: LogTime, now: Instant, election_max: Duration) -> Self {
        let cap = election_max.max(Duration::from_millis(limits::LOG_TIME_CAP_MS_MIN));
        Self { at: Duration::from_millis(stamp.0), read: now, cap, stopped: false, uncounted: VecDeque::new() }
    }

    /// Log time now. `applied` is the newest applied stamp; `timed` says that something has a deadline, so that time
    /// which is not counted matters.
    pub(super) fn read(&mut self, now: Instant, applied: LogTime, timed: bool) -> LogTime {
        // A caller that looked at its clock before another read this one must not make that time count twice.
        let elapsed = now.since(self.read);
        self.read = self.read.max(now);
        if self.stopped {
            return self.stamp();
        }
        if faults::on(Fault::UncappedLogTime) {
            self.at += elapsed;
            return self.stamp();
        }
        let ceiling = Duration::from_millis(applied.0).saturating_add(self.cap);
        let next = self.at.saturating_add(elapsed.min(self.cap)).min(ceiling).max(self.at);
        let lost = elapsed.saturating_sub(next - self.at);
        self.at = next;
        if timed && Duration::ZERO < lost {
            self.uncounted.push_back((now, lost));
        }
        self.stamp()
    }

    /// The newest reading.
    pub(super) fn stamp(&self) -> LogTime {
        LogTime(u64::try_from(self.at.as_millis()).unwrap_or(u64::MAX))
    }

    /// Stands still from now on: leadership is being handed over.
    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }

    /// Goes on after a hand-over that came to nothing; the time between is not counted.
    pub(super) fn resume(&mut self, now: Instant) {
        self.stopped = false;
        self.read = self.read.max(now);
    }

    /// Real time of the last minute that did not become log time although something had a deadline.
    pub(super) fn uncounted(&mut self, now: Instant) -> Duration {
        let window = Duration::from_millis(limits::UNCOUNTED_WINDOW_MS);
        while self.uncounted.front().is_some_and(|(at, _)| window < now.since(*at)) {
            self.uncounted.pop_front();
        }
        self.uncounted.iter().map(|(_, lost)| *lost).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn clock() -> LogClock {
        LogClock::start(LogTime(10_000), at_ms(0), Duration::from_millis(300))
    }

    /// Read often, it follows real time.
    #[test]
    fn it_follows_real_time() {
        let mut clock = clock();
        for ms in (0..=2_000).step_by(100) {
            let stamp = clock.read(at_ms(ms), LogTime(10_000 + ms), true);
            assert_eq!(stamp, LogTime(10_000 + ms));
        }
        assert_eq!(clock.uncounted(at_ms(2_000)), Duration::ZERO);
    }

    /// A leader that was stopped for a minute adds no more than the cap, and does not catch up.
    #[test]
    fn a_stopped_leader_does_not_make_it_leap() {
        let mut clock = clock();
        assert_eq!(clock.read(at_ms(60_000), LogTime(10_000), true), LogTime(10_500));
        assert_eq!(clock.read(at_ms(60_100), LogTime(10_500), true), LogTime(10_600));
        assert_eq!(clock.uncounted(at_ms(60_100)), Duration::from_millis(59_500));
        assert_eq!(clock.uncounted(at_ms(130_000)), Duration::ZERO);
    }

    /// While nothing can be committed it runs into the newest applied stamp and stands there.
    #[test]
    fn stalled_commits_stop_it() {
        let mut clock = clock();
        for ms in (100..10_000).step_by(100) {
            clock.read(at_ms(ms), LogTime(10_000), true);
        }
        assert_eq!(clock.stamp(), LogTime(10_500));
        assert_eq!(clock.read(at_ms(10_000), LogTime(10_500), true), LogTime(10_600), "and goes on from there");
    }

    /// A reading that comes late with an older time adds nothing, and nothing is counted twice after it.
    #[test]
    fn late_readings_do_not_count_time_twice() {
        let mut clock = clock();
        assert_eq!(clock.read(at_ms(100), LogTime(10_000), true), LogTime(10_100));
        assert_eq!(clock.read(at_ms(0), LogTime(10_000), true), LogTime(10_100));
        assert_eq!(clock.read(at_ms(100), LogTime(10_000), true), LogTime(10_100));
    }

    /// During a hand-over it stands still, and the time between is not counted afterwards.
    #[test]
    fn a_hand_over_stops_it() {
        let mut clock = clock();
        clock.stop();
        assert_eq!(clock.read(at_ms(200), LogTime(10_000), true), LogTime(10_000));
        clock.resume(at_ms(300));
        assert_eq!(clock.read(at_ms(350), LogTime(10_000), true), LogTime(10_050));
    }
}
