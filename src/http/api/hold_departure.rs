//! Why the stream of a `hold` ends.

use crate::client::{ClientError, Session};
use crate::model::{EndReason, LockName, Reason, Refusal};
use crate::service::LockService;

/// Why the stream ends.
pub(super) enum Departure {
    /// The client is gone, or takes no events.
    Broken,
    /// The node stops.
    Stopping,
    /// Another stream has the session.
    Moved,
    /// The longest time of the stream is over.
    Over,
    /// The request was not granted.
    Refused(ClientError),
    /// The session or one of the holds has ended.
    Ended { lock: Option<LockName>, reason: Option<EndReason>, why: Option<Reason> },
}

impl Departure {
    /// The departure after an error of a request or of the session.
    pub(super) fn after<S: LockService>(error: ClientError, session: &Session<S>) -> Self {
        if session.is_superseded() {
            return Self::Moved;
        }
        if let ClientError::SessionLost { reason, why, .. } = error {
            return Self::Ended { lock: None, reason, why };
        }
        Self::Refused(error)
    }
}

/// Whether the request gets nothing, in no stream. After any other error another stream may hold what was requested,
/// or the set lacks one lock only.
pub(super) fn gets_nothing(error: &ClientError) -> bool {
    match error {
        ClientError::NotAcquired { .. } | ClientError::Invalid(_) => true,
        ClientError::Refused(refusal) => !matches!(refusal, Refusal::RequestReused { .. }),
        ClientError::SessionLost { .. } | ClientError::HoldEnded { .. } | ClientError::Service(_) => false,
    }
}
