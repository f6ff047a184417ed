//! Deadlock detection over named owners, exactly: what can still finish is reduced until nothing changes; whoever is left
//! and waits, over others that are left, for itself is in a circle.
//!
//! A waiter needs every holder in its way to finish, and everybody ahead whom it may not pass; a permit wait needs only so
//! many holders to finish as have enough permits together. Whom a session may come to pass once another request of it is
//! granted is in the way until then: the one or the other is needed. Whoever can go on by itself is never in the way, so that
//! an alarm is never false. No search looks at more than a bound, because a command's work is bounded: a circle that takes
//! more than that to see is not told.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Machine;
use super::counted::looked_at;
use super::graph::{Graph, Node, Told};
use super::lock::Lock;
use super::parties::{Party, holding_party, waiting_party};
use super::passing::Passing;
use super::queue::{conflict, request_of_set};
use super::state::{Purpose, Waiter, permits_of};
use crate::limits::{CIRCLE_LINKS_MAX, CIRCLE_LOOKED_AT_MAX};
use crate::model::{CircleLink, Claim, Kind, LockKey, OnDeadlock, Outcome, Refusal, WaitsBecause};

impl Machine {
    /// The circle that this party's waits close, if they do and so much is enough to see it; what was looked at is taken off.
    pub(super) fn circle_of(&self, party: &Party, look_at: &mut usize) -> Option<Vec<CircleLink>> {
        looked_at();
        if !self.may_be_in_circle(party) {
            return None;
        }
        if let Some(circle) = self.plain_circle(party) {
            let told = circle.iter().take(CIRCLE_LINKS_MAX);
            return Some(told.filter_map(|(node, told)| self.link(node, told)).collect());
        }
        let mut graph = Graph::of([party.clone()].into(), *look_at);
        let whole = self.explore_all(&mut graph);
        *look_at = graph.left();
        if !whole {
            return None;
        }
        let left = graph.reduce();
        let circle = if left[0] { graph.circle(&left) } else { None };
        Some(circle?.into_iter().filter_map(|(node, told)| self.link(node, told)).collect())
    }

    /// Everything that is needed, directly or not. Answers `false` where that is more than may be looked at.
    pub(super) fn explore_all(&self, graph: &mut Graph) -> bool {
        let mut explored = 0;
        while explored < graph.nodes.len() {
            if graph.left() == 0 {
                return false;
            }
            self.explore(graph, explored);
            explored += 1;
        }
        true
    }

