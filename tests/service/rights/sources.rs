//! A principal is one source, on whichever connection it calls: limits that protect callers from each other.

use lockkeeper::auth::Who;
use lockkeeper::limits;
use lockkeeper::model::{
    Command, Handle, LeaseRequestId, Metadata, Mode, Patience, Principal, Refusal, SessionClose, SessionId, TakeLease,
};
use lockkeeper::node::Node;
use lockkeeper::service::{Call, Events, LockService, NotSent, Proof, Scope, ServiceError, Source, Subscription};

use super::{Guarded, key, namespace, open};
use crate::suite::until;

/// Returns a handle for the calls of a principal on one connection.
fn on(node: &Node, connection: u64, principal: &str) -> Node {
    let who = Who::Proven(Principal::parse(principal).expect("legal"));
    node.for_caller(Source::Connection(connection), None, || Ok(who)).expect("a principal")
}

/// Returns the name of the limit that a call has reached.
fn limit<T: std::fmt::Debug>(refused: Result<T, ServiceError>) -> Option<String> {
    let ServiceError::NotSent { why: NotSent::LimitReached { limit, pause_ms }, .. } = refused.expect_err("refused")
    else {
        return None;
    };
    assert!(0 < pause_ms);
    Some(limit)
}

/// Submits a command with a wrong handle once.
async fn guess_once(node: Node, command: Command) -> Result<(), ServiceError> {
    let proof = Proof::Handle { handle: Handle::from_random(1), namespace: namespace() };
    node.submit(Call { proof, ..Call::new(command) }).await.map(drop)
}

/// H-17: a principal that shows a wrong handle on each of many connections is slowed. Another principal is not, and
/// callers that prove nothing are separate sources.
#[tokio::test]
async fn wrong_handles_of_a_principal_count_on_all_connections() {
    let guarded = Guarded::start(1).await;
    let leader = guarded.cluster.leader().await;
    let (session, _) = open(&on(&leader, 1_000, "anonymous"), 7).await;
    let close = Command::CloseSession { session, end: SessionClose::Done };
    let guess = |node: Node| guess_once(node, close.clone());
    let begun = std::time::Instant::now();
    let mut wrong = 0;
    for connection in 0..100 {
        let refused = guess(on(&leader, connection, "lock-all")).await;
        if refused == Err(ServiceError::Refused(Refusal::WrongHandle)) {
            wrong += 1;
        } else {
            let named = limit(refused).expect("a limit");
            assert_eq!(named, "a caller may show 10 wrong handles a second; check its handles");
        }
    }
    let most = u128::from(limits::WRONG_HANDLES_A_SECOND) * (2 + begun.elapsed().as_millis() / 1_000);
    assert!(wrong < 100 && wrong <= most, "{wrong} guesses on 100 connections were answered");
    for (connection, principal) in (0..100).map(|connection| (connection, "anonymous")).chain([(1, "other")]) {
        let refused = guess(on(&leader, connection, principal)).await;
        assert_eq!(refused, Err(ServiceError::Refused(Refusal::WrongHandle)), "{principal} on {connection}");
    }
}

/// Whether a limit refuses the call.
fn is_limited<T: std::fmt::Debug>(refused: &Result<T, ServiceError>) -> bool {
    matches!(refused, Err(ServiceError::NotSent { why: NotSent::LimitReached { .. }, .. }))
}

/// H-17: a principal that has shown too many wrong handles is refused for the session of another principal as for one
/// that does not exist, so that the limit does not show which sessions do.
#[tokio::test]
async fn the_limit_of_handles_shows_no_session() {
    let guarded = Guarded::start(1).await;
    let leader = guarded.cluster.leader().await;
    let thief = || on(&leader, 1, "lock");
    let (own, _) = open(&thief(), 7).await;
    let (anothers, _) = open(&on(&leader, 2, "other"), 8).await;
    let close = |session| Command::CloseSession { session, end: SessionClose::Done };
    for session in [SessionId::new(anothers.epoch(), anothers.counter() + 1), anothers] {
        until("the guess is limited", async || {
            while !is_limited(&guess_once(thief(), close(own)).await) {}
            is_limited(&guess_once(thief(), close(session)).await)
        })
        .await;
    }
}

/// H-17: wrong handles for a name that a principal may not read are limited, even if no lease has the name: the limit
/// must not show which names have one. A principal that may read the name can return leases that have ended.
#[tokio::test]
async fn the_limit_of_handles_shows_no_lease() {
    let guarded = Guarded::start(1).await;
    let leader = guarded.cluster.leader().await;
    let take = TakeLease {
        lock: key("b/leased"),
        take: LeaseRequestId(5),
        handle: Handle::from_random(5),
        access: Mode::Exclusive.into(),
        lease_ms: 60_000,
        patience: Patience::Try,
        metadata: Metadata::default(),
        claim_ms: None,
    };
    on(&leader, 3, "anonymous").submit(Call::new(Command::TakeLease(take))).await.expect("taken");
    for (principal, name, limited) in [
        ("lock", "b/leased", true),
        ("read", "b/free", true),
        ("other", "b/leased", true),
        ("lock-all", "b/free", false),
    ] {
        let mut refused = 0;
        for guess in 100..200 {
            let drop = Command::DropLease { lock: key(name), handle: Handle::from_random(guess) };
            let answered = on(&leader, 1, principal).submit(Call::new(drop)).await;
            refused += usize::from(is_limited(&answered));
        }
        assert_eq!(0 < refused, limited, "{principal} at {name}: {refused}");
    }
}

async fn watch(node: &Node) -> Result<Events, ServiceError> {
    let scope = Scope::Namespace { namespace: namespace(), prefix: String::new() };
    node.subscribe(Subscription { scope, after: None, cluster_id: None }).await
}

/// A principal has a limited number of watches on a node, on all of its connections together. Another principal is not
/// affected, and the end of a watch makes space.
#[tokio::test]
async fn a_principal_has_few_watches() {
    let guarded = Guarded::start(1).await;
    let leader = guarded.cluster.leader().await;
    let mut open = Vec::new();
    for connection in 0..limits::WATCHERS_A_PRINCIPAL_MAX as u64 {
        open.push(watch(&on(&leader, connection, "read-all")).await.expect("below the limit"));
    }
    let one_more = on(&leader, 9_999, "read-all");
    let named = limit(watch(&one_more).await.map(drop)).expect("a limit");
    assert!(named.starts_with("principal \"read-all\" has 1024 watches on this node, its limit; "), "{named}");
    watch(&on(&leader, 9_999, "lock-all")).await.expect("another principal");
    open.pop();
    until("there is room for one more", async || watch(&one_more).await.is_ok()).await;
}
