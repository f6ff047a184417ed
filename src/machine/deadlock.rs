//! Deadlock detection over named owners, exactly: what can still finish is reduced until nothing changes; whoever is left
//! and waits, over others that are left, for itself is in a circle.
//!
//! A waiter needs every holder in its way to finish, and everybody ahead whom it may not pass; a permit wait needs only so
//! many holders to finish as have enough permits together. Whoever can go on by itself is never in the way, so that an alarm
//! is never false.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Machine;
use super::graph::{Graph, Node, Told};
use super::lock::Lock;
use super::parties::{Party, holding_party, waiting_party};
use super::queue::{conflict, request_of_set};
use super::state::{Purpose, Standing, Waiter, permits_of, request_of};
use crate::model::{
    CircleLink, Claim, FencingToken, Kind, LeaveReason, LockKey, Mode, OnDeadlock, Outcome, Refusal, RequestId,
    SessionId, WaitsBecause,
};

impl Machine {
    /// The circle that this party's waits close, if they do.
    pub(super) fn circle_of(&self, party: &Party) -> Option<Vec<CircleLink>> {
        if !self.may_be_in_circle(party) {
            return None;
        }
        let mut graph = Graph::default();
        graph.number(Node::Party(party.clone()));
        let mut explored = 0;
        while explored < graph.nodes.len() {
            self.explore(&mut graph, explored);
            explored += 1;
        }
        let left = graph.reduce();
        let circle = if left[0] { graph.circle(&left) } else { None };
        Some(circle?.into_iter().filter_map(|(node, told)| self.link(node, told)).collect())
    }

    /// How one in a circle is told.
    fn link(&self, node: &Node, (lock, why): &Told) -> Option<CircleLink> {
        let (party, says) = match node {
            Node::Wait(key, sequence) => {
                let waiter = self.locks.get(key)?.queue.get(sequence)?;
                (waiting_party(waiter)?, Arc::clone(&waiter.metadata))
            }
            Node::Party(party) => {
                let held = self.parties.get(party)?.holds.first();
                let holder = held.and_then(|(key, token)| self.locks.get(key)?.holders.get(token));
                (party.clone(), holder.map(|holder| Arc::clone(&holder.metadata)).unwrap_or_default())
            }
        };
        Some(CircleLink::new(party, &says, lock.clone(), *why))
    }

    fn explore(&self, graph: &mut Graph, number: usize) {
        match graph.nodes[number].clone() {
            Node::Party(party) => self.needs_of_party(graph, number, &party),
            Node::Wait(key, sequence) => self.needs_of_wait(graph, number, &key, sequence),
        }
    }

    fn needs_of_party(&self, graph: &mut Graph, number: usize, party: &Party) {
        let Some(ties) = self.parties.get(party) else { return };
        for (key, sequence) in &ties.waits {
            graph.need(number, 1, vec![(Node::Wait(key.clone(), *sequence), 1)], None);
        }
        for child in ties.children.keys() {
            let theirs = self.parties.get(child);
            let lock = theirs.and_then(|ties| {
                let waits = ties.waits.first().map(|(key, _)| key);
                waits.or(ties.holds.first().map(|(key, _)| key))
            });
            if let Some(lock) = lock {
                let told = (lock.clone(), WaitsBecause::Nested);
                graph.need(number, 1, vec![(Node::Party(child.clone()), 1)], Some(&told));
            }
        }
    }

    fn needs_of_wait(&self, graph: &mut Graph, number: usize, key: &LockKey, sequence: u64) {
        let Some(lock) = self.locks.get(key) else { return };
        let Some(waiter) = lock.queue.get(&sequence) else { return };
        let Some(party) = waiting_party(waiter) else { return };
        let ahead = self.blocked_by_ahead(graph, key, lock, sequence);
        let (holds, behind) = ((key.clone(), WaitsBecause::Holds), (key.clone(), WaitsBecause::StandsAhead));
        if lock.kind == Kind::Semaphore {
            let grants = |at: u64| self.grants_of(key, lock, at);
            return needs_of_permits(graph, number, (lock, waiter), &ahead, grants, (&holds, &behind));
        }
        for (token, holder) in &lock.holders {
            let own = waiter.purpose == Purpose::Upgrade(*token);
            if let Some(party) = holding_party(holder).filter(|_| !own && conflict(holder.mode, waiter.mode)) {
                graph.need(number, 1, vec![(Node::Party(party), 1)], Some(&holds));
            }
        }
        for (at, other) in ahead.into_iter().filter(|(_, other)| *other != party) {
            // Beside one with which it could share the lock it only has to wait for that one's grant.
            let beside = lock.queue.get(&at).is_some_and(|ahead| !conflict(ahead.mode, waiter.mode));
            let node = if beside { Node::Wait(key.clone(), at) } else { Node::Party(other) };
            graph.need(number, 1, vec![(node, 1)], Some(&behind));
        }
    }

