//! A second, naive implementation of the machine's contract. It searches lists from end to end, and derives and indexes
//! nothing. It shares the types of the model with the machine, and none of its rules. Quotas and the sweep's bound are
//! left out.

#![allow(clippy::wildcard_enum_match_arm, clippy::result_large_err, reason = "said as simply as it can be")]

mod acquire;
mod alter;
mod answers;
mod cached;
mod cycles;
mod documents;
mod endings;
mod grants;
mod manage;
mod relations;
mod sessions;
mod takes;

pub(super) use documents::Shown;
use relations::*;

use crate::model::*;

/// A request while it waits or holds.
#[derive(Clone)]
struct Ask {
    lock: LockKey,
    claim: Claim,
    owner: Option<Owner>,
    mode: Mode,
    /// The limit that the request names.
    limit: Option<u32>,
    metadata: Metadata,
    principal: Principal,
    payload: Command,
    since: LogTime,
    /// The secret of a take.
    handle: Option<Handle>,
    /// The length of the lease of a take or an acquire, in milliseconds.
    lease_ms: Option<u64>,
    extras: Extras,
    /// Whether the request is for a set of locks.
    set: bool,
}

struct Hold {
    ask: Ask,
    token: FencingToken,
    since: LogTime,
    lease_end: Option<LogTime>,
    /// When the hold ends because of at-most.
    ends: Option<LogTime>,
    closed_until: Option<LogTime>,
    /// Requests that acquired the hold again.
    again: Vec<(u64, Command)>,
    /// The request that made the hold exclusive.
    upgrade: Option<(u64, Command)>,
    /// Whether the hold is cached and another request has waited behind it.
    recalled: bool,
}

#[derive(Clone)]
struct Wait {
    ask: Ask,
    sequence: u64,
    end: Option<LogTime>,
    /// For an upgrade, the token of the shared hold.
    upgrades: Option<FencingToken>,
    /// Whether the hold to upgrade has a deadline, so that the wait ends with it.
    of_lease: bool,
    /// Whether the request is a try, which waits briefly behind a cached hold.
    tries: bool,
}

/// An ended hold that keeps its name closed for some time, or permits that it returned before.
struct Lost {
    ask: Ask,
    token: FencingToken,
    until: LogTime,
    since: LogTime,
    /// The part that was lost, and until when it may be resumed.
    lost: Option<(Mode, LogTime)>,
    ends: Option<LogTime>,
    closed_until: Option<LogTime>,
}

struct Presence {
    id: SessionId,
    open: OpenSession,
    deadline: LogTime,
    attachment: u64,
    attempt: u64,
    floor: u64,
    /// For each finished request: its number, its payload, its answer. The payload is `None` if a cancel used up the
    /// number.
    answers: Vec<(u64, Option<Command>, Outcome)>,
    /// How the session ended, and until when that is remembered.
    ended: Option<(EndReason, LogTime)>,
    why: Option<Reason>,
    seen: LogTime,
}

struct Taken {
    lock: LockKey,
    id: LeaseRequestId,
    handle: Handle,
    payload: Option<Command>,
    over: Option<(Outcome, LogTime)>,
}

/// The naive model. See the module.
#[derive(Default)]
pub(crate) struct Naive {
    now: LogTime,
    tokens: u64,
    opened: u64,
    sequences: u64,
    settings: Option<ClusterSettings>,
    /// The longest TTL that an operator set.
    ttl_max: Option<u64>,
    /// The largest value that the longest TTL ever had, if an operator has changed it.
    ttl_max_ever: u64,
    nodes: Vec<Announcement>,
    sessions: Vec<Presence>,
    holds: Vec<Hold>,
    waits: Vec<Wait>,
    lost: Vec<Lost>,
    /// Owners that gained a hold since cycles were last searched for.
    suspects: Vec<Party>,
    /// Locks where a set waited when something changed after the last search for cycles, and the sessions whose claims
    /// changed.
    changed: Vec<LockKey>,
    changed_sessions: Vec<SessionId>,
    /// Limits of semaphores, and whether they stay while the semaphore is unused.
    limits: Vec<(LockKey, u32, bool)>,
    takes: Vec<Taken>,
    /// The documents of holds that are documents.
    marks: Vec<documents::Mark>,
    /// Documents of names without a holder.
    free: Vec<documents::Shown>,
    /// Processes, and until when each is remembered.
    pings: Vec<(Namespace, ProcessId, LogTime)>,
    /// Every grant of the newest entry.
    pub(crate) granted: Vec<(LockKey, Claim, FencingToken)>,
    /// Every hold that was recalled in the newest entry.
    pub(crate) recalls: Vec<FencingToken>,
    /// For each answer of the newest entry, the recalled holds that it contains.
    pub(crate) named: Vec<Vec<FencingToken>>,
}

/// An event that a wait may need: a party finishes, or a wait is granted.
#[derive(Clone, PartialEq)]
enum Node {
    Party(Party),
    Wait(Claim, LockKey),
}

fn node_of(wait: &Wait) -> Node {
    Node::Wait(wait.ask.claim, wait.ask.lock.clone())
}

/// A line of execution: a session and its owner.
type Party = (SessionId, Owner);

const TEN_MINUTES_MS: u64 = 600_000;
const FOUR_DAYS_MS: u64 = 345_600_000;

/// The payload of a request, without patience and without what the client states about other requests.
fn payload_of(command: &Command) -> Command {
    let mut payload = command.clone();
    if let Command::Acquire(acquire) = &mut payload {
        acquire.patience = Patience::Try;
        acquire.answered_below = 0;
        acquire.extras = acquire.extras.take().filter(|extras| **extras != Extras::default());
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
        take.claim_ms = None;
    }
    payload
}

