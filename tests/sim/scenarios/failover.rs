//! The streams from the leader end. If its process is gone, the next leader requests votes at once. If the leader
//! is silent, it stays until the election timeout. If only one node cannot reach it, it stays.

use std::time::Duration;

use lockkeeper::limits::FAST_TIMING_MS;

use super::end_of_scenario;
use crate::invariants::failover;
use crate::run::{NODE_HOSTS, NODES};
use crate::world::World;

/// Shorter than any election timeout after the last message of a leader.
const AT_ONCE: Duration = Duration::from_millis(140);
/// Longest time from the last message of a leader until another one leads, if the first election has a winner. The
/// followers refuse votes for the longest election timeout, and then wait for an election timeout.
const FAILOVER: Duration = Duration::from_millis(2 * FAST_TIMING_MS[2] + 3 * FAST_TIMING_MS[0] + 50);
/// Number of failovers after a silence. The votes of one election may be split, but not those of each first election.
const SILENCES: usize = 3;

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

/// The followers receive nothing from the leader, and their connections break: dialling gets no answer. The election
/// timeout decides: a leader whose silence is shorter stays, and after a longer one another node leads in time.
pub(super) fn of_a_silent_leader(world: &mut World) {
    let leader = settled_leader(world);
    let term = term_of(world, leader);
    falls_silent(world, leader);
    world.pass(AT_ONCE);
    stays(world, leader, term);
    speaks_again(world, leader);
    let mut fastest = Duration::MAX;
    for _ in 0..SILENCES {
        let leader = settled_leader(world);
        falls_silent(world, leader);
        let silent = world.now();
        world.await_other_leader(leader);
        fastest = fastest.min(world.now() - silent);
        speaks_again(world, leader);
    }
    if FAILOVER < fastest {
        let what = format!("the fastest of {SILENCES} failovers took {fastest:?}, not {FAILOVER:?}");
        world.run.found(failover::NAME, what);
    }
    end_of_scenario(world);
}

fn falls_silent(world: &mut World, leader: usize) {
    for other in (0..NODES).filter(|other| *other != leader) {
        world.hold(NODE_HOSTS[leader], NODE_HOSTS[other]);
    }
    world.reset(Some(NODE_HOSTS[leader]));
}

fn speaks_again(world: &mut World, leader: usize) {
    world.reset(None);
    for other in (0..NODES).filter(|other| *other != leader) {
        world.release(NODE_HOSTS[leader], NODE_HOSTS[other]);
    }
    // The next silence begins after new messages, not after those that were held.
    world.pass(Duration::from_millis(500));
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

/// Waits until all nodes follow the same leader.
fn settled_leader(world: &mut World) -> usize {
    world.await_leader();
    world.must("followers", Duration::from_secs(5), |world| {
        let leader = world.leader().map(|leader| leader as u64 + 1);
        world.places.iter().all(|place| {
            let view = place.node().map(|node| node.views().borrow().clone());
            view.is_some_and(|view| view.leader.is_some() && view.leader == leader && view.applied.is_some())
        })
    });
    world.leader().unwrap_or_default()
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
