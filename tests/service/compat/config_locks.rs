//! A config server's locks, and what goes wrong with common but unsafe advice. The tests use a short take-over time.

#![allow(clippy::print_stderr, reason = "a reduced run prints its size")]

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use lockkeeper::client::Client;
use lockkeeper::compat::config_locks::{ConfigLockError, ConfigLocks, ConfigSettings, WaitFor};
use lockkeeper::model::{DocumentState, EndReason, ProcessId, TokenState};
use lockkeeper::service::LockService;

use super::passes;
use super::probe::Probe;
use crate::suite::{LONG, POLL, SHORT, client, in_use};

pub(super) const TAKEOVER: Duration = Duration::from_millis(300);

pub(super) fn settings() -> ConfigSettings {
    ConfigSettings { takeover: TAKEOVER, retry_every: POLL, ..ConfigSettings::default() }
}

pub(super) fn process(name: &str) -> ProcessId {
    ProcessId::parse(&format!("{name}:27017:1:7")).expect("legal")
}

/// Returns a manager whose process is pinged only by the test.
pub(super) fn silent<S: LockService>(client: &Client<S>, name: &str) -> ConfigLocks<S> {
    ConfigLocks::silent(client.clone(), process(name), settings())
}

pub(super) async fn refused<S: LockService>(waiter: &ConfigLocks<S>, name: &str) {
    let error = waiter.lock(name, "round", WaitFor::SingleAttempt).await.err();
    assert!(matches!(error, Some(ConfigLockError::LockStateChangeFailed(_))), "{error:?}");
}

/// A grab sets all fields, a second grab is refused, and of fifty first grabs one succeeds.
async fn r_cfg_01_one_grab_wins<S: LockService>(service: S) {
    let client = client(service, "cfg-01");
    let (a, b) = (silent(&client, "a"), silent(&client, "b"));
    let ts = a.new_ts();
    let token = a.grab("balancer", ts, "a:conn1", "round").await.expect("free");
    let held = a.get_lock_by_name("balancer").await.expect("found");
    assert_eq!((held.state, held.ts, held.token, held.native), (DocumentState::Held, ts, token, false));
    assert_eq!((&*held.process, &*held.who, &*held.why), (a.process().as_str(), "a:conn1", "round"));
    assert!(held.lock.name.as_str() == "balancer" && 0 < held.when.0, "{held:?}");
    let second = b.grab("balancer", b.new_ts(), "b", "round").await;
    assert!(matches!(second, Err(ConfigLockError::LockStateChangeFailed(_))), "{second:?}");
    let many = (0..50).map(|_| a.grab("many", a.new_ts(), "a", "first"));
    assert_eq!(join_all(many).await.into_iter().filter(Result::is_ok).count(), 1);
}

/// A document is freed by its ts and can still be read. Freeing it again changes nothing, and an old ts does not free
/// the hold of another process.
async fn r_cfg_02_r_cfg_03_unlock_by_ts<S: LockService>(service: S) {
    let client = client(service, "cfg-02");
    let (a, b) = (silent(&client, "a"), silent(&client, "b"));
    let ts = a.new_ts();
    a.grab("balancer", ts, "a:conn1", "round").await.expect("free");
    let when = b.get_lock_by_name("balancer").await.expect("found").when;
    for _ in 0..2 {
        a.unlock(ts).await.expect("a success, also twice");
        let free = b.get_lock_by_name("balancer").await.expect("still readable");
        assert_eq!((free.state, free.ts, free.when), (DocumentState::Free, ts, when));
        assert_eq!((&*free.process, &*free.who, &*free.why), (a.process().as_str(), "a:conn1", "round"));
    }
    let newer = b.new_ts();
    let token = b.grab("balancer", newer, "b", "other").await.expect("free");
    a.unlock(ts).await.expect("a success");
    a.unlock_named(ts, "balancer").await.expect("a success");
    let held = a.get_lock_by_name("balancer").await.expect("found");
    assert_eq!((held.state, held.ts, held.token), (DocumentState::Held, newer, token));
}

