//! Requests of sessions for locks.

use super::*;

impl Naive {
    /// The answer to a request that was seen before, or is too old to be executed.
    pub(super) fn seen(&mut self, request: RequestId, below: u64, payload: &Command) -> Option<Outcome> {
        if self.alive(request.session).is_none() {
            return Some(self.session_ended(request.session));
        }
        let session = self.alive(request.session).expect("just seen");
        session.floor = session.floor.max(below);
        let floor = session.floor;
        session.answers.retain(|(number, _, _)| floor <= *number);
        let number = request.number;
        let reused = Outcome::Refused(Refusal::RequestReused { claim: Claim::Request(request) });
        let answer = session.answers.iter().find(|(known, _, _)| *known == number).cloned();
        if let Some((asked, outcome)) = self.standing(None, Claim::Request(request)) {
            return Some(if asked == payload { outcome } else { reused });
        }
        match answer {
            Some((_, known, outcome)) if known.is_none() || known.as_ref() == Some(payload) => Some(outcome),
            Some(_) => Some(reused),
            None if number < floor => Some(Outcome::Refused(Refusal::TooOld { number, floor })),
            None => None,
        }
    }

    pub(super) fn acquire(&mut self, principal: &Principal, acquire: &Acquire, payload: Command) -> Outcome {
        if let Some(outcome) = self.seen(acquire.request, acquire.answered_below, &payload) {
            return outcome;
        }
        let namespace = self.alive(acquire.request.session).expect("seen").open.namespace.clone();
        let (name, access) = acquire.locks.only().expect("one lock");
        let ask = Ask {
            lock: LockKey { namespace, name: name.clone() },
            claim: Claim::Request(acquire.request),
            owner: acquire.owner.clone(),
            mode: access.mode,
            limit: access.limit,
            metadata: acquire.metadata.clone(),
            principal: principal.clone(),
            payload: payload.clone(),
            since: self.now,
            handle: None,
            lease_ms: acquire.lease_ms,
            extras: Extras { cached: acquire.is_cached(), ..acquire.choices().clone() },
            set: false,
        };
        let bounds = ask.lease_ms.and_then(|lease_ms| self.lease_bounds(lease_ms));
        let outcome = match bounds.map_or_else(|| self.same_owner(&ask), Err) {
            Err(refused) => refused,
            Ok(Some(at)) => {
                let hold = &mut self.holds[at];
                hold.again.push((acquire.request.number, payload.clone()));
                Outcome::Granted(grant_of(hold, 0))
            }
            Ok(None) => self.admit(ask, acquire.patience),
        };
        if matches!(outcome, Outcome::Refused(_)) {
            self.remember(acquire.request, Some(payload), outcome.clone());
        }
        outcome
    }

    /// The hold that is acquired again, or a refusal. `None` if the owner does not hold the lock.
    pub(super) fn same_owner(&self, ask: &Ask) -> Result<Option<usize>, Outcome> {
        let session = ask.claim.session().expect("a session's");
        let same = |other: &Ask| {
            other.lock == ask.lock
                && ask.owner.is_some()
                && other.owner == ask.owner
                && other.claim.session() == Some(session)
        };
        if ask.extras.reentry == Reentry::Wait {
            return Ok(None);
        }
        let lock = ask.lock.clone();
        let Some(at) = self.holds.iter().position(|hold| same(&hold.ask)) else {
            let waits = self.waits.iter().any(|wait| same(&wait.ask));
            let refusal = Refusal::AlreadyHeld { lock, session, token: None };
            return if waits { Err(Outcome::Refused(refusal)) } else { Ok(None) };
        };
        let hold = &self.holds[at];
        if ask.extras.reentry == Reentry::Count {
            if let Some(asked) = ask.limit
                && let Some(limit) = self.limit(&lock).filter(|limit| *limit != asked)
            {
                return Err(Outcome::Refused(Refusal::LimitMismatch { lock, limit, asked }));
            }
            let covered = match (hold.ask.mode, ask.mode) {
                (Mode::Permits(held), Mode::Permits(count)) => 0 < count && count <= held,
                (Mode::Exclusive, asked) => !is_semaphore(asked),
                (held, asked) => held == asked,
            };
            let upgrades = self.waits.iter().any(|wait| wait.ask.lock == lock && wait.upgrades == Some(hold.token));
            if covered && !upgrades {
                return Ok(Some(at));
            }
        }
        Err(Outcome::Refused(Refusal::AlreadyHeld { lock, session, token: Some(hold.token) }))
    }

