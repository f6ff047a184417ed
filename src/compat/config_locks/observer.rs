//! Decides when a lock of a process that seems dead may be taken over, from what one waiter has observed over time.
//!
//! The observer reads no clock and sends no request: its caller passes in what it read.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::millis;
use crate::model::{DocumentId, LockName, LogTime, WallTime};

/// The MongoDB releases whose rules a manager follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Era {
    /// The 3.x releases and later: a lock expires once the take-over time has passed, and is taken over in one step.
    #[default]
    ReplicaSet,
    /// The 2.x releases: a lock expires once *more* than the take-over time has passed. Before its first use, and
    /// before it takes a lock over, a manager reads the service's time three times. If the difference to its own clock
    /// changes by more than 30 s meanwhile, it takes nothing over. A lock is taken in two steps, as state 1 and then 2.
    /// No other process gets the lock in either state.
    Legacy,
}

/// One observation of a held lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Observation {
    /// The process that holds the lock.
    pub(super) process: String,
    /// The last ping of that process; `None` counts as a ping at time zero.
    pub(super) ping: Option<WallTime>,
    /// The id of the acquisition.
    pub(super) ts: DocumentId,
    /// The term of the leader that answered.
    pub(super) term: u64,
    /// The service's time, minus half of the round trip.
    pub(super) service_time: LogTime,
}

/// The conclusion from an observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The lock's process may be alive.
    Alive,
    /// The service's time went back since the last observation, which allows no conclusion.
    TimeWentBack,
    /// Nothing changed for the take-over time, so the lock may be taken over.
    Expired,
}

/// The observations of one waiter, by the names of the locks.
#[derive(Debug, Clone)]
pub(super) struct Observer {
    takeover_ms: u64,
    era: Era,
    seen: BTreeMap<LockName, Observation>,
}

impl Observer {
    /// Creates an observer with this take-over time, which is 15 minutes in MongoDB.
    pub(super) fn new(takeover: Duration, era: Era) -> Self {
        Self { takeover_ms: millis(takeover), era, seen: BTreeMap::new() }
    }

    /// Adds an observation and returns the conclusion.
    ///
    /// - The first observation, and any change of the ping, the acquisition or the leader, restarts the time. So at
    ///   least two observations are needed.
    /// - If the service's time went back, there is no conclusion, and the earlier observation is kept.
    pub(super) fn observe(&mut self, name: &LockName, now: Observation) -> Verdict {
        let ping = |one: &Observation| one.ping.unwrap_or_default();
        let same = |known: &&Observation| {
            (ping(known), known.ts, known.term, &known.process) == (ping(&now), now.ts, now.term, &now.process)
        };
        let Some(known) = self.seen.get(name).filter(same) else {
            self.seen.insert(name.clone(), now);
            return Verdict::Alive;
        };
        if now.service_time < known.service_time {
            return Verdict::TimeWentBack;
        }
        let elapsed_ms = now.service_time.ms_since(known.service_time);
        let expired = match self.era {
            Era::ReplicaSet => self.takeover_ms <= elapsed_ms,
            Era::Legacy => self.takeover_ms < elapsed_ms,
        };
        if expired { Verdict::Expired } else { Verdict::Alive }
    }

