//! Actions on locks by callers that need not hold them.

use super::*;

impl Naive {
    pub(super) fn manage(&mut self, lock: &LockKey, what: &Managing) -> Outcome {
        let at = |token: FencingToken| self.holds.iter().position(|hold| hold.ask.lock == *lock && hold.token == token);
        match what {
            Managing::SetLimit { limit } => self.set_limit(lock, *limit),
            Managing::RemoveLimit if self.is_lock(lock) => {
                Outcome::Refused(Refusal::KindMismatch { lock: lock.clone(), kind: Kind::Lock })
            }
            Managing::RemoveLimit => {
                if let Some((_, _, kept)) = self.limits.iter_mut().find(|(known, ..)| known == lock) {
                    *kept = false;
                }
                self.forget_limits();
                Outcome::Done
            }
            Managing::Ask { token, .. } => match at(*token) {
                Some(_) => Outcome::Done,
                None => self.not_held(lock, |_| false),
            },
            Managing::BreakHold { token, .. } => self.break_hold(lock, *token),
            Managing::HandOver { token, to } => self.hand_over(lock, *token, *to),
        }
    }

    pub(super) fn is_lock(&self, lock: &LockKey) -> bool {
        let holds = self.holds.iter().map(|hold| &hold.ask);
        let asks = holds.chain(self.waits.iter().map(|wait| &wait.ask)).chain(self.lost.iter().map(|lost| &lost.ask));
        asks.filter(|ask| ask.lock == *lock).any(|ask| !is_semaphore(ask.mode))
    }

    pub(super) fn set_limit(&mut self, lock: &LockKey, limit: u32) -> Outcome {
        if self.is_lock(lock) {
            return Outcome::Refused(Refusal::KindMismatch { lock: lock.clone(), kind: Kind::Lock });
        }
        if !self.limits.contains(&(lock.clone(), limit, true)) {
            self.changes(lock, None);
        }
        let lowered = self.limit(lock).is_some_and(|old| limit < old);
        self.limits.retain(|(known, ..)| known != lock);
        self.limits.push((lock.clone(), limit, true));
        let wants = |wait: &Wait| match wait.ask.mode {
            Mode::Permits(count) if wait.ask.lock == *lock && limit < count => Some(count),
            _ => None,
        };
        while let Some((at, asked)) = self.waits.iter().enumerate().find_map(|(at, wait)| Some((at, wants(wait)?))) {
            self.end_wait(at, Outcome::Refused(Refusal::LimitExceeded { lock: lock.clone(), limit, asked }));
        }
        if lowered {
            let waits = self.waits.iter().filter(|wait| wait.ask.lock == *lock);
            self.suspects.extend(waits.filter_map(endless_wait));
        }
        Outcome::Done
    }

    pub(super) fn break_hold(&mut self, lock: &LockKey, token: FencingToken) -> Outcome {
        let held = self.holds.iter().position(|hold| hold.ask.lock == *lock && hold.token == token);
        let lost = self.lost.iter().position(|lost| lost.ask.lock == *lock && lost.token == token);
        let (holder, claim) = match (held, lost) {
            (Some(at), _) => (self.view(&self.holds[at]), self.holds[at].ask.claim),
            (None, Some(at)) => {
                let Lost { ask, token, until, since, .. } = &self.lost[at];
                let hold = Hold {
                    ask: ask.clone(),
                    token: *token,
                    since: *since,
                    lease_end: None,
                    ends: None,
                    closed_until: None,
                    again: vec![],
                    upgrade: None,
                    recalled: false,
                };
                (HolderView { deadline: Some(*until), ..self.view(&hold) }, ask.claim)
            }
            (None, None) => return self.not_held(lock, |_| false),
        };
        let last_seen = claim.session().and_then(|id| self.alive(id)).map(|session| session.seen);
        let waits = self.waits.iter().filter(|wait| wait.ask.lock == *lock && wait.upgrades != Some(token));
        let first = waits.min_by_key(|wait| wait.sequence).filter(|wait| {
            let parts = self.waits.iter().filter(|part| wait.ask.set && part.ask.claim == wait.ask.claim);
            let mut others = parts.filter(|part| part.ask.lock != *lock);
            others.all(|part| self.clear_ahead(&part.ask, part.sequence) && self.fits(&part.ask.lock, part.ask.mode))
        });
        let first = first.cloned();
        if let Some(at) = held {
            self.end_hold(at, EndReason::Broken, None);
        }
        if let Some(at) = lost {
            self.changes(lock, None);
            self.lost.remove(at);
        }
        let next = first.filter(|wait| match wait.upgrades {
            Some(own) => self.alone(lock, own),
            None => self.fits(lock, wait.ask.mode),
        });
        let next = next.map(|wait| WaiterView {
            place: 1,
            sequence: wait.sequence,
            session: wait.ask.claim.session(),
            owner: wait.ask.owner,
            mode: wait.ask.mode,
            metadata: wait.ask.metadata,
            since: wait.ask.since,
        });
        if lost.is_some() {
            self.forget_limits();
        }
        Outcome::Broken(Box::new(BreakReport { done: true, holder, last_seen, next }))
    }

