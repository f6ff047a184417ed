//! The first leader of a cluster announces itself as soon as it can propose. Until then, status shows no version of it.

use std::time::Duration;

use lockkeeper::limits::ANNOUNCE_AGAIN_MS;
use tokio::time::sleep;

use super::end_of_scenario;
use crate::clients::REQUEST_WAIT;
use crate::invariants::as_documented;
use crate::net::CLIENT_PORT;
use crate::run::NODE_HOSTS;
use crate::world::World;

/// The leader repeats what was not proposed after this time.
const AGAIN: Duration = Duration::from_millis(ANNOUNCE_AGAIN_MS);

pub(super) fn run(world: &mut World) {
    let leader = world.await_leader();
    let elected = world.now();
    let announced = world.add_client(0, move |caller| async move {
        let client = caller.connect_to(vec![format!("{}:{CLIENT_PORT}", NODE_HOSTS[leader])], REQUEST_WAIT);
        loop {
            let status = client.status().await.expect("a status");
            if status.nodes.iter().any(|shown| shown.id == leader as u64 + 1 && shown.version.is_some()) {
                return;
            }
            sleep(Duration::from_millis(1)).await;
        }
    });
    if !world.until(AGAIN, |_| announced.is_done()) {
        let what = format!("the leader since {elected:?} has not announced itself {AGAIN:?} later");
        world.run.found(as_documented::NAME, what);
    }
    world.must("its announcement", Duration::from_secs(5), |_| announced.is_done());
    end_of_scenario(world);
}