    /// What has to be granted so that whoever stands at this number is gone from the queue: a set goes whole.
    fn grants_of(&self, key: &LockKey, lock: &Lock, sequence: u64) -> Vec<Node> {
        let set = lock.queue.get(&sequence).and_then(request_of_set);
        let members = set.map_or_else(|| vec![key.clone()], |request| self.members_waiting(request, sequence));
        members.into_iter().map(|member| Node::Wait(member, sequence)).collect()
    }

    /// Parties ahead in the queue without whose end this one is never granted. Whoever stands ahead of a fair one that is
    /// in everybody's way is in that one's way too, and need not be named.
    fn blocked_by_ahead(&self, graph: &mut Graph, key: &LockKey, lock: &Lock, sequence: u64) -> Vec<(u64, Party)> {
        let mut found = Vec::new();
        let Some(waiter) = lock.queue.get(&sequence) else { return found };
        if matches!(waiter.purpose, Purpose::Upgrade(_)) {
            return found;
        }
        // Whom it may come to pass is no reason for an alarm.
        let passes = self.may_come_to_pass(graph, key, waiter);
        for (at, ahead) in lock.queue.range(..sequence).rev() {
            let fair = waiter.barges() && ahead.purpose == Purpose::Hold && !ahead.barges();
            let both_barge = waiter.barges() && ahead.barges();
            if both_barge || passes.contains(at) || !(fair || conflict(ahead.mode, waiter.mode)) {
                continue;
            }
            let Some(party) = waiting_party(ahead) else { continue };
            found.push((*at, party));
            let wide =
                lock.kind == Kind::Lock && !ahead.barges() && conflict(ahead.mode, waiter.mode) && is_wide(ahead);
            if wide && self.may_come_to_pass(graph, key, ahead).is_empty() {
                break;
            }
        }
        found
    }

    /// Whom this waiter passes, or may one day pass, here: sets that wait at another lock where its session stands by
    /// another request, in a mode that they conflict with, and everybody behind them. Whether that request comes to hold
    /// the lock, and whether the set lacks it then, is left open: an alarm must never be false.
    fn may_come_to_pass(&self, graph: &mut Graph, at: &LockKey, waiter: &Waiter) -> BTreeSet<u64> {
        let Some((id, own)) = request_of(waiter.claim).filter(|_| self.sets_waiting != 0) else {
            return BTreeSet::new();
        };
        let beside = graph.beside_sets.entry(id).or_insert_with(|| self.beside_sets(id));
        let elsewhere = beside.iter().filter(|(key, number, _)| key != at && *number != own);
        let mut sets = Vec::new();
        for (key, number, mode) in elsewhere {
            let queue = self.locks.get(key).into_iter().flat_map(|lock| &lock.queue);
            let theirs = Claim::Request(RequestId { session: id, number: *number });
            let conflicting = queue.filter(|(_, set)| set.purpose == Purpose::Set && conflict(*mode, set.mode));
            let others = conflicting.filter(|(_, set)| set.claim != theirs);
            sets.extend(others.map(|(sequence, set)| (*sequence, key.clone(), set.claim)));
        }
        self.and_behind(sets)
    }