/// The first attempt only records what it sees. After the take-over time without a ping the lock is overtaken. The
/// former holder is notified, and its unlock succeeds without an effect.
async fn r_cfg_04_r_cfg_05_overtaken_after_two_looks<S: LockService>(service: S) {
    let client = client(service, "cfg-04");
    let (dead, waiter) = (silent(&client, "dead"), silent(&client, "waiter"));
    dead.ping(dead.process()).await.expect("noted");
    let held = dead.lock("balancer", "round", WaitFor::SingleAttempt).await.expect("free");
    let lost = held.lost();
    let (waited, reason) = tokio::join!(
        async {
            passes(&client, TAKEOVER).await;
            refused(&waiter, "balancer").await;
            passes(&client, TAKEOVER).await;
            waiter.lock("balancer", "round", WaitFor::Duration(LONG)).await.expect("overtaken")
        },
        lost
    );
    assert_eq!(reason.expect("notified"), EndReason::Overtaken);
    assert!(held.token() < waited.token());
    dead.unlock(held.ts()).await.expect("a success");
    assert!(waited.check().await.expect("answered"));
    waited.unlock().await.expect("held");
}

/// A ping between two attempts restarts the count.
async fn r_cfg_06_a_ping_restarts_the_count<S: LockService>(service: S) {
    let client = client(service, "cfg-06");
    let (slow, waiter) = (silent(&client, "slow"), silent(&client, "waiter"));
    slow.ping(slow.process()).await.expect("noted");
    slow.grab("balancer", slow.new_ts(), "slow", "round").await.expect("free");
    refused(&waiter, "balancer").await;
    passes(&client, TAKEOVER).await;
    slow.ping(slow.process()).await.expect("noted");
    refused(&waiter, "balancer").await;
    // A change of the leader, which can happen on a slow machine, restarts the count once more.
    waiter.lock("balancer", "round", WaitFor::Duration(LONG)).await.expect("overtaken").unlock().await.expect("held");
}

/// The reads of the first attempt are answered by the leader, and its status by a node that was partitioned from the
/// leader long ago, with an old log time. A live holder keeps its lock.
async fn r_cfg_05_r_cfg_07_the_view_of_a_node_without_a_leader_starts_no_count<S: LockService>(service: S) {
    let (probe, seen) = Probe::new(service.clone());
    let plain = client(service, "cfg-cut");
    let (alive, waiter) = (silent(&plain, "alive"), silent(&client(probe, "cfg-cut"), "waiter"));
    alive.ping(alive.process()).await.expect("noted");
    let held = alive.lock("balancer", "round", WaitFor::SingleAttempt).await.expect("free");
    // From here on the old time is older than the take-over time.
    passes(&plain, TAKEOVER).await;
    seen.cut_off.store(true, SeqCst);
    refused(&waiter, "balancer").await;
    assert!(!seen.cut_off.load(SeqCst), "the waiter has read the status");
    passes(&plain, TAKEOVER).await;
    // Only the second attempt begins the count, however late it is.
    refused(&waiter, "balancer").await;
    held.unlock().await.expect("still held");
}

/// If two processes overtake the same document, one of them succeeds.
async fn r_cfg_08_one_overtakes<S: LockService>(service: S) {
    let client = client(service, "cfg-08");
    let (dead, a, b) = (silent(&client, "dead"), silent(&client, "a"), silent(&client, "b"));
    let seen = dead.new_ts();
    dead.grab("balancer", seen, "dead", "round").await.expect("free");
    let (one, two) = tokio::join!(
        a.overtake("balancer", a.new_ts(), seen, "a", "round"),
        b.overtake("balancer", b.new_ts(), seen, "b", "round")
    );
    assert!(one.is_ok() != two.is_ok(), "{one:?} {two:?}");
    let loser = one.err().or(two.err()).expect("one lost");
    assert!(matches!(loser, ConfigLockError::LockStateChangeFailed(_)), "{loser:?}");
    let nothing = a.overtake("never seen", a.new_ts(), seen, "a", "round").await.expect_err("it creates no document");
    assert!(matches!(nothing, ConfigLockError::LockStateChangeFailed(_)), "{nothing:?}");
}

