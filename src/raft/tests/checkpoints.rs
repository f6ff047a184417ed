//! Tests of what a checkpoint writes to the mirror, and of how much of the log and the state is read at once.

use std::collections::BTreeSet;

use futures_util::{FutureExt, StreamExt, stream};
use openraft::RaftLogReader;
use openraft::storage::RaftStateMachine;

use super::super::log_store::LogStore;
use super::super::messages::SelfIdentity;
use super::super::payload::{self, Origin};
use super::super::state_machine::{Shared, StateMachine, snapshot_of};
use super::super::types::{Proposal, RaftEntry, RaftMembership, RaftPayload, from_log_id};
use super::*;
use crate::codec::tests::hostile::held;
use crate::limits::REBUILD_RECORDS;
use crate::model::{Announcement, Handle, Instance, Metadata, OpenSession, SessionClose, SessionId};
use crate::storage::{self, LogId, Owner, Wal};

/// An entry with these commands.
fn entry(stamp: u64, commands: impl IntoIterator<Item = Command>) -> Entry {
    let mut entry = tick(stamp);
    let submission = entry.commands.pop().unwrap();
    entry.commands = commands.into_iter().map(|command| Submission { command, ..submission.clone() }).collect();
    entry
}

/// A command that opens a session, which creates one record.
fn open(number: u64) -> Command {
    Command::OpenSession(OpenSession {
        namespace: Default::default(),
        handle: Handle::from_random(number.into()),
        instance: Instance(number.into()),
        ttl_ms: 60_000,
        disconnect_grace_ms: None,
        metadata: Metadata::default(),
        accepts_hand_over: false,
    })
}

impl Cluster {
    async fn opens(&self, number: u64) {
        let leader = self.leader().await;
        propose(self.node(leader), entry(number, [open(number)])).await.unwrap();
    }
}

/// If the caller of a backup is dropped while the backup waits for the log, the next checkpoint writes the changes that
/// the backup had taken. The mirror then has every record of the table, and the next start uses it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abandoned_backup_loses_no_change() {
    let mut cluster = Cluster::start(|_| ()).await;
    cluster.opens(1).await;
    let leader = cluster.leader().await;
    let node = leader % 3 + 1;
    cluster.caught_up(node).await;
    let (wal, state) = cluster.storages[&node].clone();
    wal.hold_syncs();
    cluster.opens(2).await;
    cluster.caught_up(node).await;
    let backup = cluster.node(node).backup();
    assert!(backup.now_or_never().is_none(), "it waits for the log");
    wal.release_syncs();
    cluster.opens(3).await;
    cluster.caught_up(node).await;
    cluster.stop(node).await;
    let recovered = state.recover(&wal).unwrap();
    assert_eq!((recovered.source, recovered.note), (Source::Mirror, None));
    let sessions = recovered.records.iter().filter(|(key, _)| key.starts_with(b"s")).count();
    assert_eq!(sessions, 3);
}

/// The state of one node without Raft, to which a test applies entries.
struct Alone {
    wal: MemoryWal,
    state: MemoryState,
    shared: Arc<Shared>,
}

impl Alone {
    fn new() -> Self {
        let (wal, state) = (MemoryWal::default(), MemoryState::default());
        let me = SelfIdentity { peers_id: 7, node: 1, disk: 11, process: 0 };
        let origin = Origin { cluster: "alone".to_owned(), peers_id: 7 };
        let (any_state, any_wal) = (Arc::new(state.clone()), Arc::new(wal.clone()));
        let shared = Shared::new(me, origin, &nothing(), any_state, any_wal, Arc::new(Deaf)).unwrap();
        Self { wal, state, shared: Arc::new(shared) }
    }

    /// Appends and applies an entry.
    async fn apply(&self, index: u64, commands: impl IntoIterator<Item = Command>) {
        self.apply_payload(index, RaftPayload::Normal(Proposal::new(entry(index, commands), None))).await;
    }

    async fn apply_payload(&self, index: u64, payload: RaftPayload) {
        let id = LogId::new(1, 1, index);
        self.wal.append(vec![(id, payload::encode(&payload))], Box::new(drop)).unwrap();
        let entry = RaftEntry { log_id: from_log_id(id), payload };
        StateMachine(Arc::clone(&self.shared)).apply(stream::iter([Ok((entry, None))])).await.unwrap();
    }

    /// Makes node 2 the only voter, and node 1 a learner if it is one of the members.
    async fn members<const N: usize>(&self, index: u64, members: [u64; N]) {
        let member = |id| (id, Member { client: String::new(), peer: format!("n{id}:7602") });
        let nodes: BTreeMap<u64, Member> = members.map(member).into();
        let membership = RaftMembership::new(vec![BTreeSet::from([2])], nodes).unwrap();
        self.apply_payload(index, RaftPayload::Membership(membership)).await;
    }
}

/// Whether a node that applied its addition, and was announced or not, stops with its removal, which it applies or
/// finds in a snapshot.
async fn stops(announced: bool, by_snapshot: bool) -> bool {
    let (node, other) = (Alone::new(), Alone::new());
    for node in [&node, &other] {
        node.members(1, [1, 2]).await;
        let announcement =
            Announcement { node: 1, disk: 11, features: 1, version: String::new(), http: None, rules: None };
        node.apply(2, announced.then_some(Command::Announce(announcement))).await;
    }
    other.members(3, [2]).await;
    if by_snapshot {
        let snapshot = snapshot_of(other.shared.export().await.unwrap()).unwrap();
        node.shared.install(&snapshot.meta, snapshot.snapshot).await.unwrap();
        node.wal.purge(LogId::new(1, 1, 3)).unwrap();
    } else {
        node.members(3, [2]).await;
    }
    let stopped = node.shared.fault.borrow().is_some();
    if !stopped {
        node.members(4, [1, 2]).await;
        assert!(node.shared.core().has_member(1) && node.shared.fault.borrow().is_none());
    }
    stopped
}

