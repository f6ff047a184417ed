//! Changes of holds by their sessions.

use super::*;

impl Naive {
    pub(super) fn alter(&mut self, principal: &Principal, alter: &Alter, payload: Command) -> Outcome {
        if let Some(outcome) = self.seen(alter.request, alter.answered_below, &payload) {
            return outcome;
        }
        let namespace = self.alive(alter.request.session).expect("seen").open.namespace.clone();
        let lock = LockKey { namespace, name: alter.name.clone() };
        let outcome = match &alter.what {
            Alteration::Downgrade { token } => self.downgrade(alter.request.session, &lock, *token),
            Alteration::Upgrade { token, patience } => self.upgrade(alter, &lock, *token, *patience, &payload),
            Alteration::Resume { token, handle, lease_ms } => {
                self.resume(principal, alter, &lock, *token, handle, *lease_ms, &payload)
            }
            Alteration::SetValue { token, value } => {
                let mine = |hold: &Hold| hold.ask.claim.session() == Some(alter.request.session);
                let found = |hold: &&mut Hold| hold.ask.lock == lock && hold.token == *token && mine(hold);
                match self.holds.iter_mut().find(found) {
                    Some(hold) => {
                        hold.ask.extras.value = value.clone();
                        (hold.ask.extras.cached, hold.recalled) = (false, false);
                        Outcome::Done
                    }
                    None => self.not_held(&lock, mine),
                }
            }
            Alteration::ReturnPermits { token, count } => {
                self.return_permits(alter.request.session, &lock, *token, *count)
            }
        };
        if !matches!(outcome, Outcome::Granted(_) | Outcome::Queued(_)) {
            self.remember(alter.request, Some(payload), outcome.clone());
        }
        outcome
    }

    /// The index of the session's own hold, if its mode may change.
    pub(super) fn changeable(&self, id: SessionId, lock: &LockKey, token: FencingToken) -> Result<usize, Outcome> {
        let mine = |hold: &Hold| hold.ask.claim.session() == Some(id);
        let found = |hold: &Hold| hold.ask.lock == *lock && hold.token == token && mine(hold);
        let at = self.holds.iter().position(found).ok_or_else(|| self.not_held(lock, mine))?;
        let hold = &self.holds[at];
        let depth = 1 + hold.again.len() as u32;
        let lock = lock.clone();
        if is_semaphore(hold.ask.mode) {
            return Err(Outcome::Refused(Refusal::KindMismatch { lock, kind: Kind::Semaphore }));
        }
        if 1 < depth { Err(Outcome::Refused(Refusal::Reentered { lock, depth })) } else { Ok(at) }
    }

    pub(super) fn downgrade(&mut self, id: SessionId, lock: &LockKey, token: FencingToken) -> Outcome {
        let at = match self.changeable(id, lock, token) {
            Ok(at) => at,
            Err(refused) => return refused,
        };
        if self.holds[at].ask.mode == Mode::Exclusive {
            self.changes(lock, Some(id));
        }
        if self.holds[at].ask.mode == Mode::Exclusive {
            (self.holds[at].ask.extras.cached, self.holds[at].recalled) = (false, false);
            self.keep_rest_closed(at, Mode::Shared);
        }
        self.holds[at].ask.mode = Mode::Shared;
        if let Some((number, payload)) = self.holds[at].upgrade.take() {
            let ended = Outcome::HoldEnded { reason: EndReason::Released };
            self.remember(RequestId { session: id, number }, Some(payload), ended);
        }
        Outcome::Downgraded
    }

    pub(super) fn return_permits(
        &mut self,
        id: SessionId,
        lock: &LockKey,
        token: FencingToken,
        returned: u32,
    ) -> Outcome {
        let mine = |hold: &Hold| hold.ask.claim.session() == Some(id);
        let found = |hold: &Hold| hold.ask.lock == *lock && hold.token == token && mine(hold);
        let Some(at) = self.holds.iter().position(found) else { return self.not_held(lock, mine) };
        let (hold, lock) = (&mut self.holds[at], lock.clone());
        let Mode::Permits(count) = &mut hold.ask.mode else {
            return Outcome::Refused(Refusal::KindMismatch { lock, kind: Kind::Lock });
        };
        if !hold.again.is_empty() {
            return Outcome::Refused(Refusal::Reentered { lock, depth: 1 + hold.again.len() as u32 });
        }
        if *count < returned {
            return Outcome::Refused(Refusal::PermitsNotHeld { lock, held: *count, asked: returned });
        }
        let left = *count - returned;
        if returned != 0 {
            self.changes(&lock, None);
        }
        if left == 0 {
            self.end_hold(at, EndReason::Released, None);
        } else if returned != 0 {
            self.keep_rest_closed(at, Mode::Permits(left));
            self.holds[at].ask.mode = Mode::Permits(left);
        }
        Outcome::Released { left }
    }

