//! The contract again, as simply as it can be said: lists that are searched from end to end, nothing derived, nothing
//! indexed. It shares the vocabulary with the machine and no line of its rules. Quotas and the sweep's bound are left out.

#![allow(clippy::wildcard_enum_match_arm, clippy::result_large_err, reason = "said as simply as it can be")]

mod acquire;
mod alter;
mod circles;
mod documents;
mod grants;
mod manage;
mod takes;

pub(super) use documents::Shown;

use crate::model::*;

/// Who asked for what, as long as it waits or holds.
#[derive(Clone)]
struct Ask {
    lock: LockKey,
    claim: Claim,
    owner: Option<Owner>,
    mode: Mode,
    metadata: Metadata,
    principal: Principal,
    payload: Command,
    since: LogTime,
    /// Secret and length of a lease.
    lease: Option<(Handle, u64)>,
    extras: Extras,
    /// Asked for together with others.
    set: bool,
}

struct Hold {
    ask: Ask,
    token: FencingToken,
    since: LogTime,
    lease_end: Option<LogTime>,
    /// Requests that entered it again.
    again: Vec<(u64, Command)>,
    /// The request that made it exclusive.
    upgrade: Option<(u64, Command)>,
}

struct Wait {
    ask: Ask,
    sequence: u64,
    end: Option<LogTime>,
    /// The shared hold that is to be made exclusive.
    upgrades: Option<FencingToken>,
}

/// A lost hold, and until when it keeps its name closed.
struct Lost {
    ask: Ask,
    token: FencingToken,
    until: LogTime,
    since: LogTime,
}

struct Presence {
    id: SessionId,
    open: OpenSession,
    deadline: LogTime,
    attachment: u64,
    attempt: u64,
    floor: u64,
    /// Number, payload (none where a cancel burnt it), answer.
    answers: Vec<(u64, Option<Command>, Outcome)>,
    /// How it ended, and until when that is remembered.
    ended: Option<(EndReason, LogTime)>,
    seen: LogTime,
}

struct Taken {
    lock: LockKey,
    id: TakeId,
    handle: Handle,
    payload: Option<Command>,
    over: Option<(Outcome, LogTime)>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Naive {
    now: LogTime,
    tokens: u64,
    opened: u64,
    sequences: u64,
    settings: Option<ClusterSettings>,
    nodes: Vec<Announcement>,
    sessions: Vec<Presence>,
    holds: Vec<Hold>,
    waits: Vec<Wait>,
    lost: Vec<Lost>,
    /// Owners that have come to hold something since circles were last looked for.
    suspects: Vec<Party>,
    /// Sessions that stood at a lock where a set waited when circles were last looked for.
    beside_sets: Vec<(SessionId, LockKey)>,
    /// Limits of semaphores, and whether they stay while nobody uses them.
    limits: Vec<(LockKey, u32, bool)>,
    takes: Vec<Taken>,
    /// What holds have that were taken as documents.
    marks: Vec<documents::Mark>,
    /// Documents of names that nobody holds.
    free: Vec<documents::Shown>,
    /// Processes, and until when they are remembered.
    pings: Vec<(Namespace, ProcessId, LogTime)>,
    /// Every grant of the newest entry.
    pub(super) granted: Vec<(LockKey, Claim, FencingToken)>,
}

/// What may come to an end: a party when it finishes, a wait when it is granted.
#[derive(Clone, PartialEq)]
enum Node {
    Party(Party),
    Wait(Claim, LockKey),
}

fn node_of(wait: &Wait) -> Node {
    Node::Wait(wait.ask.claim, wait.ask.lock.clone())
}

/// One line of execution.
type Party = (SessionId, Owner);

const TEN_MINUTES_MS: u64 = 600_000;
const FOUR_DAYS_MS: u64 = 345_600_000;

/// The payload of a request: neither patience nor what the client says of other requests.
fn payload_of(command: &Command) -> Command {
    let mut payload = command.clone();
    if let Command::Acquire(acquire) = &mut payload {
        acquire.patience = Patience::Try;
        acquire.answered_below = 0;
        acquire.extras = acquire.extras.take().filter(|extras| **extras != Extras::default());
    }
    if let Command::AcquireSet(set) = &mut payload {
        set.patience = Patience::Try;
        set.answered_below = 0;
        set.extras = set.extras.take().filter(|extras| **extras != Extras::default());
    }
    if let Command::Release(release) = &mut payload {
        release.answered_below = 0;
    }
    if let Command::Alter(alter) = &mut payload {
        alter.answered_below = 0;
        if let Alteration::Upgrade { patience, .. } = &mut alter.what {
            *patience = Patience::Try;
        }
    }
    if let Command::TakeLease(take) = &mut payload {
        take.patience = Patience::Try;
    }
    payload
}

fn is_semaphore(mode: Mode) -> bool {
    matches!(mode, Mode::Permits { .. })
}

impl Naive {
    pub(super) fn apply(&mut self, entry: &Entry) -> (Vec<Outcome>, Vec<Outcome>) {
        let previous = self.now;
        self.now = self.now.max(entry.stamp);
        self.granted.clear();
        let renewals = entry.renewals.iter().map(|renewal| self.renew(renewal, previous)).collect();
        self.end_what_is_due();
        self.serve();
        let mut outcomes = Vec::new();
        for submission in &entry.commands {
            outcomes.push(self.execute(&submission.principal, &submission.command));
            self.serve();
        }
        (renewals, outcomes)
    }

