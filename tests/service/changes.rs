//! Tests for holds that change, and for operations of other clients on a hold.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use lockkeeper::client::{Client, ClientError, HoldState, LockGuard, RevokeRequest, Session};
use lockkeeper::model::{Command, EndReason, Reentry, SessionClose, TokenState};
use lockkeeper::service::{Call, ErrorCode, LockService, Proof};

use crate::faulty::Faulty;
use crate::suite::{LONG, POLL, SHORT, client, in_use, passes, session, short_session};

/// An upgrade gives the reader an exclusive hold with a new token: at once if it is the only reader, otherwise after
/// the others release.
pub(crate) async fn an_upgrade_waits_for_the_other_readers<S: LockService>(service: S) {
    let client = client(service, "upgrade");
    let mut one = client.lock("a").shared().acquire().await.expect("free");
    let two = client.lock("a").shared().acquire().await.expect("shared");
    let shared = one.token();
    let refused = one.upgrade().await.expect_err("another reads");
    let ClientError::NotAcquired { holder: Some(holder), .. } = &refused else { panic!("{refused:?}") };
    assert_eq!((holder.token, one.token()), (two.token(), shared));
    let (token, released) = tokio::join!(one.upgrade_within(LONG), async {
        in_use(&client, "a", 2, 1).await;
        two.release().await
    });
    released.expect("released");
    assert_eq!((token.expect("alone"), true), (one.token(), shared < one.token()));
    client.lock("a").shared().try_once().acquire().await.expect_err("a writer holds it");
    assert_eq!(client.check("a", shared).await.expect("checked").state, TokenState::Stale);
    one.release().await.expect("by its new token");
    in_use(&client, "a", 0, 0).await;
}

/// An upgrade that times out or is dropped leaves the shared hold unchanged and no waiter.
pub(crate) async fn an_upgrade_that_ends_early_changes_nothing<S: LockService>(service: S) {
    let client = client(service, "upgrade-end");
    let mut one = client.lock("a").shared().acquire().await.expect("free");
    let two = client.lock("a").shared().acquire().await.expect("shared");
    let shared = one.token();
    let late = one.upgrade_within(SHORT).await.expect_err("another reads");
    assert_eq!(late.code(), ErrorCode::NotAcquired);
    in_use(&client, "a", 2, 0).await;
    assert!(tokio::time::timeout(SHORT, one.upgrade_within(LONG)).await.is_err());
    in_use(&client, "a", 2, 0).await;
    assert_eq!((one.token(), one.state()), (shared, HoldState::Held));
    two.release().await.expect("released");
    one.release().await.expect("released");
}

/// A downgraded writer keeps its token, and waiting readers are granted.
pub(crate) async fn a_downgrade_lets_readers_in<S: LockService>(service: S) {
    let client = client(service, "downgrade");
    let mut writer = client.lock("a").acquire().await.expect("free");
    let token = writer.token();
    let (reader, downgraded) = tokio::join!(client.lock("a").shared().wait(LONG).acquire(), async {
        in_use(&client, "a", 1, 1).await;
        writer.downgrade().await
    });
    downgraded.expect("downgraded");
    assert_eq!(writer.token(), token);
    in_use(&client, "a", 2, 0).await;
    reader.expect("let in").release().await.expect("released");
    writer.release().await.expect("by the same token");
}

/// R-MUT-01: a named owner acquires its own hold again under the same token, and the last release frees the lock.
pub(crate) async fn a_named_owner_enters_again<S: LockService>(service: S) {
    let session = session(service, "reentry").await;
    let enter = || session.lock("a").owner("task").reentry(Reentry::Count).acquire();
    let guards = [enter().await.expect("free"), enter().await.expect("its own"), enter().await.expect("its own")];
    assert!(guards.iter().all(|guard| guard.token() == guards[0].token()));
    let unnamed = session.lock("b").reentry(Reentry::Count).acquire().await.expect_err("reentry needs an owner");
    assert_eq!(unnamed.code(), ErrorCode::Invalid);
    let token = guards[0].token();
    for (guard, left) in guards.into_iter().zip([2, 1, 0]) {
        session.lock("a").owner("other").try_once().acquire().await.expect_err("still held");
        let released = guard.release().await.expect("released");
        assert_eq!(released.left, left);
    }
    let next = session.lock("a").try_once().acquire().await.expect("free");
    assert!(token < next.token());
}

