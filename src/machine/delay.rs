//! Lock-delay: after an involuntary end a name stays closed for a while, except to those who resume the lost hold.

use super::alter::Altering;
use super::expiry::Due;
use super::state::{Delayed, Holder, Lease, Request, permits_of};
use super::{Machine, RecordKey};
use crate::limits;
use crate::model::{
    Claim, DurationField, EndReason, EventKind, Fairness, FencingToken, Grant, Handle, LockKey, Outcome, QuotaKind,
    Refusal, Subject,
};

impl Machine {
    /// Keeps closed what an involuntary end leaves behind, where the lost hold asked for it.
    pub(super) fn begin_delay(&mut self, key: &LockKey, token: FencingToken, lost: &Holder, reason: EndReason) {
        let delay_ms = lost.request.choices().delay_ms.min(limits::LOCK_DELAY_MS_MAX);
        let involuntary = match reason {
            EndReason::Expired | EndReason::Lost => true,
            EndReason::Released
            | EndReason::Cancelled
            | EndReason::Broken
            | EndReason::HandedOver
            | EndReason::Overtaken => false,
        };
        if delay_ms == 0 || !involuntary {
            return;
        }
        let until = self.globals.now.after_ms(delay_ms);
        let holder = Holder { lease: None, extras: None, ..lost.clone() };
        if let Some(lock) = self.locks.get_mut(key) {
            lock.permits_reserved += permits_of(holder.request.mode);
            lock.delays.insert(token, Delayed { holder, until });
        }
        self.move_due(None, Some(until), Due::Delay(key.clone(), token));
        self.touch(RecordKey::Delay(key.clone(), token));
    }

    /// Opens again what a lost hold kept closed.
    pub(super) fn end_delay(&mut self, key: &LockKey, token: FencingToken) {
        if self.remove_delay(key, token).is_some() {
            let subject = Subject::Lock { lock: key.clone(), claim: None, token: Some(token) };
            self.event(Some(key.namespace.clone()), subject, EventKind::Reopened);
        }
    }

    /// Frees what a lost hold kept reserved. Sets may lack less then, so that sessions beside them pass fewer waiters.
    fn remove_delay(&mut self, key: &LockKey, token: FencingToken) -> Option<Delayed> {
        self.capacity_changes(key);
        let lock = self.locks.get_mut(key)?;
        let delayed = lock.delays.remove(&token)?;
        lock.permits_reserved -= permits_of(delayed.holder.request.mode);
        self.move_due(Some(delayed.until), None, Due::Delay(key.clone(), token));
        self.touch(RecordKey::Delay(key.clone(), token));
        self.look_at(key, 0);
        Some(delayed)
    }

    pub(super) fn resume(
        &mut self,
        altering: &Altering<'_>,
        token: FencingToken,
        handle: &Handle,
        lease_ms: Option<u64>,
    ) -> Outcome {
        if let Some(refusal) = lease_ms.and_then(|ms| self.lease_out_of_bounds(DurationField::Lease, ms)) {
            return Outcome::Refused(refusal);
        }
        if let Err(refusal) = self.open_for_grants().and_then(|()| self.may_resume(altering, token, handle)) {
            return Outcome::Refused(refusal);
        }
        let key = altering.key;
        let Some(Delayed { holder: lost, .. }) = self.remove_delay(key, token) else {
            return Outcome::Refused(Refusal::NotHeld { lock: key.clone() });
        };
        let (claim, mode) = (Claim::Request(altering.alter.request), lost.request.mode);
        let (principal, fingerprint) = (altering.principal.clone(), altering.fingerprint);
        let request = Request { claim, principal, fingerprint, ..lost.request };
        let deadline = lease_ms.map(|lease_ms| self.globals.now.after_ms(lease_ms));
        let lease = deadline.map(|deadline| Lease { handle: None, deadline, attempt: 0 });
        let holder = Holder { lease, ..Holder::new(request, &self.globals) };
        let new = self.next_token();
        self.granted(key, new, EventKind::Resumed { from: token, mode }, &holder, self.at_once(Fairness::Fair));
        self.insert_holder(key, new, holder);
        Outcome::Granted(Grant { token: new, deadline, waited_ms: 0 })
    }

    /// Refuses what is not closed any more, a wrong proof, and one lock too many.
    fn may_resume(&self, altering: &Altering<'_>, token: FencingToken, handle: &Handle) -> Result<(), Refusal> {
        let delayed = self.locks.get(altering.key).and_then(|lock| lock.delays.get(&token));
        let Some(delayed) = delayed else {
            return Err(
                self.not_held(altering.key, |holder| holder.request.claim.session() == Some(altering.session()))
            );
        };
        let lost = delayed.holder.request.claim.session();
        let live = lost.and_then(|id| self.sessions.get(&id)).map(|session| &session.record.handle);
        let known = live.or_else(|| lost.and_then(|id| self.tombstones.get(&id)).map(|tombstone| &tombstone.handle));
        if known != Some(handle) {
            return Err(Refusal::WrongHandle);
        }
        let live = self.sessions.get(&altering.session()).map_or(0, |session| session.locks() as u64);
        self.quotas.one_more(QuotaKind::LocksOfSession, live)?;
        let holders = self.locks.get(altering.key).map_or(0, |lock| lock.holders.len() as u64);
        self.quotas.one_more(QuotaKind::HoldersOfLock, holders)
    }

    /// How long something of this lock stays closed; `None` where nothing does.
    pub(super) fn delay_left_ms(&self, key: &LockKey) -> Option<u64> {
        let delays = self.locks.get(key)?.delays.values();
        delays.map(|delayed| delayed.until.ms_since(self.globals.now)).max()
    }
}

const _: () = assert!(limits::LOCK_DELAY_MS_MAX <= limits::TOMBSTONE_MS, "a resume is proven by the tombstone");