    pub(super) fn hand_over(&mut self, lock: &LockKey, from: FencingToken, to: SessionId) -> Outcome {
        let Some(session) = self.alive(to) else { return self.session_ended(to) };
        let (namespace, open) = (session.open.namespace.clone(), session.open.clone());
        let held = |hold: &Hold| hold.ask.lock == *lock && hold.token == from;
        let Some(at) = self.holds.iter().position(held) else { return self.not_held(lock, |_| false) };
        let refused = Outcome::Refused(Refusal::NotAccepted { lock: lock.clone(), session: to });
        if namespace != lock.namespace {
            return refused;
        }
        let wants = |wait: &Wait| {
            wait.ask.lock == *lock && wait.ask.claim.session() == Some(to) && wait.upgrades.is_none() && !wait.ask.set
        };
        let waits = self.waits.iter().enumerate().filter(|(_, wait)| wants(wait));
        let next = waits.min_by_key(|(_, wait)| wait.sequence).map(|(at, _)| at);
        let ask = match next {
            Some(next) => {
                let mode = self.waits[next].ask.mode;
                let old = self.holds.remove(at);
                // What a downgrade of the hold closed is not closed to the successor, which closes it again.
                let own = |lost: &Lost| lost.ask.lock == *lock && lost.token == from && !is_semaphore(lost.ask.mode);
                let own = self.lost.iter().position(own).map(|at| self.lost.remove(at));
                let fits = self.fits(lock, mode);
                self.holds.insert(at, old);
                self.lost.extend(own.filter(|_| !fits || mode != Mode::Exclusive));
                if !fits {
                    return self.held_or_closed(lock, mode, self.holder(lock, held));
                }
                self.wait_changes(next);
                self.waits.remove(next).ask
            }
            None if !open.accepts_hand_over => return refused,
            None => {
                let number = (1 << 63) | (self.tokens + 1);
                Ask {
                    claim: Claim::Request(RequestId { session: to, number }),
                    owner: None,
                    metadata: open.metadata.clone(),
                    since: self.now,
                    handle: None,
                    lease_ms: None,
                    extras: Extras::default(),
                    set: false,
                    principal: Principal::default(),
                    ..self.holds[at].ask.clone()
                }
            }
        };
        let closed_until = self.holds[at].closed_until;
        self.keep_rest_closed(at, ask.mode);
        let kept = self.limits.iter().find(|(known, ..)| known == lock).cloned();
        self.end_hold(at, EndReason::HandedOver, None);
        if let Some(kept) = kept.filter(|_| self.limit(lock).is_none()) {
            self.limits.push(kept);
        }
        let Claim::Request(to) = ask.claim else { panic!("only sessions are handed anything") };
        let token = self.grant(ask).token;
        let next = self.holds.last_mut().expect("just granted");
        next.closed_until = next.closed_until.max(closed_until);
        // What the hold of a lock gave up is not closed to the successor, which keeps it under its own token.
        let own = |lost: &&mut Lost| lost.ask.lock == *lock && lost.token == from && !is_semaphore(lost.ask.mode);
        self.lost.iter_mut().filter(own).for_each(|lost| lost.token = token);
        Outcome::HandedOver { token, to }
    }
}