    pub(super) fn upgrade(
        &mut self,
        alter: &Alter,
        lock: &LockKey,
        token: FencingToken,
        patience: Patience,
        payload: &Command,
    ) -> Outcome {
        let session = alter.request.session;
        let at = match self.changeable(session, lock, token) {
            Ok(at) => at,
            Err(refused) => return refused,
        };
        if self.holds[at].ask.mode == Mode::Exclusive {
            let refusal = Refusal::AlreadyHeld { lock: lock.clone(), session, token: Some(token) };
            return Outcome::Refused(refusal);
        }
        let claim = Claim::Request(alter.request);
        let (since, payload) = (self.now, payload.clone());
        let mut ask = Ask {
            claim,
            mode: Mode::Exclusive,
            since,
            payload,
            handle: None,
            set: false,
            ..self.holds[at].ask.clone()
        };
        ask.extras = Extras::default();
        let upgrader = self.waits.iter().find(|wait| wait.ask.lock == *lock && wait.upgrades.is_some());
        let first = upgrader.and_then(|wait| wait.upgrades);
        let alone = first.is_none() && self.alone(lock, token);
        if alone {
            return Outcome::Granted(self.make_exclusive(&ask, token));
        }
        if first.is_some() || patience == Patience::Try {
            let named = |hold: &Hold| first.map_or(hold.token != token, |first| hold.token == first);
            return self.held_or_closed(lock, Mode::Exclusive, self.holder(lock, |hold| !named(hold)));
        }
        let end = if let Patience::For { ms } = patience { Some(LogTime(self.now.0 + ms)) } else { None };
        let of_lease = self.holds[at].lease_end.is_some() || self.holds[at].ends.is_some();
        self.waits.push(Wait { ask, sequence: 0, end, upgrades: Some(token), of_lease, tries: false });
        if let Some(refused) = self.take_back() {
            return refused;
        }
        self.queued(self.waits.last().expect("just pushed"))
    }

    #[allow(clippy::too_many_arguments, reason = "said as simply as it can be")]
    pub(super) fn resume(
        &mut self,
        principal: &Principal,
        alter: &Alter,
        lock: &LockKey,
        token: FencingToken,
        handle: &Handle,
        lease_ms: Option<u64>,
        payload: &Command,
    ) -> Outcome {
        if let Some(refused) = lease_ms.and_then(|lease_ms| self.lease_bounds(lease_ms)) {
            return refused;
        }
        let now = self.now;
        let lasts = |lost: &Lost| lost.lost.is_some_and(|(_, until)| now <= until);
        let found = |lost: &Lost| lost.ask.lock == *lock && lost.token == token && lasts(lost);
        let Some(at) = self.lost.iter().position(found) else {
            return self.not_held(lock, |hold| hold.ask.claim.session() == Some(alter.request.session));
        };
        let loser = self.lost[at].ask.claim.session();
        if !self.sessions.iter().any(|session| Some(session.id) == loser && session.open.handle == *handle) {
            return Outcome::Refused(Refusal::WrongHandle);
        }
        self.changes(lock, None);
        let Lost { ask, lost, ends, closed_until, .. } = self.lost.remove(at);
        let (claim, principal, payload) = (Claim::Request(alter.request), principal.clone(), payload.clone());
        let (mode, _) = lost.expect("just found");
        let rest = rest_of(ask.mode, mode).zip(closed_until.filter(|until| now <= *until));
        let ask = Ask { claim, principal, mode, since: now, payload, lease_ms, set: false, ..ask };
        let token = self.grant(ask.clone()).token;
        let hold = self.holds.last_mut().expect("just granted");
        (hold.ends, hold.closed_until) = (ends, closed_until);
        let grant = grant_of(hold, 0);
        if let Some((mode, until)) = rest {
            let ask = Ask { mode, ..ask };
            self.lost.push(Lost { ask, token, until, since: now, lost: None, ends, closed_until });
        }
        Outcome::Granted(grant)
    }
}
