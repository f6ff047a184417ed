//! The streams from the leader end. If its process is gone, the next leader requests votes at once. If the leader
//! is silent, or only one node cannot reach it, it stays.

use std::time::Duration;

use super::end_of_scenario;
use crate::invariants::failover;
use crate::run::{NODE_HOSTS, NODES};
use crate::world::World;

/// Shorter than any election timeout after the last message of a leader.
const AT_ONCE: Duration = Duration::from_millis(140);

/// The leader's process is killed: connections to it are refused.
pub(super) fn of_a_killed_leader(world: &mut World) {
    let leader = settled_leader(world);
    world.kill(leader);
    replaced_at_once(world, leader);
    world.restart(leader);
    end_of_scenario(world);
}

/// The leader's process is killed and restarted: another process answers at its address.
pub(super) fn of_a_restarted_leader(world: &mut World) {
    let leader = settled_leader(world);
    world.kill(leader);
    world.restart(leader);
    replaced_at_once(world, leader);
    end_of_scenario(world);
}

/// The followers receive nothing from the leader, and their connections break: dialing gets no answer. The election
/// timeout decides.
pub(super) fn of_a_silent_leader(world: &mut World) {
    let leader = settled_leader(world);
    let term = term_of(world, leader);
    for other in (0..NODES).filter(|other| *other != leader) {
        world.hold(NODE_HOSTS[leader], NODE_HOSTS[other]);
    }
    world.reset(Some(NODE_HOSTS[leader]));
    world.pass(AT_ONCE);
    stays(world, leader, term);
    world.reset(None);
    for other in (0..NODES).filter(|other| *other != leader) {
        world.release(NODE_HOSTS[leader], NODE_HOSTS[other]);
    }
    end_of_scenario(world);
}

/// The connections from the leader break again and again, and one follower is refused when it dials the leader.
pub(super) fn of_one_wrong_observer(world: &mut World) {
    let leader = settled_leader(world);
    let term = term_of(world, leader);
    let observer = NODE_HOSTS[(leader + 1) % NODES];
    world.run.notes().refused = Some((observer, NODE_HOSTS[leader]));
    for _ in 0..5 {
        world.reset(Some(NODE_HOSTS[leader]));
        world.pass(Duration::from_millis(5));
        world.reset(None);
        world.pass(AT_ONCE);
        stays(world, leader, term);
    }
    world.run.notes().refused = None;
    end_of_scenario(world);
}

/// Waits until all nodes follow a leader.
fn settled_leader(world: &mut World) -> usize {
    let leader = world.await_leader();
    world.must("followers", Duration::from_secs(5), |world| {
        world.places.iter().all(|place| {
            let view = place.node().map(|node| node.views().borrow().clone());
            view.is_some_and(|view| view.leader.is_some() && view.applied.is_some())
        })
    });
    leader
}

fn term_of(world: &World, node: usize) -> u64 {
    world.places[node].node().map_or(0, |node| node.views().borrow().term)
}

fn replaced_at_once(world: &mut World, leader: usize) {
    let dead = world.now();
    if !world.until(AT_ONCE, |world| world.leader().is_some_and(|now| now != leader)) {
        world.run.found(failover::NAME, format!("no other leader {AT_ONCE:?} after the end of the leader at {dead:?}"));
    }
}

fn stays(world: &World, leader: usize, term: u64) {
    let terms: Vec<u64> = (0..NODES).map(|node| term_of(world, node)).collect();
    if world.leader() != Some(leader) || terms.iter().any(|now| *now != term) {
        world.run.found(failover::NAME, format!("the leader of term {term} lives, and the terms are {terms:?}"));
    }
}
