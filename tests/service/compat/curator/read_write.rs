//! The read-write lock.

use std::sync::atomic::Ordering::SeqCst;

use lockkeeper::compat::curator::{CuratorFramework, InterProcessReadWriteLock};
use lockkeeper::service::{ErrorCode, LockService};

use super::super::all::{OUTAGE, cut};
use super::{code, curator, is_monitor_state, is_state, namespace, short_curator};
use crate::faulty::Faulty;
use crate::suite::{LONG, SHORT, in_use, until};

recipe_tests! {
    r_rw_01_a_reader_waits_behind_a_waiting_writer
    r_rw_02_a_writer_becomes_a_reader_without_a_gap
    r_rw_03_upgrades_never_hang
    both_sides_are_counted
    a_task_makes_one_call_at_a_time
    w_cur_04_a_side_is_held_until_its_release_is_answered
    a_lost_read_write_lock_reports_the_loss
}

/// R-RW-01: of two readers, a writer and a third reader, in this order, the two readers share the lock, and the third
/// waits behind the writer.
async fn r_rw_01_a_reader_waits_behind_a_waiting_writer<S: LockService>(service: S) {
    let curator = curator(service, "rw-01").await;
    let lock = InterProcessReadWriteLock::new(&curator, "a");
    let (read, write) = (lock.read_lock(), lock.write_lock());
    let tasks: Vec<_> = (0..4).map(|_| curator.task()).collect();
    read.acquire(&tasks[0]).await.expect("free");
    read.acquire(&tasks[1]).await.expect("shared");
    let mut writes = Box::pin(write.acquire(&tasks[2]));
    tokio::select! {
        _ = &mut writes => panic!("readers hold it"),
        () = in_use(curator.client(), "a", 2, 1) => {}
    }
    let mut reads = Box::pin(read.acquire(&tasks[3]));
    tokio::select! {
        _ = &mut reads => panic!("a writer waits ahead of it"),
        () = in_use(curator.client(), "a", 2, 2) => {}
    }
    let of = |nodes: Vec<lockkeeper::compat::Participant>| nodes.iter().map(|node| node.holds()).collect::<Vec<_>>();
    assert_eq!(of(read.participant_nodes().await.expect("asked")), [true, true, false]);
    assert_eq!(of(write.participant_nodes().await.expect("asked")), [false]);
    read.release(&tasks[0]).await.expect("held");
    read.release(&tasks[1]).await.expect("held");
    writes.await.expect("its turn");
    in_use(curator.client(), "a", 1, 1).await;
    write.release(&tasks[2]).await.expect("held");
    reads.await.expect("its turn");
    read.release(&tasks[3]).await.expect("held");
}

/// R-RW-02: a writer also acquires the read lock and then releases the write lock while another writer waits. It is a
/// reader at once under the same token, and the other writer waits until the last read lock is released. In Curator the
/// two locks are two nodes, and the new read node is behind the waiting writer (apache/curator#796).
async fn r_rw_02_a_writer_becomes_a_reader_without_a_gap<S: LockService>(service: S) {
    // The nodes in the order of their numbers. A read node counts as held if no write node of another client is before
    // it.
    let mut nodes = vec![("write", "a"), ("write", "b"), ("read", "a")];
    nodes.remove(0);
    let reads =
        !nodes.iter().take_while(|node| **node != ("read", "a")).any(|(kind, of)| *kind == "write" && *of != "a");
    assert!(!reads, "a believes that it holds the read lock, and b writes");

    let curator = curator(service, "rw-02").await;
    let lock = InterProcessReadWriteLock::new(&curator, "a");
    let (read, write, task, other) = (lock.read_lock(), lock.write_lock(), curator.task(), curator.task());
    write.acquire(&task).await.expect("free");
    let token = write.token(&task);
    let mut waits = Box::pin(write.acquire(&other));
    tokio::select! {
        _ = &mut waits => panic!("held"),
        () = in_use(curator.client(), "a", 1, 1) => {}
    }
    read.acquire(&task).await.expect("it is the writer");
    let check = async || curator.client().check("a", token.expect("held")).await.expect("checked").state;
    write.release(&task).await.expect("held");
    assert_eq!(check().await, lockkeeper::model::TokenState::Valid);
    assert!(read.is_owned_by(&task) && !write.is_owned_by(&task) && read.token(&task) == token);
    assert!(tokio::time::timeout(SHORT, &mut waits).await.is_err(), "the read lock is held");
    read.release(&task).await.expect("held");
    waits.await.expect("its turn");
    assert!(token < write.token(&other));
    write.release(&other).await.expect("held");
}