/// A wait is a single attempt, unlimited, or limited and then reported as busy. The default is twenty seconds.
async fn r_cfg_09_how_long_it_waits<S: LockService>(service: S) {
    let client = client(service, "cfg-09");
    let patient = ConfigSettings { retry_every: POLL, ..ConfigSettings::default() };
    let (a, b) = (silent(&client, "a"), ConfigLocks::silent(client.clone(), process("b"), patient));
    let held = a.lock("balancer", "round", WaitFor::SingleAttempt).await.expect("free");
    refused(&b, "balancer").await;
    let busy = b.lock("balancer", "round", WaitFor::Duration(SHORT)).await.expect_err("held");
    assert!(matches!(&busy, ConfigLockError::LockBusy { waited, .. } if SHORT <= *waited), "{busy}");
    let (acquired, ()) = tokio::join!(b.lock("balancer", "round", WaitFor::Forever), async {
        passes(&client, SHORT).await;
        held.unlock().await.expect("held");
    });
    acquired.expect("free").unlock().await.expect("held");
    let waits = [WaitFor::from_millis(0), WaitFor::from_millis(-1), WaitFor::from_millis(20_000)];
    assert_eq!(waits, [WaitFor::SingleAttempt, WaitFor::Forever, WaitFor::default()]);
}

/// One ping keeps a thousand locks; without it all of them can be overtaken. The test checks every tenth lock, and with
/// `LOCKKEEPER_FULL` every lock.
async fn r_cfg_10_one_ping_keeps_a_thousand_locks<S: LockService>(service: S) {
    let client = client(service, "cfg-10");
    let (a, waiter) = (silent(&client, "a"), silent(&client, "waiter"));
    a.ping(a.process()).await.expect("noted");
    let grab = async |number: usize| a.grab(&format!("c{number}"), a.new_ts(), "a", "many").await.map(|_| ());
    let grabs = futures_util::stream::iter((0..1_000).map(grab)).buffer_unordered(64);
    let failed: Vec<_> = grabs.filter_map(|acquired| async { acquired.err() }).collect().await;
    assert!(failed.is_empty(), "{failed:?}");
    let step = if std::env::var_os("LOCKKEEPER_FULL").is_some() { 1 } else { 10 };
    let checked = 1_000 / step;
    eprintln!("R-CFG-10: {checked} of 1,000 locks are checked (LOCKKEEPER_FULL=1 for all)");
    let look = async |number: usize| {
        let tried = waiter.lock(&format!("c{number}"), "round", WaitFor::SingleAttempt).await;
        matches!(tried, Err(ConfigLockError::LockStateChangeFailed(_)))
    };
    let refusals = async || {
        let looks = futures_util::stream::iter((0..1_000).step_by(step).map(look)).buffer_unordered(64);
        looks.filter(|refused| std::future::ready(*refused)).count().await
    };
    assert_eq!(refusals().await, checked, "the first attempt overtakes nothing");
    passes(&client, TAKEOVER).await;
    a.ping(a.process()).await.expect("noted");
    assert_eq!(refusals().await, checked, "one ping keeps all of them");
    passes(&client, TAKEOVER).await;
    // A change of the leader meanwhile restarts the count, so it may take more than one attempt.
    let overtake = async |number: usize| {
        let name = format!("c{number}");
        drop(waiter.lock(&name, "round", WaitFor::Duration(LONG)).await.expect("overtaken"));
    };
    let numbers = futures_util::stream::iter((0..1_000).step_by(step));
    numbers.for_each_concurrent(64, overtake).await;
    let left = waiter.unlock_all(a.process(), None).await.expect("freed");
    assert_eq!(left, 1_000 - checked as u64, "all checked locks are overtaken");
}

