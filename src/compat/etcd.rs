//! etcd's `concurrency` package: sessions, mutexes and elections.
//!
//! | etcd | here |
//! | --- | --- |
//! | `NewSession` `WithTTL` `Done` `Close` | [`Session::new`] [`done`](Session::done) [`close`](Session::close) |
//! | `NewMutex` `Lock` `TryLock` `Unlock` `Key` `IsOwner` | [`Mutex::new`] [`lock`](Mutex::lock) [`try_lock`](Mutex::try_lock) [`unlock`](Mutex::unlock) [`key`](Mutex::key) [`is_owner`](Mutex::is_owner) |
//! | `NewElection` `Campaign` `Proclaim` `Resign` `Leader` `Observe` `Key` `Rev` | [`Election::new`] and the same names |
//! | a context that ends | dropping the future |
//!
//! - Two mutexes of one session exclude each other, too: etcd lets both in, for its keys are a session's.
//! - What etcd asks in a transaction (`IsOwner`) is a fencing token here, which the resource itself can check.

use std::fmt;
use std::time::Duration;

use crate::client::{self, Client, ClientError, HoldState, Leader, LockGuard, Observer};
use crate::model::{FencingToken, Refusal, SessionId};
use crate::service::LockService;

/// Why a call did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EtcdError {
    /// Another holds the mutex (`ErrLocked`).
    #[error("mutex: locked by another session")]
    Locked,
    /// The session has ended (`ErrSessionExpired`).
    #[error("mutex: session is expired")]
    SessionExpired,
    /// This mutex is not held (`ErrLockReleased`).
    #[error("mutex: lock has already been released")]
    LockReleased,
    /// This candidate does not lead (`ErrElectionNotLeader`).
    #[error("election: not leader")]
    NotLeader,
    /// Nobody leads (`ErrElectionNoLeader`).
    #[error("election: no leader")]
    NoLeader,
    /// The cluster did not answer, or refused: to be told apart by its [`advice`](ClientError::advice).
    #[error(transparent)]
    Client(ClientError),
}

impl From<ClientError> for EtcdError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::NotAcquired { .. } => EtcdError::Locked,
            ClientError::SessionLost { .. } => EtcdError::SessionExpired,
            error @ (ClientError::Refused(_)
            | ClientError::HoldEnded { .. }
            | ClientError::Service(_)
            | ClientError::Invalid(_)) => EtcdError::Client(error),
        }
    }
}

/// A lease that is kept alive; mutexes and elections of it end with it.
pub struct Session<S: LockService> {
    session: client::Session<S>,
}

impl<S: LockService> Session<S> {
    /// Opens one that ends so long after its last renewal (`WithTTL`).
    pub async fn new(client: &Client<S>, ttl: Duration) -> Result<Self, EtcdError> {
        Ok(Self { session: client.session().ttl(ttl).open().await? })
    }

    /// Its public id (`Lease`).
    #[must_use]
    pub fn lease(&self) -> SessionId {
        self.session.id()
    }

    /// Waits until it has ended.
    pub async fn done(&self) {
        self.session.lost().await;
    }

    /// Ends it, and everything that it holds.
    pub async fn close(self) -> Result<(), EtcdError> {
        Ok(self.session.close().await?)
    }
}

/// A mutex under a prefix. Dropping it unlocks it.
pub struct Mutex<S: LockService> {
    session: client::Session<S>,
    prefix: String,
    guard: Option<LockGuard>,
}

impl<S: LockService> Mutex<S> {
    /// A mutex of this session. Nothing is sent yet.
    pub fn new(session: &Session<S>, prefix: &str) -> Self {
        Self { session: session.session.clone(), prefix: prefix.to_owned(), guard: None }
    }

    /// Waits for it, first come, first served. Who holds it already goes on holding it.
    pub async fn lock(&mut self) -> Result<(), EtcdError> {
        if self.is_owner().is_none() {
            self.guard = Some(self.session.lock(&self.prefix).acquire().await?);
        }
        Ok(())
    }

    /// Does not wait: [`Locked`](EtcdError::Locked) where another holds it.
    pub async fn try_lock(&mut self) -> Result<(), EtcdError> {
        if self.is_owner().is_none() {
            self.guard = Some(self.session.lock(&self.prefix).try_once().acquire().await?);
        }
        Ok(())
    }

