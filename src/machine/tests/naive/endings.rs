//! Renewals, and everything that ends a hold, wait or session.

use super::*;

impl Naive {
    /// Applies a renewal. It is in time if it was received by the deadline and no earlier entry had passed the
    /// deadline.
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
                if let Some(refused) = self.hold_lease_bounds(*lease_ms) {
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
                        let shared = hold.lease_end.filter(|_| !hold.again.is_empty());
                        let deadline = LogTime(now.0 + lease_ms).max(shared.unwrap_or_default());
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
        loop {
            let live = self.sessions.iter().enumerate().filter(|(_, session)| session.ended.is_none());
            let sessions = live.map(|(at, session)| (session.deadline, 0, at));
            let leases = self.holds.iter().enumerate().filter_map(|(at, hold)| Some((hold.lease_end?, 1, at)));
            let waits = self.waits.iter().enumerate().filter_map(|(at, wait)| Some((wait.end?, 2, at)));
            let lost = self.lost.iter().enumerate().map(|(at, lost)| (lost.until, 3, at));
            let longest = self.holds.iter().enumerate().filter_map(|(at, hold)| Some((hold.ends?, 4, at)));
            let next = sessions.chain(leases).chain(waits).chain(lost).chain(longest).min();
            match next.filter(|(end, ..)| *end < now) {
                None => break,
                Some((_, 0, at)) => self.end_session(self.sessions[at].id, EndReason::Expired),
                Some((_, 1, at)) => self.end_hold(at, EndReason::Expired, None),
                Some((_, 2, at)) => {
                    let answer = self.ran_out(at);
                    self.end_wait(at, answer);
                }
                Some((_, 3, at)) => {
                    let lock = self.lost.remove(at).ask.lock;
                    self.changes(&lock, None);
                }
                Some((_, _, at)) => self.end_hold(at, EndReason::TimeOver, None),
            }
        }
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
            self.keep_closed(at, reason);
            self.holds.remove(at);
        }
        self.forget_limits();
    }

    /// Keeps closed what a hold gives up by continuing in this mode.
    pub(super) fn keep_rest_closed(&mut self, at: usize, mode: Mode) {
        let before = self.holds[at].ask.mode;
        if let Some(rest) = rest_of(before, mode) {
            self.holds[at].ask.mode = rest;
            self.keep_closed(at, EndReason::Released);
            self.holds[at].ask.mode = before;
        }
    }

    /// Keeps closed what an ended hold held: for the lock-delay after a loss, and for the at-least time after any end.
    /// The later of both counts.
    pub(super) fn keep_closed(&mut self, at: usize, reason: EndReason) {
        let (now, hold) = (self.now, &self.holds[at]);
        let (delay_ms, ends, closed_until) = (hold.ask.extras.delay_ms, hold.ends, hold.closed_until);
        let involuntary = reason == EndReason::Expired || reason == EndReason::Lost;
        let delay = (0 < delay_ms && involuntary).then(|| LogTime(now.0 + delay_ms));
        let opens = reason == EndReason::Broken || reason == EndReason::HandedOver;
        let stays = closed_until.filter(|until| !opens && now <= *until);
        let Some(mut until) = delay.into_iter().chain(stays).max() else { return };
        let lost = delay.map(|delay| (hold.ask.mode, ends.into_iter().chain([delay]).min().expect("one at least")));
        let (mut ask, token, since) = (hold.ask.clone(), hold.token, hold.since);
        ask.extras.cached = false;
        if let Some(at) = self.lost.iter().position(|lost| lost.ask.lock == ask.lock && lost.token == token) {
            let returned = self.lost.remove(at);
            until = until.max(returned.until);
            ask.mode = match (ask.mode, returned.ask.mode) {
                (Mode::Permits(count), Mode::Permits(others)) => Mode::Permits(count + others),
                (_, Mode::Exclusive) => Mode::Exclusive,
                (mode, _) => mode,
            };
        }
        self.lost.push(Lost { ask, token, until, since, lost, ends, closed_until });
    }

    pub(super) fn end_hold(&mut self, at: usize, reason: EndReason, answer: Option<Outcome>) {
        let ask = self.holds[at].ask.clone();
        self.changes(&ask.lock, ask.claim.session());
        self.keep_closed(at, reason);
        let hold = self.holds.remove(at);
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

    /// Removes one request from a hold that was acquired several times.
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
            Claim::Lease(id) => {
                let until = LogTime(self.now.0 + TEN_MINUTES_MS);
                let take = self.takes.iter_mut().find(|take| take.id == id && take.lock == ask.lock);
                take.expect("a take that waits or holds is known").over = Some((answer, until));
            }
        }
        self.forget_limits();
    }
}
