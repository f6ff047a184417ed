//! Cached holds: which acquires take a hold without a message, and when the session releases it.

mod ends;

use std::time::Duration;

use super::fake::{Asked, Fake, Reaction};
use super::time::{TICK, until};
use crate::client::{ClientError, HoldState, LockGuard, LockRequest, Session};
use crate::limits::{CACHED_IDLE_MAX, CACHED_IDLE_MS_MAX};
use crate::model::{Command, Event, EventKind, FencingToken, Outcome, Principal, Reason, Reentry};
use crate::service::{ErrorCode, ServiceError};

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(60);

async fn session(fake: &Fake) -> Session<Fake> {
    fake.client().session().ttl(TTL).open().await.expect("opened")
}

fn cached(session: &Session<Fake>) -> LockRequest<Fake> {
    session.lock("a").cached()
}

async fn take(session: &Session<Fake>) -> LockGuard {
    cached(session).acquire().await.expect("free")
}

fn event(fake: &Fake, token: u64, kind: EventKind) -> Event {
    Event { kind, ..fake.granted(token) }
}

/// Reports that another request waits for the hold with this token.
async fn recall(fake: &Fake, token: u64) {
    fake.publish(Ok(event(fake, token, EventKind::Recalled))).await;
    tokio::time::sleep(TICK).await;
}

fn is_acquire(asked: &Asked) -> bool {
    matches!(asked, Asked::Submit(Command::Acquire(_)))
}

/// Returns the numbers of acquires and releases that reached the service, once it has answered all of them.
async fn sent(fake: &Fake) -> (usize, usize) {
    tokio::time::sleep(10 * TICK).await;
    (fake.count(is_acquire), fake.count(|asked| matches!(asked, Asked::Submit(Command::Release(_)))))
}

fn token(number: u64) -> FencingToken {
    FencingToken::new(0, number)
}

/// N-CAC-21: The session keeps a released hold, and takes it again under the same token without a message. Each use
/// has its separate guard, whose watch reports the end of that use.
#[tokio::test(start_paused = true)]
async fn n_cac_21_a_hold_is_taken_again_without_a_message() {
    let fake = Fake::new();
    let session = session(&fake).await;
    let first = take(&session).await;
    let (granted, watch) = (first.token(), first.watch());
    let kept = first.release().await.expect("kept");
    assert_eq!((watch.state(), kept.left), (HoldState::Lost, 0));
    for _ in 0..1_000 {
        let guard = take(&session.clone()).await;
        assert_eq!((guard.token(), guard.state()), (granted, HoldState::Held));
        assert!(!guard.valid_for().is_zero());
    }
    assert_eq!(watch.state(), HoldState::Lost);
    assert_eq!(sent(&fake).await, (1, 0));
}

/// N-CAC-22: A recall does not end the use that runs; its guard releases the hold. A hold that is idle when it is
/// recalled is released at once. The next acquire goes to the cluster both times.
#[tokio::test(start_paused = true)]
async fn n_cac_22_a_recalled_hold_is_released() {
    let fake = Fake::new();
    let session = session(&fake).await;
    let guard = take(&session).await;
    recall(&fake, 1).await;
    assert_eq!((guard.state(), sent(&fake).await), (HoldState::Held, (1, 0)));
    drop(guard);
    assert_eq!(sent(&fake).await, (1, 1));
    assert_eq!(take(&session).await.token(), token(2));
    assert_eq!(sent(&fake).await, (2, 1));
    recall(&fake, 2).await;
    assert_eq!(sent(&fake).await, (2, 2));
    assert_eq!(take(&session).await.token(), token(3));
    // A repeated or late recall changes nothing.
    recall(&fake, 2).await;
    assert_eq!((take(&session).await.token(), sent(&fake).await), (token(3), (3, 2)));
}

