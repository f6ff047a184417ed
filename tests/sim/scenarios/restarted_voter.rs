//! A follower is restarted repeatedly while the leader runs. No other node is elected, and no session expires.

use std::time::Duration;

use super::end_of_scenario;
use crate::invariants::as_documented;
use crate::run::NODES;
use crate::world::World;

pub(super) fn run(world: &mut World) {
    let leader = world.await_leader();
    (0..2).for_each(|client| world.add_contender(client));
    for turn in 0..6 {
        world.pass(Duration::from_millis(400));
        let follower = (leader + 1 + turn % (NODES - 1)) % NODES;
        world.crash(follower);
        world.pass(Duration::from_millis(30));
        world.restart(follower);
    }
    world.pass(Duration::from_secs(1));
    let notes = world.run.notes();
    let (leaders, expired) = (notes.leaders.len(), notes.expired.len());
    drop(notes);
    if leaders != 1 || expired != 0 {
        world.run.found(as_documented::NAME, format!("{leaders} leaders, and {expired} sessions expired"));
    }
    end_of_scenario(world);
}
