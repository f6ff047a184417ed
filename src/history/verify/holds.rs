//! Checks that there is one holder at a time. Follows, record by record, which holds exist.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Claim, EventKind, FencingToken, HistoryRecord, LockName, Mode, SessionId};

/// The current holds, and the grants in the records that were read so far.
pub(super) struct Holds<'a> {
    /// Whether the first record is the first of the chain.
    complete: bool,
    /// Whether the records of other locks may have been left out.
    one_lock: bool,
    locks: BTreeMap<&'a LockName, LockHolds>,
    /// How many locks each session holds.
    of_session: BTreeMap<SessionId, u64>,
}

#[derive(Default)]
struct LockHolds {
    now: BTreeMap<FencingToken, (Mode, Claim)>,
    first: Option<FencingToken>,
    /// The kinds of modes that were granted in the records, each with a token of such a grant.
    granted: BTreeMap<u8, FencingToken>,
    /// Tokens of ended holds that were granted before the first record.
    ended_before: BTreeSet<FencingToken>,
}

/// The kind of a mode. Conflicts depend only on it.
fn kind(mode: Mode) -> u8 {
    match mode {
        Mode::Exclusive => 0,
        Mode::Shared => 1,
        Mode::Permits(_) => 2,
    }
}

/// Whether two holds of these kinds always exclude each other, regardless of the number of permits.
fn excludes(one: u8, other: u8) -> bool {
    one != other || one == kind(Mode::Exclusive)
}

impl<'a> Holds<'a> {
    pub(super) fn new(complete: bool, one_lock: bool) -> Self {
        Self { complete, one_lock, locks: BTreeMap::new(), of_session: BTreeMap::new() }
    }

    /// Whether the session may hold another lock now, judging by the records.
    pub(super) fn may_hold_more(&self, claim: Claim) -> bool {
        let held = |session| self.of_session.get(&session).is_some_and(|held| 0 < *held);
        claim.session().is_some_and(|session| !self.complete || self.one_lock || held(session))
    }

    pub(super) fn add(&mut self, record: &'a HistoryRecord) -> Result<(), String> {
        let subject = &record.event.subject;
        let Some(name) = subject.lock().map(|lock| &lock.name) else { return Ok(()) };
        let (Some(mode), Some(claim), Some(token)) = (record.mode, subject.claim(), subject.token()) else {
            return Ok(());
        };
        match &record.event.kind {
            EventKind::Granted { .. } => {
                self.fits(name, token, mode, record.limit)?;
                self.begin(name, token, mode, claim)
            }
            EventKind::Resumed { from, .. } => {
                if self.locks.get(name).is_some_and(|lock| lock.now.contains_key(from)) {
                    return Err(format!("token {from} of {name:?} was resumed although it had not ended"));
                }
                self.begin(name, token, mode, claim)
            }
            EventKind::Upgraded { from, .. } => {
                self.end(name, *from, Some(Mode::Shared))?;
                self.begin(name, token, Mode::Exclusive, claim)
            }
            EventKind::HandedOver { from, .. } => {
                self.end(name, *from, None)?;
                self.begin(name, token, mode, claim)
            }
            EventKind::Downgraded => self.change(name, token, Mode::Exclusive, Mode::Shared),
            EventKind::PermitsReturned { count, .. } => self.shrink(name, token, *count, mode),
            EventKind::Released { .. } | EventKind::Expired { .. } | EventKind::Broken { .. } => {
                self.end(name, token, Some(mode))
            }
            EventKind::Queued { .. }
            | EventKind::WaitEnded { .. }
            | EventKind::RevokeRequested { .. }
            | EventKind::ValueChanged
            | EventKind::Recalled
            | EventKind::LimitChanged { .. }
            | EventKind::Reopened
            | EventKind::SessionOpened
            | EventKind::SessionEnded { .. }
            | EventKind::LeaderlessGap { .. } => Ok(()),
        }
    }

