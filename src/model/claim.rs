//! Who waits or holds.

use serde::{Deserialize, Serialize};

use super::{LeaseRequestId, RequestId, SessionId};

/// Who waits or holds: a session's request, or a sessionless take. New variants are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Claim {
    /// A session's acquire.
    Request(RequestId),
    /// A token lease's take.
    Lease(LeaseRequestId),
}

impl Claim {
    /// The session behind it, if there is one.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        match self {
            Claim::Request(request) => Some(request.session),
            Claim::Lease(_) => None,
        }
    }

    /// The session's request, if it is one.
    #[must_use]
    pub fn request(self) -> Option<RequestId> {
        match self {
            Claim::Request(request) => Some(request),
            Claim::Lease(_) => None,
        }
    }
}
