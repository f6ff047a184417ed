//! Parts that many messages contain: numbers, texts, enums, and small messages such as locks, claims and modes.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use super::table::Wire;
use crate::model::{
    Attachment, BoundAdvice, ChainHash, Claim, DocumentId, DocumentState, DurationField, EndReason, Fairness,
    FencingToken, Handle, Health, Instance, Invalid, Kind, LeaseRequestId, ListShow, LockKey, LockName, LockValue,
    LogTime, Metadata, Mode, Namespace, OnDeadlock, Owner, Parent, Patience, Position, Principal, ProcessId, QuotaKind,
    Reason, Reentry, RequestId, SessionClose, SessionId, TokenState, Totals, WaitEndReason, WaitReason, WallTime,
    parse_hex, parse_uuid,
};
use crate::rpc::pb;
use crate::service::{Freshness, Role};

/// Converts a value of an enum; an unknown value is refused.
pub(super) fn known<E: TryFrom<i32>>(field: &str, number: i32) -> Result<E, Invalid> {
    E::try_from(number).map_err(|_| unknown(field, number))
}

/// Returns the refusal of an unspecified or unknown value.
pub(super) fn unknown(field: &str, value: impl Debug) -> Invalid {
    Invalid::new(field, "a value that this version knows", format!("{value:?}"))
}

/// Converts the namespace of a request; empty means the default one.
pub(in crate::rpc) fn namespace(text: &str) -> Result<Namespace, Invalid> {
    if text.is_empty() { Ok(Namespace::default()) } else { Namespace::parse(text) }
}

wire_leaves! {
    u64: u64, number => *number, (_, number) => Ok(number);
    u32: u32, number => *number, (_, number) => Ok(number);
    bool: bool, flag => *flag, (_, flag) => Ok(flag);
    String: String, text => text.clone(), (_, text) => Ok(text);
    FencingToken: u64, token => token.as_u64(), (_, number) => Self::from_u64(number);
    SessionId: u64, session => session.as_u64(), (_, number) => Self::from_u64(number);
    Attachment: u64, attachment => attachment.0, (_, number) => Ok(Self(number));
    LogTime: u64, at => at.0, (_, ms) => Ok(Self(ms));
    WallTime: u64, at => at.0, (_, ms) => Ok(Self(ms));
    Arc<str>: String, text => text.to_string(), (_, text) => Ok(shared(text));
    Namespace: String, name => name.to_string(), (_, text) => namespace(&text);
    LockName: String, name => name.to_string(), (_, text) => Self::parse(&text);
    Owner: String, owner => owner.to_string(), (_, text) => Self::parse(&text);
    Principal: String, principal => principal.to_string(), (_, text) => Self::parse(&text);
    ProcessId: String, process => process.to_string(), (_, text) => Self::parse(&text);
    Reason: String, why => why.as_str().to_owned(), (_, text) => Self::parse(&text);
    LockValue: String, value => value.to_string(), (_, text) => Self::parse(&text);
    Handle: String, handle => handle.reveal().to_owned(), (_, text) => Self::parse(&text);
    // An empty text means none.
    Option<LockName>: String, name => name.as_ref().map(LockName::to_string).unwrap_or_default(),
        (_, text) => (!text.is_empty()).then(|| LockName::parse(&text)).transpose();
    // An empty text means none.
    Option<Arc<str>>: String, text => text.as_deref().unwrap_or_default().to_owned(),
        (_, text) => Ok((!text.is_empty()).then(|| text.into()));
    u128: String, number => format!("{number:032x}"), (field, text) => parse_hex(field, &text);
    // An empty text means none.
    Option<u128>: String, number => number.as_ref().map(u128::to_wire).unwrap_or_default(),
        (field, text) => (!text.is_empty()).then(|| parse_hex(field, &text)).transpose();
    Instance: String, instance => instance.0.to_wire(), (field, text) => parse_hex(field, &text).map(Self);
    LeaseRequestId: String, take => take.0.to_wire(), (field, text) => parse_uuid(field, &text).map(Self);
    DocumentId: String, ts => ts.to_string(), (field, text) => named(field, text.parse());
    ChainHash: String, hash => hash.to_string(), (field, text) => named(field, text.parse());
    BTreeSet<FencingToken>: Vec<u64>, tokens => tokens.iter().map(|token| token.as_u64()).collect(),
        (_, numbers) => numbers.into_iter().map(FencingToken::from_u64).collect();
    Fairness: bool, fairness => *fairness == Fairness::Barging,
        (_, barging) => Ok(if barging { Fairness::Barging } else { Fairness::Fair });
    OnDeadlock: bool, deadlock => *deadlock == OnDeadlock::Wait,
        (_, waits) => Ok(if waits { OnDeadlock::Wait } else { OnDeadlock::Refuse });
}
must_be_set!(FencingToken: u64, u64: u64, u32: u32, Principal: String, Reason: String);

/// Converts a text with one allocation, or none if it is empty.
fn shared(text: String) -> Arc<str> {
    if text.is_empty() { Arc::default() } else { text.into() }
}

/// Sets the field of the message in a refusal.
fn named<T>(field: &str, read: Result<T, Invalid>) -> Result<T, Invalid> {
    read.map_err(|invalid| Invalid { field: field.to_owned(), ..invalid })
}

wire_enums! {
    EndReason { Released, Expired, Lost, Cancelled, Broken, HandedOver, Overtaken, TimeOver }
    WaitEndReason { TimedOut, Withdrawn, SessionEnded, HoldEnded, Impossible, Deadlock }
    SessionClose { Done, Lost } || Done
    Kind { Lock, Semaphore }
    DocumentState { Free, Prepared, Held }
    WaitReason { Holds, StandsAhead, Nested, Closed }
    Health { Live, Overdue, Disconnected, Lease, Gone }
    TokenState { Valid, Stale, UnknownEpoch }
    Role { Leader, Follower, Learner }
    QuotaKind {
        Sessions, Locks, Takes, Waiters, WaitersOfLock, HoldersOfLock, LocksOfSession, DepthOfHold, LocksOfSet,
        Processes, UnlocksOfMany
    }
    DurationField { Ttl, DisconnectGrace, Lease, Age, TtlMax }
    BoundAdvice { RaiseToFloor, HoldASession, NewRequest, RestoresWait }
    Freshness { Linearizable, Stale } || Linearizable
    Reentry { Refuse, Count, Wait } || Refuse
    ListShow { All, Held, Waiting, Overdue } || All
}

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
