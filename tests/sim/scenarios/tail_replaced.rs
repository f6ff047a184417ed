//! A partitioned leader has entries that no other node has. The others continue and purge the log that it lacks, so a
//! snapshot replaces its entries.

use std::time::Duration;

use super::{end_of_scenario, holds_until_lost, throw_away_logs};
use crate::clients::CLIENT_HOSTS;
use crate::invariants::coverage;
use crate::run::{NODE_HOSTS, NODES};
use crate::world::World;

pub(super) fn run(world: &mut World) {
    let leader = world.await_leader();
    let others: Vec<usize> = (0..NODES).filter(|node| *node != leader).collect();
    world.pass(Duration::from_millis(100));
    world.cut_from_peers(leader);
    // This client reaches only the partitioned leader, so its request is written there and on no other node.
    let before = world.log_of(leader).0;
    let cut_off = world.add_client(0, |caller| holds_until_lost(caller, "red", Duration::from_millis(10)));
    others.iter().for_each(|node| world.cut(CLIENT_HOSTS[0], NODE_HOSTS[*node]));
    world.must("a tail on this node only", Duration::from_secs(2), |world| before < world.log_of(leader).0);
    world.await_other_leader(leader);
    (1..3).for_each(|client| world.add_contender(client));
    let installs = world.run.notes().installs;
    throw_away_logs(world, &others, leader);
    world.repair_with_peers(leader);
    others.iter().for_each(|node| world.repair(CLIENT_HOSTS[0], NODE_HOSTS[*node]));
    world.must("the first is served", Duration::from_secs(20), |_| cut_off.is_done());
    world.pass(Duration::from_millis(500));
    if world.run.notes().installs == installs {
        world.run.found(coverage::NAME, "no snapshot was installed".to_owned());
    }
    end_of_scenario(world);
}
