//! How the wait of an acquire ends: with a grant, a cancel, a deadline or a timeout.

use futures_util::future::join_all;
use lockkeeper::limits::REQUESTS_REMEMBERED_MAX;
use lockkeeper::rpc::pb::command::Command as Asked;

use super::*;

/// An acquire waits within its call, at any node, and is answered when the holder releases the lock. The validity of a
/// lease counts from before the call, not from the grant.
#[tokio::test]
async fn an_acquire_waits_within_its_call() {
    for place in 0..3 {
        let locks = locks(place).await;
        let (first, second) = (Holder::Session(opened(&locks).await), Holder::Session(opened(&locks).await));
        let lock = format!("waited-{place}");
        let held = acquired(&locks, wanted(&lock, &first, None)).await.expect("free");
        let in_a_session = waiting(&locks, wanted(&lock, &second, None));
        in_use(&locks, &lock, 1, 1).await;
        let leased = pb::AcquireRequest { lease_ms: Some(40_000), ..wanted(&lock, &lease(""), Some(120_000)) };
        let as_a_lease = waiting(&locks, leased);
        in_use(&locks, &lock, 1, 2).await;

        released(&locks, &lock, &first, held.token).await.expect("released");
        let next = in_a_session.await.expect("no panic").expect("granted");
        assert!(held.token < next.token, "{held:?} {next:?}");
        in_use(&locks, &lock, 1, 1).await;
        released(&locks, &lock, &second, next.token).await.expect("released");
        let last = as_a_lease.await.expect("no panic").expect("granted");
        assert!(next.token < last.token, "{last:?}");
        let valid = last.deadline_ms.expect("a lease ends") - last.stamp_ms;
        assert_eq!(valid, last.waited_ms + 40_000, "its stamp is that of the entry in which it was queued");
        assert_eq!(last.valid_ms, Some(99 * valid / 100));
        released(&locks, &lock, &lease(&last.handle), 0).await.expect("by its chosen handle");
        in_use(&locks, &lock, 0, 0).await;
    }
}

/// A call that is cancelled while it waits leaves no waiter.
#[tokio::test]
async fn a_cancelled_acquire_leaves_nothing() {
    for place in 0..3 {
        let locks = locks(place).await;
        let (first, second) = (Holder::Session(opened(&locks).await), Holder::Session(opened(&locks).await));
        let lock = format!("cancelled-{place}");
        let held = acquired(&locks, wanted(&lock, &first, None)).await.expect("free");
        for asked in [wanted(&lock, &second, None), wanted(&lock, &lease(""), Some(120_000))] {
            let waits = waiting(&locks, asked);
            in_use(&locks, &lock, 1, 1).await;
            waits.abort();
            in_use(&locks, &lock, 1, 0).await;
        }
        released(&locks, &lock, &first, held.token).await.expect("released");
        in_use(&locks, &lock, 0, 0).await;
    }
}

/// A cancel that reaches the node before the lock is free leaves nothing, even if the release follows immediately on
/// the same connection.
#[tokio::test]
async fn a_cancel_just_before_the_grant_leaves_nothing() {
    let locks = locks(0).await;
    let (first, second) = (Holder::Session(opened(&locks).await), Holder::Session(opened(&locks).await));
    let lock = "just-before";
    for _ in 0..20 {
        let held = acquired(&locks, wanted(lock, &first, None)).await.expect("free");
        let mut waits = waiting(&locks, wanted(lock, &second, None));
        in_use(&locks, lock, 1, 1).await;
        waits.abort();
        assert!((&mut waits).await.is_err_and(|ended| ended.is_cancelled()));
        released(&locks, lock, &first, held.token).await.expect("released");
        in_use(&locks, lock, 0, 0).await;
    }
}

