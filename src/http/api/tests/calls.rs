//! Calls at a cluster of one node, whose log time the tests control.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::super::problem::Failed;
use super::super::*;
use super::fake::context_of;
use crate::clock::ManualClock;
use crate::node::Node;
use crate::service::{NotSent, ServiceError};
use crate::testing::{Cluster, ClusterOptions};

const UUID: &str = "7f1e0c3a-52d4-4b0e-9a55-0b3a3f6b9d11";

struct Setup {
    cluster: Cluster,
    clock: Arc<ManualClock>,
    context: RequestContext<Node>,
    _stop: watch::Sender<bool>,
}

async fn setup() -> Setup {
    let clock = Arc::new(ManualClock::new(7));
    let options = ClusterOptions { nodes: 1, clock: Some(clock.clone()), ..ClusterOptions::default() };
    let cluster = Cluster::start_with(options).await.expect("started");
    let (context, stop) = context_of(cluster.leader().await);
    Setup { cluster, clock, context, _stop: stop }
}

impl Setup {
    /// Makes a call with these fields, and returns its answer.
    async fn call<C: Call>(&self, fields: Value) -> Value {
        let call: C = serde_json::from_value(fields).expect("fields");
        let answered = call.answer(&self.context).await.expect("no error");
        serde_json::to_value(answered.value).expect("JSON")
    }

    /// Lets two seconds of log time pass.
    async fn two_seconds_pass(&self) {
        self.cluster.pass(&self.clock, Duration::from_secs(2)).await.expect("a leader");
    }
}

/// A granted upgrade is not withdrawn: the answer is its grant, with the token of the hold.
#[tokio::test]
async fn a_withdrawal_of_a_granted_upgrade_answers_its_token() {
    let setup = setup().await;
    let session = setup.call::<OpenBody>(json!({"handle": "s", "ttl_ms": 60_000})).await["session"].clone();
    let own = |request: &str| json!({"session": session, "handle": "s", "request": request});
    let with = |request: &str, more: Value| {
        let (Value::Object(mut fields), Value::Object(more)) = (own(request), more) else { panic!("objects") };
        fields.extend(more);
        Value::Object(fields)
    };
    let shared = setup.call::<AcquireBody>(with("1", json!({"lock": "a", "mode": "shared"}))).await;
    let alone = setup.call::<UpgradeBody>(with("2", json!({"lock": "a", "token": shared["token"]}))).await;
    assert_ne!(alone["token"], shared["token"]);
    let kept = setup.call::<WithdrawBody>(own("2")).await;
    assert_eq!(kept, json!({"state": "granted", "token": alone["token"]}));
    let token = &alone["token"];
    assert_eq!(setup.call::<CheckBody>(json!({"lock": "a", "token": token})).await["valid"], true);
    let never_sent = setup.call::<WithdrawBody>(own("3")).await;
    assert_eq!(never_sent, json!({"state": "withdrawn"}));
}

/// A copy of an answered acquire does not move the end of the lease, whether the lease waited or not.
#[tokio::test]
async fn a_repeated_acquire_does_not_prolong_the_lease() {
    let setup = setup().await;
    let at_once = json!({"lock": "a", "lease_ms": 16_000, "request": UUID, "handle": "h"});
    let mut with_a_wait = at_once.clone();
    with_a_wait["wait_ms"] = json!(60_000);
    let first = setup.call::<AcquireBody>(at_once.clone()).await;
    setup.two_seconds_pass().await;
    for copy in [at_once, with_a_wait] {
        let again = setup.call::<AcquireBody>(copy).await;
        assert_eq!((&again["token"], &again["deadline_ms"]), (&first["token"], &first["deadline_ms"]));
    }
}

/// The first copy of a waiting acquire that finds its grant lengthens the lease, and no later copy does.
#[tokio::test]
async fn a_lease_that_waited_is_lengthened_once() {
    let setup = setup().await;
    setup.call::<AcquireBody>(json!({"lock": "a", "lease_ms": 60_000, "request": UUID, "handle": "first"})).await;
    let waits = json!({
        "lock": "a", "lease_ms": 16_000, "wait_ms": 60_000, "poll_ms": 1,
        "request": UUID.replace('7', "8"), "handle": "second"
    });
    assert_eq!(setup.call::<AcquireBody>(waits.clone()).await["state"], "waiting");
    setup.call::<ReleaseBody>(json!({"lock": "a", "handle": "first"})).await;
    setup.two_seconds_pass().await;
    let granted = setup.call::<AcquireBody>(waits.clone()).await;
    assert!(15_900 < granted["remaining_ms"].as_u64().expect("an end"), "{granted}");
    setup.two_seconds_pass().await;
    let again = setup.call::<AcquireBody>(waits).await;
    assert_eq!((&again["token"], &again["deadline_ms"]), (&granted["token"], &granted["deadline_ms"]));
}

/// The events of a session name the point of the log at which the stream begins: the open session was read there.
#[tokio::test]
async fn the_events_of_a_session_name_their_point() {
    let mut setup = setup().await;
    let session = setup.call::<OpenBody>(json!({"ttl_ms": 60_000})).await["session"].clone();
    setup.context.session = session.as_str().map(|id| id.parse().expect("an id"));
    let answered = SessionEventsQuery {}.begin(setup.context).await.expect("a stream");
    let (index, _) = answered.point.expect("a point");
    assert_ne!(index, 0);
}

/// Streams about a session and about a lock end at a node that has had no leader for long, because it learns of no
/// change.
#[tokio::test]
async fn a_node_without_a_leader_ends_its_streams() {
    let mut setup = setup().await;
    let session = setup.call::<OpenBody>(json!({"ttl_ms": 60_000})).await["session"].clone();
    let (_leader, leaders) = watch::channel(None);
    let api = Arc::get_mut(&mut setup.context.api).expect("no other owner");
    (api.info.leader, api.info.leaderless_max) = (leaders, Duration::ZERO);
    let context = || RequestContext {
        api: setup.context.api.clone(),
        service: setup.context.service.clone(),
        namespace: setup.context.namespace.clone(),
        session: session.as_str().map(|id| id.parse().expect("an id")),
        last_event: None,
        certificate: setup.context.certificate.clone(),
    };
    let mut of_session = SessionEventsQuery {}.begin(context()).await.expect("a stream").value;
    let is_cut_off = |end: Failed| {
        let Failed::Service(error, _) = end else { return false };
        matches!(*error, ServiceError::NotSent { why: NotSent::NoLeader, .. })
    };
    let end = tokio::time::timeout(Duration::from_secs(60), of_session.recv()).await.expect("it ends");
    assert!(is_cut_off(end.expect("an end").expect_err("no event")));
    let of_lock: TokensQuery = serde_json::from_value(json!({"lock": "a"})).expect("fields");
    let mut of_lock = of_lock.begin(context()).await.expect("a stream").value;
    let ends = async {
        loop {
            if let Err(end) = of_lock.recv().await.expect("an end") {
                return end;
            }
        }
    };
    assert!(is_cut_off(tokio::time::timeout(Duration::from_secs(60), ends).await.expect("it ends")));
}