    /// Grants, queues or refuses a new request.
    pub(super) fn admit(&mut self, ask: Ask, patience: Patience) -> Outcome {
        if let Err(refused) = self.judge(&ask, patience) {
            return refused;
        }
        if self.clear_ahead(&ask, u64::MAX) && self.fits(&ask.lock, ask.mode) {
            return Outcome::Granted(self.grant(ask));
        }
        self.sequences += 1;
        self.wait(ask, patience);
        if let Some(refused) = self.take_back() {
            return refused;
        }
        self.queued(self.waits.last().expect("just pushed"))
    }

    /// Refuses a request that the lock can never grant, and a try that would have to wait. A new semaphore gets its
    /// limit.
    pub(super) fn judge(&mut self, ask: &Ask, patience: Patience) -> Result<(), Outcome> {
        let lock = ask.lock.clone();
        let held = self.holds.iter().find(|hold| hold.ask.lock == lock).map(|hold| hold.ask.mode);
        let lost = self.lost.iter().find(|lost| lost.ask.lock == lock).map(|lost| lost.ask.mode);
        let held = held.or(lost);
        let user = held.or(self.waits.iter().find(|wait| wait.ask.lock == lock).map(|wait| wait.ask.mode));
        let in_use = user.map(is_semaphore).or(self.limit(&lock).map(|_| true));
        if let Some(semaphore) = in_use.filter(|semaphore| *semaphore != is_semaphore(ask.mode)) {
            let kind = if semaphore { Kind::Semaphore } else { Kind::Lock };
            return Err(Outcome::Refused(Refusal::KindMismatch { lock, kind }));
        }
        if let (Mode::Permits(count), asked) = (ask.mode, ask.limit) {
            let Some(limit) = self.limit(&lock).or(asked) else {
                return Err(Outcome::Refused(Refusal::LimitUnknown { lock }));
            };
            if let Some(asked) = asked.filter(|asked| *asked != limit) {
                return Err(Outcome::Refused(Refusal::LimitMismatch { lock, limit, asked }));
            }
            if count == 0 || limit < count {
                return Err(Outcome::Refused(Refusal::LimitExceeded { lock, limit, asked: count }));
            }
            if self.limit(&lock).is_none() {
                self.limits.push((lock.clone(), limit, false));
            }
        }
        let free = self.clear_ahead(ask, u64::MAX) && self.fits(&lock, ask.mode);
        if patience == Patience::Try && !free && !self.is_first_behind_cached(&lock) {
            return Err(self.held_or_closed(&lock, ask.mode, self.holder(&lock, |_| false)));
        }
        Ok(())
    }

    pub(super) fn wait(&mut self, ask: Ask, patience: Patience) {
        let week = 7 * 24 * 3_600_000;
        let end = match patience {
            Patience::For { ms } => Some(LogTime(self.now.0 + ms.min(week))),
            Patience::Try => Some(LogTime(self.now.0 + 250)),
            Patience::Session => ask.handle.is_some().then_some(LogTime(self.now.0 + week)),
        };
        let (sequence, tries) = (self.sequences, patience == Patience::Try);
        self.waits.push(Wait { ask, sequence, end, upgrades: None, of_lease: false, tries });
    }

    pub(super) fn acquire_set(&mut self, principal: &Principal, set: &Acquire, payload: Command) -> Outcome {
        if let Some(outcome) = self.seen(set.request, set.answered_below, &payload) {
            return outcome;
        }
        let namespace = self.alive(set.request.session).expect("seen").open.namespace.clone();
        let choices = set.extras.as_deref().cloned().unwrap_or_default();
        let ask = |(name, access): (&LockName, &Access)| Ask {
            lock: LockKey { namespace: namespace.clone(), name: name.clone() },
            claim: Claim::Request(set.request),
            owner: set.owner.clone(),
            mode: access.mode,
            limit: access.limit,
            metadata: set.metadata.clone(),
            principal: principal.clone(),
            payload: payload.clone(),
            since: self.now,
            handle: None,
            lease_ms: set.lease_ms,
            extras: Extras { reentry: Reentry::Refuse, fairness: Fairness::Fair, cached: false, ..choices.clone() },
            set: true,
        };
        let asks: Vec<Ask> = set.locks.iter().map(ask).collect();
        if let Err(refused) = self.judge_set(&asks, set.patience) {
            self.forget_limits();
            self.remember(set.request, Some(payload), refused.clone());
            return refused;
        }
        let free = |ask: &Ask| self.clear_ahead(ask, u64::MAX) && self.fits(&ask.lock, ask.mode);
        if asks.iter().all(free) {
            let grants = asks.into_iter().map(|ask| (ask.lock.name.clone(), self.grant(ask)));
            return Outcome::GrantedSet(grants.collect());
        }
        self.sequences += 1;
        for ask in asks {
            self.wait(ask, set.patience);
        }
        if let Some(refused) = self.take_back() {
            self.remember(set.request, Some(payload), refused.clone());
            return refused;
        }
        self.standing(None, Claim::Request(set.request)).expect("just queued").1
    }

