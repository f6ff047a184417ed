//! The leadership is transferred every 0.9 seconds. Sessions of healthy clients continue, and all clients acquire the
//! locks in turn.

use std::time::Duration;

use super::end_of_scenario;
use crate::invariants::{as_documented, coverage};
use crate::nodes::Order;
use crate::world::World;

const TURNS: usize = 7;

pub(super) fn run(world: &mut World) {
    world.await_leader();
    (0..3).for_each(|client| world.add_contender(client));
    for _ in 0..TURNS {
        world.pass(Duration::from_millis(900));
        let leader = world.await_leader();
        world.order(leader, Order::HandOver);
    }
    let (leaders, granted, expired) = {
        let notes = world.run.notes();
        (notes.leaders.len(), notes.granted, notes.expired.len())
    };
    if leaders < TURNS || granted < 60 {
        world.run.found(coverage::NAME, format!("{leaders} leaders, {granted} grants"));
    }
    if 0 < expired {
        world.run.found(as_documented::NAME, format!("{expired} healthy sessions expired"));
    }
    end_of_scenario(world);
}
