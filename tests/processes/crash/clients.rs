//! The clients of a run, and the watchers that record its events.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper::client::{ClientError, LockGuard, Session};
use lockkeeper::model::{EventKind, FencingToken, LockName, Mode, Position};
use lockkeeper::rpc::RemoteService;
use lockkeeper::service::ServiceError;
use tokio::time::{sleep, timeout};

use super::workload::{Run, connect, lock};
use crate::checker::Belief;
use crate::random::Random;

const LOCKS: [&str; 3] = ["red", "green", "blue"];
const TTL: Duration = Duration::from_millis(1_500);
/// One of this number of clients lets its sessions keep their exclusive holds between uses.
const CLIENTS_A_CACHING_ONE: usize = 4;
/// The timeout of one inspection.
const INSPECT_WAIT: Duration = Duration::from_millis(300);

/// Records the events that one node sends, also after restarts of the node.
pub(super) async fn watch_node(run: Arc<Run>, node: usize, endpoint: String) {
    let client = connect(vec![endpoint]).request_wait(Duration::from_millis(300));
    let start = Position::default();
    let mut watch = client.watch("", Some(start)).await.expect("a watch");
    run.note(|history| history.event_logs[node].stretches.push((start, start)));
    loop {
        match watch.next().await {
            Ok(event) => {
                let ends = matches!(event.kind, EventKind::SessionEnded { .. });
                let ended = event.subject.session().filter(|_| ends);
                run.note(|history| {
                    let stream = &mut history.event_logs[node];
                    if let Some((_, to)) = stream.stretches.last_mut() {
                        *to = event.position;
                    }
                    stream.events.push(event);
                });
                if ended.is_some() && ended == *lock(&run.marker) {
                    return;
                }
            }
            Err(ClientError::Service(ServiceError::EventsMissed { .. })) => {
                let from = watch.position();
                run.note(|history| history.event_logs[node].stretches.push((from, from)));
            }
            Err(error) => run.note_error("watch", &error),
        }
    }
}

/// One client: opens sessions, and acquires, holds and releases locks until the run stops.
pub(super) async fn contend(run: Arc<Run>, client: usize, endpoints: Vec<String>, mut random: Random) {
    let connection = connect(endpoints);
    let mut current: Option<Session<RemoteService>> = None;
    let mut cached = client.is_multiple_of(CLIENTS_A_CACHING_ONE).then(BTreeSet::new);
    while !run.stopping() {
        run.note(|history| history.begins(client, run.now()));
        let alive = current.take().filter(|session| !session.valid_for().is_zero());
        let session = match alive {
            Some(session) => session,
            None => match connection.session().ttl(TTL).open().await {
                Ok(session) => session,
                Err(error) => {
                    run.note_error("open", &error);
                    continue;
                }
            },
        };
        acquire_once(&run, client, &session, &mut cached, &mut random).await;
        current = Some(session);
    }
    if let Some(session) = current
        && let Err(error) = session.close().await
    {
        run.note_error("close", &error);
    }
}

/// The tokens of cached holds that a client has used, if the client caches holds.
type Cached = Option<BTreeSet<FencingToken>>;

async fn acquire_once(
    run: &Run,
    client: usize,
    session: &Session<RemoteService>,
    cached: &mut Cached,
    random: &mut Random,
) {
    let name = LOCKS[random.below(LOCKS.len() as u64) as usize];
    let (roll, patience) = (random.below(100), random.ms(5, 300));
    let request = session.lock(name);
    let (request, mode) = match roll {
        0..60 => (request, Mode::Exclusive),
        60..75 => (request.shared(), Mode::Shared),
        75..85 => (request.wait(patience), Mode::Exclusive),
        85..92 => (request.try_once(), Mode::Exclusive),
        _ => (request.shared().wait(patience), Mode::Shared),
    };
    let caches = cached.is_some() && mode == Mode::Exclusive;
    let request = if caches { request.cached() } else { request };
    let asked = run.now();
    let acquired = if random.below(100) < 5 {
        // The caller drops its request. Nothing of it may be left.
        let Ok(acquired) = timeout(patience, request.acquire()).await else { return };
        acquired
    } else {
        request.acquire().await
    };
    match acquired {
        Ok(guard) => {
            let token = guard.token();
            let again = cached.as_mut().filter(|_| caches).map(|used| !used.insert(token));
            hold(run, (client, asked, mode), guard, again, random).await;
        }
        Err(error) => run.note_error("acquire", &error),
    }
}

/// Holds for a random time, and releases. `again` is set for a cached hold: whether this is not its first use.
async fn hold(
    run: &Run,
    (client, asked, mode): (usize, Duration, Mode),
    guard: LockGuard,
    again: Option<bool>,
    random: &mut Random,
) {
    let begin = run.now();
    let length = if random.below(100) < 5 { random.ms(300, 900) } else { random.ms(1, 25) };
    let mut valid;
    loop {
        let now = run.now();
        valid = now + guard.valid_for();
        let left = (begin + length).saturating_sub(now);
        if left.is_zero() {
            break;
        }
        tokio::select! {
            biased;
            _ = guard.lost() => break,
            () = sleep(left.min(Duration::from_millis(10))) => (),
        }
    }
    let (lock, token, session) = (guard.name().clone(), guard.token(), guard.session());
    let end = run.now().min(valid);
    let belief = Belief { client, lock: lock.clone(), token, session, mode, asked, begin, end };
    run.note(|history| match again {
        Some(true) => history.used_again(belief),
        Some(false) | None => history.granted(belief),
    });
    if again == Some(true) {
        return drop(guard);
    }
    // The session of a cached hold releases it at any later time.
    if again == Some(false) || random.below(100) < 10 {
        drop(guard);
        return run.note(|history| history.ended(lock, token, end, None));
    }
    let released = guard.release().await;
    let answered = released.as_ref().ok().map(|_| run.now());
    if let Err(error) = &released {
        run.note_error("release", error);
    }
    run.note(|history| history.ended(lock, token, end, answered));
}

/// Inspects the holders of a random lock through one node at intervals, until the run stops.
pub(super) async fn inspect_locks(run: Arc<Run>, client: usize, endpoint: String, mut random: Random) {
    let connection = connect(vec![endpoint]).request_wait(INSPECT_WAIT);
    while !run.stopping() {
        run.note(|history| history.begins(client, run.now()));
        sleep(random.ms(20, 120)).await;
        let (name, call) = (LOCKS[random.below(LOCKS.len() as u64) as usize], run.now());
        match connection.inspect(name).await {
            Ok(seen) => {
                let holders = seen.value.holders.iter().map(|holder| holder.token).collect();
                let lock = LockName::parse(name).expect("a name");
                run.note(|history| history.looked(lock, holders, call, run.now()));
            }
            Err(error) => run.note_error("inspect", &error),
        }
    }
}
