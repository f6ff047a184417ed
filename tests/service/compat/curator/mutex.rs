//! The reentrant and the non-reentrant mutex.

use std::sync::atomic::Ordering::SeqCst;

use lockkeeper::compat::curator::{
    CuratorFramework, InterProcessMultiLock, InterProcessMutex, InterProcessSemaphoreMutex, Locker, Revoker, Task,
};
use lockkeeper::service::{ErrorCode, LockService};
use tokio::time::Instant;

use super::super::all::{OUTAGE, cut};
use super::{code, curator, is_monitor_state, is_state, namespace, short_curator};
use crate::faulty::Faulty;
use crate::suite::{LONG, SHORT, in_use, until};

recipe_tests! {
    r_mut_01_each_acquire_needs_its_release
    r_mut_02_only_the_holder_can_release
    r_mut_03_a_timed_out_wait_leaves_nothing
    r_smx_01_the_same_owner_waits_for_itself
    r_smx_02_another_task_releases_it
    w_cur_02_what_is_not_acquired_is_not_released
    w_cur_04_a_release_is_repeated_until_it_is_answered
    w_cur_04_a_release_continues_after_its_call
    w_cur_04_a_dropped_locker_is_held_until_it_is_released
    a_lost_mutex_is_not_entered_again
    a_mutex_shows_its_participants_and_is_revoked
    r_all_03_owners_in_opposite_order_are_refused
}

/// R-MUT-01: after three acquires the lock is held until the third release.
async fn r_mut_01_each_acquire_needs_its_release<S: LockService>(service: S) {
    let curator = curator(service, "mut-01").await;
    let (mutex, task, other) = (InterProcessMutex::new(&curator, "a"), curator.task(), curator.task());
    for _ in 0..3 {
        mutex.acquire(&task).await.expect("its own");
    }
    let token = mutex.token(&task).expect("held");
    for _ in 0..2 {
        mutex.release(&task).await.expect("held");
        assert!(mutex.is_acquired_in_this_process() && mutex.is_owned_by(&task) && !mutex.is_owned_by(&other));
        assert!(!mutex.acquire_within(&other, SHORT).await.expect("answered"));
        assert_eq!(mutex.token(&task), Some(token));
    }
    mutex.release(&task).await.expect("held");
    assert!(!mutex.is_acquired_in_this_process() && !mutex.is_owned_by(&task));
    mutex.acquire(&other).await.expect("free");
    assert!(Some(token) < mutex.token(&other));
    mutex.release(&other).await.expect("held");
    in_use(curator.client(), "a", 0, 0).await;
}

/// R-MUT-02: a release by another owner, or one release too many, is an error and changes nothing.
async fn r_mut_02_only_the_holder_can_release<S: LockService>(service: S) {
    let curator = curator(service, "mut-02").await;
    let (mutex, task, other) = (InterProcessMutex::new(&curator, "a"), curator.task(), curator.task());
    assert!(mutex.release(&task).await.is_err_and(|error| is_monitor_state(&error)));
    mutex.acquire(&task).await.expect("free");
    assert!(mutex.release(&other).await.is_err_and(|error| is_monitor_state(&error)));
    let elsewhere = InterProcessMutex::new(&curator, "a");
    assert!(elsewhere.release(&task).await.is_err_and(|error| is_monitor_state(&error)));
    assert!(mutex.is_owned_by(&task));
    in_use(curator.client(), "a", 1, 0).await;
    mutex.release(&task).await.expect("held");
    assert!(mutex.release(&task).await.is_err_and(|error| is_monitor_state(&error)));
    in_use(curator.client(), "a", 0, 0).await;
}

/// R-MUT-03: a wait of 100 ms for a held lock returns false, not before its time, and leaves the queue empty.
async fn r_mut_03_a_timed_out_wait_leaves_nothing<S: LockService>(service: S) {
    let curator = curator(service, "mut-03").await;
    let (mutex, task, other) = (InterProcessMutex::new(&curator, "a"), curator.task(), curator.task());
    mutex.acquire(&task).await.expect("free");
    let (began, wait) = (Instant::now(), SHORT * 2);
    assert!(!mutex.acquire_within(&other, wait).await.expect("answered"));
    assert!(wait <= began.elapsed());
    assert_eq!(mutex.participant_nodes().await.expect("asked").len(), 1);
    mutex.release(&task).await.expect("held");
    assert!(mutex.acquire_within(&other, LONG).await.expect("free"));
    mutex.release(&other).await.expect("held");
}