    /// Checks that there were enough permits for a new holder. A resumed or handed-over hold continues even if the
    /// limit was lowered, as every hold does.
    fn fits(&self, name: &LockName, token: FencingToken, mode: Mode, limit: Option<u32>) -> Result<(), String> {
        let (Mode::Permits(count), Some(limit)) = (mode, limit) else { return Ok(()) };
        let now = self.locks.get(name).into_iter().flat_map(|lock| lock.now.values());
        let held: u64 = now.map(|(held, _)| held.permits()).sum();
        if u64::from(limit) < held + u64::from(count) {
            return Err(format!(
                "{count} of {limit} permits of {name:?} were granted to token {token} while {held} were held"
            ));
        }
        Ok(())
    }

    fn begin(&mut self, name: &'a LockName, token: FencingToken, mode: Mode, claim: Claim) -> Result<(), String> {
        let lock = self.locks.entry(name).or_default();
        let other = lock.now.iter().find(|(_, (held, _))| excludes(kind(*held), kind(mode)));
        if let Some((other, _)) = other {
            return Err(format!("{name:?} was granted to token {token} while token {other} held it: two at a time"));
        }
        lock.first.get_or_insert(token);
        lock.granted.entry(kind(mode)).or_insert(token);
        lock.now.insert(token, (mode, claim));
        if let Some(session) = claim.session() {
            *self.of_session.entry(session).or_default() += 1;
        }
        Ok(())
    }

    /// Ends a hold. `mode` is used if the grant of the hold is not among the records.
    fn end(&mut self, name: &'a LockName, token: FencingToken, mode: Option<Mode>) -> Result<(), String> {
        let complete = self.complete;
        let lock = self.locks.entry(name).or_default();
        let Some((_, claim)) = lock.now.remove(&token) else {
            return lock.ended_unseen(name, token, mode, complete);
        };
        if let Some(held) = claim.session().and_then(|session| self.of_session.get_mut(&session)) {
            *held -= 1;
        }
        Ok(())
    }

    /// Records that some permits of a hold were returned. `left` is the mode that remains.
    fn shrink(&mut self, name: &'a LockName, token: FencingToken, returned: u32, left: Mode) -> Result<(), String> {
        let held = self.locks.get(name).and_then(|lock| lock.now.get(&token)).map(|(mode, _)| mode.permits());
        if held.is_some_and(|held| held != left.permits() + u64::from(returned)) || left.permits() == 0 {
            let (held, left) = (held.unwrap_or_default(), left.permits());
            return Err(format!("token {token} of {name:?} gave back {returned} of {held} permits and kept {left}"));
        }
        self.change(name, token, left, left)
    }

    /// Records that a hold continues in another mode.
    fn change(&mut self, name: &'a LockName, token: FencingToken, was: Mode, to: Mode) -> Result<(), String> {
        let complete = self.complete;
        let lock = self.locks.entry(name).or_default();
        if let Some((mode, _)) = lock.now.get_mut(&token) {
            *mode = to;
            return Ok(());
        }
        lock.ended_unseen(name, token, Some(was), complete)?;
        lock.ended_before.remove(&token);
        Ok(())
    }
}

impl LockHolds {
    /// Ends a hold whose grant is not among the records. It must have been granted before the first record, so it must
    /// be compatible with everything that was granted since.
    fn ended_unseen(
        &mut self,
        name: &LockName,
        token: FencingToken,
        mode: Option<Mode>,
        complete: bool,
    ) -> Result<(), String> {
        let since = self.first.is_some_and(|first| first <= token);
        if complete || since || !self.ended_before.insert(token) {
            return Err(format!("token {token} of {name:?} ended although it was not held"));
        }
        let conflicting = |mode| self.granted.iter().find(|(granted, _)| excludes(**granted, kind(mode)));
        if let Some((_, other)) = mode.and_then(conflicting) {
            return Err(format!("{name:?} was granted to token {other} while token {token} held it: two at a time"));
        }
        Ok(())
    }
}
