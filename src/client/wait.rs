//! What an acquire and a take have in common: the way from asking to an answer that is final.

use std::future::Future;

use super::presence::pause_until;
use super::{ClientError, Retry};
use crate::clock::{Clock, Instant};
use crate::model::{Grant, LockName, Outcome, Place, Query, QueryReply, QueryResult, Reply};
use crate::service::{ClaimRef, Freshness, LockService, NotSent, ServiceError};

/// Waits until the client's clock has passed `deadline`; for ever where there is none.
pub(super) async fn passed(clock: &dyn Clock, deadline: Option<Instant>) {
    let Some(deadline) = deadline else { return std::future::pending().await };
    while clock.now() < deadline {
        tokio::time::sleep(pause_until(deadline, clock.now())).await;
    }
}

/// An outcome that is not a place in the queue.
pub(crate) struct Settled {
    /// When the attempt that it answers was sent; `None` where it was waited for.
    pub(super) sent: Option<Instant>,
    pub(crate) reply: Reply,
}

/// Asks until there is an outcome that is not a place in the queue; `queued` is told each place. `attempt` is the request
/// itself, and `wait` waits for what becomes of it.
///
/// A wait that breaks off costs no command: the cluster is asked where the claim stands, which changes nothing, so that a
/// thousand waiters come through a change of leader without a thousand entries in the log. Only a claim that is not known
/// there is asked for anew, under its own number or id.
pub(crate) async fn settled<S, F, W>(
    service: &S,
    claim: &ClaimRef,
    retry: &mut Retry,
    mut attempt: impl FnMut() -> F,
    mut wait: impl FnMut() -> W,
    mut queued: impl FnMut(&Place),
) -> Result<Settled, ServiceError>
where
    S: LockService,
    F: Future<Output = Result<(Instant, Reply), ServiceError>>,
    W: Future<Output = Result<Reply, ServiceError>>,
{
    loop {
        let (sent, mut reply) = retry.until_answered(&mut attempt).await?;
        let mut sent = Some(sent);
        loop {
            let Outcome::Queued(place) = &reply.outcome else { return Ok(Settled { sent, reply }) };
            queued(place);
            sent = None;
            // Boxed, as all that is rare: every acquire would carry its room about.
            match Box::pin(wait()).await {
                Ok(stands) => {
                    retry.answered();
                    reply = stands;
                }
                Err(error) => {
                    retry.broke_off(error).await?;
                    let stands = Box::pin(retry.until_answered(|| standing(service, claim))).await?;
                    let Some(stands) = stands else { break };
                    reply = stands;
                }
            }
        }
    }
}

/// Where a claim stands by now; `None` where the cluster does not know of it.
async fn standing<S: LockService>(service: &S, claim: &ClaimRef) -> Result<Option<Reply>, ServiceError> {
    let query = Query::Claim { lock: Some(claim.lock.clone()), claim: claim.claim };
    let QueryReply { index, now, answer } = service.query(query, Freshness::Linearizable).await?;
    let QueryResult::Claim { outcome, recalled } = answer else {
        return Err(ServiceError::Internal("the service answered another question".to_owned()));
    };
    Ok(outcome.map(|outcome| Reply { index, stamp: now, outcome, recalled }))
}

/// The grant in a settled outcome, or why there is none. `ahead` is where it waited when the cluster last said so.
pub(super) fn granted(outcome: Outcome, name: &LockName, ahead: Option<Place>) -> Result<Grant, ClientError> {
    if let Outcome::Granted(grant) = outcome { Ok(grant) } else { Err(not_granted(outcome, name, ahead)) }
}

/// The grants of a set in a settled outcome, or why there is none.
pub(super) fn granted_set(
    outcome: Outcome,
    name: &LockName,
    ahead: Option<Place>,
) -> Result<Vec<(LockName, Grant)>, ClientError> {
    if let Outcome::GrantedSet(grants) = outcome {
        return Ok(grants);
    }
    // A set of one is a lock.
    granted(outcome, name, ahead).map(|grant| vec![(name.clone(), grant)])
}

fn not_granted(outcome: Outcome, name: &LockName, ahead: Option<Place>) -> ClientError {
    if let Outcome::HoldEnded { reason } = outcome {
        return ClientError::HoldEnded { lock: name.clone(), reason };
    }
    if matches!(outcome, Outcome::TimedOut | Outcome::Withdrawn) {
        return not_acquired(name, ahead);
    }
    ClientError::unexpected(outcome)
}

/// Nothing was asked for yet when the time was over: the service did not answer what came first.
pub(super) fn no_answer(what: &str) -> ClientError {
    ServiceError::not_sent(NotSent::Unreachable(format!("{what} was not answered in time"))).into()
}

/// It was not acquired in time: by what was last said of its place, if anything was.
pub(super) fn not_acquired(name: &LockName, ahead: Option<Place>) -> ClientError {
    match ahead {
        Some(place) => ClientError::NotAcquired { lock: place.lock, holder: place.held_by, closed: None },
        None => ClientError::NotAcquired { lock: name.clone(), holder: None, closed: None },
    }
}