/// N-CAC-22: A recall counts that arrives before the grant, and one that only the answer to a renewal names.
#[tokio::test(start_paused = true)]
async fn n_cac_22_a_recall_counts_however_it_arrives() {
    let fake = Fake::new();
    let session = session(&fake).await;
    fake.ways(TICK, 100 * TICK);
    let (guard, ()) = tokio::join!(take(&session), async {
        tokio::time::sleep(50 * TICK).await;
        recall(&fake, 1).await;
    });
    fake.ways(TICK, TICK);
    drop(guard);
    assert_eq!(sent(&fake).await, (1, 1));
    drop(take(&session).await);
    fake.recalled(&[2]);
    until(|| fake.count(|asked| matches!(asked, Asked::Renew(_))) == 1).await;
    assert_eq!(sent(&fake).await, (2, 2));
}

/// N-CAC-23: Cached acquires of one session are served in the order of their calls, without a message. A dropped one
/// leaves the queue, a try does not wait, and a wait times out.
#[tokio::test(start_paused = true)]
async fn n_cac_23_acquires_of_one_session_wait_in_order() {
    let fake = Fake::new();
    let session = session(&fake).await;
    let guard = take(&session).await;
    let order = std::sync::Mutex::new(Vec::new());
    let waits = (0..5).map(|number| {
        let (session, order) = (&session, &order);
        async move {
            let guard = take(session).await;
            order.lock().expect("not poisoned").push(number);
            tokio::time::sleep(SECOND).await;
            drop(guard);
        }
    });
    let waits = futures_util::future::join_all(waits);
    let others = async {
        tokio::time::sleep(TICK).await;
        tokio::time::timeout(SECOND, take(&session)).await.expect_err("dropped");
        for late in [cached(&session).try_once(), cached(&session).wait(Duration::ZERO), cached(&session).wait(SECOND)]
        {
            let error = late.acquire().await.expect_err("used");
            assert!(matches!(error, ClientError::NotAcquired { .. }), "{error:?}");
        }
        drop(guard);
    };
    tokio::join!(waits, others);
    assert_eq!(*order.lock().expect("not poisoned"), [0, 1, 2, 3, 4]);
    assert_eq!(sent(&fake).await, (1, 0));
}

/// N-CAC-23: At a recall, the acquires whose use has not begun go to the cluster.
#[tokio::test(start_paused = true)]
async fn n_cac_23_a_recall_sends_the_local_queue_to_the_cluster() {
    let fake = Fake::new();
    let session = session(&fake).await;
    let guard = take(&session).await;
    let waits = futures_util::future::join_all((0..3).map(|_| take(&session)));
    let (guards, ()) = tokio::join!(waits, async {
        tokio::time::sleep(TICK).await;
        recall(&fake, 1).await;
        assert_eq!(sent(&fake).await, (4, 0));
    });
    assert_eq!(guards.iter().map(LockGuard::token).max(), Some(token(4)));
    drop(guard);
    assert_eq!(sent(&fake).await, (4, 1));
}

/// N-CAC-23: If the acquire that sent the request is dropped or fails, the next one in the local queue sends a request.
#[tokio::test(start_paused = true)]
async fn n_cac_23_the_next_acquire_takes_over_a_failed_request() {
    let fake = Fake::new();
    let session = session(&fake).await;
    fake.rule(|asked| if is_acquire(asked) { Reaction::Silence } else { Reaction::Serve });
    let first = async {
        tokio::time::timeout(SECOND, take(&session)).await.expect_err("dropped");
        fake.rule(|asked| if is_acquire(asked) { Reaction::Outcome(Outcome::TimedOut) } else { Reaction::Serve });
    };
    let second = async {
        tokio::time::sleep(TICK).await;
        cached(&session).acquire().await.expect_err("timed out");
        fake.rule(|_| Reaction::Serve);
    };
    let third = async {
        tokio::time::sleep(2 * TICK).await;
        assert_eq!(fake.count(is_acquire), 1);
        take(&session).await
    };
    let ((), (), guard) = tokio::join!(first, second, third);
    drop(guard);
    assert_eq!((take(&session).await.token(), sent(&fake).await), (token(1), (3, 0)));
}

