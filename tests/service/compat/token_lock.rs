//! The token lock: its correct behaviour, and faults of the original.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use lockkeeper::compat::token_lock::TokenLock;
use lockkeeper::service::LockService;

use super::ended;
use super::probe::Probe;
use crate::suite::{LONG, POLL, SHORT, client, in_use};

/// The number of concurrent callers.
const CALLERS: u64 = 30;

/// A model of the original's collection: one document with its end and its token. Callers supply the time.
#[derive(Default)]
struct Model {
    document: Option<(u64, u64)>,
}

impl Model {
    /// Upserts with set-on-insert. Returns the token of the document afterwards.
    fn upsert(&mut self, expire: u64, token: u64) -> u64 {
        self.document.get_or_insert((expire, token)).1
    }

    fn refresh(&mut self, expire: u64, token: u64) -> (bool, bool) {
        match &mut self.document {
            Some((end, mine)) if *mine == token => {
                let modified = *end != expire;
                *end = expire;
                (true, modified)
            }
            _ => (false, false),
        }
    }
}

/// A free key gives a token. A second caller, and the same caller again, get nothing, and the document is unchanged.
async fn r_tok_01_r_tok_02_r_tok_11_one_gets_a_token<S: LockService>(service: S) {
    let lock = TokenLock::new(client(service, "tok-01"));
    let token = lock.acquire("k", LONG).await.expect("answered").expect("free");
    let document = lock.find("k").await.expect("answered").expect("held");
    assert_eq!(document.token, token.fencing);
    assert_eq!(lock.acquire("k", LONG * 2).await.expect("answered"), None);
    assert_eq!(lock.find("k").await.expect("answered"), Some(document));
    assert!(lock.release("k", &token).await.expect("answered"));
}

/// An expired key gives a new token to one of fifty callers.
async fn r_tok_03_r_tok_05_an_expired_one_goes_to_one<S: LockService>(service: S) {
    let client = client(service, "tok-03");
    let lock = TokenLock::new(client.clone());
    let old = lock.acquire("k", SHORT).await.expect("answered").expect("free");
    ended(&client, "k").await;
    let takers = (0..50).map(|_| lock.acquire("k", LONG));
    let acquired =
        futures_util::future::join_all(takers).await.into_iter().filter_map(|acquired| acquired.expect("answered"));
    let acquired: Vec<_> = acquired.collect();
    assert_eq!(acquired.len(), 1);
    assert!(old.fencing < acquired[0].fencing);
}

/// A lock that was refreshed after it was read is not removed: the condition covers token and end.
async fn r_tok_04_a_refreshed_lock_lives<S: LockService>(service: S) {
    let client = client(service, "tok-04");
    let lock = TokenLock::new(client.clone());
    let token = lock.acquire("k", LONG).await.expect("answered").expect("free");
    let seen = lock.find("k").await.expect("answered").expect("held");
    assert!(lock.refresh("k", &token, LONG * 2).await.expect("answered"));
    let refused = client
        .remove_expired("k", seen.token, seen.deadline.expect("a lease ends"))
        .await
        .expect_err("it was refreshed");
    assert_eq!(refused.code(), lockkeeper::service::ErrorCode::Changed);
    assert_eq!(lock.acquire("k", LONG).await.expect("answered"), None);
    assert!(lock.release("k", &token).await.expect("answered"));
}

/// At its end the lock is still held: the next grant is later.
async fn r_tok_06_it_is_over_only_past_its_end<S: LockService>(service: S) {
    let client = client(service, "tok-06");
    let lock = TokenLock::new(client.clone());
    lock.acquire("k", SHORT).await.expect("answered").expect("free");
    let seen = lock.find("k").await.expect("answered");
    let next = lock.acquire_within("k", LONG, LONG).await.expect("answered").expect("it ends");
    let now = lock.find("k").await.expect("answered").expect("held");
    assert_eq!(now.token, next.fencing);
    assert!(seen.is_none_or(|seen| seen.deadline < Some(now.since)));
}

