//! The lock machine under Raft: applies entries, answers who proposed them, and keeps the state's digest.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use openraft::OptionalSend;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use tokio::sync::{Notify, Semaphore, watch};

use super::consensus::Hooks;
use super::disks::{Disks, wiped};
use super::ledger::Ledger;
use super::members::removed;
use super::payload::{self, Origin};
use super::ring::size_bytes;
use super::store::{on_files, synced};
use super::types::{
    Proposal, RaftEntry, RaftLogId, RaftPayload, Snapshot, SnapshotMeta, StoredMembership, Types, from_log_id,
    to_log_id,
};
use super::wire::SelfIdentity;
use crate::codec;
use crate::limits::{CHECKPOINT_ENTRIES, CHECKPOINT_RECORDS, DIGEST_MS, FOLD_RECORDS, SNAPSHOTS_RECEIVED_MAX};
use crate::machine::{Applied, Machine};
use crate::model::{Command, DigestClaim};
use crate::storage::{Head, LogId, ReceivedSnapshot, Recovered, SnapshotFile, StateStore, Wal};

/// A snapshot on its way: a finished file of this node, or one that was received and waits to be installed.
pub(super) enum SnapshotData {
    /// The newest file here, pinned.
    File(SnapshotFile),
    /// Received and verified, under a temporary name.
    Received(ReceivedSnapshot),
}

/// The state after the entry `last`.
pub(super) struct Core {
    /// Whose state it is.
    origin: Origin,
    pub(super) machine: Machine,
    pub(super) ledger: Ledger,
    pub(super) last: Option<LogId>,
    pub(super) membership: StoredMembership,
    /// Entries applied since the last checkpoint.
    pub(super) unwritten: u64,
}

impl Core {
    /// The state that these records hold.
    pub(super) fn load(origin: &Origin, head: &Head, records: &[(Bytes, Bytes)]) -> io::Result<Self> {
        if let Some(found) = payload::decode_origin(&head.meta)?.filter(|found| found != origin) {
            let (theirs, ours) = (found.peers_id, origin.peers_id);
            return Err(damaged(format!(
                "a state of another cluster ({}, peers_id {theirs:032x}); this is {ours:032x}",
                found.cluster
            )));
        }
        let machine = decoded_machine(records)?;
        let ledger = Ledger::of(records);
        if ledger.digest() != head.digest || ledger.records() != head.records {
            return Err(damaged("the records of the state are not those that their head announces".to_owned()));
        }
        let membership = payload::decode_head_meta(&head.meta)?;
        Ok(Self { origin: origin.clone(), machine, ledger, last: head.log_id, membership, unwritten: 0 })
    }

    /// What the state is now. The ledger must have been folded.
    pub(super) fn head(&self) -> Head {
        Head {
            log_id: self.last,
            records: self.ledger.records(),
            digest: self.ledger.digest(),
            meta: payload::encode_head_meta(&self.origin, &self.membership),
        }
    }

    fn has_member(&self, node: u64) -> bool {
        self.membership.get_node(&node).is_some()
    }

    /// Whether there are members, and the node is none of them.
    pub(super) fn has_lost(&self, node: u64) -> bool {
        self.membership.nodes().next().is_some() && !self.has_member(node)
    }

    fn apply(&mut self, entry: RaftEntry) -> io::Result<Option<Arc<Applied>>> {
        let id = to_log_id(&entry.log_id);
        let stretch = self.machine.now().0 / DIGEST_MS;
        let applied = match entry.payload {
            RaftPayload::Blank => {
                self.machine.skip(id.index);
                None
            }
            RaftPayload::Membership(membership) => {
                self.membership = StoredMembership::new(Some(entry.log_id), membership);
                self.machine.skip(id.index);
                None
            }
            RaftPayload::Normal(proposal) => Some(Arc::new(self.decide(id, proposal)?)),
        };
        self.last = Some(id);
        self.unwritten += 1;
        if stretch != self.machine.now().0 / DIGEST_MS {
            self.ledger.fold(&mut self.machine);
            self.ledger.remember(id.index);
        } else if FOLD_RECORDS <= self.machine.state().dirty_records() {
            self.ledger.fold(&mut self.machine);
        }
        Ok(applied)
    }

    fn decide(&mut self, id: LogId, mut proposal: Proposal) -> io::Result<Applied> {
        let listener = proposal.listener.take();
        let entry =
            proposal.decoded().map_err(|error| damaged(format!("log entry {id} cannot be decoded: {error}")))?;
        if let Some((claim, own)) = entry.digest.and_then(|claim| Some((claim, self.ledger.differing(claim)?))) {
            return Err(damaged(differing(id, claim, own)));
        }
        Ok(self.machine.apply_telling(id.index, &entry, |so_far| {
            if let Some(listener) = &listener {
                listener.decided(so_far);
            }
        }))
    }
}