    /// Where this session stands beside waiting sets, by its requests, and in which mode.
    fn beside_sets(&self, session: SessionId) -> Vec<(LockKey, u64, Mode)> {
        let standings = self.sessions.get(&session).into_iter().flat_map(|session| session.standings());
        let beside = standings.filter_map(|(number, key, standing)| {
            let lock = self.locks.get(key).filter(|lock| 0 < lock.sets)?;
            let mode = match standing {
                Standing::Holds(token) => lock.holders.get(&token)?.mode,
                Standing::Waits(sequence) => lock.queue.get(&sequence)?.mode,
            };
            Some((key.clone(), number, mode))
        });
        beside.collect()
    }

    /// What a wait that was just added is told where it closes a circle and does not want to wait all the same. Also where
    /// an ancestor holds what a nested run asks for.
    pub(super) fn closes_circle(&self, key: &LockKey, sequence: u64) -> Option<Vec<CircleLink>> {
        let waiter = self.locks.get(key)?.queue.get(&sequence)?;
        if waiter.choices().deadlock == OnDeadlock::Wait {
            return None;
        }
        let ancestor = self.held_by_ancestor(key, waiter);
        ancestor.or_else(|| self.circle_of(&waiting_party(waiter)?))
    }

    fn held_by_ancestor(&self, key: &LockKey, waiter: &Waiter) -> Option<Vec<CircleLink>> {
        let parent = waiter.choices().parent.as_ref()?;
        let (session, owner) = waiter.claim.session().zip(waiter.owner.clone())?;
        if parent.session == session && parent.owner == owner {
            return None;
        }
        let mut ancestors = BTreeSet::new();
        let mut work = vec![(parent.session, parent.owner.clone())];
        while let Some(party) = work.pop() {
            let parents = self.parties.get(&party).into_iter().flat_map(|ties| ties.parents.keys().cloned());
            work.extend(parents.filter(|parent| !ancestors.contains(parent)));
            ancestors.insert(party);
        }
        // Permits may come from others than the ancestor.
        let lock = self.locks.get(key).filter(|lock| lock.kind == Kind::Lock)?;
        let in_the_way = lock.holders.values().map(Box::as_ref).filter(|holder| conflict(holder.mode, waiter.mode));
        let mut ancestor = in_the_way
            .filter_map(|holder| Some((holding_party(holder).filter(|party| ancestors.contains(party))?, holder)));
        let (above, holder) = ancestor.next()?;
        Some(vec![
            CircleLink::new((session, owner), &waiter.metadata, key.clone(), WaitsBecause::Holds),
            CircleLink::new(above, &holder.metadata, key.clone(), WaitsBecause::Nested),
        ])
    }

    /// Undoes a wait that was just added, as if it had never been there, and refuses it.
    pub(super) fn take_back(
        &mut self,
        keys: &[LockKey],
        sequence: u64,
        events: usize,
        circle: Vec<CircleLink>,
    ) -> Outcome {
        let loosened = std::mem::take(&mut self.loosened);
        for key in keys {
            let Some(waiter) = self.remove_waiter(key, sequence) else { continue };
            if let Claim::Request(request) = waiter.claim
                && let Some(session) = self.sessions.get_mut(&request.session)
            {
                session.stand_down(request.number, key);
            }
            self.touched.insert(key.clone());
        }
        self.loosened = loosened;
        self.events.truncate(events);
        if sequence != super::upgrade::HEAD {
            self.globals.sequences -= 1;
        }
        Outcome::Refused(Refusal::Deadlock { circle })
    }

    /// A holder that waits elsewhere, itself or by a nested run, may close a circle by what it holds now.
    pub(super) fn suspect(&mut self, key: &LockKey, token: FencingToken) {
        let holder = self.locks.get(key).and_then(|lock| lock.holders.get(&token)).map(Box::as_ref);
        let Some(party) = holder.and_then(holding_party) else { return };
        if self.parties.get(&party).is_some_and(|ties| !ties.waits.is_empty() || !ties.children.is_empty()) {
            self.suspects.insert(party);
        }
    }

    /// A semaphore's limit was lowered: each of its waiters may need more to be given back than before.
    pub(super) fn suspect_waiters(&mut self, key: &LockKey) {
        let queue = self.locks.get(key).into_iter().flat_map(|lock| lock.queue.values());
        let parties: Vec<Party> = queue.filter_map(waiting_party).collect();
        self.suspects.extend(parties);
    }