/// A wrong token, an old one and a second release change nothing, and neither does a refresh with one of them.
async fn r_tok_07_r_tok_08_r_tok_09_only_the_own_token_counts<S: LockService>(service: S) {
    let lock = TokenLock::new(client(service, "tok-07"));
    let old = lock.acquire("k", LONG).await.expect("answered").expect("free");
    assert!(lock.release("k", &old).await.expect("answered"));
    assert!(!lock.release("k", &old).await.expect("answered"));
    assert!(!lock.refresh("k", &old, LONG).await.expect("answered"));
    let new = lock.acquire("k", LONG).await.expect("answered").expect("free");
    assert!(!lock.release("k", &old).await.expect("answered"));
    assert!(!lock.refresh("k", &old, LONG * 3).await.expect("answered"));
    assert_eq!(lock.find("k").await.expect("answered").expect("held").token, new.fencing);
    assert!(lock.release("k", &new).await.expect("answered"));
}

/// A refresh after the end revives nothing, even if no other client has acquired the lock.
async fn r_tok_10_a_refresh_after_the_end_is_refused<S: LockService>(service: S) {
    let client = client(service, "tok-10");
    let lock = TokenLock::new(client.clone());
    let token = lock.acquire("k", SHORT).await.expect("answered").expect("free");
    ended(&client, "k").await;
    assert!(!lock.refresh("k", &token, LONG).await.expect("answered"));
    assert_eq!(lock.find("k").await.expect("answered"), None);
}

/// Two clients run the loop. The active one stops without a release, and the other takes over; they never work at the
/// same time.
async fn r_tok_12_the_other_takes_over<S: LockService>(service: S) {
    let lock = TokenLock::new(client(service, "tok-12"));
    let working = AtomicU32::new(0);
    let first = lock.acquire("k", SHORT * 4).await.expect("answered").expect("free");
    assert_eq!(working.fetch_add(1, SeqCst), 0);
    let other = async {
        let token = lock.acquire_within("k", LONG, LONG).await.expect("answered").expect("the first one ends");
        assert_eq!(working.fetch_add(1, SeqCst), 0, "the first client has stopped");
        token
    };
    let dies = async {
        for _ in 0..3 {
            assert!(lock.refresh("k", &first, SHORT * 4).await.expect("answered"));
            tokio::time::sleep(POLL).await;
        }
        // The first client is killed: it stops and releases nothing.
        working.fetch_sub(1, SeqCst);
    };
    let (second, ()) = tokio::join!(other, dies);
    assert!(first.fencing < second.fencing);
}

/// A hold of another kind has no such token and cannot be released with one.
async fn r_tok_13_a_hold_of_another_kind_is_not_mine<S: LockService>(service: S) {
    let client = client(service, "tok-13");
    let lock = TokenLock::new(client.clone());
    let guard = client.lock("k").acquire().await.expect("free");
    assert_eq!(lock.acquire("k", LONG).await.expect("answered"), None);
    let synthetic = lockkeeper::compat::token_lock::Token {
        secret: lockkeeper::model::Handle::parse("synthetic").expect("legal"),
        fencing: guard.token(),
    };
    assert!(!lock.release("k", &synthetic).await.expect("answered"));
    guard.release().await.expect("still held");
}

/// A refresh that changes nothing is a success.
async fn w_tok_01_a_refresh_is_judged_by_its_match<S: LockService>(service: S) {
    let lock = TokenLock::new(client(service, "tok-w1"));
    let token = lock.acquire("k", LONG).await.expect("answered").expect("free");
    for _ in 0..5 {
        assert!(lock.refresh("k", &token, LONG).await.expect("answered"));
    }
}

#[test]
fn w_tok_01_in_the_model_modified_zero_looks_lost() {
    let mut model = Model::default();
    model.upsert(10, 1);
    assert_eq!(model.refresh(10, 1), (true, false), "matched, not modified: the sample stops its work");
}

/// A loop that continues after a success keeps its token, because the token is a separate value and not a variable of
/// the loop.
async fn w_tok_02_the_token_is_not_overwritten<S: LockService>(service: S) {
    let lock = TokenLock::new(client(service, "tok-w2"));
    let mut tokens = Vec::new();
    for _ in 0..3 {
        tokens.extend(lock.acquire("k", LONG).await.expect("answered"));
    }
    assert_eq!(tokens.len(), 1);
    assert!(lock.release("k", &tokens[0]).await.expect("answered"));
}

#[test]
fn w_tok_02_in_the_model_the_loop_loses_its_token() {
    let mut model = Model::default();
    let mut token = None;
    for mine in 1..=2 {
        token = Some(mine).filter(|mine| model.upsert(10, *mine) == *mine);
    }
    assert_eq!((token, model.document), (None, Some((10, 1))), "held, and no client can release it");
}

