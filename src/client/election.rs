//! Leader election: a lock whose holder leads, and whose value is what the leader says of itself.

use std::fmt;
use std::time::Duration;

use super::client::Client;
use super::error::{ClientError, Lost};
use super::guard::LockGuard;
use super::hold::Released;
use super::request::acquire::LockRequest;
use super::watch::Watch;
use crate::model::{FencingToken, LockName, LockValue, LogTime, Metadata, SessionId};
use crate::service::{LockService, ServiceError};

/// An election under a name. Candidates stand in the lock's queue; who holds the lock leads.
///
/// As with every lock, a paused leader does not know that it was replaced: resources that matter check its token.
pub struct Election<S: LockService> {
    client: Client<S>,
    name: String,
}

/// Who leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// What it proclaims; empty where it says nothing.
    pub value: Option<LockValue>,
    /// The fencing token of its term: larger for each later leader.
    pub token: FencingToken,
    /// Its session; `None` where the lock is held by a token lease.
    pub session: Option<SessionId>,
    /// What it says of itself.
    pub metadata: Metadata,
    /// Since when, in log time.
    pub since: LogTime,
}

impl<S: LockService> Client<S> {
    /// An election under this name. Nothing is sent yet.
    pub fn election(&self, name: &str) -> Election<S> {
        Election { client: self.clone(), name: name.to_owned() }
    }
}

impl<S: LockService> Election<S> {
    /// Stands for election with this value; [`elected`](Campaign::elected) waits for the office.
    pub fn campaign(&self, value: &str) -> Campaign<S> {
        Campaign { request: self.client.lock(&self.name).value(value) }
    }

    /// Who leads now, if anybody does.
    pub async fn leader(&self) -> Result<Option<Leader>, ClientError> {
        let view = self.client.inspect(&self.name).await?.value;
        let value = view.value;
        Ok(view.holders.into_iter().next().map(|holder| Leader {
            value,
            token: holder.token,
            session: holder.session,
            metadata: holder.metadata,
            since: holder.since,
        }))
    }

    /// Follows who leads and what it proclaims, beginning with how it is now.
    pub async fn observe(&self) -> Result<Observer<S>, ClientError> {
        let name = LockName::parse(&self.name)?;
        let watch = self.client.watch(&self.name, None).await?;
        // To look on must not keep a candidate's session alive.
        let election = Election { client: self.client.without_session(), name: self.name.clone() };
        Ok(Observer { election, name, watch, told: None, due: true })
    }
}

/// A candidacy that was not handed in yet.
#[must_use = "nobody stands before elected()"]
pub struct Campaign<S: LockService> {
    request: LockRequest<S>,
}

impl<S: LockService> Campaign<S> {
    /// Waits at most so long; by default as long as the session lives.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.request = self.request.wait(wait);
        self
    }

    /// Does not wait.
    pub fn try_once(mut self) -> Self {
        self.request = self.request.try_once();
        self
    }

    /// Waits until it is elected. Dropped before, it withdraws.
    pub async fn elected(self) -> Result<Leadership, ClientError> {
        Ok(Leadership { guard: self.request.acquire().await? })
    }
}

/// Leads, until it resigns, is dropped, or loses the lock.
#[derive(Debug)]
#[must_use = "dropping it resigns"]
pub struct Leadership {
    guard: LockGuard,
}

impl Leadership {
    /// The hold of the lock, with its token and its loss.
    pub fn guard(&self) -> &LockGuard {
        &self.guard
    }

    /// Says something else of itself from now on.
    pub async fn proclaim(&self, value: &str) -> Result<(), ClientError> {
        self.guard.set_value(Some(value)).await
    }

    /// Does work while it leads; see [`LockGuard::run`].
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        self.guard.run(work).await
    }

    /// Makes room for the next candidate.
    pub async fn resign(self) -> Result<Released, ClientError> {
        self.guard.release().await
    }
}

/// Tells who leads, each time that it changes. A state that lasted only for a moment may be skipped; the last one never.
pub struct Observer<S: LockService> {
    election: Election<S>,
    name: LockName,
    watch: Watch<S>,
    told: Option<Option<Leader>>,
    /// Something happened since it was last looked.
    due: bool,
}

impl<S: LockService> Observer<S> {
    /// The next leader, or that nobody leads. The first call tells how it is.
    pub async fn next(&mut self) -> Result<Option<Leader>, ClientError> {
        loop {
            if self.due {
                let leader = self.election.leader().await?;
                self.due = false;
                if self.told.as_ref() != Some(&leader) {
                    self.told = Some(leader.clone());
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

impl<S: LockService> fmt::Debug for Election<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<S: LockService> fmt::Debug for Campaign<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Campaign").field("request", &self.request).finish()
    }
}

impl<S: LockService> fmt::Debug for Observer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("name", &self.name).field("told", &self.told).finish_non_exhaustive()
    }
}