    /// How one in a circle is told.
    fn link(&self, node: &Node, (lock, why): &Told) -> Option<CircleLink> {
        let (party, says) = match node {
            Node::Wait(key, sequence) => {
                let waiter = self.locks.get(key)?.queue.get(sequence)?;
                (waiting_party(waiter)?, Arc::clone(&waiter.metadata))
            }
            // Nobody in person: what is told is told of the waiter before.
            Node::Grant(..) | Node::Past(..) | Node::Holders(_) | Node::UpTo(..) => return None,
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
            Node::Grant(key, sequence) => {
                for grant in self.locks.get(&key).map_or(vec![], |lock| self.grants_of(&key, lock, sequence)) {
                    graph.need(number, 1, vec![(grant, 1)], None);
                }
            }
            // Said where it was made.
            Node::Past(..) | Node::Holders(_) | Node::UpTo(..) => {}
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
        if self.needs_of_pool(graph, (key, lock), sequence) {
            return;
        }
        let ahead = self.blocked_by_ahead(graph, key, lock, sequence);
        let (holds, behind) = ((key.clone(), WaitsBecause::Holds), (key.clone(), WaitsBecause::StandsAhead));
        if lock.kind == Kind::Semaphore {
            let places = ahead.into_iter().map(|blocker| self.place_ahead(graph, (key, lock), sequence, blocker));
            let places = places.collect();
            return needs_of_permits(graph, number, (lock, waiter), places, (&holds, &behind));
        }
        for (token, holder) in &lock.holders {
            let own = waiter.purpose == Purpose::Upgrade(*token);
            if let Some(party) = holding_party(holder).filter(|_| !own && conflict(holder.mode, waiter.mode)) {
                graph.need(number, 1, vec![(Node::Party(party), 1)], Some(&holds));
            }
        }
        for Blocker { at, party: other, unless } in ahead.into_iter().filter(|blocker| blocker.party != party) {
            // Beside one with which it could share the lock it only has to wait for that one's grant.
            let beside = lock.queue.get(&at).is_some_and(|ahead| !conflict(ahead.mode, waiter.mode));
            let node = if beside { Node::Wait(key.clone(), at) } else { Node::Party(other) };
            graph.need(number, 1, any_of(node, unless), Some(&behind));
        }
    }

    /// What a permit wait needs of one ahead: that it is granted or passed, and then its permits, given back or never taken.
    fn place_ahead(
        &self,
        graph: &mut Graph,
        (key, lock): (&LockKey, &Lock),
        sequence: u64,
        blocker: Blocker,
    ) -> PlaceAhead {
        let Blocker { at, party, unless } = blocker;
        let permits = lock.queue.get(&at).map_or(0, |waiter| permits_of(waiter.mode));
        if unless.is_empty() {
            let grants = self.grants_of(key, lock, at).into_iter().map(|grant| vec![(grant, 1)]).collect();
            return PlaceAhead { grants, gone: Node::Party(party), permits };
        }
        let gone = Node::Past(key.clone(), sequence, at);
        let number = graph.number(gone.clone());
        graph.need(number, 1, any_of(Node::Party(party), unless.clone()), None);
        PlaceAhead { grants: vec![any_of(Node::Grant(key.clone(), at), unless)], gone, permits }
    }

    /// What has to be granted so that whoever stands at this number is gone from the queue: a set goes whole.
    pub(super) fn grants_of(&self, key: &LockKey, lock: &Lock, sequence: u64) -> Vec<Node> {
        let set = lock.queue.get(&sequence).and_then(request_of_set);
        let members = set.map_or_else(|| vec![key.clone()], |request| self.members_waiting(request, sequence));
        members.into_iter().map(|member| Node::Wait(member, sequence)).collect()
    }

    /// Parties ahead in the queue without whose end this one is never granted. Whoever stands ahead of a fair one that is
    /// in everybody's way is in that one's way too, and need not be named.
    fn blocked_by_ahead(&self, graph: &mut Graph, key: &LockKey, lock: &Lock, sequence: u64) -> Vec<Blocker> {
        let mut found = Vec::new();
        let Some(waiter) = lock.queue.get(&sequence) else { return found };
        if matches!(waiter.purpose, Purpose::Upgrade(_)) || lock.queue.range(..sequence).next().is_none() {
            return found;
        }
        // Who is passed stands behind a set, or is one.
        let passing = if lock.queue.has_sets() { self.passing(graph, key, waiter) } else { Passing::default() };
        for (at, ahead) in lock.queue.range(..sequence).rev() {
            graph.spend(1);
            let fair = waiter.barges() && ahead.purpose == Purpose::Hold && !ahead.barges();
            let both_barge = waiter.barges() && ahead.barges();
            if both_barge || passing.now.contains(at) || !(fair || conflict(ahead.mode, waiter.mode)) {
                continue;
            }
            let Some(party) = waiting_party(ahead) else { continue };
            let unless: Vec<Node> =
                passing.once.iter().filter(|(_, passed)| passed.contains(at)).map(|(grant, _)| grant.clone()).collect();
            let sure = unless.is_empty();
            found.push(Blocker { at: *at, party, unless });
            let wide =
                lock.kind == Kind::Lock && !ahead.barges() && conflict(ahead.mode, waiter.mode) && is_wide(ahead);
            if sure && wide && (!lock.queue.has_sets() || self.passing(graph, key, ahead).is_empty()) {
                break;
            }
        }
        found
    }

    /// The circle that a wait closes, or that the waits of a set close together: it was just added, and is refused unless it
    /// chose to wait all the same. Also where an ancestor holds what a nested run asks for. All these waits have one owner,
    /// so that one search is enough.
    pub(super) fn closes_circle(&self, keys: &[LockKey], sequence: u64) -> Option<Vec<CircleLink>> {
        let waiter = |key: &LockKey| self.locks.get(key)?.queue.get(&sequence);
        let first = keys.first().and_then(waiter)?;
        if first.choices().deadlock == OnDeadlock::Wait {
            return None;
        }
        let ancestor = keys.iter().find_map(|key| self.held_by_ancestor(key, waiter(key)?));
        ancestor.or_else(|| self.circle_of(&waiting_party(first)?, &mut { CIRCLE_LOOKED_AT_MAX }))
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
        let loosened = std::mem::take(&mut self.suspects.loosened);
        for key in keys {
            let Some(waiter) = self.remove_waiter(key, sequence) else { continue };
            if let Claim::Request(request) = waiter.claim
                && let Some(session) = self.sessions.get_mut(&request.session)
            {
                session.stand_down(request.number, key);
            }
            self.look_at(key, sequence);
        }
        self.suspects.loosened = loosened;
        self.events.truncate(events);
        if sequence != super::upgrade::HEAD {
            self.globals.sequences -= 1;
        }
        Outcome::Refused(Refusal::Deadlock { circle })
    }
}

/// One ahead that is in the way: until its party is done, or any of these grants lets it be passed.
struct Blocker {
    at: u64,
    party: Party,
    unless: Vec<Node>,
}

/// What a permit wait needs of one ahead of it.
struct PlaceAhead {
    /// Each of these is needed, in any of its ways.
    grants: Vec<Vec<(Node, u64)>>,
    /// With its end so many permits are there again.
    gone: Node,
    permits: u64,
}

/// The one or any other: each is enough.
fn any_of(one: Node, others: Vec<Node>) -> Vec<(Node, u64)> {
    std::iter::once(one).chain(others).map(|node| (node, 1)).collect()
}

/// A permit wait needs those ahead to be granted, and then so many holders, those ahead among them, to finish as have
/// enough permits together.
fn needs_of_permits(
    graph: &mut Graph,
    number: usize,
    (lock, waiter): (&Lock, &Waiter),
    ahead: Vec<PlaceAhead>,
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
    for PlaceAhead { grants, gone, permits } in ahead {
        wanted += permits;
        from.push((gone, permits));
        for grant in grants {
            graph.need(number, 1, grant, Some(behind));
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
