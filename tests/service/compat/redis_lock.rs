//! The Redis lock: its four conditions, and what goes wrong without them.

#![allow(clippy::print_stderr, reason = "a reduced run prints its size")]

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use futures_util::future::join_all;
use lockkeeper::compat::redis_lock::RedisLock;
use lockkeeper::model::EventKind;
use lockkeeper::service::{ErrorCode, LockService};

use super::ended;
use crate::suite::{LONG, SHORT, client};

/// The number of clients and of rounds for each; with `LOCKKEEPER_FULL` a thousand rounds.
const CLIENTS: u32 = 100;
const ROUNDS: u32 = 2;
const ROUNDS_FULL: u32 = 1_000;
/// Progress is printed after this many rounds in total.
const REPORT_EVERY: u32 = 1_000;
/// The pause between two tries of a polling client.
const POLL: Duration = Duration::from_millis(200);

/// How much later than its expiry the lock of a crashed client ends, in milliseconds of log time.
const LATE_MS_MAX: u64 = 500;

/// A model of the original: one key with its value and its expiry.
#[derive(Default)]
struct Model {
    key: Option<(&'static str, Option<u64>)>,
}

impl Model {
    fn get(&mut self, now: u64) -> Option<&'static str> {
        self.key = self.key.filter(|(_, end)| end.is_none_or(|end| now < end));
        self.key.map(|(value, _)| value)
    }

    /// Sets without `NX`, which overwrites any value.
    fn set(&mut self, value: &'static str, end: Option<u64>) {
        self.key = Some((value, end));
    }

    fn set_nx(&mut self, now: u64, value: &'static str, end: Option<u64>) -> bool {
        let free = self.get(now).is_none();
        if free {
            self.key = Some((value, end));
        }
        free
    }
}

/// At most one client holds the lock at any time.
async fn r_red_01_one_client_at_any_time<S: LockService>(service: S) {
    let rounds = if std::env::var_os("LOCKKEEPER_FULL").is_some() { ROUNDS_FULL } else { ROUNDS };
    eprintln!("R-RED-01: {CLIENTS} clients, {rounds} rounds (LOCKKEEPER_FULL=1 for {ROUNDS_FULL})");
    let client = client(service, "red-01");
    let (inside, done) = (AtomicU32::new(0), AtomicU32::new(0));
    let contender = async |number: u32| {
        let lock = RedisLock::new(client.clone());
        for round in 0..rounds {
            let id = format!("{number}-{round}");
            while !lock.try_get_distributed_lock("k", &id, LONG).await.expect("answered") {
                tokio::time::sleep(POLL).await;
            }
            assert_eq!(inside.fetch_add(1, SeqCst), 0, "two inside");
            tokio::task::yield_now().await;
            inside.fetch_sub(1, SeqCst);
            let rounds_done = 1 + done.fetch_add(1, SeqCst);
            if rounds_done.is_multiple_of(REPORT_EVERY) {
                eprintln!("R-RED-01: {rounds_done} of {}", CLIENTS * rounds);
            }
            assert!(lock.release_distributed_lock("k", &id).await.expect("answered"));
        }
    };
    join_all((0..CLIENTS).map(contender)).await;
    assert_eq!(done.load(SeqCst), CLIENTS * rounds);
}

#[tokio::test]
async fn r_red_01_in_the_model_a_look_before_the_set_lets_two_in() {
    let model = std::cell::RefCell::new(Model::default());
    let (inside, most) = (AtomicU32::new(0), AtomicU32::new(0));
    let contender = async |value: &'static str| {
        while model.borrow_mut().get(0).is_some() {
            tokio::task::yield_now().await;
        }
        // The read and the write are two commands, and others can come between them.
        tokio::task::yield_now().await;
        model.borrow_mut().set(value, Some(10));
        most.fetch_max(1 + inside.fetch_add(1, SeqCst), SeqCst);
        tokio::task::yield_now().await;
        inside.fetch_sub(1, SeqCst);
        model.borrow_mut().key = None;
    };
    tokio::join!(contender("a"), contender("b"));
    assert_eq!(most.load(SeqCst), 2, "two inside");
}

/// After a crash without an unlock, the lock ends within its expiry and half a second of log time. Then others can
/// lock, and the old owner's script finds nothing.
async fn r_red_02_r_red_06_no_lock_without_an_end<S: LockService>(service: S) {
    let client = client(service, "red-02");
    let lock = RedisLock::new(client.clone());
    assert!(lock.try_get_distributed_lock("k", "dead", SHORT).await.expect("answered"));
    ended(&client, "k").await;
    let history = client.history(Some("k"), None).expect("a name").all().await.expect("kept");
    let [granted, expired] = &history[..] else { panic!("a grant and its end: {history:?}") };
    assert!(matches!(expired.event.kind, EventKind::Expired { .. }), "{expired:?}");
    let end = granted.event.at.after_ms(u64::try_from(SHORT.as_millis()).expect("a short time"));
    assert!(end < expired.event.at && expired.event.at <= end.after_ms(LATE_MS_MAX), "{history:?}");
    assert_eq!(lock.get("k").await.expect("answered"), None);
    assert!(!lock.release_distributed_lock("k", "dead").await.expect("answered"));
    assert!(lock.try_get_distributed_lock("k", "next", LONG).await.expect("answered"));
}