/// R-ZKU-01: an unfair request passes an unfair waiter; a fair one does not.
pub(crate) async fn an_unfair_request_passes_unfair_waiters_only<S: LockService>(service: S) {
    let client = client(service, "unfair");
    let one = client.lock("s").permits(1, 2).acquire().await.expect("free");
    let mut wide = Box::pin(client.lock("s").permits(2, None).unfair().wait(LONG).acquire());
    tokio::select! {
        _ = &mut wide => panic!("only one permit is left"),
        () = in_use(&client, "s", 1, 1) => {}
    }
    client.lock("s").permits(1, None).try_once().acquire().await.expect_err("a fair request does not pass the waiter");
    let passed = client
        .lock("s")
        .permits(1, None)
        .unfair()
        .try_once()
        .acquire()
        .await
        .expect("an unfair request passes the waiter");
    drop((one, passed));
    wide.await.expect("both permits are free").release().await.expect("released");
}

/// The session task renews the lease of a hold while its guard lives, and not longer.
pub(crate) async fn the_lease_of_a_hold_is_renewed<S: LockService>(service: S) {
    let client = client(service, "hold-lease");
    // Longer than a slow machine stalls.
    let lease = Duration::from_secs(2);
    let gate = client.lock("b").acquire().await.expect("free");
    let waits = client.lock("b").lease(lease).wait(LONG);
    let (guard, next, released) = tokio::join!(client.lock("a").lease(lease).acquire(), waits.acquire(), async {
        in_use(&client, "b", 1, 1).await;
        gate.release().await
    });
    released.expect("released");
    let (guard, next) = (guard.expect("free"), next.expect("granted"));
    assert!(guard.valid_for() <= lease && next.valid_for() <= lease);
    let passes = passes(&client, lease * 5 / 2);
    guard.run(next.run(passes)).await.expect("held the whole time").expect("held the whole time");
    guard.release().await.expect("released");
    next.release().await.expect("released");
}

/// A hold whose lease is not renewed in time is lost, first for its holder. Its session continues.
pub(crate) async fn the_end_of_a_hold_lease_keeps_the_session<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service.clone());
    let session = short_session(faulty, "hold-lease-end").await;
    let guard = session.lock("a").lease(POLL * 60).acquire().await.expect("free");
    let plain = session.lock("b").acquire().await.expect("free");
    let other = client(service, "hold-lease-end");
    faults.ignores_renewals.store(true, SeqCst);
    let (lost, next) = tokio::join!(guard.lost(), other.lock("a").wait(LONG).acquire());
    assert_eq!((lost.token, lost.alone, guard.state()), (guard.token(), true, HoldState::Lost));
    assert_eq!(guard.valid_for(), Duration::ZERO);
    assert!(guard.token() < next.expect("granted after its end").token());
    faults.ignores_renewals.store(false, SeqCst);
    assert_ne!(plain.state(), HoldState::Lost, "the session lives");
}

/// A value is stored with the hold, visible to all clients, changed by its holder, and removed with the hold.
pub(crate) async fn a_value_is_shown_and_changed<S: LockService>(service: S) {
    let client = client(service, "value");
    let value = async || client.inspect("a").await.expect("inspected").value.value.map(|value| value.to_string());
    let guard = client.lock("a").value("first").acquire().await.expect("free");
    assert_eq!(value().await.as_deref(), Some("first"));
    guard.set_value(Some("second")).await.expect("its own");
    assert_eq!(value().await.as_deref(), Some("second"));
    let listed = client.list("").all().await.expect("listed").value;
    assert_eq!(listed[0].value.as_ref().map(ToString::to_string).as_deref(), Some("second"));
    guard.set_value(None).await.expect("its own");
    assert_eq!(value().await, None);
    let long = "x".repeat(5_000);
    assert_eq!(guard.set_value(Some(&long)).await.expect_err("too long").code(), ErrorCode::Invalid);
    guard.set_value(Some("third")).await.expect("its own");
    guard.release().await.expect("released");
    assert_eq!(value().await, None);
}

/// Closes a session as lost, like a client whose own deadline has passed.
pub(crate) async fn lose<S: LockService>(service: &S, session: &Session<S>) {
    let close = Command::CloseSession { session: session.id(), end: SessionClose::Lost };
    let proof = Proof::Handle { handle: session.handle().clone(), namespace: session.namespace().clone() };
    let call = Call { proof, ..Call::new(close) };
    // The session's stream may end before the answer arrives; the caller checks the effect.
    drop(service.submit(call).await);
}

