//! Small messages that many others contain: locks, claims, modes and metadata.

use super::table::Wire;
use crate::model::{Claim, Invalid, LockKey, Metadata, Mode, Parent, Patience, Position, RequestId, Totals};
use crate::rpc::pb;

wire_messages! {
    LockKey = LockKey { namespace, name }
    Parent = Parent { session, owner }
    Position = Position { index, n }
    RequestId = RequestId { session, number }
    Totals = Totals { sessions, locks, holders, waiters, grants }
    // Metadata is optional. The node checks its bounds, for all callers.
    Metadata = Metadata { who, why, host, pid, process, trace } || default
}

// Mode of a lock; exclusive if it is not set.
wire_oneof! { Mode = mode::How in Mode.how || default { Exclusive, Shared, Permits(permits) } }

wire_oneof! { Claim = claim::Who in Claim.who { Request(request), Lease(lease) } }

wire_leaves! {
    // Time to wait: 0 is a try; if it is not set, the request waits as long as the session lives.
    Patience: Option<u64>, patience => match *patience {
        Patience::Try => Some(0),
        Patience::For { ms } => Some(ms),
        Patience::Session => None,
    }, (_, wait_ms) => Ok(match wait_ms {
        None => Patience::Session,
        Some(0) => Patience::Try,
        Some(ms) => Patience::For { ms },
    });
}
