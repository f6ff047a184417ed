//! What a session does with its holds: release, set the value, return permits, and acquire a lock again that its owner
//! holds.
//!
//! Each change names the hold by its token and must come from the holder. A named owner may acquire its hold again,
//! under the same token; each acquire needs its own release.

use super::Machine;
use super::acquire::Asking;
use super::requests::{of_alter, of_release};
use crate::model::{
    Access, Alter, Alteration, Claim, EndReason, EventKind, FencingToken, Kind, LockKey, LockValue, Mode, Outcome,
    Principal, QuotaKind, Reentry, Refusal, Release, RequestId, SessionId, Subject,
};
use crate::state::{ClaimState, HEAD, HoldEntry, Holder, Purpose, RecordKey};

/// A change of one hold, with everything that its steps need.
pub(super) struct HoldChange<'a> {
    pub(super) principal: &'a Principal,
    pub(super) alter: &'a Alter,
    pub(super) key: &'a LockKey,
    pub(super) fingerprint: u64,
}

impl HoldChange<'_> {
    pub(super) fn session(&self) -> SessionId {
        self.alter.request.session
    }
}

impl Machine {
    pub(super) fn alter(&mut self, principal: &Principal, alter: &Alter) -> Outcome {
        let fingerprint = of_alter(alter);
        let namespace = match self.begin(alter.request, alter.answered_below, fingerprint) {
            Ok(namespace) => namespace,
            Err(known) => return known,
        };
        let key = LockKey { namespace, name: alter.name.clone() };
        self.expire_due_at(&key);
        let change = HoldChange { principal, alter, key: &key, fingerprint };
        let outcome = match &alter.what {
            Alteration::Downgrade { token } => self.downgrade(&change, *token),
            Alteration::Upgrade { token, patience } => self.upgrade(&change, *token, *patience),
            Alteration::Resume { token, handle, lease_ms } => self.resume(&change, *token, handle, *lease_ms),
            Alteration::SetValue { token, value } => self.set_value(&change, *token, value.as_ref()),
            Alteration::ReturnPermits { token, count } => self.return_permits(&change, *token, *count),
        };
        let outcome = outcome.unwrap_or_else(Outcome::Refused);
        let is_active = self.state.claims_of(alter.request).next().is_some();
        if is_active { outcome } else { self.finish(alter.request, fingerprint, outcome) }
    }

    /// The session's own hold with this token, or the refusal if there is none.
    pub(super) fn own_hold(&self, change: &HoldChange<'_>, token: FencingToken) -> Result<&Holder, Refusal> {
        let mine = |holder: &Holder| holder.request.claim.session() == Some(change.session());
        let holder = self.state.holder(change.key, token);
        holder.filter(|holder| mine(holder)).ok_or_else(|| self.not_held(change.key, mine))
    }

    pub(super) fn release(&mut self, release: &Release) -> Outcome {
        let fingerprint = of_release(release);
        let namespace = match self.begin(release.request, release.answered_below, fingerprint) {
            Ok(namespace) => namespace,
            Err(known) => return known,
        };
        let key = LockKey { namespace, name: release.name.clone() };
        self.expire_due_at(&key);
        let mine = |holder: &Holder| holder.request.claim.session() == Some(release.request.session);
        let outcome = if self.state.holder(&key, release.token).is_some_and(mine) {
            Outcome::Released { left: self.release_once(&key, release.token, release.acquire) }
        } else {
            Outcome::Refused(self.not_held(&key, mine))
        };
        self.finish(release.request, fingerprint, outcome)
    }

    /// Releases the request of the hold with this number, or the newest for 0; the last one ends the hold. Returns how
    /// many are left. A request that left the hold before changes nothing, because an earlier attempt released it.
    fn release_once(&mut self, key: &LockKey, token: FencingToken, number: u64) -> u32 {
        let Some(holder) = self.state.holder(key, token) else { return 0 };
        let depth = holder.depth();
        let released = holder.numbers().filter(|known| number == 0 || *known == number).last();
        match released {
            None => u32::try_from(depth).unwrap_or(u32::MAX),
            Some(_) if depth == 1 => {
                self.end_hold(key, token, EndReason::Released, None);
                0
            }
            Some(number) => self.leave_hold(key, token, number, Outcome::HoldEnded { reason: EndReason::Released }),
        }
    }

    /// The refusal of a caller that proves no hold of the lock, such as a confirmation with an unknown `ts`.
    #[must_use]
    pub fn not_proven(&self, key: &LockKey) -> Refusal {
        self.not_held(key, |_| false)
    }

