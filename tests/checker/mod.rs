//! Checks what clients believed against the events that the cluster reported. All functions are pure functions of one
//! history.
//!
//! The log position of each event gives the order: the events are replayed in that order, and each promise of the lock
//! service is checked on the way. What the clients saw is then compared with it.

pub(crate) mod linear;
mod rule;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use lockkeeper::model::{Claim, Event, EventKind, FencingToken, LockKey, LockName, Mode, Position, SessionId};

use self::linear::{Did, Operation};
pub(crate) use self::rule::{Rule, Violation};

/// Everything that was recorded in a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    /// The grants that clients received.
    pub(crate) beliefs: Vec<Belief>,
    /// The releases whose answers clients received.
    pub(crate) releases: Vec<(LockName, FencingToken)>,
    /// The same and further operations as calls and answers, for the check of their order.
    pub(crate) operations: Vec<Operation>,
    /// During a run: for each client, the time since which its calls may not be recorded yet.
    pub(crate) open: BTreeMap<usize, Duration>,
    /// The events that each node reported to its watcher.
    pub(crate) event_logs: Vec<EventLog>,
}

impl History {
    /// Records that all calls of this client before `now` are in the history.
    #[allow(dead_code, reason = "the simulation checks its history only at the end")]
    pub(crate) fn begins(&mut self, client: usize, now: Duration) {
        self.open.insert(client, now);
    }

    /// Records a grant that its client received.
    pub(crate) fn granted(&mut self, belief: Belief) {
        let did = Did::Acquire(belief.token, belief.mode);
        let (call, answered) = (belief.asked, Some(belief.begin));
        self.operations.push(Operation { lock: belief.lock.clone(), did, call, answered });
        self.beliefs.push(belief);
    }

    /// Records a use of a cached hold. Only the first one needs a request.
    pub(crate) fn used_again(&mut self, belief: Belief) {
        self.beliefs.push(belief);
    }

    /// Records that a client released a lock at `call`, or stopped being sure of it; and when the end was confirmed, if
    /// it was.
    pub(crate) fn ended(&mut self, lock: LockName, token: FencingToken, call: Duration, answered: Option<Duration>) {
        if answered.is_some() {
            self.releases.push((lock.clone(), token));
        }
        self.operations.push(Operation { lock, did: Did::End(token), call, answered });
    }

    /// Records that a client read the holders of a lock, and the result.
    pub(crate) fn looked(&mut self, lock: LockName, seen: BTreeSet<FencingToken>, call: Duration, answered: Duration) {
        self.operations.push(Operation { lock, did: Did::Look(seen), call, answered: Some(answered) });
    }
}

/// What a client believed about one grant. All instants are on one clock, from the start of the run.
#[derive(Debug, Clone)]
pub(crate) struct Belief {
    pub(crate) client: usize,
    pub(crate) lock: LockName,
    pub(crate) token: FencingToken,
    pub(crate) session: SessionId,
    pub(crate) mode: Mode,
    /// When acquire was called.
    pub(crate) asked: Duration,
    /// When acquire returned.
    pub(crate) begin: Duration,
    /// The earliest of the call of release, the loss that the guard reported, and the end of its validity.
    pub(crate) end: Duration,
}

/// The events of one node, in the order in which they arrived.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventLog {
    pub(crate) events: Vec<Event>,
    /// Ranges of the log without a gap: after the first position, up to the second.
    pub(crate) stretches: Vec<(Position, Position)>,
}

/// The position up to which the nodes together reported all events.
pub(crate) fn reported_until(event_logs: &[EventLog]) -> Position {
    let mut stretches: Vec<_> = event_logs.iter().flat_map(|event_log| event_log.stretches.iter().copied()).collect();
    stretches.sort_unstable();
    let reach = |end, (from, to): (Position, Position)| if from <= end { to.max(end) } else { end };
    stretches.into_iter().fold(Position::default(), reach)
}