    /// In time is what was received by the deadline, unless an earlier entry had passed it.
    fn renew(&mut self, renewal: &Renewal, previous: LogTime) -> Outcome {
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

    fn end_what_is_due(&mut self) {
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
        self.lost.retain(|lost| now <= lost.until);
        self.forget_limits();
        self.forget_processes();
        self.sessions.retain(|session| session.ended.is_none_or(|(_, until)| now <= until));
        self.takes.retain(|take| take.over.as_ref().is_none_or(|(_, until)| now <= *until));
    }

    fn end_session(&mut self, id: SessionId, reason: EndReason) {
        let until = LogTime(self.now.0 + TEN_MINUTES_MS);
        let Some(session) = self.alive(id) else { return };
        session.ended = Some((reason, until));
        self.waits.retain(|wait| wait.ask.claim.session() != Some(id));
        while let Some(at) = self.holds.iter().position(|hold| hold.ask.claim.session() == Some(id)) {
            let hold = self.holds.remove(at);
            self.keep_closed(&hold, reason);
        }
        self.forget_limits();
    }

    fn keep_closed(&mut self, hold: &Hold, reason: EndReason) {
        let delay_ms = hold.ask.extras.delay_ms;
        if 0 < delay_ms && (reason == EndReason::Expired || reason == EndReason::Lost) {
            let until = LogTime(self.now.0 + delay_ms);
            self.lost.push(Lost { ask: hold.ask.clone(), token: hold.token, until, since: hold.since });
        }
    }

    fn end_hold(&mut self, at: usize, reason: EndReason, answer: Option<Outcome>) {
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
    fn leave_hold(&mut self, at: usize, number: u64, answer: Outcome) -> u32 {
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

    fn end_wait(&mut self, at: usize, answer: Outcome) {
        let wait = self.waits.remove(at);
        self.waits.retain(|other| !wait.ask.set || other.ask.claim != wait.ask.claim);
        self.conclude(&wait.ask, answer);
    }

    fn conclude(&mut self, ask: &Ask, answer: Outcome) {
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

    fn forget_limits(&mut self) {
        let (holds, waits, lost) = (&self.holds, &self.waits, &self.lost);
        self.limits.retain(|(lock, _, kept)| {
            *kept
                || lost.iter().any(|lost| lost.ask.lock == *lock)
                || holds.iter().any(|hold| hold.ask.lock == *lock)
                || waits.iter().any(|wait| wait.ask.lock == *lock)
        });
    }

    fn remember(&mut self, request: RequestId, payload: Option<Command>, answer: Outcome) {
        let Some(session) = self.alive(request.session) else { return };
        if session.floor <= request.number && request.number < 1 << 63 {
            session.answers.push((request.number, payload, answer));
        }
        if 1024 < session.answers.len() {
            let lowest = session.answers.iter().map(|(number, _, _)| *number).min().expect("there are many");
            session.answers.retain(|(number, _, _)| *number != lowest);
            session.floor = lowest + 1;
        }
    }

    /// Whether its session stands, by another request, at another lock where a set waits: so it may come to pass others.
    fn may_come_to_pass(&self, ask: &Ask) -> bool {
        let Some(session) = ask.claim.session() else { return false };
        let asks = self.holds.iter().map(|hold| &hold.ask).chain(self.waits.iter().map(|wait| &wait.ask));
        let mut others = asks.filter(|other| other.claim.session() == Some(session) && other.claim != ask.claim);
        others.any(|other| other.lock != ask.lock && self.set_waits_at(&other.lock))
    }

    fn set_waits_at(&self, lock: &LockKey) -> bool {
        self.waits.iter().any(|wait| wait.ask.set && wait.ask.lock == *lock)
    }

    fn sessions_beside_sets(&self) -> Vec<(SessionId, LockKey)> {
        let asks = self.holds.iter().map(|hold| &hold.ask).chain(self.waits.iter().map(|wait| &wait.ask));
        let beside = asks.filter(|ask| self.set_waits_at(&ask.lock));
        beside.filter_map(|ask| Some((ask.claim.session()?, ask.lock.clone()))).collect()
    }

    /// Who may pass fewer than before may be in a circle by now.
    fn suspect_loosened(&mut self) {
        let now = self.sessions_beside_sets();
        for (session, lock) in std::mem::replace(&mut self.beside_sets, now.clone()) {
            if !now.contains(&(session, lock)) {
                let waits = self.waits.iter().filter(|wait| wait.ask.claim.session() == Some(session));
                self.suspects.extend(waits.filter_map(endless_wait));
            }
        }
    }

    fn alive(&mut self, id: SessionId) -> Option<&mut Presence> {
        self.sessions.iter_mut().find(|session| session.id == id && session.ended.is_none())
    }

    fn session_ended(&self, id: SessionId) -> Outcome {
        let known = self.sessions.iter().find(|session| session.id == id).and_then(|session| session.ended);
        let reason = known.map_or(EndReason::Expired, |(reason, _)| reason);
        Outcome::Refused(Refusal::SessionEnded { session: id, reason })
    }

    fn limit(&self, lock: &LockKey) -> Option<u32> {
        self.limits.iter().find(|(known, ..)| known == lock).map(|(_, limit, _)| *limit)
    }

    fn view(&self, hold: &Hold) -> HolderView {
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
            deadline: hold.lease_end.into_iter().chain(session_end).min().unwrap_or(LogTime(u64::MAX)),
        }
    }

    /// The longest holder, apart from those that `mine` says are the caller's.
    fn holder(&self, lock: &LockKey, mine: impl Fn(&Hold) -> bool) -> Option<HolderView> {
        let others = self.holds.iter().filter(|hold| hold.ask.lock == *lock && !mine(hold));
        others.min_by_key(|hold| hold.token).map(|hold| self.view(hold))
    }

    fn not_held(&self, lock: &LockKey, mine: impl Fn(&Hold) -> bool) -> Outcome {
        let lock = lock.clone();
        Outcome::Refused(match self.holder(&lock, mine) {
            Some(holder) => Refusal::HeldByOther { lock, holder: Box::new(holder) },
            None => Refusal::NotHeld { lock },
        })
    }

    fn queued(&self, wait: &Wait) -> Outcome {
        let lock = &wait.ask.lock;
        let ahead = self.waits.iter().filter(|o| o.ask.lock == *lock && o.sequence < wait.sequence).count() as u64;
        let held_by = self.holder(lock, |_| false);
        Outcome::Queued(Place { lock: lock.name.clone(), place: ahead + 1, sequence: wait.sequence, held_by })
    }

    /// How a claim stands, and what it asked for.
    fn standing(&self, lock: Option<&LockKey>, claim: Claim) -> Option<(&Command, Outcome)> {
        let again =
            |hold: &&Hold| later(hold).any(|(number, _)| Some(claim) == request_of(hold.ask.claim.session(), *number));
        if let Some(hold) = self.holds.iter().find(again) {
            let same = |(number, _): &&(u64, Command)| Some(claim) == request_of(hold.ask.claim.session(), *number);
            let (_, payload) = later(hold).find(same).expect("just found");
            let grant = Grant { token: hold.token, deadline: hold.lease_end, waited_ms: 0 };
            return Some((payload, Outcome::Granted(grant)));
        }
        let same = |ask: &Ask| ask.claim == claim && lock.is_none_or(|lock| ask.lock == *lock);
        let mut parts: Vec<_> = self.holds.iter().filter(|hold| same(&hold.ask) && hold.ask.set).collect();
        if let Some(part) = parts.first() {
            let payload = &part.ask.payload;
            parts.sort_by_key(|part| part.ask.lock.clone());
            let grant = |part: &&Hold| {
                let waited_ms = part.since.0 - part.ask.since.0;
                (part.ask.lock.name.clone(), Grant { token: part.token, deadline: part.lease_end, waited_ms })
            };
            return Some((payload, Outcome::GrantedSet(parts.iter().map(grant).collect())));
        }
        if let Some(hold) = self.holds.iter().find(|hold| same(&hold.ask)) {
            let waited_ms = hold.since.0 - hold.ask.since.0;
            return Some((
                &hold.ask.payload,
                Outcome::Granted(Grant { token: hold.token, deadline: hold.lease_end, waited_ms }),
            ));
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

    fn execute(&mut self, principal: &Principal, command: &Command) -> Outcome {
        match command {
            Command::OpenSession(open) => self.open(open),
            Command::Attach(attach) => self.attach(attach),
            Command::Disconnected { session, attachment } => {
                let now = self.now;
                if let Some(session) = self.alive(*session).filter(|session| session.attachment == attachment.0)
                    && let Some(grace) = session.open.disconnect_grace_ms
                {
                    session.deadline = session.deadline.min(LogTime(now.0 + grace));
                }
                Outcome::DisconnectNoted
            }
            Command::CloseSession { session, end } => {
                let reason = if *end == SessionClose::Done { EndReason::Released } else { EndReason::Lost };
                self.end_session(*session, reason);
                Outcome::Closed
            }
            Command::Acquire(acquire) => self.acquire(principal, acquire, payload_of(command)),
            Command::Cancel { request } => self.cancel(*request),
            Command::Release(release) => self.release(release, payload_of(command)),
            Command::TakeLease(take) => self.take(principal, take, payload_of(command)),
            Command::CancelTake { lock, take, handle } => self.cancel_take(lock, *take, handle),
            Command::DropLease { lock, handle } => {
                match self.holds.iter().position(|hold| hold.ask.lock == *lock && proves(hold, handle)) {
                    Some(at) => {
                        self.end_hold(at, EndReason::Released, None);
                        Outcome::Released { left: 0 }
                    }
                    None => self.not_held(lock, |_| false),
                }
            }
            Command::Alter(alter) => self.alter(principal, alter, payload_of(command)),
            Command::AcquireSet(set) => self.acquire_set(principal, set, payload_of(command)),
            Command::Manage(manage) => self.manage(&manage.lock, &manage.what),
            Command::Document(command) => self.document(principal, command),
            Command::Tick | Command::LeaderlessGap { .. } => Outcome::Ticked,
            Command::Configure(settings) => {
                self.settings = self.settings.or(Some(*settings));
                Outcome::Ticked
            }
            Command::Announce(told) => match self.nodes.iter_mut().find(|known| known.node == told.node) {
                Some(known) if known.disk != told.disk => Outcome::Refused(Refusal::OtherDisk { node: told.node }),
                Some(known) => {
                    *known = told.clone();
                    Outcome::Ticked
                }
                None => {
                    self.nodes.push(told.clone());
                    Outcome::Ticked
                }
            },
            Command::RaiseFeatures(RaiseFeatures { to, voters }) => {
                let supports = |id: u64| self.nodes.iter().find(|known| known.node == id).map(|known| known.features);
                match voters.iter().find(|id| supports(**id) < Some(*to)) {
                    Some(id) => {
                        let (to, node, supports) = (*to, *id, supports(*id));
                        Outcome::Refused(Refusal::FeaturesUnsupported { to, node, supports })
                    }
                    None => Outcome::Ticked,
                }
            }
        }
    }

    fn bounds(&self) -> (u64, u64) {
        self.settings.map_or((1, TEN_MINUTES_MS), |settings| (settings.ttl_ms_min, settings.ttl_ms_max))
    }

    fn lease_bounds(&self, value: u64) -> Option<Outcome> {
        let (field, low, high) = (DurationField::Lease, 1, self.bounds().1);
        let advice = BoundAdvice::HoldASession;
        let refusal = Refusal::OutOfBounds { field, low, high, value, advice };
        (value < low || high < value).then_some(Outcome::Refused(refusal))
    }

    fn open(&mut self, open: &OpenSession) -> Outcome {
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
        if let Some(value) = open.disconnect_grace_ms.filter(|grace| *grace < 1 || ttl < *grace) {
            let (field, advice) = (DurationField::DisconnectGrace, BoundAdvice::RaiseToFloor);
            return Outcome::Refused(Refusal::OutOfBounds { field, low: 1, high: ttl, value, advice });
        }
        self.opened += 1;
        let id = SessionId::new(0, self.opened);
        let deadline = LogTime(self.now.0 + ttl);
        let (attachment, attempt, floor) = (0, 0, 0);
        let open = open.clone();
        let (answers, ended, seen) = (vec![], None, self.now);
        self.sessions.push(Presence { id, open, deadline, attachment, attempt, floor, answers, ended, seen });
        Outcome::Opened { session: id, ttl_ms: ttl, deadline }
    }

    fn attach(&mut self, attach: &Attach) -> Outcome {
        let now = self.now;
        let Some(session) = self.alive(attach.session) else { return self.session_ended(attach.session) };
        if session.open.handle != attach.handle {
            return Outcome::Refused(Refusal::WrongHandle);
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

fn party(ask: &Ask) -> Option<Party> {
    ask.claim.session().zip(ask.owner.clone())
}

/// Whose wait it is, if only a grant or a cancel ends it.
fn endless_wait(wait: &Wait) -> Option<Party> {
    party(&wait.ask).filter(|_| wait.end.is_none() && wait.ask.extras.reentry != Reentry::Wait)
}

/// Whose hold it is, if only a release ends it.
fn endless_hold(hold: &Hold) -> Option<Party> {
    party(&hold.ask).filter(|_| hold.lease_end.is_none())
}

/// Whether two take the lock from each other.
fn conflict(one: Mode, other: Mode) -> bool {
    !(one == Mode::Shared && other == Mode::Shared)
}

/// Only one that barges passes, and only others that do.
fn passes(ask: &Ask, ahead: &Ask) -> bool {
    ask.extras.fairness == Fairness::Barging && ahead.extras.fairness == Fairness::Barging
}

fn request_of(session: Option<SessionId>, number: u64) -> Option<Claim> {
    session.map(|session| Claim::Request(RequestId { session, number }))
}

fn holds(hold: &Hold, request: RequestId) -> bool {
    let same = |(number, _): &(u64, Command)| *number == request.number;
    hold.ask.claim.session() == Some(request.session)
        && (hold.ask.claim == Claim::Request(request) || later(hold).any(same))
}

/// The requests that came to hold it after the first.
fn later(hold: &Hold) -> impl Iterator<Item = &(u64, Command)> {
    hold.again.iter().chain(&hold.upgrade)
}

fn proves(hold: &Hold, handle: &Handle) -> bool {
    hold.ask.lease.as_ref().is_some_and(|(known, _)| known == handle)
}
