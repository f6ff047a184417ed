//! Additional behaviour of the config server's older lock manager.

use std::sync::atomic::Ordering::SeqCst;

use lockkeeper::client::{Client, NewDocument};
use lockkeeper::compat::config_locks::{ConfigLockError, ConfigLocks, ConfigSettings, WaitFor};
use lockkeeper::model::{DocumentState, Metadata};
use lockkeeper::service::LockService;

use super::config_locks::{TAKEOVER, process, refused, silent};
use super::passes;
use super::probe::Probe;
use crate::faulty::Faulty;
use crate::suite::{LONG, POLL, client};

fn legacy<S: LockService>(client: &Client<S>, name: &str) -> ConfigLocks<S> {
    let settings = ConfigSettings { takeover: TAKEOVER, retry_every: POLL, ..ConfigSettings::legacy() };
    ConfigLocks::silent(client.clone(), process(name), settings)
}

/// A lock is first prepared (state 1) and then held (state 2); no other client can acquire it in either state.
/// `reenter` only checks whether the lock is still held.
async fn r_cfg_04_the_legacy_manager_prepares_before_it_holds<S: LockService>(service: S) {
    let (probe, seen) = Probe::new(service.clone());
    let probed = client(probe, "cfg-legacy");
    let (old, young) = (legacy(&probed, "old"), silent(&probed, "young"));
    let new = silent(&client(service, "cfg-legacy"), "new");
    let state = async || new.get_lock_by_name("balancer").await.expect("found").state;
    seen.confirms_paused.store(true, SeqCst);
    let (held, ()) = tokio::join!(old.lock("balancer", "round", WaitFor::SingleAttempt), async {
        seen.paused.notified().await;
        assert_eq!((state().await, state().await.number()), (DocumentState::Prepared, 1));
        refused(&new, "balancer").await;
        seen.resume.notify_waiters();
    });
    let held = held.expect("free");
    assert_eq!(state().await, DocumentState::Held);
    for _ in 0..3 {
        assert!(old.reenter(&held).await.expect("answered"));
        assert!(!young.reenter(&held).await.expect("answered"), "another process holds it");
    }
    new.unlock(held.ts()).await.expect("one is enough");
    assert_eq!(state().await, DocumentState::Free);
    assert!(!old.reenter(&held).await.expect("answered"));
}

/// A manager that is overtaken between the two steps does not get the lock until later, under another `ts`. A prepared
/// lock that a crash left behind is overtaken like any other.
async fn r_cfg_04_a_prepared_lock_may_be_overtaken<S: LockService>(service: S) {
    let (probe, seen) = Probe::new(service.clone());
    let plain = client(service, "cfg-prepared");
    let (old, new) = (legacy(&client(probe, "cfg-prepared"), "old"), silent(&plain, "new"));
    seen.confirms_paused.store(true, SeqCst);
    let (held, ()) = tokio::join!(old.lock("balancer", "round", WaitFor::Duration(LONG)), async {
        seen.paused.notified().await;
        let prepared = new.get_lock_by_name("balancer").await.expect("found");
        let ts = new.new_ts();
        new.overtake("balancer", ts, prepared.ts, "new", "force").await.expect("the ts that was read");
        seen.confirms_paused.store(false, SeqCst);
        seen.resume.notify_waiters();
        passes(&plain, TAKEOVER / 10).await;
        assert_eq!(new.get_lock_by_name("balancer").await.expect("found").ts, ts);
        new.unlock(ts).await.expect("held");
    });
    let held = held.expect("its turn");
    assert!(old.reenter(&held).await.expect("answered"));
    let metadata = Metadata { process: process("dead").as_str().into(), ..Metadata::default() };
    let crashed = NewDocument { ts: new.new_ts(), metadata, term: None, prepare: true };
    plain.grab("upgrade", crashed.clone()).await.expect("free");
    refused(&old, "upgrade").await;
    old.lock("upgrade", "round", WaitFor::Duration(LONG)).await.expect("overtaken").unlock().await.expect("held");
    let over = plain.confirm("upgrade", crashed.ts).await.expect_err("overtaken");
    assert_eq!(over.code(), lockkeeper::service::ErrorCode::Lost);
}

/// Before its first acquire, and before it overtakes, a manager compares the service's time with its own clock and
/// acquires nothing if they differ too much.
async fn r_cfg_04_clock_skew_prevents_an_acquire<S: LockService>(service: S) {
    let (probe, seen) = Probe::new(service.clone());
    let (skewed, plain) = (client(probe, "cfg-skew"), client(service, "cfg-skew"));
    let is_refused = async |manager: &ConfigLocks<_>, name| {
        let error = manager.lock(name, "round", WaitFor::Forever).await.err();
        assert!(matches!(&error, Some(ConfigLockError::ClockSkew { skew, limit }) if limit < skew), "{error:?}");
    };
    let old = legacy(&skewed, "old");
    seen.clock_jump_ms.store(20_000, SeqCst);
    is_refused(&old, "free").await;
    seen.clock_jump_ms.store(10_000, SeqCst);
    old.lock("free", "round", WaitFor::SingleAttempt)
        .await
        .expect("within the allowed skew")
        .unlock()
        .await
        .expect("held");
    seen.clock_jump_ms.store(20_000, SeqCst);
    old.lock("free", "round", WaitFor::SingleAttempt).await.expect("compared before").unlock().await.expect("held");
    let dead = silent(&plain, "dead");
    dead.grab("held", dead.new_ts(), "dead", "round").await.expect("free");
    is_refused(&old, "held").await;
    seen.clock_jump_ms.store(0, SeqCst);
    old.lock("held", "round", WaitFor::Duration(LONG)).await.expect("overtaken").unlock().await.expect("held");
}

/// A manager that loses its right between the two steps is refused. The lock that it has prepared is unlocked later.
async fn r_cfg_04_a_right_that_ends_between_the_steps<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service);
    let (probe, seen) = Probe::new(faulty);
    let old = legacy(&client(probe, "cfg-right"), "old");
    seen.confirms_paused.store(true, SeqCst);
    let (locked, ()) = tokio::join!(old.lock("balancer", "round", WaitFor::SingleAttempt), async {
        seen.paused.notified().await;
        faults.forbidden.store(true, SeqCst);
        seen.resume.notify_waiters();
    });
    let error = locked.err();
    assert!(matches!(error, Some(ConfigLockError::Refused(_))), "{error:?}");
    assert_eq!(old.unlocks_waiting(), 1);
}

recipe_tests! {
    r_cfg_04_a_right_that_ends_between_the_steps
    r_cfg_04_the_legacy_manager_prepares_before_it_holds
    r_cfg_04_a_prepared_lock_may_be_overtaken
    r_cfg_04_clock_skew_prevents_an_acquire
}
