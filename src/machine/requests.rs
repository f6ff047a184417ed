//! Retries: each request number gets one answer, however often the request is repeated.

use xxhash_rust::xxh3::xxh3_64;

use super::Machine;
use crate::limits;
use crate::model::{
    Access, Acquire, Alter, Alteration, Claim, EndReason, Extras, Fairness, Grab, Metadata, Mode, Namespace,
    OnDeadlock, Outcome, Reentry, Refusal, Release, RequestId, SessionId, TakeLease,
};
use crate::state::{Finished, RecordKey, Session};

impl Machine {
    /// Begins a numbered command of a session. Returns the session's namespace if the command is new and must be
    /// executed. Otherwise returns the answer: the refusal because the session ended, the remembered answer, or the
    /// current outcome.
    pub(super) fn begin(
        &mut self,
        request: RequestId,
        answered_below: u64,
        fingerprint: u64,
    ) -> Result<Namespace, Outcome> {
        self.live_session(request.session).map_err(Outcome::Refused)?;
        self.forget_below(request.session, answered_below);
        self.expire_due_of(request);
        let known = self.live_request(request, fingerprint).or_else(|| self.finished_answer(request, fingerprint));
        match (known, self.namespace_of(request.session)) {
            (Some(outcome), _) => Err(outcome),
            (None, Some(namespace)) => Ok(namespace.clone()),
            (None, None) => Err(Outcome::Refused(self.session_ended(request.session))),
        }
    }

    /// Refuses a session that has ended. Ends and refuses one whose deadline has passed but that the sweep has not
    /// reached.
    pub(super) fn live_session(&mut self, id: SessionId) -> Result<(), Refusal> {
        let now = self.state.globals.now;
        let deadline = self.state.session(id).map(|session| session.record.deadline);
        if deadline.is_some_and(|deadline| deadline < now) {
            self.end_session(id, EndReason::Expired);
            self.grant_ready();
        } else if deadline.is_some() {
            return Ok(());
        }
        Err(self.session_ended(id))
    }

    /// The remembered answer to this request. `None` for a new request, which must be executed. Callers look for an
    /// active request by its locks first.
    pub(super) fn finished_answer(&self, request: RequestId, fingerprint: u64) -> Option<Outcome> {
        let session = self.state.session(request.session)?;
        let number = request.number;
        if let Some(done) = session.finished.get(&number) {
            let same = done.fingerprint.is_none_or(|known| known == fingerprint);
            let reused = Outcome::Refused(Refusal::RequestReused { claim: Claim::Request(request) });
            return Some(if same { done.outcome.clone() } else { reused });
        }
        session.too_old(number).map(Outcome::Refused)
    }

    /// Drops remembered answers below the number up to which the client received them.
    pub(super) fn forget_below(&mut self, id: SessionId, below: u64) {
        let Some(session) = self.state.sessions.get_mut(&id) else { return };
        if below <= session.record.window_floor {
            return;
        }
        session.record.window_floor = below;
        self.state.dirty.touched(RecordKey::Session(id));
        while let Some((oldest, _)) = session.finished.first_key_value().filter(|(oldest, _)| **oldest < below) {
            self.state.dirty.gone(RecordKey::Finished(id, *oldest));
            session.finished.pop_first();
        }
    }

    /// Remembers the answer to a request, unless its client has confirmed that it will not repeat the request. If the
    /// window is full, forgets the answer with the lowest number and raises the floor above it.
    pub(super) fn record_finished(&mut self, id: SessionId, number: u64, done: Finished) {
        let Some(session) = self.state.sessions.get_mut(&id) else { return };
        if number < session.record.window_floor || limits::OWN_REQUESTS_MIN <= number {
            return;
        }
        match session.finished.insert(number, done) {
            Some(_) => self.state.dirty.touched(RecordKey::Finished(id, number)),
            None => self.state.dirty.born(RecordKey::Finished(id, number)),
        }
        if session.finished.len() > limits::REQUESTS_REMEMBERED_MAX
            && let Some((lowest, _)) = session.finished.pop_first()
        {
            session.record.window_floor = session.record.window_floor.max(lowest + 1);
            self.state.dirty.gone(RecordKey::Finished(id, lowest));
            self.state.dirty.touched(RecordKey::Session(id));
        }
    }

    /// Remembers a final answer and returns it.
    pub(super) fn finish(&mut self, request: RequestId, fingerprint: u64, outcome: Outcome) -> Outcome {
        let done = Finished { fingerprint: Some(fingerprint), outcome: outcome.clone() };
        self.record_finished(request.session, request.number, done);
        outcome
    }
}

impl Session {
    /// The refusal of a request that is neither active nor remembered, if its number is below the remembered window. It
    /// may have been executed.
    pub(super) fn too_old(&self, number: u64) -> Option<Refusal> {
        let floor = self.record.window_floor;
        (number < floor).then_some(Refusal::TooOld { number, floor })
    }
}

/// Distinguishes requests with the same number. It covers everything except patience and the client's bookkeeping.
///
/// The bytes must never change, because a node that replays old entries must reach the same state. They are collected
/// and hashed in one call, because the state of an incremental hash is ten times as large as most requests.
struct Fingerprint(Vec<u8>);

