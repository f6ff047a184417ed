//! A leader is partitioned from the other nodes, but not from its client, which reaches only that leader. The leader
//! renews nothing, the session ends on the other nodes, and the next waiter gets the lock.

use std::time::Duration;

use super::{end_of_scenario, holds_until_lost};
use crate::clients::{CLIENT_HOSTS, TTL};
use crate::invariants::mute;
use crate::run::{NODE_HOSTS, NODES};
use crate::sure::SessionOrHold;
use crate::world::World;

pub(super) fn run(world: &mut World) {
    let leader = world.await_leader();
    let holds = world.add_client(0, |caller| holds_until_lost(caller, "red", Duration::MAX));
    world.must("a grant", Duration::from_secs(5), |world| world.run.notes().granted == 1);
    for node in (0..NODES).filter(|node| *node != leader) {
        world.cut(CLIENT_HOSTS[0], NODE_HOSTS[node]);
    }
    world.cut_from_peers(leader);
    let cut = world.now();
    world.await_other_leader(leader);
    let sessions: Vec<_> = world.run.notes().sure.sessions();
    let [cut_off] = sessions[..] else { panic!("one session holds the lock, not {sessions:?}") };
    let next = world.add_client(1, |caller| holds_until_lost(caller, "red", Duration::from_millis(50)));
    world.must("the next holder", Duration::from_secs(10), |_| next.is_done());
    world.must("the end of the first", Duration::from_secs(2), |_| holds.is_done());
    let sure = world.run.notes().sure.at_most(SessionOrHold::Session(cut_off));
    // The last answered renewal was sent before the partition.
    if cut + TTL + Duration::from_millis(20) < sure {
        world.run.found(mute::NAME, format!("partitioned at {cut:?}, and a client was sure until {sure:?}"));
    }
    world.repair_with_peers(leader);
    for node in NODE_HOSTS {
        world.repair(CLIENT_HOSTS[0], node);
    }
    end_of_scenario(world);
}
