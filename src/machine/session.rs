//! Sessions: open, attach, disconnect, close and end.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Machine;
use crate::faults::{self, Fault};
use crate::limits;
use crate::model::{
    Attach, Attachment, BoundAdvice, DurationField, EndReason, EndSession, EventKind, LogTime, Metadata, OpenSession,
    Outcome, Principal, QuotaKind, Reason, Refusal, RequestId, SessionClose, SessionId, Setting, Subject,
    WaitEndReason,
};
use crate::state::{ClaimState, DeadlineOf, RecordKey, Session, SessionRecord, Tombstone};

impl Machine {
    pub(super) fn open_session(&mut self, principal: &Principal, open: &OpenSession) -> Result<Outcome, Refusal> {
        if let Some(known) = self.known_handle(open)? {
            return Ok(known);
        }
        self.session_bounds(open)?;
        self.state.globals.sessions += 1;
        let id = SessionId::new(self.state.globals.epoch, self.state.globals.sessions);
        let now = self.state.globals.now;
        let deadline = now.after_ms(open.ttl_ms);
        let record = SessionRecord {
            namespace: open.namespace.clone(),
            handle: open.handle.clone(),
            instance: open.instance,
            principal: principal.clone(),
            metadata: Arc::new(open.metadata.clone()),
            ttl_ms: open.ttl_ms,
            disconnect_grace_ms: open.disconnect_grace_ms,
            opened: now,
            deadline,
            attachment: 0,
            attempt: 0,
            renewal: 0,
            disconnected: false,
            renewed: now,
            renewed_wall: self.state.globals.wall,
            leaderless_ms: self.state.globals.leaderless_ms,
            accepts_hand_over: open.accepts_hand_over,
            window_floor: 0,
        };
        self.state.insert_session(id, record);
        self.event(Some(open.namespace.clone()), Subject::Session(id), EventKind::SessionOpened);
        Ok(Outcome::Opened { session: id, ttl_ms: open.ttl_ms, deadline })
    }

    /// The answer if this handle is known: the same session for the instance that opened it, otherwise a refusal.
    /// `None` for a new handle.
    fn known_handle(&mut self, open: &OpenSession) -> Result<Option<Outcome>, Refusal> {
        let known = self.state.index.handles.get(&(open.namespace.clone(), open.handle.clone())).copied();
        let Some(id) = known else { return Ok(None) };
        let lives = self.live_session(id).is_ok();
        let Some(Session { record, .. }) = self.state.session(id).filter(|_| lives) else {
            return Err(Refusal::Tombstoned { reason: self.end_of(id) });
        };
        if record.instance != open.instance {
            return Err(Refusal::AlreadyOpen { session: id });
        }
        Ok(Some(Outcome::Opened { session: id, ttl_ms: record.ttl_ms, deadline: record.deadline }))
    }

    fn session_bounds(&self, open: &OpenSession) -> Result<(), Refusal> {
        let (low, high) = self.ttl_ms_bounds();
        let ttl = open.ttl_ms;
        if ttl < low || high < ttl {
            let advice = if ttl < low { BoundAdvice::RaiseToFloor } else { BoundAdvice::HoldASession };
            return Err(Refusal::OutOfBounds { field: DurationField::Ttl, low, high, value: ttl, advice });
        }
        // A client whose grace is shorter than a failover would lose everything at each change of the leader.
        let low = (low / limits::TTL_MIN_IN_FAILOVERS).max(1);
        if let Some(grace) = open.disconnect_grace_ms.filter(|grace| *grace < low || ttl < *grace) {
            let (field, advice) = (DurationField::DisconnectGrace, BoundAdvice::RaiseToFloor);
            return Err(Refusal::OutOfBounds { field, low, high: ttl, value: grace, advice });
        }
        self.quotas.one_more(QuotaKind::Sessions, self.state.used(&open.namespace).sessions)
    }

