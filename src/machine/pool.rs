//! What the waiters of a semaphore need, said of the whole queue at once: each needs the one before it to be granted, and then
//! more permits to be given back than that one. So a queue costs as much to look at as it is long.
//!
//! Of most waiters nothing else can be said than that they wait there: they are done as soon as they are granted, and nobody
//! waits for them but those behind. Such neighbours count as one, the one of them that wants most permits.
//!
//! That is so where nobody passes anybody: no set waits there, and nobody barges.

use std::collections::BTreeSet;

use super::Machine;
use super::graph::{Graph, Node};
use super::lock::Lock;
use super::parties::{Party, holding_party, waiting_party};
use super::state::permits_of;
use crate::model::{Kind, LockKey, WaitsBecause};

/// One in the queue, or neighbours that count as one.
struct Place {
    number: u64,
    permits: u64,
    /// Of one that may keep its permits.
    party: Option<Party>,
}

impl Machine {
    /// Says it, once. Answers `false` where it cannot be said so.
    pub(super) fn needs_of_pool(&self, graph: &mut Graph, key: &LockKey, lock: &Lock) -> bool {
        if lock.kind != Kind::Semaphore || lock.sets != 0 || lock.barging != 0 {
            return false;
        }
        if graph.pooled.insert(key.clone()) {
            let places = self.places(graph, key, lock);
            say(graph, key, lock, places);
        }
        true
    }

    fn places(&self, graph: &Graph, key: &LockKey, lock: &Lock) -> Vec<Place> {
        let apart = self.told_apart(graph, key, lock);
        let mut places: Vec<Place> = Vec::new();
        for (number, waiter) in lock.queue.iter().filter(|(_, waiter)| waiter.is_endless()) {
            let permits = permits_of(waiter.mode);
            let alone = apart.contains(number);
            let party = waiting_party(waiter).filter(|_| alone);
            match places.last_mut().filter(|last| !alone && last.party.is_none()) {
                Some(last) if permits <= last.permits => {}
                Some(last) => *last = Place { number: *number, permits, party },
                None => places.push(Place { number: *number, permits, party }),
            }
        }
        places
    }

    /// The places in this queue of whom the search is for, and of everybody of whom more can be said; found from the shorter
    /// side.
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

fn say(graph: &mut Graph, key: &LockKey, lock: &Lock, places: Vec<Place>) {
    let (holds, behind) = ((key.clone(), WaitsBecause::Holds), (key.clone(), WaitsBecause::StandsAhead));
    let holders = || lock.holders.values().filter_map(|holder| Some((holding_party(holder)?, permits_of(holder.mode))));
    graph.show(Node::Holders(key.clone()), holders().map(|(party, _)| Node::Party(party)));
    let waiters = places.iter().filter_map(|place| Some((place.party.clone()?, place.permits)));
    let pool = graph.pool(holders().chain(waiters));
    // Whoever is no party can always go on, and gives back what it holds.
    let free = u64::from(lock.limit.unwrap_or_default()) + lock.permits_held
        - holders().map(|(_, permits)| permits).sum::<u64>();
    let (mut kept, mut most, mut before) = (lock.permits_held, 0, None);
    for Place { number, permits, party } in places {
        let at = graph.number(Node::Wait(key.clone(), number));
        let ahead = before.map(|before| Node::UpTo(key.clone(), before));
        let missing = (kept + permits).saturating_sub(free);
        // Who needs less than one ahead has enough once that one is granted.
        if most.max(1) <= missing {
            let ways = std::iter::once(Node::Holders(key.clone())).chain(ahead.clone());
            graph.need_of_pool(at, (pool, missing), ways, &holds);
            most = missing;
        }
        if let Some(before) = before {
            graph.need(at, 1, vec![(Node::Wait(key.clone(), before), 1)], Some(&behind));
        }
        kept += if party.is_some() { permits } else { 0 };
        graph.show(Node::UpTo(key.clone(), number), ahead.into_iter().chain(party.map(Node::Party)));
        before = Some(number);
    }
}
