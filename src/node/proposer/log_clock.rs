//! The leader's log clock: how log time advances, and when it stops (see the manual's page on time).

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::{Instant, millis};
use crate::faults::{self, Fault};
use crate::limits;
use crate::model::LogTime;

/// Log time as one leader reads it, during one term.
///
/// - It starts when the leader has applied its first entry of the term, at the machine's stamp, which is the log time
///   of the newest applied entry.
/// - It advances only when it is read, by at most one step: a pause of the leader does not make it jump.
/// - It never runs ahead of the newest applied stamp by more than one step. Time in which nothing can be committed is
///   lost, and never caught up.
/// - It never runs faster than real time, and never backwards.
#[derive(Debug)]
pub(super) struct LogClock {
    /// Log time at the last read.
    at: Duration,
    /// Real time of the last read.
    read_at: Instant,
    /// The most that one read adds, and the most by which log time is ahead of the newest applied stamp.
    step_max: Duration,
    /// Whether log time stands still because leadership is being transferred.
    stopped: bool,
    /// The reads of the last minute that lost real time although some deadline existed, each with the lost time.
    uncounted: VecDeque<(Instant, Duration)>,
    /// Real time since the start of the clock that was not counted.
    all_uncounted: Duration,
}

impl LogClock {
    /// Starts a clock at the machine's stamp. `election_max` is the longest election timeout of the timing profile.
    pub(super) fn start(stamp: LogTime, now: Instant, election_max: Duration) -> Self {
        let step_max = election_max.max(Duration::from_millis(limits::LOG_TIME_CAP_MS_MIN));
        Self {
            at: Duration::from_millis(stamp.0),
            read_at: now,
            step_max,
            stopped: false,
            uncounted: VecDeque::new(),
            all_uncounted: Duration::ZERO,
        }
    }

    /// Advances the clock and returns log time. `applied` is the newest applied stamp. `timed` means that some deadline
    /// exists, so that lost time matters.
    pub(super) fn read(&mut self, now: Instant, applied: LogTime, timed: bool) -> LogTime {
        // `now` can be older than the last read, if another caller read this clock in between. No time counts twice.
        let elapsed = now.since(self.read_at);
        self.read_at = self.read_at.max(now);
        if self.stopped {
            return self.stamp();
        }
        if faults::on(Fault::UncappedLogTime) {
            self.at += elapsed;
            return self.stamp();
        }
        let ceiling = Duration::from_millis(applied.0).saturating_add(self.step_max);
        // The ceiling is below log time if `applied` is older than at the last read, and log time never runs backwards.
        let next = self.at.saturating_add(elapsed.min(self.step_max)).min(ceiling).max(self.at);
        let lost = elapsed.saturating_sub(next - self.at);
        self.at = next;
        if timed && Duration::ZERO < lost {
            self.uncounted.push_back((now, lost));
            self.all_uncounted += lost;
        }
        self.stamp()
    }

    /// Returns the result of the last read.
    pub(super) fn stamp(&self) -> LogTime {
        LogTime(millis(self.at))
    }

    /// Stops the clock, while leadership is being transferred.
    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }

    /// Starts the clock again after a failed transfer; the time in between does not count.
    pub(super) fn resume(&mut self, now: Instant) {
        self.stopped = false;
        self.read_at = self.read_at.max(now);
    }

    /// Returns how much real time did not become log time although some deadline existed, since the clock was started.
    /// Time while it is stopped does not count.
    pub(super) fn all_uncounted(&self) -> Duration {
        self.all_uncounted
    }

    /// Returns the same as [`all_uncounted`](Self::all_uncounted), but only for the last minute.
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

    /// A clock that is read often follows real time.
    #[test]
    fn it_follows_real_time() {
        let mut clock = clock();
        for ms in (0..=2_000).step_by(100) {
            let stamp = clock.read(at_ms(ms), LogTime(10_000 + ms), true);
            assert_eq!(stamp, LogTime(10_000 + ms));
        }
        assert_eq!(clock.uncounted(at_ms(2_000)), Duration::ZERO);
    }

    /// A leader whose process paused for a minute adds no more than one step, and does not catch up.
    #[test]
    fn a_stopped_leader_does_not_make_it_leap() {
        let mut clock = clock();
        assert_eq!(clock.read(at_ms(60_000), LogTime(10_000), true), LogTime(10_500));
        assert_eq!(clock.read(at_ms(60_100), LogTime(10_500), true), LogTime(10_600));
        assert_eq!(clock.uncounted(at_ms(60_100)), Duration::from_millis(59_500));
        assert_eq!(clock.uncounted(at_ms(130_000)), Duration::ZERO);
        assert_eq!(clock.all_uncounted(), Duration::from_millis(59_500));
    }

    /// The step is the longest election timeout if that is longer than 500 ms: a failover may take that time.
    #[test]
    fn a_long_election_timeout_is_the_step() {
        let mut clock = LogClock::start(LogTime(10_000), at_ms(0), Duration::from_secs(5));
        assert_eq!(clock.read(at_ms(60_000), LogTime(10_000), true), LogTime(15_000), "a stopped leader");
        for ms in (60_100..70_000).step_by(100) {
            clock.read(at_ms(ms), LogTime(15_000), true);
        }
        assert_eq!(clock.stamp(), LogTime(20_000), "stalled commits");
        assert_eq!(clock.all_uncounted(), Duration::from_millis(69_900 - 10_000));
    }

    /// While nothing can be committed, the clock stops at the newest applied stamp plus one step.
    #[test]
    fn stalled_commits_stop_it() {
        let mut clock = clock();
        for ms in (100..10_000).step_by(100) {
            clock.read(at_ms(ms), LogTime(10_000), true);
        }
        assert_eq!(clock.stamp(), LogTime(10_500));
        assert_eq!(clock.read(at_ms(10_000), LogTime(10_500), true), LogTime(10_600), "and continues from there");
    }

    /// A late read with an older time adds nothing, and no time is counted twice after it.
    #[test]
    fn late_readings_do_not_count_time_twice() {
        let mut clock = clock();
        assert_eq!(clock.read(at_ms(100), LogTime(10_000), true), LogTime(10_100));
        assert_eq!(clock.read(at_ms(0), LogTime(10_000), true), LogTime(10_100));
        assert_eq!(clock.read(at_ms(100), LogTime(10_000), true), LogTime(10_100));
    }

    /// During a transfer the clock stops, and that time does not count afterwards.
    #[test]
    fn a_hand_over_stops_it() {
        let mut clock = clock();
        clock.stop();
        assert_eq!(clock.read(at_ms(200), LogTime(10_000), true), LogTime(10_000));
        clock.resume(at_ms(300));
        assert_eq!(clock.read(at_ms(350), LogTime(10_000), true), LogTime(10_050));
    }
}
