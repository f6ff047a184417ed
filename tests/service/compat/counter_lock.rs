//! The counter lock: its correct behaviour, and faults of the original.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use lockkeeper::client::ClientError;
use lockkeeper::compat::counter_lock::CounterLock;
use lockkeeper::service::{ErrorCode, LockService};

use super::ended;
use crate::suite::{LONG, SHORT, client};

/// A model of the original: a collection without a unique index, and callers that supply the time.
#[derive(Default)]
struct Model {
    records: Vec<(&'static str, u64, u64)>,
}

impl Model {
    fn find(&self, key: &str) -> Option<(u64, u64)> {
        self.records.iter().find(|(known, ..)| *known == key).map(|(_, value, expire)| (*value, *expire))
    }

    fn incr(&mut self, key: &'static str, expire: u64) -> u64 {
        match self.records.iter_mut().find(|(known, ..)| *known == key) {
            Some(record) => {
                record.1 += 1;
                record.2 = expire;
                record.1
            }
            None => {
                self.records.push((key, 1, expire));
                1
            }
        }
    }

    fn remove(&mut self, condition: impl Fn(&(&str, u64, u64)) -> bool) {
        self.records.retain(|record| !condition(record));
    }

    fn get_lock(&mut self, key: &'static str, now: u64, lease: u64) -> bool {
        if self.find(key).is_some_and(|(_, expire)| now <= expire) {
            return false;
        }
        self.remove(|(known, _, expire)| *known == key && *expire < now);
        self.incr(key, now + lease) == 1
    }
}

/// A free key is acquired with value 1; a second try is refused.
async fn r_inc_01_r_inc_02_one_gets_the_lock<S: LockService>(service: S) {
    let client = client(service, "inc-01");
    let (one, two) = (CounterLock::new(client.clone()), CounterLock::new(client.clone()));
    assert!(one.get_lock("k", LONG).await.expect("answered"));
    assert_eq!(one.get_by_key("k").await.expect("answered").expect("held").value, 1);
    assert!(!two.get_lock("k", LONG).await.expect("answered"));
    assert!(!one.get_lock("k", LONG).await.expect("answered"), "not by the same caller either");
    assert!(one.release_lock("k").await.expect("answered"));
}

/// The lock is held at its end and free after it: the next grant is later than the end.
async fn r_inc_03_r_inc_05_it_is_free_only_past_its_end<S: LockService>(service: S) {
    let client = client(service, "inc-03");
    let (one, two) = (CounterLock::new(client.clone()), CounterLock::new(client.clone()));
    assert!(one.get_lock("k", SHORT).await.expect("answered"));
    let seen = one.get_by_key("k").await.expect("answered");
    drop(one);
    let taken = async {
        while !two.get_lock("k", LONG).await.expect("answered") {
            tokio::time::sleep(crate::suite::POLL).await;
        }
    };
    tokio::time::timeout(LONG, taken).await.expect("the next caller gets it");
    let since = client.inspect("k").await.expect("inspected").value.holders[0].since;
    assert!(seen.is_none_or(|seen| seen.expire < since), "{seen:?} {since:?}");
}

/// After a release the next caller gets value 1 again.
async fn r_inc_04_released_is_free<S: LockService>(service: S) {
    let lock = CounterLock::new(client(service, "inc-04"));
    for _ in 0..3 {
        assert!(lock.get_lock("k", LONG).await.expect("answered"));
        assert_eq!(lock.get_by_key("k").await.expect("answered").expect("held").value, 1);
        assert!(lock.release_lock("k").await.expect("answered"));
        assert_eq!(lock.get_by_key("k").await.expect("answered"), None);
    }
}

/// A release without an answer, or one that its caller dropped, leaves the lock to its caller, who releases it again.
async fn r_inc_04_an_unanswered_release_is_repeated<S: LockService>(service: S) {
    let (faulty, faults) = crate::faulty::Faulty::new(service);
    let client = client(faulty, "inc-04-cut");
    let hasty = CounterLock::new(client.clone().request_wait(SHORT * 10));
    assert!(hasty.get_lock("k", LONG).await.expect("answered"));
    faults.detached.store(true, SeqCst);
    let unreachable = hasty.release_lock("k").await.expect_err("there is no answer");
    assert!(matches!(unreachable, ClientError::Service(_)), "{unreachable:?}");
    assert!(tokio::time::timeout(Duration::ZERO, hasty.release_lock("k")).await.is_err(), "its caller drops it");
    faults.detached.store(false, SeqCst);
    assert!(hasty.release_lock("k").await.expect("answered"), "it is still held");
    assert!(!hasty.release_lock("k").await.expect("answered"));
    assert_eq!(client.inspect("k").await.expect("inspected").value.holders.len(), 0);
}

/// To remove an expired lock, a caller must pass what it read. A newer lock of another caller stays.
async fn w_inc_01_a_fresh_lock_is_not_removed<S: LockService>(service: S) {
    let client = client(service, "inc-w1");
    let (a, b) = (CounterLock::new(client.clone()), CounterLock::new(client.clone()));
    assert!(a.get_lock("k", SHORT).await.expect("answered"));
    let seen = a.get_by_key("k").await.expect("answered");
    ended(&client, "k").await;
    assert!(b.get_lock("k", LONG).await.expect("answered"));
    if let Some(seen) = seen {
        assert!(a.remove_expire("k", seen).await.expect("answered"), "the lock that was read has expired");
    }
    let fresh = b.get_by_key("k").await.expect("answered").expect("still held");
    assert_eq!(Some(fresh.token), b.token("k"));
    assert!(!a.remove_expire("k", fresh).await.expect("answered"), "the newer lock has not expired");
    assert!(b.release_lock("k").await.expect("answered"));
}

#[test]
fn w_inc_01_in_the_model_the_fresh_lock_vanishes() {
    let mut model = Model::default();
    assert!(model.get_lock("k", 0, 10));
    // A and B both read an expired record at 20, and B continues first.
    assert!(model.get_lock("k", 20, 10), "B has it");
    model.remove(|(key, ..)| *key == "k");
    assert_eq!(model.incr("k", 30), 1, "A has it too");
}

/// A refused call does not change the end, whether its lease is a millisecond or a day.
async fn w_inc_02_a_loser_does_not_move_the_end<S: LockService>(service: S) {
    let client = client(service, "inc-w2");
    let (a, b) = (CounterLock::new(client.clone()), CounterLock::new(client));
    assert!(a.get_lock("k", LONG).await.expect("answered"));
    let before = a.get_by_key("k").await.expect("answered");
    for expire in [Duration::from_millis(1), LONG * 20] {
        assert!(!b.get_lock("k", expire).await.expect("answered"));
        assert_eq!(a.get_by_key("k").await.expect("answered"), before);
    }
}

#[test]
fn w_inc_02_w_inc_03_in_the_model_a_loser_moves_the_end() {
    let mut model = Model::default();
    assert_eq!(model.incr("k", 10), 1);
    assert_eq!(model.incr("k", 1_000), 2, "a refused caller between read and increment");
    assert_eq!(model.find("k"), Some((2, 1_000)));
    // One call runs the statement twice: for the value, and for the expiry.
    let mut twice = Model::default();
    twice.incr("k", 10);
    twice.incr("k", 10);
    assert_eq!(twice.find("k"), Some((2, 10)), "the first caller gets the answer of a loser");
}

/// One acquisition is one grant, even if its answer was lost and it was repeated.
async fn w_inc_03_one_acquisition_counts_once<S: LockService>(service: S) {
    let (faulty, faults) = crate::faulty::Faulty::new(service);
    let client = client(faulty, "inc-w3");
    let lock = CounterLock::new(client.clone());
    faults.answers_lost.store(2, std::sync::atomic::Ordering::SeqCst);
    assert!(lock.get_lock("k", LONG).await.expect("repeated"));
    assert_eq!(client.inspect("k").await.expect("inspected").value.holders.len(), 1);
}

/// The key identifies the lock: of many first callers one gets it.
async fn w_inc_04_many_first_callers_get_one_lock<S: LockService>(service: S) {
    let client = client(service, "inc-w4");
    let locks: Vec<_> = (0..20).map(|_| CounterLock::new(client.clone())).collect();
    let acquired = futures_util::future::join_all(locks.iter().map(|lock| lock.get_lock("k", LONG))).await;
    assert_eq!(acquired.into_iter().filter(|acquired| *acquired.as_ref().expect("answered")).count(), 1);
}

#[test]
fn w_inc_04_in_the_model_two_records_have_value_one() {
    let mut model = Model::default();
    // Both upserts look for the key before either inserts.
    let (one, two) = (model.find("k"), model.find("k"));
    assert_eq!((one, two), (None, None));
    model.records.push(("k", 1, 10));
    model.records.push(("k", 1, 10));
    assert_eq!(model.records.iter().filter(|(_, value, _)| *value == 1).count(), 2, "both get value 1");
}

/// Only the holder can release the lock, and no call can release all locks.
async fn w_inc_05_w_inc_07_no_client_releases_for_another<S: LockService>(service: S) {
    let client = client(service, "inc-w5");
    let (a, c) = (CounterLock::new(client.clone()), CounterLock::new(client));
    assert!(a.get_lock("k", LONG).await.expect("answered"));
    assert!(!c.release_lock("k").await.expect("answered"));
    assert!(a.get_by_key("k").await.expect("answered").is_some());
    let everything = c.release_lock("").await.expect_err("refused");
    assert!(matches!(everything, ClientError::Invalid(_)) && everything.code() == ErrorCode::Invalid);
    assert!(a.release_lock("k").await.expect("answered"));
}

#[test]
fn w_inc_05_w_inc_07_in_the_model_any_client_releases() {
    let mut model = Model::default();
    assert!(model.get_lock("k", 0, 10) && model.get_lock("other", 0, 10));
    model.remove(|(key, ..)| *key == "k");
    assert!(model.get_lock("k", 1, 10), "C released A's lock");
    model.remove(|_| true);
    assert!(model.records.is_empty(), "an empty condition");
}

/// The clock of a caller does not matter: a caller whose clock is ahead gets no lock early.
async fn w_inc_06_no_callers_clock_decides<S: LockService>(service: S) {
    let client = client(service, "inc-w6");
    let a = CounterLock::new(client.clone());
    assert!(a.get_lock("k", LONG).await.expect("answered"));
    let ahead = std::sync::Arc::new(lockkeeper::clock::ManualClock::new(7));
    ahead.advance(LONG * 100);
    let b = CounterLock::new(client.clock(ahead));
    assert!(!b.get_lock("k", LONG).await.expect("answered"));
}

#[test]
fn w_inc_06_in_the_model_a_fast_clock_takes_early() {
    let mut model = Model::default();
    assert!(model.get_lock("k", 0, 10));
    assert!(model.get_lock("k", 11, 10), "by a caller whose clock is 11 ahead at the same moment");
}

recipe_tests! {
    r_inc_01_r_inc_02_one_gets_the_lock
    r_inc_03_r_inc_05_it_is_free_only_past_its_end
    r_inc_04_released_is_free
    r_inc_04_an_unanswered_release_is_repeated
    w_inc_01_a_fresh_lock_is_not_removed
    w_inc_02_a_loser_does_not_move_the_end
    w_inc_03_one_acquisition_counts_once
    w_inc_04_many_first_callers_get_one_lock
    w_inc_05_w_inc_07_no_client_releases_for_another
    w_inc_06_no_callers_clock_decides
}
