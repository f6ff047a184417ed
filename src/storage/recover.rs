//! Which of log, snapshot file and mirror a node starts from.

use std::io;

use bytes::Bytes;

use super::head::Head;
use super::ids::{LogId, next_index, shown};
use super::snapshot::SnapshotFile;
use super::wal::Wal;

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

/// Mirror head and records, or why there is no mirror that counts.
pub(super) type MirrorFound = Result<(Head, Vec<(Bytes, Bytes)>), String>;

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
