//! What the waiters of a semaphore need, said of the whole queue at once: each needs the one before it to be granted, and then
//! more permits to be given back than that one. So a queue costs as much to look at as it is long.
//!
//! Most waiters are done as soon as they are granted, a set as well that lacks nothing but the permits. Such neighbours count
//! as one, the one of them that wants most permits; one of them is told apart once something else turns out to wait for it.
//!
//! Who barges passes others who barge. Whoever may come to pass waiting sets has its needs said elsewhere: here it is in the
//! way of others alone.

use std::collections::{BTreeMap, BTreeSet};

use super::Machine;
use super::graph::{Graph, Node};
use super::lock::Lock;
use super::parties::{Party, holding_party, waiting_party};
use super::state::{Waiter, permits_of};
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
    /// It may come to pass waiting sets.
    passes: bool,
    /// How many ahead of it may.
    passing: usize,
}

/// The end of a queue, up to somebody.
#[derive(Default)]
struct End {
    /// The last one who is fair and passes nobody, and those fair ones after it who may.
    fair: Vec<u64>,
    /// Those who barge after that one.
    barging: Vec<u64>,
    /// Permits that those ahead may keep.
    kept: u64,
    /// Permits that those of them may keep who are fair.
    kept_by_fair: u64,
    /// How many may come to pass waiting sets.
    passing: usize,
}

/// A semaphore of which all was said that is the same for everybody there.
pub(super) struct Pooled {
    /// What comes together for those who barge, or do not, behind so many who may come to pass sets.
    pools: BTreeMap<(bool, usize), usize>,
    /// Permits that nobody keeps for ever.
    free: u64,
    places: Vec<Place>,
}

impl Machine {
    /// Says what this waiter needs. Answers `false` where it cannot be said so.
    pub(super) fn needs_of_pool(&self, graph: &mut Graph, (key, lock): (&LockKey, &Lock), sequence: u64) -> bool {
        let waiter = lock.queue.get(&sequence).filter(|_| lock.kind == Kind::Semaphore);
        let Some(waiter) = waiter else { return false };
        let pooled = match graph.pooled.remove(key) {
            Some(pooled) => pooled,
            None => self.say_all(graph, key, lock),
        };
        if let Some(place) = pooled.stands_in(sequence) {
            // Who barges needs no more than it wants itself, whoever stands beside it.
            let own = Some(permits_of(waiter.mode)).filter(|_| waiter.barges());
            self.say(graph, (key, lock), &pooled, place, (sequence, own));
        }
        graph.pooled.insert(key.clone(), pooled);
        !self.may_come_to_pass(graph, key, lock, waiter)
    }

    fn may_come_to_pass(&self, graph: &mut Graph, key: &LockKey, lock: &Lock, waiter: &Waiter) -> bool {
        // Who is passed stands behind a set, or is one.
        lock.queue.has_sets() && !self.passing(graph, key, waiter).is_empty()
    }

    fn places(&self, graph: &mut Graph, key: &LockKey, lock: &Lock) -> Vec<Place> {
        let apart = self.told_apart(graph, key, lock);
        let may_pass = self.may_pass_at(graph, key);
        let mut places: Vec<Place> = Vec::new();
        let mut end = End { kept: lock.permits_held, kept_by_fair: lock.permits_held, ..End::default() };
        for (number, waiter) in lock.queue.iter().filter(|(_, waiter)| waiter.is_endless()) {
            let (number, permits, barges) = (*number, permits_of(waiter.mode), waiter.barges());
            let may_pass = waiter.claim.session().is_some_and(|id| may_pass.contains(&id));
            let passes = may_pass && self.may_come_to_pass(graph, key, lock, waiter);
            let alone = passes || apart.contains(&number);
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
            let place = Place { number, permits, barges, party, kept, ahead, last: true, passes, passing: end.passing };
            end.add(&place);
            places.push(place);
        }
        places
    }

