//! The lease lock: a caller takes it if `expireAt` is in the past, and a timer renews it while it is held. Other
//! callers can read its state.
//!
//! | original | here |
//! | --- | --- |
//! | the timer renews each half of the period | it renews each third, so that a slow answer arrives before half of the period is over |
//! | the timer renews by name, even if another caller has taken the lock since | it renews only its own grant, and notifies the holder of a loss |
//! | the timer continues after the release | it ends with the guard |
//! | `expireAt` remains in the future after a release | the lock is free at once |

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{false_if_gone, none_if_held};
use crate::client::{Client, ClientError, Lease};
use crate::clock::Instant;
use crate::limits::{LEASE_RENEWALS_A_PERIOD, LEASE_RENEWALS_KEPT};
use crate::model::{FencingToken, Handle, HolderView};
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
        let (lost, renewed) = (watch::Sender::new(false), Arc::<Mutex<Renewals>>::default());
        let timer = Timer {
            client: self.client.clone(),
            id: id.to_owned(),
            handle: lease.handle().clone(),
            period: self.period,
            lost: lost.clone(),
            renewed: Arc::clone(&renewed),
        };
        let timer = tokio::spawn(timer.run());
        Ok(Some(LeaseGuard { lease, lost, renewed, timer }))
    }

    /// Returns the holder and its deadline.
    pub async fn check(&self, id: &str) -> Result<Option<HolderView>, ClientError> {
        Ok(self.client.inspect(id).await?.value.holders.into_iter().next())
    }
}

/// A lease that is renewed automatically. Dropping it stops the renewals, so the lease ends with its period.
#[derive(Debug)]
pub struct LeaseGuard<S: LockService> {
    lease: Lease<S>,
    lost: watch::Sender<bool>,
    renewed: Arc<Mutex<Renewals>>,
    timer: JoinHandle<()>,
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
        self.lease.token()
    }

    /// Waits until the answer to a renewal says that the lease has ended.
    pub async fn lost(&self) {
        // The guard owns the sender, so the wait ends only with a loss.
        let _ = self.lost.subscribe().wait_for(|lost| *lost).await;
    }

    /// The times of the last 64 renewals of the lease, by the client's clock, oldest first.
    #[must_use]
    pub fn renewals(&self) -> Vec<Instant> {
        self.renewed.lock().0.iter().copied().collect()
    }

    /// Stops the renewals and lets the lease expire, as a crash does.
    pub fn stop_renewing(&self) {
        self.timer.abort();
    }

    /// Stops the renewals and releases the lock. Returns false if the lease had already ended. After an error it can be
    /// repeated; otherwise the lease ends with its period.
    pub async fn release(&self) -> Result<bool, ClientError> {
        self.timer.abort();
        false_if_gone(self.lease.release().await)
    }
}

impl<S: LockService> Drop for LeaseGuard<S> {
    fn drop(&mut self) {
        self.timer.abort();
    }
}

struct Timer<S: LockService> {
    client: Client<S>,
    id: String,
    handle: Handle,
    period: Duration,
    lost: watch::Sender<bool>,
    renewed: Arc<Mutex<Renewals>>,
}

impl<S: LockService> Timer<S> {
    /// Renews the lease periodically until it has ended. A renewal that fails is retried at the time of the next one.
    async fn run(self) {
        loop {
            tokio::time::sleep(self.period / LEASE_RENEWALS_A_PERIOD).await;
            let sent = self.client.time().now();
            match false_if_gone(self.client.refresh(&self.id, &self.handle, self.period).await) {
                Ok(true) => self.renewed.lock().add(sent),
                Ok(false) => {
                    self.lost.send_replace(true);
                    return;
                }
                Err(error) => tracing::warn!(lock = %self.id, %error, "a lease could not be renewed"),
            }
        }
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