    pub(super) fn attach(&mut self, attach: &Attach) -> Result<Outcome, Refusal> {
        let id = attach.session;
        self.live_session(id)?;
        self.proves(id, &attach.handle, &attach.namespace)?;
        let Some(session) = self.state.sessions.get_mut(&id) else {
            return Err(self.session_ended(id));
        };
        let record = &mut session.record;
        if attach.attempt <= record.attempt {
            return Err(Refusal::StaleAttempt { newest: record.attempt });
        }
        record.attempt = attach.attempt;
        record.attachment += 1;
        let attachment = Attachment(record.attachment);
        if faults::on(Fault::AttachDropsHolds) {
            let claims: Vec<_> = session.claims().map(|(_, lock, claim)| (lock.clone(), claim)).collect();
            for (lock, claim) in claims {
                if let ClaimState::Holding(token) = claim {
                    self.end_hold(&lock, token, EndReason::Expired, None);
                }
            }
        }
        let deadline = self.prolong_session(id);
        Ok(Outcome::Attached { attachment, deadline })
    }

    /// Sets the deadline to a full TTL from now. The session is connected again.
    pub(super) fn prolong_session(&mut self, id: SessionId) -> LogTime {
        let (now, wall) = (self.state.globals.now, self.state.globals.wall);
        let Some(session) = self.state.sessions.get_mut(&id) else { return now };
        let old = session.record.deadline;
        let promised = now.after_ms(session.record.ttl_ms);
        let early = faults::on(Fault::EarlyExpiry);
        let new = if early { now.after_ms(session.record.ttl_ms / 4) } else { promised };
        session.record.deadline = new;
        session.record.disconnected = false;
        session.record.renewed = now;
        session.record.renewed_wall = wall;
        session.record.leaderless_ms = self.state.globals.leaderless_ms;
        self.state.mark(RecordKey::Session(id));
        self.state.index.move_deadline(Some(old), Some(new), DeadlineOf::Session(id));
        promised
    }

    pub(super) fn disconnected(&mut self, id: SessionId, attachment: Attachment) -> Outcome {
        let now = self.state.globals.now;
        let Some(session) = self.state.sessions.get_mut(&id) else { return Outcome::Done };
        if session.record.attachment != attachment.0 {
            return Outcome::Done;
        }
        session.record.disconnected = true;
        let old = session.record.deadline;
        let new = session.record.disconnect_grace_ms.map_or(old, |grace| old.min(now.after_ms(grace)));
        session.record.deadline = new;
        self.state.mark(RecordKey::Session(id));
        self.state.index.move_deadline(Some(old), Some(new), DeadlineOf::Session(id));
        Outcome::Done
    }

    pub(super) fn close_session(&mut self, id: SessionId, end: SessionClose) -> Outcome {
        let reason = match end {
            SessionClose::Done => EndReason::Released,
            SessionClose::Lost => EndReason::Lost,
        };
        if self.live_session(id).is_ok() {
            self.end_session(id, reason);
        }
        Outcome::Closed
    }

    /// Changes a setting of the cluster. Open sessions and existing holds keep what they were granted.
    pub(super) fn change_setting(&mut self, setting: Setting) -> Result<Outcome, Refusal> {
        let Setting::TtlMax(ttl_ms_max) = setting;
        let ((low, old), high) = (self.ttl_ms_bounds(), limits::TTL_MS_MAX);
        if ttl_ms_max < low || high < ttl_ms_max {
            let (field, advice) = (DurationField::TtlMax, BoundAdvice::RestoresWait);
            return Err(Refusal::OutOfBounds { field, low, high, value: ttl_ms_max, advice });
        }
        self.state.globals.ttl_ms_max_ever = self.state.globals.ttl_ms_max_ever.max(old).max(ttl_ms_max);
        self.state.globals.ttl_ms_max = Some(ttl_ms_max);
        Ok(Outcome::Done)
    }

