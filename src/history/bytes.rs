//! The encoding of a record as bytes: numbers with seven bits in each byte, texts with their length before them. Also
//! the chain: the hash of each record covers the hash of the previous record.
//!
//! The order is: the kind of event (one byte), position, log time, wall-clock time, lock, hash of the lock's previous
//! record. Then follow the fields of the kind.

use sha2::{Digest, Sha256};

use super::draft::{Draft, Facts};
use crate::model::{ChainHash, Claim, EndReason, EventKind, Fairness, Mode, Namespace, Position, RequestId};

pub(super) const GRANTED: u8 = 1;
pub(super) const RELEASED: u8 = 2;
pub(super) const EXPIRED: u8 = 3;
pub(super) const BROKEN: u8 = 4;
pub(super) const UPGRADED: u8 = 5;
pub(super) const DOWNGRADED: u8 = 6;
pub(super) const RESUMED: u8 = 7;
pub(super) const HANDED_OVER: u8 = 8;
pub(super) const LIMIT_CHANGED: u8 = 9;
pub(super) const PERMITS_RETURNED: u8 = 10;

pub(super) const EXCLUSIVE: u8 = 0;
pub(super) const SHARED: u8 = 1;
pub(super) const PERMITS: u8 = 2;
pub(super) const UNKNOWN_MODE: u8 = 3;

pub(super) const QUEUED: u8 = 1;
pub(super) const BARGING: u8 = 2;
pub(super) const SET: u8 = 4;
pub(super) const PASSING: u8 = 8;
pub(super) const OWNED: u8 = 16;
pub(super) const NAMED: u8 = 32;

/// The principal of most grants. It is left out of the bytes.
pub(super) const ANONYMOUS: &str = "anonymous";

/// Writes the record. Returns `false` and writes nothing if history does not keep this kind of event.
pub fn write(out: &mut Vec<u8>, draft: &Draft<'_>) -> bool {
    let Some(tag) = tag_of(&draft.event.kind) else { return false };
    out.push(tag);
    number(out, draft.event.position.index);
    number(out, draft.event.position.n.into());
    number(out, draft.event.at.0);
    number(out, draft.event.wall.0);
    text(out, draft.lock.as_str());
    out.extend_from_slice(&draft.previous.0);
    body(out, draft);
    if let Some(facts) = &draft.facts {
        write_facts(out, facts);
    }
    true
}

fn tag_of(kind: &EventKind) -> Option<u8> {
    match kind {
        EventKind::Granted { .. } => Some(GRANTED),
        EventKind::Released { .. } => Some(RELEASED),
        EventKind::Expired { .. } => Some(EXPIRED),
        EventKind::Broken { .. } => Some(BROKEN),
        EventKind::Upgraded { .. } => Some(UPGRADED),
        EventKind::Downgraded => Some(DOWNGRADED),
        EventKind::PermitsReturned { .. } => Some(PERMITS_RETURNED),
        EventKind::Resumed { .. } => Some(RESUMED),
        EventKind::HandedOver { .. } => Some(HANDED_OVER),
        EventKind::LimitChanged { .. } => Some(LIMIT_CHANGED),
        EventKind::Queued { .. }
        | EventKind::WaitEnded { .. }
        | EventKind::RevokeRequested { .. }
        | EventKind::ValueChanged
        | EventKind::Recalled
        | EventKind::Reopened
        | EventKind::SessionOpened
        | EventKind::SessionEnded { .. }
        | EventKind::LeaderlessGap { .. } => None,
    }
}

