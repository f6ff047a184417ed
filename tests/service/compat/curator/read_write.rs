//! The read-write lock.

use std::sync::atomic::Ordering::SeqCst;

use lockkeeper::compat::curator::InterProcessReadWriteLock;
use lockkeeper::service::{ErrorCode as Word, LockService};

use super::{curator, is_monitor_state, is_state, short_curator, word};
use crate::faulty::Faulty;
use crate::suite::{LONG, SHORT, in_use};

behaviours! {
    r_rw_01_a_reader_waits_behind_a_waiting_writer
    r_rw_02_a_writer_becomes_a_reader_without_a_gap
    r_rw_03_upgrades_never_hang
    both_sides_are_counted
    a_lost_read_write_lock_says_so
}

/// R-RW-01: of a reader, a reader, a writer and a reader, in this order, the first two share, and the last one waits behind
/// the writer.
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
        _ = &mut reads => panic!("a writer waits before it"),
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

/// R-RW-02: a writer that reads, too, and gives back the write lock, while another writer waits, is a reader at once and
/// under the same token; the writer waits on until the last read is given back. Where the two sides are two nodes the new
/// read node stands behind the waiting writer (apache/curator#796).
async fn r_rw_02_a_writer_becomes_a_reader_without_a_gap<S: LockService>(service: S) {
    // Nodes in the order of their numbers; a read node counts as held while no write node of another stands before it.
    let mut nodes = vec![("write", "a"), ("write", "b"), ("read", "a")];
    nodes.remove(0);
    let reads =
        !nodes.iter().take_while(|node| **node != ("read", "a")).any(|(kind, of)| *kind == "write" && *of != "a");
    assert!(!reads, "a believes that it reads, and b writes");

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

/// R-RW-03: a reader that asks for the write lock is refused at once; it is upgraded where it reads alone, under a new
/// token; of two that would be upgraded the second is refused, and nobody hangs.
async fn r_rw_03_upgrades_never_hang<S: LockService>(service: S) {
    let curator = curator(service, "rw-03").await;
    let lock = InterProcessReadWriteLock::new(&curator, "a");
    let (read, write, task, other) = (lock.read_lock(), lock.write_lock(), curator.task(), curator.task());
    read.acquire(&task).await.expect("free");
    let shared = read.token(&task);
    assert!(write.acquire(&task).await.is_err_and(|error| is_state(&error)), "Curator's waits for ever");
    assert!(lock.upgrade(&other).await.is_err_and(|error| is_state(&error)), "it does not read");
    let token = lock.upgrade(&task).await.expect("alone");
    assert!(shared < Some(token) && write.is_owned_by(&task) && read.is_owned_by(&task));
    write.release(&task).await.expect("held");
    read.acquire(&other).await.expect("shared again");
    let refused = lock.upgrade(&task).await.expect_err("another reads");
    assert_eq!(word(&refused), Some(Word::NotAcquired));
    assert!(read.is_owned_by(&task));
    let (first, second) = tokio::join!(lock.upgrade_within(&task, LONG), async {
        in_use(curator.client(), "a", 2, 1).await;
        let second = lock.upgrade_within(&other, LONG).await;
        read.release(&other).await.expect("held");
        second
    });
    assert_eq!(second.err().as_ref().and_then(word), Some(Word::NotAcquired));
    assert!(Some(token) < first.ok() && write.is_owned_by(&task));
    write.release(&task).await.expect("held");
    read.release(&task).await.expect("held");
    in_use(curator.client(), "a", 0, 0).await;
}

/// Both sides are counted for each task, and a release on the wrong side changes nothing.
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

/// What was lost with its session is told at every call, and is free for others.
async fn a_lost_read_write_lock_says_so<S: LockService>(service: S) {
    let (faulty, faults) = Faulty::new(service.clone());
    let (here, there) = (short_curator(faulty, "rw-lost").await, curator(service, "rw-lost").await);
    let (lock, other) = (InterProcessReadWriteLock::new(&here, "a"), InterProcessReadWriteLock::new(&there, "a"));
    let (task, next) = (here.task(), there.task());
    lock.write_lock().acquire(&task).await.expect("free");
    faults.deaf.store(true, SeqCst);
    other.write_lock().acquire(&next).await.expect("the holder is dead");
    assert!(!lock.write_lock().is_owned_by(&task));
    let again = lock.read_lock().acquire(&task).await.expect_err("lost");
    let release = lock.write_lock().release(&task).await.expect_err("lost");
    assert_eq!((word(&again), word(&release)), (Some(Word::SessionEnded), Some(Word::SessionEnded)));
    faults.deaf.store(false, SeqCst);
    assert!(!lock.read_lock().acquire_within(&task, SHORT).await.expect("a new session"));
    other.write_lock().release(&next).await.expect("held");
}
