//! A client with a disconnect grace is partitioned. It is no longer sure of its hold after the grace, and the next
//! waiter gets the lock only after that, whether or not a node detects the end of the connection.

use std::time::Duration;

use super::{end_of_scenario, holds_in, holds_until_lost, opened};
use crate::clients::CLIENT_HOSTS;
use crate::invariants::{as_documented, coverage};
use crate::run::NODE_HOSTS;
use crate::world::World;

const GRACE: Duration = Duration::from_millis(800);
const TTL: Duration = Duration::from_secs(4);

pub(super) fn run(world: &mut World) {
    let leader = world.await_leader();
    let holds = world.add_client(0, |caller| async move {
        let connection = caller.connect();
        let session = opened(&caller, || connection.session().ttl(TTL).disconnect_grace(GRACE)).await;
        holds_in(caller, session, "red", Duration::MAX).await;
    });
    world.must("a grant", Duration::from_secs(5), |world| world.run.notes().granted == 1);
    let next = world.add_client(1, |caller| holds_until_lost(caller, "red", Duration::from_millis(50)));
    world.pass(GRACE);
    if holds.is_done() {
        world.run.found(as_documented::NAME, "a healthy holder lost its lock".to_owned());
    }
    let cut = world.now();
    for node in NODE_HOSTS {
        world.cut(CLIENT_HOSTS[0], node);
    }
    // The leader crashes with the stream, so no node remains that could detect that the stream broke.
    if world.random.below(2) == 0 {
        world.crash(leader);
        world.await_other_leader(leader);
        world.restart(leader);
    }
    world.until(GRACE, |_| false);
    let sure = world.run.notes().sure.of_any_session();
    if sure < cut || cut + GRACE + Duration::from_millis(20) < sure {
        world.run.found(as_documented::NAME, format!("partitioned at {cut:?}, and sure until {sure:?}"));
    }
    world.must("the next holder", 3 * TTL, |_| next.is_done());
    let ends = world.run.notes().history.beliefs.len();
    if ends == 0 {
        world.run.found(coverage::NAME, "no client held the lock".to_owned());
    }
    NODE_HOSTS.iter().for_each(|node| world.repair(CLIENT_HOSTS[0], node));
    world.must("the end of the first", 2 * TTL, |_| holds.is_done());
    end_of_scenario(world);
}
