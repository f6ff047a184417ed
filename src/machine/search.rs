//! The way from an owner over others back to itself, at the end of a replay.

use std::collections::VecDeque;
use std::sync::Arc;

use super::blockers::{Edge, Node};
use super::owners::OwnerKey;
use super::replay::{Asks, At, Replay};
use super::waiters::WAYS;
use crate::limits::CIRCLE_LINKS_MAX;
use crate::model::{CircleLink, WaitsBecause};

/// Searches a replay for cycles.
pub(super) struct Search<'r, 'm> {
    replay: &'r Replay<'m>,
    /// What is kept ahead of each turn of a semaphore: by all others, and without those that barge.
    kept: Vec<Vec<[i64; 2]>>,
    /// The number of each queue's first turn: owners and turns are numbered together.
    first_turns: Vec<usize>,
    met: Met,
    steps_left: usize,
}

/// What searches met that found no cycle. None of it leads to an owner that is not met.
struct Met {
    /// For each owner and turn that was met, what needs it, and why.
    by: Vec<Option<Edge>>,
    /// How many turns of a queue were listed, by the way to ask: what is in the way of a later turn is that, too, and more.
    listed: Vec<[Listed; WAYS]>,
}

/// What is in the way of a turn, in parts: waits are looked at where no way leads over holders.
#[derive(Clone, Copy)]
enum Part {
    Holds,
    Waits,
}

/// The first turns of a queue that need not be listed again.
#[derive(Clone, Copy, Default)]
struct Listed {
    all: usize,
    /// As those that keep permits.
    keeping: usize,
}

impl<'r, 'm> Search<'r, 'm> {
    /// Prepares searches of one replay, which take so many steps together.
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

    /// A way from an owner that cannot finish back to itself, over others that cannot: the shortest over holders, if there is
    /// one. An owner that only waits for a cycle has none. Also `None` where no step is left.
    pub(super) fn cycle(&mut self, owner: usize) -> Option<Vec<CircleLink>> {
        if self.replay.owners[owner].finished {
            return None;
        }
        if self.met.by[owner].is_none() {
            return self.search(owner);
        }
        // It has to be looked for within what was met.
        let met = self.forget();
        let found = self.search(owner);
        self.met = met;
        found
    }

    fn forget(&mut self) -> Met {
        let (by, listed) = (vec![None; self.met.by.len()], vec![Default::default(); self.met.listed.len()]);
        std::mem::replace(&mut self.met, Met { by, listed })
    }

    fn search(&mut self, owner: usize) -> Option<Vec<CircleLink>> {
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
                if self.has_come(to) || self.met.by[number].is_some() {
                    continue;
                }
                self.met.by[number] = Some((node, why));
                if to == start {
                    // Not all that was listed was gone through.
                    let met = self.forget();
                    return Some(self.links(start, &met.by));
                }
                work.push_back((to, Part::Holds));
            }
            if let (Node::Turn(_), Part::Holds) = (node, part) {
                later.push_back((node, Part::Waits));
            }
        }
        self.met.by[owner] = Some((start, WaitsBecause::Nested));
        None
    }

    fn number(&self, node: Node) -> usize {
        match node {
            Node::Owner(owner) => owner,
            Node::Turn(at) => self.first_turns[at.queue] + at.turn,
        }
    }

    /// Whether it came about in the replay.
    fn has_come(&self, node: Node) -> bool {
        match node {
            Node::Owner(owner) => self.replay.owners[owner].finished,
            Node::Turn(at) => self.replay.turn(at).granted,
        }
    }

    /// What this one needs, without what was listed before.
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
                let waits = owner.waits.iter().map(|turn| (Node::Turn(*turn), WaitsBecause::StandsAhead));
                let children = owner.owned.endless_children().filter_map(|child| replay.known(child));
                waits.chain(children.map(|child| (Node::Owner(child), WaitsBecause::Nested))).collect()
            }
        }
    }

    /// What is in the way of a turn, without what was listed for another that asks the same way.
    fn unlisted(&mut self, at: At, part: Part) -> Vec<Edge> {
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

    /// The way round, as it is reported.
    fn links(&self, start: Node, by: &[Option<Edge>]) -> Vec<CircleLink> {
        let (mut links, mut to) = (Vec::new(), start);
        while let Some((from, why)) = &by[self.number(to)] {
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
                Some(CircleLink::new(replay.owners[turn.owner].key.clone(), &waiter.request.metadata, lock, why))
            }
            (Node::Owner(_), Node::Turn(_)) => None,
            (Node::Owner(parent), Node::Owner(child)) => {
                let (parent, child) = (&replay.owners[parent], replay.owners[child].owned);
                let lock = child.waits.first().map(|(key, _)| key).or(child.holds.first().map(|(key, _)| key))?;
                let held = parent.owned.holds.first();
                let holder = held.and_then(|(key, token)| replay.machine.locks.get(key)?.holders.get(token));
                let metadata = holder.map(|holder| Arc::clone(&holder.request.metadata)).unwrap_or_default();
                Some(CircleLink::new(parent.key.clone(), &metadata, lock.clone(), why))
            }
        }
    }
}
