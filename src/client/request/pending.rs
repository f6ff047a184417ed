//! One request within a session on its way: one number from the first try to the last, and nothing left behind where its
//! caller goes away.

use std::sync::Arc;
use std::time::Duration;

use super::errands::Request;
use super::hold::Hold;
use super::presence::{Errand, Tie};
use super::waiting::{granted, granted_set, no_answer, not_acquired, passed, settled};
use super::wanted::{OnQueued, Wait, Wanted};
use super::{Client, ClientError, LockGuard, Retry, Session};
use crate::clock::Instant;
use crate::model::{
    Claim, Command, Grant, LockKey, LockName, LogTime, Metadata, Outcome, Patience, Place, Reply, RequestId,
};
use crate::service::{Call, ClaimRef, LockService, ServiceError};

/// Whose session asks.
pub(super) enum Asker<S: LockService> {
    Own(Session<S>),
    /// The client's, opened where it is not yet.
    Shared(Client<S>),
}

/// A session that is about to ask.
pub(super) struct Ready<S: LockService> {
    pub(super) session: Session<S>,
    pub(super) metadata: Metadata,
    pub(super) patience: Patience,
    /// When the wait is over, on the client's clock.
    pub(super) deadline: Option<Instant>,
}

impl<S: LockService> Asker<S> {
    /// Finds or opens the session. The wait counts from here, and bounds the opening, as the request wait does. A session that
    /// was not opened in time is an error of the service: what holds the lock is not known.
    pub(super) async fn ready(self, wanted: Wanted) -> Result<Ready<S>, ClientError> {
        let Wanted { metadata, why, wait } = wanted;
        let (session, deadline) = match self {
            Asker::Own(session) => {
                let deadline = wait.until(session.settings.clock.now());
                (session, deadline)
            }
            Asker::Shared(client) => {
                let now = client.settings.clock.now();
                let deadline = wait.until(now);
                let longest = now.after(client.settings.request_wait);
                let longest = deadline.map_or(longest, |deadline| deadline.min(longest));
                let session = tokio::select! {
                    biased;
                    session = client.shared_session() => session?,
                    () = passed(&*client.settings.clock, Some(longest)) => return Err(no_answer("opening a session")),
                };
                (session, deadline)
            }
        };
        let metadata = Wanted::metadata(metadata, why, &session.settings.metadata)?;
        let now = session.settings.clock.now();
        let patience = deadline.map_or(wait, |deadline| Wait::For(deadline.since(now))).patience();
        Ok(Ready { session, metadata, patience, deadline })
    }
}

/// One request on its way.
pub(super) struct Pursuit<S: LockService> {
    session: Session<S>,
    call: Call,
    claim: ClaimRef,
    on_queued: OnQueued,
    /// Where it waited when the cluster last said so.
    ahead: Option<Place>,
}

/// A request that was answered.
pub(super) struct Pursued {
    tie: Tie,
    index: u64,
    stamp: LogTime,
    outcome: Outcome,
    ahead: Option<Place>,
}

impl<S: LockService> Pursuit<S> {
    /// Draws a number and follows what is asked for under it to its answer. `name` is the lock, or one of the set.
    pub(super) async fn pursue(
        session: Session<S>,
        name: &LockName,
        command: impl FnOnce(RequestId, u64) -> Command,
        on_queued: OnQueued,
        deadline: Option<Instant>,
    ) -> Result<Pursued, ClientError> {
        let (number, answered_below) = session.tie.presence.draw();
        let withdrawal = Withdrawal { tie: session.tie.clone(), number, state: Armed::Armed };
        let request = session.tie.presence.request(number);
        let lock = LockKey { namespace: session.namespace().clone(), name: name.clone() };
        let call = session.tie.presence.call(command(request, answered_below));
        let claim = ClaimRef { lock, claim: Claim::Request(request) };
        let mut pursuit = Pursuit { call, claim, session, on_queued, ahead: None };
        Box::pin(async move { pursuit.finish(withdrawal, deadline).await }).await
    }

    async fn finish(&mut self, mut withdrawal: Withdrawal, deadline: Option<Instant>) -> Result<Pursued, ClientError> {
        let tie = self.session.tie.clone();
        let reply = tokio::select! {
            biased;
            reply = self.settle() => Some(reply?),
            end = tie.presence.told_of_its_end() => return Err(tie.presence.lost_error(end)),
            () = passed(&*tie.presence.clock, deadline) => None,
        };
        let Some(Reply { index, stamp, outcome, .. }) = reply else {
            withdrawal.withdraw().await?;
            return Err(not_acquired(&self.claim.lock.name, self.ahead.take()));
        };
        withdrawal.disarm();
        Ok(Pursued { tie, index, stamp, outcome, ahead: self.ahead.take() })
    }