/// R-RW-03: a reader that asks for the write lock is refused at once. A single reader can be upgraded, under a new
/// token. If two readers ask for an upgrade, the second is refused, and no task hangs.
async fn r_rw_03_upgrades_never_hang<S: LockService>(service: S) {
    let curator = curator(service, "rw-03").await;
    let lock = InterProcessReadWriteLock::new(&curator, "a");
    let (read, write, task, other) = (lock.read_lock(), lock.write_lock(), curator.task(), curator.task());
    read.acquire(&task).await.expect("free");
    let shared = read.token(&task);
    assert!(write.acquire(&task).await.is_err_and(|error| is_state(&error)), "in Curator it waits permanently");
    assert!(lock.upgrade(&other).await.is_err_and(|error| is_state(&error)), "it does not read");
    let token = lock.upgrade(&task).await.expect("alone");
    assert!(shared < Some(token) && write.is_owned_by(&task) && read.is_owned_by(&task));
    write.release(&task).await.expect("held");
    read.acquire(&other).await.expect("shared again");
    let refused = lock.upgrade(&task).await.expect_err("another reads");
    assert_eq!(code(&refused), Some(ErrorCode::NotAcquired));
    assert!(read.is_owned_by(&task));
    let (first, second) = tokio::join!(lock.upgrade_within(&task, LONG), async {
        in_use(curator.client(), "a", 2, 1).await;
        let second = lock.upgrade_within(&other, LONG).await;
        read.release(&other).await.expect("held");
        second
    });
    assert_eq!(second.err().as_ref().and_then(code), Some(ErrorCode::NotAcquired));
    assert!(Some(token) < first.ok() && write.is_owned_by(&task));
    write.release(&task).await.expect("held");
    read.release(&task).await.expect("held");
    in_use(curator.client(), "a", 0, 0).await;
}

/// Both locks are counted for each task, and a release of the wrong one changes nothing.
async fn both_sides_are_counted<S: LockService>(service: S) {
    let curator = curator(service, "rw-count").await;
    let lock = InterProcessReadWriteLock::new(&curator, "a");
    let (read, write, task) = (lock.read_lock(), lock.write_lock(), curator.task());
    assert!(read.release(&task).await.is_err_and(|error| is_monitor_state(&error)));
    write.acquire(&task).await.expect("free");
    write.acquire(&task).await.expect("its own");
    read.acquire(&task).await.expect("its own");
    read.acquire(&task).await.expect("its own");
    write.release(&task).await.expect("held");
    read.release(&task).await.expect("held");
    assert!(write.is_owned_by(&task) && read.is_owned_by(&task));
    write.release(&task).await.expect("held");
    assert!(write.release(&task).await.is_err_and(|error| is_monitor_state(&error)));
    assert!(read.is_acquired_in_this_process() && !write.is_acquired_in_this_process());
    assert!(!write.acquire_within(&curator.task(), SHORT).await.expect("answered"));
    read.release(&task).await.expect("held");
    assert!(!read.is_acquired_in_this_process());
    in_use(curator.client(), "a", 0, 0).await;
    read.acquire(&task).await.expect("free");
    assert!(read.acquire_within(&curator.task(), LONG).await.expect("shared"));
    drop((read, write, lock));
    in_use(curator.client(), "a", 0, 0).await;
}

