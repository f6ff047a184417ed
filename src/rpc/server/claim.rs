//! The claim of an acquire that waits within its call: what it is, how it is withdrawn, and what its outcome means.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tonic::Status;

use crate::client::Retry;
use crate::clock::Clock;
use crate::model::{Acquire, Claim, Command, Grant, LockKey, Outcome, Place, Refusal, Reply, TakeLease};
use crate::rpc::background::Tasks;
use crate::rpc::convert::{error_to_status, hold_ended, reply_to_answer};
use crate::service::{Call, ClaimRef, LockService, Proof, ServiceError};

/// Returns the status of an error.
pub(super) fn status(error: ServiceError) -> Status {
    error_to_status(&error)
}

/// Returns the status for an outcome that does not belong to the command.
pub(super) fn unexpected(reply: &Reply) -> Status {
    status(ServiceError::Internal(format!("the service answered another command: {:?}", reply.outcome)))
}

/// Whether an attempt may have left a claim behind.
pub(super) fn may_have_happened(answer: &Result<Reply, ServiceError>) -> bool {
    match answer {
        Ok(_) | Err(ServiceError::Unknown { .. } | ServiceError::Stopping | ServiceError::Internal(_)) => true,
        Err(
            ServiceError::NotSent { .. }
            | ServiceError::Invalid(_)
            | ServiceError::Refused(_)
            | ServiceError::Forbidden { .. }
            | ServiceError::Unauthenticated { .. }
            | ServiceError::EventsMissed { .. },
        ) => false,
    }
}

/// Returns the claim of an acquire or of a take, and the call that withdraws it.
pub(super) fn claimed(call: &Call) -> Option<(ClaimRef, Call)> {
    let (lock, claim, command) = match (&call.command, &call.proof) {
        (Command::Acquire(Acquire { request, locks, .. }), Proof::Handle { namespace, .. }) => {
            let lock = LockKey { namespace: namespace.clone(), name: locks.keys().next()?.clone() };
            (lock, Claim::Request(*request), Command::Cancel { request: *request })
        }
        (Command::TakeLease(TakeLease { lock, take, handle, .. }), _) => {
            let cancel = Command::CancelTake { lock: lock.clone(), take: *take, handle: handle.clone() };
            (lock.clone(), Claim::Lease(*take), cancel)
        }
        (_, _) => return None,
    };
    Some((ClaimRef { lock, claim }, Call { command, ..call.clone() }))
}

/// Returns the grant of a final outcome. The error says why there is no grant.
pub(super) fn granted<'a>(lock: &LockKey, reply: &'a Reply, ahead: Option<Place>) -> Result<&'a Grant, Status> {
    match &reply.outcome {
        Outcome::Granted(grant) => Ok(grant),
        Outcome::TimedOut | Outcome::Withdrawn => {
            let holder = ahead.and_then(|place| place.held_by);
            Err(status(Refusal::Held { lock: lock.clone(), holder, closed: None }.into()))
        }
        Outcome::HoldEnded { reason } => Err(hold_ended(lock, *reason)),
        Outcome::Refused(_) => Err(reply_to_answer(reply).err().unwrap_or_else(|| unexpected(reply))),
        Outcome::Opened { .. }
        | Outcome::Attached { .. }
        | Outcome::Closed
        | Outcome::Renewed { .. }
        | Outcome::GrantedSet(_)
        | Outcome::Queued(_)
        | Outcome::Released { .. }
        | Outcome::Downgraded
        | Outcome::Done
        | Outcome::Broken(_)
        | Outcome::HandedOver { .. }
        | Outcome::Freed { .. } => Err(unexpected(reply)),
    }
}

/// Withdraws the claim of a call that ends without an answer. A task of the server repeats the cancel until it is
/// answered.
pub(super) struct CancelOnDrop<S: LockService> {
    pub(super) service: S,
    pub(super) tasks: Tasks,
    pub(super) clock: Arc<dyn Clock>,
    /// The cancel, and the permit of the wait; `None` after the call has its answer.
    pub(super) open: Option<(Call, OwnedSemaphorePermit)>,
}

impl<S: LockService> Drop for CancelOnDrop<S> {
    fn drop(&mut self) {
        let Some((cancel, permit)) = self.open.take() else { return };
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let (service, mut retry) = (self.service.clone(), Retry::for_ever(Arc::clone(&self.clock)));
        self.tasks.run(async move {
            if let Err(error) = retry.until_answered(|| service.submit(cancel.clone())).await {
                tracing::debug!(%error, "the claim of a cancelled call could not be withdrawn");
            }
            drop(permit);
        });
    }
}