    /// Until there is an outcome that is not a place in the queue.
    async fn settle(&mut self) -> Result<Reply, ServiceError> {
        let (service, presence) = (&self.session.service, &*self.session.tie.presence);
        let retry = Retry::new(presence.clock.clone(), self.session.settings.request_wait);
        let mut retry = retry.of_attempts_within(service.answers_within());
        let attempt = || {
            let (sent, answer) = (presence.clock.now(), super::keeper::submit(service, presence, &self.call));
            async move { Ok((sent, answer.await?)) }
        };
        let (ahead, on_queued) = (&mut self.ahead, &mut self.on_queued);
        let queued = |place: &Place| {
            *ahead = Some(place.clone());
            if let Some(tell) = on_queued {
                tell(place);
            }
        };
        let wait = || super::keeper::settled(service, presence, &self.claim);
        Ok(settled(service, &self.claim, &mut retry, attempt, wait, queued).await?.reply)
    }
}

impl Pursued {
    /// The guard of the lock that was asked for, with a lease of so long where one was.
    pub(super) fn guard(self, name: LockName, lease_ms: Option<u64>) -> Result<LockGuard, ClientError> {
        let Pursued { tie, index, stamp, outcome, ahead } = self;
        let grant = granted(outcome, &name, ahead)?;
        Ok(guard(tie, (stamp, index), name, &grant, lease_ms))
    }

    /// The guards of the set of locks that was asked for, whose names are these, in the order of the names. A lock that was
    /// broken before its holder could be told is missing from the answer: then the others are given back.
    pub(super) fn guards(self, names: &[LockName], lease_ms: Option<u64>) -> Result<Vec<LockGuard>, ClientError> {
        let Pursued { tie, index, stamp, outcome, ahead } = self;
        let first = names.first().ok_or_else(|| ClientError::unexpected(outcome.clone()))?;
        let grants = granted_set(outcome, first, ahead)?;
        let missing = names.iter().find(|name| !grants.iter().any(|(granted, _)| granted == *name)).cloned();
        let guards = grants.into_iter().map(|(name, grant)| guard(tie.clone(), (stamp, index), name, &grant, lease_ms));
        let guards: Vec<LockGuard> = guards.collect();
        match missing {
            Some(lock) => Err(ClientError::HoldEnded { lock, reason: crate::model::EndReason::Broken }),
            None => Ok(guards),
        }
    }
}

fn guard(tie: Tie, at: (LogTime, u64), name: LockName, grant: &Grant, lease_ms: Option<u64>) -> LockGuard {
    let lease = grant.deadline.map(|deadline| {
        let length_ms = lease_ms.unwrap_or_else(|| deadline.ms_since(at.0));
        (length_ms, tie.presence.validity().beside(at, deadline, tie.presence.clock.now()))
    });
    let ends = grant.ends.map(|ends| tie.presence.validity().beside(at, ends, tie.presence.clock.now()));
    let hold = Arc::new(Hold::new(name, grant, lease, ends));
    LockGuard::new(tie, hold, Duration::from_millis(grant.waited_ms))
}

/// Sees to it that a request that ended without an answer leaves nothing behind.
struct Withdrawal {
    tie: Tie,
    number: u64,
    state: Armed,
}

#[derive(Debug, PartialEq, Eq)]
enum Armed {
    Armed,
    Disarmed,
}

impl Withdrawal {
    /// The request is answered.
    fn disarm(mut self) {
        self.state = Armed::Disarmed;
        self.tie.presence.numbers().finish(self.number);
    }

    /// Cancels it, and returns once that was answered. Without an answer in the time of a request that is an error, and the
    /// keeper goes on with the cancel.
    async fn withdraw(&mut self) -> Result<(), ClientError> {
        self.state = Armed::Disarmed;
        self.tie.ask(Request::Cancel(self.number)).await.map(drop)
    }
}

impl Drop for Withdrawal {
    fn drop(&mut self) {
        if self.state == Armed::Armed {
            self.tie.leave(Errand::Perform(Request::Cancel(self.number), None));
        }
    }
}
