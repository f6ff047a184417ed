//! Downgrade and upgrade of a hold.
//!
//! An upgrade that waits is at the head of the queue, under the sequence number 0, which no other waiter has. So a lock
//! has at most one waiting upgrade, and all other waiters are behind it.

use super::Machine;
use super::hold::{HoldChange, entered_once};
use crate::faults::{self, Fault};
use crate::limits;
use crate::model::{
    Claim, EndReason, EventKind, FencingToken, Grant, Kind, LockKey, LogTime, Mode, Outcome, Patience, QuotaKind,
    Refusal, RequestId, WaitEndReason,
};
use crate::state::{HEAD, HoldEntry, Holder, Lock, Purpose, RecordKey, Request, Waiter};

impl Lock {
    /// Whether this shared hold could become exclusive now, because it is the only one. What its own downgrade keeps
    /// closed is not closed to it.
    pub(super) fn admits_upgrade(&self, token: FencingToken) -> bool {
        let alone = self.holders.len() == 1 && self.holders.contains_key(&token);
        alone && self.delays.keys().all(|ended| *ended == token)
    }
}

impl Machine {
    pub(super) fn downgrade(&mut self, change: &HoldChange<'_>, token: FencingToken) -> Result<Outcome, Refusal> {
        let holder = self.changeable(change, token)?;
        let (key, claim) = (change.key, holder.request.claim);
        if holder.request.mode == Mode::Shared {
            return Ok(Outcome::Downgraded);
        }
        let given_up = self.given_up(holder, Mode::Shared);
        self.claim_changes(key, claim);
        self.end_cached(key, token);
        let holder = self.state.holder_mut(key, token);
        let Some(holder) = holder else { return Err(Refusal::NotHeld { lock: key.clone() }) };
        holder.request.mode = Mode::Shared;
        let upgrade = holder.extras.as_mut().and_then(|extras| extras.upgrade.take());
        holder.tidy_extras();
        if let Some(upgrade) = upgrade {
            let ended = Outcome::HoldEnded { reason: EndReason::Released };
            self.finish_request(key, claim, upgrade.number, upgrade.fingerprint, ended);
        }
        self.state.mark(RecordKey::Holder(key.clone(), token));
        if let Some(given_up) = given_up {
            self.begin_delay(key, token, &given_up, EndReason::Released);
        }
        self.check_queue(key, 0);
        self.happened(key, Some((claim, token)), EventKind::Downgraded, Some(Mode::Shared));
        Ok(Outcome::Downgraded)
    }

    pub(super) fn upgrade(
        &mut self,
        change: &HoldChange<'_>,
        token: FencingToken,
        patience: Patience,
    ) -> Result<Outcome, Refusal> {
        let (key, request) = (change.key, change.alter.request);
        let waiter = self.may_upgrade(change, token, patience)?;
        if self.state.lock(key).is_some_and(|lock| lock.admits_upgrade(token)) {
            let asked = HoldEntry { number: request.number, fingerprint: change.fingerprint };
            let grant = self.make_exclusive(key, token, asked, 0);
            return grant.map(Outcome::Granted).ok_or_else(|| Refusal::NotHeld { lock: key.clone() });
        }
        let events = self.events.len();
        self.enqueue(key, HEAD, waiter);
        self.refuse_cycle(std::slice::from_ref(key), HEAD, events)?;
        // Sets in this queue wait behind the upgrade now, and so for the other holders.
        self.holders_changed(key);
        Ok(Outcome::Queued(self.place(key, HEAD)))
    }

