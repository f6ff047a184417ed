//! Sessions: whose they are, how they are kept alive, and how they end.

use lockkeeper::client::HoldState;
use lockkeeper::service::{LockService, Word};

use super::{LONG, LOOK, client, in_use, short_session};

/// Dropping the last handle on a session closes it, and everything that it held is free.
pub(crate) async fn dropping_the_last_handle_closes_the_session<S: LockService>(service: S) {
    let client = client(service.clone(), "last-handle");
    let session = client.session().open().await.expect("opened");
    let guard = session.lock("a").acquire().await.expect("free");
    drop(session);
    assert_eq!(client.all_sessions().await.expect("listed").value.len(), 1, "the guard keeps the session alive");
    drop(guard);
    in_use(&client, "a", 0, 0).await;
    let gone = async {
        while !client.all_sessions().await.expect("listed").value.is_empty() {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(LONG, gone).await.expect("the session is closed");
}

/// Closing a session frees what it held for the next waiter, and its guards are lost.
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
    assert!(guard.token() < next.expect("the session is gone").token());
}

/// A session that is renewed outlives its TTL by far.
pub(crate) async fn a_session_is_renewed<S: LockService>(service: S) {
    let session = short_session(service, "renewed").await;
    let guard = session.lock("a").acquire().await.expect("free");
    let work = tokio::time::sleep(session.ttl() * 3);
    guard.run(work).await.expect("held all along");
    guard.release().await.expect("released");
}

/// The handle of a live session opens it for nobody else, and a closed one is not opened again.
pub(crate) async fn a_handle_opens_one_session<S: LockService>(service: S) {
    let client = client(service, "handle");
    let session = client.session().open().await.expect("opened");
    let handle = session.handle().clone();
    let second = client.session().handle(handle.clone()).open().await.expect_err("another instance");
    assert_eq!(second.word(), Word::AlreadyOpen);
    session.close().await.expect("closed");
    let late = client.session().handle(handle).open().await.expect_err("ended");
    assert_eq!(late.word(), Word::SessionEnded);
}