/// A process that restarts has a new id. It does not hold the locks of its old id, which are freed by the old id.
async fn r_cfg_11_a_restart_is_another_process<S: LockService>(service: S) {
    let client = client(service, "cfg-11");
    let id = || ConfigLocks::new_process_id(&client, "db1", 27017).expect("legal");
    let (first, second) = (id(), id());
    assert_ne!(first, second);
    let old = ConfigLocks::silent(client.clone(), first.clone(), settings());
    old.grab("balancer", old.new_ts(), "old", "round").await.expect("free");
    drop(old);
    let new = ConfigLocks::silent(client, second, settings());
    refused(&new, "balancer").await;
    assert_eq!(new.unlock_all(new.process(), None).await.expect("freed"), 0);
    assert_eq!(new.unlock_all(&first, None).await.expect("freed"), 1);
    new.lock("balancer", "round", WaitFor::SingleAttempt).await.expect("free").unlock().await.expect("held");
}

/// A lost answer causes no second acquisition, because a repeat has the same ts. A lock whose answers stay lost is
/// unlocked later.
async fn r_cfg_12_a_lost_answer_is_one_acquisition<S: LockService>(service: S) {
    let (faulty, faults) = crate::faulty::Faulty::new(service);
    let client = client(faulty, "cfg-12").request_wait(LONG);
    let a = silent(&client, "a");
    let ts = a.new_ts();
    faults.answers_lost.store(2, SeqCst);
    let token = a.grab("balancer", ts, "a", "round").await.expect("repeated");
    assert_eq!(a.grab("balancer", ts, "a", "round").await.expect("the first"), token);
    a.unlock(ts).await.expect("held");
    let over = a.grab("balancer", ts, "a", "round").await.expect_err("a used ts");
    assert!(matches!(over, ConfigLockError::Ended(EndReason::Released)), "{over:?}");
    faults.answers_lost.store(u32::MAX, SeqCst);
    let short = client.clone().request_wait(SHORT);
    let pinging = ConfigSettings { ping_every: POLL, ..settings() };
    let b = ConfigLocks::start(short, process("b"), pinging);
    let unclear = b.lock("balancer", "round", WaitFor::Duration(LONG)).await.expect_err("there is no answer");
    assert!(matches!(unclear, ConfigLockError::Unclear(_)), "{unclear:?}");
    assert!(0 < b.unlocks_waiting());
    faults.answers_lost.store(0, SeqCst);
    in_use(&client, "balancer", 0, 0).await;
    a.lock("balancer", "round", WaitFor::Duration(LONG)).await.expect("free").unlock().await.expect("held");
}

/// A released lock is still found by its ts, as in the original, but its token is stale.
async fn r_cfg_13_r_cfg_15_found_by_name_and_ts<S: LockService>(service: S) {
    let client = client(service, "cfg-13");
    let a = silent(&client, "a");
    let nowhere = a.get_lock_by_name("balancer").await;
    assert!(matches!(nowhere, Err(ConfigLockError::LockNotFound)), "{nowhere:?}");
    let ts = a.new_ts();
    assert!(matches!(a.check_status(ts).await, Err(ConfigLockError::LockNotFound)));
    let nowhere = a.get_lock_by_ts(ts).await;
    assert!(matches!(nowhere, Err(ConfigLockError::LockNotFound)), "{nowhere:?}");
    let token = a.grab("balancer", ts, "a", "round").await.expect("free");
    assert_eq!(a.get_lock_by_ts(ts).await.expect("found"), a.get_lock_by_name("balancer").await.expect("found"));
    a.unlock(ts).await.expect("held");
    a.check_status(ts).await.expect("still found");
    assert_eq!(client.check("balancer", token).await.expect("checked").state, TokenState::Stale);
}

