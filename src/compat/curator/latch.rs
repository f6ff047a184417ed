//! The leader latch: one of many candidates leads until it is closed.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{CuratorError, CuratorFramework};
use crate::client::{ClientError, HoldState, HoldWatch, LockGuard, Observer};
use crate::compat::Participant;
use crate::compat::participant::participants;
use crate::limits::RETRY_MS_MAX;
use crate::model::{FencingToken, Metadata};
use crate::service::{Advice, LockService};

/// One candidate for the leadership under a path, from [`start`](Self::start) to [`close`](Self::close). If it loses
/// the leadership with its session, it becomes a candidate again with a new session. Dropping the latch closes it.
///
/// The next leader is the candidate that has waited longest. In Curator it can be any candidate.
#[derive(Debug)]
pub struct LeaderLatch<S: LockService> {
    candidate: Candidate<S>,
    stop: watch::Sender<bool>,
    state: watch::Sender<CandidateState>,
    task: JoinSet<()>,
}

#[derive(Debug, Clone)]
struct Candidate<S: LockService> {
    curator: CuratorFramework<S>,
    path: String,
    id: String,
}

#[derive(Debug, Clone)]
enum CandidateState {
    /// The candidate was not started, or was closed.
    Out,
    /// The candidate waits for the leadership.
    Waits,
    /// The candidate leads, or has led, with this hold.
    Leads(HoldWatch),
    /// The candidate failed with an error that a retry cannot fix, or its last release was not answered.
    Failed(ClientError),
}

/// A candidate as other clients see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatchParticipant {
    /// The id that the caller gave the candidate.
    pub id: String,
    /// Whether the candidate leads.
    pub is_leader: bool,
}

impl<S: LockService> LeaderLatch<S> {
    /// Creates a candidate with an id that other clients see. Sends no request.
    pub fn new(curator: &CuratorFramework<S>, path: &str, id: &str) -> Self {
        let candidate = Candidate { curator: curator.clone(), path: path.to_owned(), id: id.to_owned() };
        let (stop, state) = (watch::Sender::new(false), watch::Sender::new(CandidateState::Out));
        Self { candidate, stop, state, task: JoinSet::new() }
    }

    /// Starts the candidacy. A latch can be started once.
    pub fn start(&mut self) -> Result<(), CuratorError> {
        if !self.task.is_empty() || *self.stop.borrow() {
            return Err(self.refused("it can be started only once"));
        }
        self.state.send_replace(CandidateState::Waits);
        let (candidate, stop, state) = (self.candidate.clone(), self.stop.subscribe(), self.state.clone());
        self.task.spawn(async move {
            let ended = candidate.campaign(stop, &state).await;
            state.send_replace(ended.map_or_else(CandidateState::Failed, |()| CandidateState::Out));
        });
        Ok(())
    }

    /// Waits until this candidate leads (`await`).
    pub async fn await_leadership(&self) -> Result<FencingToken, CuratorError> {
        let mut state = self.state.subscribe();
        loop {
            let now = state.borrow_and_update().clone();
            match now {
                CandidateState::Leads(hold) if hold.state() != HoldState::Lost => return Ok(hold.token()),
                CandidateState::Leads(_) | CandidateState::Waits => {}
                CandidateState::Out => {
                    return Err(self.refused("it is no candidate: it was not started, or was closed"));
                }
                CandidateState::Failed(error) => return Err(error.into()),
            }
            // `self` owns the sender, so the channel is never closed.
            drop(state.changed().await);
        }
    }

    /// Waits for at most this duration until this candidate leads (`await` with a timeout). Returns whether it leads.
    pub async fn await_within(&self, wait: Duration) -> Result<bool, CuratorError> {
        match tokio::time::timeout(wait, self.await_leadership()).await {
            Ok(led) => led.map(|_| true),
            Err(_) => Ok(self.has_leadership()),
        }
    }

    /// Whether this candidate certainly leads, by this client's clock.
    #[must_use]
    pub fn has_leadership(&self) -> bool {
        self.token().is_some()
    }

    /// The fencing token of the leadership, for the resources that the leader writes to.
    #[must_use]
    pub fn token(&self) -> Option<FencingToken> {
        match &*self.state.borrow() {
            CandidateState::Leads(hold) if hold.state() != HoldState::Lost => Some(hold.token()),
            CandidateState::Leads(_) | CandidateState::Waits | CandidateState::Out | CandidateState::Failed(_) => None,
        }
    }

