//! A client with many sessions that hold and wait is partitioned permanently. All its sessions end, neither early nor
//! late, their places in queues end with them, and other waiters get the locks.

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use lockkeeper::model::SessionId;
use tokio::task::JoinSet;

use super::end_of_scenario;
use crate::clients::{CLIENT_HOSTS, Caller, TTL};
use crate::clock::truth;
use crate::invariants::not_late;
use crate::run::NODE_HOSTS;
use crate::world::World;

const SESSIONS: usize = 24;
/// Time in addition to the TTL within which a session must end.
const GRACE: Duration = Duration::from_millis(500);

pub(super) fn run(world: &mut World) {
    world.await_leader();
    world.add_client(0, many);
    world.must("their grants", Duration::from_secs(10), |world| world.run.notes().granted == SESSIONS);
    world.add_contender(1);
    world.pass(Duration::from_millis(700));
    for node in NODE_HOSTS {
        world.cut(CLIENT_HOSTS[0], node);
    }
    let last = world.now() + TTL + GRACE;
    world.until(TTL + 4 * GRACE, |world| world.run.notes().expired.len() == SESSIONS);
    let late: Vec<(SessionId, Duration)> = {
        let notes = world.run.notes();
        let ended = notes.expired.iter().filter(|(_, at)| last < **at);
        ended.map(|(session, at)| (*session, *at)).collect()
    };
    let ended = world.run.notes().expired.len();
    if ended < SESSIONS || !late.is_empty() {
        world.run.found(not_late::NAME, format!("{ended} of {SESSIONS} ended; later than {last:?}: {late:?}"));
    }
    end_of_scenario(world);
}

/// Opens the sessions, each with a separate lock, and keeps them.
async fn many(caller: Caller) {
    let connection = caller.connect();
    let mut sessions = JoinSet::new();
    for number in 0..SESSIONS {
        let (connection, caller) = (connection.clone(), caller.clone());
        sessions.spawn(async move {
            let session = connection.session().ttl(TTL).open().await.expect("a session");
            let guard = session.lock(&format!("of-{number}")).acquire().await.expect("a grant");
            // All sessions but the first also wait in a queue. Their places end with their sessions.
            let waits = async || match number {
                0 => std::future::pending().await,
                _ => drop(session.lock("of-0").acquire().await),
            };
            let mut waiting = pin!(waits().fuse());
            while !guard.valid_for().is_zero() {
                caller.sure(&session);
                tokio::select! {
                    () = &mut waiting => {}
                    () = tokio::time::sleep(Duration::from_millis(10)) => {}
                }
            }
            caller.run.trace(CLIENT_HOSTS[0], || format!("lost {number} at {:?}", truth()));
        });
    }
    while sessions.join_next().await.is_some() {}
}