/// A process is pinged when it starts and then periodically, until its record is removed. Sessions are listed as
/// processes.
async fn r_cfg_14_a_process_is_pinged_from_its_start<S: LockService>(service: S) {
    let client = client(service, "cfg-14");
    assert_eq!(ConfigSettings::default().ping_every, Duration::from_secs(30));
    let manager = ConfigLocks::start(client.clone(), process("a"), ConfigSettings { ping_every: POLL, ..settings() });
    let mut seen = Vec::new();
    let moved = async {
        while seen.len() < 3 {
            let ping = client.ping_of(process("a").as_str()).await.expect("answered").value;
            seen.extend(ping.filter(|ping| seen.last() != Some(ping)));
            tokio::time::sleep(POLL).await;
        }
    };
    tokio::time::timeout(LONG, moved).await.expect("pinged");
    assert!(seen.is_sorted(), "{seen:?}");
    let guard = client.lock("native").acquire().await.expect("free");
    let shown = client.document("native").await.expect("answered").value.expect("shown");
    assert!(shown.native && shown.token == guard.token() && shown.state == DocumentState::Held);
    assert!(client.ping_of(&shown.process).await.expect("answered").value.is_some(), "its session is listed");
    manager.shut_down().await.expect("stopped");
    assert_eq!(client.ping_of(process("a").as_str()).await.expect("answered").value, None);
}

/// A native hold is never overtaken, and a document that is held blocks native waiters.
async fn documents_and_native_holds_exclude_each_other<S: LockService>(service: S) {
    let client = client(service, "cfg-native");
    let a = silent(&client, "a");
    let guard = client.lock("balancer").acquire().await.expect("free");
    refused(&a, "balancer").await;
    passes(&client, TAKEOVER).await;
    refused(&a, "balancer").await;
    let shown = a.get_lock_by_name("balancer").await.expect("shown");
    let forced = a.overtake("balancer", a.new_ts(), shown.ts, "a", "force").await;
    assert!(matches!(forced, Err(ConfigLockError::LockStateChangeFailed(_))), "{forced:?}");
    guard.release().await.expect("still held");
    let held = a.lock("balancer", "round", WaitFor::SingleAttempt).await.expect("free");
    let (waiter, ()) = tokio::join!(client.lock("balancer").wait(LONG).acquire(), async {
        in_use(&client, "balancer", 1, 1).await;
        held.unlock().await.expect("held");
    });
    waiter.expect("granted by the unlock").release().await.expect("held");
}

/// A dropped lock is unlocked by the background task of its process.
async fn a_dropped_lock_is_unlocked<S: LockService>(service: S) {
    let client = client(service, "cfg-drop");
    let a = ConfigLocks::start(client.clone(), process("a"), settings());
    drop(a.lock("balancer", "round", WaitFor::default()).await.expect("free"));
    in_use(&client, "balancer", 0, 0).await;
    a.shut_down().await.expect("stopped");
}

/// A lock is dropped just before its manager is shut down: the background task has not begun to unlock it, or waits for
/// the answer. The manager unlocks it before it removes the record of the process.
async fn a_shut_down_unlocks_what_was_dropped<S: LockService>(service: S) {
    for sent in [false, true] {
        let (probe, seen) = Probe::new(service.clone());
        let client = client(probe, "cfg-shut");
        let a = ConfigLocks::start(client.clone(), process("a"), settings());
        let lock = a.lock("balancer", "round", WaitFor::default()).await.expect("free");
        seen.unlocks_paused.store(sent, SeqCst);
        drop(lock);
        if sent {
            seen.paused.notified().await;
            seen.unlocks_paused.store(false, SeqCst);
        }
        a.shut_down().await.expect("stopped");
        let left = silent(&client, "b").get_lock_by_name("balancer").await.expect("found");
        assert_eq!(left.state, DocumentState::Free, "the unlock was sent: {sent}");
    }
}

