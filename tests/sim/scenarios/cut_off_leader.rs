//! A leader is partitioned from the other nodes, but not from its client, which reaches only that leader. The leader
//! renews nothing and answers no read, the session ends on the other nodes, and the next waiter gets the lock.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use lockkeeper::limits::FAST_TIMING_MS;
use tokio::time::sleep;

use super::{end_of_scenario, holds_until_lost};
use crate::clients::{CLIENT_HOSTS, Caller, TTL};
use crate::invariants::mute;
use crate::net::CLIENT_PORT;
use crate::nodes::Order;
use crate::run::{NODE_HOSTS, NODES};
use crate::sure::SessionOrHold;
use crate::world::World;

/// The clients that reach only the partitioned leader: one holds a lock, and one reads.
const CUT_OFF: [usize; 2] = [0, 2];
/// Request wait of the client that reads.
const WAIT: Duration = Duration::from_millis(400);
/// Time without a quorum after which a leader no longer claims to lead: twice the longest election timeout, and a step.
const GIVES_UP: Duration = Duration::from_millis(2 * FAST_TIMING_MS[2] + 5);

pub(super) fn run(world: &mut World) {
    let leader = world.await_leader();
    let holds = world.add_client(0, |caller| holds_until_lost(caller, "red", Duration::MAX));
    world.must("a grant", Duration::from_secs(5), |world| world.run.notes().granted == 1);
    let (connected, partitioned) = (Rc::<Cell<bool>>::default(), Rc::<Cell<bool>>::default());
    let flags = (Rc::clone(&connected), Rc::clone(&partitioned));
    let reads = world.add_client(CUT_OFF[1], move |caller| reads_of(caller, leader, flags));
    for (client, node) in CUT_OFF.into_iter().flat_map(|client| (0..NODES).map(move |node| (client, node))) {
        if node != leader {
            world.cut(CLIENT_HOSTS[client], NODE_HOSTS[node]);
        }
    }
    world.must("a read", Duration::from_secs(5), |_| connected.get());
    world.cut_from_peers(leader);
    let cut = world.now();
    partitioned.set(true);
    gives_up(world, leader);
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
    world.must("the end of the reads", Duration::from_secs(5), |_| reads.is_done());
    world.repair_with_peers(leader);
    for (client, node) in CUT_OFF.into_iter().flat_map(|client| NODE_HOSTS.map(|node| (client, node))) {
        world.repair(CLIENT_HOSTS[client], node);
    }
    end_of_scenario(world);
}

/// A client reads at the leader, and once more as soon as the leader is partitioned and still believes that it leads.
async fn reads_of(caller: Caller, leader: usize, (connected, partitioned): (Rc<Cell<bool>>, Rc<Cell<bool>>)) {
    let client = caller.connect_to(vec![format!("{}:{CLIENT_PORT}", NODE_HOSTS[leader])], WAIT);
    while let Err(error) = client.inspect("red").await {
        caller.run.note_error("inspect", &error);
    }
    connected.set(true);
    while !partitioned.get() {
        sleep(Duration::from_millis(1)).await;
    }
    match client.inspect("red").await {
        Ok(_) => caller.run.found(mute::NAME, "a leader without a quorum answered a read".to_owned()),
        Err(error) => caller.run.note_error("inspect", &error),
    }
}

/// The partitioned leader no longer claims to lead when another node may.
fn gives_up(world: &mut World, leader: usize) {
    world.pass(GIVES_UP);
    world.order(leader, Order::NoteClaim);
    world.must("its answer", Duration::from_secs(1), |world| world.run.notes().claims_to_lead.is_some());
    if world.run.notes().claims_to_lead == Some(true) {
        world.run.found(mute::NAME, format!("a leader still claims to lead {GIVES_UP:?} after the partition"));
    }
}
