//! What stays closed after the end of a hold. After an involuntary end, the lock or its permits stay closed for the
//! lock-delay, except for a session that resumes the lost hold. After every end but a break, they stay closed until the
//! time that the request chose (at-least). So does what a downgrade or a hand-over gives up.

use super::Machine;
use super::hold::HoldChange;
use crate::limits;
use crate::model::{
    Claim, Closing, DurationField, EndReason, EventKind, Fairness, FencingToken, Handle, HolderView, LockKey, Mode,
    Outcome, QuotaKind, Refusal, Subject,
};
use crate::state::{Delayed, Holder, Lease, LostHold, Request};

impl Machine {
    /// Keeps closed what an ended hold held. A lost hold is closed for the lock-delay. Every hold that was not handed
    /// over is also closed until the time that its request chose. The later of the two times counts. For a hold that an
    /// operator broke, the caller does not call this function.
    pub(super) fn begin_delay(&mut self, key: &LockKey, token: FencingToken, ended: &Holder, reason: EndReason) {
        let now = self.state.globals.now;
        let delay_ms = ended.request.choices().delay_ms.min(limits::LOCK_DELAY_MS_MAX);
        let (involuntary, continues) = match reason {
            EndReason::Expired | EndReason::Lost => (true, false),
            EndReason::Released
            | EndReason::Cancelled
            | EndReason::Broken
            | EndReason::Overtaken
            | EndReason::TimeOver => (false, false),
            EndReason::HandedOver => (false, true),
        };
        let delay = (delay_ms != 0 && involuntary).then(|| now.after_ms(delay_ms));
        let closed_until = ended.closed_until().filter(|until| now <= *until && !continues);
        let Some(until) = delay.max(closed_until) else { return };
        let lost = delay.map(|delay| LostHold {
            mode: ended.request.mode,
            until: ended.ends().map_or(delay, |ends| ends.min(delay)),
        });
        self.keep_closed(key, token, Delayed { holder: ended.clone(), until, lost });
    }

    /// What a hold gives up when it continues in the mode `kept`, if that stays closed until the time that its request
    /// chose.
    pub(super) fn given_up(&self, hold: &Holder, kept: Mode) -> Option<Holder> {
        let now = self.state.globals.now;
        let mode = beyond(hold.request.mode, kept).filter(|_| hold.closed_until().is_some_and(|until| now <= until))?;
        let mut given_up = hold.clone();
        given_up.request.mode = mode;
        Some(given_up)
    }

    /// Keeps this closed, together with what the same hold gave up before.
    fn keep_closed(&mut self, key: &LockKey, token: FencingToken, mut new: Delayed) {
        let kept = (new.holder.closed_until(), new.holder.ends());
        (new.holder.lease, new.holder.extras) = (None, None);
        new.holder.forget_cached();
        if kept != (None, None) {
            let extras = new.holder.extras_mut();
            (extras.closed_until, extras.ends) = kept;
        }
        if let Some(before) = self.state.remove_delay(key, token) {
            let mode = &mut new.holder.request.mode;
            *mode = match (*mode, before.holder.request.mode) {
                (Mode::Permits(count), Mode::Permits(other)) => Mode::Permits(count.saturating_add(other)),
                (_, Mode::Exclusive) => Mode::Exclusive,
                (mode, _) => mode,
            };
            new.until = new.until.max(before.until);
        }
        self.state.insert_delay(key, token, new);
    }

    /// Opens what an ended hold kept closed.
    pub(super) fn end_delay(&mut self, key: &LockKey, token: FencingToken) {
        if self.remove_delay(key, token).is_some() {
            let subject = Subject::Lock { lock: key.clone(), claim: None, token: Some(token) };
            self.event(Some(key.namespace.clone()), subject, EventKind::Reopened);
        }
    }

    /// Removes the reservation of an ended hold. Waiting sets may lack less afterwards, so that sessions with claims
    /// next to them overtake fewer waiters.
    fn remove_delay(&mut self, key: &LockKey, token: FencingToken) -> Option<Delayed> {
        self.capacity_changes(key);
        let delayed = self.state.remove_delay(key, token)?;
        self.check_queue(key, 0);
        Some(delayed)
    }

    pub(super) fn resume(
        &mut self,
        change: &HoldChange<'_>,
        token: FencingToken,
        handle: &Handle,
        lease_ms: Option<u64>,
    ) -> Result<Outcome, Refusal> {
        lease_ms.map_or(Ok(()), |ms| self.lease_in_bounds(DurationField::Lease, ms))?;
        self.open_for_grants()?;
        self.may_resume(change, token, handle)?;
        let key = change.key;
        let not_held = || Refusal::NotHeld { lock: key.clone() };
        let Delayed { holder: closed, lost, .. } = self.remove_delay(key, token).ok_or_else(not_held)?;
        let LostHold { mode, .. } = lost.ok_or_else(not_held)?;
        let claim = Claim::Request(change.alter.request);
        let (principal, fingerprint) = (change.principal.clone(), change.fingerprint);
        let whole = closed.request.mode;
        let request = Request { claim, mode, principal, fingerprint, ..closed.request };
        let now = self.state.globals.now;
        let lease = lease_ms.map(|ms| Lease { handle: None, deadline: now.after_ms(ms), attempt: 0 });
        let holder = Holder { lease, extras: closed.extras, ..Holder::new(request, &self.state.globals) };
        let new = self.next_token();
        self.granted(key, new, EventKind::Resumed { from: token, mode }, &holder, self.at_once(Fairness::Fair));
        let grant = holder.grant(new, change.alter.request.number);
        let mut before = holder.clone();
        before.request.mode = whole;
        // What the lost hold had given up stays closed, under the new token, so that the resumed hold can be upgraded.
        if let Some(given_up) = self.given_up(&before, mode) {
            self.begin_delay(key, new, &given_up, EndReason::Released);
        }
        self.insert_holder(key, new, holder);
        Ok(Outcome::Granted(grant))
    }