    /// The waiter for an upgrade. Returns the refusal if the upgrade can never be granted.
    fn may_upgrade(&self, change: &HoldChange<'_>, token: FencingToken, patience: Patience) -> Result<Waiter, Refusal> {
        let key = change.key;
        let holder = self.changeable(change, token)?;
        if holder.request.mode == Mode::Exclusive {
            let session = change.session();
            return Err(Refusal::AlreadyHeld { lock: key.clone(), session, token: Some(token) });
        }
        let Some(lock) = self.state.lock(key) else { return Err(Refusal::NotHeld { lock: key.clone() }) };
        if let Some(Purpose::Upgrade(first)) = lock.queue.get(&HEAD).map(|waiter| waiter.purpose) {
            let holder = self.view_of(key, first).map(Box::new);
            return Err(Refusal::Held { lock: key.clone(), holder, closed: None });
        }
        let waits = !lock.admits_upgrade(token);
        if waits && patience == Patience::Try {
            return Err(self.held_by_another(key, Mode::Exclusive, Some(token)));
        }
        if waits {
            self.quotas.one_more(QuotaKind::Waiters, self.state.used(&key.namespace).waiters)?;
        }
        let request = Request {
            claim: Claim::Request(change.alter.request),
            mode: Mode::Exclusive,
            fingerprint: change.fingerprint,
            extras: None,
            ..holder.request.clone()
        };
        let (since, deadline) = (self.state.globals.now, self.wait_deadline(patience));
        Ok(Waiter { request, since, deadline, lease: None, purpose: Purpose::Upgrade(token), tries: false })
    }

    /// When a session's wait times out. A try waits only behind a cached hold.
    pub(super) fn wait_deadline(&self, patience: Patience) -> Option<LogTime> {
        match patience {
            Patience::For { ms } => Some(self.state.globals.now.after_ms(ms.min(limits::PATIENCE_MS_MAX))),
            Patience::Try => Some(self.state.globals.now.after_ms(limits::TRY_BEHIND_CACHED_MS)),
            Patience::Session => None,
        }
    }

    /// The session's own hold of a lock, if its mode may change: the hold must have been acquired only once.
    fn changeable(&self, change: &HoldChange<'_>, token: FencingToken) -> Result<&Holder, Refusal> {
        let holder = self.own_hold(change, token)?;
        if matches!(holder.request.mode, Mode::Permits(_)) {
            return Err(Refusal::KindMismatch { lock: change.key.clone(), kind: Kind::Semaphore });
        }
        entered_once(change.key, holder)?;
        Ok(holder)
    }

    pub(super) fn grant_upgrade(&mut self, key: &LockKey, token: FencingToken) {
        let Some(waiter) = self.remove_waiter(key, HEAD) else { return };
        let Claim::Request(RequestId { number, .. }) = waiter.request.claim else { return };
        let waited_ms = self.state.globals.now.ms_since(waiter.since);
        self.make_exclusive(key, token, HoldEntry { number, fingerprint: waiter.request.fingerprint }, waited_ms);
    }

    /// Makes a shared hold exclusive, under a new token. All its requests belong to the new hold.
    fn make_exclusive(&mut self, key: &LockKey, from: FencingToken, asked: HoldEntry, waited_ms: u64) -> Option<Grant> {
        let token = if faults::on(Fault::UpgradeKeepsToken) { from } else { self.next_token() };
        let mut holder = self.state.remove_holder(key, from)?;
        // The exclusive hold keeps the lock closed again, until the same time.
        self.state.remove_delay(key, from);
        holder.request.mode = Mode::Exclusive;
        holder.extras_mut().upgrade = Some(asked);
        let grant = holder.grant(token, asked.number);
        let session = holder.request.claim.session()?;
        self.state.insert_holder(key, token, holder);
        self.check_holder(key, token);
        self.capacity_changes(key);
        self.holders_changed(key);
        let claim = Claim::Request(RequestId { session, number: asked.number });
        let kind = EventKind::Upgraded { from, waited_ms };
        self.happened(key, Some((claim, token)), kind, Some(Mode::Exclusive));
        Some(Grant { waited_ms, ..grant })
    }

    /// Ends the waiting upgrade of a hold that has ended.
    pub(super) fn end_upgrade_of(&mut self, key: &LockKey, token: FencingToken, reason: EndReason) {
        let head = self.state.waiter(key, HEAD);
        if head.is_some_and(|waiter| waiter.purpose == Purpose::Upgrade(token)) {
            self.end_wait_as(key, HEAD, WaitEndReason::HoldEnded, Outcome::HoldEnded { reason });
        }
    }
}
