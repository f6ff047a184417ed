//! R-ALL-01 for the locks based on MongoDB and Redis commands and for the config server's locks: held by another
//! client, refused, expired, and unreachable are four answers.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use lockkeeper::client::{Client, ClientError, LockGuard};
use lockkeeper::compat::config_locks::{ConfigLockError, ConfigLocks, ConfigSettings, WaitFor};
use lockkeeper::compat::counter_lock::CounterLock;
use lockkeeper::compat::flag_lock::FlagLock;
use lockkeeper::compat::get_set_lock::{GetSetLock, Swapped};
use lockkeeper::compat::incr_lock::{IncrLock, Increment};
use lockkeeper::compat::lease_lock::LeaseLock;
use lockkeeper::compat::redis_lock::RedisLock;
use lockkeeper::compat::token_lock::TokenLock;
use lockkeeper::compat::unique_index_lock::UniqueIndexLock;
use lockkeeper::model::ProcessId;
use lockkeeper::service::LockService;

use super::all::{Answer, ENDED_TTL, FOUR, OUTAGE, answer_of, cut};
use super::ended;
use crate::changes::lose;
use crate::faulty::{Faults, Faulty};
use crate::suite::{LONG, SHORT, client};

recipe_tests! {
    r_all_01_redis_locks_give_four_answers
    r_all_01_simple_locks_give_four_answers
    r_all_01_flags_give_four_answers
    r_all_01_config_locks_give_four_answers
}

/// A client that can be disconnected, and two locks of another client: `held` is a lock, and `kind` is a semaphore.
struct Setup<S: LockService> {
    client: Client<Faulty<S>>,
    faults: Arc<Faults>,
    _others: [LockGuard; 2],
}

async fn setup<S: LockService>(service: S, name: &str) -> Setup<S> {
    let (faulty, faults) = Faulty::new(service);
    let client = client(faulty, name).request_wait(OUTAGE);
    let held = client.lock("held").acquire().await.expect("free");
    let kind = client.lock("kind").permits(1, 1).acquire().await.expect("free");
    Setup { client, faults, _others: [held, kind] }
}

/// Classifies the answer to a try that must not succeed. `Ok(true)` would be a success.
fn answer_to_try(answer: Result<bool, ClientError>) -> Answer {
    match answer {
        Ok(acquired) => {
            assert!(!acquired, "the try must not succeed");
            Answer::Held
        }
        Err(error) => answer_of(&error),
    }
}

/// Classifies the answer to a release of an expired hold, which must be `Ok(false)`.
fn answer_to_release(answer: Result<bool, ClientError>) -> Answer {
    match answer {
        Ok(was_held) => {
            assert!(!was_held, "the hold has expired");
            Answer::Expired
        }
        Err(error) => panic!("{error:?}"),
    }
}

/// R-ALL-01 for the Redis locks: by SET NX PX, by INCR and by SETNX with GETSET.
async fn r_all_01_redis_locks_give_four_answers<S: LockService>(service: S) {
    let Setup { client, faults, _others } = setup(service, "all-01-redis").await;
    let (redis, incr, get_set) =
        (RedisLock::new(client.clone()), IncrLock::new(client.clone()), GetSetLock::new(client.clone()));
    let set = async |key: &str| answer_to_try(redis.try_get_distributed_lock(key, key, SHORT).await);
    let add = async |key: &str| answer_to_try(incr.incr(key, SHORT).await.map(|acquired| acquired.value() == 1));
    let swap = async |key: &str| {
        answer_to_try(get_set.get_set(key, SHORT).await.map(|acquired| matches!(acquired, Swapped::Won(_))))
    };
    let mut seen = [const { Vec::new() }; 3];
    for key in ["held", "kind"] {
        seen[0].push(set(key).await);
        seen[1].push(add(key).await);
        seen[2].push(swap(key).await);
    }
    assert!(redis.try_get_distributed_lock("set", "own", SHORT).await.expect("answered"));
    let Increment::First(first) = incr.incr("incr", SHORT).await.expect("answered") else { panic!("free") };
    let Swapped::Won(won) = get_set.get_set("swap", SHORT).await.expect("answered") else { panic!("free") };
    for key in ["set", "incr", "swap"] {
        ended(&client, key).await;
    }
    seen[0].push(answer_to_release(redis.release_distributed_lock("set", "own").await));
    seen[1].push(answer_to_release(incr.reset(&first).await));
    seen[2].push(answer_to_release(won.unlock().await));
    cut(&faults);
    let (one, two, three) = tokio::join!(set("free"), add("free"), swap("free"));
    for (seen, last) in seen.iter_mut().zip([one, two, three]) {
        seen.push(last);
    }
    assert_eq!(seen, [(); 3].map(|()| FOUR.to_vec()));
}