/// A cancel can cross the answer. Then the lock is held, and a repeat of the request returns the same grant. If the
/// cancel came in time, the request cannot be used again. Nothing else is left.
#[tokio::test]
async fn a_cancel_that_crosses_the_answer_leaves_what_a_repeat_finds() {
    let locks = locks(0).await;
    let (first, second) = (Holder::Session(opened(&locks).await), Holder::Session(opened(&locks).await));
    let lock = "crossed";
    for round in 1..=20_u64 {
        let held = acquired(&locks, wanted(lock, &first, None)).await.expect("free");
        let asked = named(wanted(lock, &second, None), &round.to_string());
        let waits = waiting(&locks, asked);
        in_use(&locks, lock, 1, 1).await;
        let release = released(&locks, lock, &first, held.token);
        let cancel = async {
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
            waits.abort();
        };
        let (release, ()) = tokio::join!(release, cancel);
        release.expect("released");
        match acquired(&locks, named(wanted(lock, &second, Some(0)), &round.to_string())).await {
            // The answer was in transit, or the cancel still is.
            Ok(grant) => drop(released(&locks, lock, &second, grant.token).await),
            Err(status) => assert_eq!(code_and_advice(&status), ("not-acquired", "retry"), "{status:?}"),
        }
        in_use(&locks, lock, 0, 0).await;
    }
}

/// A try and a wait that times out return the same error while the lock is held, and leave no waiter.
#[tokio::test]
async fn a_try_and_a_timed_out_wait_are_not_acquired() {
    let locks = locks(1).await;
    let first = Holder::Session(opened(&locks).await);
    let held = acquired(&locks, wanted("over", &first, None)).await.expect("free");
    let other = Holder::Session(opened(&locks).await);
    for asked in [
        wanted("over", &other, Some(0)),
        wanted("over", &other, Some(50)),
        wanted("over", &lease(""), None),
        wanted("over", &lease(""), Some(50)),
    ] {
        let status = acquired(&locks, asked).await.expect_err("held");
        assert_eq!(
            (status.code(), code_and_advice(&status)),
            (Code::FailedPrecondition, ("not-acquired", "retry")),
            "{status:?}"
        );
        in_use(&locks, "over", 1, 0).await;
    }
    released(&locks, "over", &first, held.token).await.expect("released");
}

/// A wait that ends after its session has finished more later requests than it remembers has no answer any more. The
/// call is too old, because its outcome is unknown; it is not an unknown hold.
#[tokio::test]
async fn a_wait_that_outlasts_the_remembered_requests_is_too_old() {
    let locks = locks(0).await;
    let (first, proof) = (Holder::Session(opened(&locks).await), opened(&locks).await);
    let second = Holder::Session(proof.clone());
    let held = acquired(&locks, wanted("outlasts", &first, None)).await.expect("free");
    let waits = waiting(&locks, named(wanted("outlasts", &second, None), "1"));
    in_use(&locks, "outlasts", 1, 1).await;
    let later = |number: usize| {
        let (mut locks, nothing) = (locks.clone(), release_of("nothing", &second, 1));
        async move { locks.release(pb::ReleaseRequest { request: number.to_string(), ..nothing }).await }
    };
    for from in (2..=REQUESTS_REMEMBERED_MAX + 2).step_by(128) {
        for refused in join_all((from..from + 128).map(later)).await {
            assert_eq!(code_and_advice(&refused.expect_err("nothing is held")).1, "give_up");
        }
    }
    let withdraw = Asked::Cancel(pb::Cancel { session: Some(proof), request: 1 });
    let withdraw = || {
        let (mut locks, command) = (locks.clone(), Some(withdraw.clone()));
        async move { locks.submit(pb::Command { command }).await }
    };
    answered(withdraw).await.expect("withdrawn");
    let status = waits.await.expect("no panic").expect_err("it was withdrawn");
    assert_eq!((status.code(), code_and_advice(&status)), (Code::OutOfRange, ("too-old", "give_up")), "{status:?}");
    released(&locks, "outlasts", &first, held.token).await.expect("released");
}

/// The deadline of the call ends the wait as a cancel does.
#[tokio::test]
async fn the_deadline_of_the_call_leaves_nothing() {
    let mut locks = locks(2).await;
    let (first, second) = (Holder::Session(opened(&locks).await), Holder::Session(opened(&locks).await));
    let held = acquired(&locks, wanted("deadline", &first, None)).await.expect("free");
    let mut asked = Request::new(wanted("deadline", &second, None));
    asked.set_timeout(10 * SHORT);
    let status = locks.acquire(asked).await.expect_err("held for longer");
    assert!([Code::DeadlineExceeded, Code::Cancelled].contains(&status.code()), "{status:?}");
    in_use(&locks, "deadline", 1, 0).await;
    released(&locks, "deadline", &first, held.token).await.expect("released");
}