#[test]
fn r_red_02_r_red_06_in_the_model_a_dead_owner_keeps_it_or_deletes_anothers() {
    let mut endless = Model::default();
    assert!(endless.set_nx(0, "dead", None), "without PX");
    assert!(!endless.set_nx(1_000_000, "next", Some(1_000_010)), "no client can lock again");
    // With PX the key expires; an owner that only remembers that it locked deletes the key of the next one.
    let mut run_out = Model::default();
    let locked = run_out.set_nx(0, "dead", Some(10));
    assert_eq!(run_out.get(10), None);
    assert!(run_out.set_nx(11, "next", Some(21)));
    if locked {
        run_out.key = None;
    }
    assert!(run_out.set_nx(12, "third", Some(22)), "two clients hold the lock");
}

/// Only the client that locked can unlock. With NX an existing key keeps its value and its expiry.
async fn r_red_04_r_red_05_only_the_locker_unlocks<S: LockService>(service: S) {
    let lock = RedisLock::new(client(service, "red-04"));
    assert!(lock.try_get_distributed_lock("k", "a", LONG).await.expect("answered"));
    let before = lock.get("k").await.expect("answered");
    assert!(!lock.release_distributed_lock("k", "b").await.expect("answered"));
    assert!(!lock.try_get_distributed_lock("k", "b", LONG * 9).await.expect("answered"));
    assert!(!lock.try_get_distributed_lock("k", "a", LONG * 9).await.expect("answered"));
    assert_eq!(lock.get("k").await.expect("answered"), before);
    assert!(lock.release_distributed_lock("k", "a").await.expect("answered"));
}

#[test]
fn r_red_04_r_red_05_in_the_model_any_client_unlocks_and_overwrites() {
    let mut deleted_key = Model::default();
    assert!(deleted_key.set_nx(0, "a", Some(10)));
    deleted_key.key = None;
    assert!(deleted_key.set_nx(1, "b", Some(11)), "B deleted the key of A, which still works");
    // Without NX the loser's SET changes both the value and the expiry.
    let mut overwritten = Model::default();
    assert!(overwritten.set_nx(0, "a", Some(10)));
    overwritten.set("b", Some(1_000));
    assert_eq!((overwritten.get(10), overwritten.key), (Some("b"), Some(("b", Some(1_000)))));
}

/// The scripts of real clients (compare and delete, compare and extend): only the owner of the value changes the
/// expiry, and an expired key is not revived.
async fn r_red_07_the_scripts_compare_first<S: LockService>(service: S) {
    let client = client(service, "red-07");
    let lock = RedisLock::new(client.clone());
    assert!(!lock.extend_distributed_lock("k", "a", LONG).await.expect("answered"), "no key");
    assert!(lock.try_get_distributed_lock("k", "a", LONG).await.expect("answered"));
    let first = lock.get("k").await.expect("answered").expect("held");
    assert!(!lock.extend_distributed_lock("k", "b", LONG * 9).await.expect("answered"));
    assert_eq!(lock.get("k").await.expect("answered"), Some(first.clone()));
    assert!(lock.extend_distributed_lock("k", "a", LONG * 2).await.expect("answered"));
    let longer = lock.get("k").await.expect("answered").expect("held");
    assert!(first.deadline < longer.deadline && first.token == longer.token);
    assert!(lock.extend_distributed_lock("k", "a", SHORT).await.expect("answered"), "an earlier expiry is allowed");
    ended(&client, "k").await;
    assert!(!lock.extend_distributed_lock("k", "a", LONG).await.expect("answered"));
    assert!(!lock.release_distributed_lock("k", "a").await.expect("answered"));
}

/// A hundred requests check for a row, find none and insert it: with the lock there is one row.
async fn r_red_08_one_row_under_the_lock<S: LockService>(service: S) {
    let client = client(service, "red-08");
    let rows = AtomicU32::new(0);
    let request = async |number: u32| {
        let (lock, id) = (RedisLock::new(client.clone()), number.to_string());
        while !lock.try_get_distributed_lock("k", &id, LONG).await.expect("answered") {
            tokio::time::sleep(POLL).await;
        }
        if rows.load(SeqCst) == 0 {
            tokio::task::yield_now().await;
            rows.fetch_add(1, SeqCst);
        }
        assert!(lock.release_distributed_lock("k", &id).await.expect("answered"));
    };
    join_all((0..100).map(request)).await;
    assert_eq!(rows.load(SeqCst), 1);
}

