//! A call waits at a leader that is partitioned. Its grant happens on the other nodes and reaches that leader only
//! inside a snapshot, without an event. The call is answered nevertheless.

use std::time::Duration;

use super::{end_of_scenario, holds_in, holds_until_lost, opened, throw_away_logs};
use crate::clients::CLIENT_HOSTS;
use crate::invariants::{as_documented, coverage};
use crate::net::CLIENT_PORT;
use crate::run::{NODE_HOSTS, NODES};
use crate::world::World;

pub(super) fn run(world: &mut World) {
    let leader = world.await_leader();
    let others: Vec<usize> = (0..NODES).filter(|node| *node != leader).collect();
    let holds = world.add_client(0, |caller| holds_until_lost(caller, "gate", Duration::from_millis(900)));
    world.must("a grant", Duration::from_secs(5), |world| world.run.notes().granted == 1);
    let waits = world.add_client(1, |caller| async move {
        let nodes = NODE_HOSTS.iter().map(|host| format!("{host}:{CLIENT_PORT}")).collect();
        let connection = caller.connect_to(nodes, Duration::from_secs(20));
        let session = opened(&caller, || connection.session().ttl(Duration::from_secs(60))).await;
        holds_in(caller, session, "gate", Duration::from_millis(20)).await;
    });
    // The client reaches only this node, and its requests wait longer than the scenario takes.
    others.iter().for_each(|node| world.cut(CLIENT_HOSTS[1], NODE_HOSTS[*node]));
    world.pass(Duration::from_millis(300));
    world.cut_from_peers(leader);
    world.await_other_leader(leader);
    world.must("the grant elsewhere", Duration::from_secs(10), |world| world.run.notes().granted == 2);
    world.add_contender(2);
    let installs = world.run.notes().installs;
    throw_away_logs(world, &others, leader);
    if waits.is_done() {
        world.run.found(coverage::NAME, "it was answered before the snapshot arrived".to_owned());
    }
    world.repair_with_peers(leader);
    let granted = world.until(Duration::from_secs(3), |_| waits.is_done());
    if world.run.notes().installs == installs {
        world.run.found(coverage::NAME, "no snapshot was installed".to_owned());
    }
    if !granted {
        world.run.found(as_documented::NAME, "the waiting call did not get the grant inside a snapshot".to_owned());
    }
    others.iter().for_each(|node| world.repair(CLIENT_HOSTS[1], NODE_HOSTS[*node]));
    world.must("both are done", Duration::from_secs(70), |_| holds.is_done() && waits.is_done());
    end_of_scenario(world);
}
