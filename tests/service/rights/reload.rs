//! Changes of the rules while clients work: what is refused at once, and what is kept.

use std::time::{Duration, Instant};

use lockkeeper::client::{Client, ClientError};
use lockkeeper::limits::LOG_TIME_CAP_MS_MIN;
use lockkeeper::model::{Query, QueryResult, SessionView};
use lockkeeper::node::Node;
use lockkeeper::rpc::{RemoteService, RemoteSettings};
use lockkeeper::service::{ErrorCode, Freshness, LockService, Operation, Scope, ServiceError, Subscription};
use tokio::time::timeout;

use super::{Guarded, key, named, namespace, rules_with};
use crate::suite::{PATIENT, until};

fn client(service: RemoteService) -> Client<RemoteService> {
    Client::new(service).namespace(namespace())
}

/// A client is the principal of its token. Without one it has only what the rules give to a caller without a proof, and
/// a token that is not known is refused.
#[tokio::test]
async fn tokens_prove_principals() {
    let guarded = Guarded::start(1).await;
    let ((reader, entry), (unknown, _)) = (guarded.token("read", 1), guarded.token("lock", 2));
    guarded.reload(&rules_with(&entry));
    let reader = client(reader);
    reader.inspect("a/1").await.expect("permitted");
    let refused = reader.inspect("b").await.expect_err("refused");
    assert_eq!(refused.code(), ErrorCode::NotPermitted);
    assert!(refused.to_string().contains("principal \"read\" has no right to read \"b\" in namespace \"prod\""));
    let refused = client(unknown).inspect("a/1").await.expect_err("refused");
    assert_eq!((refused.code(), refused.code().row().exit), (ErrorCode::Unauthenticated, 77));
    assert!(refused.to_string().contains("the token is not known"), "{refused}");
    let bare = || RemoteService::new(RemoteSettings::new(guarded.cluster.endpoints())).expect("settings");
    client(bare()).inspect("b").await.expect("anonymous may lock all names");
    guarded.reload(&rules_with(&entry).replace("name = \"anonymous\"", "name = \"other-name\""));
    let refused = client(bare()).inspect("b").await.expect_err("refused");
    assert!(refused.to_string().contains("no proof of who you are: send a client certificate"), "{refused}");
}

/// Returns the sessions that exist.
async fn sessions(leader: &Node) -> Vec<SessionView> {
    let sessions = Query::Sessions { namespace: namespace(), after: None, rows: 0 };
    let listed = leader.service().query(sessions, Freshness::Linearizable).await.expect("listed").answer;
    let QueryResult::Sessions(page) = listed else { panic!("another answer") };
    page.rows
}

/// A client whose token was replaced in its file reads the new one when a node refuses the old one: no call fails, and
/// its session is renewed.
#[tokio::test]
async fn a_replaced_token_keeps_sessions() {
    let guarded = Guarded::start(1).await;
    let (service, entry) = guarded.token("lock-all", 1);
    guarded.reload(&rules_with(&entry));
    let client = client(service);
    let session = client.session().ttl(Duration::from_secs(6)).open().await.expect("opened");
    let guard = session.lock("a/1").acquire().await.expect("free");
    let leader = guarded.cluster.leader().await;
    let deadline = async || sessions(&leader).await.first().expect("the session").deadline;
    let (_, entry) = guarded.token("lock-all", 2);
    guarded.reload(&rules_with(&entry));
    client.inspect("a/1").await.expect("permitted");

    let revoked = deadline().await;
    until("a renewal with the new token", async || deadline().await != revoked).await;
    guard.release().await.expect("held until now");
}

