//! The small messages that many others have: locks, claims, modes, what a caller says of itself.

use super::scalars::{required, shared};
use super::table::Wire;
use crate::model::{Access, Claim, Invalid, LockKey, Metadata, Mode, Parent, Patience, Position, RequestId, Totals};
use crate::rpc::pb;
use crate::service::LeaderHint;

wire_messages! {
    LockKey = LockKey { namespace, name }
    Parent = Parent { session, owner }
    Position = Position { index, n }
    RequestId = RequestId { session, number }
    Totals = Totals { sessions, locks, holders, waiters, grants }
}

wire_oneof! { Claim = claim::Who in Claim.who { Request(request), Lease(lease) } }

// Bounds are the node's to check, for callers of every kind.
wire_leaves! {
    Metadata: pb::Metadata, metadata => {
        let Metadata { who, why, host, pid, process, trace } = metadata;
        let (who, why, host, pid) = (who.to_wire(), why.to_wire(), host.to_wire(), *pid);
        pb::Metadata { who, why, host, pid, process: process.to_wire(), trace: trace.to_wire() }
    }, (_, pb::Metadata { who, why, host, pid, process, trace }) => {
        let (who, why, host) = (shared(who), shared(why), shared(host));
        Ok(Metadata { who, why, host, pid, process: shared(process), trace: shared(trace) })
    };
    // A caller need not say anything of itself.
    Metadata: Option<pb::Metadata>, metadata => Some(metadata.to_wire()),
        (field, wire) => wire.map_or_else(|| Ok(Metadata::default()), |wire| Wire::from_wire(field, wire));
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
    Metadata: pb::Metadata, "metadata";
    Access: pb::Mode, "mode";
    Mode: pb::Mode, "mode";
}

impl From<&LeaderHint> for pb::Leader {
    fn from(LeaderHint { node, client }: &LeaderHint) -> Self {
        Self { node: *node, client: client.clone() }
    }
}

impl From<pb::Leader> for LeaderHint {
    fn from(pb::Leader { node, client }: pb::Leader) -> Self {
        Self { node, client }
    }
}