/// Checks all promises. During a run, it checks only those that can be decided already.
pub(crate) fn check(history: &History, finished: bool) -> Vec<Violation> {
    let mut replay = Replay::default();
    for event_log in &history.event_logs {
        replay.in_order(event_log);
    }
    let end = reported_until(&history.event_logs);
    let merged = replay.nodes_agree(&history.event_logs);
    if finished && merged.keys().next_back().is_some_and(|last| *last > end) {
        let what = format!("no node reported the events after {end}");
        replay.violations.push(Violation { rule: Rule::NothingMissing, what });
    }
    for event in merged.range(..=end).map(|(_, event)| *event) {
        replay.step(event);
    }
    replay.beliefs_are_disjoint(&history.beliefs);
    replay.later_asked_are_larger(&history.beliefs);
    if finished {
        replay.acknowledged_happened(history);
        replay.violations.extend(linear::broken(&history.operations));
    } else if let Some(known) = history.open.values().min() {
        replay.violations.extend(linear::broken(&linear::until(&history.operations, *known)));
    }
    replay.violations
}

#[derive(Default)]
struct Lock {
    holders: BTreeMap<FencingToken, (Claim, Mode)>,
    queue: BTreeMap<u64, Claim>,
    last_sequence: u64,
}

#[derive(Default)]
struct Replay {
    locks: BTreeMap<LockKey, Lock>,
    sessions: BTreeSet<SessionId>,
    queued: BTreeSet<Claim>,
    granted: BTreeSet<Claim>,
    last_token: Option<FencingToken>,
    grants: BTreeSet<(LockName, FencingToken, Option<SessionId>)>,
    ends: BTreeSet<(LockName, FencingToken)>,
    violations: Vec<Violation>,
}

impl Replay {
    fn broken(&mut self, rule: Rule, event: &Event, why: &str) {
        let what = format!("{}: {:?}: {why}", event.position, event.kind);
        self.violations.push(Violation { rule, what });
    }

    fn in_order(&mut self, event_log: &EventLog) {
        for pair in event_log.events.windows(2) {
            if pair[1].position <= pair[0].position {
                self.broken(Rule::PositionsGrow, &pair[1], &format!("came after {}", pair[0].position));
            }
        }
    }

