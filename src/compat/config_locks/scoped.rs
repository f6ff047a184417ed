//! An acquired lock, until it is unlocked or dropped.

use super::pinger::Unlocks;
use super::settings::ConfigLockError;
use crate::client::{Client, ClientError, Grabbed};
use crate::model::{DocumentId, EndReason, EventKind, FencingToken, LockName, Position, TokenState};
use crate::service::{LockService, ServiceError};

/// A held lock of a [`ConfigLocks`](super::ConfigLocks). Dropping it unlocks it in the background, as long as the
/// manager runs.
#[derive(Debug)]
pub struct ScopedLock<S: LockService> {
    client: Client<S>,
    unlocks: Unlocks,
    name: LockName,
    ts: DocumentId,
    token: FencingToken,
    /// Log index of the answer to the grab. The hold ends in this entry at the earliest.
    index: u64,
    /// Whether a drop unlocks the lock.
    unlock_on_drop: bool,
}

impl<S: LockService> ScopedLock<S> {
    pub(super) fn new(
        client: Client<S>,
        unlocks: Unlocks,
        name: LockName,
        ts: DocumentId,
        Grabbed { token, index, .. }: Grabbed,
    ) -> Self {
        Self { client, unlocks, name, ts, token, index, unlock_on_drop: true }
    }

    /// The name of the lock.
    #[must_use]
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// The id of the acquisition.
    #[must_use]
    pub fn ts(&self) -> DocumentId {
        self.ts
    }

    /// The fencing token. Resources refuse older ones.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Whether the lock was still held when the cluster answered. It may be lost right after that, so compare tokens at
    /// the resource.
    pub async fn check(&self) -> Result<bool, ConfigLockError> {
        let checked = self.client.check(self.name.as_str(), self.token).await?;
        Ok(checked.state == TokenState::Valid)
    }

    /// Waits until the lock is lost: broken by its token, overtaken, or handed over. Returns the reason, even if the
    /// loss happened before the call. If the events of that time are no longer kept, it returns [`EndReason::Lost`].
    pub async fn lost(&self) -> Result<EndReason, ConfigLockError> {
        // The position before all events of that entry, which may already end the hold.
        let watch_from = Position { index: self.index.saturating_sub(1), n: u32::MAX };
        let mut watch = self.client.watch(self.name.as_str(), Some(watch_from)).await?;
        loop {
            let event = match watch.next().await {
                Err(ClientError::Service(ServiceError::EventsMissed { resume, .. })) => {
                    watch = self.client.watch(self.name.as_str(), Some(resume)).await?;
                    if !self.check().await? {
                        return Ok(EndReason::Lost);
                    }
                    continue;
                }
                next => next?,
            };
            let mine = event.subject.token() == Some(self.token);
            #[allow(clippy::wildcard_enum_match_arm, reason = "every other event is about something else")]
            match event.kind {
                EventKind::HandedOver { from, .. } if from == self.token => return Ok(EndReason::HandedOver),
                EventKind::Broken { .. } if mine => return Ok(EndReason::Broken),
                // An overtaken hold ends for this reason, too.
                EventKind::Expired { reason, .. } if mine => return Ok(reason),
                EventKind::Released { .. } if mine => return Ok(EndReason::Released),
                _ => {}
            }
        }
    }

    /// Unlocks the lock and waits for the answer.
    pub async fn unlock(mut self) -> Result<(), ConfigLockError> {
        self.client.unlock(self.ts, Some(self.name.as_str())).await?;
        self.unlock_on_drop = false;
        Ok(())
    }
}

impl<S: LockService> Drop for ScopedLock<S> {
    fn drop(&mut self) {
        if self.unlock_on_drop {
            self.unlocks.push(self.ts, self.name.clone());
        }
    }
}