/// R-SMX-01: a second acquire by the same owner returns false, and its hold stays valid and can be released.
async fn r_smx_01_the_same_owner_waits_for_itself<S: LockService>(service: S) {
    let curator = curator(service, "smx-01").await;
    let mutex = InterProcessSemaphoreMutex::new(&curator, "a");
    mutex.acquire().await.expect("free");
    let token = mutex.token().expect("held");
    assert!(!mutex.acquire_within(SHORT).await.expect("it waits for itself"));
    assert_eq!((mutex.token(), mutex.is_acquired_in_this_process()), (Some(token), true));
    in_use(curator.client(), "a", 1, 0).await;
    mutex.release().await.expect("held");
    assert!(!mutex.is_acquired_in_this_process());
    assert!(mutex.release().await.is_err_and(|error| is_state(&error)));
    mutex.acquire().await.expect("free");
    mutex.release().await.expect("held");
}

/// R-SMX-02: another task with the same value releases the lock, which also ends a wait for itself.
async fn r_smx_02_another_task_releases_it<S: LockService>(service: S) {
    let curator = curator(service, "smx-02").await;
    let mutex = InterProcessSemaphoreMutex::new(&curator, "a");
    mutex.acquire().await.expect("free");
    let token = mutex.token();
    let other = mutex.clone();
    let (again, released) = tokio::join!(mutex.acquire_within(LONG), async {
        in_use(curator.client(), "a", 1, 1).await;
        tokio::spawn(async move { other.release().await }).await.expect("a task")
    });
    released.expect("from another task");
    assert!(again.expect("answered") && token < mutex.token());
    mutex.release().await.expect("held");
}

/// W-CUR-02: a wait times out, and the final block releases. In Curator that release throws, or frees the lock of
/// another holder. Here there is nothing to release without an acquire.
async fn w_cur_02_what_is_not_acquired_is_not_released<S: LockService>(service: S) {
    // The class of the example frees by path alone, whether it acquired or not.
    let mut held_by = Some("another");
    let acquired = held_by.is_none();
    let final_block = |held_by: &mut Option<&str>| *held_by = None;
    final_block(&mut held_by);
    assert!(!acquired && held_by.is_none(), "the lock of the other client is freed");

    let curator = curator(service, "cur-02").await;
    let (mutex, holder, late) = (InterProcessMutex::new(&curator, "a"), curator.task(), curator.task());
    let locker = Locker::new(&mutex, &holder).await.expect("free");
    assert!(Locker::within(&mutex, &late, SHORT).await.expect("answered").is_none());
    assert!(mutex.release(&late).await.is_err_and(|error| is_monitor_state(&error)));
    assert!(mutex.is_owned_by(&holder));
    let again = Locker::within(&mutex, &holder, LONG).await.expect("answered").expect("its own");
    drop(again);
    assert!(mutex.is_owned_by(&holder));
    locker.close().await.expect("held");
    drop(Locker::within(&mutex, &late, LONG).await.expect("answered").expect("free"));
    in_use(curator.client(), "a", 0, 0).await;
}

/// W-CUR-04: a release during a broken connection. Curator forgets the lock, while its node stays until the session
/// ends. Here the lock counts as held, and the release is repeated, until the cluster has answered.
async fn w_cur_04_a_release_is_repeated_until_it_is_answered<S: LockService>(service: S) {
    // Curator drops the count first; then the delete fails and is not repeated.
    let (mut local, node, connected) = (Some("held"), Some("node"), false);
    local.take();
    assert!(!connected && local.is_none() && node.is_some(), "free for this process, held for all others");

    let (faulty, faults) = Faulty::new(service.clone());
    let here = curator(faulty, "cur-04").await;
    let there = curator(service, "cur-04").await;
    let (mutex, other) = (InterProcessMutex::new(&here, "a"), InterProcessMutex::new(&there, "a"));
    let (task, waiter) = (here.task(), there.task());
    mutex.acquire(&task).await.expect("free");
    faults.ignores_renewals.store(true, SeqCst);
    faults.detach();
    let mut releases = Box::pin(mutex.release(&task));
    assert!(tokio::time::timeout(SHORT, &mut releases).await.is_err(), "there is no connection");
    assert!(mutex.is_acquired_in_this_process());
    assert!(!other.acquire_within(&waiter, SHORT).await.expect("answered"));
    faults.ignores_renewals.store(false, SeqCst);
    releases.await.expect("the connection is back");
    assert!(!mutex.is_acquired_in_this_process());
    assert!(other.acquire_within(&waiter, LONG).await.expect("answered"));
    other.release(&waiter).await.expect("held");

    mutex.acquire(&task).await.expect("free");
    faults.answers_lost.store(3, SeqCst);
    mutex.release(&task).await.expect("answered in the end");
    in_use(here.client(), "a", 0, 0).await;
}

