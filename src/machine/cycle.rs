//! Finds what blocks a wait at the end of a replay, and whether an owner waits, over other owners, for itself.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::replay::{Asks, Edge, Node, Replay, Turn, TurnId};
use crate::limits::CYCLE_LINKS_MAX;
use crate::model::{DeadlockLink, WaitReason};
use crate::state::{OwnerKey, Purpose, WAYS, Way};

pub(super) struct Search<'r, 'm> {
    replay: &'r Replay<'m>,
    /// For each turn of a semaphore, two sums of the permits that the turns before it keep: over all turns, and over
    /// those that do not barge.
    kept: Vec<Vec<[i64; 2]>>,
    /// The number of each queue's first turn. Owners and turns share one numbering.
    first_turns: Vec<usize>,
    met: Met,
    steps_left: usize,
}

/// The nodes that unsuccessful searches visited. Only visited owners can be reached from them.
struct Met {
    /// For each owner and turn: which visited node needs it, and why.
    by: Vec<Option<Edge>>,
    /// For each queue and way to request: how many turns were listed. What blocks a later turn includes these.
    listed: Vec<[Listed; WAYS]>,
}

/// The two parts of what blocks a turn. Waits are followed only if no path over holders closes the cycle.
#[derive(Clone, Copy)]
enum Part {
    Holds,
    Waits,
}

/// The first turns of a queue that need not be listed again.
#[derive(Clone, Copy, Default)]
struct Listed {
    all: usize,
    /// How many turns were listed as turns that keep permits.
    keeping: usize,
}

impl<'r, 'm> Search<'r, 'm> {
    /// Prepares searches of one replay. Together they take at most `steps` steps.
    pub(super) fn of(replay: &'r Replay<'m>, steps: usize) -> Self {
        let kept = replay.queues.iter().map(|queue| {
            let mut now = [0, 0];
            let turns = queue.turns.iter().filter(|_| queue.is_semaphore()).map(|turn| {
                let (ahead, kept) = (now, replay.kept(turn));
                now = [now[0] + kept, now[1] + if turn.barges { 0 } else { kept }];
                ahead
            });
            turns.collect()
        });
        let mut next = replay.owners.len();
        let mut first_turns = Vec::new();
        for queue in &replay.queues {
            first_turns.push(next);
            next += queue.turns.len();
        }
        let met = Met { by: vec![None; next], listed: vec![Default::default(); replay.queues.len()] };
        Self { replay, kept: kept.collect(), first_turns, met, steps_left: steps }
    }

    pub(super) fn steps_left(&self) -> usize {
        self.steps_left
    }