/// A lost hold with a lock-delay keeps the name closed until its handle resumes it, which works once.
pub(crate) async fn a_lost_hold_is_resumed_once<S: LockService>(service: S) {
    let (lost, next) = (session(service.clone(), "resume").await, session(service.clone(), "resume").await);
    let client = client(service.clone(), "resume");
    let guard = lost.lock("a").delay(LONG).acquire().await.expect("free");
    lose(&service, &lost).await;
    in_use(&client, "a", 0, 0).await;
    next.lock("a").try_once().acquire().await.expect_err("closed");
    assert!(client.inspect("a").await.expect("inspected").value.delay_ms.is_some());
    let wrong = next.resume("a", guard.token(), next.handle()).await.expect_err("not the lost session's handle");
    assert_eq!(wrong.code(), ErrorCode::WrongHandle);
    let resumed = next.resume("a", guard.token(), lost.handle()).await.expect("in time");
    assert!(guard.token() < resumed.token());
    let again = next.resume("a", guard.token(), lost.handle()).await.expect_err("once");
    assert_eq!(again.code(), ErrorCode::NotHeld);
    resumed.release().await.expect("released");
    in_use(&client, "a", 0, 0).await;
}

/// All permits of a resumed hold are counted and can be released one by one.
pub(crate) async fn resumed_permits_are_counted<S: LockService>(service: S) {
    let (lost, next) = (session(service.clone(), "resume-s").await, session(service.clone(), "resume-s").await);
    let client = client(service.clone(), "resume-s");
    let guard = lost.lock("s").permits(3, 3).delay(LONG).acquire().await.expect("free");
    lose(&service, &lost).await;
    in_use(&client, "s", 0, 0).await;
    let resumed = next.resume("s", guard.token(), lost.handle()).await.expect("in time");
    let mut permits = resumed.into_permits().collect::<Vec<_>>();
    assert_eq!(permits.len(), 3);
    permits.pop().expect("three").release().await.expect("one of three");
    client.lock("s").permits(1, None).try_once().acquire().await.expect("released").release().await.expect("released");
}

/// A break with the current token ends the hold, and the guard reports the break, whether it waits for the loss before
/// or after. The session continues. A dry run and a stale token change nothing.
pub(crate) async fn a_broken_holder_is_notified<S: LockService>(service: S) {
    let client = client(service, "break");
    let guard = client.lock("a").acquire().await.expect("free");
    let other = client.lock("b").acquire().await.expect("free");
    let would = client.would_break("a", guard.token()).await.expect("held");
    assert_eq!((would.done, would.holder.token, would.next), (false, guard.token(), None));
    assert!(client.break_hold("a", guard.token(), "").await.is_err_and(|error| error.code() == ErrorCode::Invalid));
    assert_eq!(guard.state(), HoldState::Held);
    ask_until_received(&client, &guard).await;
    let (lost, next, broken) = tokio::join!(guard.lost(), client.lock("a").wait(LONG).acquire(), async {
        in_use(&client, "a", 1, 1).await;
        client.break_hold("a", guard.token(), "it hangs").await
    });
    assert_eq!((lost.alone, lost.reason, lost.token), (true, Some(EndReason::Broken), guard.token()));
    assert_eq!(guard.state(), HoldState::Lost);
    let broken = broken.expect("broken");
    assert!(broken.done && broken.next.is_some());
    let stale = client.break_hold("a", guard.token(), "again").await.expect_err("not the current token");
    assert_eq!(stale.code(), ErrorCode::HeldByOther);
    let next = next.expect("granted");
    assert_eq!(next.state(), HoldState::Held);
    client.break_hold("a", next.token(), "before the guard waits").await.expect("broken");
    assert!(tokio::time::timeout(LONG, next.lost()).await.expect("notified").alone);
    assert_eq!(other.state(), HoldState::Held);
    other.release().await.expect("still held");
}

/// Sends requests to the holder of "a" until it receives one. Requests sent before it subscribed may be missed.
async fn ask_until_received<S: LockService>(client: &Client<S>, guard: &LockGuard) -> RevokeRequest {
    let asked = async {
        loop {
            client.ask("a", guard.token(), "maintenance").await.expect("held");
            tokio::time::sleep(POLL).await;
        }
    };
    tokio::select! {
        received = guard.revoke_requested() => received,
        () = asked => unreachable!("it never ends"),
    }
}

/// A holder receives the name of the client that asks for its lock and the reason, and keeps the lock.
pub(crate) async fn a_holder_is_asked<S: LockService>(service: S) {
    let client = client(service, "ask");
    let guard = client.lock("a").acquire().await.expect("free");
    let received = ask_until_received(&client, &guard).await;
    assert_eq!(received.why.as_str(), "maintenance");
    assert_eq!(guard.state(), HoldState::Held);
    let token = guard.token();
    guard.release().await.expect("still held");
    assert_eq!(client.ask("a", token, "too late").await.expect_err("released").code(), ErrorCode::NotHeld);
}

