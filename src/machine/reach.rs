//! Whether a party could be in a circle at all: a search from both sides, from whom it waits for and from who waits for it,
//! step by step in turn, so that it costs no more than the smaller side. Most waits close nothing, and that is cheap to see
//! however long the queues are.
//!
//! Both sides take in more than really stands in the way, never less: where they do not meet, there is no circle.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::Machine;
use super::parties::{Party, holding_party, waiting_party};
use crate::limits::REACH_STEP_MAX;
use crate::model::{FencingToken, LockKey};

/// What is still to be looked at.
enum Item {
    Party(Party),
    /// Waiters of a queue from the first number up to before the second.
    Queue(LockKey, u64, u64),
    /// Holders of a lock after this one.
    Holders(LockKey, Option<FencingToken>),
}

/// One side of the search.
#[derive(Default)]
struct Side {
    seen: BTreeSet<Party>,
    work: Vec<Item>,
    /// How much of a queue was taken up already: below this number going forward, from this number on going back.
    queues: BTreeMap<LockKey, u64>,
    holders: BTreeSet<LockKey>,
}

/// Which side.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// From a party to whom it waits for.
    Forward,
    /// From a party to who waits for it.
    Back,
}

impl Machine {
    /// Whether there may be a way from this party over others back to itself.
    pub(super) fn may_be_in_circle(&self, party: &Party) -> bool {
        let mut sides = [(Way::Forward, Side::default()), (Way::Back, Side::default())];
        for (way, side) in &mut sides {
            let found = self.neighbours(*way, side, party);
            side.work.extend(found.iter().cloned().map(Item::Party));
            side.seen.extend(found);
        }
        if !sides[0].1.seen.is_disjoint(&sides[1].1.seen) {
            return true;
        }
        loop {
            for at in [0, 1] {
                let (way, mut side) = (sides[at].0, std::mem::take(&mut sides[at].1));
                let found = match side.work.pop() {
                    // All of this side was seen, and it does not meet the other.
                    None => return false,
                    Some(item) => self.step(way, &mut side, item),
                };
                let other = &sides[1 - at].1.seen;
                if found.iter().any(|found| found == party || other.contains(found)) {
                    return true;
                }
                for new in found {
                    if side.seen.insert(new.clone()) {
                        side.work.push(Item::Party(new));
                    }
                }
                sides[at].1 = side;
            }
        }
    }

    /// Looks at one item, or at a bounded part of it; answers the parties found there.
    fn step(&self, way: Way, side: &mut Side, item: Item) -> Vec<Party> {
        match item {
            Item::Party(party) => self.neighbours(way, side, &party),
            Item::Queue(key, from, to) => {
                let Some(lock) = self.locks.get(&key) else { return Vec::new() };
                let mut queue = lock.queue.range(from..to);
                let found = queue.by_ref().take(REACH_STEP_MAX).filter_map(|(_, waiter)| waiting_party(waiter));
                let found = found.collect();
                if let Some((next, _)) = queue.next() {
                    side.work.push(Item::Queue(key, *next, to));
                }
                found
            }
            Item::Holders(key, after) => {
                let Some(lock) = self.locks.get(&key) else { return Vec::new() };
                let first = after.map_or(Bound::Unbounded, Bound::Excluded);
                let mut holders = lock.holders.range((first, Bound::Unbounded)).peekable();
                let (mut found, mut last) = (Vec::new(), None);
                for (token, holder) in holders.by_ref().take(REACH_STEP_MAX) {
                    found.extend(holding_party(holder));
                    last = Some(*token);
                }
                if holders.peek().is_some() {
                    side.work.push(Item::Holders(key, last));
                }
                found
            }
        }
    }

    /// Queues and holders next to a party become work; other parties are answered.
    fn neighbours(&self, way: Way, side: &mut Side, party: &Party) -> Vec<Party> {
        let Some(ties) = self.parties.get(party) else { return Vec::new() };
        let nested = match way {
            Way::Forward => &ties.children,
            Way::Back => &ties.parents,
        };
        for (key, sequence) in &ties.waits {
            match way {
                Way::Forward => {
                    if side.holders.insert(key.clone()) {
                        side.work.push(Item::Holders(key.clone(), None));
                    }
                    self.take_up(way, side, key, *sequence);
                }
                Way::Back => self.take_up(way, side, key, sequence + 1),
            }
        }
        if way == Way::Back {
            for (key, _) in &ties.holds {
                self.take_up(way, side, key, 0);
            }
        }
        nested.keys().cloned().collect()
    }

    /// The part of a queue below a number, or from it on, as far as it was not taken up before.
    fn take_up(&self, way: Way, side: &mut Side, key: &LockKey, number: u64) {
        let known = side.queues.get(key).copied();
        let (from, to, covers) = match way {
            Way::Forward => (known.unwrap_or(0), number, known.unwrap_or(0).max(number)),
            Way::Back => (number, known.unwrap_or(u64::MAX), known.unwrap_or(u64::MAX).min(number)),
        };
        if from < to {
            side.work.push(Item::Queue(key.clone(), from, to));
        }
        side.queues.insert(key.clone(), covers);
    }
}
