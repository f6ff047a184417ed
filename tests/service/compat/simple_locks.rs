//! The locks based on a unique index, a flag and a lease: their correct behaviour, and faults of the originals.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use lockkeeper::client::ClientError;
use lockkeeper::clock::{Clock, SystemClock};
use lockkeeper::compat::counter_lock::CounterLock;
use lockkeeper::compat::flag_lock::FlagLock;
use lockkeeper::compat::get_set_lock::GetSetLock;
use lockkeeper::compat::incr_lock::{IncrLock, Increment};
use lockkeeper::compat::lease_lock::LeaseLock;
use lockkeeper::compat::unique_index_lock::UniqueIndexLock;
use lockkeeper::service::{ErrorCode, LockService};

use super::all::{OUTAGE, cut};
use super::probe::Probe;
use super::{ended, passes};
use crate::suite::{LONG, PATIENT, POLL, SHORT, client, session, short_session, until};

/// A model of the documents of the originals: name, `locked`, and `expireAt`.
#[derive(Default)]
struct Model {
    documents: Vec<(&'static str, bool, u64)>,
}

impl Model {
    fn insert(&mut self, name: &'static str, expire: u64) -> bool {
        let new = self.documents.iter().all(|(known, ..)| *known != name);
        if new {
            self.documents.push((name, true, expire));
        }
        new
    }

    fn find(&mut self, name: &str) -> Option<&mut (&'static str, bool, u64)> {
        self.documents.iter_mut().find(|(known, ..)| *known == name)
    }

    /// Takes the flag by find-and-modify without an upsert.
    fn take_flag(&mut self, name: &str) -> bool {
        self.find(name).is_some_and(|document| !std::mem::replace(&mut document.1, true))
    }