/// A node that was removed before it was started, and added again under its id, finds its removal in the log and
/// continues. A node that had been announced stops.
#[tokio::test]
async fn a_removal_before_the_first_start_stops_no_node() {
    for by_snapshot in [false, true] {
        assert!(!stops(false, by_snapshot).await, "by a snapshot: {by_snapshot}");
        assert!(stops(true, by_snapshot).await, "by a snapshot: {by_snapshot}");
    }
}

/// A node that is restarted again and again applies little after each start. The log that it has at a start counts, so
/// it writes a snapshot file nevertheless.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_restarts_often_writes_a_snapshot_file() {
    let mut cluster = Cluster::start(|settings| {
        (settings.snapshot_log_bytes_min, settings.checkpoint_ms, settings.purge_margin_entries) = (8 << 10, 10, 0);
    })
    .await;
    let node = cluster.leader().await % 3 + 1;
    let (wal, _) = cluster.storages[&node].clone();
    let mut number = 0;
    while wal.size_bytes() < 8 << 10 {
        assert_eq!(cluster.node(node).snapshot_bytes(), None);
        let before = wal.size_bytes();
        while wal.size_bytes() < before + (3 << 10) {
            number += 1;
            cluster.opens(number).await;
            cluster.caught_up(node).await;
        }
        cluster.stop(node).await;
        cluster.restart(node).await;
    }
    soon(async {
        while cluster.node(node).snapshot_bytes().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// A new mirror is read from the table in parts, and entries are applied between the parts. The mirror contains the
/// records that these entries change, create and remove, with their values at its head.
#[tokio::test]
async fn a_new_mirror_is_read_from_the_table_in_parts() {
    let alone = Arc::new(Alone::new());
    let pieces = 6;
    let sessions = (pieces * REBUILD_RECORDS) as u64;
    alone.apply(1, (1..=sessions).map(open)).await;
    let (other, applied) = (Arc::clone(&alone), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&applied);
    let applying = tokio::spawn(async move {
        for number in 1.. {
            // Each entry removes one of the first records and one of the last, and creates one that the next entry
            // removes.
            let close = |number| Command::CloseSession { session: SessionId::new(0, number), end: SessionClose::Done };
            let gone = [number, sessions + 1 - number, sessions + number - 1].map(close);
            other.apply(number + 1, gone.into_iter().chain([open(sessions + number)])).await;
            count.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
    });
    alone.shared.rebuild_gated().await.unwrap();
    applying.abort();
    assert!(applying.await.unwrap_err().is_cancelled());
    let between = applied.load(Ordering::Relaxed);
    assert!(between >= pieces as u64, "{between} entries were applied while {pieces} parts were read");
    let recovered = alone.state.recover(&alone.wal).unwrap();
    assert_eq!((recovered.source, recovered.note), (Source::Mirror, None));
    let at = recovered.head.log_id.unwrap().index;
    assert!(at >= pieces as u64, "the mirror is at {at}: its head is as old as the first part");
}

const BLANK: Bytes = Bytes::from_static(&[0]);

/// Entries to apply are read in parts: only a small part of 200,000 entries is in memory at a time.
#[test]
fn a_long_range_is_read_in_parts() {
    let wal = MemoryWal::default();
    let entries = 200_000;
    wal.append((0..entries).map(|index| (LogId::new(1, 1, index), BLANK)).collect(), Box::new(drop)).unwrap();
    let mut log = LogStore::new(Arc::new(wal));
    let (count, bytes) = held(|| {
        let counting = async { log.entries_stream(0..entries).await.map(Result::unwrap).count().await };
        counting.now_or_never().expect("memory never waits")
    });
    assert_eq!(count as u64, entries);
    let an_entry = size_of::<RaftEntry>() as u64;
    assert!(bytes < entries * an_entry / 10, "{bytes} bytes of memory, {an_entry} for an entry");
}

/// Entries that are not in memory any more are read from the disk on a separate thread, so heartbeats are not delayed.
#[test]
fn the_disk_is_read_on_a_separate_thread() {
    let dir = tempfile::tempdir().unwrap();
    let owner = Owner { cluster: "alone".to_owned(), peers_id: 7, node: 1 };
    let opened = storage::open(dir.path(), owner, 11).unwrap();
    let entries = (0..10).map(|index| (LogId::new(1, 1, index), BLANK)).collect();
    opened.wal.append(entries, Box::new(drop)).unwrap();
    let threads = Arc::new(AtomicU64::new(0));
    let started = Arc::clone(&threads);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .on_thread_start(move || {
            started.fetch_add(1, Ordering::Relaxed);
        })
        .build()
        .unwrap();
    let mut log = LogStore::new(Arc::new(opened.wal.clone()));
    let read = runtime.block_on(log.limited_get_log_entries(0, 10)).unwrap();
    assert_eq!((read.len(), threads.load(Ordering::Relaxed)), (10, 1));
}
