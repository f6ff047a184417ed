//! Locks and semaphores held by sessions: grants, their order, and cleanup.

use std::time::Duration;

use lockkeeper::client::{ClientError, HoldState};
use lockkeeper::model::{Command, Outcome, Refusal};
use lockkeeper::service::{Call, ErrorCode, LockService, Proof};

use super::{LONG, SHORT, client, in_use, session};

/// An exclusive lock has one holder. A try is refused with the holder, and a release frees the lock.
pub(crate) async fn an_exclusive_lock_has_one_holder<S: LockService>(service: S) {
    let session = session(service, "exclusive").await;
    let guard = session.lock("a").acquire().await.expect("free");
    let refused = session.lock("a").try_once().acquire().await.expect_err("held");
    let ClientError::NotAcquired { holder: Some(holder), .. } = &refused else { panic!("{refused:?}") };
    assert_eq!((holder.token, refused.code()), (guard.token(), ErrorCode::NotAcquired));
    assert_eq!(guard.state(), HoldState::Held);
    assert!(guard.valid_for() > Duration::ZERO && guard.valid_for() < session.ttl());
    guard.release().await.expect("released");
    session.lock("a").try_once().acquire().await.expect("free again").release().await.expect("released");
}

/// A lock with a minimum time that is released early stays closed until that time is over. A try is refused with the
/// last holder and the time left, and a break with the token of the ended grant opens the lock.
pub(crate) async fn at_least_outlasts_the_hold<S: LockService>(service: S) {
    let client = client(service.clone(), "at-least");
    let guard = client.lock("a").at_least(LONG).acquire().await.expect("free");
    let token = guard.token();
    guard.release().await.expect("released");
    let refused = client.lock("a").try_once().acquire().await.expect_err("closed");
    let ClientError::NotAcquired { holder: None, closed: Some(closed), .. } = &refused else { panic!("{refused:?}") };
    assert_eq!((closed.token, refused.code()), (token, ErrorCode::NotAcquired));
    assert!(0 < closed.left_ms && Duration::from_millis(closed.left_ms) <= LONG, "{closed:?}");
    let shown = client.inspect("a").await.expect("answered").value.closed;
    assert_eq!(shown.iter().map(|closed| closed.token).collect::<Vec<_>>(), [token]);
    client.break_hold("a", token, "the job failed").await.expect("the token keeps it closed");
    client.lock("a").try_once().acquire().await.expect("open").release().await.expect("released");
    let refused = client.lock("a").shared().at_least(SHORT).acquire().await.expect_err("shared");
    assert_eq!(refused.code(), ErrorCode::Invalid);
}

/// A hold with a maximum time ends although its session lives: its guard reports the loss, and the next waiter gets the
/// lock.
pub(crate) async fn at_most_ends_only_the_hold<S: LockService>(service: S) {
    let session = session(service.clone(), "at-most").await;
    let guard = session.lock("a").at_most(SHORT).acquire().await.expect("free");
    assert!(guard.valid_for() <= SHORT);
    let next = client(service, "at-most").lock("a").acquire().await.expect("granted after it");
    let lost = guard.lost().await;
    assert!(lost.alone && guard.valid_for().is_zero(), "{lost:?}");
    assert_eq!(session.state(), HoldState::Held);
    assert!(guard.token() < next.token());
    next.release().await.expect("released");
}

/// The queue is served in its order, with growing tokens, and each waiter gets its place.
pub(crate) async fn waiters_are_served_in_order<S: LockService>(service: S) {
    let client = client(service.clone(), "fifo");
    let first = client.lock("a").acquire().await.expect("free");
    let (places, mut reported) = tokio::sync::mpsc::unbounded_channel();
    let (grants, mut granted) = tokio::sync::mpsc::unbounded_channel();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 1..=3_u64 {
        let (client, places, grants) = (client.clone(), places.clone(), grants.clone());
        tasks.spawn(async move {
            let report = move |place: &lockkeeper::model::Place| {
                let _ = places.send(place.place);
            };
            let guard = client.lock("a").on_queued(report).acquire().await.expect("granted in turn");
            grants.send((number, guard.token())).expect("the test receives");
        });
        assert_eq!(reported.recv().await, Some(number));
    }
    let mut last = first.token();
    drop(first);
    for number in 1..=3 {
        let (who, token) = granted.recv().await.expect("granted");
        assert_eq!(who, number);
        assert!(last < token);
        last = token;
    }
    while tasks.join_next().await.is_some() {}
}

/// A wait reports its timeout only after it has left the queue.
pub(crate) async fn a_wait_that_times_out_leaves_no_waiter<S: LockService>(service: S) {
    let client = client(service.clone(), "timeout");
    let guard = client.lock("a").acquire().await.expect("free");
    let late = client.lock("a").wait(SHORT).acquire().await.expect_err("held");
    assert!(matches!(late, ClientError::NotAcquired { .. }), "{late:?}");
    in_use(&client, "a", 1, 0).await;
    guard.release().await.expect("released");
    in_use(&client, "a", 0, 0).await;
}

