//! etcd's `concurrency` package: sessions, mutexes and elections.
//!
//! | etcd | here |
//! | --- | --- |
//! | `NewSession` `WithTTL` `Done` `Close` | [`Session::new`] [`done`](Session::done) [`close`](Session::close) |
//! | `NewMutex` `Lock` `TryLock` `Unlock` `Key` `IsOwner` | [`Mutex::new`] [`lock`](Mutex::lock) [`try_lock`](Mutex::try_lock) [`unlock`](Mutex::unlock) [`key`](Mutex::key) [`is_owner`](Mutex::is_owner) |
//! | `NewElection` `Campaign` `Proclaim` `Resign` `Leader` `Observe` `Key` `Rev` | [`Election::new`] and the same names |
//! | a context that is cancelled | dropping the future |
//!
//! - Two mutexes with the same prefix exclude each other even within one session. In etcd the session would acquire
//!   both, because a key belongs to the session.
//! - etcd compares `IsOwner` in a transaction. Here a fencing token replaces it, which the resource itself can check.

use std::time::Duration;

use super::false_if_gone;
use crate::client::{self, Client, ClientError, HoldState, Leader, LockGuard, Observer};
use crate::model::{FencingToken, SessionId};
use crate::service::LockService;

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EtcdError {
    /// Another session holds the mutex (`ErrLocked`).
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
    /// There is no leader (`ErrElectionNoLeader`).
    #[error("election: no leader")]
    NoLeader,
    /// The cluster did not answer, or it refused the request. The [`advice`](ClientError::advice) distinguishes the
    /// two.
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

/// A session that is kept alive. Its mutexes and elections end with it.
#[derive(Debug)]
pub struct Session<S: LockService> {
    session: client::Session<S>,
}

impl<S: LockService> Session<S> {
    /// Opens a session that ends this duration after its last renewal (`WithTTL`).
    pub async fn new(client: &Client<S>, ttl: Duration) -> Result<Self, EtcdError> {
        Ok(Self { session: client.session().ttl(ttl).open().await? })
    }

    /// The session's public id (`Lease`).
    #[must_use]
    pub fn lease(&self) -> SessionId {
        self.session.id()
    }

    /// Waits until the session has ended.
    pub async fn done(&self) {
        self.session.lost().await;
    }

    /// Ends the session and all its holds.
    pub async fn close(self) -> Result<(), EtcdError> {
        Ok(self.session.close().await?)
    }
}

/// A mutex under a prefix. Dropping it unlocks it.
#[derive(Debug)]
pub struct Mutex<S: LockService> {
    session: client::Session<S>,
    prefix: String,
    guard: Option<LockGuard>,
}

impl<S: LockService> Mutex<S> {
    /// Creates a mutex of this session. Sends no request.
    pub fn new(session: &Session<S>, prefix: &str) -> Self {
        Self { session: session.session.clone(), prefix: prefix.to_owned(), guard: None }
    }

    /// Waits for the mutex in the order of requests. If this value already holds it, it remains held.
    pub async fn lock(&mut self) -> Result<(), EtcdError> {
        if self.is_owner().is_none() {
            self.guard = Some(self.session.lock(&self.prefix).acquire().await?);
        }
        Ok(())
    }

    /// Acquires the mutex, or fails at once with [`Locked`](EtcdError::Locked) if another session holds it.
    pub async fn try_lock(&mut self) -> Result<(), EtcdError> {
        if self.is_owner().is_none() {
            self.guard = Some(self.session.lock(&self.prefix).try_once().acquire().await?);
        }
        Ok(())
    }

    /// Releases the mutex. Fails with [`LockReleased`](EtcdError::LockReleased) if it is not held, or was lost.
    pub async fn unlock(&mut self) -> Result<(), EtcdError> {
        let Some(guard) = self.guard.take() else { return Err(EtcdError::LockReleased) };
        if false_if_gone(guard.release().await)? { Ok(()) } else { Err(EtcdError::LockReleased) }
    }

    /// Returns a unique name of this hold; `None` while the mutex is not held.
    #[must_use]
    pub fn key(&self) -> Option<String> {
        self.is_owner().map(|token| format!("{}/{token}", self.prefix))
    }

    /// Returns the fencing token, which the resource can check, while the mutex is certainly held.
    #[must_use]
    pub fn is_owner(&self) -> Option<FencingToken> {
        self.held().map(LockGuard::token)
    }

    fn held(&self) -> Option<&LockGuard> {
        self.guard.as_ref().filter(|guard| guard.state() != HoldState::Lost)
    }
}

/// An election under a prefix, for one candidate. Dropping it resigns.
#[derive(Debug)]
pub struct Election<S: LockService> {
    /// The mutex that the leader holds.
    mutex: Mutex<S>,
}

impl<S: LockService> Election<S> {
    /// Creates a candidate of this session. Sends no request.
    pub fn new(session: &Session<S>, prefix: &str) -> Self {
        Self { mutex: Mutex::new(session, prefix) }
    }

    /// Waits until the candidate leads with this value. If it already leads, it proclaims the value.
    pub async fn campaign(&mut self, value: &str) -> Result<(), EtcdError> {
        if self.rev().is_some() {
            return self.proclaim(value).await;
        }
        let mutex = &mut self.mutex;
        mutex.guard = Some(mutex.session.lock(&mutex.prefix).value(value).acquire().await?);
        Ok(())
    }

    /// Publishes another value of the leader without another election.
    pub async fn proclaim(&self, value: &str) -> Result<(), EtcdError> {
        let Some(guard) = self.mutex.held() else { return Err(EtcdError::NotLeader) };
        if false_if_gone(guard.set_value(Some(value)).await)? { Ok(()) } else { Err(EtcdError::NotLeader) }
    }

    /// Resigns, so that the next candidate leads. Does nothing if this candidate does not lead.
    pub async fn resign(&mut self) -> Result<(), EtcdError> {
        let Some(guard) = self.mutex.guard.take() else { return Ok(()) };
        match false_if_gone(guard.release().await) {
            Ok(_) | Err(ClientError::SessionLost { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the current leader, or [`NoLeader`](EtcdError::NoLeader).
    pub async fn leader(&self) -> Result<Leader, EtcdError> {
        self.election().leader().await?.ok_or(EtcdError::NoLeader)
    }

    /// Observes the leader and its value, beginning with the current leader.
    pub async fn observe(&self) -> Result<Observer<S>, EtcdError> {
        Ok(self.election().observe().await?)
    }

    /// Returns a unique name of this leadership; `None` while the candidate does not lead.
    #[must_use]
    pub fn key(&self) -> Option<String> {
        self.mutex.key()
    }

    /// Returns the fencing token while the candidate certainly leads. Each later leader has a larger one.
    #[must_use]
    pub fn rev(&self) -> Option<FencingToken> {
        self.mutex.is_owner()
    }

    fn election(&self) -> client::Election<S> {
        self.mutex.session.client().election(&self.mutex.prefix)
    }
}
