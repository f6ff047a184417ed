//! Tests for sets of locks, for deadlocks between owners, and for chains of waiters.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use lockkeeper::client::{ClientError, HoldState, Session, SetGuard};
use lockkeeper::model::{About, Access, EndReason, Health, Mode, OnDeadlock, Refusal, WaitReason};
use lockkeeper::service::{ErrorCode, LockService};

use crate::faulty::Faulty;
use crate::suite::{LONG, SHORT, client, in_use, passes, session, until};

fn names(guard: &SetGuard) -> Vec<String> {
    guard.tokens().keys().map(ToString::to_string).collect()
}

/// A set is granted as a whole, in the requested modes, with a token for each lock, and released as a whole.
pub(crate) async fn a_set_is_held_whole<S: LockService>(service: S) {
    let client = client(service, "set");
    let wanted = || client.locks(["b", "a"]).with("r", Mode::Shared).with("s", Access::permits(2, 3));
    let guard = wanted().value("ours").acquire().await.expect("free");
    assert_eq!(names(&guard), ["a", "b", "r", "s"]);
    assert!(guard.token("a") < guard.token("b") && guard.token("b").is_some() && guard.token("c").is_none());
    assert_eq!((guard.state(), guard.valid_for().is_zero()), (HoldState::Held, false));
    assert_eq!(guard.guards().len(), 4);
    let reader = client.lock("r").shared().try_once().acquire().await.expect("shared");
    let permit = client.lock("s").permits(1, None).try_once().acquire().await.expect("one is left");
    drop(permit);
    let refused = wanted().try_once().acquire().await.expect_err("held");
    let ClientError::NotAcquired { lock, holder: Some(holder), .. } = &refused else { panic!("{refused:?}") };
    assert_eq!((lock.as_str(), Some(holder.token)), ("a", guard.token("a")));
    let (next, released) = tokio::join!(wanted().wait(LONG).acquire(), async {
        in_use(&client, "a", 1, 1).await;
        in_use(&client, "r", 2, 1).await;
        guard.release().await
    });
    assert_eq!(released.expect("released").values().map(|released| released.left).collect::<Vec<_>>(), [0; 4]);
    let next = next.expect("granted whole");
    drop((reader, next));
    for name in ["a", "b", "r", "s"] {
        in_use(&client, name, 0, 0).await;
    }
}

/// A waiting set holds no lock. A set that times out or is dropped leaves no waiter, and the error names the lock that
/// it could not get.
pub(crate) async fn a_set_that_ends_early_leaves_nothing<S: LockService>(service: S) {
    let client = client(service, "set-end");
    let busy = client.lock("b").why("rebuild").acquire().await.expect("free");
    let late = client.locks(["a", "b"]).wait(SHORT).acquire().await.expect_err("held");
    let ClientError::NotAcquired { lock, holder: Some(holder), .. } = &late else { panic!("{late:?}") };
    assert_eq!((lock.as_str(), &*holder.metadata.why), ("b", "rebuild"));
    in_use(&client, "a", 0, 0).await;
    in_use(&client, "b", 1, 0).await;
    let mut dropped = Box::pin(client.locks(["a", "b"]).acquire());
    tokio::select! {
        _ = &mut dropped => panic!("held by another"),
        () = in_use(&client, "a", 0, 1) => {}
    }
    drop(dropped);
    in_use(&client, "a", 0, 0).await;
    in_use(&client, "b", 1, 0).await;
    busy.release().await.expect("released");
    client.locks(["a", "b"]).try_once().acquire().await.expect("free").release().await.expect("released");
}

/// Invalid sets are refused before any request is sent.
pub(crate) async fn a_set_has_its_bounds<S: LockService>(service: S) {
    let client = client(service, "set-bounds");
    let none: [&str; 0] = [];
    let many: Vec<String> = (0..65).map(|number| format!("n{number}")).collect();
    let wrong = [
        client.locks(none).acquire().await,
        client.locks(["a", "a"]).acquire().await,
        client.locks(many).acquire().await,
        client.locks(["a", "line\nend"]).acquire().await,
    ];
    for refused in wrong {
        assert_eq!(refused.expect_err("refused").code(), ErrorCode::Invalid);
    }
    let many = (0..64).map(|number| format!("n{number}"));
    client.locks(many).acquire().await.expect("the largest allowed set").release().await.expect("released");
}