    /// Compares the events of the nodes and merges them.
    fn nodes_agree<'a>(&mut self, event_logs: &'a [EventLog]) -> BTreeMap<Position, &'a Event> {
        let mut merged: BTreeMap<Position, &Event> = BTreeMap::new();
        for event in event_logs.iter().flat_map(|event_log| &event_log.events) {
            let first = *merged.entry(event.position).or_insert(event);
            if first != event {
                self.broken(Rule::NodesAgree, event, &format!("another node says {:?}", first.kind));
            }
        }
        for event_log in event_logs {
            let positions: BTreeSet<Position> = event_log.events.iter().map(|event| event.position).collect();
            for (from, to) in &event_log.stretches {
                for (position, event) in merged.range((Bound::Excluded(*from), Bound::Included(*to))) {
                    if !positions.contains(position) {
                        self.broken(Rule::NodesAgree, event, "another node omits it");
                    }
                }
            }
        }
        merged
    }

    fn step(&mut self, event: &Event) {
        match &event.kind {
            EventKind::Queued { sequence } => {
                let (lock, claim) = of_a_claim(event);
                self.queued(event, lock, claim, *sequence);
            }
            EventKind::Granted { mode, .. } => {
                let (lock, claim) = of_a_claim(event);
                self.granted(event, lock, claim, (of_a_hold(event), *mode));
            }
            EventKind::WaitEnded { sequence, .. } => {
                let (lock, claim) = of_a_claim(event);
                let known = self.locks.entry(lock.clone()).or_default().queue.remove(sequence);
                if known != Some(claim) {
                    self.broken(Rule::EndsWhatWas, event, &format!("that place was {known:?}"));
                }
            }
            EventKind::Released { .. } | EventKind::Expired { .. } | EventKind::Broken { .. } => {
                let (lock, claim) = of_a_claim(event);
                self.ended(event, lock, claim, of_a_hold(event));
            }
            EventKind::SessionOpened => {
                if !self.sessions.insert(of_a_session(event)) {
                    self.broken(Rule::LiveSessions, event, "it was open");
                }
            }
            EventKind::SessionEnded { .. } => self.session_ended(event, of_a_session(event)),
            // The clients of these tests never cause the following events.
            EventKind::Upgraded { .. }
            | EventKind::Downgraded
            | EventKind::PermitsReturned { .. }
            | EventKind::Resumed { .. }
            | EventKind::Reopened
            | EventKind::HandedOver { .. }
            | EventKind::RevokeRequested { .. }
            | EventKind::ValueChanged
            | EventKind::Recalled
            | EventKind::LimitChanged { .. }
            | EventKind::LeaderlessGap { .. } => {}
        }
    }

    fn queued(&mut self, event: &Event, key: &LockKey, claim: Claim, sequence: u64) {
        if !self.queued.insert(claim) || self.granted.contains(&claim) {
            self.broken(Rule::OnceARequest, event, "it has waited or held before");
        }
        self.must_live(event, claim);
        let lock = self.locks.entry(key.clone()).or_default();
        let last = std::mem::replace(&mut lock.last_sequence, sequence);
        lock.queue.insert(sequence, claim);
        if sequence <= last {
            self.broken(Rule::FirstComeFirstServed, event, &format!("the place before was {last}"));
        }
    }

    fn granted(&mut self, event: &Event, key: &LockKey, claim: Claim, (token, mode): (FencingToken, Mode)) {
        if !self.granted.insert(claim) {
            self.broken(Rule::OnceARequest, event, "it has held before");
        }
        self.must_live(event, claim);
        if let Some(last) = self.last_token.filter(|last| token <= *last) {
            self.broken(Rule::TokensGrow, event, &format!("token {last} was granted before"));
        }
        self.last_token = self.last_token.max(Some(token));
        self.grants.insert((key.name.clone(), token, claim.session()));
        let lock = self.locks.entry(key.clone()).or_default();
        let ahead = lock.queue.first_key_value().map(|(sequence, ahead)| (*sequence, *ahead));
        if ahead.is_some_and(|(_, ahead)| ahead != claim) {
            self.broken(Rule::FirstComeFirstServed, event, &format!("ahead of it was {ahead:?}"));
        }
        let lock = self.locks.entry(key.clone()).or_default();
        lock.queue.retain(|_, waiter| *waiter != claim);
        let conflict = lock.holders.iter().find(|(_, (_, held))| mode != Mode::Shared || *held != Mode::Shared);
        let conflict = conflict.map(|(token, holder)| format!("token {token} is held: {holder:?}"));
        lock.holders.insert(token, (claim, mode));
        if let Some(conflict) = conflict {
            self.broken(Rule::OneHolder, event, &conflict);
        }
    }

    fn ended(&mut self, event: &Event, key: &LockKey, claim: Claim, token: FencingToken) {
        self.ends.insert((key.name.clone(), token));
        let known = self.locks.entry(key.clone()).or_default().holders.remove(&token);
        if known.is_none_or(|(holder, _)| holder != claim) {
            self.broken(Rule::EndsWhatWas, event, &format!("the holder was {known:?}"));
        }
    }

    fn session_ended(&mut self, event: &Event, session: SessionId) {
        if !self.sessions.remove(&session) {
            self.broken(Rule::LiveSessions, event, "it was not open");
        }
        let of_it = |claim: &Claim| claim.session() == Some(session);
        let left = self
            .locks
            .iter()
            .find(|(_, lock)| lock.holders.values().any(|(claim, _)| of_it(claim)) || lock.queue.values().any(of_it));
        if let Some(key) = left.map(|(key, _)| key.clone()) {
            self.broken(Rule::LiveSessions, event, &format!("it still holds or waits for {}", key.name));
        }
    }

    fn must_live(&mut self, event: &Event, claim: Claim) {
        if claim.session().is_some_and(|session| !self.sessions.contains(&session)) {
            self.broken(Rule::LiveSessions, event, "its session is not open");
        }
    }

    fn beliefs_are_disjoint(&mut self, beliefs: &[Belief]) {
        let mut by_lock: BTreeMap<&LockName, Vec<&Belief>> = BTreeMap::new();
        for belief in beliefs.iter().filter(|belief| belief.begin < belief.end) {
            by_lock.entry(&belief.lock).or_default().push(belief);
        }
        for beliefs in by_lock.values_mut() {
            beliefs.sort_by_key(|belief| belief.begin);
            for (at, one) in beliefs.iter().enumerate() {
                let together = beliefs[at + 1..].iter().take_while(|other| other.begin < one.end);
                for other in together.filter(|other| one.mode != Mode::Shared || other.mode != Mode::Shared) {
                    let (a, b) = (one.client, other.client);
                    let what = format!("client {a}: {one:?} while client {b}: {other:?}");
                    self.violations.push(Violation { rule: Rule::BeliefsDisjoint, what });
                }
            }
        }
    }

    /// Checks that a client that requested after another one received its grant has the larger token. A cached hold may
    /// be used again until the same lock is granted to another client. This needs only what the clients saw, and no
    /// node that could report the events in between.
    fn later_asked_are_larger(&mut self, beliefs: &[Belief]) {
        let mut by_begin: Vec<_> = beliefs.iter().collect();
        by_begin.sort_by_key(|belief| belief.begin);
        let mut asked: Vec<_> = beliefs.iter().collect();
        asked.sort_by_key(|belief| belief.asked);
        let mut by_begin = by_begin.into_iter().peekable();
        let (mut largest, mut of_locks, mut used) = (None, BTreeMap::new(), BTreeSet::new());
        for later in asked {
            while let Some(earlier) = by_begin.next_if(|earlier| earlier.begin < later.asked) {
                largest = largest.max(Some(earlier.token));
                let of_lock = of_locks.entry(&earlier.lock).or_insert(earlier.token);
                *of_lock = earlier.token.max(*of_lock);
            }
            let again = !used.insert((later.token, later.session));
            let smaller_than = match of_locks.get(&later.lock) {
                Some(of_lock) if again => Some(*of_lock).filter(|earlier| later.token < *earlier),
                Some(_) | None => largest.filter(|earlier| later.token <= *earlier),
            };
            if let Some(earlier) = smaller_than {
                let what = format!("{later:?} was requested after token {earlier} was granted");
                self.violations.push(Violation { rule: Rule::TokensGrow, what });
            }
        }
    }

    fn acknowledged_happened(&mut self, history: &History) {
        for belief in &history.beliefs {
            let grant = (belief.lock.clone(), belief.token, Some(belief.session));
            if !self.grants.contains(&grant) {
                let what = format!("no event of the grant {belief:?}");
                self.violations.push(Violation { rule: Rule::AcknowledgedHappened, what });
            }
        }
        for release in &history.releases {
            if !self.ends.contains(release) {
                let what = format!("no event of the release of {} (token {})", release.0, release.1);
                self.violations.push(Violation { rule: Rule::AcknowledgedHappened, what });
            }
        }
    }
}

#[cfg(test)]
mod tests;

/// The lock and the claim of an event.
fn of_a_claim(event: &Event) -> (&LockKey, Claim) {
    event.subject.lock().zip(event.subject.claim()).unwrap_or_else(|| panic!("no request: {event:?}"))
}

/// The token of an event about a hold.
fn of_a_hold(event: &Event) -> FencingToken {
    event.subject.token().unwrap_or_else(|| panic!("no token: {event:?}"))
}

/// The session of an event about a session.
fn of_a_session(event: &Event) -> SessionId {
    event.subject.session().unwrap_or_else(|| panic!("no session: {event:?}"))
}