    /// The places in this queue of whom the search is for, and of everybody who may not be done when granted; found from the
    /// shorter side.
    fn told_apart(&self, graph: &Graph, key: &LockKey, lock: &Lock) -> BTreeSet<u64> {
        if lock.queue.len() < self.entangled.len() + graph.whose().len() {
            let apart = |party: &Party| self.entangled.contains(party) || graph.whose().contains(party);
            let alone =
                lock.queue.iter().filter(|(_, waiter)| waiting_party(waiter).is_some_and(|party| apart(&party)));
            return alone.map(|(number, _)| *number).collect();
        }
        let ties = self.entangled.iter().chain(graph.whose()).filter_map(|party| self.parties.get(party));
        let waits = ties.flat_map(|ties| ties.waits.range((key.clone(), 0)..=(key.clone(), u64::MAX)));
        waits.map(|(_, number)| *number).collect()
    }

    /// Says what there is in common, and what the last one of each place needs.
    fn say_all(&self, graph: &mut Graph, key: &LockKey, lock: &Lock) -> Pooled {
        let places = self.places(graph, key, lock);
        let holders =
            || lock.holders.values().filter_map(|holder| Some((holding_party(holder)?, permits_of(holder.mode))));
        graph.show(Node::Holders(key.clone()), holders().map(|(party, _)| Node::Party(party)));
        // Whoever is no party can always go on, and gives back what it holds.
        let free = u64::from(lock.limit.unwrap_or_default()) + lock.permits_held
            - holders().map(|(_, permits)| permits).sum::<u64>();
        let mut pooled = Pooled { pools: BTreeMap::new(), free, places };
        for place in pooled.places.iter().filter(|place| place.last && !place.passes) {
            let pool = pooled.pools.entry((place.barges, place.passing));
            pool.or_insert_with(|| {
                graph.pool(holders().chain(pooled.places.iter().filter_map(|other| place.gains(other))))
            });
        }
        for (at, place) in pooled.places.iter().enumerate().filter(|(_, place)| place.last) {
            if !place.passes {
                self.say(graph, (key, lock), &pooled, at, (place.number, None));
            }
            let party = place.party.clone().map(Node::Party);
            graph.show(Node::UpTo(key.clone(), place.number), up_to(key, place).chain(party));
        }
        pooled
    }

    /// Says what is needed by one who stands in this place: so many permits, or as many as its place wants.
    fn say(
        &self,
        graph: &mut Graph,
        (key, lock): (&LockKey, &Lock),
        pooled: &Pooled,
        at: usize,
        (number, permits): (u64, Option<u64>),
    ) {
        let place = &pooled.places[at];
        let of = graph.number(Node::Wait(key.clone(), number));
        let missing = (place.kept + permits.unwrap_or(place.permits)).saturating_sub(pooled.free);
        if 0 < missing {
            let ways = std::iter::once(Node::Holders(key.clone())).chain(up_to(key, place));
            let pool = pooled.pools[&(place.barges, place.passing)];
            graph.need_of_pool(of, (pool, missing), ways, &(key.clone(), WaitsBecause::Holds));
        }
        let behind = (key.clone(), WaitsBecause::StandsAhead);
        for grant in place.ahead.iter().flat_map(|ahead| self.grants_of(key, lock, *ahead)) {
            graph.need(of, 1, vec![(grant, 1)], Some(&behind));
        }
    }
}

impl Place {
    /// What somebody else there gives back that counts here: of one in the way, or of one that goes later in any case.
    fn gains(&self, other: &Self) -> Option<(Party, u64)> {
        let counts = !(self.barges && other.barges) && (!other.passes || other.passing < self.passing);
        Some((other.party.clone()?, other.permits)).filter(|_| counts)
    }
}

impl End {
    /// Who has to be granted before one that stands here, and what they may keep.
    fn ahead_of(&self, barges: bool) -> (Vec<u64>, u64) {
        match barges {
            true => (self.fair.clone(), self.kept_by_fair),
            false => (self.fair.iter().chain(&self.barging).copied().collect(), self.kept),
        }
    }

    fn add(&mut self, place: &Place) {
        let keeps = if place.party.is_some() { place.permits } else { 0 };
        self.kept += keeps;
        self.passing += usize::from(place.passes);
        if place.barges {
            self.barging.push(place.number);
            return;
        }
        self.kept_by_fair += keeps;
        if !place.passes {
            self.barging.clear();
            self.fair.clear();
        }
        self.fair.push(place.number);
    }

    /// Another stands for the last one, who keeps nothing.
    fn take_back(&mut self, barges: bool) {
        if barges {
            self.barging.pop();
        }
    }
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
}
