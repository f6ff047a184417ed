//! Leader election: a lock whose holder is the leader, with a value that the leader publishes.

use std::time::Duration;

use super::client::Client;
use super::error::{ClientError, Lost};
use super::guard::LockGuard;
use super::hold::Released;
use super::request::acquire::LockRequest;
use super::watch::Watch;
use crate::model::{FencingToken, LockName, LockValue, LockView, LogTime, Metadata, SessionId};
use crate::service::{LockService, ServiceError};

/// An election under a name. Candidates wait in the lock's queue; the holder of the lock leads.
///
/// As with every lock, a paused leader does not know that it was replaced, so resources must check its token.
#[derive(Debug)]
pub struct Election<S: LockService> {
    client: Client<S>,
    name: String,
}

/// The current leader of an election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// The value that the leader proclaims; `None` if it proclaims none.
    pub value: Option<LockValue>,
    /// The fencing token of the leader's term, larger than that of every earlier leader.
    pub token: FencingToken,
    /// The leader's session; `None` if the lock is held by a token lease.
    pub session: Option<SessionId>,
    /// Metadata of the leader's request.
    pub metadata: Metadata,
    /// Log time at which its leadership began.
    pub since: LogTime,
}

impl Leader {
    /// Returns the leader that the state of an election's lock shows, if there is one.
    pub(crate) fn of(view: &LockView) -> Option<Self> {
        let holder = view.holders.first()?;
        Some(Self {
            value: view.value.clone(),
            token: holder.token,
            session: holder.session,
            metadata: holder.metadata.clone(),
            since: holder.since,
        })
    }
}

impl<S: LockService> Client<S> {
    /// Returns the election under this name. Sends nothing.
    pub fn election(&self, name: &str) -> Election<S> {
        Election { client: self.clone(), name: name.to_owned() }
    }
}

impl<S: LockService> Election<S> {
    /// Prepares a candidacy with this value; [`elected`](Campaign::elected) starts it and waits for the leadership.
    pub fn campaign(&self, value: &str) -> Campaign<S> {
        Campaign { request: self.client.lock(&self.name).value(value) }
    }

    /// Returns the current leader, if there is one.
    pub async fn leader(&self) -> Result<Option<Leader>, ClientError> {
        Ok(Leader::of(&self.client.holders(&self.name).await?.value))
    }

    /// Observes the leader and its value, beginning with the current leader.
    pub async fn observe(&self) -> Result<Observer<S>, ClientError> {
        let name = LockName::parse(&self.name)?;
        let watch = self.client.watch(&self.name, None).await?;
        // An observer must not keep a candidate's session alive.
        let election = Election { client: self.client.without_session(), name: self.name.clone() };
        Ok(Observer { election, name, watch, reported: None, due: true })
    }
}

/// A candidacy that was not started yet.
#[derive(Debug)]
#[must_use = "the candidacy starts with elected()"]
pub struct Campaign<S: LockService> {
    request: LockRequest<S>,
}

impl<S: LockService> Campaign<S> {
    /// Waits for at most this duration; by default it waits as long as the session lives.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.request = self.request.wait(wait);
        self
    }

    /// Fails at once if the lock is not free.
    pub fn try_once(mut self) -> Self {
        self.request = self.request.try_once();
        self
    }

    /// Starts the candidacy and waits until it is elected. If the future is dropped earlier, the candidacy is
    /// withdrawn.
    pub async fn elected(self) -> Result<Leadership, ClientError> {
        Ok(Leadership { guard: self.request.acquire().await? })
    }
}

/// The leadership of an election. It lasts until it is resigned, dropped or lost with its lock.
#[derive(Debug)]
#[must_use = "dropping it resigns"]
pub struct Leadership {
    guard: LockGuard,
}

impl Leadership {
    /// Returns the guard of the lock, which has the token and reports the loss.
    pub fn guard(&self) -> &LockGuard {
        &self.guard
    }

    /// Changes the value that the leader publishes.
    pub async fn proclaim(&self, value: &str) -> Result<(), ClientError> {
        self.guard.set_value(Some(value)).await
    }

    /// Runs work while this candidate leads; see [`LockGuard::run`].
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        self.guard.run(work).await
    }

    /// Releases the lock, so that the next candidate leads.
    pub async fn resign(self) -> Result<Released, ClientError> {
        self.guard.release().await
    }
}

/// Returns each change of the leader or of its value. It may skip a state that was replaced quickly, but never the last
/// one.
#[derive(Debug)]
pub struct Observer<S: LockService> {
    election: Election<S>,
    name: LockName,
    watch: Watch<S>,
    reported: Option<Option<Leader>>,
    /// Whether an event occurred after the last read of the leader.
    due: bool,
}

impl<S: LockService> Observer<S> {
    /// Returns the next leader, or `None` when there is no leader. The first call returns the current state.
    pub async fn next(&mut self) -> Result<Option<Leader>, ClientError> {
        loop {
            if self.due {
                let leader = self.election.leader().await?;
                self.due = false;
                if self.reported.as_ref() != Some(&leader) {
                    self.reported = Some(leader.clone());
                    return Ok(leader);
                }
            }
            self.due = match self.watch.next().await {
                Ok(event) => event.subject.lock().is_some_and(|lock| lock.name == self.name),
                Err(ClientError::Service(ServiceError::EventsMissed { .. })) => true,
                Err(error) => return Err(error),
            };
        }
    }
}
