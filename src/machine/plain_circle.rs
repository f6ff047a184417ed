//! Circles that are plain to see: each in it needs the end of the next, and there is no other way out for anybody. Nobody in
//! such a circle can ever finish, whatever else stands in the way; so nothing else need be looked at, however long the queues
//! are. Looked for from whoever waits for the party, and then from whom it waits for, to a bound: what is not found here is
//! decided over everything.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};

use super::Machine;
use super::graph::{Node, Told};
use super::lock::Lock;
use super::parties::{Party, Ties, holding_party, waiting_party};
use super::queue::conflict;
use super::state::{Purpose, Waiter, permits_of};
use crate::limits::PLAIN_CIRCLE_LOOKED_AT_MAX;
use crate::model::{FencingToken, Kind, LockKey, Mode, WaitsBecause};

/// What is told of one who needs another's end: of which of its waits, at which lock, and why.
type Step = (Node, Told);

/// How much more may be looked at.
struct Budget(Cell<usize>);

impl Budget {
    fn spend(&self) -> bool {
        let left = self.0.get();
        self.0.set(left.saturating_sub(1));
        left != 0
    }
}

/// Which way to look.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// From a party to those who need its end.
    Back,
    /// From a party to those whose end it needs.
    Forward,
}

impl Machine {
    /// A circle in which each needs the next one's end, beginning with this party; `None` where none is near.
    pub(super) fn plain_circle(&self, party: &Party) -> Option<Vec<Step>> {
        self.look(Way::Back, party).or_else(|| self.look(Way::Forward, party))
    }

    /// Breadth first, so that the circle is as short as any that this way finds.
    fn look(&self, way: Way, party: &Party) -> Option<Vec<Step>> {
        let budget = Budget(Cell::new(PLAIN_CIRCLE_LOOKED_AT_MAX));
        let mut came: BTreeMap<Party, (Party, Step)> = BTreeMap::new();
        let mut work = VecDeque::from([party.clone()]);
        while let Some(at) = work.pop_front() {
            let found = match way {
                Way::Back => self.needed_by(&at, &budget),
                Way::Forward => self.needs(&at, &budget),
            };
            for (other, step) in found {
                if other == *party || came.contains_key(&other) {
                    continue;
                }
                came.insert(other.clone(), (at.clone(), step));
                let closes = match way {
                    Way::Back => self.need(party, &other, &budget),
                    Way::Forward => self.need(&other, party, &budget),
                };
                if let Some(closes) = closes {
                    return Some(circle(way, &came, other, closes));
                }
                work.push_back(other);
            }
        }
        None
    }

    /// Why one needs the other's end, if that is plain.
    fn need(&self, of: &Party, end: &Party, budget: &Budget) -> Option<Step> {
        let (ties, others) = (self.parties.get(of)?, self.parties.get(end)?);
        if ties.children.contains_key(end) {
            return nested(of, others);
        }
        ties.waits.iter().take_while(|_| budget.spend()).find_map(|(key, sequence)| {
            let (lock, waiter) = self.waits_at_lock(key, *sequence)?;
            let held = others.holds.range((key.clone(), FencingToken::new(0, 0))..);
            let mut held = held.take_while(|(at, _)| at == key && budget.spend());
            let ahead = others.waits.range((key.clone(), 0)..(key.clone(), *sequence));
            let mut ahead = ahead.take_while(|_| budget.spend()).filter_map(|(_, at)| lock.queue.get(at));
            if held.any(|(_, token)| needs_release(lock, waiter, *token)) {
                Some(step(key, *sequence, WaitsBecause::Holds))
            } else if ahead.any(|ahead| stays_behind(lock, waiter, ahead)) {
                Some(step(key, *sequence, WaitsBecause::StandsAhead))
            } else {
                None
            }
        })
    }

    /// Whose end this party needs, as far as the budget goes.
    fn needs(&self, party: &Party, budget: &Budget) -> Vec<(Party, Step)> {
        let Some(ties) = self.parties.get(party) else { return Vec::new() };
        let child = |child: &Party| Some((child.clone(), nested(party, self.parties.get(child)?)?));
        let mut found: Vec<_> = ties.children.keys().take_while(|_| budget.spend()).filter_map(child).collect();
        for (key, sequence) in ties.waits.iter().take_while(|_| budget.spend()) {
            let Some((lock, waiter)) = self.waits_at_lock(key, *sequence) else { continue };
            let holders = lock.holders.iter().take_while(|_| budget.spend());
            let holders = holders.filter(|(token, _)| needs_release(lock, waiter, **token));
            let holders = holders.filter_map(|(_, holder)| holding_party(holder));
            found.extend(holders.map(|other| (other, step(key, *sequence, WaitsBecause::Holds))));
            let ahead = lock.queue.range(..*sequence).rev().take_while(|_| budget.spend());
            let ahead = ahead.filter(|(_, ahead)| stays_behind(lock, waiter, ahead));
            let ahead = ahead.filter_map(|(_, ahead)| waiting_party(ahead));
            found.extend(ahead.map(|other| (other, step(key, *sequence, WaitsBecause::StandsAhead))));
        }
        found
    }

