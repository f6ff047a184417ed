//! What the waiters of a semaphore need, said of the whole queue at once: each needs the one before it to be granted, and then
//! more permits to be given back than that one. So a queue costs as much to look at as it is long.
//!
//! That is so where nobody passes anybody: no set waits there, and nobody barges.

use super::Machine;
use super::graph::{Graph, Node};
use super::lock::Lock;
use super::parties::{holding_party, waiting_party};
use super::state::{Purpose, Waiter, permits_of};
use crate::model::{Kind, LockKey, WaitsBecause};

impl Machine {
    /// Says it, once. Answers `false` where it cannot be said so.
    pub(super) fn needs_of_pool(&self, graph: &mut Graph, key: &LockKey, lock: &Lock) -> bool {
        if lock.kind != Kind::Semaphore {
            return false;
        }
        if let Some(said) = graph.pooled.get(key) {
            return *said;
        }
        let in_order =
            lock.sets == 0 && lock.queue.values().all(|waiter| waiter.purpose == Purpose::Hold && !waiter.barges());
        graph.pooled.insert(key.clone(), in_order);
        if in_order {
            say(graph, key, lock);
        }
        in_order
    }
}

fn say(graph: &mut Graph, key: &LockKey, lock: &Lock) {
    let (holds, behind) = ((key.clone(), WaitsBecause::Holds), (key.clone(), WaitsBecause::StandsAhead));
    let holders = || lock.holders.values().filter_map(|holder| Some((holding_party(holder)?, permits_of(holder.mode))));
    let waiters = || {
        let endless =
            |(number, waiter): (&u64, &Waiter)| Some((*number, waiting_party(waiter)?, permits_of(waiter.mode)));
        lock.queue.iter().filter_map(endless)
    };
    graph.show(Node::Holders(key.clone()), holders().map(|(party, _)| Node::Party(party)));
    let given_back = holders().chain(waiters().map(|(_, party, permits)| (party, permits)));
    let pool = graph.pool(given_back);
    // Whoever is no party can always go on, and gives back what it holds.
    let free = u64::from(lock.limit.unwrap_or_default()) + lock.permits_held
        - holders().map(|(_, permits)| permits).sum::<u64>();
    let (mut wanted, mut before) = (lock.permits_held, None);
    for (number, party, permits) in waiters() {
        let at = graph.number(Node::Wait(key.clone(), number));
        wanted += permits;
        let ahead = before.map(|before| Node::UpTo(key.clone(), before));
        if free < wanted {
            let ways = std::iter::once(Node::Holders(key.clone())).chain(ahead.clone());
            graph.need_of_pool(at, (pool, wanted - free), ways, &holds);
        }
        if let Some(before) = before {
            graph.need(at, 1, vec![(Node::Wait(key.clone(), before), 1)], Some(&behind));
        }
        graph.show(Node::UpTo(key.clone(), number), ahead.into_iter().chain([Node::Party(party)]));
        before = Some(number);
    }
}
