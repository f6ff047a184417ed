//! The small messages that many others have: locks, claims, modes, what a caller says of itself.

use super::table::Wire;
use crate::model::{Claim, Invalid, LockKey, Metadata, Mode, Parent, Patience, Position, RequestId, Totals};
use crate::rpc::pb;

wire_messages! {
    LockKey = LockKey { namespace, name }
    Parent = Parent { session, owner }
    Position = Position { index, n }
    RequestId = RequestId { session, number }
    Totals = Totals { sessions, locks, holders, waiters, grants }
    // A caller need not say anything of itself. Its bounds are the node's to check, for callers of every kind.
    Metadata = Metadata { who, why, host, pid, process, trace } || default
}

// How a lock is held; exclusive where nothing is said.
wire_oneof! { Mode = mode::How in Mode.how || default { Exclusive, Shared, Permits(permits) } }

wire_oneof! { Claim = claim::Who in Claim.who { Request(request), Lease(lease) } }

wire_leaves! {
    // How long to wait: 0 is a try, and nothing means as long as the session lives.
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
