//! Sessions: how they are opened, renewed and ended.

use std::time::Duration;

use lockkeeper::client::{ClientError, HoldState};
use lockkeeper::model::{EndReason, EventKind, Setting};
use lockkeeper::service::{ErrorCode, LockService};

use super::{LONG, client, in_use, passes, until};

/// Dropping the last reference to a session closes it and frees all its locks.
pub(crate) async fn dropping_the_last_handle_closes_the_session<S: LockService>(service: S) {
    let client = client(service.clone(), "last-handle");
    let session = client.session().open().await.expect("opened");
    let guard = session.lock("a").acquire().await.expect("free");
    drop(session);
    assert_eq!(client.all_sessions().await.expect("listed").value.len(), 1, "the guard keeps the session alive");
    drop(guard);
    in_use(&client, "a", 0, 0).await;
    until("the session is closed", async || client.all_sessions().await.expect("listed").value.is_empty()).await;
}

/// Closing a session frees its locks for the next waiters, and its guards are lost.
pub(crate) async fn closing_a_session_wakes_the_next<S: LockService>(service: S) {
    let client = client(service.clone(), "close");
    let session = client.session().open().await.expect("opened");
    let guard = session.lock("a").acquire().await.expect("free");
    let next = client.lock("a").wait(LONG).acquire();
    let (next, closed) = tokio::join!(next, async {
        in_use(&client, "a", 1, 1).await;
        session.close().await
    });
    closed.expect("closed");
    assert_eq!(guard.state(), HoldState::Lost);
    assert!(guard.token() < next.expect("the session has ended").token());
}

/// A renewed session outlives its TTL.
pub(crate) async fn a_session_is_renewed<S: LockService>(service: S) {
    let client = client(service, "renewed");
    // Longer than a slow machine stalls.
    let session = client.session().ttl(Duration::from_secs(3)).open().await.expect("opened");
    let guard = session.lock("a").acquire().await.expect("free");
    guard.run(passes(&client, session.ttl() * 3 / 2)).await.expect("held the whole time");
    guard.release().await.expect("released");
}

/// The handle of a live session cannot open it for another client, and a closed session cannot be opened again.
pub(crate) async fn a_handle_opens_one_session<S: LockService>(service: S) {
    let client = client(service, "handle");
    let session = client.session().open().await.expect("opened");
    let handle = session.handle().clone();
    let second = client.session().handle(handle.clone()).open().await.expect_err("another instance");
    assert_eq!(second.code(), ErrorCode::AlreadyOpen);
    session.close().await.expect("closed");
    let late = client.session().handle(handle).open().await.expect_err("ended");
    assert_eq!(late.code(), ErrorCode::SessionEnded);
}

/// A session that an operator ends loses all its locks at once, without their lock-delay, and leaves every queue. Its
/// client gets the reason, and the history of its locks records it. It can be ended only once, and only in its own
/// namespace.
pub(crate) async fn an_operator_ends_a_session<S: LockService>(service: S) {
    let client = client(service.clone(), "ended");
    let session = client.session().open().await.expect("opened");
    let guard = session.lock("a").delay(LONG).acquire().await.expect("free");
    let other = client.session().open().await.expect("opened");
    let held = other.lock("b").acquire().await.expect("free");
    let waits = session.lock("b").wait(LONG).acquire();
    let (waited, next) = tokio::join!(waits, async {
        in_use(&client, "b", 1, 1).await;
        let elsewhere = super::client(service, "elsewhere");
        let unknown =
            elsewhere.end_session(session.id(), "stuck").await.expect_err("the session is in another namespace");
        assert_eq!(unknown.code(), ErrorCode::SessionEnded);
        assert_eq!(guard.state(), HoldState::Held);
        client.end_session(session.id(), "its host is gone").await.expect("ended");
        other.lock("a").wait(LONG).acquire().await.expect("no delay keeps it closed")
    });
    let waited = waited.expect_err("its session has ended");
    assert!(matches!(waited, ClientError::SessionLost { .. }), "{waited}");
    let lost = guard.lost().await;
    assert_eq!((lost.reason, lost.alone), (Some(EndReason::Broken), false));
    assert!(lost.to_string().contains("its host is gone"), "{lost}");
    assert!(guard.token() < next.token());
    in_use(&client, "b", 1, 0).await;
    let again = client.end_session(session.id(), "once more").await.expect_err("it has ended");
    assert!(again.code() == ErrorCode::SessionEnded && again.to_string().contains("its host is gone"), "{again}");
    let history = client.history(Some("a"), None).expect("a name").all().await.expect("kept");
    let recorded = history.iter().any(
        |record| matches!(&record.event.kind, EventKind::Broken { why, .. } if why.as_str() == "its host is gone"),
    );
    assert!(recorded, "{history:?}");
    held.release().await.expect("held");
}

/// The longest TTL can be changed for the whole cluster while it runs. The status shows it, and it bounds new sessions
/// and leases. A value outside the bounds of the setting is refused with the name of the setting.
pub(crate) async fn the_longest_ttl_is_changed<S: LockService>(service: S) {
    let client = client(service, "ttl-max");
    let hours = |hours: u64| Duration::from_secs(hours * 3600);
    let before = client.status().await.expect("a status").ttl_ms_max;
    // Other tests of this cluster change the setting as well: the value read here may come from one of them, and the
    // steps below work with every value that they set.
    let refused = client.change_setting(Setting::TtlMax(before * 1_000)).await.expect_err("above a day");
    assert!(refused.code() == ErrorCode::Invalid && refused.to_string().contains("ttl_max must be"), "{refused}");
    client.change_setting(Setting::TtlMax(2 * 3_600_000)).await.expect("within its bounds");
    assert_eq!(client.status().await.expect("a status").ttl_ms_max, 2 * 3_600_000);
    let session = client.session().ttl(hours(2)).open().await.expect("within the new limit");
    let lease = client.lease("a").duration(hours(2)).take().await.expect("within the new limit");
    let long = client.session().ttl(hours(3)).open().await.expect_err("too long");
    assert!(long.to_string().contains("the cluster's setting ttl_max"), "{long}");
    assert!(hours(1) < lease.valid_for(), "{:?}", lease.valid_for());
    lease.release().await.expect("held");
    session.close().await.expect("open");
}
