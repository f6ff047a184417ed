//! The way from an owner over others back to itself, at the end of a replay.

use std::collections::VecDeque;
use std::sync::Arc;

use super::blockers::{Edge, Node};
use super::owners::{Lookup, OwnerKey};
use super::replay::{Asks, At, Replay, Turn};
use super::state::Purpose;
use crate::limits::CIRCLE_LINKS_MAX;
use crate::model::{CircleLink, Mode, WaitsBecause};

/// What a search knows of the turns ahead of a turn.
#[derive(Clone, Copy, Default)]
struct Ahead {
    /// What unfinished owners keep, or will.
    kept: i64,
    /// The same without barging waits.
    kept_by_fair: i64,
    /// The nearest that is exclusive.
    exclusive: Option<usize>,
    /// The nearest that does not barge.
    fair: Option<usize>,
}

/// Searches a replay for cycles.
pub(super) struct Search<'r, 'm> {
    replay: &'r Replay<'m>,
    ahead: Vec<Vec<Ahead>>,
    listed: Lookup<usize, [Listed; WAYS]>,
    /// Everything that owners need that were found in no cycle. None of it leads back to another owner.
    explored: Lookup<Node, ()>,
    steps_left: usize,
}

/// What was listed of a queue, for turns of one way to ask.
#[derive(Clone, Copy, Default)]
struct Listed {
    /// Turns from this number on, and
    low: usize,
    /// before this one.
    high: usize,
    holds: bool,
}

const WAYS: usize = 4;

impl<'r, 'm> Search<'r, 'm> {
    /// Prepares searches of one replay, which take so many steps together.
    pub(super) fn of(replay: &'r Replay<'m>, steps: usize) -> Self {
        let ahead = replay.queues.iter().map(|queue| {
            let mut now = Ahead::default();
            let before = queue.turns.iter().enumerate().map(|(number, turn)| {
                let before = now;
                if replay.keeps(turn) {
                    now.kept += turn.keeps;
                    now.kept_by_fair += if turn.barges { 0 } else { turn.keeps };
                }
                if turn.mode != Mode::Shared {
                    now.exclusive = Some(number);
                }
                if !turn.barges {
                    now.fair = Some(number);
                }
                before
            });
            before.collect()
        });
        Self {
            replay,
            ahead: ahead.collect(),
            listed: Lookup::default(),
            explored: Lookup::default(),
            steps_left: steps,
        }
    }

    pub(super) fn steps_left(&self) -> usize {
        self.steps_left
    }

    /// The first of these owners, by its key, that is in a cycle, and the cycle. Looked for from the heads of the queues on, so
    /// that each owner behind adds little to what was explored.
    pub(super) fn first_cycle(
        &mut self,
        owners: impl Iterator<Item = usize>,
    ) -> Option<(&'m OwnerKey, Vec<CircleLink>)> {
        let replay = self.replay;
        let mut owners: Vec<usize> = owners.filter(|owner| !replay.owners[*owner].finished).collect();
        let first_turn = |owner: &usize| replay.owners[*owner].waits.iter().map(|at| at.turn).min();
        owners.sort_by_cached_key(first_turn);
        let mut found: Option<(&OwnerKey, _)> = None;
        for owner in owners {
            let key = replay.owners[owner].key;
            if found.as_ref().is_none_or(|(first, _)| key < *first) {
                found = self.cycle(owner).map(|cycle| (key, cycle)).or(found);
            }
        }
        found
    }

    /// The shortest way from an owner that cannot finish back to itself, over others that cannot. An owner that only waits
    /// for a cycle has none. Also `None` where no step is left.
    pub(super) fn cycle(&mut self, owner: usize) -> Option<Vec<CircleLink>> {
        let start = Node::Owner(owner);
        if self.is_met(start) {
            return None;
        }
        if !self.explored.contains_key(&start) {
            return self.search(start);
        }
        // It has to be looked for within what was explored.
        let (listed, explored) = (std::mem::take(&mut self.listed), std::mem::take(&mut self.explored));
        let found = self.search(start);
        (self.listed, self.explored) = (listed, explored);
        found
    }