impl Fingerprint {
    /// Starts the fingerprint of a command of this kind.
    fn of(kind: u64) -> Self {
        Self(Vec::with_capacity(limits::FINGERPRINT_BYTES_USUAL)).number(kind)
    }

    fn text(mut self, text: &str) -> Self {
        self.0.extend_from_slice(&(text.len() as u64).to_le_bytes());
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    fn number(mut self, number: u64) -> Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn access(self, access: Access) -> Self {
        match access.mode {
            Mode::Exclusive => self.number(1),
            Mode::Shared => self.number(2),
            Mode::Permits(count) => {
                let limit = access.limit.map_or(0, |limit| u64::from(limit) + 1);
                self.number(3).number(u64::from(count)).number(limit)
            }
        }
    }

    fn metadata(self, metadata: &Metadata) -> Self {
        let Metadata { who, why, host, pid, process, trace } = metadata;
        self.text(who).text(why).text(host).number(u64::from(*pid)).text(process).text(trace)
    }

    /// Adds these choices. A choice that was left out gives the same bytes as the default.
    fn extras(self, choices: &Extras) -> Self {
        let Extras { reentry, fairness, delay_ms, value, parent, deadlock, at_least_ms, at_most_ms, cached } = choices;
        let reentry = match reentry {
            Reentry::Refuse => 1,
            Reentry::Count => 2,
            Reentry::Wait => 3,
        };
        let barges = *fairness == Fairness::Barging;
        let waits = *deadlock == OnDeadlock::Wait;
        let (session, owner) =
            parent.as_ref().map_or((0, ""), |parent| (parent.session.as_u64(), parent.owner.as_str()));
        let value = value.as_ref().map_or((0, ""), |value| (1, value.as_str()));
        let chosen = self
            .number(reentry)
            .number(u64::from(barges))
            .number(*delay_ms)
            .number(value.0)
            .text(value.1)
            .number(session)
            .text(owner)
            .number(u64::from(waits));
        let ms = |ms: &Option<u64>| ms.map_or(0, |ms| ms.saturating_add(1));
        // Choices that were added in later versions are written only if they were made, so that requests without them
        // keep their fingerprints.
        let chosen = match (at_least_ms, at_most_ms) {
            (None, None) => chosen,
            (least, most) => chosen.number(ms(least)).number(ms(most)),
        };
        if *cached { chosen.number(1) } else { chosen }
    }

    fn finish(self) -> u64 {
        xxh3_64(&self.0)
    }
}

/// The [`Fingerprint`] of an acquire.
pub(super) fn of_acquire(acquire: &Acquire) -> u64 {
    let owner = acquire.owner.as_ref().map_or("", |owner| owner.as_str());
    let mut plain = Fingerprint::of(1).number(acquire.locks.len() as u64);
    for (name, access) in &acquire.locks {
        plain = plain.text(name.as_str()).access(*access);
    }
    let lease = acquire.lease_ms.map_or(0, |lease_ms| lease_ms.saturating_add(1));
    let plain = plain.text(owner).metadata(&acquire.metadata).number(lease);
    let choices = acquire.choices();
    let chosen = if choices == Extras::PLAIN { plain } else { plain.extras(choices) };
    chosen.finish()
}

/// The [`Fingerprint`] of a change of a hold. Patience is left out, as in an acquire.
pub(super) fn of_alter(alter: &Alter) -> u64 {
    let named = Fingerprint::of(4).text(alter.name.as_str());
    match &alter.what {
        Alteration::Downgrade { token } => named.number(1).number(token.as_u64()),
        Alteration::Upgrade { token, patience: _ } => named.number(2).number(token.as_u64()),
        Alteration::Resume { token, handle, lease_ms } => named
            .number(3)
            .number(token.as_u64())
            .text(handle.reveal())
            .number(lease_ms.map_or(0, |lease_ms| lease_ms.saturating_add(1))),
        Alteration::SetValue { token, value } => named
            .number(4)
            .number(token.as_u64())
            .number(u64::from(value.is_some()))
            .text(value.as_ref().map_or("", |value| value.as_str())),
        Alteration::ReturnPermits { token, count } => named.number(5).number(token.as_u64()).number(u64::from(*count)),
    }
    .finish()
}

/// The [`Fingerprint`] of a release.
pub(super) fn of_release(release: &Release) -> u64 {
    Fingerprint::of(2).text(release.name.as_str()).number(release.token.as_u64()).number(release.acquire).finish()
}

/// The [`Fingerprint`] of a grab. It covers only the process: the other texts, and the document that the caller saw,
/// may differ between retries.
pub(super) fn of_grab(grab: &Grab) -> u64 {
    Fingerprint::of(5).text(&grab.metadata.process).finish()
}

/// The [`Fingerprint`] of a take. The claim lease is left out, like patience.
pub(super) fn of_take(take: &TakeLease) -> u64 {
    Fingerprint::of(3)
        .text(take.handle.reveal())
        .access(take.access)
        .number(take.lease_ms)
        .metadata(&take.metadata)
        .finish()
}