    /// The refusal of a caller that proves no hold: it names another holder of the lock, or says that the lock is not
    /// held. A hold that `mine` accepts is the caller's own, so it is never reported as another client's.
    pub(super) fn not_held(&self, key: &LockKey, mine: impl Fn(&Holder) -> bool) -> Refusal {
        let lock = key.clone();
        match self.state.holders(key).find(|(_, holder)| !mine(holder)) {
            Some((token, holder)) => Refusal::HeldByOther { lock, holder: Box::new(self.view(token, holder)) },
            None => Refusal::NotHeld { lock },
        }
    }

    /// Returns some permits of a hold, which keeps the others under the same token. Refuses a hold that its owner
    /// acquired several times, because the machine cannot know to which acquire the permits belong.
    pub(super) fn return_permits(
        &mut self,
        change: &HoldChange<'_>,
        token: FencingToken,
        count: u32,
    ) -> Result<Outcome, Refusal> {
        let key = change.key;
        let (claim, left) = self.permits_left(change, token, count)?;
        if left == 0 {
            self.end_hold(key, token, EndReason::Released, None);
            return Ok(Outcome::Released { left });
        }
        let Some(lock) = self.state.locks.get_mut(key).filter(|_| count != 0) else {
            return Ok(Outcome::Released { left });
        };
        lock.permits_held -= u64::from(count);
        let Some(holder) = lock.holders.get_mut(&token) else { return Ok(Outcome::Released { left }) };
        holder.request.mode = Mode::Permits(count);
        let returned = holder.as_ref().clone();
        holder.request.mode = Mode::Permits(left);
        self.begin_delay(key, token, &returned, EndReason::Released);
        self.state.mark(RecordKey::Holder(key.clone(), token));
        self.check_queue(key, 0);
        self.capacity_changes(key);
        let mode = Some(Mode::Permits(left));
        self.happened(key, Some((claim, token)), EventKind::PermitsReturned { count }, mode);
        Ok(Outcome::Released { left })
    }

    /// The claim of the hold, and the number of permits that are left once `count` permits are returned.
    fn permits_left(&self, change: &HoldChange<'_>, token: FencingToken, count: u32) -> Result<(Claim, u32), Refusal> {
        let holder = self.own_hold(change, token)?;
        let lock = change.key.clone();
        let Mode::Permits(held) = holder.request.mode else {
            return Err(Refusal::KindMismatch { lock, kind: Kind::Lock });
        };
        entered_once(change.key, holder)?;
        match held.checked_sub(count) {
            Some(left) => Ok((holder.request.claim, left)),
            None => Err(Refusal::PermitsNotHeld { lock, held, asked: count }),
        }
    }

    pub(super) fn set_value(
        &mut self,
        change: &HoldChange<'_>,
        token: FencingToken,
        value: Option<&LockValue>,
    ) -> Result<Outcome, Refusal> {
        self.own_hold(change, token)?;
        self.end_cached(change.key, token);
        self.put_value(change.key, token, value);
        Ok(Outcome::Done)
    }

    /// Stores this text with a hold, or removes the stored text for `None`.
    pub(super) fn put_value(&mut self, key: &LockKey, token: FencingToken, value: Option<&LockValue>) {
        let Some(holder) = self.state.holder_mut(key, token) else { return };
        let claim = holder.request.claim;
        if holder.set_value(value) {
            self.state.mark(RecordKey::Holder(key.clone(), token));
            self.event(Some(key.namespace.clone()), Subject::hold(key, claim, token), EventKind::ValueChanged);
        }
    }

    /// The text of the first holder that has one.
    pub(super) fn value_of(&self, key: &LockKey) -> Option<LockValue> {
        self.state.lock(key)?.holders.values().find_map(|holder| holder.request.choices().value.clone())
    }