/// An acquire that is dropped while it waits leaves the queue, and one that is dropped around its grant holds nothing.
pub(crate) async fn a_dropped_acquire_leaves_nothing<S: LockService>(service: S) {
    let client = client(service.clone(), "dropped");
    let guard = client.lock("a").acquire().await.expect("free");
    assert!(tokio::time::timeout(SHORT, client.lock("a").acquire()).await.is_err());
    in_use(&client, "a", 1, 0).await;
    let mut waits = Box::pin(client.lock("a").acquire());
    tokio::select! {
        _ = &mut waits => panic!("held by another"),
        () = in_use(&client, "a", 1, 1) => {}
    }
    guard.release().await.expect("released");
    // The lock may be granted by now, but the answer was not read.
    drop(waits);
    in_use(&client, "a", 0, 0).await;
}

/// Dropping a guard releases the lock.
pub(crate) async fn a_dropped_guard_releases_the_lock<S: LockService>(service: S) {
    let client = client(service.clone(), "drop");
    drop(client.lock("a").acquire().await.expect("free"));
    let session = client.session().open().await.expect("opened");
    drop(session.lock("a").wait(LONG).acquire().await.expect("free again"));
    in_use(&client, "a", 0, 0).await;
}

/// Shared holders hold the lock at the same time, and later readers do not pass a waiting writer.
pub(crate) async fn readers_share_and_do_not_pass_a_writer<S: LockService>(service: S) {
    let client = client(service.clone(), "shared");
    let one = client.lock("a").shared().acquire().await.expect("free");
    let two = client.lock("a").shared().try_once().acquire().await.expect("shared");
    let mut writer = Box::pin(client.lock("a").acquire());
    tokio::select! {
        _ = &mut writer => panic!("readers hold it"),
        () = in_use(&client, "a", 2, 1) => {}
    }
    client.lock("a").shared().try_once().acquire().await.expect_err("behind the writer");
    drop((one, two));
    let writer = writer.await.expect("the readers have released it");
    client.lock("a").shared().try_once().acquire().await.expect_err("the writer holds it");
    writer.release().await.expect("released");
}

/// A semaphore grants permits up to its limit, refuses a request above the limit, and is not a lock.
pub(crate) async fn permits_are_counted<S: LockService>(service: S) {
    let session = session(service, "permits").await;
    let two = session.lock("s").permits(2, 3).acquire().await.expect("free");
    session.lock("s").permits(2, 3).try_once().acquire().await.expect_err("one is left");
    let one = session.lock("s").permits(1, None).try_once().acquire().await.expect("one is left");
    let never = session.lock("s").permits(4, 3).acquire().await.expect_err("above the limit");
    assert_eq!(never.code(), ErrorCode::LimitExceeded);
    assert_eq!(session.lock("s").try_once().acquire().await.expect_err("a semaphore").code(), ErrorCode::KindMismatch);
    two.release().await.expect("released");
    one.release().await.expect("released");
}

/// A request by the owner that already holds the lock is refused; another owner of the session waits.
pub(crate) async fn the_same_owner_is_refused<S: LockService>(service: S) {
    let session = session(service, "owner").await;
    let _guard = session.lock("a").owner("task").acquire().await.expect("free");
    let again = session.lock("a").owner("task").acquire().await.expect_err("its own");
    assert_eq!(again.code(), ErrorCode::AlreadyHeld);
    let other = session.lock("a").owner("other").wait(SHORT).acquire().await.expect_err("held");
    assert_eq!(other.code(), ErrorCode::NotAcquired);
}

/// A release with the token of another holder is refused and changes nothing.
pub(crate) async fn a_foreign_release_is_refused<S: LockService>(service: S) {
    let (one, two) = tokio::join!(session(service.clone(), "foreign"), session(service.clone(), "foreign"));
    let guard = one.lock("a").acquire().await.expect("free");
    let release = lockkeeper::model::Release {
        request: lockkeeper::model::RequestId { session: two.id(), number: 1_000 },
        answered_below: 0,
        name: guard.name().clone(),
        token: guard.token(),
        acquire: 0,
    };
    let proof = Proof::Handle { handle: two.handle().clone(), namespace: two.namespace().clone() };
    let call = Call { proof, ..Call::new(Command::Release(release)) };
    let reply = service.submit(call).await.expect("answered");
    assert!(matches!(reply.outcome, Outcome::Refused(Refusal::HeldByOther { .. })), "{reply:?}");
    guard.release().await.expect("still held");
}
