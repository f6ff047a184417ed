//! Power fails on all nodes at once while all disks are slow. Everything that was acknowledged is there afterwards, and
//! entries that were not durable on any node had not been acknowledged.

use std::time::Duration;

use super::{end_of_scenario, holds_until_lost};
use crate::run::NODES;
use crate::world::World;

pub(super) fn run(world: &mut World) {
    world.await_leader();
    let one = world.add_client(0, |caller| holds_until_lost(caller, "red", Duration::from_millis(2_000)));
    world.must("a grant", Duration::from_secs(5), |world| world.run.notes().granted == 1);
    (0..NODES).for_each(|node| world.stall(node, true));
    let other = world.add_client(1, |caller| holds_until_lost(caller, "blue", Duration::from_millis(20)));
    world.must("something that is not durable", Duration::from_secs(2), |world| {
        (0..NODES).any(|node| world.log_of(node).1 < world.log_of(node).0)
    });
    world.pass(Duration::from_millis(60));
    (0..NODES).for_each(|node| world.crash(node));
    (0..NODES).for_each(|node| world.restart(node));
    world.must("both are served", Duration::from_secs(20), |_| one.is_done() && other.is_done());
    end_of_scenario(world);
}
