//! Renewals arrive, and their answers are lost. The renewals extend the session, but its client counts none of them.
//! The next answer covers them all.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::{end_of_scenario, holds_in, opened};
use crate::clients::CLIENT_HOSTS;
use crate::invariants::{as_documented, coverage};
use crate::run::NODE_HOSTS;
use crate::world::World;

const TTL: Duration = Duration::from_secs(4);
/// Longer than the time between two renewals, and shorter than the rest of the session after one.
const SILENCE: Duration = Duration::from_millis(1_600);

pub(super) fn run(world: &mut World) {
    world.await_leader();
    let holds = world.add_client(0, |caller| async move {
        let connection = caller.connect();
        let session = opened(&caller, || connection.session().ttl(TTL)).await;
        holds_in(caller, session, "red", 2 * TTL).await;
    });
    world.must("a grant", Duration::from_secs(5), |world| world.run.notes().granted == 1);
    let moved = Rc::new(Cell::new(0));
    let counted = Rc::clone(&moved);
    let looks = world.add_client(1, |caller| async move {
        let connection = caller.connect();
        let mut last = None;
        for _ in 0..SILENCE.as_millis() / 50 {
            let sessions = connection.all_sessions().await.expect("the cluster serves").value;
            let deadline = sessions.first().map(|session| session.deadline);
            counted.set(counted.get() + u32::from(last.replace(deadline).is_some_and(|last| last < deadline)));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    for node in NODE_HOSTS {
        world.cut_one_way(node, CLIENT_HOSTS[0]);
    }
    world.pass(Duration::from_millis(20));
    let sure = |world: &World| world.run.notes().sure.of_any_session();
    let before = sure(world);
    world.pass(SILENCE);
    if before < sure(world) {
        world.run.found(coverage::NAME, "an answer arrived".to_owned());
    }
    for node in NODE_HOSTS {
        world.repair(node, CLIENT_HOSTS[0]);
    }
    world.must("the end of the reads", Duration::from_secs(10), |_| looks.is_done());
    if moved.get() == 0 {
        world.run.found(coverage::NAME, "no renewal was applied whose answer was lost".to_owned());
    }
    world.pass(TTL - SILENCE);
    if holds.is_done() || !world.run.notes().expired.is_empty() {
        world.run.found(as_documented::NAME, "the session did not outlive its lost answers".to_owned());
    }
    world.must("the end of the hold", 2 * TTL, |_| holds.is_done());
    end_of_scenario(world);
}