    fn search(&mut self, start: Node) -> Option<Vec<CircleLink>> {
        let mut came: Lookup<Node, (Node, WaitsBecause)> = Lookup::default();
        let mut work = VecDeque::from([start]);
        while let Some(node) = work.pop_front() {
            let edges = self.edges(node);
            self.steps_left = self.steps_left.saturating_sub(1 + edges.len());
            if self.steps_left == 0 {
                return None;
            }
            for (to, why) in edges {
                if self.is_met(to) || came.contains_key(&to) || self.explored.contains_key(&to) {
                    continue;
                }
                came.insert(to, (node, why));
                if to == start {
                    // What was listed on the way was not gone through.
                    (self.listed, self.explored) = (Lookup::default(), Lookup::default());
                    return Some(self.links(start, &came));
                }
                work.push_back(to);
            }
        }
        self.explored.insert(start, ());
        self.explored.extend(came.into_keys().map(|node| (node, ())));
        None
    }

    fn is_met(&self, node: Node) -> bool {
        match node {
            Node::Owner(owner) => self.replay.owners[owner].finished,
            Node::Turn(at) => self.replay.turn(at).granted,
        }
    }

    /// What this one needs; of what was listed before, not all.
    fn edges(&mut self, node: Node) -> Vec<Edge> {
        let replay = self.replay;
        let at = match node {
            Node::Turn(at) => at,
            Node::Owner(owner) => {
                let owner = &replay.owners[owner];
                let waits = owner.waits.iter().map(|turn| (Node::Turn(*turn), WaitsBecause::StandsAhead));
                let children = owner.owned.endless_children().filter_map(|child| replay.known(child));
                return waits.chain(children.map(|child| (Node::Owner(child), WaitsBecause::Nested))).collect();
            }
        };
        let (queue, turn) = (&replay.queues[at.queue], replay.turn(at));
        if queue.passing.contains_key(&at.turn) || turn.upgrades() {
            let edges: Vec<Edge> = replay.blockers(at).collect();
            self.steps_left = self.steps_left.saturating_sub(at.turn);
            return edges;
        }
        if queue.is_semaphore() { self.edges_of_permits(at) } else { self.edges_of_lock(at) }
    }

    /// The next turn towards the head of a queue that may be in the way of one that asks so.
    fn before(&self, at: At, turn: &Turn<'_>) -> Option<usize> {
        let ahead = &self.ahead[at.queue][at.turn];
        match (turn.barges, turn.mode) {
            (true, _) => ahead.fair,
            (false, Mode::Shared) => ahead.exclusive,
            (false, Mode::Exclusive | Mode::Permits { .. }) => at.turn.checked_sub(1),
        }
    }

    /// The turns ahead as far as one that leads on to all before it.
    fn edges_of_lock(&mut self, at: At) -> Vec<Edge> {
        let (queue, turn) = (&self.replay.queues[at.queue], self.replay.turn(at));
        let Listed { low, high, holds } = self.listed.entry(at.queue).or_default()[turn.way()];
        let (mut lowest, mut left_out, mut edges) = (0, false, Vec::new());
        let mut next = self.before(at, turn);
        while let Some(number) = next {
            if (low..high).contains(&number) {
                lowest = low;
                break;
            }
            self.steps_left = self.steps_left.saturating_sub(1);
            let (other, ahead) = (At { turn: number, ..at }, &queue.turns[number]);
            if ahead.blocks(turn, false) {
                edges.extend(self.replay.edge(at, other));
            }
            let own = ahead.owner == turn.owner;
            left_out |= own;
            let leads_on = match ahead.purpose() {
                None | Some(Purpose::Upgrade(_)) => false,
                Some(Purpose::Hold) => ahead.mode == Mode::Exclusive || (turn.barges && turn.mode == Mode::Shared),
                Some(Purpose::Set) => ahead.mode == Mode::Exclusive,
            };
            if leads_on && !own && !ahead.barges && !queue.passing.contains_key(&number) {
                lowest = number;
                break;
            }
            next = self.before(other, turn);
        }
        let now = if !left_out && high <= at.turn { (lowest, at.turn) } else { (low, high) };
        self.listed.entry(at.queue).or_default()[turn.way()] = Listed { low: now.0, high: now.1, holds: true };
        // The way over a holder is the shortest.
        if !holds && queue.holds <= lowest {
            let holds = (0..queue.holds).filter(|hold| queue.turns[*hold].blocks(turn, false));
            edges.extend(holds.filter_map(|hold| self.replay.edge(at, At { turn: hold, ..at })));
            self.steps_left = self.steps_left.saturating_sub(queue.holds);
        }
        edges
    }

