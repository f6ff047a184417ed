//! Queries, watches and waits for a free lock.

use std::pin::pin;
use std::time::Duration;

use lockkeeper::model::{EventKind, ListShow, TokenState};
use lockkeeper::service::{ErrorCode, LockService};

use super::{LONG, SHORT, client, in_use, session};
use crate::changes::lose;

/// A token is valid while it holds its lock, and stale afterwards.
pub(crate) async fn a_token_is_checked<S: LockService>(service: S) {
    let client = client(service.clone(), "check");
    let guard = client.lock("a").acquire().await.expect("free");
    let token = guard.token();
    assert_eq!(client.check("a", token).await.expect("checked").state, TokenState::Valid);
    assert_eq!(client.check("b", token).await.expect("checked").state, TokenState::Stale);
    guard.release().await.expect("released");
    let checked = client.check("a", token).await.expect("checked");
    assert_eq!(checked.state, TokenState::Stale);
    assert!(token < checked.lowest_valid);
}

/// Queries show holders and waiters with their metadata, and list locks and sessions.
pub(crate) async fn locks_and_sessions_are_listed<S: LockService>(service: S) {
    let client = client(service.clone(), "look");
    let session = client.session().open().await.expect("opened");
    let _guard = session.lock("jobs/one").owner("task").why("to be seen").acquire().await.expect("free");
    let _other = session.lock("other").acquire().await.expect("free");
    let view = client.inspect("jobs/one").await.expect("inspected").value;
    assert_eq!(&*view.holders[0].metadata.why, "to be seen");
    assert_eq!(view.holders[0].owner.as_ref().map(|owner| owner.as_str()), Some("task"));
    let listed = client.list("jobs/").show(ListShow::Held).all().await.expect("listed").value;
    assert_eq!(listed.iter().map(|row| row.lock.name.as_str()).collect::<Vec<_>>(), ["jobs/one"]);
    let page = client.list("").rows(1).page().await.expect("listed").value;
    assert!(page.rows.len() == 1 && page.more);
    assert_eq!(client.list("").rows(1).all().await.expect("listed").value.len(), 2);
    let sessions = client.all_sessions().await.expect("listed").value;
    assert_eq!(sessions.iter().map(|row| (row.session, row.holds)).collect::<Vec<_>>(), [(session.id(), 2)]);
}

/// A watch returns every event after its start once, in order. Another watch can resume from any of its positions.
pub(crate) async fn a_watch_resumes_where_it_stopped<S: LockService>(service: S) {
    let client = client(service.clone(), "watch");
    let mut watch = client.watch("a", None).await.expect("watching");
    let guard = client.lock("a").acquire().await.expect("free");
    let token = guard.token();
    drop(client.lock("b").acquire().await.expect("free"));
    guard.release().await.expect("released");
    let granted = loop {
        let event = watch.next().await.expect("an event");
        if event.subject.token() == Some(token) {
            break event;
        }
    };
    assert!(matches!(granted.kind, EventKind::Granted { .. }));
    let mut second = client.watch("a", Some(granted.position)).await.expect("watching");
    let (here, there) = (watch.next().await.expect("an event"), second.next().await.expect("an event"));
    assert_eq!(here, there);
    assert!(matches!(here.kind, EventKind::Released { .. }), "{here:?}");
    assert!(granted.position < here.position);
}

/// A wait for a free lock returns when the lock becomes free, or at once if it is free.
pub(crate) async fn a_free_lock_is_awaited<S: LockService>(service: S) {
    let client = client(service.clone(), "wait-free");
    client.wait_free("a").await.expect("free");
    let guard = client.lock("a").acquire().await.expect("free");
    assert!(tokio::time::timeout(SHORT, client.wait_free("a")).await.is_err(), "held");
    let (free, released) = tokio::join!(client.wait_free("a"), guard.release());
    free.expect("free");
    released.expect("released");
}

/// A wait with a limit returns false while the name has a holder, or while one permit of a semaphore is taken. A limit
/// of 0 checks once. A name that was never used is free.
pub(crate) async fn a_wait_with_a_limit_says_whether_the_name_is_free<S: LockService>(service: S) {
    let client = client(service, "wait-limit");
    let free = async |name: &str, longest| client.wait_free_within(name, longest).await.expect("an answer");
    assert!(free("never", Duration::ZERO).await && free("never", LONG).await);
    let held = client.lock("held").acquire().await.expect("free");
    let permit = client.lock("pool").permits(1, 3).acquire().await.expect("free");
    for name in ["held", "pool"] {
        assert!(!free(name, Duration::ZERO).await && !free(name, SHORT).await, "{name}");
    }
    held.release().await.expect("released");
    permit.release().await.expect("released");
    for name in ["held", "pool"] {
        assert!(free(name, Duration::ZERO).await && free(name, LONG).await, "{name}");
    }
}

/// A name that a lock-delay keeps closed has no holder, but is not free until the delay ends.
pub(crate) async fn a_wait_lasts_through_a_lock_delay<S: LockService>(service: S) {
    let lost = session(service.clone(), "wait-delay").await;
    let client = client(service.clone(), "wait-delay");
    let _long = lost.lock("long").delay(LONG).acquire().await.expect("free");
    let _short = lost.lock("short").delay(4 * SHORT).acquire().await.expect("free");
    lose(&service, &lost).await;
    in_use(&client, "long", 0, 0).await;
    for longest in [Duration::ZERO, SHORT] {
        assert!(!client.wait_free_within("long", longest).await.expect("an answer"), "{longest:?}");
    }
    assert!(client.wait_free_within("short", LONG).await.expect("an answer"));
    assert_eq!(client.inspect("short").await.expect("inspected").value.delay_ms, None);
}

/// A lock that passes to the next waiter is never free in between: the wait returns after the last release.
pub(crate) async fn a_wait_lasts_through_hand_overs<S: LockService>(service: S) {
    let client = client(service, "wait-queue");
    let mut guard = client.lock("a").acquire().await.expect("free");
    let mut waits = pin!(client.wait_free("a"));
    for _ in 0..3 {
        assert!(tokio::time::timeout(SHORT, &mut waits).await.is_err(), "held");
        let (next, ()) = tokio::join!(client.lock("a").wait(LONG).acquire(), async {
            in_use(&client, "a", 1, 1).await;
            guard.release().await.expect("released");
        });
        guard = next.expect("the next one");
    }
    assert!(tokio::time::timeout(SHORT, &mut waits).await.is_err(), "held by the last one");
    guard.release().await.expect("released");
    waits.await.expect("free");
}

/// A position of another cluster, for example from before a restore, is refused, even if this cluster has an event at
/// that position.
pub(crate) async fn a_watch_of_another_cluster_is_refused<S: LockService>(service: S) {
    let client = client(service, "watch-foreign");
    let mut watch = client.watch("", None).await.expect("watching");
    client.lock("a").acquire().await.expect("free").release().await.expect("released");
    watch.next().await.expect("an event");
    let (cluster_id, after) = (watch.cluster_id(), watch.position());
    client.watch_of(cluster_id, "", after).next().await.expect("the next event");
    let foreign = client.watch_of(cluster_id ^ 1, "", after).next().await.expect_err("of another cluster");
    assert_eq!(foreign.code(), ErrorCode::Invalid);
}
