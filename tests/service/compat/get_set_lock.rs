//! The locks based on `INCR` and on `SETNX` with `GETSET`: their correct behaviour, and faults of the originals.

use std::sync::atomic::Ordering::SeqCst;

use futures_util::future::join_all;
use lockkeeper::compat::get_set_lock::{GetSetLock, Swapped};
use lockkeeper::compat::incr_lock::{IncrLock, Increment};
use lockkeeper::model::LogTime;
use lockkeeper::service::LockService;

use super::ended;
use super::probe::Probe;
use crate::suite::{LONG, SHORT, client, in_use};

/// Of a hundred increments, one returns 1.
async fn r_incr_01_w_ex_01_one_gets_one<S: LockService>(service: S) {
    let lock = IncrLock::new(client(service, "incr-01"));
    let answer = join_all((0..100).map(|_| lock.incr("k", LONG))).await;
    assert_eq!(answer.into_iter().filter(|answer| answer.as_ref().expect("answered").value() == 1).count(), 1);
}

#[test]
fn w_ex_01_in_the_model_two_hold_it() {
    let mut holder = None;
    let exists = [holder.is_some(), holder.is_some()];
    let mut holders = 0;
    for (exists, who) in exists.into_iter().zip(["a", "b"]) {
        if !exists {
            holder = Some(who);
            holders += 1;
        }
    }
    assert_eq!((holders, holder), (2, Some("b")));
}

/// The job runs again after its holder resets the counter, or when its lease ends.
async fn w_incr_01_the_job_runs_again<S: LockService>(service: S) {
    let client = client(service, "incr-w1");
    let lock = IncrLock::new(client.clone());
    let Increment::First(first) = lock.incr("k", LONG).await.expect("answered") else { panic!("free") };
    assert!(matches!(lock.incr("k", LONG).await.expect("answered"), Increment::Later));
    assert!(lock.reset(&first).await.expect("answered"));
    let Increment::First(_) = lock.incr("k", SHORT).await.expect("answered") else { panic!("free again") };
    ended(&client, "k").await;
    assert_eq!(lock.incr("k", LONG).await.expect("answered").value(), 1);
}

#[test]
fn w_incr_01_in_the_model_it_runs_once_in_all_time() {
    let mut counter = 0;
    let mut runs = 0;
    for _day in 0..3 {
        counter += 1;
        runs += u32::from(counter == 1);
    }
    assert_eq!(runs, 1);
}

/// An expired value goes to the first of two callers. The second sees the value of the first and writes nothing.
async fn r_gs_01_r_gs_02_the_first_of_two_wins<S: LockService>(service: S) {
    let client = client(service, "gs-01");
    let lock = GetSetLock::new(client.clone());
    let old = lock.set_nx("k", SHORT).await.expect("answered").expect("free");
    let seen = old.until();
    ended(&client, "k").await;
    let Swapped::Won(first) = lock.get_set("k", LONG).await.expect("answered") else { panic!("it had expired") };
    let Swapped::Lost(end) = lock.get_set("k", LONG * 2).await.expect("answered") else { panic!("it is held") };
    assert_eq!(end, first.until(), "the second sees the value of the first");
    assert!(seen < end);
    assert_eq!(lock.get("k").await.expect("answered"), Some(first.until()), "the end was not changed");
    assert!(!old.unlock().await.expect("answered"));
    assert!(first.unlock().await.expect("answered"));
}

#[test]
fn r_gs_01_r_gs_02_in_the_model_both_rules_name_the_same_winner() {
    let (mut value, now) = (5_u64, 6);
    let (seen_by_a, seen_by_b) = (value, value);
    let a = std::mem::replace(&mut value, 16);
    let b = std::mem::replace(&mut value, 17);
    assert_eq!((a < now, b < now), (true, false), "by time");
    assert_eq!((a == seen_by_a, b == seen_by_b), (true, false), "by comparison");
}

/// A waiter compares the end with the cluster's current time, and its own end counts from its grant.
async fn w_gs_01_the_time_is_read_at_each_try<S: LockService>(service: S) {
    let client = client(service, "gs-w1");
    let lock = GetSetLock::new(client.clone());
    let first = lock.set_nx("k", SHORT * 4).await.expect("answered").expect("free");
    let second = lock.lock("k", LONG, LONG).await.expect("answered").expect("the first one ends");
    assert!(first.until().after_ms(29_000) < second.until(), "a whole timeout from the grant");
}

#[test]
fn w_gs_01_w_gs_02_in_the_model() {
    // `now` is read once: a waiter that began at 0 never sees that 10 has passed.
    let (now, end) = (0_u64, 10_u64);
    assert!((0..1_000).all(|_poll| now <= end));
    // The polls of the waiter also move the holder's end, although that end has not passed.
    let mut value = 10_u64;
    for poll in 1..=3 {
        value = value.max(poll * 100);
    }
    assert_eq!(value, 300);
}