/// Writes the fields of the kind of event, the mode first.
fn body(out: &mut Vec<u8>, draft: &Draft<'_>) {
    mode(out, draft.mode, draft.limit);
    if let Some(claim) = draft.event.subject.claim() {
        write_claim(out, claim);
    }
    if let Some(token) = draft.event.subject.token() {
        number(out, token.as_u64());
    }
    match &draft.event.kind {
        EventKind::Granted { waited_ms, .. } => number(out, *waited_ms),
        EventKind::Released { held_ms, .. } => number(out, *held_ms),
        EventKind::Expired { reason, held_ms, .. } => {
            out.push(reason_byte(*reason));
            number(out, *held_ms);
        }
        EventKind::Broken { by, why, held_ms, .. } => {
            text(out, by.as_str());
            text(out, why.as_str());
            number(out, *held_ms);
        }
        EventKind::Upgraded { from, waited_ms, .. } => {
            number(out, from.as_u64());
            number(out, *waited_ms);
        }
        EventKind::Resumed { from, .. } => number(out, from.as_u64()),
        EventKind::PermitsReturned { count, .. } => number(out, (*count).into()),
        EventKind::HandedOver { was, from, by, .. } => {
            write_claim(out, *was);
            number(out, from.as_u64());
            text(out, by.as_str());
        }
        EventKind::LimitChanged { limit, .. } => number(out, limit.map_or(0, |limit| u64::from(limit) + 1)),
        EventKind::Downgraded
        | EventKind::Queued { .. }
        | EventKind::WaitEnded { .. }
        | EventKind::RevokeRequested { .. }
        | EventKind::ValueChanged
        | EventKind::Recalled
        | EventKind::Reopened
        | EventKind::SessionOpened
        | EventKind::SessionEnded { .. }
        | EventKind::LeaderlessGap { .. } => {}
    }
}

fn write_facts(out: &mut Vec<u8>, facts: &Facts<'_>) {
    let Facts { arrival, fairness, set, passing, owner, principal, who, why } = *facts;
    let named = principal != ANONYMOUS;
    let flag = |on: bool, bit: u8| if on { bit } else { 0 };
    let flags = flag(arrival.queued, QUEUED)
        | flag(fairness == Fairness::Barging, BARGING)
        | flag(set, SET)
        | flag(passing, PASSING)
        | flag(owner.is_some(), OWNED)
        | flag(named, NAMED);
    out.push(flags);
    number(out, arrival.sequence);
    if let Some(owner) = owner {
        text(out, owner);
    }
    if named {
        text(out, principal);
    }
    text(out, who);
    text(out, why);
}

fn mode(out: &mut Vec<u8>, mode: Option<Mode>, limit: Option<u32>) {
    match mode {
        Some(Mode::Exclusive) => out.push(EXCLUSIVE),
        Some(Mode::Shared) => out.push(SHARED),
        Some(Mode::Permits(count)) => {
            out.push(PERMITS);
            number(out, count.into());
            number(out, limit.map_or(0, |limit| u64::from(limit) + 1));
        }
        None => out.push(UNKNOWN_MODE),
    }
}

fn write_claim(out: &mut Vec<u8>, claim: Claim) {
    match claim {
        Claim::Request(RequestId { session, number: of }) => {
            out.push(0);
            number(out, session.as_u64());
            number(out, of);
        }
        Claim::Lease(take) => {
            out.push(1);
            out.extend_from_slice(&take.0.to_be_bytes());
        }
    }
}

fn reason_byte(reason: EndReason) -> u8 {
    match reason {
        EndReason::Released => 0,
        EndReason::Cancelled => 1,
        EndReason::Expired => 2,
        EndReason::Lost => 3,
        EndReason::Broken => 4,
        EndReason::HandedOver => 5,
        EndReason::Overtaken => 6,
        EndReason::TimeOver => 7,
    }
}

/// Writes a number with seven bits in each byte, the lowest bits first.
pub fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn text(out: &mut Vec<u8>, text: &str) {
    number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// The hash before the first record of a ring, if the older records of the namespace, up to this position, may have
/// been dropped. [`ChainHash::BEGINNING`] if the position is before all records.
#[must_use]
pub fn beginning(namespace: &Namespace, dropped: Position) -> ChainHash {
    if dropped == Position::default() {
        return ChainHash::BEGINNING;
    }
    let mut written = Vec::new();
    number(&mut written, dropped.index);
    number(&mut written, dropped.n.into());
    link(namespace, ChainHash::BEGINNING, &written)
}

/// The hash of a record with these [bytes](self), after the record with the hash `before`.
#[must_use]
pub fn link(namespace: &Namespace, before: ChainHash, record: &[u8]) -> ChainHash {
    let name = namespace.as_str().as_bytes();
    let mut hasher = Sha256::new();
    hasher.update(before.0);
    // The zero byte marks the end of the namespace, because no namespace contains one.
    hasher.update(name);
    hasher.update([0]);
    hasher.update(record);
    let whole = hasher.finalize();
    let mut short = [0; 16];
    short.copy_from_slice(&whole[..16]);
    ChainHash(short)
}