    pub(super) fn judge_set(&mut self, asks: &[Ask], patience: Patience) -> Result<(), Outcome> {
        if let Some(refused) = asks[0].lease_ms.and_then(|lease_ms| self.lease_bounds(lease_ms)) {
            return Err(refused);
        }
        for ask in asks {
            self.same_owner(ask)?;
        }
        asks.iter().try_for_each(|ask| self.judge(ask, patience))
    }

    pub(super) fn cancel(&mut self, request: RequestId) -> Outcome {
        let Some(session) = self.alive(request.session) else { return self.session_ended(request.session) };
        let answered = session.answers.iter().any(|(number, _, _)| *number == request.number);
        let claim = Claim::Request(request);
        if let Some(at) = self.waits.iter().position(|wait| wait.ask.claim == claim) {
            self.end_wait(at, Outcome::Withdrawn);
        } else if self.holds.iter().any(|hold| hold.ask.claim == claim && hold.ask.set) {
            let mut names: Vec<_> = self.holds.iter().filter(|hold| hold.ask.claim == claim).collect();
            names.sort_by_key(|hold| hold.ask.lock.clone());
            let names: Vec<LockKey> = names.iter().map(|hold| hold.ask.lock.clone()).collect();
            for name in names {
                let part = |hold: &Hold| hold.ask.claim == claim && hold.ask.lock == name;
                let at = self.holds.iter().position(part).expect("just seen");
                if self.holds[at].again.is_empty() {
                    self.end_hold(at, EndReason::Cancelled, Some(Outcome::Withdrawn));
                } else {
                    self.leave_hold(at, request.number, Outcome::Withdrawn);
                }
            }
        } else if let Some(at) = self.holds.iter().position(|hold| holds(hold, request)) {
            let hold = &self.holds[at];
            if hold.upgrade.as_ref().is_some_and(|(number, _)| *number == request.number) {
                return Outcome::Granted(grant_of(hold, 0));
            }
            if self.holds[at].again.is_empty() {
                self.end_hold(at, EndReason::Cancelled, Some(Outcome::Withdrawn));
            } else {
                self.leave_hold(at, request.number, Outcome::Withdrawn);
            }
        } else if !answered {
            self.remember(request, None, Outcome::Withdrawn);
        }
        Outcome::Withdrawn
    }

    pub(super) fn release(&mut self, release: &Release, payload: Command) -> Outcome {
        if let Some(outcome) = self.seen(release.request, release.answered_below, &payload) {
            return outcome;
        }
        let id = release.request.session;
        let namespace = self.alive(id).expect("seen").open.namespace.clone();
        let lock = LockKey { namespace, name: release.name.clone() };
        let mine = |hold: &Hold| hold.ask.claim.session() == Some(id);
        let found = |hold: &Hold| hold.ask.lock == lock && hold.token == release.token && mine(hold);
        let outcome = match self.holds.iter().position(found) {
            Some(at) => {
                let hold = &self.holds[at];
                let Claim::Request(first) = hold.ask.claim else { unreachable!("held by a session") };
                let numbers: Vec<u64> =
                    std::iter::once(first.number).chain(hold.again.iter().map(|(number, _)| *number)).collect();
                let newest = numbers[numbers.len() - 1];
                let number = if release.acquire == 0 { newest } else { release.acquire };
                let left = match (numbers.contains(&number), numbers.len()) {
                    (false, depth) => depth as u32,
                    (true, 1) => {
                        self.end_hold(at, EndReason::Released, None);
                        0
                    }
                    (true, _) => self.leave_hold(at, number, Outcome::HoldEnded { reason: EndReason::Released }),
                };
                Outcome::Released { left }
            }
            None => self.not_held(&lock, mine),
        };
        self.remember(release.request, Some(payload), outcome.clone());
        outcome
    }
}