    /// The hold that a named owner acquires again. `None` for an owner that does not hold the lock, and for a request
    /// without an owner. Refuses an owner that holds or waits for one of the locks already and may not acquire it
    /// again.
    pub(super) fn reentry(&self, asking: &Asking<'_>) -> Result<Option<FencingToken>, Refusal> {
        if asking.reentry() == Reentry::Wait {
            return Ok(None);
        }
        let Some(owner) = asking.acquire.owner.clone() else { return Ok(None) };
        let session = asking.acquire.request.session;
        let Some(owned) = self.state.index.owners.get(&(session, owner)) else { return Ok(None) };
        for (key, access) in asking.members {
            let token = match owned.claim_at(key) {
                None => continue,
                Some(ClaimState::Waiting(_)) => None,
                Some(ClaimState::Holding(token)) => Some(token),
            };
            return match (token, asking.reentry()) {
                (Some(token), Reentry::Count) => self.may_enter_again(key, *access, session, token),
                (token, Reentry::Count | Reentry::Refuse | Reentry::Wait) => {
                    Err(Refusal::AlreadyHeld { lock: key.clone(), session, token })
                }
            };
        }
        Ok(None)
    }

    /// Refuses a mode that the hold does not cover, a hold whose upgrade waits, a limit that differs from the
    /// semaphore's, and an acquire beyond the greatest depth.
    fn may_enter_again(
        &self,
        key: &LockKey,
        access: Access,
        session: SessionId,
        token: FencingToken,
    ) -> Result<Option<FencingToken>, Refusal> {
        let lock = self.state.lock(key);
        let Some(holder) = lock.and_then(|lock| lock.holders.get(&token)) else { return Ok(None) };
        if let (Some(asked), Some(limit)) = (access.limit, lock.and_then(|lock| lock.limit))
            && asked != limit
        {
            return Err(Refusal::LimitMismatch { lock: key.clone(), limit, asked });
        }
        // The grant of a waiting upgrade replaces the token, which the inner acquire would still use.
        let upgrade = lock.and_then(|lock| lock.queue.get(&HEAD));
        let upgrades = upgrade.is_some_and(|waiter| waiter.purpose == Purpose::Upgrade(token));
        if upgrades || !holder.request.mode.covers(access.mode) {
            return Err(Refusal::AlreadyHeld { lock: key.clone(), session, token: Some(token) });
        }
        self.quotas.one_more(QuotaKind::DepthOfHold, holder.depth() as u64)?;
        Ok(Some(token))
    }

    /// Acquires the hold of the request's only lock once more.
    pub(super) fn reenter(&mut self, asking: &Asking<'_>, token: FencingToken) -> Result<Outcome, Refusal> {
        let (request, fingerprint) = (asking.acquire.request, asking.fingerprint);
        let Some((key, _)) = asking.members.only() else { return Ok(Outcome::Withdrawn) };
        let holder = self.state.holder_mut(key, token);
        let Some(holder) = holder else { return Err(Refusal::NotHeld { lock: key.clone() }) };
        holder.extras_mut().reentries.push(HoldEntry { number: request.number, fingerprint });
        let grant = holder.grant(token, request.number);
        self.state.add_claim(key, Claim::Request(request), ClaimState::Holding(token));
        self.state.mark(RecordKey::Holder(key.clone(), token));
        Ok(Outcome::Granted(grant))
    }

    /// Removes one request from a hold that was acquired several times; the hold continues. If it is the first, the
    /// oldest of the others replaces it. Returns how many are left.
    pub(super) fn leave_hold(&mut self, key: &LockKey, token: FencingToken, number: u64, answer: Outcome) -> u32 {
        let holder = self.state.holder_mut(key, token);
        let Some(holder) = holder else { return 0 };
        let (claim, first) = (holder.request.claim, holder.request.fingerprint);
        let Claim::Request(RequestId { session, number: first_number }) = claim else { return 0 };
        let left_by = if number == first_number {
            let next = holder.extras_mut().reentries.remove(0);
            holder.request.claim = Claim::Request(RequestId { session, number: next.number });
            holder.request.fingerprint = next.fingerprint;
            holder.extras_mut().set = false;
            first
        } else {
            let extras = holder.extras_mut();
            let at = extras.reentries.iter().position(|again| again.number == number);
            at.map_or(0, |at| extras.reentries.remove(at).fingerprint)
        };
        holder.tidy_extras();
        let left = holder.depth();
        self.state.mark(RecordKey::Holder(key.clone(), token));
        self.finish_request(key, claim, number, left_by, answer);
        u32::try_from(left).unwrap_or(u32::MAX)
    }
}

/// Refuses a hold that its owner acquired more than once.
pub(super) fn entered_once(key: &LockKey, holder: &Holder) -> Result<(), Refusal> {
    match holder.depth() {
        1 => Ok(()),
        depth => Err(Refusal::Reentered { lock: key.clone(), depth: u32::try_from(depth).unwrap_or(u32::MAX) }),
    }
}
