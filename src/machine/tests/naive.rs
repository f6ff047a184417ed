//! The contract again, as simply as it can be said: lists that are searched from end to end, nothing derived, nothing
//! indexed. It shares the vocabulary with the machine and no line of its rules. Quotas and the sweep's bound are left out.

#![allow(clippy::wildcard_enum_match_arm, clippy::result_large_err, reason = "said as simply as it can be")]

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

    // Time.

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
        self.sessions.retain(|session| session.ended.is_none_or(|(_, until)| now <= until));
        self.takes.retain(|take| take.over.as_ref().is_none_or(|(_, until)| now <= *until));
    }

    // Ends.

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

    // Grants.

    /// As long as a waiter of any lock fits beside its holders and passes nobody whom it may not pass, the one that came
    /// first is granted.
    fn serve(&mut self) {
        loop {
            let mut next: Option<usize> = None;
            for (at, wait) in self.waits.iter().enumerate() {
                let lock = &wait.ask.lock;
                let parts = self.waits.iter().filter(|part| part.ask.claim == wait.ask.claim);
                let mut parts = parts.filter(|part| part.ask.lock == *lock || wait.ask.set);
                let whole = parts.all(|part| {
                    self.clear_ahead(&part.ask, part.sequence)
                        && (part.upgrades.is_some() || self.fits(&part.ask.lock, part.ask.mode))
                });
                let order = |wait: &Wait| (wait.sequence, wait.ask.lock.clone());
                let sooner = next.is_none_or(|best: usize| order(wait) < order(&self.waits[best]));
                let fits = match wait.upgrades {
                    Some(token) => self.alone(lock, token),
                    None => self.fits(lock, wait.ask.mode),
                };
                if whole && sooner && fits {
                    next = Some(at);
                }
            }
            let Some(at) = next else {
                if self.refuse_in_circles() {
                    continue;
                }
                return;
            };
            let wait = self.waits.remove(at);
            if wait.ask.set {
                let mut parts = vec![wait];
                while let Some(at) = self.waits.iter().position(|part| part.ask.claim == parts[0].ask.claim) {
                    parts.push(self.waits.remove(at));
                }
                parts.sort_by_key(|part| part.ask.lock.clone());
                for part in parts {
                    self.grant(part.ask);
                }
                continue;
            }
            match wait.upgrades {
                Some(token) => {
                    self.make_exclusive(&wait.ask, token);
                }
                None => {
                    self.grant(wait.ask);
                }
            }
        }
    }

    /// Whether nobody stands ahead that this one may not pass.
    fn clear_ahead(&self, ask: &Ask, sequence: u64) -> bool {
        let ahead = self.waits.iter().filter(|o| o.ask.lock == ask.lock && o.sequence < sequence);
        let fair = |o: &Wait| ask.extras.fairness == Fairness::Barging && !o.ask.set;
        ahead.filter(|o| fair(o) || conflict(o.ask.mode, ask.mode)).all(|o| passes(ask, &o.ask) || self.goes_by(ask, o))
    }

    /// Whether the session holds what a waiting set lacks, and this one is that set or stands, transitively, behind it.
    fn goes_by(&self, ask: &Ask, ahead: &Wait) -> bool {
        let Some(session) = ask.claim.session() else { return false };
        let lacks = |wait: &&Wait| {
            let blocks = |hold: &Hold| {
                hold.ask.lock == wait.ask.lock
                    && hold.ask.claim.session() == Some(session)
                    && conflict(hold.ask.mode, wait.ask.mode)
            };
            let elsewhere = wait.ask.set && wait.ask.lock != ask.lock;
            elsewhere && self.holds.iter().any(blocks) && !self.fits(&wait.ask.lock, wait.ask.mode)
        };
        let mut reached: Vec<(Claim, u64)> =
            self.waits.iter().filter(lacks).map(|wait| (wait.ask.claim, wait.sequence)).collect();
        let mut at = 0;
        while at < reached.len() {
            let (claim, sequence) = reached[at];
            for part in self.waits.iter().filter(|wait| wait.ask.claim == claim && wait.sequence == sequence) {
                for behind in self.waits.iter().filter(|o| o.ask.lock == part.ask.lock && sequence < o.sequence) {
                    let known = (behind.ask.claim, behind.sequence);
                    if conflict(part.ask.mode, behind.ask.mode) && !reached.contains(&known) {
                        reached.push(known);
                    }
                }
            }
            at += 1;
        }
        reached.contains(&(ahead.ask.claim, ahead.sequence))
    }

    /// Undoes the newest wait where it closes a circle, or asks for what an ancestor holds.
    fn take_back(&mut self) -> Option<Outcome> {
        let newest = self.waits.last().expect("just pushed");
        let (claim, sequence, policy) = (newest.ask.claim, newest.sequence, newest.ask.extras.deadlock);
        let parts: Vec<&Wait> =
            self.waits.iter().filter(|wait| wait.ask.claim == claim && wait.sequence == sequence).collect();
        let circle = parts.iter().any(|wait| {
            self.asks_an_ancestor(&wait.ask) || endless_wait(wait).is_some_and(|party| self.in_circle(&party))
        });
        if policy == OnDeadlock::Wait || !circle {
            return None;
        }
        self.waits.retain(|wait| wait.ask.claim != claim || wait.sequence != sequence);
        self.sequences -= u64::from(sequence != 0);
        self.forget_limits();
        Some(Outcome::Refused(Refusal::Deadlock { circle: vec![] }))
    }

    fn refuse_in_circles(&mut self) -> bool {
        self.suspect_loosened();
        self.suspects.sort();
        while !self.suspects.is_empty() {
            let party = self.suspects.remove(0);
            if !self.in_circle(&party) {
                continue;
            }
            let mine = |wait: &Wait| {
                endless_wait(wait).as_ref() == Some(&party) && wait.ask.extras.deadlock == OnDeadlock::Refuse
            };
            let waits = self.waits.iter().enumerate().filter(|(_, wait)| mine(wait));
            let newest = waits.max_by_key(|(_, wait)| (wait.sequence, wait.ask.lock.clone())).map(|(at, _)| at);
            if let Some(at) = newest {
                self.end_wait(at, Outcome::Refused(Refusal::Deadlock { circle: vec![] }));
                self.suspects.push(party);
                return true;
            }
        }
        false
    }

    fn children(&self, of: &Party) -> Vec<Party> {
        let asks = self.holds.iter().map(|hold| &hold.ask).chain(self.waits.iter().map(|wait| &wait.ask));
        let mine = |ask: &&Ask| {
            let parent = ask.extras.parent.as_ref();
            parent.is_some_and(|parent| parent.session == of.0 && parent.owner == of.1)
        };
        asks.filter(mine).filter_map(party).filter(|child| child != of).collect()
    }

    fn asks_an_ancestor(&self, ask: &Ask) -> bool {
        let (Some(parent), Some(_), false) = (&ask.extras.parent, party(ask), is_semaphore(ask.mode)) else {
            return false;
        };
        let mut ancestors = vec![(parent.session, parent.owner.clone())];
        if party(ask).as_ref() == ancestors.first() {
            return false;
        }
        let everybody = self.everybody();
        while let Some(next) = everybody.iter().find(|party| {
            !ancestors.contains(party) && self.children(party).iter().any(|child| ancestors.contains(child))
        }) {
            ancestors.push(next.clone());
        }
        let mut holds = self.holds.iter().filter(|hold| hold.ask.lock == ask.lock && conflict(hold.ask.mode, ask.mode));
        holds.any(|hold| endless_hold(hold).is_some_and(|party| ancestors.contains(&party)))
    }

    fn everybody(&self) -> Vec<Party> {
        let asks = self.holds.iter().map(|hold| &hold.ask).chain(self.waits.iter().map(|wait| &wait.ask));
        let parents = asks.clone().filter_map(|ask| ask.extras.parent.clone()).map(|p| (p.session, p.owner));
        let mut everybody: Vec<Party> = asks.filter_map(party).chain(parents).collect();
        everybody.sort();
        everybody.dedup();
        everybody
    }

    /// Endless waits ahead of this one that it may not come to pass.
    fn waits_ahead(&self, wait: &Wait) -> Vec<(&Wait, Party)> {
        let ask = &wait.ask;
        if wait.upgrades.is_some() || self.may_come_to_pass(ask) {
            return vec![];
        }
        let ahead = self.waits.iter().filter(|o| o.ask.lock == ask.lock && o.sequence < wait.sequence);
        let fair = |o: &Wait| ask.extras.fairness == Fairness::Barging && !o.ask.set && o.upgrades.is_none();
        let blocks = ahead.filter(|o| fair(o) || conflict(o.ask.mode, ask.mode));
        let blocks = blocks.filter(|o| !passes(ask, &o.ask));
        blocks.filter_map(|o| Some((o, endless_wait(o)?))).collect()
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

    /// Whom or what this wait needs to come to an end; and whether enough of it has.
    fn in_the_way(&self, wait: &Wait, done: &[Node]) -> (Vec<Node>, bool) {
        let (ask, own) = (&wait.ask, endless_wait(wait));
        let is_done = |party: &Party| done.contains(&Node::Party(party.clone()));
        let holds: Vec<(&Hold, Party)> = self
            .holds
            .iter()
            .filter(|hold| hold.ask.lock == ask.lock)
            .filter_map(|hold| Some((hold, endless_hold(hold)?)))
            .collect();
        let ahead = self.waits_ahead(wait);
        let Mode::Permits { count, .. } = ask.mode else {
            let others = holds.into_iter().filter(|(hold, _)| wait.upgrades != Some(hold.token));
            let held = others.filter(|(hold, _)| conflict(hold.ask.mode, ask.mode)).map(|(_, party)| party);
            let ahead = ahead.into_iter().filter(|(_, party)| Some(party) != own.as_ref());
            let ahead = ahead.map(
                |(wait, party)| {
                    if conflict(wait.ask.mode, ask.mode) { Node::Party(party) } else { node_of(wait) }
                },
            );
            let found: Vec<Node> = held.map(Node::Party).chain(ahead).collect();
            let met = found.iter().all(|node| done.contains(node));
            return (found, met);
        };
        let permits = |ask: &Ask| if let Mode::Permits { count, .. } = ask.mode { count } else { 0 };
        let held = holds.iter().map(|(hold, party)| (permits(&hold.ask), party));
        let takers: Vec<_> = held.chain(ahead.iter().map(|(wait, party)| (permits(&wait.ask), party))).collect();
        let stuck = |done: bool| -> u32 {
            takers.iter().filter(|(_, party)| !done || !is_done(party)).map(|(count, _)| count).sum()
        };
        let limit = self.limit(&ask.lock).unwrap_or_default();
        let mut found: Vec<Node> = ahead.iter().map(|(wait, _)| node_of(wait)).collect();
        let granted = found.iter().all(|node| done.contains(node));
        if limit < stuck(false) + count {
            found.extend(takers.iter().map(|(_, party)| Node::Party((*party).clone())));
        }
        (found, granted && stuck(true) + count <= limit)
    }

    /// Whether this party can never finish, and waits, over others that cannot, for itself.
    fn in_circle(&self, party: &Party) -> bool {
        let mut nodes: Vec<Node> = self.everybody().into_iter().map(Node::Party).collect();
        nodes.extend(self.waits.iter().filter(|wait| endless_wait(wait).is_some()).map(node_of));
        let mut done: Vec<Node> = Vec::new();
        while let Some(next) = nodes.iter().find(|node| !done.contains(node) && self.ends(node, &done).1) {
            done.push(next.clone());
        }
        let start = Node::Party(party.clone());
        let mut reached = vec![start.clone()];
        let mut at = 0;
        while at < reached.len() {
            for next in self.ends(&reached[at], &done).0 {
                if next == start && !done.contains(&start) {
                    return true;
                }
                if !done.contains(&next) && !reached.contains(&next) {
                    reached.push(next);
                }
            }
            at += 1;
        }
        false
    }

    /// What has to end before this can; and whether it has.
    fn ends(&self, node: &Node, done: &[Node]) -> (Vec<Node>, bool) {
        match node {
            Node::Wait(claim, lock) => {
                let found = |wait: &&Wait| wait.ask.claim == *claim && wait.ask.lock == *lock;
                self.in_the_way(self.waits.iter().find(found).expect("it waits"), done)
            }
            Node::Party(party) => {
                let waits = self.waits.iter().filter(|wait| endless_wait(wait).as_ref() == Some(party)).map(node_of);
                let found: Vec<Node> = waits.chain(self.children(party).into_iter().map(Node::Party)).collect();
                let met = found.iter().all(|node| done.contains(node));
                (found, met)
            }
        }
    }

    /// Whether nobody but this hold has the lock, or had it a short while ago.
    fn alone(&self, lock: &LockKey, token: FencingToken) -> bool {
        let closed = self.lost.iter().any(|lost| lost.ask.lock == *lock);
        !closed && self.holds.iter().all(|hold| hold.ask.lock != *lock || hold.token == token)
    }

    fn make_exclusive(&mut self, ask: &Ask, token: FencingToken) -> Grant {
        self.tokens += 1;
        let new = FencingToken::new(0, self.tokens);
        let Claim::Request(request) = ask.claim else { panic!("only sessions upgrade") };
        let found = |hold: &&mut Hold| hold.ask.lock == ask.lock && hold.token == token;
        let hold = self.holds.iter_mut().find(found).expect("it is held");
        hold.token = new;
        hold.ask.mode = Mode::Exclusive;
        hold.upgrade = Some((request.number, ask.payload.clone()));
        let deadline = hold.lease_end;
        self.suspects.extend(party(&hold.ask));
        self.granted.push((ask.lock.clone(), ask.claim, new));
        Grant { token: new, deadline, waited_ms: self.now.0 - ask.since.0 }
    }

    fn fits(&self, lock: &LockKey, mode: Mode) -> bool {
        let mut holds = self.holds.iter().map(|hold| &hold.ask).filter(|ask| ask.lock == *lock);
        let lost = self.lost.iter().map(|lost| &lost.ask).filter(|ask| ask.lock == *lock);
        match mode {
            Mode::Exclusive => holds.next().is_none() && lost.count() == 0,
            Mode::Shared => holds.all(|ask| ask.mode == Mode::Shared) && lost.count() == 0,
            Mode::Permits { count, .. } => {
                let permits = |ask: &Ask| if let Mode::Permits { count, .. } = ask.mode { count } else { 0 };
                let used: u32 = holds.chain(lost).map(permits).sum();
                used + count <= self.limit(lock).expect("a semaphore has a limit")
            }
        }
    }

    fn grant(&mut self, ask: Ask) -> Grant {
        self.tokens += 1;
        let token = FencingToken::new(0, self.tokens);
        let lease_ms = ask.lease.as_ref().map(|(_, ms)| *ms).or(ask.extras.lease_ms);
        let lease_end = lease_ms.map(|ms| LogTime(self.now.0 + ms));
        let waited_ms = self.now.0 - ask.since.0;
        self.granted.push((ask.lock.clone(), ask.claim, token));
        self.suspects.extend(party(&ask));
        self.holds.push(Hold { ask, token, since: self.now, lease_end, again: vec![], upgrade: None });
        Grant { token, deadline: lease_end, waited_ms }
    }

    // What is shown and looked up.

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
            deadline: hold.lease_end.into_iter().chain(session_end).min().expect("every hold has an end"),
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

    // Commands.

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

    /// The answer to a request that was seen before, or is too old to be looked at.
    fn seen(&mut self, request: RequestId, below: u64, payload: &Command) -> Option<Outcome> {
        if self.alive(request.session).is_none() {
            return Some(self.session_ended(request.session));
        }
        let session = self.alive(request.session).expect("just seen");
        session.floor = session.floor.max(below);
        let floor = session.floor;
        session.answers.retain(|(number, _, _)| floor <= *number);
        let number = request.number;
        let reused = Outcome::Refused(Refusal::RequestReused { number });
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

    fn acquire(&mut self, principal: &Principal, acquire: &Acquire, payload: Command) -> Outcome {
        if let Some(outcome) = self.seen(acquire.request, acquire.answered_below, &payload) {
            return outcome;
        }
        let namespace = self.alive(acquire.request.session).expect("seen").open.namespace.clone();
        let ask = Ask {
            lock: LockKey { namespace, name: acquire.name.clone() },
            claim: Claim::Request(acquire.request),
            owner: acquire.owner.clone(),
            mode: acquire.mode,
            metadata: acquire.metadata.clone(),
            principal: principal.clone(),
            payload: payload.clone(),
            since: self.now,
            lease: None,
            extras: acquire.choices().clone(),
            set: false,
        };
        let bounds = ask.extras.lease_ms.and_then(|lease_ms| self.lease_bounds(lease_ms));
        let outcome = match bounds.map_or_else(|| self.same_owner(&ask), Err) {
            Err(refused) => refused,
            Ok(Some(at)) => {
                let hold = &mut self.holds[at];
                hold.again.push((acquire.request.number, payload.clone()));
                Outcome::Granted(Grant { token: hold.token, deadline: hold.lease_end, waited_ms: 0 })
            }
            Ok(None) => self.admit(ask, acquire.patience),
        };
        if matches!(outcome, Outcome::Refused(_)) {
            self.remember(acquire.request, Some(payload), outcome.clone());
        }
        outcome
    }

    /// The hold that is entered again, or a refusal; nothing where a stranger asks.
    fn same_owner(&self, ask: &Ask) -> Result<Option<usize>, Outcome> {
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
            if let Mode::Permits { limit: Some(asked), .. } = ask.mode
                && let Some(limit) = self.limit(&lock).filter(|limit| *limit != asked)
            {
                return Err(Outcome::Refused(Refusal::LimitMismatch { lock, limit, asked }));
            }
            let covered = match (hold.ask.mode, ask.mode) {
                (Mode::Permits { count: held, .. }, Mode::Permits { count, .. }) => 0 < count && count <= held,
                (Mode::Exclusive, asked) => !is_semaphore(asked),
                (held, asked) => held == asked,
            };
            if covered {
                return Ok(Some(at));
            }
        }
        Err(Outcome::Refused(Refusal::AlreadyHeld { lock, session, token: Some(hold.token) }))
    }

    /// Grants, queues or refuses somebody new.
    fn admit(&mut self, ask: Ask, patience: Patience) -> Outcome {
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

    /// Refuses what the lock cannot give, and a try where it would have to wait; a new semaphore gets its limit.
    fn judge(&mut self, ask: &Ask, patience: Patience) -> Result<(), Outcome> {
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
        if let Mode::Permits { count, limit: asked } = ask.mode {
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
        if patience == Patience::Try && !free {
            let holder = self.holder(&lock, |_| false).map(Box::new);
            return Err(Outcome::Refused(Refusal::Held { holder, lock }));
        }
        Ok(())
    }

    fn wait(&mut self, ask: Ask, patience: Patience) {
        let week = 7 * 24 * 3_600_000;
        let end = match patience {
            Patience::For { ms } => Some(LogTime(self.now.0 + ms.min(week))),
            Patience::Session | Patience::Try => ask.lease.is_some().then_some(LogTime(self.now.0 + week)),
        };
        self.waits.push(Wait { ask, sequence: self.sequences, end, upgrades: None });
    }

    fn acquire_set(&mut self, principal: &Principal, set: &AcquireSet, payload: Command) -> Outcome {
        if let Some(outcome) = self.seen(set.request, set.answered_below, &payload) {
            return outcome;
        }
        let namespace = self.alive(set.request.session).expect("seen").open.namespace.clone();
        let choices = set.extras.as_deref().cloned().unwrap_or_default();
        let ask = |(name, mode): (&LockName, &Mode)| Ask {
            lock: LockKey { namespace: namespace.clone(), name: name.clone() },
            claim: Claim::Request(set.request),
            owner: set.owner.clone(),
            mode: *mode,
            metadata: set.metadata.clone(),
            principal: principal.clone(),
            payload: payload.clone(),
            since: self.now,
            lease: None,
            extras: Extras { reentry: Reentry::Refuse, fairness: Fairness::Fair, ..choices.clone() },
            set: true,
        };
        let asks: Vec<Ask> = set.members.iter().map(ask).collect();
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

    fn judge_set(&mut self, asks: &[Ask], patience: Patience) -> Result<(), Outcome> {
        if let Some(refused) = asks[0].extras.lease_ms.and_then(|lease_ms| self.lease_bounds(lease_ms)) {
            return Err(refused);
        }
        for ask in asks {
            self.same_owner(ask)?;
        }
        asks.iter().try_for_each(|ask| self.judge(ask, patience))
    }

    fn cancel(&mut self, request: RequestId) -> Outcome {
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
                return Outcome::Granted(Grant { token: hold.token, deadline: hold.lease_end, waited_ms: 0 });
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

    fn release(&mut self, release: &Release, payload: Command) -> Outcome {
        if let Some(outcome) = self.seen(release.request, release.answered_below, &payload) {
            return outcome;
        }
        let id = release.request.session;
        let namespace = self.alive(id).expect("seen").open.namespace.clone();
        let lock = LockKey { namespace, name: release.name.clone() };
        let mine = |hold: &Hold| hold.ask.claim.session() == Some(id);
        let found = |hold: &Hold| hold.ask.lock == lock && hold.token == release.token && mine(hold);
        let outcome = match self.holds.iter().position(found) {
            Some(at) => match self.holds[at].again.last() {
                Some((number, _)) => {
                    let (number, ended) = (*number, Outcome::HoldEnded { reason: EndReason::Released });
                    Outcome::Released { left: self.leave_hold(at, number, ended) }
                }
                None => {
                    self.end_hold(at, EndReason::Released, None);
                    Outcome::Released { left: 0 }
                }
            },
            None => self.not_held(&lock, mine),
        };
        self.remember(release.request, Some(payload), outcome.clone());
        outcome
    }

    fn alter(&mut self, principal: &Principal, alter: &Alter, payload: Command) -> Outcome {
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
                        Outcome::Done
                    }
                    None => self.not_held(&lock, mine),
                }
            }
        };
        if !matches!(outcome, Outcome::Granted(_) | Outcome::Queued(_)) {
            self.remember(alter.request, Some(payload), outcome.clone());
        }
        outcome
    }

    /// Where the session's own hold stands, if it may change its mode.
    fn changeable(&self, id: SessionId, lock: &LockKey, token: FencingToken) -> Result<usize, Outcome> {
        let mine = |hold: &Hold| hold.ask.claim.session() == Some(id);
        let found = |hold: &Hold| hold.ask.lock == *lock && hold.token == token && mine(hold);
        let at = self.holds.iter().position(found).ok_or_else(|| self.not_held(lock, mine))?;
        let hold = &self.holds[at];
        let depth = 1 + hold.again.len() as u32;
        let lock = lock.clone();
        if is_semaphore(hold.ask.mode) {
            return Err(Outcome::Refused(Refusal::KindMismatch { lock, kind: Kind::Semaphore }));
        }
        if 1 < depth { Err(Outcome::Refused(Refusal::Entered { lock, depth })) } else { Ok(at) }
    }

    fn downgrade(&mut self, id: SessionId, lock: &LockKey, token: FencingToken) -> Outcome {
        let at = match self.changeable(id, lock, token) {
            Ok(at) => at,
            Err(refused) => return refused,
        };
        self.holds[at].ask.mode = Mode::Shared;
        if let Some((number, payload)) = self.holds[at].upgrade.take() {
            let ended = Outcome::HoldEnded { reason: EndReason::Released };
            self.remember(RequestId { session: id, number }, Some(payload), ended);
        }
        Outcome::Downgraded
    }

    fn upgrade(
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
        let mut ask =
            Ask { claim, mode: Mode::Exclusive, since, payload, lease: None, set: false, ..self.holds[at].ask.clone() };
        ask.extras = Extras::default();
        let upgrader = self.waits.iter().find(|wait| wait.ask.lock == *lock && wait.upgrades.is_some());
        let first = upgrader.and_then(|wait| wait.upgrades);
        let alone = first.is_none() && self.alone(lock, token);
        if alone {
            return Outcome::Granted(self.make_exclusive(&ask, token));
        }
        if first.is_some() || patience == Patience::Try {
            let named = |hold: &Hold| first.map_or(hold.token != token, |first| hold.token == first);
            let holder = self.holder(lock, |hold| !named(hold)).map(Box::new);
            return Outcome::Refused(Refusal::Held { lock: lock.clone(), holder });
        }
        let end = if let Patience::For { ms } = patience { Some(LogTime(self.now.0 + ms)) } else { None };
        self.waits.push(Wait { ask, sequence: 0, end, upgrades: Some(token) });
        if let Some(refused) = self.take_back() {
            return refused;
        }
        self.queued(self.waits.last().expect("just pushed"))
    }

    #[allow(clippy::too_many_arguments, reason = "said as simply as it can be")]
    fn resume(
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
        let Some(at) = self.lost.iter().position(|lost| lost.ask.lock == *lock && lost.token == token) else {
            return self.not_held(lock, |hold| hold.ask.claim.session() == Some(alter.request.session));
        };
        let loser = self.lost[at].ask.claim.session();
        if !self.sessions.iter().any(|session| Some(session.id) == loser && session.open.handle == *handle) {
            return Outcome::Refused(Refusal::WrongHandle);
        }
        let lost = self.lost.remove(at).ask;
        let (claim, principal) = (Claim::Request(alter.request), principal.clone());
        let extras = Extras { lease_ms, ..lost.extras.clone() };
        Outcome::Granted(self.grant(Ask {
            claim,
            principal,
            since: self.now,
            payload: payload.clone(),
            extras,
            set: false,
            ..lost
        }))
    }

    fn manage(&mut self, lock: &LockKey, what: &Managing) -> Outcome {
        let at = |token: FencingToken| self.holds.iter().position(|hold| hold.ask.lock == *lock && hold.token == token);
        match what {
            Managing::SetLimit { limit } => self.set_limit(lock, *limit),
            Managing::RemoveLimit if self.is_lock(lock) => {
                Outcome::Refused(Refusal::KindMismatch { lock: lock.clone(), kind: Kind::Lock })
            }
            Managing::RemoveLimit => {
                if let Some((_, _, kept)) = self.limits.iter_mut().find(|(known, ..)| known == lock) {
                    *kept = false;
                }
                self.forget_limits();
                Outcome::Done
            }
            Managing::Ask { token, .. } => match at(*token) {
                Some(_) => Outcome::Done,
                None => self.not_held(lock, |_| false),
            },
            Managing::Break { token, dry_run, .. } => self.break_hold(lock, *token, *dry_run),
            Managing::HandOver { token, to } => self.hand_over(lock, *token, *to),
        }
    }

    fn is_lock(&self, lock: &LockKey) -> bool {
        let holds = self.holds.iter().map(|hold| &hold.ask);
        let asks = holds.chain(self.waits.iter().map(|wait| &wait.ask)).chain(self.lost.iter().map(|lost| &lost.ask));
        asks.filter(|ask| ask.lock == *lock).any(|ask| !is_semaphore(ask.mode))
    }

    fn set_limit(&mut self, lock: &LockKey, limit: u32) -> Outcome {
        if self.is_lock(lock) {
            return Outcome::Refused(Refusal::KindMismatch { lock: lock.clone(), kind: Kind::Lock });
        }
        let lowered = self.limit(lock).is_some_and(|old| limit < old);
        self.limits.retain(|(known, ..)| known != lock);
        self.limits.push((lock.clone(), limit, true));
        let wants = |wait: &Wait| match wait.ask.mode {
            Mode::Permits { count, .. } if wait.ask.lock == *lock && limit < count => Some(count),
            _ => None,
        };
        while let Some((at, asked)) = self.waits.iter().enumerate().find_map(|(at, wait)| Some((at, wants(wait)?))) {
            self.end_wait(at, Outcome::Refused(Refusal::LimitExceeded { lock: lock.clone(), limit, asked }));
        }
        if lowered {
            let waits = self.waits.iter().filter(|wait| wait.ask.lock == *lock);
            self.suspects.extend(waits.filter_map(endless_wait));
        }
        Outcome::Done
    }

    fn break_hold(&mut self, lock: &LockKey, token: FencingToken, dry_run: bool) -> Outcome {
        let held = self.holds.iter().position(|hold| hold.ask.lock == *lock && hold.token == token);
        let lost = self.lost.iter().position(|lost| lost.ask.lock == *lock && lost.token == token);
        let (holder, claim) = match (held, lost) {
            (Some(at), _) => (self.view(&self.holds[at]), self.holds[at].ask.claim),
            (None, Some(at)) => {
                let Lost { ask, token, until, since } = &self.lost[at];
                let end = Some(*until);
                let hold = Hold {
                    ask: ask.clone(),
                    token: *token,
                    since: *since,
                    lease_end: end,
                    again: vec![],
                    upgrade: None,
                };
                (HolderView { deadline: *until, ..self.view(&hold) }, ask.claim)
            }
            (None, None) => return self.not_held(lock, |_| false),
        };
        let last_seen = claim.session().and_then(|id| self.alive(id)).map(|session| session.seen);
        let waits = self.waits.iter().filter(|wait| wait.ask.lock == *lock);
        let next = waits.min_by_key(|wait| wait.sequence).map(|wait| WaiterView {
            place: 1,
            sequence: wait.sequence,
            session: wait.ask.claim.session(),
            owner: wait.ask.owner.clone(),
            mode: wait.ask.mode,
            metadata: wait.ask.metadata.clone(),
            since: wait.ask.since,
        });
        match (held, lost) {
            (Some(at), _) if !dry_run => self.end_hold(at, EndReason::Broken, None),
            (_, Some(at)) if !dry_run => {
                self.lost.remove(at);
                self.forget_limits();
            }
            _ => {}
        }
        Outcome::Broken(Box::new(Breach { done: !dry_run, holder, last_seen, next }))
    }

    fn hand_over(&mut self, lock: &LockKey, from: FencingToken, to: SessionId) -> Outcome {
        let Some(session) = self.alive(to) else { return self.session_ended(to) };
        let (namespace, open) = (session.open.namespace.clone(), session.open.clone());
        let held = |hold: &Hold| hold.ask.lock == *lock && hold.token == from;
        let Some(at) = self.holds.iter().position(held) else { return self.not_held(lock, |_| false) };
        let refused = Outcome::Refused(Refusal::NotAccepted { lock: lock.clone(), session: to });
        if namespace != lock.namespace {
            return refused;
        }
        let wants = |wait: &Wait| {
            wait.ask.lock == *lock && wait.ask.claim.session() == Some(to) && wait.upgrades.is_none() && !wait.ask.set
        };
        let waits = self.waits.iter().enumerate().filter(|(_, wait)| wants(wait));
        let heir = waits.min_by_key(|(_, wait)| wait.sequence).map(|(at, _)| at);
        let ask = match heir {
            Some(heir) => {
                let old = self.holds.remove(at);
                let fits = self.fits(lock, self.waits[heir].ask.mode);
                self.holds.insert(at, old);
                if !fits {
                    let holder = self.holder(lock, held).map(Box::new);
                    return Outcome::Refused(Refusal::Held { lock: lock.clone(), holder });
                }
                self.waits.remove(heir).ask
            }
            None if !open.accepts_hand_over => return refused,
            None => {
                let number = (1 << 63) | (self.tokens + 1);
                Ask {
                    claim: Claim::Request(RequestId { session: to, number }),
                    owner: None,
                    metadata: open.metadata.clone(),
                    since: self.now,
                    lease: None,
                    extras: Extras::default(),
                    set: false,
                    principal: Principal::default(),
                    ..self.holds[at].ask.clone()
                }
            }
        };
        let kept = self.limits.iter().find(|(known, ..)| known == lock).cloned();
        self.end_hold(at, EndReason::HandedOver, None);
        if let Some(kept) = kept.filter(|_| self.limit(lock).is_none()) {
            self.limits.push(kept);
        }
        let Claim::Request(to) = ask.claim else { panic!("only sessions are handed anything") };
        Outcome::HandedOver { token: self.grant(ask).token, to }
    }

    fn take(&mut self, principal: &Principal, take: &TakeLease, payload: Command) -> Outcome {
        if let Some(known) = self.takes.iter().find(|known| known.id == take.take && known.lock == take.lock) {
            if known.handle != take.handle {
                return Outcome::Refused(Refusal::WrongHandle);
            }
            if known.payload.as_ref().is_some_and(|known| *known != payload) {
                return Outcome::Refused(Refusal::RequestReused { number: 0 });
            }
            let over = known.over.as_ref().map(|(outcome, _)| outcome.clone());
            let standing = || self.standing(Some(&take.lock), Claim::Take(take.take)).map(|(_, outcome)| outcome);
            return over.or_else(standing).expect("a take waits, holds or is over");
        }
        if let Some(refused) = self.lease_bounds(take.lease_ms) {
            return refused;
        }
        let used = |ask: &Ask| ask.lock == take.lock && ask.lease.as_ref().is_some_and(|(h, _)| *h == take.handle);
        if self.holds.iter().any(|hold| used(&hold.ask)) || self.waits.iter().any(|wait| used(&wait.ask)) {
            let holder = self.holder(&take.lock, |_| false).map(Box::new);
            return Outcome::Refused(Refusal::Held { lock: take.lock.clone(), holder });
        }
        let ask = Ask {
            lock: take.lock.clone(),
            claim: Claim::Take(take.take),
            owner: None,
            mode: take.mode,
            metadata: take.metadata.clone(),
            principal: principal.clone(),
            payload: payload.clone(),
            since: self.now,
            lease: Some((take.handle.clone(), take.lease_ms)),
            extras: Extras::default(),
            set: false,
        };
        let outcome = self.admit(ask, take.patience);
        // A refused take is forgotten: a poller that tries for ever would fill the cluster's memory.
        if !matches!(outcome, Outcome::Refused(_)) {
            let (lock, id, handle) = (take.lock.clone(), take.take, take.handle.clone());
            self.takes.push(Taken { lock, id, handle, payload: Some(payload), over: None });
        }
        outcome
    }

    fn cancel_take(&mut self, lock: &LockKey, id: TakeId, handle: &Handle) -> Outcome {
        let until = LogTime(self.now.0 + TEN_MINUTES_MS);
        let claim = Claim::Take(id);
        let known = self.takes.iter().find(|take| take.id == id && take.lock == *lock);
        if known.is_some_and(|take| take.handle != *handle) {
            return Outcome::Refused(Refusal::WrongHandle);
        }
        if known.is_none() {
            let (lock, handle, over) = (lock.clone(), handle.clone(), Some((Outcome::Withdrawn, until)));
            self.takes.push(Taken { lock, id, handle, payload: None, over });
        } else if let Some(at) = self.waits.iter().position(|w| w.ask.claim == claim && w.ask.lock == *lock) {
            self.end_wait(at, Outcome::Withdrawn);
        } else if let Some(at) = self.holds.iter().position(|h| h.ask.claim == claim && h.ask.lock == *lock) {
            self.end_hold(at, EndReason::Cancelled, Some(Outcome::Withdrawn));
        }
        Outcome::Withdrawn
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