/// N-CAC-24: Without a renewal for half a TTL, an acquire goes to the cluster, after the release of the idle hold.
#[tokio::test(start_paused = true)]
async fn n_cac_24_a_local_take_needs_a_fresh_renewal() {
    let fake = Fake::new();
    let session = session(&fake).await;
    drop(take(&session).await);
    fake.rule(|asked| if matches!(asked, Asked::Renew(_)) { Reaction::Silence } else { Reaction::Serve });
    tokio::time::sleep(TTL / 2 - 100 * TICK).await;
    drop(take(&session).await);
    assert_eq!(sent(&fake).await, (1, 0));
    tokio::time::sleep(100 * TICK).await;
    assert_eq!(take(&session).await.token(), token(2));
    assert_eq!(sent(&fake).await, (2, 1));
}

/// N-CAC-24: During an attach and until the next renewal, acquires go to the cluster. That renewal follows at once.
#[tokio::test(start_paused = true)]
async fn n_cac_24_a_local_take_needs_a_renewal_since_the_attach() {
    let fake = Fake::new();
    let session = session(&fake).await;
    drop(take(&session).await);
    fake.ways(100 * TICK, TICK);
    fake.attached(false);
    tokio::time::sleep(TICK).await;
    // The events continue, so only the attach prevents a local take.
    drop(take(&session).await);
    assert_eq!(sent(&fake).await, (2, 1));
    drop(take(&session).await);
    until(|| fake.count(|asked| matches!(asked, Asked::Renew(_))) == 1).await;
    assert!(fake.sent(|_| true).since(fake.sent(is_acquire)) < SECOND);
    tokio::time::sleep(SECOND).await;
    let (acquires, releases) = sent(&fake).await;
    drop(take(&session).await);
    assert_eq!(sent(&fake).await, (acquires, releases));
}

/// N-CAC-25: If events of its holds may have been missed, a session releases its idle holds, and keeps no hold that is
/// used or granted until it follows the events again.
#[tokio::test(start_paused = true)]
async fn n_cac_25_a_gap_in_the_events_ends_caching() {
    let fake = Fake::new();
    let session = session(&fake).await;
    drop(take(&session).await);
    let other = session.lock("b").cached().acquire().await.expect("free");
    fake.end_subscriptions_at_once();
    fake.cut();
    assert_eq!(sent(&fake).await, (2, 1));
    drop(other);
    drop(take(&session).await);
    assert_eq!(sent(&fake).await, (3, 3));
    fake.followed();
    tokio::time::sleep(2 * SECOND).await;
    drop(take(&session).await);
    drop(take(&session).await);
    assert_eq!(sent(&fake).await, (4, 3));
}

/// N-CAC-30: Options that a cached hold cannot have are refused before anything is sent, with the name of the option.
#[tokio::test(start_paused = true)]
async fn n_cac_30_a_conflict_is_refused_before_anything_is_sent() {
    let fake = Fake::new();
    let session = session(&fake).await;
    let before = fake.count(|_| true);
    let conflicts = [
        (cached(&session).shared(), "mode"),
        (cached(&session).permits(1, 2), "mode"),
        (cached(&session).owner("job"), "owner"),
        (cached(&session).owner("job").reentry(Reentry::Count), "owner"),
        (cached(&session).parent(session.id(), "job"), "parent"),
        (cached(&session).lease(SECOND), "lease"),
        (cached(&session).value("v"), "value"),
        (cached(&session).delay(SECOND), "delay"),
        (cached(&session).at_least(SECOND), "at_least"),
        (cached(&session).at_most(SECOND), "at_most"),
        (cached(&session).unfair(), "unfair"),
    ];
    for (request, field) in conflicts {
        let ClientError::Invalid(invalid) = request.acquire().await.expect_err(field) else { panic!("{field}") };
        assert_eq!(invalid.field, field);
        assert!(invalid.bound.contains("cached"), "{invalid}");
    }
    assert_eq!(fake.count(|_| true), before);
}
