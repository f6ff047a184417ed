//! Waits until a time on the client's clock, for the end of a session or a hold, and for the outcome of a request.

use std::future::{Future, pending};
use std::time::Duration;

use tokio::sync::watch;

use super::error::ClientError;
use super::retry::{Retry, remembered};
use crate::clock::{Clock, Instant};
use crate::limits::CLOCK_LOOK_MS_MAX;
use crate::model::{Grant, LockName, Outcome, Place, Query, QueryReply, QueryResult, Reply};
use crate::service::{ClaimRef, Freshness, LockService, NotSent, ServiceError};

/// Returns how long to sleep before the clock is read again during a wait for `target`. It is at most
/// [`CLOCK_LOOK_MS_MAX`] milliseconds, because timers do not count suspend, and at least one millisecond, so that a
/// manual clock is not read in a busy loop.
pub(crate) fn pause_until(target: Instant, now: Instant) -> Duration {
    target.since(now).clamp(Duration::from_millis(1), Duration::from_millis(CLOCK_LOOK_MS_MAX))
}

/// Waits until the client's clock has passed `deadline`; never returns if there is none.
pub(crate) async fn wait_until(clock: &dyn Clock, deadline: Option<Instant>) {
    let Some(deadline) = deadline else { return pending().await };
    while clock.now() < deadline {
        tokio::time::sleep(pause_until(deadline, clock.now())).await;
    }
}

/// How a session or a hold ended. Only the first recorded end counts.
#[derive(Debug)]
pub(crate) struct FirstEnd<E>(watch::Sender<Option<E>>);

impl<E: Copy> FirstEnd<E> {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(None))
    }

    /// Returns the recorded end, if any.
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
        // `self` owns the sender, so the channel is never closed.
        if let Some(end) = end { end } else { pending().await }
    }

    /// Waits for the end. `ended` reads the clock and records an end that has passed, and `until` returns the first
    /// instant at which `ended` may find one. So the wait does not depend on the scheduling of another task.
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
            // `self` owns the sender, so the channel is never closed.
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
    /// True if the last attempt was answered with a place in the queue and a wait followed.
    pub(crate) waited: bool,
}

/// Submits a request and waits until it is granted or refused. `attempt` submits it, and `queued` is called with each
/// place in the queue.
///
/// An error after a place in the queue never says that the request had no effect. After an attempt without an answer, a
/// refusal that the cluster does not remember is an error, too: it says nothing about that attempt.
///
/// If a wait fails, this function reads the state of the claim and submits no command, so a thousand waiters survive a
/// change of leader without a thousand log entries. Only a claim that the cluster does not know is submitted again,
/// under its own number or id.
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
        if retry.is_in_doubt() {
            reply = remembered(reply).map_err(|error| retry.doubted(error))?;
        }
        let mut waited = false;
        loop {
            let Outcome::Queued(place) = &reply.outcome else { return Ok(Settled { reply, waited }) };
            queued(place);
            waited = true;
            retry.executed();
            // Boxed because it is rare: otherwise the future of every acquire would reserve space for it.
            match Box::pin(service.wait_outcome(claim.clone())).await {
                Ok(outcome) => {
                    retry.answered();
                    reply = outcome;
                }
                Err(error) => {
                    retry.broke_off(error).await?;
                    let standing = Box::pin(retry.until_read(|| query_claim(service, claim))).await;
                    let Some(standing) = standing.map_err(|error| retry.doubted(error))? else { break };
                    reply = standing;
                }
            }
        }
    }
}

/// Reads the current outcome of a claim; `None` if the cluster does not know the claim.
async fn query_claim<S: LockService>(service: &S, claim: &ClaimRef) -> Result<Option<Reply>, ServiceError> {
    let query = Query::Claim { lock: Some(claim.lock.clone()), claim: claim.claim };
    let QueryReply { index, now, answer } = service.query(query, Freshness::Linearizable).await?;
    let QueryResult::Claim { outcome, recalled } = answer else {
        return Err(ServiceError::Internal("the service answered another query".to_owned()));
    };
    Ok(outcome.map(|outcome| Reply { index, stamp: now, outcome, recalled }))
}

/// Returns the grant in a final outcome, or the error that explains why there is none. `ahead` is the last known place
/// in the queue.
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

/// Returns the error of a request that was not sent in time, because the service did not answer the earlier step
/// `what`.
pub(crate) fn no_answer(what: &str) -> ClientError {
    ServiceError::not_sent(NotSent::Unreachable(format!("{what} was not answered in time"))).into()
}

/// Returns the error of a lock that was not acquired in time, with the holder or the closing that the last known place
/// in the queue names.
pub(crate) fn not_acquired(name: &LockName, ahead: Option<Place>) -> ClientError {
    match ahead {
        Some(place) => ClientError::NotAcquired { lock: place.lock, holder: place.held_by, closed: None },
        None => ClientError::NotAcquired { lock: name.clone(), holder: None, closed: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    /// If a deadline passes while the machine is suspended, the wait ends when the clock is next read, although the
    /// timers count nothing of the suspend.
    #[tokio::test(start_paused = true)]
    async fn a_wait_counts_suspend() {
        let (clock, hour) = (ManualClock::new(1), Duration::from_secs(3_600));
        let (deadline, look) = (clock.now().after(hour), Duration::from_millis(CLOCK_LOOK_MS_MAX));
        let suspend = async {
            tokio::time::sleep(look / 2).await;
            clock.advance(hour);
        };
        let waits = async { tokio::join!(wait_until(&clock, Some(deadline)), suspend) };
        tokio::time::timeout(2 * look, waits).await.expect("the clock is read");
    }
}
