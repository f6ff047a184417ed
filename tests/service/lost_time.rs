//! Time that a leader's clock lost, and copies of calls that were held up: what the nodes do about them.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::client::Client;
use lockkeeper::clock::ManualClock;
use lockkeeper::limits::SESSIONLESS_MEMORY_MS;
use lockkeeper::model::{
    Command, Handle, LeaseRequestId, LockKey, LockName, Metadata, Mode, Namespace, Outcome, Patience, Refusal,
    TakeLease,
};
use lockkeeper::service::{Call, LockService};
use lockkeeper::testing::{Cluster, ClusterOptions};

use crate::suite::{LOOK, PATIENT};

/// A leader that stood still for longer than two seconds of a minute, while something had an end, hands leadership over;
/// sessions do not pay for it: of the pause no more counts than the cap of log time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_loses_time_hands_over() {
    let clock = Arc::new(ManualClock::new(11));
    let options = ClusterOptions { nodes: 3, clock: Some(clock.clone()), ..ClusterOptions::default() };
    let cluster = Cluster::start_with(options).await.expect("a cluster");
    let leader = cluster.leader().await;
    let client = Client::new(leader.service());
    let session = client.session().open().await.expect("opened");
    let before = client.status().await.expect("a status").log_time;
    clock.advance(Duration::from_secs(5));
    let hands_over = async {
        while cluster.leader().await.id() == leader.id() {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENT, hands_over).await.expect("another node leads");
    let after = client.status().await.expect("a status").log_time;
    assert!(after.ms_since(before) <= 1_000, "{before:?} to {after:?}");
    assert!(client.all_sessions().await.expect("listed").value.iter().any(|row| row.session == session.id()));
    cluster.close().await;
}

/// A copy of a take that was held up for longer than the cluster remembers takes is refused, for the call says at which log
/// time it was first sent: the lease that it asks for was granted long ago, and may have been given back since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_a_take_that_was_held_up_is_refused() {
    let clock = Arc::new(ManualClock::new(12));
    let options = ClusterOptions { nodes: 3, clock: Some(clock.clone()), ..ClusterOptions::default() };
    let cluster = Cluster::start_with(options).await.expect("a cluster");
    let service = cluster.leader().await.service();
    let since = Client::new(service.clone()).status().await.expect("a status").log_time;
    let take = TakeLease {
        lock: LockKey { namespace: Namespace::default(), name: LockName::parse("held-up").expect("legal") },
        take: LeaseRequestId(7),
        handle: Handle::from_random(7),
        access: Mode::Exclusive.into(),
        lease_ms: 10_000,
        patience: Patience::Try,
        metadata: Metadata::default(),
    };
    let call = Call { since: Some(since), ..Call::new(Command::TakeLease(take)) };
    let first = service.submit(call.clone()).await.expect("answered").outcome;
    assert!(matches!(first, Outcome::Granted(_)), "{first:?}");
    let remembered = Duration::from_millis(SESSIONLESS_MEMORY_MS);
    cluster.pass(&clock, remembered + Duration::from_secs(60)).await.expect("time passes");
    let copy = cluster.leader().await.service().submit(call).await.expect("answered").outcome;
    let Outcome::Refused(Refusal::OutOfBounds { value, .. }) = copy else { panic!("{copy:?}") };
    assert!(SESSIONLESS_MEMORY_MS < value, "{value}");
    cluster.close().await;
}
