//! The suite's part about holds that change, and about what others do to them.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use lockkeeper::client::{Client, ClientError, HoldState, LockGuard, RevokeRequest, Session};
use lockkeeper::model::{Command, EndReason, Reentry, SessionClose, TokenState};
use lockkeeper::service::{Call, ErrorCode as Word, LockService, Proof};

use crate::faulty::Faulty;
use crate::suite::{LONG, LOOK, SHORT, client, in_use, session, short_session};

/// A reader becomes the writer under a new token, at once where it is alone, and after the others otherwise.
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

/// An upgrade that runs out of time or is dropped leaves the shared hold as it was, and nobody in the queue.
pub(crate) async fn an_upgrade_that_ends_early_changes_nothing<S: LockService>(service: S) {
    let client = client(service, "upgrade-end");
    let mut one = client.lock("a").shared().acquire().await.expect("free");
    let two = client.lock("a").shared().acquire().await.expect("shared");
    let shared = one.token();
    let late = one.upgrade_within(SHORT).await.expect_err("another reads");
    assert_eq!(late.word(), Word::NotAcquired);
    in_use(&client, "a", 2, 0).await;
    assert!(tokio::time::timeout(SHORT, one.upgrade_within(LONG)).await.is_err());
    in_use(&client, "a", 2, 0).await;
    assert_eq!((one.token(), one.state()), (shared, HoldState::Held));
    two.release().await.expect("released");
    one.release().await.expect("released");
}

/// A writer that becomes a reader keeps its token, and readers that wait are let in.
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

/// R-MUT-01: a named owner enters its own hold again under the same token, and the last release frees it.
pub(crate) async fn a_named_owner_enters_again<S: LockService>(service: S) {
    let session = session(service, "reentry").await;
    let enter = || session.lock("a").owner("task").reentry(Reentry::Count).acquire();
    let guards = [enter().await.expect("free"), enter().await.expect("its own"), enter().await.expect("its own")];
    assert!(guards.iter().all(|guard| guard.token() == guards[0].token()));
    let unnamed = session.lock("b").reentry(Reentry::Count).acquire().await.expect_err("nobody enters again");
    assert_eq!(unnamed.word(), Word::Invalid);
    let token = guards[0].token();
    for (guard, left) in guards.into_iter().zip([2, 1, 0]) {
        session.lock("a").owner("other").try_once().acquire().await.expect_err("still held");
        let released = guard.release().await.expect("released");
        assert_eq!(released.left, left);
    }
    let next = session.lock("a").try_once().acquire().await.expect("free");
    assert!(token < next.token());
}

/// R-ZKU-01: an unfair newcomer passes an unfair waiter, a fair one does not.
pub(crate) async fn the_unfair_pass_each_other_alone<S: LockService>(service: S) {
    let client = client(service, "unfair");
    let one = client.lock("s").permits(1, 2).acquire().await.expect("free");
    let mut wide = Box::pin(client.lock("s").permits(2, None).unfair().wait(LONG).acquire());
    tokio::select! {
        _ = &mut wide => panic!("only one is left"),
        () = in_use(&client, "s", 1, 1) => {}
    }
    client.lock("s").permits(1, None).try_once().acquire().await.expect_err("behind the one that waits");
    let passed = client.lock("s").permits(1, None).unfair().try_once().acquire().await.expect("past it");
    drop((one, passed));
    wide.await.expect("both are left").release().await.expect("released");
}

/// The session's keeper renews the lease of a hold for as long as its guard lives, and no longer.
pub(crate) async fn the_lease_of_a_hold_is_renewed<S: LockService>(service: S) {
    let client = client(service, "hold-lease");
    // As long as no machine stalls, however busy it is: what is awaited is the cluster's time, not ours.
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
    let passes = async {
        let now = async || client.status().await.expect("a status").log_time;
        let end = now().await.after_ms(5_000);
        while now().await <= end {
            tokio::time::sleep(LOOK).await;
        }
    };
    guard.run(next.run(passes)).await.expect("held all along").expect("held all along");
    guard.release().await.expect("released");
    next.release().await.expect("released");
}

/// A hold whose lease is not renewed in time is lost, first for its holder, while its session goes on.
pub(crate) async fn the_lease_of_a_hold_ends_alone<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service.clone());
    let session = short_session(faulty, "hold-lease-end").await;
    let guard = session.lock("a").lease(LOOK * 60).acquire().await.expect("free");
    let plain = session.lock("b").acquire().await.expect("free");
    let other = client(service, "hold-lease-end");
    faults.deaf.store(true, SeqCst);
    let (lost, next) = tokio::join!(guard.lost(), other.lock("a").wait(LONG).acquire());
    assert_eq!((lost.token, lost.alone, guard.state()), (guard.token(), true, HoldState::Lost));
    assert_eq!(guard.valid_for(), Duration::ZERO);
    assert!(guard.token() < next.expect("granted after its end").token());
    faults.deaf.store(false, SeqCst);
    assert_ne!(plain.state(), HoldState::Lost, "the session lives");
}