fn is_semaphore(mode: Mode) -> bool {
    matches!(mode, Mode::Permits(_))
}

impl Naive {
    pub(crate) fn apply(&mut self, entry: &Entry) -> (Vec<Outcome>, Vec<Outcome>) {
        let previous = self.now;
        self.now = self.now.max(entry.stamp);
        self.granted.clear();
        self.recalls.clear();
        self.named.clear();
        let mut renewals = Vec::new();
        for renewal in &entry.renewals {
            let outcome = self.renew(renewal, previous);
            self.name_recalled(renewal.target.session(), &outcome);
            renewals.push(outcome);
        }
        self.end_what_is_due();
        self.serve();
        self.recall();
        let mut outcomes = Vec::new();
        for submission in &entry.commands {
            let outcome = self.execute(&submission.principal, &submission.command);
            self.serve();
            self.recall();
            self.name_recalled(submission.command.session(), &outcome);
            outcomes.push(outcome);
        }
        (renewals, outcomes)
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

    /// Whether this request overtakes the wait ahead now, or can without the end of any owner. Otherwise, also the
    /// waits of which each would let it overtake when granted. A request overtakes waits at another lock, and the waits
    /// behind them, if its session holds there what they lack.
    fn lets_pass(&self, ask: &Ask, ahead: &Wait) -> (bool, Vec<&Wait>) {
        let sets = self.waits.iter().any(|wait| wait.ask.set);
        let Some(session) = ask.claim.session().filter(|_| sets) else { return (false, vec![]) };
        let another = |o: &Ask| o.claim.session() == Some(session) && o.claim != ask.claim && o.lock != ask.lock;
        let over = |o: &Ask, token: Option<FencingToken>, waits: &&Wait| {
            let there = |wait: &Wait| wait.ask.lock == o.lock && wait.ask.claim != o.claim;
            let sets = self.waits.iter().any(|wait| wait.ask.set && there(wait));
            let own = token.is_some() && waits.upgrades == token;
            let there = sets && there(waits) && !own && conflict(waits.ask.mode, o.mode);
            there && self.and_behind(std::iter::once(*waits)).contains(&(ahead.ask.claim, ahead.sequence))
        };
        let (mut now, mut once) = (false, vec![]);
        for hold in self.holds.iter().filter(|hold| another(&hold.ask)) {
            for lacking in self.waits.iter().filter(|lacking| over(&hold.ask, Some(hold.token), lacking)) {
                let other = |o: &&Wait| o.ask.lock == lacking.ask.lock && o.ask.claim != lacking.ask.claim;
                let mut others: Vec<&Wait> = self.waits.iter().filter(other).collect();
                let lacks = !is_semaphore(lacking.ask.mode) || !self.fits(&lacking.ask.lock, lacking.ask.mode);
                now |= lacks || others.iter().any(|o| endless_wait(o).is_none());
                once.append(&mut others);
            }
        }
        for wait in self.waits.iter().filter(|wait| another(&wait.ask)) {
            if self.waits.iter().any(|lacking| over(&wait.ask, None, &lacking)) {
                now |= endless_wait(wait).is_none();
                once.push(wait);
            }
        }
        (now, once)
    }

    fn alive(&mut self, id: SessionId) -> Option<&mut Presence> {
        self.sessions.iter_mut().find(|session| session.id == id && session.ended.is_none())
    }

    fn session_ended(&self, id: SessionId) -> Outcome {
        let known = self.sessions.iter().find(|session| session.id == id);
        let reason = known.and_then(|session| session.ended).map_or(EndReason::Expired, |(reason, _)| reason);
        let why = known.and_then(|session| session.why.clone());
        Outcome::Refused(Refusal::SessionEnded { session: id, reason, why })
    }

    fn limit(&self, lock: &LockKey) -> Option<u32> {
        self.limits.iter().find(|(known, ..)| known == lock).map(|(_, limit, _)| *limit)
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
                Outcome::Done
            }
            Command::CloseSession { session, end } => {
                let reason = if *end == SessionClose::Done { EndReason::Released } else { EndReason::Lost };
                self.end_session(*session, reason);
                Outcome::Closed
            }
            Command::EndSession(end) => self.end_by_an_operator(end),
            Command::Acquire(acquire) if acquire.is_set() => self.acquire_set(principal, acquire, payload_of(command)),
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
            Command::Manage(manage) => self.manage(&manage.lock, &manage.what),
            Command::Document(command) => self.document(principal, command),
            Command::ChangeSetting(Setting::TtlMax(value)) => self.change_ttl_max(*value),
            Command::Tick | Command::LeaderlessGap { .. } => Outcome::Done,
            Command::Configure { settings, cluster_id: _ } => {
                self.settings = self.settings.or(Some(*settings));
                Outcome::Done
            }
            Command::Announce(grant_of) => match self.nodes.iter_mut().find(|known| known.node == grant_of.node) {
                Some(known) if known.disk != grant_of.disk => {
                    Outcome::Refused(Refusal::OtherDisk { node: grant_of.node })
                }
                Some(known) => {
                    *known = grant_of.clone();
                    Outcome::Done
                }
                None => {
                    self.nodes.push(grant_of.clone());
                    Outcome::Done
                }
            },
            Command::RaiseFeatures(RaiseFeatures { to, voters }) => {
                let supports = |id: u64| self.nodes.iter().find(|known| known.node == id).map(|known| known.features);
                match voters.iter().find(|id| supports(**id) < Some(*to)) {
                    Some(id) => {
                        let (to, node, supports) = (*to, *id, supports(*id));
                        Outcome::Refused(Refusal::FeaturesUnsupported { to, node, supports })
                    }
                    None => Outcome::Done,
                }
            }
        }
    }
}