    /// Gives it back; [`LockReleased`](EtcdError::LockReleased) where it is not held, also where it was lost.
    pub async fn unlock(&mut self) -> Result<(), EtcdError> {
        let Some(guard) = self.guard.take() else { return Err(EtcdError::LockReleased) };
        match guard.release().await {
            Ok(_) => Ok(()),
            Err(ClientError::Refused(Refusal::NotHeld { .. } | Refusal::HeldByOther { .. })) => {
                Err(EtcdError::LockReleased)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A name of this hold that no other has; `None` while it is not held.
    #[must_use]
    pub fn key(&self) -> Option<String> {
        self.is_owner().map(|token| format!("{}/{token}", self.prefix))
    }

    /// The fencing token while it is surely held, for the resource to check.
    #[must_use]
    pub fn is_owner(&self) -> Option<FencingToken> {
        held(self.guard.as_ref())
    }
}

fn held(guard: Option<&LockGuard>) -> Option<FencingToken> {
    guard.filter(|guard| guard.state() != HoldState::Lost).map(LockGuard::token)
}

/// An election under a prefix, for one candidate. Dropping it resigns.
pub struct Election<S: LockService> {
    session: client::Session<S>,
    prefix: String,
    guard: Option<LockGuard>,
}

impl<S: LockService> Election<S> {
    /// A candidate of this session. Nothing is sent yet.
    pub fn new(session: &Session<S>, prefix: &str) -> Self {
        Self { session: session.session.clone(), prefix: prefix.to_owned(), guard: None }
    }

    /// Waits until it leads with this value. Who leads already proclaims it.
    pub async fn campaign(&mut self, value: &str) -> Result<(), EtcdError> {
        if self.rev().is_some() {
            return self.proclaim(value).await;
        }
        self.guard = Some(self.session.lock(&self.prefix).value(value).acquire().await?);
        Ok(())
    }

    /// Lets the leader announce another value without another election.
    pub async fn proclaim(&self, value: &str) -> Result<(), EtcdError> {
        let Some(guard) = self.guard.as_ref().filter(|_| self.rev().is_some()) else {
            return Err(EtcdError::NotLeader);
        };
        match guard.set_value(Some(value)).await {
            Ok(()) => Ok(()),
            Err(ClientError::Refused(Refusal::NotHeld { .. } | Refusal::HeldByOther { .. })) => {
                Err(EtcdError::NotLeader)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Lets the next one lead. Who does not lead has nothing to give up.
    pub async fn resign(&mut self) -> Result<(), EtcdError> {
        let Some(guard) = self.guard.take() else { return Ok(()) };
        match guard.release().await {
            Ok(_)
            | Err(
                ClientError::SessionLost { .. }
                | ClientError::Refused(Refusal::NotHeld { .. } | Refusal::HeldByOther { .. }),
            ) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Who leads; [`NoLeader`](EtcdError::NoLeader) where nobody does.
    pub async fn leader(&self) -> Result<Leader, EtcdError> {
        self.session.client().election(&self.prefix).leader().await?.ok_or(EtcdError::NoLeader)
    }

    /// Follows who leads and what it proclaims, beginning with how it is now.
    pub async fn observe(&self) -> Result<Observer<S>, EtcdError> {
        Ok(self.session.client().election(&self.prefix).observe().await?)
    }

    /// A name of this leadership that no other has; `None` while it does not lead.
    #[must_use]
    pub fn key(&self) -> Option<String> {
        self.rev().map(|token| format!("{}/{token}", self.prefix))
    }

    /// The fencing token while it surely leads: larger for each later leader.
    #[must_use]
    pub fn rev(&self) -> Option<FencingToken> {
        held(self.guard.as_ref())
    }
}

impl<S: LockService> fmt::Debug for Session<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("lease", &self.lease()).finish_non_exhaustive()
    }
}

impl<S: LockService> fmt::Debug for Mutex<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").field("key", &self.key()).finish_non_exhaustive()
    }
}

impl<S: LockService> fmt::Debug for Election<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election").field("key", &self.key()).finish_non_exhaustive()
    }
}
