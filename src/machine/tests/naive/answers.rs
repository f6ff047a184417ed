//! The answers that callers get.

use super::*;

impl Naive {
    pub(super) fn view(&self, hold: &Hold) -> HolderView {
        let id = hold.ask.claim.session();
        let session_end = self.sessions.iter().find(|session| Some(session.id) == id).map(|session| session.deadline);
        HolderView {
            session: id,
            owner: hold.ask.owner.clone(),
            principal: hold.ask.principal.clone(),
            token: hold.token,
            mode: hold.ask.mode,
            metadata: hold.ask.metadata.clone(),
            since: hold.since,
            deadline: hold.lease_end.into_iter().chain(hold.ends).chain(session_end).min(),
            cached: hold.ask.extras.cached,
            recalled: hold.recalled,
        }
    }

    /// The oldest holder, without the holds that `mine` selects.
    pub(super) fn holder(&self, lock: &LockKey, mine: impl Fn(&Hold) -> bool) -> Option<HolderView> {
        let others = self.holds.iter().filter(|hold| hold.ask.lock == *lock && !mine(hold));
        others.min_by_key(|hold| hold.token).map(|hold| self.view(hold))
    }

    /// This holder, if it blocks a request in this mode. One that the request could share the lock with is named only
    /// if nothing is closed.
    fn blocking(&self, lock: &LockKey, mode: Mode, holder: Option<HolderView>) -> Option<HolderView> {
        let open = !self.lost.iter().any(|lost| lost.ask.lock == *lock);
        holder.filter(|holder| open || conflict(holder.mode, mode))
    }

    /// The answer to a try in this mode: it names a holder, or else the ended hold whose name or permits open first.
    pub(super) fn held_or_closed(&self, lock: &LockKey, mode: Mode, holder: Option<HolderView>) -> Outcome {
        let holder = self.blocking(lock, mode, holder);
        let lost = self.lost.iter().filter(|lost| lost.ask.lock == *lock && holder.is_none());
        let closed = lost.min_by_key(|lost| (lost.until, lost.token)).map(|lost| {
            let (token, who, until) = (lost.token, lost.ask.metadata.name().into(), lost.until);
            Box::new(Closing { token, who, until, left_ms: until.0 - self.now.0 })
        });
        Outcome::Refused(Refusal::Held { lock: lock.clone(), holder: holder.map(Box::new), closed })
    }

    pub(super) fn not_held(&self, lock: &LockKey, mine: impl Fn(&Hold) -> bool) -> Outcome {
        let lock = lock.clone();
        Outcome::Refused(match self.holder(&lock, mine) {
            Some(holder) => Refusal::HeldByOther { lock, holder: Box::new(holder) },
            None => Refusal::NotHeld { lock },
        })
    }

    pub(super) fn queued(&self, wait: &Wait) -> Outcome {
        let lock = &wait.ask.lock;
        let ahead = self.waits.iter().filter(|o| o.ask.lock == *lock && o.sequence < wait.sequence).count() as u64;
        let holder = self.holder(lock, |hold| wait.upgrades == Some(hold.token));
        let held_by = self.blocking(lock, wait.ask.mode, holder).map(Box::new);
        Outcome::Queued(Place { lock: lock.name.clone(), place: ahead + 1, sequence: wait.sequence, held_by })
    }

    /// The current outcome of a claim, and its command.
    pub(super) fn standing(&self, lock: Option<&LockKey>, claim: Claim) -> Option<(&Command, Outcome)> {
        let again =
            |hold: &&Hold| later(hold).any(|(number, _)| Some(claim) == request_of(hold.ask.claim.session(), *number));
        if let Some(hold) = self.holds.iter().find(again) {
            let same = |(number, _): &&(u64, Command)| Some(claim) == request_of(hold.ask.claim.session(), *number);
            let (_, payload) = later(hold).find(same).expect("just found");
            return Some((payload, Outcome::Granted(grant_of(hold, 0))));
        }
        let same = |ask: &Ask| ask.claim == claim && lock.is_none_or(|lock| ask.lock == *lock);
        let mut parts: Vec<_> = self.holds.iter().filter(|hold| same(&hold.ask) && hold.ask.set).collect();
        if let Some(part) = parts.first() {
            let payload = &part.ask.payload;
            parts.sort_by_key(|part| part.ask.lock.clone());
            let grant = |part: &&Hold| {
                let waited_ms = part.since.0 - part.ask.since.0;
                (part.ask.lock.name.clone(), grant_of(part, waited_ms))
            };
            return Some((payload, Outcome::GrantedSet(parts.iter().map(grant).collect())));
        }
        if let Some(hold) = self.holds.iter().find(|hold| same(&hold.ask)) {
            let waited_ms = hold.since.0 - hold.ask.since.0;
            return Some((&hold.ask.payload, Outcome::Granted(grant_of(hold, waited_ms))));
        }
        let mut waits: Vec<_> = self.waits.iter().filter(|wait| same(&wait.ask)).collect();
        waits.sort_by_key(|wait| wait.ask.lock.clone());
        let lacks = |wait: &&&Wait| {
            let clear = self.clear_ahead(&wait.ask, wait.sequence);
            wait.ask.set && !(clear && self.fits(&wait.ask.lock, wait.ask.mode))
        };
        let wait = waits.iter().find(lacks).or(waits.first());
        wait.map(|wait| (&wait.ask.payload, self.queued(wait)))
    }
}
