//! The lock machine as Raft's state machine: it applies entries, answers their proposers, and updates the state's
//! digest.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};

use futures_util::{Stream, StreamExt};
use openraft::OptionalSend;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use tokio::sync::{Notify, watch};
use tokio::time::Instant as TokioInstant;

use super::blocking::synced;
use super::core::Core;
use super::disk_ids::{DiskIds, wiped};
use super::entry_cache::size_bytes;
use super::error::removed;
use super::hooks::Hooks;
use super::messages::SelfIdentity;
use super::payload::{self, Origin};
use super::types::{
    Proposal, RaftEntry, RaftLogId, RaftPayload, Snapshot, SnapshotData, SnapshotMeta, StoredMembership, Types,
    from_log_id,
};
use crate::limits::{CHECKPOINT_ENTRIES, CHECKPOINT_RECORDS};
use crate::machine::Applied;
use crate::model::Command;
use crate::mutex::Mutex;
use crate::storage::{Head, Recovered, SnapshotFile, StateStore, Wal};

/// The data that the state machine, the checkpoint task and the handle share.
pub(super) struct Shared {
    pub(super) me: SelfIdentity,
    pub(super) origin: Origin,
    core: Mutex<Core>,
    /// The disk ids that the machine knows, updated with every applied entry.
    pub(super) disks: DiskIds,
    /// The cluster's id that the machine knows. It is set once.
    pub(super) cluster_id: watch::Sender<Option<u128>>,
    pub(super) store: Arc<dyn StateStore>,
    pub(super) wal: Arc<dyn Wal>,
    pub(super) hooks: Arc<dyn Hooks>,
    /// Permits one checkpoint, export or install at a time.
    pub(super) gate: tokio::sync::Mutex<()>,
    /// Permits one snapshot at a time to be received.
    pub(super) receiving: tokio::sync::Mutex<()>,
    /// Notified when enough entries were applied for a checkpoint.
    pub(super) checkpoint_due: Notify,
    /// Size of the log at the start, and payload bytes of all entries applied since. It counts the log at the start,
    /// because a node that restarts often would otherwise never write a snapshot file and purge its log.
    pub(super) log_bytes: AtomicU64,
    /// Index of the newest entry in the newest snapshot that Raft knows. It does not know the files of backups.
    pub(super) raft_snapshot: AtomicU64,
    /// When this node last knew of a leader; before the first one, the start of this node.
    pub(super) led_at: Mutex<TokioInstant>,
    /// Why this node must stop. The first reason is kept.
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
        let log_bytes = AtomicU64::new(wal.size_bytes());
        let shared = Self {
            me,
            origin,
            core: Mutex::new(core),
            disks: DiskIds::default(),
            cluster_id: watch::Sender::new(None),
            store,
            wal,
            hooks,
            gate: tokio::sync::Mutex::default(),
            receiving: tokio::sync::Mutex::default(),
            checkpoint_due: Notify::new(),
            log_bytes,
            raft_snapshot: AtomicU64::new(0),
            led_at: Mutex::new(TokioInstant::now()),
            fault: watch::Sender::new(None),
        };
        shared.follow(&shared.core());
        shared.hooks.installed(shared.core().machine.newest_event());
        Ok(shared)
    }

    /// Copies the cluster's id and the disk ids from the state. Stops this node if the state has another disk id for
    /// it.
    pub(super) fn follow(&self, core: &Core) {
        let known = self.cluster_id.borrow().is_some();
        if !known && core.machine.cluster_id().is_some() {
            self.cluster_id.send_replace(core.machine.cluster_id());
        }
        self.disks.follow(&core.machine);
        if self.disks.differs(self.me.node, self.me.disk) {
            self.fail(&wiped(self.me.node));
        }
    }

    /// Stops this node if it belonged to the members and the state does not have it any more. An id under which no disk
    /// was announced may be added again, so the removal of such a node may be followed by its return.
    pub(super) fn check_membership(&self, belonged: bool, core: &Core) {
        if belonged && !core.has_member(self.me.node) && self.disks.of(self.me.node).is_some() {
            self.fail(&removed(self.me.node));
        }
    }

    /// Locks the state for a short time: the caller must not await while it holds the guard.
    pub(super) fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock()
    }

    /// Records that the cluster had a leader at this time.
    pub(super) fn had_leader(&self, at: TokioInstant) {
        let mut led_at = self.led_at.lock();
        *led_at = at.max(*led_at);
    }

    /// Stops the node for this reason. Does nothing if the node already stops for another one.
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
        self.log_bytes.fetch_add(size_bytes(&entry) as u64, Ordering::Relaxed);
        let mut core = self.core();
        let belonged = core.has_member(self.me.node);
        let applied = core.apply(entry).inspect_err(|error| self.fail(&error.to_string()))?;
        self.follow(&core);
        self.check_membership(belonged, &core);
        if CHECKPOINT_ENTRIES <= core.unwritten || CHECKPOINT_RECORDS <= core.dirty.pending() {
            self.checkpoint_due.notify_one();
        }
        Ok(applied)
    }
}

/// A finished snapshot file in openraft's form.
pub(super) fn snapshot_of(file: SnapshotFile) -> io::Result<Snapshot> {
    Ok(Snapshot { meta: meta_of(file.head())?, snapshot: SnapshotData::File(file) })
}

pub(super) fn meta_of(head: &Head) -> io::Result<SnapshotMeta> {
    let (_, last_membership) = payload::decode_head_meta(&head.meta)?;
    Ok(SnapshotMeta { last_log_id: head.log_id.map(from_log_id), last_membership })
}

/// Decodes the commands of the entry. If that fails, the error is reported when the entry is applied.
fn decoded(mut entry: RaftEntry) -> RaftEntry {
    if let RaftPayload::Normal(proposal) = &mut entry.payload
        && proposal.entry.is_none()
    {
        proposal.entry = proposal.clone().decoded().ok();
    }
    entry
}

/// Whether the entry has a node's announcement of its disk id.
fn announces(entry: &RaftEntry) -> bool {
    let RaftPayload::Normal(Proposal { entry: Some(entry), .. }) = &entry.payload else { return false };
    entry.commands.iter().any(|submission| matches!(submission.command, Command::Announce(_)))
}

/// The shared state as openraft's state machine.
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
            let entry = decoded(entry);
            if announces(&entry) {
                // The record that this entry is committed is still in the log's buffer. Once it is durable, this node
                // knows every announced disk id right after its next start, and never votes for a node with another
                // one.
                synced(&*self.0.wal).await?;
            }
            let applied = self.0.apply(entry)?;
            if let Some(responder) = responder {
                responder.send(applied.clone());
            }
            if let Some(applied) = applied {
                self.0.hooks.applied(&applied);
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