/// A hold is handed over to a waiting session, past earlier waiters and without a gap. A hand-over to a session that
/// did not request the lock is refused.
pub(crate) async fn a_hold_is_handed_over<S: LockService>(service: S) {
    let (first, second) = (session(service.clone(), "hand-over").await, session(service.clone(), "hand-over").await);
    let client = client(service, "hand-over");
    let guard = client.lock("a").acquire().await.expect("free");
    let refused = client.hand_over("a", guard.token(), second.id()).await.expect_err("it did not ask");
    assert_eq!(refused.code(), ErrorCode::NotAccepted);
    let mut ahead = Box::pin(first.lock("a").wait(LONG).acquire());
    tokio::select! {
        _ = &mut ahead => panic!("held by another"),
        () = in_use(&client, "a", 1, 1) => {}
    }
    let (successor, lost, handed) = tokio::join!(second.lock("a").wait(LONG).acquire(), guard.lost(), async {
        in_use(&client, "a", 1, 2).await;
        client.hand_over("a", guard.token(), second.id()).await
    });
    let successor = successor.expect("handed over");
    assert_eq!(handed.expect("handed over"), successor.token());
    assert_eq!((lost.alone, lost.reason), (true, Some(EndReason::HandedOver)));
    successor.release().await.expect("released");
    ahead.await.expect("its turn").release().await.expect("released");
}

/// R-SEM-03: the limit that was set applies. A raised limit grants waiters, a lowered one evicts no holder, and a
/// removed one is forgotten.
pub(crate) async fn a_semaphore_keeps_its_limit<S: LockService>(service: S) {
    let client = client(service, "semaphore");
    client.set_semaphore("s", 1).await.expect("free");
    let one = client.lock("s").permits(1, None).acquire().await.expect("its limit is known");
    let mismatch = client.lock("s").permits(1, 5).try_once().acquire().await.expect_err("another limit");
    assert_eq!(mismatch.code(), ErrorCode::LimitMismatch);
    let (two, raised) = tokio::join!(client.lock("s").permits(1, None).wait(LONG).acquire(), async {
        in_use(&client, "s", 1, 1).await;
        client.set_semaphore("s", 2).await
    });
    raised.expect("raised");
    let two = two.expect("let in");
    client.set_semaphore("s", 1).await.expect("lowered");
    in_use(&client, "s", 2, 0).await;
    client.lock("s").permits(1, None).try_once().acquire().await.expect_err("above its limit");
    drop((one, two));
    in_use(&client, "s", 0, 0).await;
    assert_eq!(client.inspect("s").await.expect("inspected").value.limit, Some(1));
    client.remove_semaphore("s").await.expect("removed");
    assert_eq!(client.inspect("s").await.expect("inspected").value.kind, None);
    assert_eq!(client.set_semaphore("s", 0).await.expect_err("none at all").code(), ErrorCode::Invalid);
}

/// One candidate leads, observers see the value that it proclaims, and the next candidate leads when it resigns.
pub(crate) async fn an_election_has_one_leader<S: LockService>(service: S) {
    let client = client(service, "election");
    let election = client.election("office");
    let value_of =
        |leader: Option<lockkeeper::client::Leader>| leader.and_then(|leader| leader.value).map(|v| v.to_string());
    assert_eq!(election.leader().await.expect("asked"), None);
    let mut observer = election.observe().await.expect("observing");
    assert_eq!(observer.next().await.expect("observed"), None);
    let first = election.campaign("n1").elected().await.expect("there is no other candidate");
    assert_eq!(value_of(observer.next().await.expect("observed")).as_deref(), Some("n1"));
    let mut second = Box::pin(election.campaign("n2").wait(LONG).elected());
    tokio::select! {
        _ = &mut second => panic!("another candidate leads"),
        () = in_use(&client, "office", 1, 1) => {}
    }
    assert_eq!(
        election.campaign("n3").try_once().elected().await.expect_err("another leads").code(),
        ErrorCode::NotAcquired
    );
    first.proclaim("n1 again").await.expect("leads");
    assert_eq!(value_of(observer.next().await.expect("observed")).as_deref(), Some("n1 again"));
    let token = first.guard().token();
    first.resign().await.expect("resigned");
    let second = second.await.expect("its turn");
    let leader = loop {
        // The observer may see a moment without a leader.
        if let Some(leader) = observer.next().await.expect("observed") {
            break leader;
        }
    };
    assert_eq!((leader.token, token < leader.token), (second.guard().token(), true));
    assert_eq!(value_of(Some(leader)).as_deref(), Some("n2"));
}
