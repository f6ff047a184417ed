//! The additional functions of the manager in the 2.x releases: comparing clocks, taking a lock in two steps, and
//! checking whether a lock is still held.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::ConfigLocks;
use super::scoped::ScopedLock;
use super::settings::ConfigLockError;
use crate::clock::Instant;
use crate::limits;
use crate::model::{DocumentState, LogTime};
use crate::service::LockService;

/// One reading of the service's time, with the time of this process's clock before and after it.
#[derive(Debug, Clone, Copy)]
struct Reading {
    asked: Instant,
    answered: Instant,
    service: LogTime,
}

impl Reading {
    /// How far this process's clock is ahead of the service's time, in milliseconds plus a constant that is the same
    /// for all readings. Assumes that the service read its time in the middle of the request.
    fn ahead_ms(self) -> i128 {
        let halfway = u128::midpoint(self.asked.as_nanos().into(), self.answered.as_nanos().into());
        (halfway / 1_000_000) as i128 - i128::from(self.service.0)
    }
}

/// How much the difference of the two clocks changed over these readings.
fn skew(readings: &[Reading]) -> Duration {
    let ahead = || readings.iter().map(|reading| reading.ahead_ms());
    let apart = ahead().max().unwrap_or_default() - ahead().min().unwrap_or_default();
    Duration::from_millis(u64::try_from(apart).unwrap_or(u64::MAX))
}

impl<S: LockService> ConfigLocks<S> {
    /// Whether an acquired lock is still held, by one linearizable read. Calls are not counted: a single unlock
    /// releases the lock, no matter how often this was called.
    pub async fn reenter(&self, held: &ScopedLock<S>) -> Result<bool, ConfigLockError> {
        let document = self.client.document(held.name().as_str()).await?.value;
        Ok(document.is_some_and(|document| {
            document.state == DocumentState::Held
                && document.ts == held.ts()
                && *document.process == *self.process.as_str()
        }))
    }

    pub(super) async fn before_the_first_use(&self) -> Result<(), ConfigLockError> {
        if !self.clocks_agree.load(Ordering::Relaxed) {
            self.compare_clocks().await?;
            self.clocks_agree.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(super) async fn before_forcing(&self) -> Result<(), ConfigLockError> {
        self.compare_clocks().await
    }

    /// Returns an error if the two clocks drift apart too much within a few readings, because the take-over time is
    /// measured with both.
    async fn compare_clocks(&self) -> Result<(), ConfigLockError> {
        let mut readings = Vec::new();
        for _ in 0..limits::CONFIG_SKEW_ROUNDS {
            let asked = self.client.time().now();
            // A linearizable read, which needs no right: the status of a node that reaches no leader has an old time.
            let service = self.client.log_time().await?;
            readings.push(Reading { asked, answered: self.client.time().now(), service });
        }
        let (skew, limit) = (skew(&readings), Duration::from_millis(limits::CONFIG_SKEW_MS_MAX));
        if limit < skew { Err(ConfigLockError::ClockSkew { skew, limit }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(asked_ms: u64, answered_ms: u64, service_ms: u64) -> Reading {
        let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
        Reading { asked: at(asked_ms), answered: at(answered_ms), service: LogTime(service_ms) }
    }

    /// Clocks with equal rates have no skew, no matter when they started and how long a request takes. If one clock is
    /// faster, the skew is the time that it gained, in either direction.
    #[test]
    fn skew_is_the_change_of_the_difference() {
        assert_eq!(skew(&[]), Duration::ZERO);
        assert_eq!(skew(&[reading(0, 0, 9_000), reading(100, 200, 9_150), reading(300, 300, 9_300)]), Duration::ZERO);
        let behind = [reading(0, 0, 9_000), reading(10, 10, 39_010), reading(20, 20, 9_020)];
        assert_eq!(skew(&behind), Duration::from_secs(30));
        let ahead = [reading(0, 0, 9_000), reading(31_000, 31_000, 9_000)];
        assert_eq!(skew(&ahead), Duration::from_secs(31));
    }
}
