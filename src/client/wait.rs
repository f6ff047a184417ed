//! Waiting: until a time on the client's clock, for the end of a session or a hold, and for the outcome of a request.

use std::future::{Future, pending};
use std::time::Duration;

use tokio::sync::watch;

use super::error::ClientError;
use super::retry::Retry;
use crate::clock::{Clock, Instant};
use crate::limits::CLOCK_LOOK_MS_MAX;
use crate::model::{Grant, LockName, Outcome, Place, Query, QueryReply, QueryResult, Reply};
use crate::service::{ClaimRef, Freshness, LockService, NotSent, ServiceError};

/// How long to sleep towards `target` before the clock is read again: at most [`CLOCK_LOOK_MS_MAX`], because timers do not
/// count suspend, and at least a millisecond, so that a clock that is moved by hand is not read in a loop.
pub(crate) fn pause_until(target: Instant, now: Instant) -> Duration {
    target.since(now).clamp(Duration::from_millis(1), Duration::from_millis(CLOCK_LOOK_MS_MAX))
}

/// Waits until the client's clock has passed `deadline`; for ever where there is none.
pub(crate) async fn wait_until(clock: &dyn Clock, deadline: Option<Instant>) {
    let Some(deadline) = deadline else { return pending().await };
    while clock.now() < deadline {
        tokio::time::sleep(pause_until(deadline, clock.now())).await;
    }
}

/// How a session or a hold ended. The first end counts.
#[derive(Debug)]
pub(crate) struct FirstEnd<E>(watch::Sender<Option<E>>);

impl<E: Copy> FirstEnd<E> {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// The end that was recorded.
    pub(crate) fn get(&self) -> Option<E> {
        *self.0.borrow()
    }

    /// Records an end, unless there is an earlier one.
    pub(crate) fn record(&self, end: E) {
        self.0.send_if_modified(|known| {
            let first = known.is_none();
            known.get_or_insert(end);
            first
        });
    }

    /// Waits until an end is recorded. Uses no timer.
    pub(crate) async fn recorded(&self) -> E {
        let end = self.0.subscribe().wait_for(Option::is_some).await.ok().and_then(|end| *end);
        // The sender lives in `self`, so that there always is one.
        if let Some(end) = end { end } else { pending().await }
    }

    /// Waits for the end. `ended` reads the clock and records an end that it finds there, and `until` is the first instant at
    /// which it may find one: so the end does not depend on another task being scheduled.
    pub(crate) async fn reached(
        &self,
        clock: &dyn Clock,
        ended: impl Fn() -> Option<E>,
        until: impl Fn() -> Option<Instant>,
    ) -> E {
        let mut recorded = self.0.subscribe();
        loop {
            if let Some(end) = ended() {
                return end;
            }
            // The sender lives in `self`, so the channel cannot close while it is awaited.
            match until() {
                Some(until) => {
                    drop(tokio::time::timeout(pause_until(until, clock.now()), recorded.changed()).await);
                }
                None => drop(recorded.changed().await),
            }
        }
    }
}

/// The final outcome of a request that may have waited.
pub(crate) struct Settled {
    pub(crate) reply: Reply,
    /// It did not answer the last attempt itself, but a wait after it.
    pub(crate) waited: bool,
}

/// Submits a request and waits until its outcome is not a place in the queue. `attempt` submits it, and `queued` is called
/// with each place.
///
/// A wait that breaks off costs no command: the cluster is asked where the claim stands, which changes nothing, so that a
/// thousand waiters come through a change of leader without a thousand entries in the log. Only a claim that the cluster does
/// not know is submitted again, under its own number or id.
pub(crate) async fn submit_and_wait<S, F>(
    service: &S,
    claim: &ClaimRef,
    retry: &mut Retry,
    mut attempt: impl FnMut() -> F,
    mut queued: impl FnMut(&Place),
) -> Result<Settled, ServiceError>
where
    S: LockService,
    F: Future<Output = Result<Reply, ServiceError>>,
{
    loop {
        let mut reply = retry.until_answered(&mut attempt).await?;
        let mut waited = false;
        loop {
            let Outcome::Queued(place) = &reply.outcome else { return Ok(Settled { reply, waited }) };
            queued(place);
            waited = true;
            // Boxed, as all that is rare: the future of every acquire would have room for it.
            match Box::pin(service.wait_outcome(claim.clone())).await {
                Ok(outcome) => {
                    retry.answered();
                    reply = outcome;
                }
                Err(error) => {
                    retry.broke_off(error).await?;
                    let standing = Box::pin(retry.until_answered(|| query_claim(service, claim))).await?;
                    let Some(standing) = standing else { break };
                    reply = standing;
                }
            }
        }
    }
}

/// Where a claim stands now; `None` where the cluster does not know it.
async fn query_claim<S: LockService>(service: &S, claim: &ClaimRef) -> Result<Option<Reply>, ServiceError> {
    let query = Query::Claim { lock: Some(claim.lock.clone()), claim: claim.claim };
    let QueryReply { index, now, answer } = service.query(query, Freshness::Linearizable).await?;
    let QueryResult::Claim { outcome, recalled } = answer else {
        return Err(ServiceError::Internal("the service answered another question".to_owned()));
    };
    Ok(outcome.map(|outcome| Reply { index, stamp: now, outcome, recalled }))
}

/// The grant in a final outcome, or the error that says why there is none. `ahead` is the last known place in the queue.
pub(crate) fn granted(outcome: Outcome, name: &LockName, ahead: Option<Place>) -> Result<Grant, ClientError> {
    if let Outcome::Granted(grant) = outcome {
        return Ok(grant);
    }
    if let Outcome::HoldEnded { reason } = outcome {
        return Err(ClientError::HoldEnded { lock: name.clone(), reason });
    }
    if matches!(outcome, Outcome::TimedOut | Outcome::Withdrawn) {
        return Err(not_acquired(name, ahead));
    }
    Err(ClientError::unexpected(outcome))
}

/// The time was over before anything was requested: the service did not answer what comes first.
pub(crate) fn no_answer(what: &str) -> ClientError {
    ServiceError::not_sent(NotSent::Unreachable(format!("{what} was not answered in time"))).into()
}

/// The lock was not acquired in time. The error names what the last known place in the queue says.
pub(crate) fn not_acquired(name: &LockName, ahead: Option<Place>) -> ClientError {
    match ahead {
        Some(place) => ClientError::NotAcquired { lock: place.lock, holder: place.held_by, closed: None },
        None => ClientError::NotAcquired { lock: name.clone(), holder: None, closed: None },
    }
}
