//! Opening a node's directory: whose it is, who else has it, and which of log, snapshot file and mirror is the truth.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::directory::{create_directory, remove_files, set_aside};
use super::head::Head;
use super::identity::{Claim, Identity};
use super::ids::{LogId, next_index, shown};
use super::open_error::OpenError;
use super::snapshot::{SnapshotFile, received_name};
use super::state::{Actor, DiskState, Mirror, Probe};
use super::wal::{DiskWal, Floor, Wal, WalOptions, cut_torn_tail};
use crate::limits::MIRRORS_SET_ASIDE;

/// How a directory is opened.
#[derive(Clone)]
pub struct Options {
    /// The log's layout and caches.
    pub wal: WalOptions,
    /// Called after each step of writing mirror and snapshot files.
    pub probe: Probe,
}

impl Default for Options {
    fn default() -> Self {
        Self { wal: WalOptions::default(), probe: Arc::new(|_| ()) }
    }
}

/// Holds the directory against other processes until it is dropped. Drop it last.
#[derive(Debug)]
pub struct DirectoryLock {
    _file: File,
}

/// Where the records of a start came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The mirror verified and contradicts nothing.
    Mirror,
    /// The newest snapshot file.
    Snapshot,
    /// There is neither; the log holds everything.
    Empty,
}

/// The state to start from; the log holds what comes after.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// What the records are.
    pub head: Head,
    /// All of them, in the order of their keys.
    pub records: Vec<(Bytes, Bytes)>,
    /// Where they came from.
    pub source: Source,
    /// Why the mirror was set aside, and what was cut from the log.
    pub note: Option<String>,
}

/// An open directory.
pub struct Opened {
    /// Whose it is.
    pub identity: Identity,
    /// The log.
    pub wal: DiskWal,
    /// Mirror and snapshot files.
    pub state: DiskState,
    /// The state to start from.
    pub recovered: Recovered,
    /// Drop it after `wal` and `state`.
    pub lock: DirectoryLock,
}

/// Mirror head and records, or why there is no mirror that counts.
type MirrorFound = Result<(Head, Vec<(Bytes, Bytes)>), String>;

