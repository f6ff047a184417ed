//! Opens a node's directory: locks it, checks its identity, and finds the state that the node starts from.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::error::OpenError;
use super::fs::{create_directory, exposure, quarantine, remove_files};
use super::identity::{Identity, Owner};
use super::mirror::{DiskState, Mirror, Probe, Worker};
use super::recover::{MirrorFound, Recovered, Source, recover};
use super::snapshot::{SnapshotFile, received_name};
use super::wal::{DiskWal, Floor, cut_torn_tail};
use crate::limits::MIRRORS_QUARANTINED;
use crate::mutex::Mutex;

/// Locks the directory against other processes until it is dropped. Drop it last.
#[derive(Debug)]
pub struct DirectoryLock {
    _file: File,
}

/// An open directory.
pub struct Opened {
    /// The cluster and the node that the directory belongs to.
    pub identity: Identity,
    /// The write-ahead log.
    pub wal: DiskWal,
    /// Mirror and snapshot files.
    pub state: DiskState,
    /// The state to start from.
    pub recovered: Recovered,
    /// A warning, if other users than the owner have access to the directory.
    pub exposure: Option<String>,
    /// The lock of the directory. Drop it after `wal` and `state`.
    pub lock: DirectoryLock,
}

/// Name of the mirror's directory.
pub(super) const MIRROR: &str = "state";

/// Opens the directory of this owner, or creates it with the random id `disk`. A start finishes an interrupted install
/// of a snapshot.
pub fn open(dir: &Path, owner: Owner, disk: u128) -> Result<Opened, OpenError> {
    open_probed(dir, owner, disk, Arc::new(|_| ()))
}

/// Opens a directory like [`open`]. Calls `probe` after each step of writing mirror and snapshot files.
pub(super) fn open_probed(dir: &Path, owner: Owner, disk: u128, probe: Probe) -> Result<Opened, OpenError> {
    let (wal_dir, snapshots, state) = (dir.join("wal"), dir.join("snapshot"), dir.join(MIRROR));
    for directory in [dir, &wal_dir, &snapshots] {
        create_directory(directory).map_err(|error| OpenError::io("create", directory, error))?;
    }
    let exposure = exposure(dir).map_err(|error| OpenError::io("read the mode of", dir, error))?;
    let lock = lock_directory(dir)?;
    let identity = identify(dir, [&wal_dir, &snapshots], Identity { owner, disk })?;
    remove_leftovers(dir, [dir, &wal_dir, &snapshots]).map_err(|error| OpenError::io("clean", dir, error))?;

    let (snapshot, received) = newest_snapshot(&snapshots)?.unzip();
    let (mut mirror, found) = open_mirror(&state);
    let snapshot_id = snapshot.as_ref().and_then(|file| file.head().log_id);
    let mirror_id = found.as_ref().ok().and_then(|(head, _)| head.log_id);
    let proven = Floor { mirror: mirror_id, snapshot: snapshot_id, received: received == Some(true) };
    let cut = cut_torn_tail(&wal_dir, proven)?;
    let purge_limit = Arc::new(Mutex::new(snapshot_id));
    let wal = DiskWal::open(&wal_dir, purge_limit.clone())
        .map_err(|error| OpenError::io("open the log in", &wal_dir, error))?;
    let mut recovered = recover(dir, &wal, found, snapshot.as_ref())?;
    if recovered.source != Source::Mirror {
        // sled writes by path, so it must be closed before its directory is moved. It is never opened there again.
        mirror = None;
        if state.exists() {
            quarantine(&state, MIRRORS_QUARANTINED).map_err(|error| OpenError::io("quarantine", &state, error))?;
        }
    }
    recovered.note = match (recovered.note.take(), cut) {
        (Some(note), Some(cut)) => Some(format!("{note}; {cut}")),
        (note, cut) => note.or(cut),
    };
    let refill = mirror.is_none();
    let worker = Worker { state, snapshots, mirror, snapshot: Arc::new(Mutex::new(snapshot)), purge_limit, probe };
    let state = DiskState::start(worker, refill).map_err(|error| OpenError::io("start a thread for", dir, error))?;
    Ok(Opened { identity, wal, state, recovered, exposure, lock })
}

/// What a directory is, see [`examine`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Examined {
    /// Whether a node has written to it.
    pub founded: bool,
    /// Whether another process has locked it.
    pub in_use: bool,
    /// A warning, if other users than the owner have access to the directory.
    pub exposure: Option<String>,
}