    /// Who needs this party's end, as far as the budget goes.
    fn needed_by(&self, party: &Party, budget: &Budget) -> Vec<(Party, Step)> {
        let Some(ties) = self.parties.get(party) else { return Vec::new() };
        let parent = |parent: &Party| Some((parent.clone(), nested(parent, ties)?));
        let mut found: Vec<_> = ties.parents.keys().take_while(|_| budget.spend()).filter_map(parent).collect();
        for (key, token) in ties.holds.iter().take_while(|_| budget.spend()) {
            let Some(lock) = self.locks.get(key) else { continue };
            let waiters = lock.queue.iter().take_while(|_| budget.spend());
            let waiters = waiters.filter(|(_, waiter)| needs_release(lock, waiter, *token));
            let waiters = waiters.filter_map(|(at, waiter)| Some((waiting_party(waiter)?, *at)));
            found.extend(waiters.map(|(other, at)| (other, step(key, at, WaitsBecause::Holds))));
        }
        for (key, sequence) in ties.waits.iter().take_while(|_| budget.spend()) {
            let Some((lock, ahead)) = self.waits_at_lock(key, *sequence) else { continue };
            let behind = lock.queue.range(sequence + 1..).take_while(|_| budget.spend());
            let behind = behind.filter(|(_, waiter)| stays_behind(lock, waiter, ahead));
            let behind = behind.filter_map(|(at, waiter)| Some((waiting_party(waiter)?, *at)));
            found.extend(behind.map(|(other, at)| (other, step(key, at, WaitsBecause::StandsAhead))));
        }
        found
    }

    /// Who waits there.
    fn waits_at_lock(&self, key: &LockKey, sequence: u64) -> Option<(&Lock, &Waiter)> {
        let lock = self.locks.get(key)?;
        Some((lock, lock.queue.get(&sequence)?))
    }
}

/// Whether the two are never held at once, whoever else holds the lock. Permits may come from others where the limit is
/// large enough for both.
fn excludes(lock: &Lock, one: Mode, other: Mode) -> bool {
    let limit = u64::from(lock.limit.unwrap_or_default());
    conflict(one, other) && (lock.kind == Kind::Lock || limit < permits_of(one) + permits_of(other))
}

/// Whether this waiter waits until that hold is released. Not its own one, which it upgrades.
fn needs_release(lock: &Lock, waiter: &Waiter, token: FencingToken) -> bool {
    let holder = lock.holders.get(&token).filter(|_| waiter.purpose != Purpose::Upgrade(token));
    holder.is_some_and(|holder| excludes(lock, holder.mode, waiter.mode))
}

/// Whether a waiter never passes one ahead, and cannot share the lock with it. Beside waiting sets it may come to.
fn stays_behind(lock: &Lock, waiter: &Waiter, ahead: &Waiter) -> bool {
    let upgrades = matches!(waiter.purpose, Purpose::Upgrade(_));
    let both_barge = waiter.barges() && ahead.barges();
    !lock.queue.has_sets() && !upgrades && !both_barge && excludes(lock, ahead.mode, waiter.mode)
}

fn step(key: &LockKey, sequence: u64, why: WaitsBecause) -> Step {
    (Node::Wait(key.clone(), sequence), (key.clone(), why))
}

/// A parent needs the end of a nested run that holds or waits for something.
fn nested(parent: &Party, child: &Ties) -> Option<Step> {
    let lock = child.waits.first().map(|(key, _)| key).or(child.holds.first().map(|(key, _)| key))?;
    Some((Node::Party(parent.clone()), (lock.clone(), WaitsBecause::Nested)))
}

/// The way from the first party round to itself, by how everybody was found, the last one with what closes the circle.
fn circle(way: Way, came: &BTreeMap<Party, (Party, Step)>, last: Party, closes: Step) -> Vec<Step> {
    let (mut steps, mut at) = (Vec::new(), last);
    while let Some((from, step)) = came.get(&at) {
        steps.push(step.clone());
        at = from.clone();
    }
    match way {
        Way::Back => steps.insert(0, closes),
        Way::Forward => {
            steps.reverse();
            steps.push(closes);
        }
    }
    steps
}