/// Concurrent callers are granted or refused, never failed, and each sends one request, no matter how many others there
/// are.
async fn w_tok_03_w_tok_04_a_race_is_no_failure<S: LockService>(service: S) {
    let (probe, seen) = Probe::new(service);
    let lock = TokenLock::new(client(probe, "tok-w3"));
    let all = futures_util::future::join_all((0..CALLERS).map(|_| lock.acquire("k", LONG)));
    let acquired = tokio::time::timeout(LONG, all).await.expect("answered");
    assert_eq!(acquired.into_iter().filter(|acquired| acquired.as_ref().expect("no failure").is_some()).count(), 1);
    let requests = seen.requests.load(SeqCst);
    assert!(requests <= 2 * CALLERS, "{requests} requests of {CALLERS} callers: one request and one status call each");
}

#[test]
fn w_tok_03_in_the_model_the_loser_of_the_race_fails() {
    let mut model = Model::default();
    // Both upserts look for the document before either inserts; the unique index refuses the second.
    let found = [model.document, model.document];
    let answers = [1, 2].map(|token| match (found[token as usize - 1], model.document) {
        (None, Some(_)) => Err("duplicate key"),
        _ => Ok(model.upsert(10, token)),
    });
    assert_eq!(answers, [Ok(1), Err("duplicate key")], "the lock is held, but the caller gets a failure");
}

#[test]
fn w_tok_04_in_the_model_each_newcomer_costs_a_call() {
    /// The sample deletes an expired document as it was read and then calls itself. Another client inserts first each
    /// time.
    fn acquire(model: &mut Model, now: u64, mine: u64, newcomers: &mut u64) -> u64 {
        if *newcomers > 0 {
            *newcomers -= 1;
            model.upsert(now - 1, mine + 1_000);
        }
        let token = model.upsert(now + 10, mine);
        if token != mine && model.document.is_some_and(|(end, _)| end < now) {
            model.document = None;
            return 1 + acquire(model, now, mine + 1, newcomers);
        }
        1
    }
    for newcomers in [0, 1, 1_000] {
        assert_eq!(acquire(&mut Model::default(), 10, 1, &mut newcomers.clone()), 1 + newcomers, "nested calls");
    }
}

/// A release wakes the waiter, long before the expiry.
async fn w_tok_05_a_waiter_is_woken_by_the_release<S: LockService>(service: S) {
    let client = client(service, "tok-w5");
    let lock = TokenLock::new(client.clone());
    let first = lock.acquire("k", LONG * 10).await.expect("answered").expect("free");
    let (second, ()) = tokio::join!(lock.acquire_within("k", LONG, LONG), async {
        in_use(&client, "k", 1, 1).await;
        assert!(lock.release("k", &first).await.expect("answered"));
    });
    second.expect("answered").expect("granted by the release");
}

#[test]
fn w_tok_05_in_the_model_it_sleeps_through_the_release() {
    let (mut model, expiration) = (Model::default(), 30);
    model.upsert(expiration, 1);
    // B tries at 0, 30, 60 …; A releases at 1 and acquires again at 29, as C does at 59. No client is slow, and B gets
    // nothing.
    let mut acquired = Vec::new();
    for now in 0..90 {
        match now % 30 {
            1 => model.document = None,
            29 => drop(model.upsert(now + expiration, now)),
            0 if model.upsert(now + expiration, 2) == 2 => acquired.push(now),
            _ => {}
        }
    }
    assert!(acquired.is_empty(), "free for 28 of 30, and never when B tries: {acquired:?}");
}

recipe_tests! {
    r_tok_01_r_tok_02_r_tok_11_one_gets_a_token
    r_tok_03_r_tok_05_an_expired_one_goes_to_one
    r_tok_04_a_refreshed_lock_lives
    r_tok_06_it_is_over_only_past_its_end
    r_tok_07_r_tok_08_r_tok_09_only_the_own_token_counts
    r_tok_10_a_refresh_after_the_end_is_refused
    r_tok_12_the_other_takes_over
    r_tok_13_a_hold_of_another_kind_is_not_mine
    w_tok_01_a_refresh_is_judged_by_its_match
    w_tok_02_the_token_is_not_overwritten
    w_tok_03_w_tok_04_a_race_is_no_failure
    w_tok_05_a_waiter_is_woken_by_the_release
}