    /// Returns a lost hold that is still kept closed.
    pub(super) fn resumable(&self, key: &LockKey, token: FencingToken) -> Option<&Delayed> {
        let lasts = |delayed: &&Delayed| delayed.lost.is_some_and(|lost| self.state.globals.now <= lost.until);
        self.state.delayed(key, token).filter(lasts)
    }

    /// Returns the handle of the session that lost the hold. `None` once the cluster has forgotten the session.
    pub(super) fn handle_of_loser(&self, delayed: &Delayed) -> Option<&Handle> {
        let lost = delayed.holder.request.claim.session()?;
        let open = self.state.session(lost).map(|session| &session.record.handle);
        open.or_else(|| self.state.tombstones.get(&lost).map(|ended| &ended.handle))
    }

    /// Refuses a hold that is no longer kept closed, a wrong handle, and a lock beyond the session's quota.
    fn may_resume(&self, change: &HoldChange<'_>, token: FencingToken, handle: &Handle) -> Result<(), Refusal> {
        let Some(delayed) = self.resumable(change.key, token) else {
            return Err(self.not_held(change.key, |holder| holder.request.claim.session() == Some(change.session())));
        };
        if self.handle_of_loser(delayed) != Some(handle) {
            return Err(Refusal::WrongHandle);
        }
        let live = self.state.session(change.session()).map_or(0, |session| session.locks as u64);
        self.quotas.one_more(QuotaKind::LocksOfSession, live)?;
        let holders = self.state.lock(change.key).map_or(0, |lock| lock.holders.len() as u64);
        self.quotas.one_more(QuotaKind::HoldersOfLock, holders)
    }

    /// The refusal of an exclusive try for a lock that is held, awaited or kept closed.
    #[must_use]
    pub fn held_or_kept_closed(&self, key: &LockKey) -> Refusal {
        self.held_by_another(key, Mode::Exclusive, None)
    }

    /// The refusal of a request in this mode. It names [a holder](Self::holder_in_the_way), or else the ended hold
    /// whose name or permits open first.
    pub(super) fn held_by_another(&self, key: &LockKey, mode: Mode, own: Option<FencingToken>) -> Refusal {
        let holder = self.holder_in_the_way(key, mode, own).map(Box::new);
        let closings = self.closings(key).filter(|_| holder.is_none());
        let closed = closings.min_by_key(|closing| (closing.until, closing.token)).map(Box::new);
        Refusal::Held { lock: key.clone(), holder, closed }
    }

    /// The oldest holder of the lock, other than the hold with the token `own`, to which the request itself belongs.
    /// `None` if an ended hold keeps the lock closed and the request could share the lock with that holder.
    pub(super) fn holder_in_the_way(&self, key: &LockKey, mode: Mode, own: Option<FencingToken>) -> Option<HolderView> {
        let (token, holder) = self.state.holders(key).find(|(token, _)| Some(*token) != own)?;
        let is_open = self.state.lock(key).is_none_or(|lock| lock.delays.is_empty());
        (is_open || holder.request.mode.conflicts_with(mode)).then(|| self.view(token, holder))
    }

    /// Everything that keeps this lock, or permits of it, closed.
    pub(super) fn closings(&self, key: &LockKey) -> impl Iterator<Item = Closing> {
        let delays = self.state.lock(key).into_iter().flat_map(|lock| &lock.delays);
        delays.map(|(token, Delayed { holder, until, .. })| Closing {
            token: *token,
            who: holder.request.metadata.name().into(),
            until: *until,
            left_ms: until.ms_since(self.state.globals.now),
        })
    }

    /// How long any part of this lock stays closed, in milliseconds. `None` if no part is closed.
    pub(super) fn delay_left_ms(&self, key: &LockKey) -> Option<u64> {
        let delays = self.state.lock(key)?.delays.values();
        delays.map(|delayed| delayed.until.ms_since(self.state.globals.now)).max()
    }
}

/// What a hold of the mode `all` gives up when it continues in the mode `kept`. `None` if it gives up nothing. A lock
/// is closed as a whole.
fn beyond(all: Mode, kept: Mode) -> Option<Mode> {
    match (all, kept) {
        (Mode::Permits(all), Mode::Permits(kept)) if kept < all => Some(Mode::Permits(all - kept)),
        (Mode::Exclusive, Mode::Shared) => Some(Mode::Exclusive),
        _ => None,
    }
}

impl Delayed {
    /// What other clients may know of an ended hold: it is shown as a hold that ends when its name opens.
    pub(super) fn view(&self, token: FencingToken) -> HolderView {
        HolderView { deadline: Some(self.until), ..self.holder.view(token, None) }
    }
}

const _: () = assert!(limits::LOCK_DELAY_MS_MAX <= limits::TOMBSTONE_MS, "a resume is proven by the tombstone");
