//! What is in the way of a wait at the end of a replay, and the way from an owner over others back to itself.

use std::collections::VecDeque;
use std::sync::Arc;

use super::owners::OwnerKey;
use super::queue::conflict;
use super::replay::{Asks, At, Queue, Replay, Turn};
use super::state::Purpose;
use crate::limits::CIRCLE_LINKS_MAX;
use crate::model::{CircleLink, Kind, Mode, WaitsBecause};

/// What has to come about before a turn is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    /// This owner finishes.
    Owner(usize),
    /// This turn is granted.
    Turn(At),
}

/// Something that is in the way of a turn, and how.
pub(super) type Edge = (Node, WaitsBecause);

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
    /// Turns of a queue from the first number up to before the second whose edges were listed for a turn of that way to ask.
    listed: Vec<[(usize, usize); WAYS]>,
    /// Queues whose holds were listed for such a turn.
    holds_listed: Vec<[bool; WAYS]>,
    steps_left: usize,
}

const WAYS: usize = 4;

impl Queue<'_> {
    pub(super) fn is_semaphore(&self) -> bool {
        self.lock.kind == Kind::Semaphore
    }

    /// The turn of the wait at this place.
    pub(super) fn turn_at(&self, place: u64) -> Option<usize> {
        let found = self.turns.binary_search_by_key(&Some(place), |turn| match turn.asks {
            Asks::Holds(_) => None,
            Asks::Waits(place, _) => Some(place),
        });
        found.ok()
    }
}

impl Turn<'_> {
    /// What it waits for, if it waits.
    fn purpose(&self) -> Option<Purpose> {
        match self.asks {
            Asks::Holds(_) => None,
            Asks::Waits(_, waiter) => Some(waiter.purpose),
        }
    }

    fn upgrades(&self) -> bool {
        matches!(self.purpose(), Some(Purpose::Upgrade(_)))
    }

    /// Whether this one has to be out of the way of a later turn, or shares the lock and has to be granted. Both may be so
    /// of a turn that is passed.
    fn blocks(&self, later: &Turn<'_>, is_semaphore: bool) -> bool {
        match self.asks {
            Asks::Holds(token) => later.purpose() != Some(Purpose::Upgrade(token)) && conflict(self.mode, later.mode),
            Asks::Waits(_, waiter) => {
                let own = self.owner == later.owner && !is_semaphore;
                let fair = later.barges && waiter.purpose == Purpose::Hold;
                let both_barge = self.barges && later.barges;
                !later.upgrades() && !own && !both_barge && (fair || conflict(self.mode, later.mode))
            }
        }
    }

    fn way(&self) -> usize {
        2 * usize::from(self.barges) + usize::from(self.mode != Mode::Shared)
    }
}

