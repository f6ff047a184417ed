//! The lease lock: a caller takes it if `expireAt` is in the past, and a timer renews it while it is held. Other
//! callers can read its state.
//!
//! | original | here |
//! | --- | --- |
//! | the timer renews each half of the period | it renews each third, also while a renewal has no answer yet, and repeats a failed renewal without waiting for the next third |
//! | the timer renews by name, even if another caller has taken the lock since | it renews only its own grant, and notifies the holder of a loss |
//! | the timer continues after the release | it ends with the guard |
//! | `expireAt` remains in the future after a release | the lock is free at once |

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::client::{Client, ClientError, Lease, Refreshed, wait_until};
use crate::clock::Instant;
use crate::compat::{false_if_gone, none_if_held};
use crate::limits::{LEASE_RENEWALS_A_PERIOD, LEASE_RENEWALS_KEPT, RETRY_MS_MAX};
use crate::model::{FencingToken, HolderView, Refusal};
use crate::mutex::Mutex;
use crate::service::LockService;

/// Lease locks in one namespace, with one period.
#[derive(Debug, Clone)]
pub struct LeaseLock<S: LockService> {
    client: Client<S>,
    period: Duration,
}

impl<S: LockService> LeaseLock<S> {
    /// Creates the lock client. Leases last for `period`, which is 30 s in the original.
    #[must_use]
    pub fn new(client: Client<S>, period: Duration) -> Self {
        Self { client, period }
    }

    /// Takes the lock if it is free, and renews it until the guard is released or dropped.
    pub async fn take(&self, id: &str) -> Result<Option<LeaseGuard<S>>, ClientError> {
        let Some(lease) = none_if_held(self.client.lease(id).duration(self.period).take().await)? else {
            return Ok(None);
        };
        let ends = watch::Sender::new(self.client.time().now().after(lease.valid_for()));
        let renewed = Arc::new(Renewed { lease, period: self.period, ends, times: Mutex::default() });
        let timer = tokio::spawn(Arc::clone(&renewed).run_timer());
        Ok(Some(LeaseGuard { renewed, timer }))
    }

    /// Returns the holder and its deadline.
    pub async fn check(&self, id: &str) -> Result<Option<HolderView>, ClientError> {
        Ok(self.client.inspect(id).await?.value.holders.into_iter().next())
    }
}

/// A lease that is renewed automatically. Dropping it stops the renewals, so the lease ends with its period.
#[derive(Debug)]
pub struct LeaseGuard<S: LockService> {
    renewed: Arc<Renewed<S>>,
    timer: JoinHandle<()>,
}

/// A lease with its renewals, which its guard and its timer share.
#[derive(Debug)]
struct Renewed<S: LockService> {
    lease: Lease<S>,
    period: Duration,
    /// Until when the lease certainly lasts, by the client's clock.
    ends: watch::Sender<Instant>,
    times: Mutex<Renewals>,
}

/// The times of the last renewals, oldest first.
#[derive(Debug, Default)]
struct Renewals(VecDeque<Instant>);

impl Renewals {
    fn add(&mut self, renewal: Instant) {
        if self.0.len() == LEASE_RENEWALS_KEPT {
            self.0.pop_front();
        }
        self.0.push_back(renewal);
    }
}

impl<S: LockService> LeaseGuard<S> {
    /// The fencing token of the grant.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.renewed.lease.token()
    }

    /// Waits until the answer to a renewal says that the lease has ended, or until no renewal was answered for a
    /// period. By the client's clock it then returns before another client may be granted the lock.
    pub async fn lost(&self) {
        let mut ends = self.renewed.ends.subscribe();
        loop {
            let end = *ends.borrow_and_update();
            tokio::select! {
                biased;
                // `self` owns the sender, so the channel is never closed.
                _ = ends.changed() => {}
                () = wait_until(&**self.renewed.lease.client.time(), Some(end)) => return,
            }
        }
    }

    /// The times of the last 64 renewals of the lease, by the client's clock, oldest first.
    #[must_use]
    pub fn renewals(&self) -> Vec<Instant> {
        self.renewed.times.lock().0.iter().copied().collect()
    }

    /// Stops the renewals and lets the lease expire, as a crash does.
    pub fn stop_renewing(&self) {
        self.timer.abort();
    }

    /// Stops the renewals and releases the lock. Returns false if the lease had already ended. After an error it can be
    /// repeated; otherwise the lease ends with its period.
    pub async fn release(&self) -> Result<bool, ClientError> {
        self.timer.abort();
        false_if_gone(self.renewed.lease.release().await)
    }
}

impl<S: LockService> Drop for LeaseGuard<S> {
    fn drop(&mut self) {
        self.timer.abort();
    }
}

/// Unanswered renewals of one lease: a call without an answer does not delay the next one.
const IN_FLIGHT_MAX: usize = 2;

impl<S: LockService> Renewed<S> {
    /// Renews the lease periodically until it has ended or may have ended. A renewal that fails at once is retried
    /// before half of the period is over. While one renewal has no answer, a second one is sent: so neither a call that
    /// never returns nor a slow one costs the lease.
    async fn run_timer(self: Arc<Self>) {
        let (clock, interval) = (self.lease.client.time(), self.period / LEASE_RENEWALS_A_PERIOD);
        let (mut attempts, mut newest) = (FuturesUnordered::new(), clock.now());
        let mut due = newest.after(interval);
        loop {
            let (now, end) = (clock.now(), *self.ends.borrow());
            if end <= now {
                return;
            }
            if due <= now && attempts.len() < IN_FLIGHT_MAX {
                attempts.push(self.renew(now));
                (newest, due) = (now, now.after(interval));
            }
            let next = if attempts.len() < IN_FLIGHT_MAX { due } else { end };
            let (sent, renewed) = tokio::select! {
                biased;
                Some(attempted) = attempts.next() => attempted,
                () = wait_until(&**clock, Some(next)) => continue,
            };
            let now = clock.now();
            match renewed {
                // The holder was notified of the loss, which a late answer does not undo.
                _ if *self.ends.borrow() <= now => return,
                Ok(refreshed) => {
                    self.times.lock().add(sent);
                    self.ends.send_modify(|end| *end = sent.after(refreshed.valid_for).max(*end));
                    if sent == newest {
                        // The other attempt is older, so its answer could not move the end.
                        attempts.clear();
                    }
                }
                Err(ClientError::Refused(Refusal::NotHeld { .. } | Refusal::HeldByOther { .. })) => {
                    self.ends.send_replace(now);
                    return;
                }
                Err(error) => {
                    tracing::warn!(lock = %self.lease.name(), %error, "a lease could not be renewed");
                    due = due.min(now.after((interval / 2).min(Duration::from_millis(RETRY_MS_MAX))));
                }
            }
        }
    }

    /// Makes one attempt. Returns when it was sent, together with its answer.
    async fn renew(&self, sent: Instant) -> (Instant, Result<Refreshed, ClientError>) {
        let Lease { client, lock, handle, .. } = &self.lease;
        (sent, client.refresh(lock.name.as_str(), handle, self.period).await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lease that is renewed for a long time remembers only its last renewals.
    #[test]
    fn only_the_last_renewals_are_kept() {
        let at = |nanos: u64| Instant::from_nanos(nanos);
        let mut renewals = Renewals::default();
        (0..1_000).for_each(|nanos| renewals.add(at(nanos)));
        assert_eq!(renewals.0.len(), LEASE_RENEWALS_KEPT);
        assert_eq!((renewals.0.front(), renewals.0.back()), (Some(&at(1_000 - 64)), Some(&at(999))));
    }
}
