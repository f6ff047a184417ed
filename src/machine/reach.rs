//! Whether a party could be in a circle at all: a search from both sides, from whom it waits for and from who waits for it,
//! step by step in turn, so that it costs no more than the smaller side. Most waits close nothing, and that is cheap to see
//! however long the queues are.
//!
//! Both sides take in more than really stands in the way, never less: where they do not meet, there is no circle.

use std::collections::{BTreeMap, BTreeSet};

use super::Machine;
use super::lock::Lock;
use super::parties::{Party, holding_party, waiting_party};
use super::state::Standing;
use crate::limits::REACH_STEP_MAX;
use crate::model::{FencingToken, Kind, LockKey, SessionId};

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
    /// Sessions whose permits were taken up: what others are granted of a semaphore may let them pass a set.
    sessions: BTreeSet<SessionId>,
    /// Sessions whose other waits were taken up, but those at one lock: one that is granted may let another pass a set.
    others: BTreeSet<(SessionId, Option<LockKey>)>,
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
                let mut holders = lock.holders.after(after.as_ref()).peekable();
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
        let mut found: Vec<Party> = nested.keys().cloned().collect();
        if self.may_pass_somewhere(party.0) {
            self.others_of_session(way, side, party, &mut found);
            if side.sessions.insert(party.0) {
                self.permits_beside_sets(way, side, party.0, &mut found);
            }
        }
        found
    }

    /// Once a wait beside waiting sets is granted, another one of the session, elsewhere, may pass those ahead of it.
    fn others_of_session(&self, way: Way, side: &mut Side, party: &Party, found: &mut Vec<Party>) {
        let behind: fn(&Lock, u64) -> bool = |lock, sequence| lock.queue.range(..sequence).next().is_some();
        let beside: fn(&Lock, u64) -> bool = Lock::has_sets_beside;
        let (here, there) = if way == Way::Forward { (behind, beside) } else { (beside, behind) };
        let locks = |party: &Party, stands: fn(&Lock, u64) -> bool| -> BTreeSet<LockKey> {
            let waits = self.parties.get(party).into_iter().flat_map(|ties| &ties.waits);
            let waits = waits.filter(|(key, sequence)| self.locks.get(key).is_some_and(|lock| stands(lock, *sequence)));
            waits.map(|(key, _)| key.clone()).collect()
        };
        let mut locks_here = locks(party, here);
        let Some(first) = locks_here.pop_first() else { return };
        let but = Some(first).filter(|_| locks_here.is_empty());
        if side.others.insert((party.0, but.clone())) {
            // What it waits for elsewhere itself leads round only over others.
            let others = self.waiting_parties(party.0).into_iter().filter(|other| other != party);
            found.extend(others.filter(|other| locks(other, there).iter().any(|key| Some(key) != but.as_ref())));
        }
    }

    /// What others are granted of a semaphore may let a session that holds permits there pass a set, and so be waited for.
    fn permits_beside_sets(&self, way: Way, side: &mut Side, session: SessionId, found: &mut Vec<Party>) {
        let standings = self.sessions.get(&session).into_iter().flat_map(|session| session.standings());
        for (_, key, standing) in standings {
            let lock = self.locks.get(key).filter(|lock| lock.kind == Kind::Semaphore && lock.queue.has_sets());
            let Some(lock) = lock else { continue };
            match (way, standing) {
                (Way::Forward, Standing::Waits(_)) | (Way::Back, Standing::Holds(_)) => {}
                (Way::Forward, Standing::Holds(_)) => self.take_up(way, side, key, u64::MAX),
                (Way::Back, Standing::Waits(_)) => {
                    let holders = lock.holders.values().filter_map(|holder| holder.claim.session());
                    found.extend(holders.flat_map(|holder| self.waiting_parties(holder)));
                }
            }
        }
    }

    /// Every line of execution of a session that waits.
    pub(super) fn waiting_parties(&self, session: SessionId) -> Vec<Party> {
        let standings = self.sessions.get(&session).into_iter().flat_map(|session| session.standings());
        let waiting = standings.filter_map(|(_, key, standing)| {
            let Standing::Waits(sequence) = standing else { return None };
            waiting_party(self.locks.get(key)?.queue.get(&sequence)?)
        });
        waiting.collect()
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
