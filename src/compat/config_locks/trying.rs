//! One call of [`ConfigLocks::lock`]: tries, take-overs, and what is left where an answer got lost.

use super::{ConfigLockError, ConfigLocks, Era, ScopedLock};
use crate::client::{ClientError, Grabbed, NewDocument};
use crate::limits;
use crate::model::{DocumentId, EndReason, LockName, Metadata};
use crate::service::LockService;

/// One call of [`ConfigLocks::lock`]. Dropped before it was answered it leaves an unlock behind.
pub(super) struct Trying<'a, S: LockService> {
    manager: &'a ConfigLocks<S>,
    name: LockName,
    said: Metadata,
    ts: DocumentId,
    /// Tries whose answer got lost.
    unclear: u32,
    /// Something may be held under the present `ts`.
    open: bool,
}

impl<'a, S: LockService> Trying<'a, S> {
    pub(super) fn new(manager: &'a ConfigLocks<S>, name: &LockName, said: Metadata) -> Self {
        Self { manager, name: name.clone(), said, ts: manager.new_ts(), unclear: 0, open: false }
    }

    /// One try; the inner error says that somebody else has the lock.
    pub(super) async fn once(&mut self) -> Result<Result<Grabbed, ClientError>, ConfigLockError> {
        let manager = self.manager;
        let prepare = manager.settings.era == Era::Legacy;
        if prepare {
            manager.before_the_first_use().await?;
        }
        self.open = true;
        let name = self.name.as_str();
        let new = NewDocument { ts: self.ts, metadata: self.said.clone(), term: manager.settings.term, prepare };
        let grabbed = match manager.client.grab(name, new.clone()).await {
            Err(held @ ClientError::NotAcquired { .. }) => match manager.expired(&self.name).await {
                Ok(Some(dead)) => {
                    if prepare {
                        manager.before_forcing().await.inspect_err(|_| self.open = false)?;
                    }
                    manager.try_overtake(name, dead.ts, new).await
                }
                Ok(None) => Err(held),
                Err(error) => Err(error),
            },
            other => other,
        };
        let tried = match grabbed {
            Ok(_) if prepare => self.confirmed().await,
            other => other,
        };
        match tried {
            Ok(grabbed) => Ok(Ok(grabbed)),
            Err(held @ ClientError::NotAcquired { .. }) => {
                self.open = false;
                Ok(Err(held))
            }
            Err(error @ ClientError::Service(_)) => self.answer_lost(error).await.map(Err),
            Err(error) => {
                self.open = false;
                Err(error.into())
            }
        }
    }

    /// The second step of the legacy manager. Whoever lost the lock between the two has not got it.
    async fn confirmed(&mut self) -> Result<Grabbed, ClientError> {
        match self.manager.client.confirm(self.name.as_str(), self.ts).await {
            Err(ClientError::HoldEnded { reason: EndReason::Overtaken | EndReason::Broken, lock }) => {
                // This acquisition is spent.
                self.ts = self.manager.new_ts();
                Err(ClientError::NotAcquired { lock, holder: None, closed: None })
            }
            other => other,
        }
    }

    /// Unlocks what may have been got, and tries again under a new `ts`, at most twice.
    async fn answer_lost(&mut self, error: ClientError) -> Result<ClientError, ConfigLockError> {
        let unlocked = self.manager.unlock_named(self.ts, self.name.as_str()).await;
        if unlocked.is_err() {
            self.manager.unlocks.push(self.ts, self.name.clone());
        }
        self.open = false;
        self.ts = self.manager.new_ts();
        self.unclear += 1;
        if limits::CONFIG_UNCLEAR_TRIES_MAX < self.unclear { Err(error.into()) } else { Ok(error) }
    }

    pub(super) fn held(mut self, grabbed: Grabbed) -> ScopedLock<S> {
        self.open = false;
        let (client, unlocks) = (self.manager.client.clone(), self.manager.unlocks.clone());
        ScopedLock::new(client, unlocks, self.name.clone(), self.ts, grabbed)
    }
}

impl<S: LockService> Drop for Trying<'_, S> {
    fn drop(&mut self) {
        if self.open {
            self.manager.unlocks.push(self.ts, self.name.clone());
        }
    }
}
