//! Power cuts of all nodes, and links or disks that are slow or broken, in a sandbox.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use lockkeeper::client::{Client, LockGuard, Session};
use lockkeeper::model::TokenState;
use lockkeeper::rpc::{RemoteService, RemoteSettings};
use tokio::task::{JoinSet, block_in_place};
use tokio::time::{sleep, timeout};

use super::faults::syncs::Syncs;
use super::faults::{FaultKind, cut_power, links};
use super::sandbox::{self, Sandbox};
use crate::cluster::Cluster;
use crate::random::Random;

/// Longer than any outage: a hold that ends was lost, and did not expire.
const TTL: Duration = Duration::from_secs(600);
const WRITERS: usize = 8;
const SYNC_LONGER_MS: u64 = 500;
const STATUS_EVERY: Duration = Duration::from_millis(100);
const STATUS_WAIT: Duration = Duration::from_millis(300);

/// Returns true if the measurement must run in this process, which is inside a sandbox. Otherwise runs it in a child
/// process, or reports a fault that this machine does not support.
fn runs_here(name: &str, size: usize, kinds: &[FaultKind]) -> bool {
    for kind in kinds {
        if let Err(why) = kind.possible() {
            sandbox::skipped(name, &why);
            return false;
        }
    }
    !block_in_place(|| sandbox::enter(&[name, &size.to_string()]))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("not poisoned")
}

type Holds = Arc<Mutex<Vec<LockGuard>>>;

/// Acquires one lock after the other and keeps the guards.
async fn take(session: Arc<Session<RemoteService>>, prefix: String, holds: Holds) {
    for number in 0.. {
        if let Ok(guard) = session.lock(&format!("{prefix}-{number}")).acquire().await {
            lock(&holds).push(guard);
        }
    }
}

/// Cuts the power of all three nodes at once, `rounds` times, while locks are acquired. Everything that was
/// acknowledged is still held afterwards.
pub(crate) async fn power_cuts(rounds: usize) {
    if !runs_here("power_cuts", rounds, &[FaultKind::Power]) {
        return;
    }
    let sandbox = Sandbox::build();
    let mut cluster = Cluster::start_at(sandbox.places(), "lan", None).await;
    let client = cluster.client();
    let session = Arc::new(client.session().ttl(TTL).open().await.expect("a session"));
    let (mut random, mut back, mut checked_holds, mut lost) = (Random::new(1), Vec::new(), 0, 0);
    for round in 0..rounds {
        let (holds, mut writers) = (Holds::default(), JoinSet::new());
        for writer in 0..WRITERS {
            writers.spawn(take(Arc::clone(&session), format!("{round}-{writer}"), Arc::clone(&holds)));
        }
        sleep(random.ms(300, 1_500)).await;
        block_in_place(|| cut_power(&sandbox, &mut cluster, &[1, 2, 3]));
        writers.shutdown().await;
        (1..=3).for_each(|node| cluster.spawn(node));
        let started = Instant::now();
        cluster.await_leader().await;
        back.push(started.elapsed());
        let taken = std::mem::take(&mut *lock(&holds));
        for hold in taken {
            let checked = client.check(hold.name().as_str(), hold.token()).await.expect("an answer");
            checked_holds += 1;
            if checked.state != TokenState::Valid {
                lost += 1;
                eprintln!("round {round}: {} is lost: {checked:?}", hold.name());
            }
        }
    }
    back.sort();
    let (rounds, median, max) = (back.len(), back[back.len() / 2], back[back.len() - 1]);
    eprintln!(
        "power cut {rounds} times: {lost} of {checked_holds} acknowledged holds lost; served again {median:?} after the start, at most {max:?}"
    );
    assert_eq!(lost, 0, "acknowledged holds were lost");
}

fn client_of(endpoint: String) -> Client<RemoteService> {
    Client::new(RemoteService::new(RemoteSettings::new([endpoint])).expect("an endpoint"))
}

/// Counts the changes of leader and the grants within `length`.
async fn changes(cluster: &Cluster, length: Duration) -> (usize, usize) {
    let client = cluster.client();
    let nodes = cluster.endpoints().into_iter().map(client_of);
    let nodes: Vec<_> = nodes.collect();
    let granted = Arc::new(Mutex::new(0));
    let (count, mut working) = (Arc::clone(&granted), JoinSet::new());
    working.spawn(async move {
        let session = client.session().ttl(TTL).open().await.expect("a session");
        loop {
            if let Ok(guard) = session.lock("figure").acquire().await {
                *lock(&count) += 1;
                guard.release().await.ok();
            }
        }
    });
    let (began, mut led) = (Instant::now(), BTreeMap::new());
    while began.elapsed() < length {
        for node in &nodes {
            if let Ok(Ok(status)) = timeout(STATUS_WAIT, node.status()).await
                && let Some(leader) = status.leader
            {
                led.insert(status.term, leader);
            }
        }
        sleep(STATUS_EVERY).await;
    }
    let granted = *lock(&granted);
    (led.len().saturating_sub(1), granted)
}

/// Counts changes of leader for `seconds` each while one direction of a link is cut, or while the syncs of one follower
/// take half a second longer.
pub(crate) async fn leader_changes(seconds: usize) {
    if !runs_here("leader_changes", seconds, &[FaultKind::OneWay, FaultKind::SlowDisk]) {
        return;
    }
    let length = Duration::from_secs(seconds as u64);
    let sandbox = Sandbox::build();
    let cluster = Cluster::start_at(sandbox.places(), "lan", None).await;
    for what in [
        "a leader that receives nothing",
        "a leader that sends nothing",
        "a follower that receives nothing",
        "a follower that sends nothing",
        "a follower with slow syncs",
    ] {
        let leader = cluster.await_leader().await;
        let node = if what.contains("leader") { leader } else { cluster.a_follower().await };
        let cuts = if what.contains("receives") { links::receives_nothing(node) } else { links::sends_nothing(node) };
        let (changed, granted) = if what.contains("slow") {
            let slow = Syncs::slow(cluster.process(node), SYNC_LONGER_MS);
            let seen = changes(&cluster, length).await;
            assert!(0 < slow.end(), "no sync was delayed");
            seen
        } else {
            links::cut(&cuts);
            let seen = changes(&cluster, length).await;
            links::heal(&cuts);
            seen
        };
        eprintln!("{what}: {changed} leader changes in {} s, {granted} grants", length.as_secs());
    }
}
