//! The connection of a client to the leader stalls, and the client attaches over another one. Renewals that arrive over
//! the old connection later have no effect, and its end does not start the disconnect grace.

use std::time::Duration;

use super::{end_of_scenario, holds_in, opened};
use crate::clients::CLIENT_HOSTS;
use crate::invariants::{as_documented, coverage};
use crate::net::CLIENT_PORT;
use crate::run::NODE_HOSTS;
use crate::world::World;

const GRACE: Duration = Duration::from_secs(2);

pub(super) fn run(world: &mut World) {
    let leader = world.await_leader();
    let holds = world.add_client(0, |caller| async move {
        let nodes = NODE_HOSTS.iter().map(|host| format!("{host}:{CLIENT_PORT}")).collect();
        let connection = caller.connect_to(nodes, Duration::from_millis(400));
        let builder = || connection.session().ttl(Duration::from_secs(8)).disconnect_grace(GRACE);
        let session = opened(&caller, builder).await;
        holds_in(caller, session, "red", Duration::from_secs(9)).await;
    });
    world.must("a grant", Duration::from_secs(5), |world| world.run.notes().granted == 1);
    world.pass(Duration::from_millis(200));
    world.hold(CLIENT_HOSTS[0], NODE_HOSTS[leader]);
    // This is longer than the grace, so a session that still lives has attached to another node.
    world.pass(GRACE + Duration::from_millis(500));
    if holds.is_done() {
        world.run.found(as_documented::NAME, "the lock was lost with its connection".to_owned());
    }
    let before = world.arrivals_at(leader);
    world.release(CLIENT_HOSTS[0], NODE_HOSTS[leader]);
    world.pass(Duration::from_millis(50));
    if world.arrivals_at(leader) == before {
        world.run.found(coverage::NAME, "nothing arrived late".to_owned());
    }
    world.pass(2 * GRACE);
    if holds.is_done() || !world.run.notes().expired.is_empty() {
        world.run.found(as_documented::NAME, "a late end of the old connection ended the session".to_owned());
    }
    world.must("the end of the hold", Duration::from_secs(10), |_| holds.is_done());
    end_of_scenario(world);
}
