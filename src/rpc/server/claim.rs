//! The outcome of an acquire that waits within its call.

use tonic::Status;

use crate::model::{Grant, LockKey, Outcome, Place, Refusal, Reply};
use crate::rpc::convert::{error_to_status, hold_ended, reply_to_answer};
use crate::service::ServiceError;

/// Returns the status of an error.
pub(super) fn status(error: ServiceError) -> Status {
    error_to_status(&error)
}

/// Returns the status for an outcome that does not belong to the command.
pub(super) fn unexpected(reply: &Reply) -> Status {
    status(ServiceError::Internal(format!("the service answered another command: {:?}", reply.outcome)))
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