/// Losers write nothing, even if they poll repeatedly.
async fn w_gs_02_losers_do_not_write<S: LockService>(service: S) {
    let lock = GetSetLock::new(client(service, "gs-w2"));
    let held = lock.set_nx("k", LONG).await.expect("answered").expect("free");
    for _ in 0..10 {
        assert!(matches!(lock.get_set("k", LONG * 9).await.expect("answered"), Swapped::Lost(_)));
    }
    assert_eq!(lock.get("k").await.expect("answered"), Some(held.until()));
}

/// A try is repeated if the value disappears meanwhile.
async fn w_gs_03_a_value_that_vanishes_is_no_crash<S: LockService>(service: S) {
    let lock = GetSetLock::new(client(service, "gs-w3"));
    let taker = async || {
        for _ in 0..20 {
            if let Swapped::Won(guard) = lock.get_set("k", LONG).await.expect("answered") {
                assert!(guard.unlock().await.expect("answered"));
            }
        }
    };
    join_all((0..4).map(|_| taker())).await;
    assert_eq!(lock.get("k").await.expect("answered"), None);
}

/// The same in steps: the try is refused, the holder releases the lock, and there is no holder to read.
async fn w_gs_03_a_vanished_value_is_tried_again<S: LockService>(service: S) {
    let holder = GetSetLock::new(client(service.clone(), "gs-w3-steps"));
    let held = holder.set_nx("k", LONG).await.expect("answered").expect("free");
    let (probe, seen) = Probe::new(service);
    let lock = GetSetLock::new(client(probe, "gs-w3-steps"));
    seen.queries_paused.store(true, SeqCst);
    let (answer, ()) = tokio::join!(lock.get_set("k", LONG), async {
        seen.paused.notified().await;
        assert!(held.unlock().await.expect("answered"));
        seen.queries_paused.store(false, SeqCst);
        seen.resume.notify_waiters();
    });
    let Swapped::Won(guard) = answer.expect("no failure") else { panic!("the lock is free") };
    assert!(guard.unlock().await.expect("answered"));
}

/// A lock without a holder that is not free has a value: one that an ended hold keeps closed, and one for which a
/// request for several locks waits.
async fn w_gs_03_a_lock_without_a_holder_is_not_free<S: LockService>(service: S) {
    let client = client(service, "gs-w3-closed");
    let lock = GetSetLock::new(client.clone());
    client.lock("closed").at_least(LONG).acquire().await.expect("free").release().await.expect("held");
    let _held = client.lock("held").acquire().await.expect("free");
    let waits = client.locks(["awaited", "held"]).acquire();
    tokio::pin!(waits);
    tokio::select! {
        _ = &mut waits => panic!("one of them is held"),
        () = in_use(&client, "awaited", 0, 1) => {}
    }
    let opens = client.inspect("closed").await.expect("inspected").value.closed[0].until;
    for (key, until) in [("closed", opens), ("awaited", LogTime(u64::MAX))] {
        let swapped = tokio::time::timeout(SHORT * 100, lock.get_set(key, LONG)).await.expect("at once");
        let Swapped::Lost(end) = swapped.expect("answered") else { panic!("it is not free") };
        assert_eq!(end, until);
    }
}

#[test]
fn w_gs_03_in_the_model_nothing_is_read_as_a_number() {
    let mut value = Some("100");
    let held = value.is_some();
    // SETNX reports that the lock is held; its holder deletes it before the GET.
    value = None;
    let sample = |answer: Option<&str>| answer.unwrap_or("null").parse::<u64>();
    assert!(held && sample(value).is_err(), "the waiter fails with an exception");
}

/// A client that was interrupted while it waited, or whose hold has expired, releases nothing.
async fn w_gs_04_w_gs_05_nothing_is_released_twice<S: LockService>(service: S) {
    let client = client(service, "gs-w4");
    let lock = GetSetLock::new(client.clone());
    let held = lock.set_nx("k", SHORT * 20).await.expect("answered").expect("free");
    let waits = tokio::time::timeout(SHORT, lock.lock("k", LONG, LONG)).await;
    assert!(waits.is_err(), "interrupted while it waits");
    in_use(&client, "k", 1, 0).await;
    ended(&client, "k").await;
    let next = lock.set_nx("k", LONG).await.expect("answered").expect("free");
    assert!(!held.unlock().await.expect("answered"), "it has expired, and another client holds the lock");
    assert!(next.unlock().await.expect("answered"));
}

#[test]
fn w_gs_04_w_gs_05_in_the_model_the_final_block_deletes() {
    let mut value = Some("b");
    // A was interrupted and never held the lock. The final test compares two constants.
    let (a_had_it, timeout, own_end) = (false, 3_000, 3_001);
    if timeout < own_end {
        value = None;
    }
    assert_eq!((a_had_it, value), (false, None), "B's lock is deleted");
}

recipe_tests! {
    r_incr_01_w_ex_01_one_gets_one
    w_incr_01_the_job_runs_again
    r_gs_01_r_gs_02_the_first_of_two_wins
    w_gs_01_the_time_is_read_at_each_try
    w_gs_02_losers_do_not_write
    w_gs_03_a_value_that_vanishes_is_no_crash
    w_gs_03_a_vanished_value_is_tried_again
    w_gs_03_a_lock_without_a_holder_is_not_free
    w_gs_04_w_gs_05_nothing_is_released_twice
}