    /// A session stands no longer at a lock where sets wait, or they wait there no longer: so it may pass fewer elsewhere.
    /// Called before the change.
    pub(super) fn loosen(&mut self, key: &LockKey, gone: Claim, last_set: bool) {
        let Some(lock) = self.locks.get(key).filter(|lock| last_set || 0 < lock.sets) else { return };
        let holders = lock.holders.values().map(|holder| holder.claim);
        let all = holders.chain(lock.queue.values().map(|waiter| waiter.claim)).filter(|_| last_set);
        let sessions: Vec<SessionId> = all.chain([gone]).filter_map(|claim| claim.session()).collect();
        self.loosened.extend(sessions.into_iter().map(|session| (session, key.clone())));
    }

    /// Those who may pass fewer than before may be in a circle by now.
    fn suspect_loosened(&mut self) {
        for (id, key) in std::mem::take(&mut self.loosened) {
            let Some(session) = self.sessions.get(&id) else { continue };
            let beside_sets = self.locks.get(&key).is_some_and(|lock| 0 < lock.sets);
            if beside_sets && session.standings().any(|(_, other, _)| *other == key) {
                continue;
            }
            let waiting = session.standings().filter_map(|(_, key, standing)| {
                let Standing::Waits(sequence) = standing else { return None };
                waiting_party(self.locks.get(key)?.queue.get(&sequence)?)
            });
            let parties: Vec<Party> = waiting.collect();
            self.suspects.extend(parties);
        }
    }

    /// After grants: a party that holds more now and waits elsewhere may have closed a circle. The newest of its waits that
    /// does not want to wait all the same is refused. Answers whether one was.
    pub(super) fn break_circles(&mut self) -> bool {
        self.suspect_loosened();
        while let Some(party) = self.suspects.pop_first() {
            let Some(circle) = self.circle_of(&party) else { continue };
            let waits = self.parties.get(&party).into_iter().flat_map(|ties| &ties.waits);
            let waits = waits.filter(|(key, sequence)| self.may_be_refused(key, *sequence));
            let newest = waits.max_by_key(|(key, sequence)| (*sequence, key.clone())).cloned();
            let Some((key, sequence)) = newest else { continue };
            let refused = Outcome::Refused(Refusal::Deadlock { circle });
            self.leave_with(&key, sequence, LeaveReason::Deadlock, refused);
            self.suspects.insert(party);
            return true;
        }
        false
    }

    fn may_be_refused(&self, key: &LockKey, sequence: u64) -> bool {
        let waiter = self.locks.get(key).and_then(|lock| lock.queue.get(&sequence));
        waiter.is_some_and(|waiter| waiter.choices().deadlock == OnDeadlock::Refuse)
    }
}

/// A permit wait needs those ahead to be granted, and then so many holders, those ahead among them, to finish as have
/// enough permits together.
fn needs_of_permits(
    graph: &mut Graph,
    number: usize,
    (lock, waiter): (&Lock, &Waiter),
    ahead: &[(u64, Party)],
    grants: impl Fn(u64) -> Vec<Node>,
    (holds, behind): (&Told, &Told),
) {
    let (mut free, mut from) = (u64::from(lock.limit.unwrap_or_default()), Vec::new());
    for holder in lock.holders.values() {
        match holding_party(holder) {
            Some(party) => from.push((Node::Party(party), permits_of(holder.mode))),
            None => free += permits_of(holder.mode),
        }
    }
    let mut wanted = lock.permits_held + permits_of(waiter.mode);
    for (sequence, party) in ahead {
        let count = lock.queue.get(sequence).map_or(0, |waiter| permits_of(waiter.mode));
        wanted += count;
        from.push((Node::Party(party.clone()), count));
        for grant in grants(*sequence) {
            graph.need(number, 1, vec![(grant, 1)], Some(behind));
        }
    }
    let missing = wanted.saturating_sub(free);
    if 0 < missing {
        graph.need(number, missing, from, Some(holds));
    }
}

/// Whether everybody else is in conflict with it.
fn is_wide(waiter: &Waiter) -> bool {
    waiter.mode != crate::model::Mode::Shared
}