/// Opens `dir`, or makes it with the identity that `create` draws. A start repeats an install that was not finished.
pub fn open(
    dir: &Path,
    claim: &Claim,
    create: impl FnOnce() -> Identity,
    options: &Options,
) -> Result<Opened, OpenError> {
    let (wal_dir, snapshots, state) = (dir.join("wal"), dir.join("snapshot"), dir.join("state"));
    for directory in [dir, &wal_dir, &snapshots] {
        create_directory(directory).map_err(|error| OpenError::io("create", directory, error))?;
    }
    let lock = lock_directory(dir)?;
    let identity = identify(dir, &wal_dir, claim, create)?;
    remove_leftovers(dir, &snapshots).map_err(|error| OpenError::io("clean", dir, error))?;

    let (snapshot, received) = newest_snapshot(&snapshots)?.unzip();
    let (mut mirror, mut found) = open_mirror(&state);
    let snapshot_id = snapshot.as_ref().and_then(|file| file.head().log_id);
    let mirror_id = found.as_ref().ok().and_then(|(head, _)| head.log_id);
    let proven = Floor { mirror: mirror_id, snapshot: snapshot_id, received: received == Some(true) };
    let cut = cut_torn_tail(&wal_dir, proven)?;
    let floor = Arc::new(Mutex::new(snapshot_id));
    let wal = DiskWal::open(&wal_dir, &options.wal, floor.clone())
        .map_err(|error| OpenError::io("open the log in", &wal_dir, error))?;
    let mut recovered = recover(&wal, std::mem::replace(&mut found, Err(String::new())), snapshot.as_ref())
        .map_err(|what| OpenError::Incomplete { path: dir.to_path_buf(), what })?;
    if recovered.source != Source::Mirror {
        // sled writes by path: it must be closed before its directory is moved, and is never opened there again.
        mirror = None;
        if state.exists() {
            set_aside(&state, MIRRORS_SET_ASIDE).map_err(|error| OpenError::io("set aside", &state, error))?;
        }
    }
    recovered.note = match (recovered.note.take(), cut) {
        (Some(note), Some(cut)) => Some(format!("{note}; {cut}")),
        (note, cut) => note.or(cut),
    };
    let refill = mirror.is_none();
    let actor = Actor {
        state,
        snapshots,
        mirror,
        snapshot: Arc::new(Mutex::new(snapshot)),
        floor,
        probe: options.probe.clone(),
    };
    let state = DiskState::start(actor, refill).map_err(|error| OpenError::io("start a thread for", dir, error))?;
    Ok(Opened { identity, wal, state, recovered, lock })
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

fn identify(
    dir: &Path,
    wal_dir: &Path,
    claim: &Claim,
    create: impl FnOnce() -> Identity,
) -> Result<Identity, OpenError> {
    let path = dir.join("identity");
    if let Some(identity) = Identity::load(&path, claim)? {
        return Ok(identity);
    }
    let mut entries = fs::read_dir(wal_dir).map_err(|error| OpenError::io("list", wal_dir, error))?;
    if entries.next().is_some() {
        let what = "there is a log but no identity file".to_string();
        return Err(OpenError::Incomplete { path: dir.to_path_buf(), what });
    }
    let identity = create();
    identity.save(&path).map_err(|error| OpenError::io("write", &path, error))?;
    Ok(identity)
}

/// What a crash left half-written.
fn remove_leftovers(dir: &Path, snapshots: &Path) -> io::Result<()> {
    remove_files(dir, |name| name.ends_with(".tmp"))?;
    remove_files(snapshots, |name| name.ends_with(".tmp"))?;
    let old = dir.join("state.old");
    if old.exists() { fs::remove_dir_all(old) } else { Ok(()) }
}

/// The newest snapshot file, read and verified whole, and whether it was received; older ones are removed then.
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

/// Errors of the snapshot reader begin with "offset N:".
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

/// Decides from what a node starts. An unfinished install is finished: a log that does not reach the snapshot, or has
/// another entry there, is cut and purged up to it. `Err` says what is missing.
pub(super) fn recover(
    wal: &impl Wal,
    mirror: MirrorFound,
    snapshot: Option<&SnapshotFile>,
) -> Result<Recovered, String> {
    let why = match mirror {
        Ok((head, records)) => match contradiction(wal, &head, snapshot)? {
            None => return Ok(Recovered { head, records, source: Source::Mirror, note: None }),
            Some(why) => why,
        },
        Err(why) => why,
    };
    let purged = wal.state().purged;
    let Some(file) = snapshot else {
        return match purged {
            None => Ok(Recovered { head: Head::default(), records: vec![], source: Source::Empty, note: Some(why) }),
            Some(purged) => Err(format!("the log begins after {purged}, there is no snapshot file, and {why}")),
        };
    };
    let head = file.head().clone();
    if next_index(head.log_id) < next_index(purged) {
        let (at, purged) = (shown(head.log_id), shown(purged));
        return Err(format!("the log begins after {purged}, the newest snapshot file is at {at}, and {why}"));
    }
    if let Some(id) = head.log_id {
        finish_install(wal, id).map_err(|error| format!("the log cannot be purged up to {id}: {error}"))?;
    }
    let records = file.records().and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let records = records.map_err(|error| format!("the snapshot file cannot be read: {error}"))?;
    Ok(Recovered { head, records, source: Source::Snapshot, note: Some(why) })
}

/// What the mirror's head contradicts.
fn contradiction(wal: &impl Wal, head: &Head, snapshot: Option<&SnapshotFile>) -> Result<Option<String>, String> {
    let (state, at) = (wal.state(), shown(head.log_id));
    let next = next_index(head.log_id);
    let newest = snapshot.and_then(|file| file.head().log_id);
    if next < next_index(newest) {
        return Ok(Some(format!("the mirror at {at} is behind the snapshot file at {}", shown(newest))));
    }
    if next < next_index(state.purged) {
        return Ok(Some(format!("the mirror at {at} is behind the purge point {}", shown(state.purged))));
    }
    if next > next_index(state.last) {
        if next > next_index(newest) {
            return Err(format!(
                "the log ends at {}, and the mirror holds {at}, which was synced in it",
                shown(state.last)
            ));
        }
        return Ok(Some(format!("the mirror at {at} is ahead of the log at {}", shown(state.last))));
    }
    let Some(id) = head.log_id else { return Ok(None) };
    let held = id_at(wal, id.index).map_err(|error| error.to_string())?;
    Ok((held != Some(id)).then(|| format!("the mirror is at {at}, where the log has {}", shown(held))))
}

/// The log's entry at `index`, purged or held; `None` before the purge point and after the end.
fn id_at(wal: &impl Wal, index: u64) -> io::Result<Option<LogId>> {
    let state = wal.state();
    if let Some(purged) = state.purged.filter(|purged| purged.index >= index) {
        return Ok((purged.index == index).then_some(purged));
    }
    if index >= next_index(state.last) {
        return Ok(None);
    }
    Ok(wal.read(index, index + 1, 0)?.first().map(|(id, _)| *id))
}

/// Brings the log in line with the snapshot at `id`.
fn finish_install(wal: &impl Wal, id: LogId) -> io::Result<()> {
    match id_at(wal, id.index)? {
        Some(held) if held == id => return Ok(()),
        Some(_) => {
            let before = id.index.checked_sub(1).map(|index| id_at(wal, index)).transpose()?.flatten();
            wal.truncate_after(before)?;
        }
        None => {}
    }
    wal.purge(id)
}
