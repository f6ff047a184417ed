//! What the waiters of a semaphore need, said of the whole queue at once: each needs the one before it to be granted, and then
//! more permits to be given back than that one. So a queue costs as much to look at as it is long.
//!
//! Most waiters are done as soon as they are granted. Such neighbours count as one, the one of them that wants most permits;
//! one of them is told apart once something else turns out to wait for it.
//!
//! Who barges passes others who barge. No set waits there: beside those, a session may come to pass others later.

use std::collections::BTreeSet;

use super::Machine;
use super::graph::{Graph, Node};
use super::lock::Lock;
use super::parties::{Party, holding_party, waiting_party};
use super::state::permits_of;
use crate::model::{Kind, LockKey, WaitsBecause};

/// One in the queue who may keep its permits, or neighbours who do not, up to the one that wants more than any before it.
struct Place {
    number: u64,
    permits: u64,
    barges: bool,
    /// Of one that may keep its permits.
    party: Option<Party>,
    /// Permits that those may keep who are in its way.
    kept: u64,
    /// Who has to be granted first, and of others ahead only who goes before these.
    ahead: Vec<u64>,
    /// Nobody of these neighbours wants more.
    last: bool,
}

/// The end of a queue, up to somebody.
#[derive(Default)]
struct End {
    /// The last one who is fair.
    fair: Option<u64>,
    /// Those who barge after it.
    barging: Vec<u64>,
    /// Permits that those ahead may keep.
    kept: u64,
    /// Permits that those of them may keep who are fair.
    kept_by_fair: u64,
}

/// A semaphore of which all was said that is the same for everybody there.
pub(super) struct Pooled {
    /// What holders give back, and everybody who goes before a fair one, who barges as well.
    fair: usize,
    /// What holders give back, and who is fair.
    barging: usize,
    /// Permits that nobody keeps for ever.
    free: u64,
    places: Vec<Place>,
}

impl Machine {
    /// Says what this waiter needs. Answers `false` where it cannot be said so.
    pub(super) fn needs_of_pool(&self, graph: &mut Graph, key: &LockKey, lock: &Lock, sequence: u64) -> bool {
        if lock.kind != Kind::Semaphore || lock.sets != 0 {
            return false;
        }
        let pooled = match graph.pooled.remove(key) {
            Some(pooled) => pooled,
            None => say_all(graph, key, lock, self.places(graph, key, lock)),
        };
        if let Some(place) = pooled.stands_in(sequence) {
            // Who barges needs no more than it wants itself, whoever stands beside it.
            let own = lock.queue.get(&sequence).filter(|waiter| waiter.barges()).map(|waiter| permits_of(waiter.mode));
            pooled.say(graph, key, place, (sequence, own));
        }
        graph.pooled.insert(key.clone(), pooled);
        true
    }

    fn places(&self, graph: &Graph, key: &LockKey, lock: &Lock) -> Vec<Place> {
        let apart = self.told_apart(graph, key, lock);
        let mut places: Vec<Place> = Vec::new();
        let mut end = End { kept: lock.permits_held, kept_by_fair: lock.permits_held, ..End::default() };
        for (number, waiter) in lock.queue.iter().filter(|(_, waiter)| waiter.is_endless()) {
            let (number, permits, barges) = (*number, permits_of(waiter.mode), waiter.barges());
            let alone = apart.contains(&number);
            let party = waiting_party(waiter).filter(|_| alone);
            let beside = places.last_mut().filter(|last| !alone && last.party.is_none() && last.barges == barges);
            let (ahead, kept) = match beside {
                Some(beside) if permits <= beside.permits => continue,
                Some(beside) => {
                    beside.last = false;
                    end.take_back(barges);
                    (beside.ahead.clone(), beside.kept)
                }
                None => end.ahead_of(barges),
            };
            places.push(Place { number, permits, barges, party, kept, ahead, last: true });
            end.add(number, barges, if alone { permits } else { 0 });
        }
        places
    }