    /// The first of these owners, by its key, that is in a cycle, and the cycle. The search begins at the heads of the
    /// queues, so that each owner further behind adds few new nodes.
    pub(super) fn first_cycle(
        &mut self,
        owners: impl Iterator<Item = usize>,
    ) -> Option<(&'m OwnerKey, Vec<DeadlockLink>)> {
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

    /// A path from an owner that cannot finish back to itself, over other owners that cannot: the shortest path over
    /// holders, if there is one. Returns `None` for an owner that is in no cycle itself but waits for one, and when no
    /// step is left.
    pub(super) fn cycle(&mut self, owner: usize) -> Option<Vec<DeadlockLink>> {
        if self.replay.owners[owner].finished {
            return None;
        }
        if self.met.by[owner].is_none() {
            return self.search(owner);
        }
        // An earlier search visited this owner. Its cycle lies within the visited nodes, so all of them are searched
        // again.
        let met = self.forget();
        let found = self.search(owner);
        self.met = met;
        found
    }

    fn forget(&mut self) -> Met {
        let (by, listed) = (vec![None; self.met.by.len()], vec![Default::default(); self.met.listed.len()]);
        std::mem::replace(&mut self.met, Met { by, listed })
    }

    fn search(&mut self, owner: usize) -> Option<Vec<DeadlockLink>> {
        let start = Node::Owner(owner);
        let (mut work, mut later) = (VecDeque::from([(start, Part::Holds)]), VecDeque::new());
        while let Some((node, part)) = work.pop_front().or_else(|| later.pop_front()) {
            let edges = self.edges(node, part);
            self.steps_left = self.steps_left.saturating_sub(1 + edges.len());
            if self.steps_left == 0 {
                return None;
            }
            for (to, why) in edges {
                let number = self.number(to);
                if self.has_happened(to) || self.met.by[number].is_some() {
                    continue;
                }
                self.met.by[number] = Some((node, why));
                if to == start {
                    // The search ended before it followed all listed nodes, so the lists are not complete.
                    let met = self.forget();
                    return Some(self.links(start, &met.by));
                }
                work.push_back((to, Part::Holds));
            }
            if let (Node::Turn(_), Part::Holds) = (node, part) {
                later.push_back((node, Part::Waits));
            }
        }
        self.met.by[owner] = Some((start, WaitReason::Nested));
        None
    }

    fn number(&self, node: Node) -> usize {
        match node {
            Node::Owner(owner) => owner,
            Node::Turn(at) => self.first_turns[at.queue] + at.turn,
        }
    }

    /// Whether this happened in the replay: the owner finished, or the turn was granted.
    fn has_happened(&self, node: Node) -> bool {
        match node {
            Node::Owner(owner) => self.replay.owners[owner].finished,
            Node::Turn(at) => self.replay.turn(at).granted,
        }
    }

    /// What this node needs, without nodes that were listed before.
    fn edges(&mut self, node: Node, part: Part) -> Vec<Edge> {
        let replay = self.replay;
        match (node, part) {
            (Node::Turn(at), Part::Holds) if replay.is_exceptional(at) => {
                self.steps_left = self.steps_left.saturating_sub(at.turn);
                replay.blockers(at).collect()
            }
            (Node::Turn(at), Part::Waits) if replay.is_exceptional(at) => Vec::new(),
            (Node::Turn(at), _) => self.unlisted(at, part),
            (Node::Owner(owner), _) => {
                let owner = &replay.owners[owner];
                let waits = owner.waits.iter().map(|turn| (Node::Turn(*turn), WaitReason::StandsAhead));
                let children = owner.owned.endless_children().filter_map(|child| replay.known(child));
                waits.chain(children.map(|child| (Node::Owner(child), WaitReason::Nested))).collect()
            }
        }
    }

    /// What blocks a turn, without what was listed for another turn of the same mode and fairness.
    fn unlisted(&mut self, at: TurnId, part: Part) -> Vec<Edge> {
        let (queue, turn) = (&self.replay.queues[at.queue], self.replay.turn(at));
        let end = match part {
            Part::Holds => queue.holds.min(at.turn),
            Part::Waits => at.turn,
        };
        let kept = self.kept[at.queue].get(at.turn).map_or(0, |kept| kept[usize::from(turn.barges)]);
        let listed = &mut self.met.listed[at.queue][turn.way().at()];
        let all = listed.all..end;
        let keeping = if self.replay.lacks(at, kept) { listed.keeping..end } else { 0..0 };
        (listed.all, listed.keeping) = (all.start.max(end), listed.keeping.max(keeping.end));
        self.steps_left = self.steps_left.saturating_sub(all.len() + keeping.len());
        self.replay.blockers_among(at, all, keeping).collect()
    }

    /// The cycle as the answer reports it.
    fn links(&self, start: Node, by: &[Option<Edge>]) -> Vec<DeadlockLink> {
        let (mut links, mut to) = (Vec::new(), start);
        while let Some((from, why)) = &by[self.number(to)] {
            links.extend(self.link(*from, to, *why));
            to = *from;
            if to == start {
                break;
            }
        }
        links.reverse();
        links.truncate(CYCLE_LINKS_MAX);
        links
    }

    /// One link of the cycle. `None` from an owner to its own wait, which is no link.
    fn link(&self, from: Node, to: Node, why: WaitReason) -> Option<DeadlockLink> {
        let replay = self.replay;
        match (from, to) {
            (Node::Turn(at), _) => {
                let turn = replay.turn(at);
                let Asks::Waits(_, waiter) = turn.asks else { return None };
                let lock = replay.queues[at.queue].key.clone();
                Some(DeadlockLink::new(replay.owners[turn.owner].key.clone(), &waiter.request.metadata, lock, why))
            }
            (Node::Owner(_), Node::Turn(_)) => None,
            (Node::Owner(parent), Node::Owner(child)) => {
                let (parent, child) = (&replay.owners[parent], replay.owners[child].owned);
                let lock = child.waits.first().map(|(key, _)| key).or(child.holds.first().map(|(key, _)| key))?;
                let held = parent.owned.holds.first();
                let holder = held.and_then(|(key, token)| replay.machine.state.holder(key, *token));
                let metadata = holder.map(|holder| Arc::clone(&holder.request.metadata)).unwrap_or_default();
                Some(DeadlockLink::new(parent.key.clone(), &metadata, lock.clone(), why))
            }
        }
    }
}

impl Turn<'_> {
    /// What the wait is for. `None` for a hold.
    pub(super) fn purpose(&self) -> Option<Purpose> {
        match self.asks {
            Asks::Holds(_) => None,
            Asks::Waits(_, waiter) => Some(waiter.purpose),
        }
    }