/// A value is kept with the hold, seen by everybody, changed by its holder, and gone with the hold.
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
    assert_eq!(guard.set_value(Some(&long)).await.expect_err("too long").word(), Word::Invalid);
    guard.set_value(Some("third")).await.expect("its own");
    guard.release().await.expect("released");
    assert_eq!(value().await, None);
}

/// Ends a session as its client does that finds its own deadline passed.
pub(crate) async fn lose<S: LockService>(service: &S, session: &Session<S>) {
    let close = Command::CloseSession { session: session.id(), end: SessionClose::Lost };
    let proof = Proof::Handle { handle: session.handle().clone(), namespace: session.namespace().clone() };
    let call = Call { proof, ..Call::new(close) };
    // The session's stream may end before the answer; what became of it is looked at by the caller.
    drop(service.submit(call).await);
}

/// A lost hold with a lock-delay keeps the name closed to all but the one that takes it up, once.
pub(crate) async fn a_lost_hold_is_resumed_once<S: LockService>(service: S) {
    let (lost, next) = (session(service.clone(), "resume").await, session(service.clone(), "resume").await);
    let client = client(service.clone(), "resume");
    let guard = lost.lock("a").delay(LONG).acquire().await.expect("free");
    lose(&service, &lost).await;
    in_use(&client, "a", 0, 0).await;
    next.lock("a").try_once().acquire().await.expect_err("closed");
    assert!(client.inspect("a").await.expect("inspected").value.delay_ms.is_some());
    let wrong = next.resume("a", guard.token(), next.handle()).await.expect_err("not the lost session's handle");
    assert_eq!(wrong.word(), Word::WrongHandle);
    let resumed = next.resume("a", guard.token(), lost.handle()).await.expect("in time");
    assert!(guard.token() < resumed.token());
    let again = next.resume("a", guard.token(), lost.handle()).await.expect_err("once");
    assert_eq!(again.word(), Word::NotHeld);
    resumed.release().await.expect("released");
    in_use(&client, "a", 0, 0).await;
}

/// Permits that were taken up again are all there to be given back, one by one.
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
    client
        .lock("s")
        .permits(1, None)
        .try_once()
        .acquire()
        .await
        .expect("given back")
        .release()
        .await
        .expect("released");
}

/// A break by the present token ends the hold, and its guard is told, whether it listened before or only afterwards. The
/// session goes on. A dry run and a stale token change nothing.
pub(crate) async fn a_broken_holder_is_told<S: LockService>(service: S) {
    let client = client(service, "break");
    let guard = client.lock("a").acquire().await.expect("free");
    let other = client.lock("b").acquire().await.expect("free");
    let would = client.would_break("a", guard.token()).await.expect("held");
    assert_eq!((would.done, would.holder.token, would.next), (false, guard.token(), None));
    assert!(client.break_hold("a", guard.token(), "").await.is_err_and(|error| error.word() == Word::Invalid));
    assert_eq!(guard.state(), HoldState::Held);
    until_heard(&client, &guard).await;
    let (lost, next, broken) = tokio::join!(guard.lost(), client.lock("a").wait(LONG).acquire(), async {
        in_use(&client, "a", 1, 1).await;
        client.break_hold("a", guard.token(), "it hangs").await
    });
    assert_eq!((lost.alone, lost.reason, lost.token), (true, Some(EndReason::Broken), guard.token()));
    assert_eq!(guard.state(), HoldState::Lost);
    let broken = broken.expect("broken");
    assert!(broken.done && broken.next.is_some());
    let stale = client.break_hold("a", guard.token(), "again").await.expect_err("not the present one");
    assert_eq!(stale.word(), Word::HeldByOther);
    let next = next.expect("granted");
    assert_eq!(next.state(), HoldState::Held);
    client.break_hold("a", next.token(), "nobody listens yet").await.expect("broken");
    assert!(tokio::time::timeout(LONG, next.lost()).await.expect("told").alone);
    assert_eq!(other.state(), HoldState::Held);
    other.release().await.expect("still held");
}