/// While the last release of a task is not answered, another call of the task is refused. The task can acquire the lock
/// afterwards.
async fn a_task_makes_one_call_at_a_time<S: LockService>(service: S) {
    let curator = curator(service, "rw-busy").await;
    let lock = InterProcessReadWriteLock::new(&curator, "a");
    let (read, write, task) = (lock.read_lock(), lock.write_lock(), curator.task());
    for side in [&read, &write] {
        side.acquire(&task).await.expect("free");
        let (released, acquired) = tokio::join!(side.release(&task), side.acquire(&task));
        released.expect("held");
        assert!(acquired.is_err_and(|error| is_state(&error)));
        in_use(curator.client(), "a", 0, 0).await;
    }
    write.acquire(&task).await.expect("free");
    in_use(curator.client(), "a", 1, 0).await;
    write.release(&task).await.expect("held");
}

/// W-CUR-04: the outage lasts longer than the calls wait. A writer counts as one until the cluster has answered its
/// last release, which frees one lock and makes the writer of the other one a reader. The reader can release its lock
/// then.
async fn w_cur_04_a_side_is_held_until_its_release_is_answered<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service.clone());
    let builder = CuratorFramework::builder(faulty, namespace("rw-cut")).connection_timeout(OUTAGE);
    let here = builder.session_timeout(LONG).start().await.expect("started");
    let there = curator(service, "rw-cut").await;
    let (free, shared) = (InterProcessReadWriteLock::new(&here, "a"), InterProcessReadWriteLock::new(&here, "b"));
    let (frees, shares, reads) = (free.write_lock(), shared.write_lock(), shared.read_lock());
    let (task, other) = (here.task(), here.task());
    frees.acquire(&task).await.expect("free");
    shares.acquire(&task).await.expect("free");
    reads.acquire(&task).await.expect("it is the writer");
    cut(&faults);
    let unknown = tokio::join!(frees.release(&task), shares.release(&task));
    for unknown in [unknown.0, unknown.1] {
        assert_eq!(unknown.err().as_ref().and_then(code), Some(ErrorCode::Unknown));
    }
    for write in [&frees, &shares] {
        assert!(write.is_acquired_in_this_process() && write.is_owned_by(&task) && !write.is_owned_by(&other));
        write.release(&task).await.expect("its session continues with the release");
        assert!(write.release(&other).await.is_err_and(|error| is_monitor_state(&error)));
    }
    assert!(!free.read_lock().is_owned_by(&task) && reads.is_owned_by(&task));
    for name in ["a", "b"] {
        in_use(there.client(), name, 1, 0).await;
    }
    faults.ignores_renewals.store(false, SeqCst);
    faults.detached.store(false, SeqCst);
    until("the releases are answered", async || {
        !frees.is_acquired_in_this_process() && !shares.is_acquired_in_this_process()
    })
    .await;
    assert!(reads.is_owned_by(&task) && !shares.is_owned_by(&task));
    reads.release(&task).await.expect("held");
    for name in ["a", "b"] {
        in_use(there.client(), name, 0, 0).await;
    }
}

/// Every call reports that the lock was lost with its session, and other clients can acquire it.
async fn a_lost_read_write_lock_reports_the_loss<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service.clone());
    let (here, there) = (short_curator(faulty, "rw-lost").await, curator(service, "rw-lost").await);
    let (lock, other) = (InterProcessReadWriteLock::new(&here, "a"), InterProcessReadWriteLock::new(&there, "a"));
    let (task, next) = (here.task(), there.task());
    lock.write_lock().acquire(&task).await.expect("free");
    faults.ignores_renewals.store(true, SeqCst);
    other.write_lock().acquire(&next).await.expect("the holder is dead");
    assert!(!lock.write_lock().is_owned_by(&task));
    let again = lock.read_lock().acquire(&task).await.expect_err("lost");
    let release = lock.write_lock().release(&task).await.expect_err("lost");
    assert_eq!((code(&again), code(&release)), (Some(ErrorCode::SessionEnded), Some(ErrorCode::SessionEnded)));
    faults.ignores_renewals.store(false, SeqCst);
    assert!(!lock.read_lock().acquire_within(&task, SHORT).await.expect("a new session"));
    other.write_lock().release(&next).await.expect("held");
}