/// A set is lost as soon as one of its locks is lost, and work under it is dropped. The other locks are still held by
/// their own guards.
pub(crate) async fn a_set_is_lost_with_its_first_lock<S: LockService>(service: S) {
    let client = client(service, "set-lost");
    let guard = client.locks(["a", "b", "c"]).acquire().await.expect("free");
    let token = guard.token("b").expect("one of them");
    let (lost, broken) = tokio::join!(guard.run(std::future::pending::<()>()), async {
        tokio::time::sleep(SHORT).await;
        client.break_hold("b", token, "test").await
    });
    broken.expect("broken");
    let lost = lost.expect_err("lost");
    assert_eq!((lost.lock.as_str(), lost.token, lost.alone), ("b", token, true));
    assert_eq!(lost.reason, Some(EndReason::Broken));
    assert_eq!((guard.state(), guard.valid_for().is_zero()), (HoldState::Lost, true));
    let mut guards = guard.into_guards();
    let (last, first) = (guards.pop().expect("three"), guards.swap_remove(0));
    assert_eq!((first.state(), last.state()), (HoldState::Held, HoldState::Held));
    first.release().await.expect("released");
    in_use(&client, "a", 0, 0).await;
    in_use(&client, "c", 1, 0).await;
    last.release().await.expect("released");
}

/// A set whose answers are lost is repeated with its number and gets the first answer; a wait that fails is resumed.
pub(crate) async fn a_retried_set_gets_the_same_answer<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service);
    let session = session(faulty, "set-retry").await;
    faults.answers_lost.store(2, SeqCst);
    let guard = session.locks(["a", "b"]).acquire().await.expect("free");
    faults.answers_lost.store(1, SeqCst);
    faults.waits_broken.store(3, SeqCst);
    let (next, released) = tokio::join!(session.locks(["b", "c"]).wait(LONG).acquire(), async {
        until("the waits break", async || faults.waits_broken.load(SeqCst) == 0).await;
        guard.release().await
    });
    released.expect("the first answer");
    let next = next.expect("granted");
    assert_eq!(names(&next), ["b", "c"]);
    next.release().await.expect("released");
}

/// The lease of a set is renewed for each of its locks.
pub(crate) async fn the_leases_of_a_set_are_renewed<S: LockService>(service: S) {
    let client = client(service, "set-lease");
    // Longer than a slow machine stalls.
    let lease = Duration::from_secs(2);
    let guard = client.locks(["a", "b"]).lease(lease).acquire().await.expect("free");
    assert!(guard.valid_for() <= lease);
    guard.run(passes(&client, lease * 5 / 2)).await.expect("held the whole time");
    guard.release().await.expect("released");
}

fn cycle(refused: ClientError) -> Vec<(String, String, WaitReason)> {
    assert_eq!(refused.code(), ErrorCode::Deadlock, "{refused}");
    let ClientError::Refused(Refusal::Deadlock { cycle }) = refused else { panic!("{refused:?}") };
    cycle.into_iter().map(|link| (link.owner.to_string(), link.lock.name.to_string(), link.why)).collect()
}

async fn waits_for<S: LockService>(session: &Session<S>, owner: &str, name: &str) {
    drop(session.lock(name).owner(owner).acquire().await);
}

/// Two owners acquire two locks in opposite order. The second request is refused at once with the cycle of waiters, but
/// it can choose to wait.
pub(crate) async fn owners_that_deadlock_are_refused<S: LockService>(service: S) {
    let client = client(service.clone(), "deadlock");
    let (one, two) = (session(service.clone(), "deadlock").await, session(service, "deadlock").await);
    let a = one.lock("a").owner("ann").acquire().await.expect("free");
    let b = two.lock("b").owner("bob").acquire().await.expect("free");
    let mut waits = Box::pin(waits_for(&one, "ann", "b"));
    tokio::select! {
        () = &mut waits => panic!("held by the other"),
        () = in_use(&client, "b", 1, 1) => {}
    }
    let refused = two.lock("a").owner("bob").acquire().await.expect_err("it would wait permanently");
    let text = refused.to_string();
    for word in ["ann", "bob", "waits for a", "waits for b", "held by"] {
        assert!(text.contains(word), "{word:?} is not in {text:?}");
    }
    let expected = [("bob", "a", WaitReason::Holds), ("ann", "b", WaitReason::Holds)];
    assert_eq!(cycle(refused), expected.map(|(owner, name, why)| (owner.to_owned(), name.to_owned(), why)));
    in_use(&client, "a", 1, 0).await;
    let set = two.locks(["a", "c"]).owner("bob").acquire().await.expect_err("a set is refused as well");
    assert_eq!(cycle(set).len(), 2);
    in_use(&client, "c", 0, 0).await;
    let waited = two.lock("a").owner("bob").on_deadlock(OnDeadlock::Wait).wait(SHORT).acquire().await;
    assert_eq!(waited.expect_err("it times out").code(), ErrorCode::NotAcquired);
    b.release().await.expect("released");
    waits.await;
    a.release().await.expect("released");
}