/// An attempt has no answer, and its repetition is refused. A late copy of it could still take the lock, so the call
/// unlocks its `ts`. A call whose only attempt was refused has nothing to unlock.
async fn a_refusal_after_a_lost_answer_uses_up_the_ts<S: LockService>(service: S) {
    let (faulty, faults) = crate::faulty::Faulty::new(service);
    let client = client(faulty, "cfg-late").request_wait(LONG);
    let a = silent(&client, "a");
    let b = ConfigLocks::silent(client.clone(), process("b"), ConfigSettings { takeover: LONG, ..settings() });
    let held = a.lock("balancer", "round", WaitFor::SingleAttempt).await.expect("free");
    for (answers_lost, unlocks) in [(0, 0), (1, 1)] {
        faults.answers_lost.store(answers_lost, SeqCst);
        refused(&b, "balancer").await;
        assert_eq!(b.unlocks_waiting(), unlocks, "{answers_lost} answers were lost");
    }
    held.unlock().await.expect("held");
}

/// A manager without a background task unlocks what was dropped with its next ping.
async fn a_ping_of_a_silent_manager_unlocks_what_was_dropped<S: LockService>(service: S) {
    let client = client(service, "cfg-silent");
    let a = silent(&client, "a");
    drop(a.lock("balancer", "round", WaitFor::SingleAttempt).await.expect("free"));
    assert_eq!(a.unlocks_waiting(), 1);
    a.ping(a.process()).await.expect("noted");
    assert_eq!(a.unlocks_waiting(), 0);
    assert_eq!(a.get_lock_by_name("balancer").await.expect("found").state, DocumentState::Free);
}

/// To take a document from a live holder, its token is needed, and the holder is notified.
async fn w_cfg_01_a_broken_holder_is_notified<S: LockService>(service: S) {
    let client = client(service, "cfg-w1");
    let a = silent(&client, "a");
    let held = a.lock("balancer", "round", WaitFor::SingleAttempt).await.expect("free");
    let (reason, ()) = tokio::join!(held.lost(), async {
        let other = lockkeeper::model::FencingToken::new(0, held.token().counter() + 1);
        client.break_hold("balancer", other, "folklore").await.expect_err("another token changes nothing");
        assert!(held.check().await.expect("answered"));
        client.break_hold("balancer", held.token(), "folklore").await.expect("broken");
    });
    assert_eq!(reason.expect("notified"), EndReason::Broken);
    assert_eq!(held.lost().await.expect("notified again"), EndReason::Broken, "a later call returns the same");
    let left = a.get_lock_by_name("balancer").await.expect("the document stays");
    assert_eq!(left.state, DocumentState::Free);
}

#[test]
fn w_cfg_01_in_the_model_a_deleted_document_makes_two_holders() {
    let mut locks = vec![("balancer", 2, "a")];
    let a_works = true;
    locks.retain(|(name, ..)| *name != "balancer");
    assert!(locks.is_empty(), "an admin deletes it while A works");
    locks.push(("balancer", 2, "b"));
    assert!(a_works && locks[0].2 == "b", "A was not notified, and B works as well");
}

recipe_tests! {
    r_cfg_01_one_grab_wins
    r_cfg_02_r_cfg_03_unlock_by_ts
    r_cfg_04_r_cfg_05_overtaken_after_two_looks
    r_cfg_05_r_cfg_07_the_view_of_a_node_without_a_leader_starts_no_count
    r_cfg_06_a_ping_restarts_the_count
    r_cfg_08_one_overtakes
    r_cfg_09_how_long_it_waits
    r_cfg_10_one_ping_keeps_a_thousand_locks
    r_cfg_11_a_restart_is_another_process
    r_cfg_12_a_lost_answer_is_one_acquisition
    r_cfg_13_r_cfg_15_found_by_name_and_ts
    r_cfg_14_a_process_is_pinged_from_its_start
    documents_and_native_holds_exclude_each_other
    a_dropped_lock_is_unlocked
    a_shut_down_unlocks_what_was_dropped
    a_ping_of_a_silent_manager_unlocks_what_was_dropped
    a_refusal_after_a_lost_answer_uses_up_the_ts
    w_cfg_01_a_broken_holder_is_notified
}
