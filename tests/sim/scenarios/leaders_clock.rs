//! The monotonic clock of the leader jumps ahead by a minute, and later stops for longer than the TTL. Log time does
//! not include the jump, no session of a healthy client ends, and every session can still expire afterwards.

use std::sync::Arc;
use std::time::Duration;

use super::end_of_scenario;
use crate::clients::TTL;
use crate::injected;
use crate::invariants::as_documented;
use crate::world::World;

pub(super) fn run(world: &mut World) {
    world.await_leader();
    (0..3).for_each(|client| world.add_contender(client));
    for _ in 0..2 {
        world.pass(TTL / 2);
        let leader = world.await_leader();
        let clock = Arc::clone(&world.places[leader].clock);
        world.set_clock(injected::NODE_CLOCK, &clock, |clock| clock.jump(Duration::from_secs(60)));
    }
    world.pass(TTL);
    let leader = world.await_leader();
    let clock = Arc::clone(&world.places[leader].clock);
    world.set_clock(injected::NODE_CLOCK_STANDS, &clock, |clock| clock.stand_still(TTL + TTL / 2));
    world.pass(2 * TTL);
    let expired = world.run.notes().expired.len();
    if expired != 0 {
        world.run.found(as_documented::NAME, format!("{expired} sessions expired although their clients were well"));
    }
    end_of_scenario(world);
}
