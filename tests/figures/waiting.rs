//! Many clients that wait and one that renews its session too often, and their effect on other clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lockkeeper::client::{Client, Session};
use lockkeeper::model::{Namespace, Outcome, RenewalTarget};
use lockkeeper::rpc::{RemoteService, RemoteSettings};
use lockkeeper::service::{LockService, Proof, RenewalCall};
use tokio::task::{JoinSet, block_in_place};
use tokio::time::{MissedTickBehavior, interval};

use crate::cluster::Cluster;
use crate::tls::report;
use crate::wait::wait_until;

/// Longer than the measurement.
const TTL: Duration = Duration::from_secs(600);
/// A session waits for each lock once, so this is also the number of locks.
const WAITS_A_SESSION: usize = 1_000;
const SECONDS: &str = "20";
const RENEW_EVERY: Duration = Duration::from_millis(1);

fn client(cluster: &Cluster) -> Client<RemoteService> {
    Client::new(service(cluster))
}

fn service(cluster: &Cluster) -> RemoteService {
    RemoteService::new(RemoteSettings::new(cluster.endpoints())).expect("endpoints")
}

/// Works at a low rate, prints the latency of a pair, and returns its 99th percentile in milliseconds. No call fails.
fn others(name: &str, cluster: &Cluster) -> f64 {
    let arguments = ["bench", "--clients", "16", "--rate", "50", "--secs", SECONDS, "--warm-up", "0s", "--json"];
    let figures = block_in_place(|| report(&mut cluster.command(&arguments)));
    let number = |name: &str| figures[name].as_f64().unwrap_or_else(|| panic!("no {name} in {figures}"));
    let p99 = number("p99_us") / 1_000.0;
    let (p50, failed) = (number("p50_us") / 1_000.0, number("errors"));
    eprintln!("{name}: {:.0} pairs, p50 {p50:.2} ms, p99 {p99:.2} ms, {failed} failed", number("pairs"));
    assert!(failed == 0.0, "{figures}");
    p99
}

/// Lets sessions wait for locks that another session keeps. Returns the sessions with their waits.
async fn wait_in_queues(cluster: &Cluster, count: usize, waits: &mut JoinSet<()>) -> Vec<Arc<Session<RemoteService>>> {
    let mut sessions = Vec::new();
    for first in (0..count).step_by(WAITS_A_SESSION) {
        let session = Arc::new(client(cluster).session().ttl(TTL).open().await.expect("a session"));
        for lock in 0..WAITS_A_SESSION.min(count - first) {
            let session = Arc::clone(&session);
            waits.spawn(async move { drop(session.lock(&format!("kept-{lock}")).acquire().await) });
        }
        sessions.push(session);
    }
    sessions
}

/// Renews a session at this interval, each time in a task, until the flag is set. Returns how many renewals were made,
/// and how many were refused.
async fn renew_often(service: RemoteService, call: RenewalCall, over: Arc<AtomicBool>) -> (usize, usize) {
    let (renewed, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (mut ticks, mut calls) = (interval(RENEW_EVERY), JoinSet::new());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for attempt in 1.. {
        ticks.tick().await;
        if over.load(Ordering::Relaxed) {
            break;
        }
        let (service, call) = (service.clone(), RenewalCall { attempt, ..call.clone() });
        let counted = [Arc::clone(&renewed), Arc::clone(&refused)];
        calls.spawn(async move {
            let is_renewed = matches!(service.renew(vec![call]).await.as_deref(),
                Ok([reply]) if matches!(reply.outcome, Outcome::Renewed { .. }));
            counted[usize::from(!is_renewed)].fetch_add(1, Ordering::Relaxed);
        });
        while calls.try_join_next().is_some() {}
    }
    calls.join_all().await;
    (renewed.load(Ordering::Relaxed), refused.load(Ordering::Relaxed))
}

/// Measures clients that work at a low rate: alone, while `count` others wait, and while also one session is renewed a
/// thousand times a second.
pub(crate) async fn run(count: usize) {
    let cluster = Cluster::start_with("lan").await;
    let calm = others("alone", &cluster);
    let holder = client(&cluster).session().ttl(TTL).open().await.expect("a session");
    let mut kept = Vec::new();
    for lock in 0..WAITS_A_SESSION.min(count) {
        kept.push(holder.lock(&format!("kept-{lock}")).acquire().await.expect("free"));
    }
    let mut waits = JoinSet::new();
    let sessions = wait_in_queues(&cluster, count, &mut waits).await;
    let of_all = client(&cluster);
    wait_until("all waits", async || of_all.totals().await.is_ok_and(|totals| totals.value.waiters == count as u64))
        .await;
    let waiting = others(&format!("with {count} waits"), &cluster);
    let flooding = sessions.first().expect("a session");
    let proof = Proof::Handle { handle: flooding.handle().clone(), namespace: Namespace::default() };
    let call = RenewalCall { target: RenewalTarget::Session(flooding.id()), proof, attempt: 0 };
    let over = Arc::new(AtomicBool::new(false));
    let flood = tokio::spawn(renew_often(service(&cluster), call, Arc::clone(&over)));
    let flooded = others("and with 1,000 renewals a second of one session", &cluster);
    over.store(true, Ordering::Relaxed);
    let (renewed, refused) = flood.await.expect("the flood");
    let there = of_all.totals().await.expect("totals").value.waiters;
    eprintln!("the session was renewed {renewed} times and refused {refused} times; {there} still wait");
    eprintln!("p99 of the others: {:.2} and {:.2} of that alone", waiting / calm, flooded / calm);
    assert_eq!(there, count as u64, "no wait is lost");
    waits.shutdown().await;
}