    /// The nearest fair wait ahead that is not granted leads on to all before it. Where permits lack, also every owner ahead
    /// that keeps some.
    fn edges_of_permits(&mut self, at: At) -> Vec<Edge> {
        let (replay, queue, turn) = (self.replay, &self.replay.queues[at.queue], self.replay.turn(at));
        let mut edges = Vec::new();
        let mut next = self.before(at, turn);
        while let Some(number) = next {
            self.steps_left = self.steps_left.saturating_sub(1);
            let (other, ahead) = (At { turn: number, ..at }, &queue.turns[number]);
            let Some(purpose) = ahead.purpose() else { break };
            let whole = replay.is_whole(other);
            if !whole {
                let members = replay.members(&other).iter();
                edges.extend(members.map(|member| (Node::Turn(*member), WaitsBecause::StandsAhead)));
            }
            // All before a granted wait is granted; of a set, only its own turn says so.
            let says_all = !whole || purpose != Purpose::Set;
            if says_all && !ahead.barges && !queue.passing.contains_key(&number) {
                break;
            }
            next = self.before(other, turn);
        }
        let ahead = &self.ahead[at.queue][at.turn];
        let kept = if turn.barges { ahead.kept_by_fair } else { ahead.kept };
        if queue.lock.limit.map_or(0, i64::from) < kept + turn.takes {
            let listed = &mut self.listed.entry(at.queue).or_default()[turn.way()];
            let from = listed.high;
            listed.high = from.max(at.turn);
            self.steps_left = self.steps_left.saturating_sub(at.turn.saturating_sub(from));
            let ahead = queue.turns[..at.turn].iter().skip(from).filter(|ahead| !(turn.barges && ahead.barges));
            let ahead = ahead.filter(|ahead| replay.keeps(ahead));
            edges.extend(ahead.map(|ahead| (Node::Owner(ahead.owner), WaitsBecause::Holds)));
        }
        edges
    }

    /// The way round, as it is reported.
    fn links(&self, start: Node, came: &Lookup<Node, (Node, WaitsBecause)>) -> Vec<CircleLink> {
        let (mut links, mut to) = (Vec::new(), start);
        while let Some((from, why)) = came.get(&to) {
            links.extend(self.link(*from, to, *why));
            to = *from;
            if to == start {
                break;
            }
        }
        links.reverse();
        links.truncate(CIRCLE_LINKS_MAX);
        links
    }

    /// One step of it; `None` from an owner to its own wait.
    fn link(&self, from: Node, to: Node, why: WaitsBecause) -> Option<CircleLink> {
        let replay = self.replay;
        match (from, to) {
            (Node::Turn(at), _) => {
                let turn = replay.turn(at);
                let Asks::Waits(_, waiter) = turn.asks else { return None };
                let lock = replay.queues[at.queue].key.clone();
                Some(CircleLink::new(replay.owners[turn.owner].key.clone(), &waiter.metadata, lock, why))
            }
            (Node::Owner(_), Node::Turn(_)) => None,
            (Node::Owner(parent), Node::Owner(child)) => {
                let (parent, child) = (&replay.owners[parent], replay.owners[child].owned);
                let lock = child.waits.first().map(|(key, _)| key).or(child.holds.first().map(|(key, _)| key))?;
                let held = parent.owned.holds.first();
                let holder = held.and_then(|(key, token)| replay.machine.locks.get(key)?.holders.get(token));
                let metadata = holder.map(|holder| Arc::clone(&holder.metadata)).unwrap_or_default();
                Some(CircleLink::new(parent.key.clone(), &metadata, lock.clone(), why))
            }
        }
    }
}