    /// Removes a lock for which the caller does not wait any more.
    pub(super) fn forget(&mut self, name: &LockName) {
        self.seen.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE_MS: u64 = 60_000;
    const QUARTER_MS: u64 = 15 * MINUTE_MS;

    fn name() -> LockName {
        LockName::parse("balancer").expect("legal")
    }

    fn at(ms: u64) -> Observation {
        let ts = DocumentId([1; 12]);
        Observation { process: "h:1:1:a".into(), ping: Some(WallTime(7)), ts, term: 3, service_time: LogTime(ms) }
    }

    fn observer(era: Era) -> Observer {
        Observer::new(Duration::from_millis(QUARTER_MS), era)
    }

    /// R-CFG-04: the lock is refused at 0 and 14:59 minutes, and taken over at 15:00 minutes. The legacy rule needs
    /// more than 15 minutes.
    #[test]
    fn r_cfg_04_overtaken_after_a_quarter_of_an_hour() {
        let looks = |era, times: [u64; 4]| {
            let mut observer = observer(era);
            times.map(|ms| observer.observe(&name(), at(ms)))
        };
        let times = [0, QUARTER_MS - 1_000, QUARTER_MS, QUARTER_MS + 1];
        use Verdict::{Alive, Expired};
        assert_eq!(looks(Era::ReplicaSet, times), [Alive, Alive, Expired, Expired]);
        assert_eq!(looks(Era::Legacy, times), [Alive, Alive, Alive, Expired]);
    }

    /// R-CFG-05: the first observation only starts the time, no matter how long ago the holder died. Another 15 minutes
    /// are needed.
    #[test]
    fn r_cfg_05_two_looks_are_needed() {
        let mut observer = observer(Era::ReplicaSet);
        assert_eq!(observer.observe(&name(), at(60 * MINUTE_MS)), Verdict::Alive);
        assert_eq!(observer.observe(&name(), at(60 * MINUTE_MS + QUARTER_MS - 1)), Verdict::Alive);
        assert_eq!(observer.observe(&name(), at(60 * MINUTE_MS + QUARTER_MS)), Verdict::Expired);
        let unknown = |ms| Observation { ping: None, ..at(ms) };
        observer.forget(&name());
        assert_eq!(observer.observe(&name(), unknown(0)), Verdict::Alive, "no ping is a ping at date zero");
        assert_eq!(observer.observe(&name(), unknown(QUARTER_MS)), Verdict::Expired);
    }

    /// R-CFG-06, R-CFG-07: a ping, another acquisition or another leader at 14:59 minutes restarts the time.
    #[test]
    fn r_cfg_06_r_cfg_07_any_change_restarts_the_time() {
        let late = QUARTER_MS - 1_000;
        for changed in [
            |seen| Observation { ping: Some(WallTime(8)), ..seen },
            |seen| Observation { term: 4, ..seen },
            |seen| Observation { ts: DocumentId([2; 12]), ..seen },
        ] {
            let mut observer = observer(Era::ReplicaSet);
            assert_eq!(observer.observe(&name(), at(0)), Verdict::Alive);
            assert_eq!(observer.observe(&name(), changed(at(late))), Verdict::Alive);
            assert_eq!(observer.observe(&name(), changed(at(QUARTER_MS))), Verdict::Alive);
            assert_eq!(observer.observe(&name(), changed(at(late + QUARTER_MS - 1))), Verdict::Alive);
            assert_eq!(observer.observe(&name(), changed(at(late + QUARTER_MS))), Verdict::Expired);
        }
    }

    /// A service's time that goes back is reported. It neither expires a lock nor restarts the time.
    #[test]
    fn time_that_goes_back_expires_nothing() {
        let mut observer = observer(Era::ReplicaSet);
        assert_eq!(observer.observe(&name(), at(1_000)), Verdict::Alive);
        assert_eq!(observer.observe(&name(), at(999)), Verdict::TimeWentBack);
        assert_eq!(observer.observe(&name(), at(1_000 + QUARTER_MS)), Verdict::Expired);
    }

    /// Each lock is observed separately.
    #[test]
    fn locks_are_observed_one_by_one() {
        let mut observer = observer(Era::ReplicaSet);
        let other = LockName::parse("upgrade").expect("legal");
        assert_eq!(observer.observe(&name(), at(0)), Verdict::Alive);
        assert_eq!(observer.observe(&other, at(QUARTER_MS)), Verdict::Alive);
        assert_eq!(observer.observe(&name(), at(QUARTER_MS)), Verdict::Expired);
    }
}
