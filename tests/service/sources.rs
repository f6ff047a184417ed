//! Limits that protect the callers of a node from each other: what an abusive source cannot cause.

use std::time::Duration;

use lockkeeper::auth::Who;
use lockkeeper::client::{Client, Session};
use lockkeeper::limits;
use lockkeeper::model::{
    Alter, Alteration, Command, FencingToken, Handle, Instance, LeaseRequestId, LockKey, LockName, Metadata, Mode,
    Namespace, OpenSession, Outcome, Patience, Query, Refusal, RenewalTarget, RequestId, SessionClose, SessionId,
    TakeLease,
};
use lockkeeper::node::Node;
use lockkeeper::service::{Call, Freshness, LockService, NotSent, Proof, RenewalCall, ServiceError, Source};
use lockkeeper::testing::Cluster;

use crate::suite::{LONG, until};

fn key(name: &str) -> LockKey {
    LockKey { namespace: Namespace::default(), name: LockName::parse(name).expect("legal") }
}

fn renewal(target: RenewalTarget) -> RenewalCall {
    RenewalCall { target, proof: Proof::Trusted, attempt: 1 }
}

async fn applied(node: &Node, freshness: Freshness) -> u64 {
    node.service().query(Query::Totals, freshness).await.expect("answered").index
}

/// Returns a handle for the calls of one connection.
fn of(node: &Node, connection: u64) -> Node {
    node.for_caller(Source::Connection(connection), None, || Ok(Who::Anonymous)).expect("a caller")
}

async fn open(leader: &Node) -> Session<Node> {
    Client::new(leader.service()).session().ttl(LONG).open().await.expect("opened")
}

/// H-12: renewals of sessions, leases and holds that do not exist are refused without an entry in the log, by the
/// leader and through a follower. In the same list, the renewals of what exists are answered as usual, in their places.
#[tokio::test]
async fn unknown_renewals_stay_out_of_the_log() {
    let cluster = Cluster::start(3, None).await.expect("a cluster");
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let session = open(&leader).await;
    let unknown = || {
        let (session, token) = (SessionId::new(0, 999_999), FencingToken::new(0, 999_999));
        let handle = Handle::from_random(7);
        vec![
            renewal(RenewalTarget::Session(session)),
            renewal(RenewalTarget::Lease { lock: key("a"), handle, lease_ms: 1_000 }),
            renewal(RenewalTarget::Hold { lock: key("a"), session, token, lease_ms: 1_000 }),
        ]
    };
    for node in [&leader, &follower] {
        let begun = std::time::Instant::now();
        let before = applied(&leader, Freshness::Linearizable).await;
        for _ in 0..100 {
            let replies = node.service().renew(unknown()).await.expect("answered");
            let refused = |outcome: &Outcome| matches!(outcome, Outcome::Refused(_));
            assert!(replies.len() == 3 && replies.iter().all(|reply| refused(&reply.outcome)), "{replies:?}");
        }
        // Log time advances, and the session's own renewals are due.
        let grown = applied(&leader, Freshness::Linearizable).await - before;
        let ticks = 2 * begun.elapsed().as_millis() as u64 / limits::RENEWALS_APART_MS + 2;
        assert!(grown <= ticks, "{grown} entries for 300 renewals of nothing, {ticks} without them");
    }
    let mut mixed = unknown();
    mixed.insert(1, renewal(RenewalTarget::Session(session.id())));
    let replies = follower.service().renew(mixed).await.expect("answered");
    let renewed: Vec<_> = replies.iter().map(|reply| matches!(reply.outcome, Outcome::Renewed { .. })).collect();
    assert_eq!(renewed, [false, true, false, false], "{replies:?}");
}

