//! Explanations of waits: which requests wait for which others, why, and what would end each wait. They are for
//! display, so they are bounded and describe only the current state.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Machine;
use crate::limits::{EXPLAINED_OBSTACLES_MAX, EXPLAINED_WAITS_MAX};
use crate::model::{
    About, ExplainedWait, Explanation, FencingToken, Health, LockKey, Obstacle, Participant, SessionId, WaitReason,
};
use crate::state::{ClaimState, HEAD, Holder, OwnerKey, Purpose, Waiter};

/// A wait, by the lock of one of its queues and its sequence number there.
type Wait = (LockKey, u64);

/// The explanation so far.
#[derive(Default)]
struct Found {
    explanation: Explanation,
    /// Waits that were explained or will be. The lock is set only for upgrades, which all share one sequence number.
    seen: BTreeSet<(u64, Option<LockKey>)>,
    work: VecDeque<Wait>,
    /// Whether an owner waits for something, for each owner whose waits were searched for.
    busy: BTreeMap<OwnerKey, bool>,
    ends: BTreeSet<(LockKey, FencingToken)>,
}

impl Found {
    fn add(&mut self, (key, sequence): Wait) {
        // Upgrades share one sequence number. Every other number belongs to one request.
        let own = (sequence == HEAD).then(|| key.clone());
        if self.seen.insert((sequence, own)) {
            self.work.push_back((key, sequence));
        }
    }

    fn freed_by(&mut self, obstacle: Obstacle) {
        let Some(token) = obstacle.who.token else { return };
        if self.ends.insert((obstacle.lock.clone(), token)) {
            self.explanation.freed_by.push(obstacle);
        }
    }
}

impl Machine {
    /// Explains the waits of the subject, and the waits of the requests that those wait for.
    pub(super) fn explain(&self, about: &About) -> Explanation {
        let mut found = Found::default();
        for wait in self.waits_about(about) {
            found.add(wait);
            while let Some(wait) = found.work.pop_front() {
                if found.explanation.chain.len() == EXPLAINED_WAITS_MAX {
                    found.explanation.more = true;
                    return found.explanation;
                }
                self.explain_wait(&mut found, &wait);
            }
        }
        if let (About::Lock(key), true) = (about, found.explanation.chain.is_empty()) {
            let holders = self.state.holders(key);
            for (token, holder) in holders.take(EXPLAINED_OBSTACLES_MAX) {
                found.explanation.freed_by.push(self.held(key, token, holder));
            }
            let left = EXPLAINED_OBSTACLES_MAX.saturating_sub(found.explanation.freed_by.len());
            found.explanation.freed_by.extend(self.closed(key).take(left));
        }
        found.explanation
    }

