//! An acquire is delayed until its client gives up and cancels it over another connection. When the acquire arrives,
//! the cancel decides its answer, and no hold without a client remains.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::sleep;

use super::{end_of_scenario, opened};
use crate::clients::CLIENT_HOSTS;
use crate::invariants::{as_documented, coverage};
use crate::net::CLIENT_PORT;
use crate::run::{NODE_HOSTS, NODES};
use crate::world::World;

/// Request wait of the client.
const WAIT: Duration = Duration::from_millis(700);

pub(super) fn run(world: &mut World) {
    let leader = world.await_leader();
    let (delayed, gave_up, end) = (flag(), flag(), flag());
    let flags = (Rc::clone(&delayed), Rc::clone(&gave_up), Rc::clone(&end));
    let asks = world.add_client(0, |caller| async move {
        let nodes = NODE_HOSTS.iter().map(|host| format!("{host}:{CLIENT_PORT}")).collect();
        let connection = caller.connect_to(nodes, WAIT);
        let session = opened(&caller, || connection.session().ttl(Duration::from_secs(20))).await;
        while !flags.0.get() {
            sleep(Duration::from_millis(1)).await;
        }
        let asked = session.lock("red").wait(Duration::from_millis(200)).acquire().await;
        match asked {
            Ok(guard) => caller.run.found(coverage::NAME, format!("it acquired token {} in time", guard.token())),
            Err(error) => caller.run.note_error("acquire", &error),
        }
        flags.1.set(true);
        while !flags.2.get() {
            sleep(Duration::from_millis(1)).await;
        }
        drop(session.close().await);
    });
    let opened = |world: &mut World| world.run.notes().history.event_logs.iter().any(|log| !log.events.is_empty());
    world.must("a session", Duration::from_secs(5), opened);
    world.pass(Duration::from_millis(50));
    let elsewhere = |world: &World| (1..NODES).map(|step| world.arrivals_at((leader + step) % NODES)).sum::<usize>();
    let before_it = elsewhere(world);
    world.hold(CLIENT_HOSTS[0], NODE_HOSTS[leader]);
    delayed.set(true);
    world.must("the end of patience", Duration::from_secs(5), |_| gave_up.get());
    // The cancel continues without its caller and uses another connection.
    world.pass(4 * WAIT);
    let before = world.arrivals_at(leader);
    if elsewhere(world) == before_it {
        world.run.found(coverage::NAME, "the cancel used no other connection".to_owned());
    }
    world.release(CLIENT_HOSTS[0], NODE_HOSTS[leader]);
    world.pass(Duration::from_millis(500));
    if world.arrivals_at(leader) == before {
        world.run.found(coverage::NAME, "the delayed messages did not arrive".to_owned());
    }
    let granted = world.run.notes().granted;
    if granted != 0 {
        world.run.found(as_documented::NAME, format!("{granted} grants after the cancel was answered"));
    }
    end.set(true);
    world.must("the end", Duration::from_secs(10), |_| asks.is_done());
    end_of_scenario(world);
}

fn flag() -> Rc<Cell<bool>> {
    Rc::default()
}
