//! The answer to an acquire is lost with its leader. The client repeats the request at the next leader and gets the
//! same grant.

use std::time::Duration;

use super::{end_of_scenario, holds_until_lost};
use crate::clients::CLIENT_HOSTS;
use crate::invariants::as_documented;
use crate::run::NODE_HOSTS;
use crate::world::World;

pub(super) fn run(world: &mut World) {
    let leader = world.await_leader();
    let one = world.add_client(0, |caller| holds_until_lost(caller, "red", Duration::from_millis(400)));
    world.must("a grant", Duration::from_secs(5), |world| world.run.notes().granted == 1);
    let other = world.add_client(1, |caller| holds_until_lost(caller, "red", Duration::from_millis(20)));
    world.pass(Duration::from_millis(200));
    // From now on the second client receives nothing from the leader, but the leader still receives everything from the
    // client.
    world.cut_one_way(NODE_HOSTS[leader], CLIENT_HOSTS[1]);
    world.must("the second grant", Duration::from_secs(10), |world| world.run.notes().granted == 2);
    if other.is_done() {
        world.run.found(as_documented::NAME, "the second knew of its grant before the leader was gone".to_owned());
    }
    world.crash(leader);
    world.must("both are served", Duration::from_secs(20), |_| one.is_done() && other.is_done());
    world.repair(NODE_HOSTS[leader], CLIENT_HOSTS[1]);
    world.restart(leader);
    let granted = world.run.notes().history.beliefs.len();
    if granted != 2 {
        world.run.found(as_documented::NAME, format!("{granted} clients knew of their grants, and two had them"));
    }
    end_of_scenario(world);
}
