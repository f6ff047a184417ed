//! Decodes records from their bytes.

use std::sync::Arc;

use super::bytes::{
    ANONYMOUS, BARGING, BROKEN, DOWNGRADED, EXCLUSIVE, EXPIRED, GRANTED, HANDED_OVER, LIMIT_CHANGED, NAMED, OWNED,
    PASSING, PERMITS, PERMITS_RETURNED, QUEUED, RELEASED, RESUMED, SET, SHARED, UNKNOWN_MODE, UPGRADED,
};
use super::segment::Segment;
use crate::model::{
    Arrival, ChainHash, Claim, EndReason, Event, EventKind, Fairness, FencingToken, GrantFacts, HistoryRecord, Invalid,
    LeaseRequestId, LockKey, LockName, LogTime, Mode, Namespace, Owner, Position, Principal, Reason, RequestId,
    SessionId, Subject, WallTime,
};

/// The error for bytes that are not a record. The text says why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a record of history: {0}")]
pub(super) struct Damaged(String);

impl From<Invalid> for Damaged {
    fn from(invalid: Invalid) -> Self {
        Self(invalid.to_string())
    }
}

/// The head of a record. It is enough to decide whether the record is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Written<'a> {
    /// The position of the record.
    pub(super) position: Position,
    /// The name of the lock.
    pub(super) lock: &'a str,
    tag: u8,
    at: LogTime,
    wall: WallTime,
    rest: Rest<'a>,
}

/// The bytes that were not read yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rest<'a>(&'a [u8]);

/// Reads the head of a record.
pub(super) fn read(bytes: &[u8]) -> Result<Written<'_>, Damaged> {
    let mut rest = Rest(bytes);
    let tag = rest.byte()?;
    let index = rest.number()?;
    let n = u32::try_from(rest.number()?).map_err(|_| Damaged("a position".into()))?;
    let (at, wall) = (LogTime(rest.number()?), WallTime(rest.number()?));
    let lock = rest.text()?;
    Ok(Written { position: Position { index, n }, lock, tag, at, wall, rest })
}

impl Written<'_> {
    /// Reads the whole record and adds the links of the chain.
    pub(super) fn record(
        self,
        namespace: &Namespace,
        before: ChainHash,
        hash: ChainHash,
    ) -> Result<HistoryRecord, Damaged> {
        let mut rest = self.rest;
        let lock = LockKey { namespace: namespace.clone(), name: LockName::parse(self.lock)? };
        let previous = ChainHash(rest.array()?);
        let (mode, limit) = rest.mode()?;
        let (subject, kind) = rest.what(self.tag, lock, mode)?;
        let new = [GRANTED, RESUMED, HANDED_OVER].contains(&self.tag);
        let grant = if new { Some(rest.facts()?) } else { None };
        if !rest.0.is_empty() {
            return Err(Damaged(format!("{} bytes too many", rest.0.len())));
        }
        let Self { position, at, wall, .. } = self;
        let event = Event { position, at, wall, namespace: Some(namespace.clone()), subject, kind };
        Ok(HistoryRecord { event, mode, limit, grant, previous, before, hash })
    }
}

/// Iterates over the records of a segment. Ends after the first error.
pub(super) struct Records<'a>(Rest<'a>);

impl<'a> Records<'a> {
    pub(super) fn of(segment: &'a Segment) -> Self {
        Self(Rest(&segment.bytes.0))
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<&'a [u8], Damaged>;
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.0.is_empty() {
            return None;
        }
        let one = self.0.counted();
        if one.is_err() {
            self.0.0 = &[];
        }
        Some(one)
    }
}

impl<'a> Rest<'a> {
    fn byte(&mut self) -> Result<u8, Damaged> {
        let (first, rest) = self.0.split_first().ok_or_else(|| Damaged("cut short".into()))?;
        self.0 = rest;
        Ok(*first)
    }