/// The machine that these records make; an empty one of none.
pub(super) fn decoded_machine(records: &[(Bytes, Bytes)]) -> io::Result<Machine> {
    let decoded = records
        .iter()
        .map(|(key, value)| codec::decode_record(key, value))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| damaged(format!("a record of the state: {error}")))?;
    if decoded.is_empty() {
        return Ok(Machine::new());
    }
    Machine::from_records(decoded).map_err(|error| damaged(error.to_string()))
}

fn differing(id: LogId, claim: DigestClaim, own: u128) -> String {
    format!(
        "the state here differs from that of most voters after log entry {}: digest {own:032x} here, {:032x} there \
         (told in {id}); this node must not serve; move its directory away and put a new node in its place: lockkeeper member add",
        claim.index, claim.digest
    )
}

pub(super) fn damaged(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// What the state machine, the keeper of checkpoints, and the handle share.
pub(super) struct Shared {
    pub(super) me: SelfIdentity,
    origin: Origin,
    pub(super) core: Mutex<Core>,
    /// Kept beside the machine, as it is applied.
    pub(super) disks: Disks,
    /// The same: the cluster's id. It is fixed once.
    pub(super) cluster_id: watch::Sender<Option<u128>>,
    pub(super) store: Arc<dyn StateStore>,
    pub(super) wal: Arc<dyn Wal>,
    pub(super) hooks: Arc<dyn Hooks>,
    /// One checkpoint, export or install at a time.
    pub(super) gate: tokio::sync::Mutex<()>,
    /// Places for snapshots that are being received.
    pub(super) receiving: Semaphore,
    /// Enough was applied for a checkpoint.
    pub(super) checkpoint_due: Notify,
    /// Payload bytes of all entries applied since the start.
    pub(super) applied_bytes: AtomicU64,
    /// Why this node must stop; the first reason stays.
    pub(super) fault: watch::Sender<Option<String>>,
}

impl Shared {
    pub(super) fn new(
        me: SelfIdentity,
        origin: Origin,
        recovered: &Recovered,
        store: Arc<dyn StateStore>,
        wal: Arc<dyn Wal>,
        hooks: Arc<dyn Hooks>,
    ) -> io::Result<Self> {
        let core = Core::load(&origin, &recovered.head, &recovered.records)?;
        let shared = Self {
            me,
            origin,
            core: Mutex::new(core),
            disks: Disks::default(),
            cluster_id: watch::Sender::new(None),
            store,
            wal,
            hooks,
            gate: tokio::sync::Mutex::default(),
            receiving: Semaphore::new(SNAPSHOTS_RECEIVED_MAX),
            checkpoint_due: Notify::new(),
            applied_bytes: AtomicU64::new(0),
            fault: watch::Sender::new(None),
        };
        shared.follow(&shared.core());
        shared.hooks.installed(shared.core().machine.newest_event());
        Ok(shared)
    }

    /// Learns from the state the cluster's id, and who is known by which disk; stops this node where it is not the one that
    /// is known.
    fn follow(&self, core: &Core) {
        let known = self.cluster_id.borrow().is_some();
        if !known && core.machine.cluster_id().is_some() {
            self.cluster_id.send_replace(core.machine.cluster_id());
        }
        self.disks.follow(&core.machine);
        if self.disks.differs(self.me.node, self.me.disk) {
            self.fail(&wiped(self.me.node));
        }
    }

    /// The state, for a moment: nothing may be awaited while it is held.
    pub(super) fn core(&self) -> MutexGuard<'_, Core> {
        // A panic while it was held ends the process anyway; a reader on the way there may still look.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the node with this reason, unless it has one already.
    pub(super) fn fail(&self, why: &str) {
        self.fault.send_if_modified(|fault| {
            let first = fault.is_none();
            if first {
                *fault = Some(why.to_owned());
            }
            first
        });
    }

    fn apply(&self, entry: RaftEntry) -> io::Result<Option<Arc<Applied>>> {
        if let Some(why) = self.fault.borrow().clone() {
            return Err(io::Error::other(why));
        }
        self.applied_bytes.fetch_add(size_bytes(&entry) as u64, Ordering::Relaxed);
        let mut core = self.core();
        let belonged = core.has_member(self.me.node);
        let applied = core.apply(entry).inspect_err(|error| self.fail(&error.to_string()))?;
        if belonged && !core.has_member(self.me.node) {
            self.fail(&removed(self.me.node));
        }
        self.follow(&core);
        if CHECKPOINT_ENTRIES <= core.unwritten || CHECKPOINT_RECORDS <= core.ledger.pending() {
            self.checkpoint_due.notify_one();
        }
        Ok(applied)
    }

    /// Replaces the whole state by a received snapshot. A crash in the middle leaves the old or the new one.
    async fn install(&self, meta: &SnapshotMeta, data: SnapshotData) -> io::Result<()> {
        let _gate = self.gate.lock().await;
        // A tail that was truncated only in memory would contradict the snapshot after a power cut.
        synced(&*self.wal).await?;
        let received = match data {
            SnapshotData::Received(received) => received,
            SnapshotData::File(file) => {
                let store = Arc::clone(&self.store);
                on_files(&*self.store, move || copied(&*store, &file)).await??
            }
        };
        let announced = meta.last_log_id.as_ref().map(to_log_id);
        if received.head().log_id != announced {
            return Err(damaged(format!("a snapshot announced at {announced:?} is at {:?}", received.head().log_id)));
        }
        let (done, installed) = super::store::awaited_file();
        self.store.install(received, done);
        let file = installed.await?;
        let origin = self.origin.clone();
        let load = move || {
            let records = file.records()?.collect::<io::Result<Vec<_>>>()?;
            Core::load(&origin, file.head(), &records)
        };
        let core = on_files(&*self.store, load).await??;
        self.follow(&core);
        let belongs = core.has_member(self.me.node);
        let newest = core.machine.newest_event();
        let before = std::mem::replace(&mut *self.core(), core);
        if before.has_member(self.me.node) && !belongs {
            self.fail(&removed(self.me.node));
        }
        self.hooks.installed(newest);
        // A large table takes a while to go.
        on_files(&*self.store, move || drop(before)).await
    }
}

fn copied(store: &dyn StateStore, file: &SnapshotFile) -> io::Result<ReceivedSnapshot> {
    let mut writer = store.receive()?;
    for chunk in file.chunks(crate::limits::SNAPSHOT_CHUNK_BYTES)? {
        writer.write(&chunk?)?;
    }
    writer.finish()
}

/// A finished file as openraft hands it about.
pub(super) fn snapshot_of(file: SnapshotFile) -> io::Result<Snapshot> {
    Ok(Snapshot { meta: meta_of(file.head())?, snapshot: SnapshotData::File(file) })
}

pub(super) fn meta_of(head: &Head) -> io::Result<SnapshotMeta> {
    let last_membership = payload::decode_head_meta(&head.meta)?;
    Ok(SnapshotMeta { last_log_id: head.log_id.map(from_log_id), last_membership })
}

/// The entry with its commands read; one that cannot be read is reported where it is applied.
fn decoded(mut entry: RaftEntry) -> RaftEntry {
    if let RaftPayload::Normal(proposal) = &mut entry.payload
        && proposal.entry.is_none()
    {
        proposal.entry = proposal.clone().decoded().ok();
    }
    entry
}

/// Whether a node says in it which disk it has.
fn announces(entry: &RaftEntry) -> bool {
    let RaftPayload::Normal(Proposal { entry: Some(entry), .. }) = &entry.payload else { return false };
    entry.commands.iter().any(|submission| matches!(submission.command, Command::Announce(_)))
}

/// openraft's side of the shared state.
#[derive(Clone)]
pub(super) struct StateMachine(pub(super) Arc<Shared>);

impl RaftStateMachine<Types> for StateMachine {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> io::Result<(Option<RaftLogId>, StoredMembership)> {
        let core = self.0.core();
        Ok((core.last.map(from_log_id), core.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + OptionalSend,
    {
        while let Some(item) = entries.next().await {
            let (entry, responder) = item?;
            let id = to_log_id(&entry.log_id);
            let entry = decoded(entry);
            if announces(&entry) {
                // The mark that it is committed lies in the log's buffer: durable with it, the node knows every disk that
                // was announced from the first moment of its next start, and votes for no other.
                synced(&*self.0.wal).await?;
            }
            let applied = self.0.apply(entry)?;
            if let Some(responder) = responder {
                responder.send(applied.clone());
            }
            if let Some(applied) = applied {
                self.0.hooks.applied(id.index, id.term, &applied);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: SnapshotData) -> io::Result<()> {
        self.0.install(meta, snapshot).await.inspect_err(|error| self.0.fail(&error.to_string()))
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
        self.0.store.current_snapshot().map(snapshot_of).transpose()
    }
}

impl RaftSnapshotBuilder<Types> for StateMachine {
    type SnapshotData = SnapshotData;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        let file = self.0.export().await.inspect_err(|error| self.0.fail(&error.to_string()))?;
        snapshot_of(file)
    }
}