    /// The id of this candidate.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.candidate.id
    }

    /// The current leader, if there is one.
    pub async fn leader(&self) -> Result<Option<LatchParticipant>, CuratorError> {
        Ok(self.participants().await?.into_iter().find(|participant| participant.is_leader))
    }

    /// The leader and the waiting candidates, in order.
    pub async fn participants(&self) -> Result<Vec<LatchParticipant>, CuratorError> {
        let all = participants(self.candidate.curator.client(), &self.candidate.path).await?;
        let of = |participant: &Participant| LatchParticipant {
            id: participant.metadata.who.to_string(),
            is_leader: participant.holds(),
        };
        Ok(all.iter().map(of).collect())
    }

    /// Observes changes of the leader (`LeaderLatchListener`).
    pub async fn observe(&self) -> Result<Observer<S>, CuratorError> {
        Ok(self.candidate.curator.client().election(&self.candidate.path).observe().await?)
    }

    /// Ends the leadership or the candidacy. For the leader it returns when the cluster has confirmed the end. If the
    /// cluster does not answer in time, the result is that error, and the session's task continues with the release.
    /// For a candidate that waits it returns at once, and the session's task withdraws the candidacy.
    pub async fn close(mut self) -> Result<(), CuratorError> {
        self.stop.send_replace(true);
        while self.task.join_next().await.is_some() {}
        match &*self.state.borrow() {
            CandidateState::Failed(error) => Err(error.clone().into()),
            CandidateState::Out | CandidateState::Waits | CandidateState::Leads(_) => Ok(()),
        }
    }

    fn refused(&self, why: &'static str) -> CuratorError {
        CuratorError::IllegalState { path: self.candidate.path.clone(), why }
    }
}

impl<S: LockService> Candidate<S> {
    /// Becomes a candidate and leads, repeatedly, until it is stopped. Pauses after an outage or a full namespace, and
    /// while only the cluster knows that its session has ended. An error that a retry cannot fix ends it.
    async fn campaign(
        &self,
        mut stop: watch::Receiver<bool>,
        state: &watch::Sender<CandidateState>,
    ) -> Result<(), ClientError> {
        while !*stop.borrow() {
            state.send_replace(CandidateState::Waits);
            let elected = tokio::select! {
                biased;
                () = stopped(&mut stop) => return Ok(()),
                elected = self.elected() => elected,
            };
            match elected {
                Ok(guard) => lead(guard, &mut stop, state).await?,
                // The session or the hold has ended, and the candidate continues with another one.
                Err(ClientError::SessionLost { .. } | ClientError::HoldEnded { .. }) => {}
                Err(error) if error.advice() == Advice::GiveUp => return Err(error),
                Err(_) => tokio::select! {
                    () = stopped(&mut stop) => {}
                    () = tokio::time::sleep(Duration::from_millis(RETRY_MS_MAX)) => {}
                },
            }
        }
        Ok(())
    }

    /// Waits in the queue for the leadership.
    async fn elected(&self) -> Result<LockGuard, ClientError> {
        let metadata = Metadata { who: self.id.as_str().into(), pid: std::process::id(), ..Metadata::default() };
        let session = self.curator.session().await?;
        let elected = session.lock(&self.path).metadata(metadata).value(&self.id).acquire().await;
        if matches!(elected, Err(ClientError::SessionLost { .. })) {
            // The cluster may know of the end of the session before the client does. Until then the next acquire would
            // be refused, too.
            drop(tokio::time::timeout(Duration::from_millis(RETRY_MS_MAX), session.lost()).await);
        }
        elected
    }
}

/// Leads until the leadership is lost or the latch is stopped. The error is that of a release without an answer; after
/// any other one the leadership has ended, too.
async fn lead(
    guard: LockGuard,
    stop: &mut watch::Receiver<bool>,
    state: &watch::Sender<CandidateState>,
) -> Result<(), ClientError> {
    let hold = guard.watch();
    state.send_replace(CandidateState::Leads(hold.clone()));
    tokio::select! {
        biased;
        () = stopped(stop) => match guard.release().await {
            Err(error @ ClientError::Service(_)) => Err(error),
            Ok(_) | Err(_) => Ok(()),
        },
        _ = hold.lost() => Ok(()),
    }
}

/// Waits until the latch is closed or dropped.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stop| *stop).await);
}
