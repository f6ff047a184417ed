//! Chooses between mirror, snapshot file and log as the state that a node starts from.

use std::io;
use std::path::Path;

use bytes::Bytes;

use super::error::OpenError;
use super::head::Head;
use super::ids::{LogId, next_index, shown};
use super::snapshot::SnapshotFile;
use super::wal::Wal;

/// Where the records of a start came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The mirror: it verified and contradicts neither the log nor the snapshot file.
    Mirror,
    /// The newest snapshot file.
    Snapshot,
    /// Neither exists; the log has all entries.
    Empty,
}

/// The state to start from. The log has all later entries.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// The log position, count and digest of the records.
    pub head: Head,
    /// All records, in the order of their keys.
    pub records: Vec<(Bytes, Bytes)>,
    /// The source of the records.
    pub source: Source,
    /// Why the mirror was quarantined, and what was cut from the log.
    pub note: Option<String>,
}

/// Head and records of the mirror, or the reason why the mirror is not used.
pub(super) type MirrorFound = Result<(Head, Vec<(Bytes, Bytes)>), String>;

/// Decides which state a node starts from, and finishes an interrupted install: a log that ends before the snapshot, or
/// has a different entry at its index, is cut and purged up to it. The errors name `dir`.
pub(super) fn recover(
    dir: &Path,
    wal: &impl Wal,
    mirror: MirrorFound,
    snapshot: Option<&SnapshotFile>,
) -> Result<Recovered, OpenError> {
    let missing = |what| Err(OpenError::Incomplete { path: dir.to_path_buf(), what });
    let failed = |doing| move |error| OpenError::io(doing, dir, error);
    let why = match mirror {
        Ok((head, records)) => match contradiction(dir, wal, &head, snapshot)? {
            None => return Ok(Recovered { head, records, source: Source::Mirror, note: None }),
            Some(why) => why,
        },
        Err(why) => why,
    };
    let purged = wal.state().purged;
    let Some(file) = snapshot else {
        return match purged {
            None => Ok(Recovered { head: Head::default(), records: vec![], source: Source::Empty, note: Some(why) }),
            Some(purged) => missing(format!("the log begins after {purged}, there is no snapshot file, and {why}")),
        };
    };
    let head = file.head().clone();
    if next_index(head.log_id) < next_index(purged) {
        let (at, purged) = (shown(head.log_id), shown(purged));
        return missing(format!("the log begins after {purged}, the newest snapshot file is at {at}, and {why}"));
    }
    if let Some(id) = head.log_id {
        finish_install(wal, id).map_err(failed("purge the log in"))?;
    }
    let records = file.records().and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let records = records.map_err(failed("read the snapshot file in"))?;
    Ok(Recovered { head, records, source: Source::Snapshot, note: Some(why) })
}

/// Describes how the mirror contradicts the log or the snapshot file, if it does.
///
/// # Errors
/// The log has lost synced entries, or cannot be read.
fn contradiction(
    dir: &Path,
    wal: &impl Wal,
    head: &Head,
    snapshot: Option<&SnapshotFile>,
) -> Result<Option<String>, OpenError> {
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
            let end = shown(state.last);
            let what = format!("the log ends at {end}, and the mirror holds {at}, which was synced in it");
            return Err(OpenError::Incomplete { path: dir.to_path_buf(), what });
        }
        return Ok(Some(format!("the mirror at {at} is ahead of the log at {}", shown(state.last))));
    }
    let Some(id) = head.log_id else { return Ok(None) };
    let held = id_at(wal, id.index).map_err(|error| OpenError::io("read the log in", dir, error))?;
    Ok((held != Some(id)).then(|| format!("the mirror is at {at}, where the log has {}", shown(held))))
}

/// The id of the log's entry at `index`; `None` if the entry was purged or is beyond the end.
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

/// Cuts and purges the log so that its next entry follows the snapshot at `id`.
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
