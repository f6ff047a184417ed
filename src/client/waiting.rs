//! What an acquire and a take have in common: the way from asking to an answer that is final.

use std::future::Future;

use super::presence::pause_until;
use super::{ClientError, Retry};
use crate::clock::{Clock, Instant};
use crate::model::{Grant, LockName, Outcome, Place, Reply};
use crate::service::{ClaimRef, LockService, ServiceError};

/// Waits until the client's clock has passed `deadline`; for ever where there is none.
pub(super) async fn passed(clock: &dyn Clock, deadline: Option<Instant>) {
    let Some(deadline) = deadline else { return std::future::pending().await };
    while clock.now() < deadline {
        tokio::time::sleep(pause_until(deadline, clock.now())).await;
    }
}

/// An outcome that is not a place in the queue.
pub(super) struct Settled {
    /// When the attempt that it answers was sent; `None` where it was waited for.
    pub(super) sent: Option<Instant>,
    pub(super) reply: Reply,
}

/// Asks until there is an outcome that is not a place in the queue; `queued` is told each place. After an error the request
/// itself is repeated: the machine finds it by its number or id, wherever it stands by now.
pub(super) async fn settled<S, F>(
    service: &S,
    claim: &ClaimRef,
    retry: &mut Retry,
    mut attempt: impl FnMut() -> F,
    mut queued: impl FnMut(&Place),
) -> Result<Settled, ServiceError>
where
    S: LockService,
    F: Future<Output = Result<(Instant, Reply), ServiceError>>,
{
    loop {
        let (sent, reply) = retry.until_answered(&mut attempt).await?;
        let Outcome::Queued(place) = &reply.outcome else { return Ok(Settled { sent: Some(sent), reply }) };
        queued(place);
        match service.settled(claim.clone()).await {
            Ok(Reply { outcome: Outcome::Queued(_), .. }) => {}
            Ok(reply) => return Ok(Settled { sent: None, reply }),
            Err(error) => retry.broke_off(error).await?,
        }
    }
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
    if let Outcome::GrantedSet(grants) = outcome { Ok(grants) } else { Err(not_granted(outcome, name, ahead)) }
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

/// It was not acquired in time: by what was last said of its place, if anything was.
pub(super) fn not_acquired(name: &LockName, ahead: Option<Place>) -> ClientError {
    match ahead {
        Some(place) => ClientError::NotAcquired { lock: place.lock, holder: place.held_by.map(Box::new) },
        None => ClientError::NotAcquired { lock: name.clone(), holder: None },
    }
}