#[tokio::test]
async fn r_red_08_in_the_model_without_the_lock_there_are_many() {
    let rows = AtomicU32::new(0);
    let request = async || {
        if rows.load(SeqCst) == 0 {
            tokio::task::yield_now().await;
            rows.fetch_add(1, SeqCst);
        }
    };
    join_all((0..100).map(|_| request())).await;
    assert!(1 < rows.load(SeqCst));
}

/// An expired lock that another client holds now is not deleted by its old owner.
async fn w_red_u2_the_lock_of_another_stays<S: LockService>(service: S) {
    let client = client(service, "red-u2");
    let lock = RedisLock::new(client.clone());
    assert!(lock.try_get_distributed_lock("k", "a", SHORT).await.expect("answered"));
    ended(&client, "k").await;
    assert!(lock.try_get_distributed_lock("k", "b", LONG).await.expect("answered"));
    assert!(!lock.release_distributed_lock("k", "a").await.expect("answered"));
    assert!(lock.release_distributed_lock("k", "b").await.expect("still there"));
}

#[test]
fn w_red_u2_in_the_model_the_lock_of_another_is_deleted() {
    let mut model = Model::default();
    assert!(model.set_nx(0, "a", Some(10)));
    let mine = model.get(9) == Some("a");
    assert!(model.set_nx(10, "b", Some(20)), "it expired, and B locked");
    if mine {
        model.key = None;
    }
    assert!(model.set_nx(11, "c", Some(21)), "B and C have it");
}

/// No call creates a lock without an expiry, and none deletes the lock of another client, as the first clients could.
async fn w_red_l1_w_red_l2_w_red_u1_no_such_path<S: LockService>(service: S) {
    let client = client(service, "red-l1");
    let lock = RedisLock::new(client.clone());
    assert!(lock.try_get_distributed_lock("k", "a", LONG).await.expect("answered"));
    let end = lock.get("k").await.expect("answered").expect("held").deadline;
    assert!(end.is_some(), "every lock has an end from its first moment");
    assert!(!lock.release_distributed_lock("k", "another").await.expect("answered"));
    assert_eq!(lock.get("k").await.expect("answered").expect("held").deadline, end);
}

#[test]
fn w_red_l1_w_red_l2_w_red_u1_in_the_model() {
    let mut crashed = Model::default();
    assert!(crashed.set_nx(0, "a", None), "EXPIRE was never sent");
    assert!(!crashed.set_nx(u64::MAX, "b", None), "locked permanently");
    let mut deleted = Model::default();
    assert!(deleted.set_nx(0, "a", Some(10)));
    deleted.key = None;
    assert!(deleted.set_nx(1, "b", Some(11)), "a plain DEL by B");
    // The value is the expiry, and a loser's GETSET overwrites the winner's.
    let (mut value, now) = (5_u64, 6);
    let winner = std::mem::replace(&mut value, 16) < now;
    let loser = std::mem::replace(&mut value, 1_000) < now;
    assert_eq!((winner, loser, value), (true, false, 1_000), "the loser changed the winner's expiry");
}

/// A duration of zero is an error of the caller and does not mean a lock without an expiry.
async fn w_red_01_no_time_is_an_error<S: LockService>(service: S) {
    let lock = RedisLock::new(client(service, "red-w1"));
    for none in [Duration::ZERO, Duration::from_micros(900)] {
        let refused = lock.try_get_distributed_lock("k", "a", none).await.expect_err("refused");
        assert_eq!(refused.code(), ErrorCode::Invalid, "{refused}");
    }
    assert_eq!(lock.get("k").await.expect("answered"), None);
}

#[test]
fn w_red_01_in_the_model_no_time_means_no_expiry() {
    let (wanted_ms, mut model) = (900_u64, Model::default());
    // The client converts to seconds and omits an expiry of zero.
    let seconds = wanted_ms / 1_000;
    assert!(model.set_nx(0, "a", Some(seconds).filter(|seconds| 0 < *seconds)));
    assert!(!model.set_nx(1_000_000, "b", None), "locked permanently");
}

recipe_tests! {
    r_red_01_one_client_at_any_time
    r_red_02_r_red_06_no_lock_without_an_end
    r_red_04_r_red_05_only_the_locker_unlocks
    r_red_07_the_scripts_compare_first
    r_red_08_one_row_under_the_lock
    w_red_u2_the_lock_of_another_stays
    w_red_l1_w_red_l2_w_red_u1_no_such_path
    w_red_01_no_time_is_an_error
}
