//! Nothing can be committed for longer than the TTL, because the disks of both followers are stalled. Log time stops as
//! well, so no session expires.

use std::time::Duration;

use super::end_of_scenario;
use crate::clients::TTL;
use crate::invariants::as_documented;
use crate::run::NODES;
use crate::world::World;

pub(super) fn run(world: &mut World) {
    let leader = world.await_leader();
    (0..2).for_each(|client| world.add_contender(client));
    world.pass(Duration::from_millis(600));
    let followers: Vec<usize> = (0..NODES).filter(|node| *node != leader).collect();
    followers.iter().for_each(|node| world.stall(*node, true));
    world.pass(TTL + TTL / 2);
    followers.iter().for_each(|node| world.stall(*node, false));
    world.pass(Duration::from_secs(2));
    let expired = world.run.notes().expired.len();
    if expired != 0 {
        world.run.found(as_documented::NAME, format!("{expired} sessions expired although their clients were well"));
    }
    end_of_scenario(world);
}
