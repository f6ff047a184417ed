//! Commands that open and attach sessions.

use super::*;

impl Naive {
    pub(super) fn bounds(&self) -> (u64, u64) {
        let founded = self.settings.map_or((1, TEN_MINUTES_MS), |settings| (settings.ttl_ms_min, settings.ttl_ms_max));
        (founded.0, self.ttl_max.filter(|_| self.settings.is_some()).unwrap_or(founded.1))
    }

    pub(super) fn change_ttl_max(&mut self, value: u64) -> Outcome {
        let (field, low, high) = (DurationField::TtlMax, self.bounds().0, 24 * 60 * 60 * 1000);
        if value < low || high < value {
            let advice = BoundAdvice::RestoresWait;
            return Outcome::Refused(Refusal::OutOfBounds { field, low, high, value, advice });
        }
        self.ttl_max_ever = self.ttl_max_ever.max(self.bounds().1).max(value);
        self.ttl_max = Some(value);
        Outcome::Done
    }

    pub(super) fn end_by_an_operator(&mut self, end: &EndSession) -> Outcome {
        match self.alive(end.session) {
            Some(session) if session.open.namespace == end.namespace => session.why = Some(end.why.clone()),
            _ => return self.session_ended(end.session),
        }
        let holds = self.holds.iter().filter(|hold| hold.ask.claim.session() == Some(end.session));
        let broken: Vec<_> = holds.map(|hold| (hold.ask.lock.clone(), hold.token)).collect();
        self.end_session(end.session, EndReason::Broken);
        self.lost.retain(|lost| !broken.contains(&(lost.ask.lock.clone(), lost.token)));
        self.forget_limits();
        Outcome::Closed
    }

    pub(super) fn lease_bounds(&self, value: u64) -> Option<Outcome> {
        let (field, low, high) = (DurationField::Lease, 1, self.bounds().1);
        let advice = BoundAdvice::HoldASession;
        let refusal = Refusal::OutOfBounds { field, low, high, value, advice };
        (value < low || high < value).then_some(Outcome::Refused(refusal))
    }

    /// A hold keeps the length of its lease when the longest TTL becomes less.
    pub(super) fn hold_lease_bounds(&self, value: u64) -> Option<Outcome> {
        if (1..=self.ttl_max_ever).contains(&value) { None } else { self.lease_bounds(value) }
    }

    pub(super) fn open(&mut self, open: &OpenSession) -> Outcome {
        let same = |known: &&Presence| known.open.handle == open.handle && known.open.namespace == open.namespace;
        if let Some(known) = self.sessions.iter().find(same) {
            return match known.ended {
                Some((reason, _)) => Outcome::Refused(Refusal::Tombstoned { reason }),
                None if known.open.instance != open.instance => {
                    Outcome::Refused(Refusal::AlreadyOpen { session: known.id })
                }
                None => Outcome::Opened { session: known.id, ttl_ms: known.open.ttl_ms, deadline: known.deadline },
            };
        }
        let ((low, high), ttl) = (self.bounds(), open.ttl_ms);
        if ttl < low || high < ttl {
            let advice = if ttl < low { BoundAdvice::RaiseToFloor } else { BoundAdvice::HoldASession };
            return Outcome::Refused(Refusal::OutOfBounds { field: DurationField::Ttl, low, high, value: ttl, advice });
        }
        let low = 1.max(low / 3);
        if let Some(value) = open.disconnect_grace_ms.filter(|grace| *grace < low || ttl < *grace) {
            let (field, advice) = (DurationField::DisconnectGrace, BoundAdvice::RaiseToFloor);
            return Outcome::Refused(Refusal::OutOfBounds { field, low, high: ttl, value, advice });
        }
        self.opened += 1;
        let id = SessionId::new(0, self.opened);
        let deadline = LogTime(self.now.0 + ttl);
        let (attachment, attempt, floor) = (0, 0, 0);
        let open = open.clone();
        let (answers, ended, why, seen) = (vec![], None, None, self.now);
        self.sessions.push(Presence { id, open, deadline, attachment, attempt, floor, answers, ended, why, seen });
        Outcome::Opened { session: id, ttl_ms: ttl, deadline }
    }

    pub(super) fn attach(&mut self, attach: &Attach) -> Outcome {
        let now = self.now;
        let Some(session) = self.alive(attach.session) else { return self.session_ended(attach.session) };
        if session.open.handle != attach.handle {
            return Outcome::Refused(Refusal::WrongHandle);
        }
        if session.open.namespace != attach.namespace {
            let (session, namespace, asked) = (session.id, session.open.namespace.clone(), attach.namespace.clone());
            return Outcome::Refused(Refusal::OtherNamespace { session, namespace, asked });
        }
        if attach.attempt <= session.attempt {
            return Outcome::Refused(Refusal::StaleAttempt { newest: session.attempt });
        }
        session.attempt = attach.attempt;
        session.attachment += 1;
        session.deadline = LogTime(now.0 + session.open.ttl_ms);
        session.seen = now;
        Outcome::Attached { attachment: Attachment(session.attachment), deadline: session.deadline }
    }
}
