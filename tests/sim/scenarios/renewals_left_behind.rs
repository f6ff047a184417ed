//! More renewals wait than fit into an entry, repeatedly. The disks of both followers stall, each time too shortly for
//! an election, and nothing is committed meanwhile. A renewal that the leader received in time counts, however many
//! entries are ahead of its entry.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockkeeper::client::{Client, ClientError};
use lockkeeper::rpc::RemoteService;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::end_of_scenario;
use crate::clients::{Caller, REQUEST_WAIT};
use crate::clock::truth;
use crate::invariants::{coverage, in_time};
use crate::net::CLIENT_PORT;
use crate::run::{NODE_HOSTS, NODES};
use crate::sure::SessionOrHold;
use crate::world::World;

const LEASES: usize = 64;
const AN_ENTRY: usize = 1;
/// The number of stalls. Each stall, with its pause in the log, is well below the shortest election timeout: a leader
/// that no quorum acknowledges for that long accepts no entries and rejects waiting ones.
const STALLS: usize = 8;
/// Longest time for a request to arrive over an undisturbed connection.
const ARRIVES: Duration = Duration::from_millis(15);

pub(super) fn run(world: &mut World) {
    world.places.iter().for_each(|place| place.renewals_an_entry_max.store(AN_ENTRY, Ordering::Relaxed));
    let leader = world.await_leader();
    let ending = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&ending);
    let refreshes = world.add_client(0, move |caller| many(caller, NODE_HOSTS[leader], ends));
    world.must("the grants", Duration::from_secs(5), |world| world.run.notes().granted == LEASES);
    let followers: Vec<usize> = (0..NODES).filter(|node| *node != leader).collect();
    for _ in 0..STALLS {
        let (pause, stalled) = (world.random.ms(150, 400), world.random.ms(40, 75));
        world.pass(pause);
        followers.iter().for_each(|node| world.stall(*node, true));
        world.pass(stalled);
        followers.iter().for_each(|node| world.stall(*node, false));
    }
    ending.store(true, Ordering::Relaxed);
    world.must("the end of the leases", Duration::from_secs(10), |_| refreshes.is_done());
    if world.leader() != Some(leader) || world.run.notes().leaders.len() != 1 {
        world.run.found(coverage::NAME, "another node leads now".to_owned());
    }
    end_of_scenario(world);
}

/// Takes leases, and refreshes each shortly before its end.
async fn many(mut caller: Caller, leader: &'static str, ending: Arc<AtomicBool>) {
    let connection = caller.connect_to(vec![format!("{leader}:{CLIENT_PORT}")], REQUEST_WAIT);
    let mut leases = JoinSet::new();
    for number in 0..LEASES {
        let random = caller.random.fork();
        leases.spawn(one(Caller { random, ..caller.clone() }, connection.clone(), number, Arc::clone(&ending)));
    }
    while leases.join_next().await.is_some() {}
}

async fn one(mut caller: Caller, connection: Client<RemoteService>, number: usize, ending: Arc<AtomicBool>) {
    let length = caller.random.ms(500, 1_200);
    let taken = connection.lease(&format!("of-{number}")).duration(length).take().await;
    let mut lease = match taken {
        Ok(lease) => lease,
        Err(error) => return caller.run.found(coverage::NAME, format!("a lease was not taken: {error:?}")),
    };
    let own = SessionOrHold::Hold(lease.token());
    while !ending.load(Ordering::Relaxed) {
        let until = caller.sure_of(own, lease.valid_for());
        sleep((until - truth()).saturating_sub(ARRIVES + caller.random.ms(2, 40))).await;
        let arrives = truth() + ARRIVES;
        let refreshed = lease.refresh().await;
        match refreshed {
            Ok(_) => {}
            Err(ClientError::Refused(refusal)) => {
                if arrives < until {
                    let what = format!("arrived by {arrives:?}, sure until {until:?}, and refused: {refusal:?}");
                    caller.run.found(in_time::NAME, what);
                }
                return;
            }
            Err(error) => caller.run.note_error("refresh", &error),
        }
    }
    if let Err(error) = lease.release().await {
        caller.run.note_error("release", &error);
    }
}