/// Asks the holder of "a" until it hears it: what was asked before it listened may be missed.
async fn until_heard<S: LockService>(client: &Client<S>, guard: &LockGuard) -> RevokeRequest {
    let asked = async {
        loop {
            client.ask("a", guard.token(), "maintenance").await.expect("held");
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::select! {
        heard = guard.revoke_requested() => heard,
        () = asked => unreachable!("it never ends"),
    }
}

/// A holder that listens hears who asks for its lock and why, and keeps it.
pub(crate) async fn a_holder_is_asked<S: LockService>(service: S) {
    let client = client(service, "ask");
    let guard = client.lock("a").acquire().await.expect("free");
    let heard = until_heard(&client, &guard).await;
    assert_eq!(heard.why.as_str(), "maintenance");
    assert_eq!(guard.state(), HoldState::Held);
    let token = guard.token();
    guard.release().await.expect("still held");
    assert_eq!(client.ask("a", token, "too late").await.expect_err("gone").word(), Word::NotHeld);
}

/// A hold is handed over to one that waits, past those before it and without a gap; to nobody else.
pub(crate) async fn a_hold_is_handed_over<S: LockService>(service: S) {
    let (first, second) = (session(service.clone(), "hand-over").await, session(service.clone(), "hand-over").await);
    let client = client(service, "hand-over");
    let guard = client.lock("a").acquire().await.expect("free");
    let refused = client.hand_over("a", guard.token(), second.id()).await.expect_err("it did not ask");
    assert_eq!(refused.word(), Word::NotAccepted);
    let mut ahead = Box::pin(first.lock("a").wait(LONG).acquire());
    tokio::select! {
        _ = &mut ahead => panic!("held by another"),
        () = in_use(&client, "a", 1, 1) => {}
    }
    let (heir, lost, handed) = tokio::join!(second.lock("a").wait(LONG).acquire(), guard.lost(), async {
        in_use(&client, "a", 1, 2).await;
        client.hand_over("a", guard.token(), second.id()).await
    });
    let heir = heir.expect("handed over");
    assert_eq!(handed.expect("handed over"), heir.token());
    assert_eq!((lost.alone, lost.reason), (true, Some(EndReason::HandedOver)));
    heir.release().await.expect("released");
    ahead.await.expect("its turn").release().await.expect("released");
}

/// R-SEM-03: the limit that was set counts; raised it lets waiters in, lowered it evicts nobody, removed it is forgotten.
pub(crate) async fn a_semaphore_keeps_its_limit<S: LockService>(service: S) {
    let client = client(service, "semaphore");
    client.set_semaphore("s", 1).await.expect("free");
    let one = client.lock("s").permits(1, None).acquire().await.expect("its limit is known");
    let mismatch = client.lock("s").permits(1, 5).try_once().acquire().await.expect_err("another limit");
    assert_eq!(mismatch.word(), Word::LimitMismatch);
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
    assert_eq!(client.set_semaphore("s", 0).await.expect_err("none at all").word(), Word::Invalid);
}

/// One candidate leads, everybody sees what it proclaims, and the next one leads when it resigns.
pub(crate) async fn an_election_has_one_leader<S: LockService>(service: S) {
    let client = client(service, "election");
    let election = client.election("office");
    let said =
        |leader: Option<lockkeeper::client::Leader>| leader.and_then(|leader| leader.value).map(|v| v.to_string());
    assert_eq!(election.leader().await.expect("asked"), None);
    let mut observer = election.observe().await.expect("observing");
    assert_eq!(observer.next().await.expect("told"), None);
    let first = election.campaign("n1").elected().await.expect("nobody else stands");
    assert_eq!(said(observer.next().await.expect("told")).as_deref(), Some("n1"));
    let mut second = Box::pin(election.campaign("n2").wait(LONG).elected());
    tokio::select! {
        _ = &mut second => panic!("another leads"),
        () = in_use(&client, "office", 1, 1) => {}
    }
    assert_eq!(
        election.campaign("n3").try_once().elected().await.expect_err("another leads").word(),
        Word::NotAcquired
    );
    first.proclaim("n1 again").await.expect("leads");
    assert_eq!(said(observer.next().await.expect("told")).as_deref(), Some("n1 again"));
    let token = first.guard().token();
    first.resign().await.expect("resigned");
    let second = second.await.expect("its turn");
    let leader = loop {
        // That nobody leads may be seen for a moment.
        if let Some(leader) = observer.next().await.expect("told") {
            break leader;
        }
    };
    assert_eq!((leader.token, token < leader.token), (second.guard().token(), true));
    assert_eq!(said(Some(leader)).as_deref(), Some("n2"));
}
