//! Sessions keep their holds between uses while another client requests the same lock again and again, and connections
//! break at the moment when a hold is recalled. No two uses overlap, and without a fault a waiter waits for little more
//! than the use that runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lockkeeper::client::{LockGuard, LockRequest, Session};
use lockkeeper::model::{FencingToken, Mode};
use lockkeeper::rpc::RemoteService;
use tokio::time::sleep;

use super::{end_of_scenario, opened};
use crate::checker::Belief;
use crate::clients::{CLIENT_HOSTS, Caller, TTL};
use crate::clock::truth;
use crate::invariants::{as_documented, coverage};
use crate::run::NODE_HOSTS;
use crate::sure::SessionOrHold;
use crate::world::World;

/// Clients that cache; the client after them does not.
const CACHING: usize = 2;
/// Number of recalls at which connections break.
const ROUNDS: usize = 10;
/// Longest wait for a lock without a fault. Both caching clients may use it before, and every message takes some
/// milliseconds.
const WAITS: Duration = Duration::from_millis(400);

/// The state that the clients share with the scenario.
#[derive(Default)]
struct Phase {
    /// Whether there was a fault already.
    faulty: AtomicBool,
    ending: AtomicBool,
    /// Number of uses that needed no request.
    local: AtomicUsize,
}

pub(super) fn run(world: &mut World) {
    world.await_leader();
    let phase = Arc::new(Phase::default());
    let mut clients: Vec<_> = (0..CACHING)
        .map(|client| {
            let phase = Arc::clone(&phase);
            world.add_client(client, move |caller| uses(caller, phase, LockRequest::cached, (0, 25)))
        })
        .collect();
    let of_other = Arc::clone(&phase);
    clients.push(world.add_client(CACHING, move |caller| uses(caller, of_other, |request| request, (100, 400))));
    world.pass(Duration::from_secs(3));
    phase.faulty.store(true, Ordering::Relaxed);
    for _ in 0..ROUNDS {
        let before = world.run.notes().recalled;
        if !world.until(Duration::from_secs(10), |world| before < world.run.notes().recalled) {
            world.run.found(coverage::NAME, "no hold was recalled".to_owned());
        }
        break_connections(world);
    }
    phase.ending.store(true, Ordering::Relaxed);
    world.must("the end of the clients", Duration::from_secs(20), |_| clients.iter().all(|client| client.is_done()));
    let local = phase.local.load(Ordering::Relaxed);
    if local < 50 {
        world.run.found(coverage::NAME, format!("only {local} uses needed no request"));
    }
    end_of_scenario(world);
}

/// Partitions a caching client from the leader or from all nodes, in one direction or in both, for up to two TTLs.
fn break_connections(world: &mut World) {
    let client = CLIENT_HOSTS[world.random.below(CACHING as u64) as usize];
    let leader = world.await_leader();
    let kind = world.random.below(4);
    let nodes: Vec<_> = match kind {
        0 => vec![NODE_HOSTS[leader]],
        _ => NODE_HOSTS.to_vec(),
    };
    for node in &nodes {
        match kind {
            0 | 1 => world.cut(client, node),
            2 => world.cut_one_way(client, node),
            _ => world.cut_one_way(node, client),
        }
    }
    let broken = world.random.ms(20, 3_000);
    world.pass(broken);
    for node in nodes {
        world.repair(client, node);
    }
    let pause = world.random.ms(50, 600);
    world.pass(pause);
}

/// Uses the lock again and again, with pauses of this many milliseconds.
async fn uses(
    mut caller: Caller,
    phase: Arc<Phase>,
    ask: fn(LockRequest<RemoteService>) -> LockRequest<RemoteService>,
    pause_ms: (u64, u64),
) {
    let connection = caller.connect();
    let mut session = opened(&caller, || connection.session().ttl(TTL)).await;
    let mut last = None;
    while !phase.ending.load(Ordering::Relaxed) {
        if session.valid_for().is_zero() {
            session = opened(&caller, || connection.session().ttl(TTL)).await;
        }
        let calm = !phase.faulty.load(Ordering::Relaxed);
        let asked = truth();
        let patience = if calm { WAITS } else { 4 * TTL };
        match ask(session.lock("red")).wait(patience).acquire().await {
            Ok(guard) => {
                if last.replace(guard.token()) == Some(guard.token()) {
                    phase.local.fetch_add(1, Ordering::Relaxed);
                }
                use_once(&mut caller, &session, asked, guard).await;
            }
            Err(error) => {
                caller.run.note_error("acquire", &error);
                if calm && !phase.faulty.load(Ordering::Relaxed) {
                    caller.run.found(as_documented::NAME, format!("not acquired within {patience:?} without a fault"));
                }
            }
        }
        sleep(caller.random.ms(pause_ms.0, pause_ms.1)).await;
    }
    if let Err(error) = session.close().await {
        caller.run.note_error("close", &error);
    }
}

/// Uses the lock for some milliseconds, or until it is lost. Records the use.
async fn use_once(caller: &mut Caller, session: &Session<RemoteService>, asked: Duration, guard: LockGuard) {
    let begin = truth();
    let length = caller.random.ms(1, 20);
    let own = SessionOrHold::Hold(guard.token());
    let mut until = begin;
    while truth() < begin + length {
        let left = guard.valid_for();
        if left.is_zero() {
            break;
        }
        until = caller.sure_of(own, left);
        caller.sure(session);
        tokio::select! {
            biased;
            _ = guard.lost() => break,
            () = sleep(Duration::from_millis(5)) => (),
        }
    }
    let (lock, token, of): (_, FencingToken, _) = (guard.name().clone(), guard.token(), guard.session());
    let (client, end) = (caller.index, truth().min(until));
    caller.sure_of(own, Duration::ZERO);
    caller.run.trace(CLIENT_HOSTS[client], || format!("used {lock} by {token} from {begin:?} to {end:?}"));
    let belief = Belief { client, lock, token, session: of, mode: Mode::Exclusive, asked, begin, end };
    caller.run.notes().history.used_again(belief);
    drop(guard);
}
