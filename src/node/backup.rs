//! Backups: how a node makes one, what a backup file holds, and how it becomes the first node of a new cluster.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::Node;
use super::admission::BackupInProgress;
use crate::clock::Clock;
use crate::limits;
use crate::model::{Invalid, Member, Query, Restoring};
use crate::raft::Backup;
use crate::service::{Freshness, LockService, NotSent, ServiceError};
use crate::storage::{self, BackupError, Identity, LogId, Owner, SnapshotFile};

/// Sends the parts of a backup, or the error that ends it, to the caller.
type Parts = mpsc::Sender<Result<Bytes, ServiceError>>;

impl Node {
    /// Makes a snapshot file of this node's state, with everything that was acknowledged before the call, and sends it
    /// in the background. Any node can make it, so that the leader need not. An error goes to `parts`, too.
    pub(super) async fn backup_here(&self, in_progress: BackupInProgress, parts: Parts) -> Result<(), ServiceError> {
        let made = tokio::select! {
            () = parts.closed() => Err(ServiceError::unknown("its caller disconnected before the file was made")),
            made = self.complete_file() => made,
        };
        // After the node has stopped, nothing would wait for the rest of the file.
        let made = if *self.core.stop.borrow() { Err(ServiceError::Stopping) } else { made };
        let file = match made {
            Ok(file) => file,
            Err(error) => {
                // The caller may have disconnected.
                parts.send(Err(error.clone())).await.ok();
                return Err(error);
            }
        };
        self.spawn(async move {
            if send(file, parts).await {
                in_progress.complete();
            }
        });
        Ok(())
    }

    /// Returns the newest index of the leader. Retries while no node leads.
    async fn newest_index(&self) -> Result<u64, ServiceError> {
        loop {
            match self.query(Query::Totals, Freshness::Linearizable).await {
                Err(ServiceError::NotSent { .. }) => {
                    tokio::time::sleep(Duration::from_millis(limits::RETRY_MS_MIN)).await;
                }
                answered => return answered.map(|answered| answered.index),
            }
        }
    }

    /// Waits until this node has applied what the leader had applied, and writes a file.
    async fn complete_file(&self) -> Result<SnapshotFile, ServiceError> {
        self.catch_up().await?;
        let file = self.core.consensus.backup().await;
        file.map_err(|error| ServiceError::Internal(format!("node {}: no backup: {error}", self.core.id)))
    }

    /// Waits until this node has applied what the leader had applied when this was called.
    pub(super) async fn catch_up(&self) -> Result<(), ServiceError> {
        let wait = Duration::from_millis(limits::COMMIT_WAIT_MS_MAX);
        let asked = tokio::time::timeout(wait, Box::pin(self.newest_index())).await;
        let index = asked.unwrap_or_else(|_| Err(self.not_sent(NotSent::NoLeader)))?;
        let mut views = self.core.consensus.watch();
        let caught_up = views.wait_for(|view| view.applied >= Some(index) || view.fatal.is_some());
        match tokio::time::timeout(wait, caught_up).await {
            Ok(Ok(view)) if view.fatal.is_none() => Ok(()),
            Ok(_) => Err(ServiceError::Stopping),
            Err(_) => {
                let why = format!("node {} is behind the leader; ask another node", self.core.id);
                Err(self.not_sent(NotSent::Unreachable(why)))
            }
        }
    }
}

/// Sends the file in parts. Returns whether the receiver took all of them, each within
/// [`limits::BACKUP_PART_MS_MAX`].
async fn send(file: SnapshotFile, sender: Parts) -> bool {
    let failed = |error: std::io::Error| ServiceError::Internal(format!("the backup cannot be read: {error}"));
    let longest = Duration::from_millis(limits::BACKUP_PART_MS_MAX);
    let (read, mut parts) = mpsc::channel(1);
    let reading = tokio::task::spawn_blocking(move || {
        // The task ends with the file, or when its parts are not taken any more.
        file.chunks(limits::SNAPSHOT_CHUNK_BYTES).all(|chunk| read.blocking_send(chunk).is_ok())
    });
    while let Some(part) = parts.recv().await {
        let unread = part.is_err();
        let sent = sender.send_timeout(part.map_err(failed), longest).await;
        if unread || sent.is_err() {
            return false;
        }
    }
    reading.await.unwrap_or(false)
}

/// Summary of a backup, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupView {
    /// Name of the cluster that was backed up.
    pub cluster: String,
    /// Id of that cluster, unchanged.
    pub cluster_id: u128,
    /// Log index of the state in the backup.
    pub index: u64,
    /// Number of records.
    pub records: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Number of sessions that were open.
    pub sessions: u64,
}

/// Reads a backup completely and returns its summary.
///
/// # Errors
/// [`RestoreError::Backup`] if the file is damaged, has another format, or is no backup.
pub fn examine(file: &Path) -> Result<BackupView, RestoreError> {
    Ok(read(file)?.0)
}