/// W-CUR-04: the outage lasts longer than the call waits. The error says that the outcome is unknown, the cluster shows
/// the hold, and the release is repeated until the cluster has answered. The process shows the hold until then, too,
/// and a release of a lock that it shows is no error.
async fn w_cur_04_a_release_continues_after_its_call<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service.clone());
    let builder = CuratorFramework::builder(faulty, namespace("cur-04-cut")).connection_timeout(OUTAGE);
    let here = builder.session_timeout(LONG).start().await.expect("started");
    let there = curator(service, "cur-04-cut").await;
    let (mutex, task, other) = (InterProcessMutex::new(&here, "a"), here.task(), here.task());
    let (plain, multi) = (InterProcessSemaphoreMutex::new(&here, "b"), InterProcessMultiLock::new(&here, ["c", "d"]));
    for _ in 0..2 {
        mutex.acquire(&task).await.expect("free, or its own");
    }
    plain.acquire().await.expect("free");
    multi.acquire().await.expect("free");
    mutex.release(&task).await.expect("held");
    cut(&faults);
    let unknown = tokio::join!(mutex.release(&task), plain.release(), multi.release());
    for unknown in [unknown.0, unknown.1, unknown.2] {
        assert_eq!(unknown.err().as_ref().and_then(code), Some(ErrorCode::Unknown));
    }
    assert!(mutex.is_acquired_in_this_process() && mutex.is_owned_by(&task) && !mutex.is_owned_by(&other));
    assert!(plain.is_acquired_in_this_process() && multi.is_acquired_in_this_process());
    mutex.release(&task).await.expect("its session continues with the release");
    plain.release().await.expect("its session continues with the release");
    multi.release().await.expect("its session continues with the releases");
    assert!(mutex.release(&other).await.is_err_and(|error| is_monitor_state(&error)));
    for name in ["a", "b", "c", "d"] {
        in_use(there.client(), name, 1, 0).await;
    }
    faults.ignores_renewals.store(false, SeqCst);
    faults.detached.store(false, SeqCst);
    for name in ["a", "b", "c", "d"] {
        in_use(there.client(), name, 0, 0).await;
    }
    until("the releases are answered", async || {
        !mutex.is_acquired_in_this_process()
            && !plain.is_acquired_in_this_process()
            && !multi.is_acquired_in_this_process()
    })
    .await;
    assert!(!mutex.is_owned_by(&task));
    assert!(mutex.release(&task).await.is_err_and(|error| is_monitor_state(&error)));
    assert!(plain.release().await.is_err_and(|error| is_state(&error)));
    assert!(multi.release().await.is_err_and(|error| is_state(&error)));
}

/// W-CUR-04: a locker is dropped while there is no connection. Its process shows the hold, as the cluster does, until
/// the release is answered.
async fn w_cur_04_a_dropped_locker_is_held_until_it_is_released<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service.clone());
    let builder = CuratorFramework::builder(faulty, namespace("cur-04-drop")).session_timeout(LONG);
    let (here, there) = (builder.start().await.expect("started"), curator(service, "cur-04-drop").await);
    let (mutex, task) = (InterProcessMutex::new(&here, "a"), here.task());
    let locker = Locker::new(&mutex, &task).await.expect("free");
    cut(&faults);
    drop(locker);
    assert!(mutex.is_acquired_in_this_process() && mutex.is_owned_by(&task) && mutex.token(&task).is_none());
    in_use(there.client(), "a", 1, 0).await;
    assert!(mutex.is_acquired_in_this_process() && mutex.is_owned_by(&task));
    faults.ignores_renewals.store(false, SeqCst);
    faults.detached.store(false, SeqCst);
    in_use(there.client(), "a", 0, 0).await;
    until("the release is answered", async || !mutex.is_acquired_in_this_process()).await;
    assert!(!mutex.is_owned_by(&task));
}