/// A nested run is refused a lock that its parent holds, and a lock that depends on its parent in any other way.
pub(crate) async fn a_nested_run_is_refused_what_its_parent_holds<S: LockService>(service: S) {
    let client = client(service.clone(), "nested");
    let (outer, inner) = (session(service.clone(), "nested").await, session(service.clone(), "nested").await);
    let held = outer.lock("a").owner("outer").acquire().await.expect("free");
    let nested = |name: &'static str| inner.lock(name).owner("inner").parent(outer.id(), "outer");
    let explained = cycle(nested("a").acquire().await.expect_err("its parent holds it"));
    assert_eq!(explained[0], ("inner".to_owned(), "a".to_owned(), WaitReason::Holds));
    assert_eq!((explained[1].0.as_str(), explained[1].2), ("outer", WaitReason::Nested));
    let set = inner.locks(["a", "b"]).owner("inner").parent(outer.id(), "outer").acquire().await;
    cycle(set.expect_err("a set is refused as well"));
    // Another run holds b and waits for a. The nested run would wait for the other run, which waits for the parent.
    let other = session(service, "nested").await;
    let b = other.lock("b").owner("other").acquire().await.expect("free");
    let mut waits = Box::pin(waits_for(&other, "other", "a"));
    tokio::select! {
        () = &mut waits => panic!("held by the outer run"),
        () = in_use(&client, "a", 1, 1) => {}
    }
    let explained = cycle(nested("b").acquire().await.expect_err("no run could proceed"));
    assert!(explained.iter().any(|(owner, _, why)| owner == "outer" && *why == WaitReason::Nested), "{explained:?}");
    b.release().await.expect("released");
    nested("b").try_once().acquire().await.expect("free").release().await.expect("released");
    held.release().await.expect("released");
    waits.await;
}

/// A session that accepts hand-overs gets a hold without a request, and adopts it.
pub(crate) async fn an_accepted_hold_is_adopted<S: LockService>(service: S) {
    let client = client(service.clone(), "adopt");
    let successor = client.session().accepts_hand_over().open().await.expect("opened");
    let guard = client.lock("a").acquire().await.expect("free");
    assert_eq!(successor.adopt("a", guard.token()).await.expect_err("not its own").code(), ErrorCode::NotHeld);
    let token = client.hand_over("a", guard.token(), successor.id()).await.expect("it accepts");
    let adopted = successor.adopt("a", token).await.expect("its own");
    assert_eq!((adopted.token(), adopted.session(), adopted.state()), (token, successor.id(), HoldState::Held));
    let lease = Duration::from_secs(1);
    assert!(lease < adopted.valid_for(), "it lives with its session");
    adopted.release().await.expect("released");
    in_use(&client, "a", 0, 0).await;
    // The hold keeps its lease.
    let leased = successor.lock("b").lease(lease).acquire().await.expect("free");
    let adopted = successor.adopt("b", leased.token()).await.expect("its own");
    assert!(adopted.valid_for() <= lease, "{:?}", adopted.valid_for());
    drop(leased);
    in_use(&client, "b", 0, 0).await;
}

/// The explanation of a chain over two locks lists each waiter and its lock, and the holder whose release unblocks the
/// chain.
pub(crate) async fn a_chain_is_explained<S: LockService>(service: S) {
    let client = client(service.clone(), "explain");
    let (one, two) = (session(service.clone(), "explain").await, session(service, "explain").await);
    let db = one.lock("db").owner("dump").why("nightly dump").acquire().await.expect("free");
    let a = two.lock("a").owner("build").acquire().await.expect("free");
    let about = || client.about("a").expect("a name");
    let explained = client.explain(about()).await.expect("explained").value;
    assert_eq!(
        (explained.chain.len(), explained.freed_by.len(), explained.freed_by[0].who.token),
        (0, 1, Some(a.token()))
    );
    let (mut build, mut test) = (Box::pin(waits_for(&two, "build", "db")), Box::pin(waits_for(&one, "test", "a")));
    tokio::select! {
        () = &mut build => panic!("held by the other"),
        () = &mut test => panic!("held by the other"),
        () = async { in_use(&client, "db", 1, 1).await; in_use(&client, "a", 1, 1).await } => {}
    }
    let explained = client.explain(about()).await.expect("explained").value;
    let chain: Vec<_> =
        explained.chain.iter().map(|wait| (wait.lock.name.as_str(), wait.waiter.owner.as_ref())).collect();
    let names: Vec<_> = chain.iter().map(|(name, owner)| (*name, owner.map(|owner| owner.as_str()))).collect();
    assert_eq!(names, [("a", Some("test")), ("db", Some("build"))]);
    let end = &explained.freed_by[0];
    assert_eq!((end.lock.name.as_str(), end.who.token, end.who.health), ("db", Some(db.token()), Health::Live));
    assert_eq!(&*end.who.metadata.why, "nightly dump");
    let of_session = client.explain(About::Session(two.id())).await.expect("explained").value;
    assert_eq!((of_session.chain.len(), of_session.chain[0].lock.name.as_str()), (1, "db"));
    drop((build, test));
    db.release().await.expect("released");
    a.release().await.expect("released");
}