    fn number(&mut self) -> Result<u64, Damaged> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Damaged("a number that does not end".into()))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        let (head, rest) = self.0.split_first_chunk().ok_or_else(|| Damaged("cut short".into()))?;
        self.0 = rest;
        Ok(*head)
    }

    fn counted(&mut self) -> Result<&'a [u8], Damaged> {
        let length = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        let (head, rest) = self.0.split_at_checked(length).ok_or_else(|| Damaged("cut short".into()))?;
        self.0 = rest;
        Ok(head)
    }

    fn text(&mut self) -> Result<&'a str, Damaged> {
        std::str::from_utf8(self.counted()?).map_err(|_| Damaged("a text that is not UTF-8".into()))
    }

    fn token(&mut self) -> Result<FencingToken, Damaged> {
        Ok(FencingToken::from_u64(self.number()?)?)
    }

    fn claim(&mut self) -> Result<Claim, Damaged> {
        match self.byte()? {
            0 => {
                let session = SessionId::from_u64(self.number()?)?;
                Ok(Claim::Request(RequestId { session, number: self.number()? }))
            }
            1 => Ok(Claim::Lease(LeaseRequestId(u128::from_be_bytes(self.array()?)))),
            other => Err(Damaged(format!("a claim of kind {other}"))),
        }
    }

    /// An optional number, stored as 0 or as the number plus one.
    fn number_or_none(&mut self) -> Result<Option<u32>, Damaged> {
        let number = self.number()?.checked_sub(1).map(u32::try_from).transpose();
        number.map_err(|_| Damaged("a limit".into()))
    }

    /// A mode, and the limit of a semaphore.
    fn mode(&mut self) -> Result<(Option<Mode>, Option<u32>), Damaged> {
        let mode = match self.byte()? {
            EXCLUSIVE => Some(Mode::Exclusive),
            SHARED => Some(Mode::Shared),
            PERMITS => {
                let count = u32::try_from(self.number()?).map_err(|_| Damaged("a number of permits".into()))?;
                return Ok((Some(Mode::Permits(count)), self.number_or_none()?));
            }
            UNKNOWN_MODE => None,
            other => return Err(Damaged(format!("a mode of kind {other}"))),
        };
        Ok((mode, None))
    }

    fn reason(&mut self) -> Result<EndReason, Damaged> {
        Ok(match self.byte()? {
            0 => EndReason::Released,
            1 => EndReason::Cancelled,
            2 => EndReason::Expired,
            3 => EndReason::Lost,
            4 => EndReason::Broken,
            5 => EndReason::HandedOver,
            6 => EndReason::Overtaken,
            7 => EndReason::TimeOver,
            other => return Err(Damaged(format!("a reason of kind {other}"))),
        })
    }

    /// The kind of event with its fields, in the order in which they were written.
    fn what(&mut self, tag: u8, lock: LockKey, mode: Option<Mode>) -> Result<(Subject, EventKind), Damaged> {
        if tag == LIMIT_CHANGED {
            let subject = Subject::Lock { lock, claim: None, token: None };
            return Ok((subject, EventKind::LimitChanged { limit: self.number_or_none()? }));
        }
        let subject = Subject::hold(&lock, self.claim()?, self.token()?);
        let mode = mode.ok_or_else(|| Damaged("a hold without a mode".into()))?;
        let kind = match tag {
            GRANTED => EventKind::Granted { mode, waited_ms: self.number()? },
            RELEASED => EventKind::Released { held_ms: self.number()? },
            EXPIRED => EventKind::Expired { reason: self.reason()?, held_ms: self.number()? },
            BROKEN => {
                let (by, why) = (Principal::parse(self.text()?)?, Reason::parse(self.text()?)?);
                EventKind::Broken { by, why, held_ms: self.number()? }
            }
            UPGRADED => EventKind::Upgraded { from: self.token()?, waited_ms: self.number()? },
            DOWNGRADED => EventKind::Downgraded,
            PERMITS_RETURNED => {
                let count = u32::try_from(self.number()?).map_err(|_| Damaged("a number of permits".into()))?;
                EventKind::PermitsReturned { count }
            }
            RESUMED => EventKind::Resumed { mode, from: self.token()? },
            HANDED_OVER => {
                let (was, from) = (self.claim()?, self.token()?);
                EventKind::HandedOver { was, from, mode, by: Principal::parse(self.text()?)? }
            }
            other => return Err(Damaged(format!("a record of kind {other}"))),
        };
        Ok((subject, kind))
    }

    fn facts(&mut self) -> Result<GrantFacts, Damaged> {
        let flags = self.byte()?;
        let on = |bit: u8| flags & bit != 0;
        let sequence = self.number()?;
        let owner = if on(OWNED) { Some(Owner::parse(self.text()?)?) } else { None };
        let principal = if on(NAMED) { self.text()? } else { ANONYMOUS };
        Ok(GrantFacts {
            arrival: Arrival { sequence, queued: on(QUEUED) },
            fairness: if on(BARGING) { Fairness::Barging } else { Fairness::Fair },
            set: on(SET),
            passing: on(PASSING),
            owner,
            principal: Principal::parse(principal)?,
            who: Arc::from(self.text()?),
            why: Arc::from(self.text()?),
        })
    }
}
