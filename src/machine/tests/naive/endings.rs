//! Renewals, and what ends without them or otherwise.

use super::*;

impl Naive {
    /// In time is what was received by the deadline, unless an earlier entry had passed it.
    pub(super) fn renew(&mut self, renewal: &Renewal, previous: LogTime) -> Outcome {
        let (now, receipt, attempt) = (self.now, renewal.receipt, renewal.attempt);
        match &renewal.target {
            RenewalTarget::Session(id) => {
                let Some(session) = self.alive(*id) else { return self.session_ended(*id) };
                if session.deadline < receipt || session.deadline < previous {
                    return self.session_ended(*id);
                }
                session.deadline = LogTime(now.0 + session.open.ttl_ms);
                session.seen = now;
                Outcome::Renewed { deadline: session.deadline, attempt, token: None }
            }
            RenewalTarget::Hold { lock, session: id, token, lease_ms } => {
                if let Some(refused) = self.lease_bounds(*lease_ms) {
                    return refused;
                }
                let in_time = |end: LogTime| receipt <= end && previous <= end;
                if !self.alive(*id).is_some_and(|session| in_time(session.deadline)) {
                    return self.session_ended(*id);
                }
                let mine = |hold: &Hold| hold.ask.lock == *lock && hold.ask.claim.session() == Some(*id);
                let found = self.holds.iter_mut().find(|hold| mine(hold) && hold.token == *token);
                match found.filter(|hold| hold.lease_end.is_some_and(in_time)) {
                    Some(hold) => {
                        let deadline = LogTime(now.0 + lease_ms);
                        hold.lease_end = Some(deadline);
                        Outcome::Renewed { deadline, attempt, token: Some(*token) }
                    }
                    None => self.not_held(lock, mine),
                }
            }
            RenewalTarget::Lease { lock, handle, lease_ms } => {
                if let Some(refused) = self.lease_bounds(*lease_ms) {
                    return refused;
                }
                let mine = |hold: &&mut Hold| hold.ask.lock == *lock && proves(hold, handle);
                if let Some(hold) = self.holds.iter_mut().find(mine) {
                    let end = hold.lease_end.expect("a lease has an end");
                    if receipt <= end && previous <= end {
                        let deadline = LogTime(now.0 + lease_ms);
                        hold.lease_end = Some(deadline);
                        return Outcome::Renewed { deadline, attempt, token: Some(hold.token) };
                    }
                }
                self.not_held(lock, |hold| proves(hold, handle))
            }
        }
    }

    pub(super) fn end_what_is_due(&mut self) {
        let now = self.now;
        let due: Vec<_> =
            self.sessions.iter().filter(|s| s.ended.is_none() && s.deadline < now).map(|s| s.id).collect();
        for id in due {
            self.end_session(id, EndReason::Expired);
        }
        loop {
            let leases = self.holds.iter().enumerate().filter_map(|(at, hold)| Some((hold.lease_end?, at)));
            let waits = self.waits.iter().enumerate().filter_map(|(at, wait)| Some((wait.end?, at)));
            match (leases.min().filter(|(end, _)| *end < now), waits.min().filter(|(end, _)| *end < now)) {
                (Some((lease, at)), wait) if wait.is_none_or(|(wait, _)| lease <= wait) => {
                    self.end_hold(at, EndReason::Expired, None);
                }
                (_, Some((_, at))) => self.end_wait(at, Outcome::TimedOut),
                (_, None) => break,
            }
        }
        let over: Vec<LockKey> =
            self.lost.iter().filter(|lost| lost.until < now).map(|lost| lost.ask.lock.clone()).collect();
        over.iter().for_each(|lock| self.changes(lock, None));
        self.lost.retain(|lost| now <= lost.until);
        self.forget_limits();
        self.forget_processes();
        self.sessions.retain(|session| session.ended.is_none_or(|(_, until)| now <= until));
        self.takes.retain(|take| take.over.as_ref().is_none_or(|(_, until)| now <= *until));
    }

