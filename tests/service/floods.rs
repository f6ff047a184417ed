//! Floods of renewals: what one client sends neither delays the renewals of others nor fills the log.

#![allow(clippy::print_stderr, reason = "each test prints what it measured")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockkeeper::auth::Who;
use lockkeeper::client::Client;
use lockkeeper::model::{Outcome, RenewalTarget, SessionId};
use lockkeeper::node::Node;
use lockkeeper::service::{ErrorCode, LockService, Proof, RenewalCall, ServiceError, Source};
use lockkeeper::testing::Cluster;
use tokio::time::{MissedTickBehavior, interval};

use crate::suite::LONG;

/// With fewer answers than this, a flood of unknown renewals proves nothing: a fifteenth of those of the row X-20.
const UNKNOWN_ANSWERED_MIN: u64 = 10_000;
/// How much each of them may add to a log: 1 MiB for the 150,000 of the row X-20.
const UNKNOWN_BYTES_MAX: u64 = (1 << 20) / 150_000;

/// What the renewals of one client had as results.
#[derive(Debug, Default)]
struct Results {
    renewed: usize,
    /// Renewals that were refused because of a limit, or as unknown.
    refused: usize,
    /// Renewals without an answer because of an election, as it may happen on a slow machine.
    lost: usize,
    longest: Duration,
}

impl Results {
    fn add(&mut self, renewed: Result<Outcome, ServiceError>, took: Duration) {
        self.longest = self.longest.max(took);
        match renewed {
            Ok(Outcome::Renewed { .. }) => self.renewed += 1,
            Ok(_) => self.refused += 1,
            Err(error) if matches!(error.code(), ErrorCode::NoLeader | ErrorCode::Unknown) => self.lost += 1,
            Err(_) => self.refused += 1,
        }
    }
}

/// Returns a handle for the calls of one connection.
fn on(node: &Node, connection: u64) -> Node {
    node.for_caller(Source::Connection(connection), None, || Ok(Who::Anonymous)).expect("a caller")
}

async fn renew(node: &Node, session: SessionId) -> Result<Outcome, ServiceError> {
    let target = RenewalTarget::Session(session);
    let mut replies = node.renew(vec![RenewalCall { target, proof: Proof::Trusted, attempt: 1 }]).await?;
    Ok(replies.remove(0).outcome)
}

/// Renews a session at this interval, each time in a task, until the time is over.
async fn renewing(node: Node, session: SessionId, every: Duration, time: Duration) -> Results {
    let (begun, mut ticks, mut calls) = (Instant::now(), interval(every), Vec::new());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    while begun.elapsed() < time {
        ticks.tick().await;
        let node = node.clone();
        calls.push(tokio::spawn(async move {
            let sent = Instant::now();
            (renew(&node, session).await, sent.elapsed())
        }));
    }
    let mut results = Results::default();
    for call in calls {
        let (renewed, took) = call.await.expect("a task");
        results.add(renewed, took);
    }
    results
}

/// one session sends a thousand renewals a second. It is refused, and the renewals of twenty others are not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_renewals_refuses_no_other() {
    let (time, cluster) = (Duration::from_secs(5), Cluster::start(1, None).await.expect("a cluster"));
    let leader = cluster.leader().await;
    let client = Client::new(leader.service());
    let mut sessions = Vec::new();
    for _ in 0..=20 {
        sessions.push(client.session().ttl(LONG).open().await.expect("opened"));
    }
    let (flooding, others) = sessions.split_first().expect("sessions");
    let flood = tokio::spawn(renewing(on(&leader, 0), flooding.id(), Duration::from_millis(1), time));
    let others = others.iter().zip(1..).map(|(session, connection)| {
        tokio::spawn(renewing(on(&leader, connection), session.id(), Duration::from_millis(100), time))
    });
    let others: Vec<_> = join_all(others).await.into_iter().map(|other| other.expect("a task")).collect();
    let flood = flood.await.expect("a task");
    let sum = |of: fn(&Results) -> usize| others.iter().map(of).sum::<usize>();
    let (renewed, refused, lost) = (sum(|of| of.renewed), sum(|of| of.refused), sum(|of| of.lost));
    let longest = others.iter().map(|of| of.longest).max();
    eprintln!("X-13: flood {flood:?}; others: {renewed} renewed, {refused} refused, {lost} lost, longest {longest:?}");
    assert!(0 < flood.refused, "{flood:?}");
    assert_eq!(refused, 0, "the others are not refused");
    assert!(others.iter().all(|of| 0 < of.renewed), "each of the others is renewed: {others:?}");
    assert!(lost < renewed, "{renewed} renewals of the others succeeded, {lost} had no answer");
}

/// Returns the size of all files in a directory.
fn bytes(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).expect("a directory");
    entries.map(|entry| entry.expect("an entry").metadata().map_or(0, |file| file.len())).sum()
}

/// in fifteen seconds of renewals of nothing, 10,000 a second, the log of each node grows by less than 1 MiB. If
/// a slow machine answers fewer of them, the limit is lower in proportion.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_unknown_renewals_does_not_fill_the_log() {
    let folder = tempfile::tempdir().expect("a directory");
    let cluster = Cluster::start(3, Some(folder.path())).await.expect("a cluster");
    let nodes = [cluster.leader().await, cluster.follower().await];
    let sizes = || [1, 2, 3].map(|id| bytes(&folder.path().join(format!("n{id}")).join("wal")));
    let empty = sizes();
    // A session that closes leaves no renewals of its client.
    Client::new(nodes[0].service()).session().ttl(LONG).open().await.expect("opened").close().await.expect("closed");
    let (before, begun) = (sizes(), Instant::now());
    assert!(empty.iter().sum::<u64>() < before.iter().sum(), "the log has the session: {empty:?} {before:?}");
    let (mut ticks, mut calls, mut connection) = (interval(Duration::from_millis(10)), Vec::new(), 0);
    while begun.elapsed() < Duration::from_secs(15) {
        ticks.tick().await;
        connection += 1;
        let node = on(&nodes[connection as usize % 2], connection % 16);
        let unknown = (0..100).map(|number| RenewalCall {
            target: RenewalTarget::Session(SessionId::new(0, 1_000_000 * connection + number)),
            proof: Proof::Trusted,
            attempt: 1,
        });
        let unknown: Vec<_> = unknown.collect();
        calls.push(tokio::spawn(async move { node.renew(unknown).await.map_err(|error| error.code()) }));
    }
    let sent = 100 * calls.len();
    let mut answers = BTreeMap::new();
    for call in join_all(calls).await {
        let code = call.expect("a task").map_or_else(|error| error.row().text, |_| "answered");
        *answers.entry(code).or_insert(0_u64) += 100;
    }
    let grown: Vec<_> = sizes().into_iter().zip(before).map(|(after, before)| after.saturating_sub(before)).collect();
    eprintln!("X-20: {sent} renewals of nothing: {answers:?}; the logs grew by {grown:?} bytes");
    let answered = answers.get("answered").copied().unwrap_or_default();
    assert!(UNKNOWN_ANSWERED_MIN <= answered, "too few of {sent} renewals were answered: {answers:?}");
    let limit = UNKNOWN_BYTES_MAX * answered;
    assert!(grown.iter().all(|grown| *grown < limit), "the logs grew by {grown:?} bytes, the limit is {limit}");
}