/// H-17: a source that shows wrong handles is refused with a pause before its next handle is compared, even if that
/// one is right, by the leader and by a follower. Other sources are not affected.
#[tokio::test]
async fn guessing_is_slow() {
    let cluster = Cluster::start(3, None).await.expect("a cluster");
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    let session = open(&leader).await;
    let close = |handle: Handle| {
        let proof = Proof::Handle { handle, namespace: Namespace::default() };
        Call { proof, ..Call::new(Command::CloseSession { session: session.id(), end: SessionClose::Done }) }
    };
    let opened = applied(&leader, Freshness::Linearizable).await;
    until("the follower has it", async || opened <= applied(&follower, Freshness::Stale).await).await;
    for (connection, node) in [(1, leader), (2, follower)] {
        let guesser = of(&node, connection);
        let (mut wrong, mut slowed) = (0, 0);
        let begun = std::time::Instant::now();
        for guess in 0..10 * u128::from(limits::WRONG_HANDLES_A_SECOND) {
            let refused = guesser.submit(close(Handle::from_random(guess))).await.expect_err("a guess");
            if refused == ServiceError::Refused(Refusal::WrongHandle) {
                wrong += 1;
            } else {
                let overloaded = matches!(refused, ServiceError::NotSent { why: NotSent::LimitReached { .. }, .. });
                assert!(overloaded && 0 < refused.pause_ms(), "{refused}");
                slowed += 1;
            }
        }
        let most = u128::from(limits::WRONG_HANDLES_A_SECOND) * (1 + begun.elapsed().as_millis() / 1_000 + 1);
        assert!(0 < slowed && wrong <= most, "{wrong} guesses were answered, {slowed} were not");
        let other = of(&node, 10 + connection);
        let refused = other.submit(close(Handle::from_random(1))).await.expect_err("a guess");
        assert_eq!(refused, ServiceError::Refused(Refusal::WrongHandle), "another source");
    }
}

/// Counts the answers to guesses, and asserts that the limit of wrong handles stopped the others.
async fn answered_guesses(guess: impl AsyncFn(u128) -> Result<(), ServiceError>) {
    let (begun, mut answered) = (std::time::Instant::now(), 0);
    for number in 0..10 * u128::from(limits::WRONG_HANDLES_A_SECOND) {
        match guess(number).await {
            Err(ServiceError::NotSent { why: NotSent::LimitReached { .. }, .. }) => {}
            Ok(()) | Err(ServiceError::Refused(_)) => answered += 1,
            Err(error) => panic!("{error}"),
        }
    }
    let most = u128::from(limits::WRONG_HANDLES_A_SECOND) * (2 + begun.elapsed().as_millis() / 1_000);
    assert!(0 < answered && answered <= most, "{answered} guesses were answered");
}

/// Returns the take of the lock `a` with this id and this handle.
fn take(id: u128, handle: u128) -> Call {
    Call::new(Command::TakeLease(TakeLease {
        lock: key("a"),
        take: LeaseRequestId(id),
        handle: Handle::from_random(handle),
        access: Mode::Exclusive.into(),
        lease_ms: 60_000,
        patience: Patience::Try,
        metadata: Metadata::default(),
        claim_ms: None,
    }))
}

/// H-17: the handle of a lease cannot be guessed by releases and renewals, and the handle of a session cannot be by
/// opening one. A handle of a lock that no lease holds is no guess.
#[tokio::test]
async fn guessing_without_a_session_is_slow() {
    let cluster = Cluster::start(1, None).await.expect("a cluster");
    let leader = cluster.leader().await;
    let release = |number| Call::new(Command::DropLease { lock: key("a"), handle: Handle::from_random(number) });
    for number in 0..100 {
        let free = of(&leader, 1).submit(release(number)).await;
        assert!(free.is_ok(), "the lock is free: {free:?}");
    }
    of(&leader, 9).submit(take(0, 1_000)).await.expect("granted");
    answered_guesses(async |number| of(&leader, 1).submit(release(number)).await.map(drop)).await;
    answered_guesses(async |number| {
        let handle = Handle::from_random(number);
        let target = RenewalTarget::Lease { lock: key("a"), handle, lease_ms: 60_000 };
        of(&leader, 2).renew(vec![renewal(target)]).await.map(drop)
    })
    .await;
    let released = of(&leader, 9).submit(release(1_000)).await.expect("another source").outcome;
    assert!(matches!(released, Outcome::Released { .. }), "{released:?}");

    let open = |number: u128, instance| {
        Call::new(Command::OpenSession(OpenSession {
            namespace: Namespace::default(),
            handle: Handle::from_random(number),
            instance: Instance(instance),
            ttl_ms: 60_000,
            disconnect_grace_ms: None,
            metadata: Metadata::default(),
            accepts_hand_over: false,
        }))
    };
    for number in 0..100 {
        of(&leader, 9).submit(open(number, 1)).await.expect("opened");
    }
    answered_guesses(async |number| of(&leader, 3).submit(open(number, 2)).await.map(drop)).await;
}