/// when a token is revoked, its next calls are refused, and its streams of events and waits end. Its session is
/// not reported as disconnected and lives for its TTL; then the next waiter gets the lock.
#[tokio::test]
async fn a_revoked_token_is_refused_and_its_session_ends_in_time() {
    let guarded = Guarded::start(1).await;
    let leader = guarded.cluster.leader().await;
    let (service, entry) = guarded.token("lock-all", 1);
    guarded.reload(&rules_with(&entry));
    let ttl = Duration::from_secs(3);
    let session = client(service.clone()).session().ttl(ttl).open().await.expect("opened");
    let grace = Duration::from_secs(1);
    let brief = client(service.clone()).session().ttl(ttl).disconnect_grace(grace).open().await.expect("opened");
    let guard = session.lock("a/1").acquire().await.expect("free");
    let other = Client::new(named(&leader, "other")).namespace(namespace());
    let waiter = other.clone();
    let waiting = tokio::spawn(async move { waiter.lock("a/1").acquire().await.expect("the next") });
    let scope = Scope::Namespace { namespace: namespace(), prefix: String::new() };
    let mut events =
        service.subscribe(Subscription { scope, after: None, cluster_id: None }).await.expect("subscribed");
    let free = {
        let client = client(service.clone());
        tokio::spawn(async move { client.wait_free("a/1").await })
    };
    until("a holder and a waiter", async || holders_and_waiters(&other).await == (1, 1)).await;

    let deadline = async || {
        let rows = sessions(&leader).await;
        rows.iter().find(|row| row.session == session.id()).map(|row| row.deadline)
    };
    let revoked = Instant::now();
    guarded.reload(&rules_with(""));
    let mut last = deadline().await.expect("the session");
    let ended = loop {
        if let Err(error) = events.next().await {
            break error;
        }
    };
    assert!(matches!(ended, ServiceError::Unauthenticated { .. }), "{ended}");
    let waited = free.await.expect("a task").expect_err("refused");
    assert_eq!(waited.code(), ErrorCode::Unauthenticated, "{waited}");
    let refused = client(service).inspect("a/1").await.expect_err("refused");
    assert_eq!(refused.code(), ErrorCode::Unauthenticated, "{refused}");
    assert!(revoked.elapsed() < Duration::from_secs(5), "{:?}", revoked.elapsed());

    let connected = sessions(&leader).await;
    assert!(connected.iter().all(|session| !session.disconnected), "{connected:?}");
    // A renewal that was permitted before may still be applied.
    until("the end of the session", async || {
        let now = deadline().await;
        last = now.unwrap_or(last);
        now.is_none()
    })
    .await;
    let next = timeout(PATIENT, waiting).await.expect("granted").expect("a task");
    let since = other.inspect("a/1").await.expect("inspected").value.holders[0].since;
    // Log time advances by no more in one step, however long the machine stalls.
    let late = last.after_ms(LOG_TIME_CAP_MS_MIN);
    assert!(last < since && since <= late, "the hold of a session that ends after {last} ended at {since}");
    let lost = guard.lost().await.to_string();
    assert!(lost.ends_with("could not be renewed in time: not authenticated: the token is not known"), "{lost}");
    let refused = session.lock("a/2").acquire().await.map(drop).expect_err("lost").to_string();
    assert!(refused.ends_with("(it could not be renewed: not authenticated: the token is not known)"), "{refused}");
    drop((next, brief));
}

async fn holders_and_waiters<S: LockService>(client: &Client<S>) -> (usize, usize) {
    let view = client.inspect("a/1").await.expect("inspected").value;
    (view.holders.len(), view.waiters.len())
}

/// A filter of tokens ends with the reason when its token is revoked, or its right is withdrawn. A further wait has the
/// same error, because a retry does not help.
#[tokio::test]
async fn a_filter_without_its_right_ends_with_the_reason() {
    let guarded = Guarded::start(1).await;
    let (service, entry) = guarded.token("lock-all", 1);
    guarded.reload(&rules_with(&entry));
    let reader = Client::new(named(&guarded.cluster.leader().await, "read-all")).namespace(namespace());
    let mut of_token = client(service).tokens("a/1").await.expect("permitted");
    let mut of_right = reader.tokens("a/1").await.expect("permitted");
    let entry = "name = \"read-all\"\nroles = [\"read-all\"]";
    guarded.reload(&rules_with("").replace(entry, "name = \"read-all\"\nroles = []"));
    for _ in 0..2 {
        let ended = timeout(PATIENT, of_token.wait_for(|_| false)).await.expect("it ends").expect_err("refused");
        assert_eq!(ended.code(), ErrorCode::Unauthenticated, "{ended}");
        let ended = timeout(PATIENT, of_right.wait_for(|_| false)).await.expect("it ends").expect_err("refused");
        assert_eq!(ended.code(), ErrorCode::NotPermitted, "{ended}");
    }
}