/// Reads what a directory is, and changes nothing.
///
/// # Errors
/// It cannot be read, its identity is damaged, or it belongs to another node.
pub fn examine(dir: &Path, owner: &Owner) -> Result<Examined, OpenError> {
    let founded = Identity::load(&dir.join("identity"), owner)?.is_some();
    if !dir.exists() {
        return Ok(Examined { founded, in_use: false, exposure: None });
    }
    let exposure = exposure(dir).map_err(|error| OpenError::io("read the mode of", dir, error))?;
    let in_use = dir.join("lock").exists() && matches!(lock_directory(dir), Err(OpenError::InUse { .. }));
    Ok(Examined { founded, in_use, exposure })
}

fn lock_directory(dir: &Path) -> Result<DirectoryLock, OpenError> {
    let path = dir.join("lock");
    let opened = File::options().create(true).truncate(false).write(true).open(&path);
    let file = opened.map_err(|error| OpenError::io("open", &path, error))?;
    match file.try_lock() {
        Ok(()) => Ok(DirectoryLock { _file: file }),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path }),
        Err(TryLockError::Error(error)) => Err(OpenError::io("lock", &path, error)),
    }
}

/// Returns the identity of the directory. Writes the `new` one if the directories of its `contents` are empty.
fn identify(dir: &Path, contents: [&Path; 2], new: Identity) -> Result<Identity, OpenError> {
    let path = dir.join("identity");
    if let Some(identity) = Identity::load(&path, &new.owner)? {
        return Ok(identity);
    }
    for directory in contents {
        let mut entries = fs::read_dir(directory).map_err(|error| OpenError::io("list", directory, error))?;
        if let Some(entry) = entries.next() {
            let file = entry.map_err(|error| OpenError::io("list", directory, error))?.path();
            let what = format!("there is {} but no identity file, which a restore writes last", file.display());
            return Err(OpenError::Incomplete { path: dir.to_path_buf(), what });
        }
    }
    new.save(&path).map_err(|error| OpenError::io("write", &path, error))?;
    Ok(new)
}

/// Removes the files in `directories` that a crash left incomplete, and a mirror that it left half removed.
fn remove_leftovers(dir: &Path, directories: [&Path; 3]) -> io::Result<()> {
    for directory in directories {
        remove_files(directory, |name| name.ends_with(".tmp"))?;
    }
    let old = dir.join("state.old");
    if old.exists() { fs::remove_dir_all(old) } else { Ok(()) }
}

/// Reads and verifies the newest snapshot file completely. Returns it, and whether it was received from another node.
/// Older files are removed.
fn newest_snapshot(snapshots: &Path) -> Result<Option<(SnapshotFile, bool)>, OpenError> {
    let entries = fs::read_dir(snapshots).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let entries = entries.map_err(|error| OpenError::io("list", snapshots, error))?;
    let mut names: Vec<_> = entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name.ends_with(".snapshot"));
    names.sort();
    let Some(newest) = names.last() else { return Ok(None) };
    let path = snapshots.join(newest);
    let verified = SnapshotFile::open(&path).and_then(|file| file.verify().map(|()| file));
    let file = verified.map_err(|error| {
        if error.kind() == io::ErrorKind::InvalidData {
            OpenError::damaged(&path, offset_in(&error), error.to_string())
        } else {
            OpenError::io("read", &path, error)
        }
    })?;
    let removed = remove_files(snapshots, |name| name.ends_with(".snapshot") && name != newest);
    removed.map_err(|error| OpenError::io("clean", snapshots, error))?;
    let received = *newest == received_name(file.head().log_id);
    Ok(Some((file, received)))
}

/// The offset in an error of the snapshot reader. The text of such an error begins with "offset N:".
fn offset_in(error: &io::Error) -> u64 {
    let text = error.to_string();
    text.strip_prefix("offset ").and_then(|rest| rest.split(':').next()?.parse().ok()).unwrap_or(0)
}

fn open_mirror(state: &Path) -> (Option<Mirror>, MirrorFound) {
    if !state.exists() {
        return (None, Err("there is no mirror".to_string()));
    }
    match Mirror::open(state) {
        Ok((mirror, records)) => {
            let head = mirror.head.clone();
            (Some(mirror), Ok((head, records)))
        }
        Err(error) => (None, Err(error.to_string())),
    }
}
