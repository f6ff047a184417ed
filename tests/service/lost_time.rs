//! What nodes do if the leader's clock loses time, and with delayed copies of calls.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::client::Client;
use lockkeeper::clock::ManualClock;
use lockkeeper::limits::SESSIONLESS_MEMORY_MS;
use lockkeeper::model::{
    Command, Handle, LeaseRequestId, LockKey, LockName, Metadata, Mode, Namespace, Outcome, Patience, Refusal,
    TakeLease,
};
use lockkeeper::node::Node;
use lockkeeper::service::{Call, LockService, ServiceError};
use lockkeeper::testing::{Cluster, ClusterOptions};

use crate::suite::until;

/// A leader that was paused for more than two seconds of a minute, while sessions or leases were due to end, transfers
/// leadership. Sessions lose nothing: the pause advances log time at most by its cap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_loses_time_transfers_leadership() {
    let clock = Arc::new(ManualClock::new(11));
    let options = ClusterOptions { nodes: 3, clock: Some(clock.clone()), ..ClusterOptions::default() };
    let cluster = Cluster::start_with(options).await.expect("a cluster");
    let leader = cluster.leader().await;
    let client = Client::new(leader.service());
    let session = client.session().open().await.expect("opened");
    let before = client.status().await.expect("a status").log_time;
    clock.advance(Duration::from_secs(5));
    until("another node leads", async || cluster.leader().await.id() != leader.id()).await;
    let after = client.status().await.expect("a status").log_time;
    assert!(after.ms_since(before) <= 1_000, "{before:?} to {after:?}");
    assert!(client.all_sessions().await.expect("listed").value.iter().any(|row| row.session == session.id()));
    cluster.close().await;
}

/// Time that the leader did not count as log time is in the status of every node for a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_shows_the_time_that_was_not_counted() {
    let clock = Arc::new(ManualClock::new(13));
    let options = ClusterOptions { nodes: 3, clock: Some(clock.clone()), ..ClusterOptions::default() };
    let cluster = Cluster::start_with(options).await.expect("a cluster");
    let session = Client::new(cluster.leader().await.service()).session().open().await.expect("opened");
    let uncounted_ms = async |node: &Node| Client::new(node.service()).status().await.expect("a status").uncounted_ms;
    for node in cluster.nodes() {
        assert_eq!(uncounted_ms(node).await, 0);
    }
    clock.advance(Duration::from_millis(1_500));
    for node in cluster.nodes() {
        until("the lost time shows", async || 500 <= uncounted_ms(node).await).await;
        assert!(uncounted_ms(node).await <= 1_500);
    }
    drop(session);
    cluster.close().await;
}

/// A call whose log time is far in the future is refused, because the cluster would execute a late copy of it. The
/// clocks of two leaders may explain a small difference.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_from_the_future_is_refused() {
    let cluster = Cluster::start(1, None).await.expect("a cluster");
    let service = cluster.leader().await.service();
    let now = Client::new(service.clone()).status().await.expect("a status").log_time;
    let call = |since| Call { since: Some(since), ..Call::new(Command::TakeLease(delayed())) };
    let refused = service.submit(call(now.after_ms(3_600_000))).await;
    let Err(ServiceError::Invalid(invalid)) = refused else { panic!("{refused:?}") };
    assert_eq!(invalid.field, "since", "{invalid}");
    let granted = service.submit(call(now.after_ms(1_000))).await.expect("answered").outcome;
    assert!(matches!(granted, Outcome::Granted(_)), "{granted:?}");
    cluster.close().await;
}

fn delayed() -> TakeLease {
    TakeLease {
        lock: LockKey { namespace: Namespace::default(), name: LockName::parse("held-up").expect("legal") },
        take: LeaseRequestId(7),
        handle: Handle::from_random(7),
        access: Mode::Exclusive.into(),
        lease_ms: 10_000,
        patience: Patience::Try,
        metadata: Metadata::default(),
        claim_ms: None,
    }
}

/// A copy of a take that was delayed for longer than the cluster keeps the results of takes is refused, because the
/// call contains the log time of its first attempt. The lease may have been granted and released since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delayed_copy_of_a_take_is_refused() {
    let clock = Arc::new(ManualClock::new(12));
    let options = ClusterOptions { nodes: 3, clock: Some(clock.clone()), ..ClusterOptions::default() };
    let cluster = Cluster::start_with(options).await.expect("a cluster");
    let service = cluster.leader().await.service();
    let since = Client::new(service.clone()).status().await.expect("a status").log_time;
    let call = Call { since: Some(since), ..Call::new(Command::TakeLease(delayed())) };
    let first = service.submit(call.clone()).await.expect("answered").outcome;
    assert!(matches!(first, Outcome::Granted(_)), "{first:?}");
    let remembered = Duration::from_millis(SESSIONLESS_MEMORY_MS);
    cluster.pass(&clock, remembered + Duration::from_secs(60)).await.expect("time passes");
    let copy = cluster.leader().await.service().submit(call).await.expect("answered").outcome;
    let Outcome::Refused(Refusal::OutOfBounds { value, .. }) = copy else { panic!("{copy:?}") };
    assert!(SESSIONLESS_MEMORY_MS < value, "{value}");
    cluster.close().await;
}