/// R-ALL-01 for the counter, token, index and lease locks.
async fn r_all_01_simple_locks_give_four_answers<S: LockService>(service: S) {
    let Setup { client, faults, _others } = setup(service, "all-01-simple").await;
    let (counter, token) = (CounterLock::new(client.clone()), TokenLock::new(client.clone()));
    let (index, lease) = (UniqueIndexLock::new(client.clone()), LeaseLock::new(client.clone(), SHORT));
    let count = async |key: &str| answer_to_try(counter.get_lock(key, SHORT).await);
    let acquire = async |key: &str| answer_to_try(token.acquire(key, SHORT).await.map(|acquired| acquired.is_some()));
    let insert = async |key: &str| answer_to_try(index.insert(key, SHORT).await.map(|acquired| acquired.is_some()));
    let take = async |key: &str| answer_to_try(lease.take(key).await.map(|acquired| acquired.is_some()));
    let mut seen = [const { Vec::new() }; 4];
    for key in ["held", "kind"] {
        seen[0].push(count(key).await);
        seen[1].push(acquire(key).await);
        seen[2].push(insert(key).await);
        seen[3].push(take(key).await);
    }
    assert!(counter.get_lock("count", SHORT).await.expect("answered"));
    let own = token.acquire("token", SHORT).await.expect("answered").expect("free");
    let record = index.insert("index", SHORT).await.expect("answered").expect("free");
    let guard = lease.take("lease").await.expect("answered").expect("free");
    guard.stop_renewing();
    for key in ["count", "token", "index", "lease"] {
        ended(&client, key).await;
    }
    seen[0].push(answer_to_release(counter.release_lock("count").await));
    seen[1].push(answer_to_release(token.release("token", &own).await));
    seen[2].push(answer_to_release(record.delete().await));
    seen[3].push(answer_to_release(guard.release().await));
    cut(&faults);
    let (one, two, three, four) = tokio::join!(count("free"), acquire("free"), insert("free"), take("free"));
    for (seen, last) in seen.iter_mut().zip([one, two, three, four]) {
        seen.push(last);
    }
    assert_eq!(seen, [(); 4].map(|()| FOUR.to_vec()));
}

/// R-ALL-01 for the flag lock, which ends with its session.
async fn r_all_01_flags_give_four_answers<S: LockService>(service: S) {
    let Setup { client, faults, _others } = setup(service, "all-01-flag").await;
    let session = client.session().ttl(ENDED_TTL).open().await.expect("opened");
    let flags = FlagLock::new(session.clone());
    let mut seen = vec![answer_to_try(flags.lock("held").await), answer_to_try(flags.lock("kind").await)];
    assert!(flags.lock("own").await.expect("answered"));
    lose(client.service(), &session).await;
    session.lost().await;
    seen.push(answer_to_try(flags.lock("own").await));
    let flags = FlagLock::new(client.session().open().await.expect("opened"));
    cut(&faults);
    seen.push(answer_to_try(tokio::time::timeout(LONG, flags.lock("free")).await.expect("answered")));
    assert_eq!(seen, FOUR);
}

/// R-ALL-01 for the config server's locks: a repeated grab of an ended acquisition reports the end. A client without
/// the right is refused, and its attempt leaves nothing to unlock.
async fn r_all_01_config_locks_give_four_answers<S: LockService>(service: S) {
    let Setup { client, faults, _others } = setup(service, "all-01-config").await;
    let process = ProcessId::parse("a:27017:1:7").expect("legal");
    let settings = ConfigSettings { retry_every: Duration::from_millis(1), ..ConfigSettings::default() };
    let locks = ConfigLocks::silent(client, process, settings);
    let config_answer = |answer: Result<(), ConfigLockError>| match answer.expect_err("the try must not succeed") {
        ConfigLockError::LockStateChangeFailed(_) | ConfigLockError::LockBusy { .. } => Answer::Held,
        ConfigLockError::Refused(_) => Answer::Refused,
        ConfigLockError::Ended(_) => Answer::Expired,
        ConfigLockError::Unclear(_) => Answer::Unreachable,
        error @ (ConfigLockError::LockNotFound | ConfigLockError::ClockSkew { .. }) => panic!("{error:?}"),
    };
    let lock = async |name: &str| config_answer(locks.lock(name, "round", WaitFor::SingleAttempt).await.map(|_| ()));
    let mut seen = vec![lock("held").await, lock("kind").await];
    faults.forbidden.store(true, SeqCst);
    let forbidden = locks.lock("free", "round", WaitFor::Duration(LONG)).await.map(|_| ());
    assert_eq!((config_answer(forbidden), locks.unlocks_waiting()), (Answer::Refused, 0));
    faults.forbidden.store(false, SeqCst);
    let ts = locks.new_ts();
    locks.grab("own", ts, "a", "round").await.expect("free");
    locks.unlock(ts).await.expect("held");
    seen.push(config_answer(locks.grab("own", ts, "a", "round").await.map(|_| ())));
    cut(&faults);
    seen.push(lock("free").await);
    assert_eq!(seen, FOUR);
}