/// A mutex that was lost with its session cannot be entered again before its releases. Each release reports the loss;
/// then the mutex can be acquired in a new session.
async fn a_lost_mutex_is_not_entered_again<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service.clone());
    let here = short_curator(faulty, "mut-lost").await;
    let there = curator(service, "mut-lost").await;
    let (mutex, other) = (InterProcessMutex::new(&here, "a"), InterProcessMutex::new(&there, "a"));
    let (task, next) = (here.task(), there.task());
    mutex.acquire(&task).await.expect("free");
    mutex.acquire(&task).await.expect("its own");
    faults.ignores_renewals.store(true, SeqCst);
    other.acquire(&next).await.expect("the holder is dead");
    assert!(!mutex.is_owned_by(&task) && mutex.token(&task).is_none());
    faults.ignores_renewals.store(false, SeqCst);
    for _ in 0..2 {
        assert_eq!(mutex.acquire(&task).await.err().as_ref().and_then(code), Some(ErrorCode::SessionEnded));
        assert_eq!(mutex.release(&task).await.err().as_ref().and_then(code), Some(ErrorCode::SessionEnded));
    }
    assert!(mutex.release(&task).await.is_err_and(|error| is_monitor_state(&error)));
    assert!(!mutex.acquire_within(&task, SHORT).await.expect("a new session"));
    assert!(other.is_owned_by(&next));
    other.release(&next).await.expect("held");
    mutex.acquire(&task).await.expect("free");
    mutex.release(&task).await.expect("held");
}

/// Participants are listed in order. The holder receives a revocation with its sender and reason, and releases the
/// lock.
async fn a_mutex_shows_its_participants_and_is_revoked<S: LockService>(service: S) {
    let curator = curator(service, "revoke").await;
    let mutex = InterProcessMutex::new(&curator, "a");
    let (asked, mut received) = tokio::sync::mpsc::unbounded_channel();
    mutex.make_revocable(move |revocation| drop(asked.send(revocation)));
    let (first, second) = (Task::named("first").expect("short"), Task::named("second").expect("short"));
    mutex.acquire(&first).await.expect("free");
    let mut waits = Box::pin(mutex.acquire(&second));
    tokio::select! {
        _ = &mut waits => panic!("held"),
        () = in_use(curator.client(), "a", 1, 1) => {}
    }
    let nodes = mutex.participant_nodes().await.expect("asked");
    let owners: Vec<_> = nodes.iter().map(|node| node.owner.as_ref().map(|owner| owner.as_str())).collect();
    assert_eq!(owners, [Some("first"), Some("second")]);
    assert!(nodes[0].holds() && !nodes[1].holds());
    assert!(Revoker::attempt_revoke(&curator, "a", &nodes[1], "please").await.is_err_and(|error| is_state(&error)));
    // A request before the holder subscribed can be missed, so it is repeated until it is received.
    let revocation = loop {
        Revoker::attempt_revoke(&curator, "a", &nodes[0], "please").await.expect("held");
        if let Ok(revocation) = tokio::time::timeout(SHORT, received.recv()).await {
            break revocation.expect("the mutex lives");
        }
    };
    assert_eq!((&revocation.task, revocation.why.as_str()), (&first, "please"));
    assert!(mutex.is_owned_by(&first), "the holder decides");
    mutex.release(&first).await.expect("held");
    waits.await.expect("its turn");
    mutex.release(&second).await.expect("held");
}

/// R-ALL-03: two owners that acquire two locks in opposite order do not hang: one of them is refused.
async fn r_all_03_owners_in_opposite_order_are_refused<S: LockService>(service: S) {
    let (one, two) = (curator(service.clone(), "all-03").await, curator(service, "all-03").await);
    let (left, right) = (InterProcessMutex::new(&one, "left"), InterProcessMutex::new(&one, "right"));
    let (left_too, right_too) = (InterProcessMutex::new(&two, "left"), InterProcessMutex::new(&two, "right"));
    let (task, other) = (one.task(), two.task());
    left.acquire(&task).await.expect("free");
    right_too.acquire(&other).await.expect("free");
    let ((), refused) = tokio::join!(
        async {
            right.acquire(&task).await.expect("the other owner releases");
        },
        async {
            in_use(one.client(), "right", 1, 1).await;
            let refused = left_too.acquire(&other).await.expect_err("it would never end");
            right_too.release(&other).await.expect("held");
            refused
        }
    );
    assert_eq!(code(&refused), Some(ErrorCode::Deadlock));
    right.release(&task).await.expect("held");
    left.release(&task).await.expect("held");
}