    /// The places in this queue of whom the search is for, and of everybody who may not be done when granted; found from the
    /// shorter side.
    fn told_apart(&self, graph: &Graph, key: &LockKey, lock: &Lock) -> BTreeSet<u64> {
        if lock.queue.len() < self.entangled.len() {
            let apart = |party: &Party| self.entangled.contains(party) || graph.whose() == Some(party);
            let alone =
                lock.queue.iter().filter(|(_, waiter)| waiting_party(waiter).is_some_and(|party| apart(&party)));
            return alone.map(|(number, _)| *number).collect();
        }
        let ties = self.entangled.iter().chain(graph.whose()).filter_map(|party| self.parties.get(party));
        let waits = ties.flat_map(|ties| ties.waits.range((key.clone(), 0)..=(key.clone(), u64::MAX)));
        waits.map(|(_, number)| *number).collect()
    }
}

impl End {
    /// Who has to be granted before one that stands here, and what they may keep.
    fn ahead_of(&self, barges: bool) -> (Vec<u64>, u64) {
        let fair = || self.fair.into_iter().collect();
        match barges {
            true => (fair(), self.kept_by_fair),
            false if self.barging.is_empty() => (fair(), self.kept),
            false => (self.barging.clone(), self.kept),
        }
    }

    fn add(&mut self, number: u64, barges: bool, keeps: u64) {
        self.kept += keeps;
        if barges {
            self.barging.push(number);
        } else {
            self.kept_by_fair += keeps;
            self.barging.clear();
            self.fair = Some(number);
        }
    }

    /// Another stands for the last one, who keeps nothing.
    fn take_back(&mut self, barges: bool) {
        if barges {
            self.barging.pop();
        }
    }
}

/// Says what there is in common, and what the last one of each place needs.
fn say_all(graph: &mut Graph, key: &LockKey, lock: &Lock, places: Vec<Place>) -> Pooled {
    let holders = || lock.holders.values().filter_map(|holder| Some((holding_party(holder)?, permits_of(holder.mode))));
    graph.show(Node::Holders(key.clone()), holders().map(|(party, _)| Node::Party(party)));
    let waiters = |place: &Place| Some((place.party.clone()?, place.permits));
    let fair = graph.pool(holders().chain(places.iter().filter_map(waiters)));
    let barging = match places.iter().any(|place| place.barges) {
        true => graph.pool(holders().chain(places.iter().filter(|place| !place.barges).filter_map(waiters))),
        false => fair,
    };
    // Whoever is no party can always go on, and gives back what it holds.
    let free = u64::from(lock.limit.unwrap_or_default()) + lock.permits_held
        - holders().map(|(_, permits)| permits).sum::<u64>();
    let pooled = Pooled { fair, barging, free, places };
    for (at, place) in pooled.places.iter().enumerate().filter(|(_, place)| place.last) {
        pooled.say(graph, key, at, (place.number, None));
        let party = place.party.clone().map(Node::Party);
        graph.show(Node::UpTo(key.clone(), place.number), up_to(key, place).chain(party));
    }
    pooled
}

/// Whoever stands ahead of a place, and goes before it.
fn up_to<'a>(key: &'a LockKey, place: &'a Place) -> impl Iterator<Item = Node> + 'a {
    place.ahead.iter().map(|ahead| Node::UpTo(key.clone(), *ahead))
}

impl Pooled {
    /// In which place this one stands, if nothing was said of it itself.
    fn stands_in(&self, number: u64) -> Option<usize> {
        let at = self.places.partition_point(|place| place.number <= number).checked_sub(1)?;
        let place = &self.places[at];
        (place.number != number || !place.last).then_some(at)
    }

    /// Says what is needed by one who stands there: so many permits, or as many as its place wants.
    fn say(&self, graph: &mut Graph, key: &LockKey, at: usize, (number, permits): (u64, Option<u64>)) {
        let place = &self.places[at];
        let of = graph.number(Node::Wait(key.clone(), number));
        let missing = (place.kept + permits.unwrap_or(place.permits)).saturating_sub(self.free);
        if 0 < missing {
            let ways = std::iter::once(Node::Holders(key.clone())).chain(up_to(key, place));
            let pool = if place.barges { self.barging } else { self.fair };
            graph.need_of_pool(of, (pool, missing), ways, &(key.clone(), WaitsBecause::Holds));
        }
        for ahead in &place.ahead {
            let behind = (key.clone(), WaitsBecause::StandsAhead);
            graph.need(of, 1, vec![(Node::Wait(key.clone(), *ahead), 1)], Some(&behind));
        }
    }
}