    /// Ends a session at an operator's request. Each of its holds is broken, with the operator and the reason in its
    /// history.
    pub(super) fn end_session_of_another(&mut self, by: &Principal, end: &EndSession) -> Result<Outcome, Refusal> {
        let id = end.session;
        self.live_session(id)?;
        if self.state.session(id).is_none_or(|session| session.record.namespace != end.namespace) {
            // A session of another namespace gets the same answer as one that never existed.
            return Err(self.session_ended(id));
        }
        self.end_session_as(id, EndReason::Broken, Some((by, &end.why)));
        Ok(Outcome::Closed)
    }

    /// Ends a session in one step: releases everything that it held, removes its waiters, and writes a tombstone with
    /// the reason. Returns the number of holds and waits that ended. The caller then grants what became free.
    pub(super) fn end_session(&mut self, id: SessionId, reason: EndReason) -> usize {
        self.end_session_as(id, reason, None)
    }

    /// Like [`end_session`](Self::end_session). If an operator ended it, `broken` is the operator and the reason.
    fn end_session_as(&mut self, id: SessionId, reason: EndReason, broken: Option<(&Principal, &Reason)>) -> usize {
        self.end_overdue_claims(id);
        let Some(session) = self.state.remove_session(id) else { return 0 };
        let ended = session.locks + 1;
        let SessionRecord { namespace, principal, handle, .. } = session.record;
        let deadline = self.state.globals.now.after_ms(limits::TOMBSTONE_MS);
        let why = broken.map(|(_, why)| why.clone());
        let tombstone =
            Tombstone { namespace: namespace.clone(), principal, handle, reason, why: why.clone(), deadline };
        self.state.insert_tombstone(id, tombstone);
        let claims = session.active.into_iter().flat_map(|(_, locks)| locks);
        for (lock, state) in claims {
            match state {
                ClaimState::Waiting(_) if faults::on(Fault::DeadWaiterLeft) => {}
                ClaimState::Waiting(sequence) => self.end_wait(&lock, sequence, WaitEndReason::SessionEnded),
                ClaimState::Holding(token) => {
                    let broken = broken.map(|(by, why)| (by.clone(), why.clone()));
                    let is_broken = broken.is_some();
                    self.end_hold_as(&lock, token, reason, None, broken);
                    if is_broken {
                        // Opens what the hold gave up before, as a break does.
                        self.end_delay(&lock, token);
                    }
                }
            }
        }
        self.event(Some(namespace), Subject::Session(id), EventKind::SessionEnded { reason, why });
        ended
    }

    /// Ends those holds and waits of the session whose own end came before the session's, and which the unfinished
    /// sweep has not reached.
    fn end_overdue_claims(&mut self, id: SessionId) {
        let Some(session) = self.state.session(id).filter(|_| self.sweep_incomplete) else { return };
        let end = session.record.deadline.min(self.state.globals.now);
        // A hold that was acquired several times has as many claims.
        let mut due = BTreeSet::new();
        for (_, key, claim) in session.claims() {
            match claim {
                ClaimState::Waiting(sequence) => {
                    let until = self.state.waiter(key, sequence).and_then(|waiter| waiter.deadline);
                    due.extend(until.map(|until| (until, DeadlineOf::Wait(key.clone(), sequence))));
                }
                ClaimState::Holding(token) => {
                    let holder = self.state.holder(key, token).into_iter();
                    due.extend(holder.flat_map(|holder| holder.own_ends(key, token)));
                    let delayed = self.state.delayed(key, token);
                    due.extend(delayed.map(|delayed| (delayed.until, DeadlineOf::Delay(key.clone(), token))));
                }
            }
        }
        self.end_all(due.into_iter().filter(|(at, _)| *at < end).map(|(_, due)| due));
    }

    /// The metadata of a request. It is shared with the session's if both are equal.
    pub(super) fn share_metadata(&self, request: RequestId, metadata: &Metadata) -> Arc<Metadata> {
        let shared = self.state.session(request.session).and_then(|session| session.shared_metadata(metadata));
        shared.unwrap_or_else(|| Arc::new(metadata.clone()))
    }
}
