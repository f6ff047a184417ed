//! What is in the way of a wait in a replay.

use super::owners::OwnerKey;
use super::queue::conflict;
use super::replay::{Asks, At, Queue, Replay, Turn};
use super::state::Purpose;
use crate::model::{Kind, Mode, WaitsBecause};

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

    /// Whether this one has to be out of the way of a later turn, or shares the lock and has to be granted. Both may be so
    /// of a turn that is passed.
    pub(super) fn blocks(&self, later: &Turn<'_>, is_semaphore: bool) -> bool {
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

    pub(super) fn way(&self) -> usize {
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
    pub(super) fn keeps(&self, turn: &Turn<'_>) -> bool {
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
    pub(super) fn edge(&self, at: At, other: At) -> Option<Edge> {
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

    /// The number of an owner that is part of the replay.
    pub(super) fn known(&self, owner: &OwnerKey) -> Option<usize> {
        self.numbers.get(owner).copied()
    }
}
