//! The small messages that many others have: locks, claims, modes, what a caller says of itself.

use super::scalars::{lock_key, required};
use super::table::{Wire, must_be_set, wire_choices, wire_messages, wire_oneof, wire_whole};
use crate::model::{Access, Claim, Invalid, LockKey, Metadata, Mode, Parent, Patience, Position, RequestId, Totals};
use crate::rpc::pb;
use crate::service::LeaderHint;

wire_messages! {
    Parent = Parent { session, owner }
    Position = Position { index, n }
    RequestId = RequestId { session, number }
    Totals = Totals { sessions, locks, holders, waiters, grants }
}

wire_oneof! { Claim = claim::Who { Request(request), Lease(lease) } }

wire_choices! { Claim: Claim.who, "claim"; }

impl Wire<pb::LockKey> for LockKey {
    fn to_wire(&self) -> pb::LockKey {
        let LockKey { namespace, name } = self;
        pb::LockKey { namespace: namespace.to_wire(), name: name.to_wire() }
    }

    fn from_wire(_: &'static str, pb::LockKey { namespace, name }: pb::LockKey) -> Result<Self, Invalid> {
        lock_key(&namespace, &name)
    }
}

impl Wire<pb::Metadata> for Metadata {
    fn to_wire(&self) -> pb::Metadata {
        let Metadata { who, why, host, pid, process, trace } = self;
        pb::Metadata {
            who: who.to_wire(),
            why: why.to_wire(),
            host: host.to_wire(),
            pid: *pid,
            process: process.to_wire(),
            trace: trace.to_wire(),
        }
    }

    fn from_wire(_: &'static str, wire: pb::Metadata) -> Result<Self, Invalid> {
        let pb::Metadata { who, why, host, pid, process, trace } = wire;
        let text = |text: String| Wire::from_wire("metadata", text);
        let (who, why, host) = (text(who)?, text(why)?, text(host)?);
        Metadata { who, why, host, pid, process: text(process)?, trace: text(trace)? }.checked()
    }
}

/// A caller need not say anything of itself.
impl Wire<Option<pb::Metadata>> for Metadata {
    fn to_wire(&self) -> Option<pb::Metadata> {
        Some(self.to_wire())
    }

    fn from_wire(field: &'static str, wire: Option<pb::Metadata>) -> Result<Self, Invalid> {
        wire.map_or_else(|| Ok(Metadata::default()), |wire| Self::from_wire(field, wire))
    }
}

/// Numbers out of bounds are refused by the node, for callers of every kind.
impl Wire<pb::Mode> for Access {
    fn to_wire(&self) -> pb::Mode {
        let Access { mode, limit } = *self;
        let how = match mode {
            Mode::Exclusive => pb::mode::How::Exclusive(pb::Empty {}),
            Mode::Shared => pb::mode::How::Shared(pb::Empty {}),
            Mode::Permits(count) => pb::mode::How::Permits(pb::Permits { count, limit }),
        };
        pb::Mode { how: Some(how) }
    }

    fn from_wire(field: &'static str, pb::Mode { how }: pb::Mode) -> Result<Self, Invalid> {
        Ok(match required(field, how)? {
            pb::mode::How::Exclusive(pb::Empty {}) => Mode::Exclusive.into(),
            pb::mode::How::Shared(pb::Empty {}) => Mode::Shared.into(),
            pb::mode::How::Permits(pb::Permits { count, limit }) => Access::permits(count, limit),
        })
    }
}

impl Wire<pb::Mode> for Mode {
    fn to_wire(&self) -> pb::Mode {
        Access::from(*self).to_wire()
    }

    fn from_wire(field: &'static str, wire: pb::Mode) -> Result<Self, Invalid> {
        Access::from_wire(field, wire).map(|access| access.mode)
    }
}

/// How long to wait: 0 is a try, and nothing means as long as the session lives. The bound is the node's, as for a mode.
impl Wire<Option<u64>> for Patience {
    fn to_wire(&self) -> Option<u64> {
        match *self {
            Patience::Try => Some(0),
            Patience::For { ms } => Some(ms),
            Patience::Session => None,
        }
    }

    fn from_wire(_: &'static str, wait_ms: Option<u64>) -> Result<Self, Invalid> {
        Ok(match wait_ms {
            None => Patience::Session,
            Some(0) => Patience::Try,
            Some(ms) => Patience::For { ms },
        })
    }
}

must_be_set!(LockKey: pb::LockKey, Access: pb::Mode, Mode: pb::Mode);

wire_whole! {
    LockKey: pb::LockKey, "lock";
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