    fn take_lease(&mut self, name: &str, now: u64) -> bool {
        let Some(document) = self.find(name).filter(|document| document.2 < now) else { return false };
        (document.1, document.2) = (true, now + 30);
        true
    }
}

/// An insert succeeds for a free name, is refused while the record exists, and succeeds again after its delete.
async fn r_uni_01_one_inserts<S: LockService>(service: S) {
    let lock = UniqueIndexLock::new(client(service, "uni-01"));
    let record = lock.insert("k", LONG).await.expect("answered").expect("free");
    assert!(lock.insert("k", LONG).await.expect("answered").is_none());
    assert!(record.delete().await.expect("answered"));
    assert!(lock.insert("k", LONG).await.expect("answered").is_some());
}

/// The record is kept while it is refreshed; then it expires, as it does after a crash.
async fn r_uni_02_w_uni_01_w_uni_02_it_frees_itself<S: LockService>(service: S) {
    let client = client(service, "uni-02");
    let lock = UniqueIndexLock::new(client.clone());
    let mut record = lock.insert("k", LONG).await.expect("answered").expect("free");
    for _ in 0..5 {
        assert!(record.refresh(LONG).await.expect("answered"));
        assert!(lock.insert("k", LONG).await.expect("answered").is_none());
    }
    assert!(record.refresh(SHORT).await.expect("answered"));
    drop(record);
    ended(&client, "k").await;
    assert!(lock.insert("k", LONG).await.expect("answered").is_some(), "the expired record does not block the insert");
}

#[test]
fn w_uni_01_w_uni_02_in_the_model_it_stays_permanently() {
    let mut model = Model::default();
    assert!(model.insert("k", 10));
    assert!(!model.insert("k", 1_000_000), "the holder is dead, and expireAt is never read");
}

/// Only the client that inserted the record can delete it.
async fn w_uni_03_no_client_deletes_for_another<S: LockService>(service: S) {
    let client = client(service, "uni-w3");
    let lock = UniqueIndexLock::new(client.clone());
    let record = lock.insert("k", LONG).await.expect("answered").expect("free");
    let other = lockkeeper::model::Handle::parse("another handle").expect("legal");
    client.release("k", &other).await.expect_err("refused");
    assert!(record.delete().await.expect("still there"));
}

#[test]
fn w_uni_03_in_the_model_any_client_deletes() {
    let mut model = Model::default();
    assert!(model.insert("k", 10));
    model.documents.retain(|(name, ..)| *name != "k");
    assert!(model.insert("k", 10), "two clients hold the lock");
}

/// A lost answer, a refusal, an ended lock and a held lock are four different answers.
async fn w_uni_04_four_answers<S: LockService>(service: S) {
    let (faulty, faults) = crate::faulty::Faulty::new(service);
    let client = client(faulty, "uni-w4");
    let lock = UniqueIndexLock::new(client.clone());
    let mut record = lock.insert("k", LONG).await.expect("answered").expect("free");
    assert!(lock.insert("k", LONG).await.expect("held is an answer").is_none());
    let refused = lock.insert("k2", Duration::ZERO).await.expect_err("a duration of zero");
    assert_eq!(refused.code(), ErrorCode::Invalid);
    faults.answers_lost.store(u32::MAX, SeqCst);
    let hasty = UniqueIndexLock::new(client.clone().request_wait(SHORT * 10));
    let lost = hasty.insert("k3", LONG).await.expect_err("there is no answer");
    assert_eq!(lost.code(), ErrorCode::Unknown);
    faults.answers_lost.store(0, SeqCst);
    assert!(record.refresh(Duration::from_millis(1)).await.expect("answered"));
    ended(&client, "k").await;
    assert!(!record.refresh(LONG).await.expect("ended is an answer"));
}

#[test]
fn w_uni_04_in_the_model_every_exception_is_held() {
    #[derive(Debug)]
    enum Exception {
        DuplicateKey,
        ConnectionLost,
        NotAuthorized,
    }
    let sample = |insert: Result<(), Exception>| insert.is_ok();
    let answers = [Exception::DuplicateKey, Exception::ConnectionLost, Exception::NotAuthorized].map(Err).map(sample);
    assert_eq!(answers, [false; 3], "the same answer for a held lock, for one that may be acquired, and for a refusal");
}

/// A flag can be set if it is not set, also for a name that was never used, and only its owner can clear it.
async fn r_flag_01_r_flag_02_w_flag_02_w_flag_03_one_sets_the_flag<S: LockService>(service: S) {
    let (one, two) =
        (FlagLock::new(session(service.clone(), "flag").await), FlagLock::new(session(service, "flag").await));
    assert!(one.lock("never seen").await.expect("answered"));
    assert!(!two.lock("never seen").await.expect("answered"));
    assert!(!two.unlock("never seen").await.expect("answered"), "not its own");
    assert!(!two.lock("never seen").await.expect("answered"));
    assert!(one.unlock("never seen").await.expect("answered"));
    assert!(two.lock("never seen").await.expect("answered"));
}

#[test]
fn w_flag_01_w_flag_02_w_flag_03_in_the_model() {
    let mut model = Model::default();
    assert!(!model.take_flag("k"), "the document has to be there beforehand");
    model.documents.push(("k", false, 0));
    assert!(model.take_flag("k"));
    assert!(!model.take_flag("k"), "permanently, if the holder crashed");
    model.find("k").expect("there").1 = false;
    assert!(model.take_flag("k"), "another client had cleared it");
}

/// A crash clears the flag: the flag ends with its session, which is no longer renewed.
async fn w_flag_01_a_crash_sets_it_back<S: LockService>(service: S) {
    let (faulty, faults) = crate::faulty::Faulty::new(service.clone());
    let one = FlagLock::new(short_session(faulty, "flag-crash").await);
    let lives = session(service, "flag-crash").await;
    let two = FlagLock::new(lives.clone());
    assert!(one.lock("k").await.expect("answered"));
    assert!(!two.lock("k").await.expect("answered"), "it is set");
    faults.ignores_renewals.store(true, SeqCst);
    ended(&lives.client(), "k").await;
    assert!(two.lock("k").await.expect("answered"));
    assert!(!one.unlock("k").await.unwrap_or(false), "its hold has ended");
}

/// The renewals keep the lease for ten periods of the cluster's time, although one of them fails; no other client gets
/// it.
async fn r_lease_01_r_lease_03_r_lease_04_kept_by_its_renewals<S: LockService>(service: S) {
    let (faulty, faults) = crate::faulty::Faulty::new(service);
    let client = client(faulty, "lease-01");
    // Longer than a slow machine stalls.
    let period = SHORT * 28;
    let lock = LeaseLock::new(client.clone(), period);
    let guard = lock.take("k").await.expect("answered").expect("free");
    let kept = async {
        let (mut held, mut failed) = (Duration::ZERO, false);
        while held < period * 10 {
            assert!(lock.take("k").await.expect("answered").is_none());
            let seen = lock.check("k").await.expect("answered").expect("held");
            assert_eq!(seen.token, guard.token());
            held = Duration::from_millis(client.status().await.expect("a status").log_time.ms_since(seen.since));
            if 2 <= guard.renewals().len() && !failed {
                failed = true;
                // One renewal fails; the next one is in time.
                faults.renewals_forbidden.store(1, SeqCst);
            }
            tokio::time::sleep(POLL).await;
        }
    };
    tokio::time::timeout(PATIENT, kept).await.expect("renewed");
    assert_eq!(faults.renewals_forbidden.load(SeqCst), 0, "one renewal has failed");
    assert!(9 <= guard.renewals().len(), "without one in every period it would have ended");
    assert!(guard.release().await.expect("still held"));
}

/// Two renewals in a row fail, and the third one is in time, because a renewal that failed is repeated before half of
/// the period is over.
async fn r_lease_03_two_renewals_fail_and_the_next_is_in_time<S: LockService>(service: S) {
    let (faulty, faults) = crate::faulty::Faulty::new(service);
    let lock = LeaseLock::new(client(faulty, "lease-03"), SHORT * 200);
    faults.renewals_forbidden.store(2, SeqCst);
    let guard = lock.take("k").await.expect("answered").expect("free");
    tokio::select! {
        biased;
        () = guard.lost() => panic!("two failures cost the lease"),
        () = until("it is renewed", async || !guard.renewals().is_empty()) => {}
    }
    assert_eq!(faults.renewals_forbidden.load(SeqCst), 0);
    assert!(guard.release().await.expect("still held"));
}

/// While a renewal has no answer, the next one is sent. The late answer to the first one still counts, from when that
/// one was sent.
async fn r_lease_03_a_slow_renewal_counts<S: LockService>(service: S) {
    let (probe, seen) = Probe::new(service);
    let lock = LeaseLock::new(client(probe, "lease-slow"), SHORT * 200);
    seen.renewals_paused.store(true, SeqCst);
    let guard = lock.take("k").await.expect("answered").expect("free");
    let sent = async |count: u64| until("it is sent", async || count <= seen.renewals.load(SeqCst)).await;
    let slow = async {
        sent(1).await;
        let first = SystemClock::new().now();
        sent(2).await;
        // Only the first one is forwarded.
        seen.resume.notify_one();
        until("it is answered", async || !guard.renewals().is_empty()).await;
        first
    };
    tokio::select! {
        biased;
        () = guard.lost() => panic!("a slow renewal cost the lease"),
        first = slow => assert!(guard.renewals()[0] <= first, "another renewal was answered"),
    }
    assert!(guard.release().await.expect("still held"));
}

/// A holder without a connection learns of the loss by its own clock, before another client is granted the lock.
async fn r_lease_02_a_holder_without_a_connection_learns_of_the_loss<S: LockService>(service: S) {
    let (faulty, faults) = crate::faulty::Faulty::new(service.clone());
    let lock = LeaseLock::new(client(faulty, "lease-cut"), SHORT * 20);
    let other = client(service, "lease-cut");
    let guard = lock.take("k").await.expect("answered").expect("free");
    cut(&faults);
    let next = other.lease("k").duration(LONG).wait(LONG).take();
    tokio::pin!(next);
    let notified = async {
        tokio::select! {
            biased;
            () = guard.lost() => {}
            _ = &mut next => panic!("granted before the holder was notified"),
        }
    };
    tokio::time::timeout(LONG, notified).await.expect("notified");
    let next = next.await.expect("the lease has ended");
    assert!(guard.token() < next.token());
    next.release().await.expect("held");
}

/// Without renewals the lease ends one period after the last one, and not before: the next grant is later than its end.
async fn r_lease_02_over_one_period_after_the_last_renewal<S: LockService>(service: S) {
    let client = client(service, "lease-02");
    let lock = LeaseLock::new(client.clone(), SHORT * 4);
    let guard = lock.take("k").await.expect("answered").expect("free");
    guard.stop_renewing();
    let end = lock.check("k").await.expect("answered").and_then(|seen| seen.deadline);
    let next = client.lease("k").duration(LONG).wait(LONG).take().await.expect("it ends");
    let since = lock.check("k").await.expect("answered").expect("held").since;
    assert!(end.is_none_or(|end| end < since) && guard.token() < next.token());
    next.release().await.expect("released");
}

/// A name that was never used is free, and a released name is free at once.
async fn w_lease_01_w_lease_02_free_at_once<S: LockService>(service: S) {
    let lock = LeaseLock::new(client(service, "lease-w1"), LONG);
    for _ in 0..3 {
        let guard = lock.take("never used").await.expect("answered").expect("free");
        assert!(guard.release().await.expect("answered"));
        assert_eq!(lock.check("never used").await.expect("answered"), None);
    }
}

#[test]
fn w_lease_01_w_lease_02_w_lease_03_in_the_model() {
    let mut model = Model::default();
    assert!(!model.take_lease("k", 100), "no upsert: a new name is never taken");
    model.documents.push(("k", false, 0));
    assert!(model.take_lease("k", 100));
    model.find("k").expect("there").1 = false;
    assert!(!model.take_lease("k", 101), "released, but expireAt lies in the future");
    assert!(model.take_lease("k", 131), "B takes over");
    // A's timer renews by name alone.
    model.find("k").expect("there").2 = 1_000;
    assert!(!model.take_lease("k", 999), "A renewed the lease of B");
}

/// The old holder's timer does not renew the lease of another client. The old holder is notified and its timer stops.
async fn w_lease_03_w_lease_04_no_renewal_without_a_hold<S: LockService>(service: S) {
    let client = client(service, "lease-w3");
    let lock = LeaseLock::new(client.clone(), SHORT * 10);
    let old = lock.take("k").await.expect("answered").expect("free");
    client.break_hold("k", old.token(), "stuck").await.expect("broken");
    let new = client.lease("k").duration(LONG).take().await.expect("free");
    tokio::time::timeout(LONG, old.lost()).await.expect("the old holder is notified");
    let seen = lock.check("k").await.expect("answered").expect("held");
    assert_eq!((seen.token, seen.deadline), (new.token(), Some(new.deadline())), "untouched");
    assert!(!old.release().await.expect("answered"));
    new.release().await.expect("held");
}

/// A guard that was released or dropped sends no more renewals.
async fn w_lease_04_no_renewal_after_the_release<S: LockService>(service: S) {
    let (probe, seen) = Probe::new(service);
    let client = client(probe, "lease-w4");
    let period = SHORT * 10;
    let lock = LeaseLock::new(client.clone(), period);
    let guard = lock.take("k").await.expect("answered").expect("free");
    until("its timer runs", async || !guard.renewals().is_empty()).await;
    assert!(guard.release().await.expect("held"));
    let before = seen.renewals.load(SeqCst);
    assert!(0 < before);
    passes(&client, period * 2).await;
    assert_eq!(seen.renewals.load(SeqCst), before, "no renewal is sent");
    let next = lock.take("k").await.expect("answered").expect("free");
    drop(next);
    ended(&client, "k").await;
}

#[test]
fn w_lease_04_in_the_model_the_timer_keeps_running() {
    let mut model = Model::default();
    model.documents.push(("k", false, 0));
    assert!(model.take_lease("k", 1));
    // The lock is released, and the end is cleared as well, as a later version does. But the timer was not stopped.
    let document = model.find("k").expect("there");
    (document.1, document.2) = (false, 0);
    for tick in 1..100 {
        model.find("k").expect("there").2 = tick * 15 + 30;
        assert!(!model.take_lease("k", tick * 15 + 10), "it has no holder and cannot be acquired");
    }
}

/// The result of a take has its own type, which cannot be misread: a guard, nothing, or an error.
async fn w_lease_05_the_result_is_typed<S: LockService>(service: S) {
    let lock = LeaseLock::new(client(service, "lease-w5"), LONG);
    let guard: lockkeeper::compat::lease_lock::LeaseGuard<S> = lock.take("k").await.expect("answered").expect("free");
    assert!(lock.take("k").await.expect("answered").is_none());
    assert!(guard.release().await.expect("held"));
}

#[test]
fn w_lease_05_in_the_model_the_field_is_never_there() {
    let mut model = Model::default();
    model.documents.push(("k", false, 0));
    assert!(model.take_lease("k", 1));
    // The helper returns the document itself; the sample looks for the fields of the raw command's answer.
    let answer = std::collections::BTreeMap::from([("_id", "k"), ("locked", "true"), ("expireAt", "31")]);
    let took = answer.contains_key("value") && answer.contains_key("ok");
    assert!(!took && model.find("k").expect("there").1, "it acquired the lock, but does not detect that");
}

/// A release that was not sent leaves the lock to its caller, who releases it again. If a release was executed and its
/// answers were lost, the next one succeeds, because its caller released the lock.
async fn an_unanswered_release_is_repeated<S: LockService>(service: S) {
    let (faulty, faults) = crate::faulty::Faulty::new(service);
    let client = client(faulty, "release-cut").request_wait(OUTAGE);
    let record = UniqueIndexLock::new(client.clone()).insert("index", LONG).await.expect("answered").expect("free");
    let leased = LeaseLock::new(client.clone(), LONG).take("lease").await.expect("answered").expect("free");
    let swapped = GetSetLock::new(client.clone()).set_nx("swap", LONG).await.expect("answered").expect("free");
    let counter = CounterLock::new(client.clone());
    assert!(counter.get_lock("counter", LONG).await.expect("answered"));
    let incr = IncrLock::new(client);
    let Increment::First(first) = incr.incr("incr", LONG).await.expect("answered") else { panic!("free") };
    let released = async || {
        let (index, lease, swap, counted, incr) = tokio::join!(
            record.delete(),
            leased.release(),
            swapped.unlock(),
            counter.release_lock("counter"),
            incr.reset(&first)
        );
        [index, lease, swap, counted, incr]
    };
    let unanswered = async || {
        for cut in released().await {
            assert!(matches!(cut, Err(ClientError::Service(_))), "{cut:?}");
        }
    };
    faults.detached.store(true, SeqCst);
    unanswered().await;
    faults.detached.store(false, SeqCst);
    faults.answers_lost.store(u32::MAX, SeqCst);
    unanswered().await;
    faults.answers_lost.store(0, SeqCst);
    for released in released().await {
        assert!(released.expect("answered"), "its caller released it");
    }
    for again in released().await {
        assert!(!again.expect("answered"), "it was released before");
    }
}

recipe_tests! {
    an_unanswered_release_is_repeated
    r_uni_01_one_inserts
    r_uni_02_w_uni_01_w_uni_02_it_frees_itself
    w_uni_03_no_client_deletes_for_another
    w_uni_04_four_answers
    r_flag_01_r_flag_02_w_flag_02_w_flag_03_one_sets_the_flag
    w_flag_01_a_crash_sets_it_back
    r_lease_01_r_lease_03_r_lease_04_kept_by_its_renewals
    r_lease_02_over_one_period_after_the_last_renewal
    r_lease_02_a_holder_without_a_connection_learns_of_the_loss
    r_lease_03_two_renewals_fail_and_the_next_is_in_time
    r_lease_03_a_slow_renewal_counts
    w_lease_01_w_lease_02_free_at_once
    w_lease_03_w_lease_04_no_renewal_without_a_hold
    w_lease_04_no_renewal_after_the_release
    w_lease_05_the_result_is_typed
}
