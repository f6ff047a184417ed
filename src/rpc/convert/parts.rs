//! The small messages that many others have: locks, claims, modes, what a caller says of itself.

use super::scalars::required;
use super::table::Wire;
use crate::model::{Access, Claim, Invalid, LockKey, Metadata, Mode, Parent, Patience, Position, RequestId, Totals};
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

wire_oneof! { Claim = claim::Who in Claim.who { Request(request), Lease(lease) } }

wire_leaves! {
    Access: pb::Mode, access => {
        let how = match *access {
            Access { mode: Mode::Exclusive, limit: _ } => pb::mode::How::Exclusive(pb::Empty {}),
            Access { mode: Mode::Shared, limit: _ } => pb::mode::How::Shared(pb::Empty {}),
            Access { mode: Mode::Permits(count), limit } => pb::mode::How::Permits(pb::Permits { count, limit }),
        };
        pb::Mode { how: Some(how) }
    }, (field, pb::Mode { how }) => Ok(match required(field, how)? {
        pb::mode::How::Exclusive(pb::Empty {}) => Mode::Exclusive.into(),
        pb::mode::How::Shared(pb::Empty {}) => Mode::Shared.into(),
        pb::mode::How::Permits(pb::Permits { count, limit }) => Access::permits(count, limit),
    });
    Mode: pb::Mode, mode => Access::from(*mode).to_wire(),
        (field, wire) => Access::from_wire(field, wire).map(|access| access.mode);
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

must_be_set!(Access: pb::Mode, Mode: pb::Mode);

wire_whole! {
    Access: pb::Mode, "mode";
    Mode: pb::Mode, "mode";
}
