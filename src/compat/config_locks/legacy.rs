//! What the manager of older processes does besides: it compares clocks, prepares a lock before it holds it, and can ask
//! whether it holds one still.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::ConfigLocks;
use super::scoped::ScopedLock;
use super::settings::ConfigLockError;
use crate::clock::Instant;
use crate::limits;
use crate::model::{DocumentState, LogTime};
use crate::service::LockService;

/// The service's time as it was asked for, beside the own clock.
#[derive(Debug, Clone, Copy)]
struct Reading {
    asked: Instant,
    answered: Instant,
    service: LogTime,
}

impl Reading {
    /// By how much the own clock is ahead, in milliseconds from a beginning that is the same for every reading; the answer
    /// is taken to have been made half-way.
    fn ahead_ms(self) -> i128 {
        let halfway = u128::midpoint(self.asked.as_nanos().into(), self.answered.as_nanos().into());
        (halfway / 1_000_000) as i128 - i128::from(self.service.0)
    }
}

/// How far the clocks went apart from one reading to another.
fn skew(readings: &[Reading]) -> Duration {
    let ahead = || readings.iter().map(|reading| reading.ahead_ms());
    let apart = ahead().max().unwrap_or_default() - ahead().min().unwrap_or_default();
    Duration::from_millis(u64::try_from(apart).unwrap_or(u64::MAX))
}

impl<S: LockService> ConfigLocks<S> {
    /// Whether a lock that was got is held still, as one true read shows it. It counts nothing: the lock is free after one
    /// unlock, however often this was asked.
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

    /// A patience that is counted by two clocks which part is no patience: refused where they do within a few readings.
    async fn compare_clocks(&self) -> Result<(), ConfigLockError> {
        let mut readings = Vec::new();
        for _ in 0..limits::CONFIG_SKEW_ROUNDS {
            let asked = self.client.time().now();
            let service = self.client.status().await?.log_time;
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

    /// Clocks that go alike have no skew, wherever they began and however long an answer took; one that goes faster than the
    /// other has what it gained, in either direction.
    #[test]
    fn skew_is_what_clocks_go_apart() {
        assert_eq!(skew(&[]), Duration::ZERO);
        assert_eq!(skew(&[reading(0, 0, 9_000), reading(100, 200, 9_150), reading(300, 300, 9_300)]), Duration::ZERO);
        let behind = [reading(0, 0, 9_000), reading(10, 10, 39_010), reading(20, 20, 9_020)];
        assert_eq!(skew(&behind), Duration::from_secs(30));
        let ahead = [reading(0, 0, 9_000), reading(31_000, 31_000, 9_000)];
        assert_eq!(skew(&ahead), Duration::from_secs(31));
    }
}
