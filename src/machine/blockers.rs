//! What is in the way of a wait in a replay.

use std::ops::Range;

use super::owners::OwnerKey;
use super::queue::conflict;
use super::replay::{Asks, At, Queue, Replay, Turn};
use super::state::Purpose;
use super::waiters::Way;
use crate::model::{Kind, WaitsBecause};

/// What has to come about before a turn is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Node {
    /// This owner finishes.
    Owner(usize),
    /// This turn is granted.
    Turn(At),
}

/// Something that is in the way of a turn, and how.
pub(super) type Edge = (Node, WaitsBecause);

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
    pub(super) fn purpose(&self) -> Option<Purpose> {
        match self.asks {
            Asks::Holds(_) => None,
            Asks::Waits(_, waiter) => Some(waiter.purpose),
        }
    }

    pub(super) fn upgrades(&self) -> bool {
        matches!(self.purpose(), Some(Purpose::Upgrade(_)))
    }

    /// How it asks, as far as it matters for what is in its way.
    pub(super) fn way(&self) -> Way {
        Way { mode: self.mode, barges: self.barges }
    }

    /// Whether this one has to be out of the way of a later turn, or shares the lock and has to be granted. Both may be so
    /// of a turn that is passed.
    fn blocks(&self, later: &Turn<'_>, is_semaphore: bool) -> bool {
        match self.asks {
            Asks::Holds(token) => later.purpose() != Some(Purpose::Upgrade(token)) && conflict(self.mode, later.mode),
            Asks::Waits(_, waiter) => {
                let own = self.owner == later.owner && !is_semaphore;
                !later.upgrades() && !own && later.way().is_blocked_by(waiter)
            }
        }
    }
}

impl<'m> Replay<'m> {
    pub(super) fn turn(&self, at: At) -> &Turn<'m> {
        &self.queues[at.queue].turns[at.turn]
    }

    /// The turns that are granted together with this one.
    pub(super) fn members(&self, at: At) -> impl Iterator<Item = At> + '_ {
        let set = match self.turn(at).asks {
            Asks::Waits(place, waiter) if waiter.purpose == Purpose::Set => self.sets.get(&place),
            Asks::Waits(..) | Asks::Holds(_) => None,
        };
        let alone = if set.is_none() { Some(at) } else { None };
        alone.into_iter().chain(set.into_iter().flatten().copied())
    }

    /// Whether it is granted, with all of its set.
    pub(super) fn is_whole(&self, at: At) -> bool {
        self.members(at).all(|member| self.turn(member).granted)
    }

    /// What its owner never returns of the lock.
    pub(super) fn kept(&self, turn: &Turn<'_>) -> i64 {
        if self.owners[turn.owner].finished { 0 } else { turn.keeps }
    }

    /// Whether a semaphore has too few permits for this turn, where those ahead never return so many.
    pub(super) fn lacks(&self, at: At, kept: i64) -> bool {
        let limit = self.queues[at.queue].lock.limit;
        limit.is_some_and(|limit| i64::from(limit) < kept + self.turn(at).takes)
    }

    /// Of these turns ahead of this one, those that are in its way and not passed.
    fn in_the_way(&self, at: At, turns: Range<usize>) -> impl Iterator<Item = At> + '_ {
        let (queue, turn) = (&self.queues[at.queue], self.turn(at));
        let passing = queue.passing.get(&at.turn);
        let passes = move |other: &Turn<'_>| match (other.asks, passing) {
            (Asks::Waits(place, _), Some(passing)) => passing.passes(self, place),
            (Asks::Waits(..) | Asks::Holds(_), _) => false,
        };
        let turns = turns.map(move |turn| At { turn, ..at });
        turns.filter(move |other| {
            let other = self.turn(*other);
            other.blocks(turn, queue.is_semaphore()) && !passes(other)
        })
    }

    /// What this turn still waits for, by the exact rule.
    pub(super) fn blockers(&self, at: At) -> impl Iterator<Item = Edge> + '_ {
        let kept = self.in_the_way(at, 0..at.turn).map(|other| self.kept(self.turn(other))).sum();
        let keeping = if self.lacks(at, kept) { 0..at.turn } else { 0..0 };
        self.blockers_among(at, 0..at.turn, keeping)
    }

    /// The same, among these turns: those that have to be granted, or whose owners have to finish. Of a semaphore, among
    /// other turns: the owners that keep permits.
    pub(super) fn blockers_among(
        &self,
        at: At,
        turns: Range<usize>,
        keeping: Range<usize>,
    ) -> impl Iterator<Item = Edge> + '_ {
        let is_semaphore = self.queues[at.queue].is_semaphore();
        let ways = move |other| self.ways(at, other);
        let waits = self.in_the_way(at, turns).flat_map(move |other| {
            let lock = if is_semaphore { None } else { self.edge(at, other) };
            let permits = if is_semaphore && !self.is_whole(other) { Some(other) } else { None };
            let members = permits.into_iter().flat_map(|other| self.members(other));
            let members = members.map(|member| (Node::Turn(member), WaitsBecause::StandsAhead));
            let waits = lock.is_some() || permits.is_some();
            lock.into_iter().chain(members).chain(waits.then(|| ways(other)).into_iter().flatten())
        });
        let keeping = self.in_the_way(at, keeping).filter(|other| self.kept(self.turn(*other)) != 0);
        let keeping = keeping.flat_map(move |other| {
            let owner = (Node::Owner(self.turn(other).owner), WaitsBecause::Holds);
            std::iter::once(owner).chain(ways(other))
        });
        waits.chain(keeping)
    }

    /// Whether what is in the way of this turn is not simply all that is ahead in the way of one that asks so: it passes
    /// others, upgrades, or never waits for others of its owner.
    pub(super) fn is_exceptional(&self, at: At) -> bool {
        let (queue, turn) = (&self.queues[at.queue], self.turn(at));
        let several = || 1 < self.owners[turn.owner].owned.waits_at(queue.key).take(2).count();
        queue.passing.contains_key(&at.turn) || turn.upgrades() || !queue.is_semaphore() && several()
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
            return (self.kept(ahead) != 0).then_some((Node::Owner(ahead.owner), why));
        }
        (!ahead.granted).then_some((Node::Turn(other), why))
    }

    /// The number of an owner that is part of the replay.
    pub(super) fn known(&self, owner: &OwnerKey) -> Option<usize> {
        self.numbers.get(owner).copied()
    }
}