impl<'m> Replay<'m> {
    pub(super) fn turn(&self, at: At) -> &Turn<'m> {
        &self.queues[at.queue].turns[at.turn]
    }

    /// The turns that are granted together with this one.
    pub(super) fn members<'a>(&'a self, at: &'a At) -> &'a [At] {
        let set = match self.turn(*at).asks {
            Asks::Waits(place, waiter) if waiter.purpose == Purpose::Set => self.sets.get(&place),
            Asks::Waits(..) | Asks::Holds(_) => None,
        };
        set.map_or(std::slice::from_ref(at), Vec::as_slice)
    }

    /// Whether it is granted, with all of its set.
    pub(super) fn is_whole(&self, at: At) -> bool {
        self.members(&at).iter().all(|member| self.turn(*member).granted)
    }

    /// Whether its owner never returns what it takes.
    fn keeps(&self, turn: &Turn<'_>) -> bool {
        turn.keeps != 0 && !self.owners[turn.owner].finished
    }

    /// What this turn still waits for, by the exact rule.
    pub(super) fn blockers(&self, at: At) -> Box<dyn Iterator<Item = Edge> + '_> {
        let (queue, turn) = (&self.queues[at.queue], self.turn(at));
        let passing = queue.passing.get(&at.turn);
        let passes = move |other: &Turn<'_>| match (other.asks, passing) {
            (Asks::Waits(place, _), Some(passing)) => passing.passes(self, place),
            (Asks::Waits(..) | Asks::Holds(_), _) => false,
        };
        let ahead = (0..at.turn).map(move |other| At { queue: at.queue, turn: other });
        let ahead = ahead.filter(move |other| {
            let other = self.turn(*other);
            other.blocks(turn, queue.is_semaphore()) && !passes(other)
        });
        let or_passed = move |edge: Option<Edge>, other: At| {
            let ways = passing.filter(|_| edge.is_some()).map(|passing| self.ways(passing, other));
            edge.into_iter().chain(ways.into_iter().flatten())
        };
        if !queue.is_semaphore() {
            return Box::new(ahead.flat_map(move |other| or_passed(self.edge(at, other), other)));
        }
        let kept: i64 = ahead.clone().map(|other| self.turn(other)).filter(|o| self.keeps(o)).map(|o| o.keeps).sum();
        let limit = queue.lock.limit.map_or(0, i64::from);
        let lacks = limit < kept + turn.takes;
        let waiting = ahead.clone().filter(|other| !self.is_whole(*other)).flat_map(move |other| {
            let members = self.members(&other).to_vec();
            let members = members.into_iter().map(|member| (Node::Turn(member), WaitsBecause::StandsAhead));
            members.chain(or_passed(None, other)).chain(passing.into_iter().flat_map(move |p| self.ways(p, other)))
        });
        let keeping = ahead.filter(move |other| lacks && self.keeps(self.turn(*other)));
        let keeping = keeping
            .flat_map(move |other| or_passed(Some((Node::Owner(self.turn(other).owner), WaitsBecause::Holds)), other));
        Box::new(waiting.chain(keeping))
    }

    /// What a turn of a lock needs of another that is in its way: that its owner finishes, or that it is granted where both
    /// share the lock, and where its hold ends by itself.
    fn edge(&self, at: At, other: At) -> Option<Edge> {
        let (turn, ahead) = (self.turn(at), self.turn(other));
        let why = match ahead.asks {
            Asks::Holds(_) => WaitsBecause::Holds,
            Asks::Waits(..) => WaitsBecause::StandsAhead,
        };
        if conflict(ahead.mode, turn.mode) && ahead.keeps != 0 {
            return self.keeps(ahead).then_some((Node::Owner(ahead.owner), why));
        }
        (!ahead.granted).then_some((Node::Turn(other), why))
    }
}

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
        Self { replay, ahead: ahead.collect(), listed: Vec::new(), holds_listed: Vec::new(), steps_left: steps }
    }

    pub(super) fn steps_left(&self) -> usize {
        self.steps_left
    }

    /// The shortest way from an owner that cannot finish back to itself, over others that cannot. An owner that only waits
    /// for a cycle has none. Also `None` where no step is left.
    pub(super) fn cycle(&mut self, owner: usize) -> Option<Vec<CircleLink>> {
        let replay = self.replay;
        let start = Node::Owner(owner);
        if self.is_met(start) {
            return None;
        }
        let mut first_turns = Vec::with_capacity(replay.queues.len());
        let mut nodes = replay.owners.len();
        for queue in &replay.queues {
            first_turns.push(nodes);
            nodes += queue.turns.len();
        }
        let number = |node: Node| match node {
            Node::Owner(owner) => owner,
            Node::Turn(at) => first_turns[at.queue] + at.turn,
        };
        self.listed = vec![[(0, 0); WAYS]; replay.queues.len()];
        self.holds_listed = vec![[false; WAYS]; replay.queues.len()];
        let mut came: Vec<Option<(Node, WaitsBecause)>> = vec![None; nodes];
        let mut work = VecDeque::from([start]);
        while let Some(node) = work.pop_front() {
            let edges = self.edges(node);
            self.steps_left = self.steps_left.saturating_sub(1 + edges.len());
            if self.steps_left == 0 {
                return None;
            }
            for (to, why) in edges {
                if self.is_met(to) || came[number(to)].is_some() {
                    continue;
                }
                came[number(to)] = Some((node, why));
                if to == start {
                    return Some(self.links(start, |node| came[number(node)]));
                }
                work.push_back(to);
            }
        }
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
        let (low, high) = self.listed[at.queue][turn.way()];
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
        if !left_out && high <= at.turn {
            self.listed[at.queue][turn.way()] = (lowest, at.turn);
        }
        // The way over a holder is the shortest.
        if !std::mem::replace(&mut self.holds_listed[at.queue][turn.way()], true) && queue.holds <= lowest {
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
            let (_, from) = self.listed[at.queue][turn.way()];
            self.steps_left = self.steps_left.saturating_sub(at.turn.saturating_sub(from));
            let ahead = queue.turns[..at.turn].iter().skip(from).filter(|ahead| !(turn.barges && ahead.barges));
            let ahead = ahead.filter(|ahead| replay.keeps(ahead));
            edges.extend(ahead.map(|ahead| (Node::Owner(ahead.owner), WaitsBecause::Holds)));
            self.listed[at.queue][turn.way()] = (0, from.max(at.turn));
        }
        edges
    }

    /// The way round, as it is reported.
    fn links(&self, start: Node, came: impl Fn(Node) -> Option<(Node, WaitsBecause)>) -> Vec<CircleLink> {
        let (mut links, mut to) = (Vec::new(), start);
        while let Some((from, why)) = came(to) {
            links.extend(self.link(from, to, why));
            to = from;
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

impl Replay<'_> {
    /// The number of an owner that is part of the replay.
    pub(super) fn known(&self, owner: &OwnerKey) -> Option<usize> {
        self.numbers.get(owner).copied()
    }
}