/// H-17: events show the ids of takes. The handle of a take cannot be guessed by cancels and repetitions of it, nor by
/// other takes with the same handle, neither while the take holds nor afterwards. A take that is not known has no
/// handle to guess.
#[tokio::test]
async fn guessing_the_handle_of_a_take_is_slow() {
    let cluster = Cluster::start(1, None).await.expect("a cluster");
    let leader = cluster.leader().await;
    let cancel = |id: u128, handle: u128| {
        let (take, handle) = (LeaseRequestId(id), Handle::from_random(handle));
        Call::new(Command::CancelTake { lock: key("a"), take, handle })
    };
    of(&leader, 9).submit(take(0, 1_000)).await.expect("granted");
    for number in 0..100 {
        let unknown = of(&leader, 1).submit(cancel(1_000 + number, number)).await;
        assert!(unknown.is_ok(), "the take is not known: {unknown:?}");
    }
    answered_guesses(async |number| of(&leader, 1).submit(cancel(0, number)).await.map(drop)).await;
    answered_guesses(async |number| of(&leader, 2).submit(take(0, number)).await.map(drop)).await;
    let withdrawn = of(&leader, 9).submit(cancel(0, 1_000)).await.expect("another source").outcome;
    assert_eq!(withdrawn, Outcome::Withdrawn);
    answered_guesses(async |number| of(&leader, 4).submit(cancel(0, number)).await.map(drop)).await;
    answered_guesses(async |number| of(&leader, 5).submit(take(0, number)).await.map(drop)).await;
}

/// H-17: the handle of a session that lost a hold cannot be guessed by requests to resume the hold.
#[tokio::test]
async fn guessing_the_handle_of_a_lost_session_is_slow() {
    let cluster = Cluster::start(1, None).await.expect("a cluster");
    let leader = cluster.leader().await;
    let (lost, other) = (open(&leader).await, open(&leader).await);
    let delay = Duration::from_millis(limits::LOCK_DELAY_MS_MAX);
    let guard = lost.lock("a").delay(delay).acquire().await.expect("free");
    let close = Command::CloseSession { session: lost.id(), end: SessionClose::Lost };
    leader.submit(Call::new(close)).await.expect("closed");
    let resume = |number: u128| {
        let request = RequestId { session: other.id(), number: 1 + u64::try_from(number).expect("few guesses") };
        let (token, handle) = (guard.token(), Handle::from_random(number));
        let what = Alteration::Resume { token, handle, lease_ms: None };
        Call::new(Command::Alter(Alter { request, answered_below: 0, name: key("a").name, what }))
    };
    answered_guesses(async |number| of(&leader, 1).submit(resume(number)).await.map(drop)).await;
}

/// A wrong handle is refused through a follower that has not applied the session yet: only the leader can compare it.
#[tokio::test]
async fn a_follower_that_is_behind_proves_no_handle() {
    let cluster = Cluster::start(3, None).await.expect("a cluster");
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    for connection in 0..50 {
        let session = open(&leader).await;
        let proof = Proof::Handle { handle: Handle::from_random(7), namespace: Namespace::default() };
        let close = Command::CloseSession { session: session.id(), end: SessionClose::Done };
        let other = of(&follower, connection);
        let refused = other.submit(Call { proof, ..Call::new(close) }).await.expect_err("a wrong handle");
        assert_eq!(refused, ServiceError::Refused(Refusal::WrongHandle));
    }
}