/// A narrowed rule refuses new locks. What is held is renewed and given back.
#[tokio::test]
async fn a_narrowed_rule_keeps_what_is_held() {
    let guarded = Guarded::start(1).await;
    let (service, entry) = guarded.token("lock-all", 1);
    guarded.reload(&rules_with(&entry));
    let ttl = Duration::from_secs(3);
    let session = client(service.clone()).session().ttl(ttl).open().await.expect("opened");
    let guard = session.lock("a/1").acquire().await.expect("free");
    let narrowed =
        rules_with(&entry).replace("name = \"lock-all\"\nroles = [\"lock-all\"]", "name = \"lock-all\"\nroles = []");
    guarded.reload(&narrowed);
    let refused = session.lock("a/2").acquire().await.map(drop).expect_err("refused");
    assert!(matches!(refused, ClientError::Service(ServiceError::Forbidden { .. })), "{refused}");
    tokio::time::sleep(2 * ttl).await;
    guard.release().await.expect("given back");
}

/// A file that cannot be used changes nothing.
#[tokio::test]
async fn bad_rules_change_nothing() {
    let guarded = Guarded::start(1).await;
    let leader = guarded.cluster.leader().await;
    super::write(&guarded.file(), "version = 1\n[[principal]]\n");
    let refused = leader.reload_auth().expect_err("refused").to_string();
    assert!(refused.contains("auth.toml:2: missing field"), "{refused}");
    let query = Query::Inspect { lock: key("a/1") };
    named(&leader, "read").query(query, Freshness::Stale).await.expect("still permitted");
}

/// The leader judges a request of an operator by its own rules, also if the node that the operator asks permits it.
#[tokio::test]
async fn the_leader_judges_operators() {
    let guarded = Guarded::start(3).await;
    let (leader, follower) = (guarded.cluster.leader().await, guarded.cluster.follower().await);
    let transfer = async || named(&follower, "operate").operate(Operation::Transfer(99)).await.expect_err("refused");
    let invalid = transfer().await;
    assert_eq!(invalid.code(), ErrorCode::Invalid, "{invalid}");
    let entry = "name = \"operate\"\nroles = [\"operate\"]";
    super::write(&guarded.file(), &rules_with("").replace(entry, "name = \"operate\"\nroles = []"));
    leader.reload_auth().expect("good rules");
    let refused = transfer().await;
    assert!(refused.to_string().ends_with("principal \"operate\" may not operate the cluster"), "{refused}");
}

/// if the rules of one node differ, the status of the cluster and the warnings of every node show it.
#[tokio::test]
async fn differing_rules_show() {
    let guarded = Guarded::start(3).await;
    let nodes = guarded.cluster.nodes();
    let differing = || nodes.iter().map(|node| node.differing_rules().len()).collect::<Vec<_>>();
    let digests = async || {
        let status = nodes[0].status().await.expect("a status");
        status.nodes.iter().map(|node| node.rules).collect::<Vec<_>>()
    };
    // A node that has announced nothing yet differs from no other.
    let differ = async |wanted: [usize; 3]| {
        until("the numbers of other rules", async || differing() == wanted && !digests().await.contains(&None)).await;
    };
    differ([0; 3]).await;
    let same = digests().await;
    assert!(same.iter().all(|digest| digest.is_some() && *digest == same[0]), "{same:?}");
    super::write(&guarded.file(), &rules_with("# another line"));
    nodes[2].reload_auth().expect("good rules");
    differ([1, 1, 2]).await;
    let now = digests().await;
    assert!(now[..2] == same[..2] && now[2] != same[2], "{now:?}");
    let warning = nodes[0].differing_rules().concat();
    assert!(warning.starts_with("the rules of node 3 differ from this node's ("), "{warning}");
    guarded.reload(&rules_with("# another line"));
    differ([0; 3]).await;
}
