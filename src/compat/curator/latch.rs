//! The leader latch: one of many leads, until it closes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{CuratorError, CuratorFramework};
use crate::client::{ClientError, HoldState, HoldWatch, Observer};
use crate::compat::participant::participants;
use crate::model::{FencingToken, Metadata};
use crate::service::{Advice, LockService};

/// One candidate for the leadership under a path. It stands from [`start`](Self::start) to [`close`](Self::close); when it
/// loses the leadership with its session, it stands again in a new one. Dropping it closes it.
///
/// The next leader is the one that has waited longest, where Curator's is any.
pub struct LeaderLatch<S: LockService> {
    curator: CuratorFramework<S>,
    path: String,
    id: String,
    stop: watch::Sender<bool>,
    standing: Arc<watch::Sender<Standing>>,
    task: JoinSet<()>,
}

/// Where a candidate stands.
#[derive(Debug, Clone)]
enum Standing {
    /// It was not started, or closed.
    Out,
    /// It waits.
    Waits,
    /// It leads, or has led under this hold.
    Leads(HoldWatch),
    /// It could not go on.
    Failed(ClientError),
}

/// A candidate as others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatchParticipant {
    /// What it calls itself.
    pub id: String,
    /// Whether it leads.
    pub is_leader: bool,
}

impl<S: LockService> LeaderLatch<S> {
    /// A candidate with an id that others see. Nothing is sent yet.
    pub fn new(curator: &CuratorFramework<S>, path: &str, id: &str) -> Self {
        Self {
            curator: curator.clone(),
            path: path.to_owned(),
            id: id.to_owned(),
            stop: watch::Sender::new(false),
            standing: Arc::new(watch::Sender::new(Standing::Out)),
            task: JoinSet::new(),
        }
    }

    /// Stands for leader. It may be started once.
    pub fn start(&mut self) -> Result<(), CuratorError> {
        if !self.task.is_empty() || *self.stop.borrow() {
            return Err(CuratorError::IllegalState { path: self.path.clone(), why: "it may be started once" });
        }
        self.standing.send_replace(Standing::Waits);
        let candidate = Candidate { curator: self.curator.clone(), path: self.path.clone(), id: self.id.clone() };
        let (stop, standing) = (self.stop.subscribe(), self.standing.clone());
        self.task.spawn(async move { candidate.stand(stop, &standing).await });
        Ok(())
    }

    /// Waits until it leads (`await`).
    pub async fn await_leadership(&self) -> Result<FencingToken, CuratorError> {
        let mut standing = self.standing.subscribe();
        loop {
            let now = standing.borrow_and_update().clone();
            match now {
                Standing::Leads(hold) if hold.state() != HoldState::Lost => return Ok(hold.token()),
                Standing::Leads(_) | Standing::Waits => {}
                Standing::Out => {
                    let why = "it does not stand: it was not started, or was closed";
                    return Err(CuratorError::IllegalState { path: self.path.clone(), why });
                }
                Standing::Failed(error) => return Err(error.into()),
            }
            // The sender lives in `self`, so the channel cannot close while it is awaited.
            drop(standing.changed().await);
        }
    }

    /// Waits at most so long until it leads (`await` with a timeout); false where it does not by then.
    pub async fn await_within(&self, wait: Duration) -> Result<bool, CuratorError> {
        match tokio::time::timeout(wait, self.await_leadership()).await {
            Ok(led) => led.map(|_| true),
            Err(_) => Ok(self.has_leadership()),
        }
    }

    /// Whether it surely leads, on this client's clock.
    #[must_use]
    pub fn has_leadership(&self) -> bool {
        self.token().is_some()
    }

    /// The fencing token of its leadership, for the resources that it writes to.
    #[must_use]
    pub fn token(&self) -> Option<FencingToken> {
        match &*self.standing.borrow() {
            Standing::Leads(hold) if hold.state() != HoldState::Lost => Some(hold.token()),
            Standing::Leads(_) | Standing::Waits | Standing::Out | Standing::Failed(_) => None,
        }
    }

    /// What it calls itself.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Who leads; `None` while nobody does.
    pub async fn leader(&self) -> Result<Option<LatchParticipant>, CuratorError> {
        Ok(self.participants().await?.into_iter().find(|participant| participant.is_leader))
    }

    /// The leader and those that wait, in order.
    pub async fn participants(&self) -> Result<Vec<LatchParticipant>, CuratorError> {
        let all = participants(self.curator.client(), &self.path).await?;
        let of = |participant: &crate::compat::Participant| LatchParticipant {
            id: participant.metadata.who.to_string(),
            is_leader: participant.holds(),
        };
        Ok(all.iter().map(of).collect())
    }

    /// Tells who leads, each time that it changes (`LeaderLatchListener`).
    pub async fn observe(&self) -> Result<Observer<S>, CuratorError> {
        Ok(self.curator.client().election(&self.path).observe().await?)
    }

    /// Leads and stands no more. Answers once the cluster knows of it.
    pub async fn close(mut self) -> Result<(), CuratorError> {
        self.stop.send_replace(true);
        while self.task.join_next().await.is_some() {}
        match &*self.standing.borrow() {
            Standing::Failed(error) => Err(error.clone().into()),
            Standing::Out | Standing::Waits | Standing::Leads(_) => Ok(()),
        }
    }
}

/// What the latch's task needs.
struct Candidate<S: LockService> {
    curator: CuratorFramework<S>,
    path: String,
    id: String,
}

impl<S: LockService> Candidate<S> {
    /// Stands, leads, and stands again, until it is stopped. An outage is waited out; what cannot be mended ends it.
    async fn stand(&self, mut stop: watch::Receiver<bool>, standing: &watch::Sender<Standing>) {
        while !*stop.borrow() {
            standing.send_replace(Standing::Waits);
            match self.one_term(&mut stop, standing).await {
                Err(error) if error.advice() == Advice::GiveUp && !is_end(&error) => {
                    standing.send_replace(Standing::Failed(error));
                    return;
                }
                Ok(()) | Err(_) => {}
            }
        }
        standing.send_replace(Standing::Out);
    }

    /// From the queue to the end of the leadership, or until it is stopped.
    async fn one_term(
        &self,
        stop: &mut watch::Receiver<bool>,
        standing: &watch::Sender<Standing>,
    ) -> Result<(), ClientError> {
        let metadata = Metadata { who: self.id.as_str().into(), pid: std::process::id(), ..Metadata::default() };
        let acquire = async {
            let session = self.curator.session().await?;
            session.lock(&self.path).metadata(metadata).value(&self.id).acquire().await
        };
        let guard = tokio::select! {
            biased;
            () = stopped(stop) => return Ok(()),
            guard = acquire => guard?,
        };
        let hold = guard.watch();
        standing.send_replace(Standing::Leads(hold.clone()));
        tokio::select! {
            biased;
            () = stopped(stop) => drop(guard.release().await?),
            _ = hold.lost() => {}
        }
        Ok(())
    }
}

/// Waits until it is asked to stop; that the latch is gone is the same.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stop| *stop).await);
}

/// The end of a session or hold is no reason to give up.
fn is_end(error: &ClientError) -> bool {
    matches!(error, ClientError::SessionLost { .. } | ClientError::HoldEnded { .. })
}

impl<S: LockService> fmt::Debug for LeaderLatch<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderLatch").field("path", &self.path).field("id", &self.id).finish_non_exhaustive()
    }
}
