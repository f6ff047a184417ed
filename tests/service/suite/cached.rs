//! Cached holds, which a session keeps between uses.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use futures_util::future::join_all;
use lockkeeper::client::{ClientError, HoldState, Session};
use lockkeeper::service::{ErrorCode, LockService};

use super::{LONG, PATIENT, client, in_use, session, short_session, until};
use crate::faulty::Faulty;

async fn use_once<S: LockService>(session: &Session<S>, name: &str) -> lockkeeper::model::FencingToken {
    let guard = session.lock(name).cached().wait(PATIENT).acquire().await.expect("in time");
    let token = guard.token();
    guard.release().await.expect("released");
    token
}

/// N-CAC-31: A session that takes the same lock again sends nothing, and the lock stays held under one token.
pub(crate) async fn n_cac_31_repeated_takes_send_nothing<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service.clone());
    let session = session(faulty, "cac-31").await;
    let first = use_once(&session, "a").await;
    let before = faults.commands.load(SeqCst);
    for _ in 0..100 {
        assert_eq!(use_once(&session, "a").await, first);
    }
    assert_eq!(faults.commands.load(SeqCst), before);
    let client = client(service, "cac-31");
    let holders = client.inspect("a").await.expect("answered").value.holders;
    assert!(matches!(&holders[..], [holder] if holder.token == first && holder.cached && !holder.recalled));
    session.close().await.expect("closed");
    in_use(&client, "a", 0, 0).await;
}

/// N-CAC-32: A client that waits gets the lock after the use that runs, and the session's next acquire is behind it.
pub(crate) async fn n_cac_32_a_waiter_is_next_after_the_running_use<S: LockService>(service: S) {
    let session = session(service.clone(), "cac-32").await;
    let other = client(service, "cac-32");
    use_once(&session, "a").await;
    let guard = session.lock("a").cached().acquire().await.expect("kept");
    let next = tokio::spawn(other.lock("a").acquire());
    in_use(&other, "a", 1, 1).await;
    assert_eq!(guard.state(), HoldState::Held);
    let behind = tokio::spawn(session.lock("a").cached().acquire());
    // The session learns of the recall now or with its next renewal; then its acquire goes to the cluster.
    in_use(&other, "a", 1, 2).await;
    assert!(!next.is_finished() && !behind.is_finished());
    let first = guard.token();
    guard.release().await.expect("released");
    let next = next.await.expect("no panic").expect("granted");
    assert!(first < next.token() && !behind.is_finished());
    let second = next.token();
    next.release().await.expect("released");
    assert!(second < behind.await.expect("no panic").expect("granted").token());
}

/// N-CAC-33: A hold that no guard uses is released at once where another client waits, so that even a try gets it.
pub(crate) async fn n_cac_33_an_idle_hold_is_released_when_it_is_recalled<S: LockService>(service: S) {
    let session = session(service.clone(), "cac-33").await;
    let other = client(service, "cac-33");
    for _ in 0..3 {
        use_once(&session, "a").await;
        other.lock("a").wait(PATIENT).acquire().await.expect("released").release().await.expect("released");
    }
    // The wait of a try is short for a busy machine, so one success is enough.
    for _ in 0..10 {
        use_once(&session, "a").await;
        match other.lock("a").try_once().acquire().await {
            Ok(guard) => return drop(guard),
            Err(error) => assert!(matches!(error, ClientError::NotAcquired { .. }), "{error:?}"),
        }
    }
    panic!("no try got the lock");
}

/// N-CAC-34: A try of another client does not end the use that runs: it is refused, and the hold is released after that
/// use.
pub(crate) async fn n_cac_34_a_try_waits_only_briefly<S: LockService>(service: S) {
    let session = session(service.clone(), "cac-34").await;
    let other = client(service, "cac-34");
    let guard = session.lock("a").cached().acquire().await.expect("free");
    let refused = other.lock("a").try_once().acquire().await.expect_err("used");
    assert_eq!(refused.code(), ErrorCode::NotAcquired);
    until("the hold is recalled", async || {
        other.inspect("a").await.expect("answered").value.holders.iter().any(|holder| holder.recalled)
    })
    .await;
    guard.release().await.expect("released");
    in_use(&other, "a", 0, 0).await;
}

/// N-CAC-35: Sessions with several tasks each exclude each other, also across lost streams, and each task is served.
pub(crate) async fn n_cac_35_uses_never_overlap<S: LockService>(service: S) {
    let (used, uses) = (AtomicBool::new(false), AtomicU32::new(0));
    let run = async |number: usize| {
        let (faulty, faults) = Faulty::new(service.clone());
        let session = session(faulty, "cac-35").await;
        let task = async || {
            for round in 0..20 {
                let guard = session.lock("a").cached().wait(PATIENT).acquire().await.expect("in time");
                assert!(!used.swap(true, SeqCst), "two uses overlap");
                if round % 4 == 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                if round == 5 + number {
                    faults.cut_stream();
                }
                assert_eq!(guard.state(), HoldState::Held);
                assert!(used.swap(false, SeqCst));
                uses.fetch_add(1, SeqCst);
                drop(guard);
                tokio::task::yield_now().await;
            }
        };
        join_all((0..4).map(|_| task())).await;
    };
    join_all((0..3).map(run)).await;
    assert_eq!(uses.load(SeqCst), 3 * 4 * 20);
}

/// N-CAC-36: A session whose renewals are not answered loses the use that runs before another client gets the lock, and
/// an idle hold ends with it.
pub(crate) async fn n_cac_36_a_lost_session_loses_its_cached_holds<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service.clone());
    let session = short_session(faulty, "cac-36").await;
    use_once(&session, "a").await;
    use_once(&session, "idle").await;
    let guard = session.lock("a").cached().acquire().await.expect("kept");
    faults.ignores_renewals.store(true, SeqCst);
    faults.detach();
    let other = client(service, "cac-36");
    let (lost, next) = tokio::join!(guard.run(std::future::pending::<()>()), other.lock("a").wait(LONG).acquire());
    assert_eq!(lost.expect_err("lost").token, guard.token());
    assert!(guard.token() < next.expect("granted after the loss").token());
    drop(other.lock("idle").wait(LONG).acquire().await.expect("granted after the loss"));
    let error = session.lock("idle").cached().acquire().await.expect_err("lost");
    assert_eq!(error.code(), ErrorCode::SessionEnded);
}

/// N-CAC-37: After its stream broke, a session attaches and keeps holds between uses again.
pub(crate) async fn n_cac_37_caching_continues_after_an_attach<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service);
    let session = session(faulty, "cac-37").await;
    use_once(&session, "a").await;
    faults.detach();
    until("the hold is cached again", async || {
        use_once(&session, "a").await;
        let before = faults.commands.load(SeqCst);
        use_once(&session, "a").await;
        faults.commands.load(SeqCst) == before
    })
    .await;
}

/// N-CAC-38: A broken hold is not taken again, and its session can acquire the lock again.
pub(crate) async fn n_cac_38_a_broken_hold_is_not_taken_again<S: LockService>(service: S) {
    let session = session(service.clone(), "cac-38").await;
    let other = client(service, "cac-38");
    let token = use_once(&session, "a").await;
    let guard = session.lock("a").cached().acquire().await.expect("kept");
    other.break_hold("a", token, "it is stuck").await.expect("broken");
    tokio::time::timeout(LONG, guard.lost()).await.expect("notified");
    drop(guard);
    let again = use_once(&session, "a").await;
    assert!(token < again);
    assert_eq!(other.check("a", again).await.expect("checked").state, lockkeeper::model::TokenState::Valid);
}
