//! A lease lock is renewed for ten periods (R-LEASE-01), and answers are late for part of that time. Two renewals are
//! never more than half a period apart, and no other client gets the lock.

use std::time::Duration;

use lockkeeper::compat::lease_lock::LeaseLock;
use tokio::time::sleep;

use super::end_of_scenario;
use crate::clients::{CLIENT_HOSTS, REQUEST_WAIT};
use crate::invariants::{as_documented, coverage};
use crate::net::CLIENT_PORT;
use crate::run::NODE_HOSTS;
use crate::world::World;

const PERIOD: Duration = Duration::from_secs(3);
const PERIODS: u32 = 10;
/// Delay of the answers, which is within the time that a renewal may take.
const LATE: Duration = Duration::from_millis(400);

pub(super) fn run(world: &mut World) {
    let leader = world.await_leader();
    let holds = world.add_client(0, move |caller| async move {
        // Another node would forward its requests, and then none of its messages to the leader would be late.
        let client = caller.connect_to(vec![format!("{}:{CLIENT_PORT}", NODE_HOSTS[leader])], REQUEST_WAIT);
        let lock = LeaseLock::new(client, PERIOD);
        let guard = match lock.take("red").await {
            Ok(Some(guard)) => guard,
            other => return caller.run.found(as_documented::NAME, format!("a free lease was not taken: {other:?}")),
        };
        sleep(PERIOD * PERIODS).await;
        let renewals = guard.renewals();
        let apart = renewals.windows(2).map(|two| two[1].since(two[0])).max().unwrap_or(PERIOD);
        if PERIOD / 2 < apart || renewals.len() < 2 * PERIODS as usize {
            let times = renewals.len();
            caller.run.found(as_documented::NAME, format!("{times} renewals of a lease, up to {apart:?} apart"));
        }
        if !matches!(guard.release().await, Ok(true)) {
            caller.run.found(as_documented::NAME, "a renewed lease had ended".to_owned());
        }
    });
    let takes = world.add_client(1, |caller| async move {
        let lock = LeaseLock::new(caller.connect(), PERIOD);
        sleep(PERIOD).await;
        for _ in 2..PERIODS {
            if let Ok(Some(_)) = lock.take("red").await {
                caller.run.found(as_documented::NAME, "two clients have one lease".to_owned());
            }
            sleep(PERIOD).await;
        }
    });
    world.pass(PERIOD * 3);
    for _ in 0..5 {
        let before = world.arrivals_at(leader);
        world.hold(CLIENT_HOSTS[0], NODE_HOSTS[leader]);
        world.pass(LATE);
        world.release(CLIENT_HOSTS[0], NODE_HOSTS[leader]);
        world.pass(PERIOD / 3);
        if world.arrivals_at(leader) == before {
            world.run.found(coverage::NAME, "nothing arrived late".to_owned());
        }
    }
    world.must("the end of the lease", PERIOD * PERIODS, |_| holds.is_done() && takes.is_done());
    end_of_scenario(world);
}
