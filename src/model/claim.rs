//! The request or take that waits for a lock or holds it.

use serde::{Deserialize, Serialize};

use super::{LeaseRequestId, RequestId, SessionId};

/// A request that waits for a lock or holds it: of a session, or a sessionless take. New variants are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Claim {
    /// A session's acquire.
    Request(RequestId),
    /// The take of a token lease.
    Lease(LeaseRequestId),
}

impl Claim {
    /// The session that made the claim. `None` for a take.
    #[must_use]
    pub fn session(&self) -> Option<SessionId> {
        match self {
            Claim::Request(request) => Some(request.session),
            Claim::Lease(_) => None,
        }
    }

    /// The session's request. `None` for a take.
    #[must_use]
    pub fn request(self) -> Option<RequestId> {
        match self {
            Claim::Request(request) => Some(request),
            Claim::Lease(_) => None,
        }
    }
}