    fn waits_about<'a>(&'a self, about: &'a About) -> Box<dyn Iterator<Item = Wait> + 'a> {
        let waits = |session: &'a SessionId| {
            let standings = self.state.claims(*session);
            standings.filter_map(|(number, key, standing)| match standing {
                ClaimState::Waiting(sequence) => Some((number, (key.clone(), sequence))),
                ClaimState::Holding(_) => None,
            })
        };
        match about {
            About::Lock(key) => {
                let queue = self.state.lock(key).into_iter().flat_map(|lock| lock.queue.keys());
                Box::new(queue.map(|sequence| (key.clone(), *sequence)))
            }
            About::Session(session) => Box::new(waits(session).map(|(_, wait)| wait)),
            About::Request(request) => {
                let own = waits(&request.session).filter(|(number, _)| *number == request.number);
                Box::new(own.map(|(_, wait)| wait))
            }
        }
    }

    fn explain_wait(&self, found: &mut Found, (key, sequence): &Wait) {
        let Some(waiter) = self.state.waiter(key, *sequence) else { return };
        let mut waits_for = Vec::new();
        let mut more = false;
        for key in self.waits_at(key, waiter.request.claim, *sequence) {
            // A set may want each of its locks in another mode.
            let Some(member) = self.state.waiter(&key, *sequence) else { continue };
            more |= self.obstacles(&mut waits_for, &key, *sequence, member);
        }
        more |= EXPLAINED_OBSTACLES_MAX < waits_for.len();
        waits_for.truncate(EXPLAINED_OBSTACLES_MAX);
        for obstacle in &waits_for {
            match (obstacle.why, obstacle.sequence) {
                (WaitReason::StandsAhead, Some(ahead)) => found.add((obstacle.lock.clone(), ahead)),
                (WaitReason::Holds, _) if !self.follow(found, &obstacle.who) => found.freed_by(obstacle.clone()),
                (WaitReason::Holds | WaitReason::StandsAhead | WaitReason::Nested | WaitReason::Closed, _) => {}
            }
        }
        let at = waits_for.first().map_or(key, |obstacle| &obstacle.lock).clone();
        let place = self.place(&at, *sequence).place;
        let parent = waiter.request.choices().parent.clone();
        let (sequence, until, waiter) = (*sequence, waiter.deadline, self.waiting(waiter));
        found.explanation.chain.push(ExplainedWait { lock: at, place, sequence, waiter, parent, until, waits_for });
        found.explanation.more |= more;
    }

    /// Adds what blocks the wait at this lock: its holders, what keeps the lock closed, then the nearest requests
    /// ahead. Returns whether something was left out because of the bounds.
    fn obstacles(&self, into: &mut Vec<Obstacle>, key: &LockKey, sequence: u64, waiter: &Waiter) -> bool {
        let Some(lock) = self.state.lock(key) else { return false };
        let before = into.len();
        if !lock.admits(waiter.request.mode) || matches!(waiter.purpose, Purpose::Upgrade(_)) {
            let holders = lock.holders.iter();
            let blocking = holders.filter(|(token, holder)| waiter.waits_for(**token, holder.request.mode));
            into.extend(blocking.take(EXPLAINED_OBSTACLES_MAX).map(|(token, holder)| self.held(key, *token, holder)));
            into.extend(self.closed(key).take(EXPLAINED_OBSTACLES_MAX));
        }
        let passable = match waiter.request.claim.session() {
            Some(session) if lock.queue.has_sets() => self.passable(session, key),
            Some(_) | None => BTreeMap::new(),
        };
        let left = EXPLAINED_OBSTACLES_MAX.saturating_sub(into.len() - before);
        let nearest = lock.queue.range(..sequence).rev();
        let mut ahead = nearest.filter(|(at, other)| waiter.way().is_blocked_by(other) && !passable.contains_key(at));
        for (at, other) in ahead.by_ref().take(left) {
            let who = self.waiting(other);
            into.push(Obstacle { lock: key.clone(), why: WaitReason::StandsAhead, sequence: Some(*at), who });
        }
        ahead.next().is_some()
    }

    /// Adds the waits of this holder and of its nested runs to those to explain. Returns `false` if it waits for
    /// nothing.
    fn follow(&self, found: &mut Found, who: &Participant) -> bool {
        let Some(party) = who.session.zip(who.owner.clone()) else { return false };
        if let Some(busy) = found.busy.get(&party) {
            return *busy;
        }
        let children = self.state.index.owners.get(&party).into_iter().flat_map(|owned| owned.children.keys().cloned());
        let children: Vec<_> = children.take(EXPLAINED_OBSTACLES_MAX).collect();
        let own = self.waits_of(&party);
        let nested = children.iter().flat_map(|child| self.waits_of(child));
        let waits: Vec<Wait> = own.into_iter().chain(nested).take(EXPLAINED_WAITS_MAX).collect();
        let busy = !waits.is_empty();
        waits.into_iter().for_each(|wait| found.add(wait));
        found.busy.insert(party, busy);
        busy
    }

    fn waits_of(&self, owner: &OwnerKey) -> Vec<Wait> {
        let waits = self.state.index.owners.get(owner).into_iter().flat_map(|owned| &owned.waits);
        waits.take(EXPLAINED_WAITS_MAX).cloned().collect()
    }

    fn held(&self, key: &LockKey, token: FencingToken, holder: &Holder) -> Obstacle {
        let who = self.holding(token, holder);
        Obstacle { lock: key.clone(), why: WaitReason::Holds, sequence: None, who }
    }

    fn closed(&self, key: &LockKey) -> impl Iterator<Item = Obstacle> {
        let delays = self.state.lock(key).into_iter().flat_map(|lock| &lock.delays);
        delays.map(|(token, delayed)| {
            let who = Participant { ends: Some(delayed.until), ..self.holding(*token, &delayed.holder) };
            Obstacle { lock: key.clone(), why: WaitReason::Closed, sequence: None, who }
        })
    }

    fn holding(&self, token: FencingToken, holder: &Holder) -> Participant {
        let session = holder.request.claim.session();
        Participant {
            session,
            owner: holder.request.owner.clone(),
            metadata: (*holder.request.metadata).clone(),
            token: Some(token),
            mode: holder.request.mode,
            since: holder.since,
            health: self.health(session),
            ends: holder.deadline(self.state.session_deadline(session)),
            recalled: holder.is_recalled(),
        }
    }

    fn waiting(&self, waiter: &Waiter) -> Participant {
        let session = waiter.request.claim.session();
        let ends = self.state.session_deadline(session).into_iter().chain(waiter.deadline).min();
        Participant {
            session,
            owner: waiter.request.owner.clone(),
            metadata: (*waiter.request.metadata).clone(),
            token: None,
            mode: waiter.request.mode,
            since: waiter.since,
            health: self.health(session),
            ends,
            recalled: false,
        }
    }

    pub(super) fn health(&self, session: Option<SessionId>) -> Health {
        let Some(id) = session else { return Health::Lease };
        let Some(session) = self.state.session(id) else { return Health::Gone };
        let record = &session.record;
        if record.disconnected {
            return Health::Disconnected;
        }
        let silent_ms = self.state.globals.now.ms_since(record.renewed);
        if record.ttl_ms / 2 < silent_ms { Health::Overdue } else { Health::Live }
    }
}
