//! [`ConfigLocks::lock`]: its attempts and take-overs, and the unlock that it queues if an answer was lost.

use std::time::Duration;

use super::ConfigLocks;
use super::observer::Era;
use super::scoped::ScopedLock;
use super::settings::{ConfigLockError, WaitFor, is_unclear};
use crate::client::{ClientError, Grabbed, NewDocument};
use crate::clock::Instant;
use crate::limits;
use crate::model::{DocumentId, EndReason, LockName, Metadata};
use crate::service::LockService;

impl<S: LockService> ConfigLocks<S> {
    /// Acquires a lock, and waits for it as `wait` says. Takes over the lock of a process that no longer pings.
    pub async fn lock(&self, name: &str, why: &str, wait: WaitFor) -> Result<ScopedLock<S>, ConfigLockError> {
        let name = LockName::parse(name)?;
        let who = format!("{}:{:x}", self.process, self.client.time().random_u128() as u64);
        let mut pending = PendingLock::new(self, &name, self.metadata(&who, why));
        let began = self.client.time().now();
        let limit = match wait {
            WaitFor::SingleAttempt => Some(began),
            WaitFor::Duration(wait) => Some(began.after(wait)),
            WaitFor::Forever => None,
        };
        let mut logged = began;
        loop {
            let last = match pending.attempt().await? {
                Ok(grabbed) => {
                    self.observer.lock().forget(&name);
                    return Ok(pending.held(grabbed));
                }
                Err(last) => last,
            };
            let now = self.client.time().now();
            if limit.is_some_and(|limit| limit <= now) {
                if matches!(last, ClientError::Service(_)) {
                    // No answer said that another process has the lock.
                    return Err(last.into());
                }
                return Err(match wait {
                    WaitFor::SingleAttempt => ConfigLockError::LockStateChangeFailed(last),
                    WaitFor::Duration(_) | WaitFor::Forever => {
                        ConfigLockError::LockBusy { name, waited: now.since(began), last }
                    }
                });
            }
            if is_log_due(logged, now) {
                tracing::info!(lock = %name, waited = ?now.since(began), "still waiting: {last}");
                logged = now;
            }
            let rest = limit.map_or(self.settings.retry_every, |limit| limit.since(now));
            tokio::time::sleep(rest.min(self.settings.retry_every)).await;
        }
    }
}

/// Whether a caller that waits logs that it still waits. `logged` is when it logged last, or began to wait.
fn is_log_due(logged: Instant, now: Instant) -> bool {
    Duration::from_millis(limits::CONFIG_LOG_MS) <= now.since(logged)
}

/// One call of [`ConfigLocks::lock`]. If it is dropped while an attempt is in progress or may still take the lock, it
/// queues an unlock.
struct PendingLock<'a, S: LockService> {
    manager: &'a ConfigLocks<S>,
    name: LockName,
    metadata: Metadata,
    ts: DocumentId,
    /// Number of attempts whose answer was lost.
    unclear: u32,
    in_progress: bool,
    /// Whether an attempt under the current `ts` had no answer. A later refusal does not exclude that it still takes
    /// the lock.
    in_doubt: bool,
}

impl<'a, S: LockService> PendingLock<'a, S> {
    fn new(manager: &'a ConfigLocks<S>, name: &LockName, metadata: Metadata) -> Self {
        let (name, ts) = (name.clone(), manager.new_ts());
        Self { manager, name, metadata, ts, unclear: 0, in_progress: false, in_doubt: false }
    }

    /// Makes one attempt. The inner error says that another process has the lock.
    async fn attempt(&mut self) -> Result<Result<Grabbed, ClientError>, ConfigLockError> {
        let prepare = self.manager.settings.era == Era::Legacy;
        if prepare {
            self.manager.before_the_first_use().await?;
        }
        self.in_progress = true;
        let tried = self.grab_or_overtake(prepare).await;
        self.in_progress = false;
        tried
    }

    async fn grab_or_overtake(&mut self, prepare: bool) -> Result<Result<Grabbed, ClientError>, ConfigLockError> {
        let manager = self.manager;
        let name = self.name.as_str();
        let new = NewDocument { ts: self.ts, metadata: self.metadata.clone(), term: manager.settings.term, prepare };
        let grabbed = match manager.client.grab_noting_doubt(name, None, new.clone(), &mut self.in_doubt).await {
            Err(held @ ClientError::NotAcquired { .. }) => match manager.expired(&self.name).await {
                Ok(Some(dead)) => {
                    if prepare {
                        manager.before_forcing().await?;
                    }
                    manager.try_overtake(name, dead.ts, new, &mut self.in_doubt).await
                }
                Ok(None) => Err(held),
                Err(error) => Err(error),
            },
            other => other,
        };
        let prepared = prepare && grabbed.is_ok();
        let tried = if prepared { self.confirmed().await } else { grabbed };
        match tried {
            Ok(grabbed) => Ok(Ok(grabbed)),
            Err(held @ ClientError::NotAcquired { .. }) => Ok(Err(held)),
            Err(error) if is_unclear(&error) || (prepared && matches!(error, ClientError::Service(_))) => {
                self.answer_lost(error).await.map(Err)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The second step of the legacy manager. Fails if another process took the lock between the two steps.
    async fn confirmed(&mut self) -> Result<Grabbed, ClientError> {
        match self.manager.client.confirm(self.name.as_str(), self.ts).await {
            Err(ClientError::HoldEnded { reason: EndReason::Overtaken | EndReason::Broken, lock }) => {
                // The document id of this acquisition cannot be used again.
                self.renew_ts();
                Err(ClientError::NotAcquired { lock, holder: None, closed: None })
            }
            other => other,
        }
    }

    /// Unlocks what may be held or prepared, and lets the caller retry with a new `ts`. Allows at most two such
    /// retries.
    async fn answer_lost(&mut self, error: ClientError) -> Result<ClientError, ConfigLockError> {
        let unlocked = self.manager.unlock_named(self.ts, self.name.as_str()).await;
        if unlocked.is_err() {
            self.manager.unlocks.push(self.ts, self.name.clone());
        }
        self.renew_ts();
        self.unclear += 1;
        if limits::CONFIG_UNCLEAR_TRIES_MAX < self.unclear { Err(error.into()) } else { Ok(error) }
    }

    fn renew_ts(&mut self) {
        (self.ts, self.in_doubt) = (self.manager.new_ts(), false);
    }

    fn held(mut self, grabbed: Grabbed) -> ScopedLock<S> {
        self.in_doubt = false;
        let (client, unlocks) = (self.manager.client.clone(), self.manager.unlocks.clone());
        ScopedLock::new(client, unlocks, self.name.clone(), self.ts, grabbed)
    }
}

impl<S: LockService> Drop for PendingLock<'_, S> {
    fn drop(&mut self) {
        if self.in_progress || self.in_doubt {
            self.manager.unlocks.push(self.ts, self.name.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A caller that waits logs a message once it has waited for ten seconds since the last one, and not earlier.
    #[test]
    fn a_message_is_due_after_ten_seconds() {
        let (logged, ten) = (Instant::from_nanos(7), Duration::from_secs(10));
        assert!(!is_log_due(logged, logged.after(ten - Duration::from_nanos(1))));
        assert!(is_log_due(logged, logged.after(ten)));
    }
}