    pub(super) fn end_session(&mut self, id: SessionId, reason: EndReason) {
        let until = LogTime(self.now.0 + TEN_MINUTES_MS);
        let Some(session) = self.alive(id) else { return };
        session.ended = Some((reason, until));
        let asks = self.waits.iter().map(|wait| &wait.ask).chain(self.holds.iter().map(|hold| &hold.ask));
        let locks: Vec<LockKey> =
            asks.filter(|ask| ask.claim.session() == Some(id)).map(|ask| ask.lock.clone()).collect();
        locks.iter().for_each(|lock| self.changes(lock, Some(id)));
        self.waits.retain(|wait| wait.ask.claim.session() != Some(id));
        while let Some(at) = self.holds.iter().position(|hold| hold.ask.claim.session() == Some(id)) {
            let hold = self.holds.remove(at);
            self.keep_closed(&hold, reason);
        }
        self.forget_limits();
    }

    pub(super) fn keep_closed(&mut self, hold: &Hold, reason: EndReason) {
        let delay_ms = hold.ask.extras.delay_ms;
        if 0 < delay_ms && (reason == EndReason::Expired || reason == EndReason::Lost) {
            let until = LogTime(self.now.0 + delay_ms);
            self.lost.push(Lost { ask: hold.ask.clone(), token: hold.token, until, since: hold.since });
        }
    }

    pub(super) fn end_hold(&mut self, at: usize, reason: EndReason, answer: Option<Outcome>) {
        let ask = self.holds[at].ask.clone();
        self.changes(&ask.lock, ask.claim.session());
        let hold = self.holds.remove(at);
        self.keep_closed(&hold, reason);
        self.leave_document(&hold);
        let answer = answer.unwrap_or(Outcome::HoldEnded { reason });
        let upgrade = |wait: &Wait| wait.ask.lock == hold.ask.lock && wait.upgrades == Some(hold.token);
        if let Some(at) = self.waits.iter().position(upgrade) {
            self.end_wait(at, Outcome::HoldEnded { reason });
        }
        for (number, payload) in hold.again.into_iter().chain(hold.upgrade) {
            let session = hold.ask.claim.session().expect("only sessions enter again");
            self.remember(RequestId { session, number }, Some(payload), answer.clone());
        }
        self.conclude(&hold.ask, answer);
    }

    /// One request less holds it.
    pub(super) fn leave_hold(&mut self, at: usize, number: u64, answer: Outcome) -> u32 {
        let hold = &mut self.holds[at];
        let session = hold.ask.claim.session().expect("only sessions enter again");
        let payload = match hold.again.iter().position(|(known, _)| *known == number) {
            Some(found) => hold.again.remove(found).1,
            None => {
                let (next, payload) = hold.again.remove(0);
                hold.ask.claim = Claim::Request(RequestId { session, number: next });
                hold.ask.set = false;
                std::mem::replace(&mut hold.ask.payload, payload)
            }
        };
        let left = 1 + hold.again.len() as u32;
        let request = RequestId { session, number };
        if !self.holds.iter().any(|hold| hold.ask.claim == Claim::Request(request)) {
            self.remember(request, Some(payload), answer);
        }
        left
    }

    pub(super) fn end_wait(&mut self, at: usize, answer: Outcome) {
        self.wait_changes(at);
        let wait = self.waits.remove(at);
        self.waits.retain(|other| !wait.ask.set || other.ask.claim != wait.ask.claim);
        self.conclude(&wait.ask, answer);
    }

    pub(super) fn conclude(&mut self, ask: &Ask, answer: Outcome) {
        match ask.claim {
            Claim::Request(_) if ask.set && self.holds.iter().any(|hold| hold.ask.claim == ask.claim) => {}
            Claim::Request(request) => self.remember(request, Some(ask.payload.clone()), answer),
            Claim::Take(id) => {
                let until = LogTime(self.now.0 + TEN_MINUTES_MS);
                let take = self.takes.iter_mut().find(|take| take.id == id && take.lock == ask.lock);
                take.expect("who waits or holds is known").over = Some((answer, until));
            }
        }
        self.forget_limits();
    }
}