/// Reads a backup completely, and returns its summary and its state.
fn read(path: &Path) -> Result<(BackupView, Backup), RestoreError> {
    let snapshot = storage::open_backup(path)?;
    let backup = Backup::read(&snapshot)
        .map_err(|error| BackupError::Damaged { path: path.to_path_buf(), what: error.to_string() })?;
    let view = BackupView {
        cluster: backup.cluster.clone(),
        cluster_id: backup.cluster_id,
        index: snapshot.head().log_id.map_or(0, |id: LogId| id.index),
        records: snapshot.head().records,
        bytes: snapshot.size_bytes(),
        sessions: backup.sessions(),
    };
    Ok((view, backup))
}

/// Options of a restore.
#[derive(Debug, Clone)]
pub struct Restore {
    /// Path of the backup file.
    pub file: PathBuf,
    /// Data directory to create; it must not exist, or must be empty.
    pub data: PathBuf,
    /// Expected name of the cluster; the backup of another cluster is refused.
    pub cluster: Option<String>,
    /// Id of the first node of the new cluster; `None` takes the backup's member with the lowest id.
    pub node: Option<u64>,
    /// Addresses of that node; `None` takes those that the backup has for it.
    pub member: Option<Member>,
    /// Lowest epoch of tokens, see [`Restoring::epoch_min`].
    pub epoch_min: u16,
    /// Whether to grant at once, see [`Restoring::at_once`].
    pub at_once: bool,
    /// Longest TTL and lease, see [`Restoring::ttl_ms_max`].
    pub ttl_ms_max: u64,
}

/// Result of a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// Summary of the backup.
    pub backup: BackupView,
    /// Id of the new cluster; its nodes also recognize each other by it.
    pub cluster_id: u128,
    /// Id of the only node of the new cluster.
    pub node: u64,
    /// Addresses of that node.
    pub member: Member,
    /// Epoch of its fencing tokens.
    pub epoch: u16,
    /// Milliseconds of log time in which the new cluster grants nothing.
    pub closed_ms: u64,
}

/// Why a restore failed. What it had created was removed.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The backup file or the data directory cannot be used.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The options do not fit the backup.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

impl RestoreError {
    /// Whether the backup file is damaged.
    #[must_use]
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Backup(BackupError::Damaged { .. }))
    }
}

/// Creates the data directory of the only node of a new cluster, with the state of the backup. All sessions have ended,
/// and new tokens are larger than every earlier token. Nothing is granted while a grant from after the backup may still
/// last. The backup file is not changed.
///
/// # Errors
/// See [`RestoreError`].
pub fn restore(restore: &Restore, clock: &dyn Clock) -> Result<Restored, RestoreError> {
    let (view, backup) = read(&restore.file)?;
    if let Some(cluster) = restore.cluster.as_ref().filter(|cluster| **cluster != view.cluster) {
        let bound = format!("the name of the cluster that the backup is of, {:?}", view.cluster);
        return Err(Invalid::new("cluster", bound, format!("{cluster:?}")).into());
    }
    let (node, member) = first_node(restore, &backup)?;
    let cluster_id = clock.random_u128();
    let Restore { epoch_min, at_once, ttl_ms_max, .. } = *restore;
    let restoring = Restoring { wall: clock.wall(), cluster_id, epoch_min, at_once, ttl_ms_max };
    let refused = |error: std::io::Error| match error.downcast::<Invalid>() {
        Ok(invalid) => RestoreError::from(invalid),
        Err(error) => BackupError::Damaged { path: restore.file.clone(), what: error.to_string() }.into(),
    };
    let restored = backup.restored(restoring, (node, member.clone())).map_err(refused)?;
    let owner = Owner { cluster: view.cluster.clone(), peers_id: cluster_id, node };
    let identity = Identity { owner, disk: clock.random_u128() };
    storage::lay_out(&restore.data, &identity, restored.head, restored.records)?;
    let (epoch, closed_ms) = (restored.epoch, restored.closed_ms);
    Ok(Restored { backup: view, cluster_id, node, member, epoch, closed_ms })
}

/// Returns the id and the addresses of the first node of the new cluster.
fn first_node(restore: &Restore, backup: &Backup) -> Result<(u64, Member), Invalid> {
    let members = &backup.members;
    let node = restore.node.or_else(|| members.keys().next().copied()).unwrap_or(1);
    if node == 0 {
        return Err(Invalid::new("node", "1 or more", node));
    }
    if let Some(member) = &restore.member {
        member.checked()?;
        return Ok((node, member.clone()));
    }
    members.get(&node).map(|member| (node, member.clone())).ok_or_else(|| {
        let known: Vec<_> = members.keys().collect();
        Invalid::new("node", format!("one of the backup's members {known:?}, or one whose addresses are given"), node)
    })
}