    pub(super) fn upgrades(&self) -> bool {
        matches!(self.purpose(), Some(Purpose::Upgrade(_)))
    }

    /// The part of the request that decides what blocks it.
    pub(super) fn way(&self) -> Way {
        Way { mode: self.mode, barges: self.barges }
    }

    /// Whether this turn blocks a later one, which may still overtake it. Either this turn has to end first, or both
    /// can share the lock and this one has to be granted first.
    fn blocks(&self, later: &Turn<'_>, is_semaphore: bool) -> bool {
        match self.asks {
            Asks::Holds(token) => {
                later.purpose() != Some(Purpose::Upgrade(token)) && self.mode.conflicts_with(later.mode)
            }
            Asks::Waits(_, waiter) => {
                let own = self.owner == later.owner && !is_semaphore;
                !later.upgrades() && !own && later.way().is_blocked_by(waiter)
            }
        }
    }
}

impl<'m> Replay<'m> {
    pub(super) fn turn(&self, at: TurnId) -> &Turn<'m> {
        &self.queues[at.queue].turns[at.turn]
    }

    /// The turns that are granted together with this one.
    pub(super) fn members(&self, at: TurnId) -> impl Iterator<Item = TurnId> + '_ {
        let set = match self.turn(at).asks {
            Asks::Waits(place, waiter) if waiter.purpose == Purpose::Set => self.sets.get(&place),
            Asks::Waits(..) | Asks::Holds(_) => None,
        };
        let alone = if set.is_none() { Some(at) } else { None };
        alone.into_iter().chain(set.into_iter().flatten().copied())
    }

    /// Whether this turn is granted, together with all of its set.
    pub(super) fn is_whole(&self, at: TurnId) -> bool {
        self.members(at).all(|member| self.turn(member).granted)
    }

    /// The capacity of this turn that its owner never returns: zero if the owner finished.
    pub(super) fn kept(&self, turn: &Turn<'_>) -> i64 {
        if self.owners[turn.owner].finished { 0 } else { turn.keeps }
    }

    /// Whether a semaphore has too few permits for this turn if the turns before it never return `kept` permits.
    pub(super) fn lacks(&self, at: TurnId, kept: i64) -> bool {
        let limit = self.queues[at.queue].lock.limit;
        limit.is_some_and(|limit| i64::from(limit) < kept + self.turn(at).takes)
    }

    /// The turns of this range that block this later turn and that it does not overtake.
    fn in_the_way(&self, at: TurnId, turns: Range<usize>) -> impl Iterator<Item = TurnId> + '_ {
        let (queue, turn) = (&self.queues[at.queue], self.turn(at));
        let passing = queue.passing.get(&at.turn);
        let passes = move |other: &Turn<'_>| match (other.asks, passing) {
            (Asks::Waits(place, _), Some(passing)) => passing.passes(self, place),
            (Asks::Waits(..) | Asks::Holds(_), _) => false,
        };
        let turns = turns.map(move |turn| TurnId { turn, ..at });
        turns.filter(move |other| {
            let other = self.turn(*other);
            other.blocks(turn, queue.is_semaphore()) && !passes(other)
        })
    }

    /// What this turn still needs, by the exact rule.
    pub(super) fn blockers(&self, at: TurnId) -> impl Iterator<Item = Edge> + '_ {
        let kept = self.in_the_way(at, 0..at.turn).map(|other| self.kept(self.turn(other))).sum();
        let keeping = if self.lacks(at, kept) { 0..at.turn } else { 0..0 };
        self.blockers_among(at, 0..at.turn, keeping)
    }

    /// Like [`blockers`](Self::blockers), restricted to two ranges of turns. Of `turns`: those that have to be granted,
    /// or whose owners have to finish. Of `keeping`, in a semaphore: the owners that keep permits.
    pub(super) fn blockers_among(
        &self,
        at: TurnId,
        turns: Range<usize>,
        keeping: Range<usize>,
    ) -> impl Iterator<Item = Edge> + '_ {
        let is_semaphore = self.queues[at.queue].is_semaphore();
        let ways = move |other| self.ways(at, other);
        let waits = self.in_the_way(at, turns).flat_map(move |other| {
            let lock = if is_semaphore { None } else { self.edge(at, other) };
            let permits = if is_semaphore && !self.is_whole(other) { Some(other) } else { None };
            let members = permits.into_iter().flat_map(|other| self.members(other));
            let members = members.map(|member| (Node::Turn(member), WaitReason::StandsAhead));
            let waits = lock.is_some() || permits.is_some();
            lock.into_iter().chain(members).chain(waits.then(|| ways(other)).into_iter().flatten())
        });
        let keeping = self.in_the_way(at, keeping).filter(|other| self.kept(self.turn(*other)) != 0);
        let keeping = keeping.flat_map(move |other| {
            let owner = (Node::Owner(self.turn(other).owner), WaitReason::Holds);
            std::iter::once(owner).chain(ways(other))
        });
        waits.chain(keeping)
    }

    /// Whether what blocks this turn differs from what blocks other requests of the same mode and fairness at its
    /// place: because it overtakes waiters, is an upgrade, or never waits for other requests of its owner.
    pub(super) fn is_exceptional(&self, at: TurnId) -> bool {
        let (queue, turn) = (&self.queues[at.queue], self.turn(at));
        let several = || 1 < self.owners[turn.owner].owned.waits_at(queue.key).take(2).count();
        queue.passing.contains_key(&at.turn) || turn.upgrades() || !queue.is_semaphore() && several()
    }

    /// What a turn needs of another turn that blocks it. Either the owner of the other turn must finish, or the other
    /// turn must only be granted: when both share the lock, or when its hold has its own deadline.
    fn edge(&self, at: TurnId, other: TurnId) -> Option<Edge> {
        let (turn, ahead) = (self.turn(at), self.turn(other));
        let why = match ahead.asks {
            Asks::Holds(_) => WaitReason::Holds,
            Asks::Waits(..) => WaitReason::StandsAhead,
        };
        if ahead.mode.conflicts_with(turn.mode) && ahead.keeps != 0 {
            return (self.kept(ahead) != 0).then_some((Node::Owner(ahead.owner), why));
        }
        (!ahead.granted).then_some((Node::Turn(other), why))
    }

    /// The number of an owner that is part of the replay.
    pub(super) fn known(&self, owner: &OwnerKey) -> Option<usize> {
        self.numbers.get(owner).copied()
    }
}
