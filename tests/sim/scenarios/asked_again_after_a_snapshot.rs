//! An answer is lost with its leader. The client repeats its request at a node that knows the request only from an
//! installed snapshot, and gets the same grant.

use std::time::Duration;

use super::{end_of_scenario, holds_in, holds_until_lost, opened, throw_away_logs};
use crate::clients::CLIENT_HOSTS;
use crate::invariants::{as_documented, coverage};
use crate::nodes::Order;
use crate::run::{NODE_HOSTS, NODES};
use crate::world::World;

pub(super) fn run(world: &mut World) {
    let leader = world.await_leader();
    let (late, third) = ((leader + 1) % NODES, (leader + 2) % NODES);
    world.cut_from_peers(late);
    let one = world.add_client(0, |caller| holds_until_lost(caller, "gate", Duration::from_millis(400)));
    world.must("a grant", Duration::from_secs(5), |world| world.run.notes().granted == 1);
    let other = world.add_client(1, |caller| async move {
        let connection = caller.connect();
        let session = opened(&caller, || connection.session().ttl(Duration::from_secs(8))).await;
        holds_in(caller, session, "gate", Duration::from_millis(20)).await;
    });
    world.pass(Duration::from_millis(200));
    world.cut_one_way(NODE_HOSTS[leader], CLIENT_HOSTS[1]);
    world.must("the second grant", Duration::from_secs(10), |world| world.run.notes().granted == 2);
    if other.is_done() {
        world.run.found(coverage::NAME, "the second knew of its grant before the leader was gone".to_owned());
    }
    // Only the node with the snapshot can still send the answer.
    world.cut(CLIENT_HOSTS[1], NODE_HOSTS[third]);
    world.add_contender(2);
    let installs = world.run.notes().installs;
    throw_away_logs(world, &[leader, third], late);
    world.repair_with_peers(late);
    world.must("a snapshot", Duration::from_secs(5), |world| installs < world.run.notes().installs);
    world.pass(Duration::from_millis(50));
    world.order(leader, Order::HandOver);
    let mut now = world.await_other_leader(leader);
    if now == third {
        world.crash(leader);
        world.restart(leader);
    }
    // A failed transfer leaves the same leader, so it is requested again.
    for _ in 0..10 {
        if now != third {
            break;
        }
        world.order(third, Order::HandOver);
        world.until(Duration::from_secs(1), |world| world.leader().is_some_and(|leader| leader != third));
        now = world.leader().unwrap_or(third);
    }
    if now == third {
        world.run.found(coverage::NAME, "the node without the log of the grant never led".to_owned());
    }
    world.must("both are served", Duration::from_secs(20), |_| one.is_done() && other.is_done());
    let knew = world.run.notes().history.beliefs.iter().any(|belief| belief.client == 1);
    if !knew {
        world.run.found(as_documented::NAME, "the client never received its grant".to_owned());
    }
    [leader, third].iter().for_each(|node| world.repair(NODE_HOSTS[*node], CLIENT_HOSTS[1]));
    end_of_scenario(world);
}
