//! Checks the files of the log before they are opened. A tail that a crash tore is cut; any other damage is refused.
//! The last file is then written again.
//!
//! `chunked-wal` would cut any incomplete record, without knowing what was durable. This module cuts only if all of the
//! following show that the damage is after the last completed sync:
//!
//! - No intact record after the damage proves that the damaged bytes were synced before it (`Payload::window_start`).
//! - The damage looks like lost writes: the file ends early, or a page (or the damaged part of one) is all zeros.
//! - The remaining log reaches the head of the mirror, the newest snapshot file and the last recorded commit.
//!
//! The last rule is checked even without damage, because a log that was cut exactly at the end of a record looks
//! complete.
//!
//! After a failed sync, the page cache may still have bytes that the disk never got, and a later sync succeeds without
//! writing them. So a start does not rely on the file that the last process wrote: it writes what it has read from it
//! into a new file. The files before it were synced before the next one got its first record.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use raft_log::codeq::Decode;
use raft_log::{RaftLogAction, WALRecord, chunked_wal};

use super::codec::Record;
use crate::limits::DISK_PAGE_BYTES;
use crate::storage::error::OpenError;
use crate::storage::fs::sync_directory;
use crate::storage::ids::{LogId, next_index, shown};

/// The entries that the log must reach. The mirror and snapshot files contain only entries that the log had synced.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::storage) struct Floor {
    pub(in crate::storage) mirror: Option<LogId>,
    pub(in crate::storage) snapshot: Option<LogId>,
    /// The snapshot file came from another node and its install was interrupted, so the log may end before it.
    pub(in crate::storage) received: bool,
}

/// One file of the log.
struct Chunk {
    path: PathBuf,
    /// Offset of the file in the whole log.
    start: u64,
    bytes: Vec<u8>,
}

/// Damage at an offset of one file.
struct Damage {
    offset: usize,
    what: io::Error,
}

#[derive(Default)]
struct Replay {
    purged: Option<LogId>,
    last: Option<LogId>,
    committed: Option<LogId>,
    /// The index of the first entry; `None` if there is none.
    first: Option<u64>,
}

/// Reads the whole log in `dir`, writes its last file again without a torn tail, durably, and returns a description of
/// what was cut.
///
/// # Errors
/// The log is damaged, or ends before `floor`; then no record was cut. Otherwise the errors of the disk.
pub(in crate::storage) fn cut_torn_tail(dir: &Path, floor: Floor) -> Result<Option<String>, OpenError> {
    let mut files = list(dir)?;
    let mut notes = Vec::new();
    // A file that was just created has no content yet. In that case the file before it is checked as the last one.
    while files.len() > 1 || notes.is_empty() {
        let Some((path, _)) = files.last() else { break };
        let bytes = read(path)?;
        if bytes.iter().any(|byte| *byte != 0) {
            break;
        }
        notes.push(format!("{} was begun and empty", path.display()));
        remove(dir, path)?;
        files.pop();
    }
    let mut replay = Replay::default();
    let mut expected_start = None;
    let count = files.len();
    let mut last = None;
    for (position, (path, start)) in files.into_iter().enumerate() {
        if expected_start.is_some_and(|expected| expected != start) {
            let what = format!("begins at {start} of the log, {} expected", expected_start.unwrap_or(0));
            return Err(OpenError::damaged(&path, 0, what));
        }
        let mut chunk = Chunk { bytes: read(&path)?, path, start };
        expected_start = Some(start + chunk.bytes.len() as u64);
        if let Some(damage) = replay.chunk(&chunk)? {
            if position + 1 < count {
                return Err(OpenError::damaged(&chunk.path, damage.offset as u64, damage.what.to_string()));
            }
            replay.judge(&chunk, &damage, floor)?;
            notes.push(format!("{}: {} torn bytes cut", chunk.path.display(), chunk.bytes.len() - damage.offset));
            chunk.bytes.truncate(damage.offset);
        }
        last = Some(chunk);
    }
    replay.no_hole(dir)?;
    if let Some(lost) = replay.lacks(floor) {
        let (path, offset) = last.map_or((dir.to_path_buf(), 0), |chunk| (chunk.path, chunk.bytes.len() as u64));
        return Err(OpenError::damaged(&path, offset, format!("the log ends here; {lost}")));
    }
    if let Some(chunk) = last {
        rewrite(dir, &chunk)?;
    }
    Ok((!notes.is_empty()).then(|| notes.join("; ")))
}

impl Replay {
    /// Replays one file to its end, or to the first damage.
    fn chunk(&mut self, chunk: &Chunk) -> Result<Option<Damage>, OpenError> {
        let mut offset = 0;
        while offset < chunk.bytes.len() {
            let mut rest = &chunk.bytes[offset..];
            match Record::decode(&mut rest) {
                Ok(record) => self.record(&record),
                Err(what) => return Ok(Some(Damage { offset, what })),
            }
            offset = chunk.bytes.len() - rest.len();
        }
        Ok(None)
    }

    fn record(&mut self, record: &Record) {
        match record {
            WALRecord::Checkpoint(state) => {
                self.purged = state.purged().copied();
                self.last = state.last().copied();
                self.committed = state.committed().copied();
            }
            WALRecord::Action(RaftLogAction::SaveVote(_)) => {}
            WALRecord::Action(RaftLogAction::Append(id, _)) => {
                self.last = Some(*id);
                self.first.get_or_insert(id.index);
            }
            WALRecord::Action(RaftLogAction::Commit(id)) => self.committed = Some(*id),
            WALRecord::Action(RaftLogAction::TruncateAfter(id)) => {
                self.last = self.last.min(*id);
                self.first = self.first.filter(|first| *first < next_index(*id));
            }
            WALRecord::Action(RaftLogAction::PurgeUpto(id)) => {
                self.purged = self.purged.max(Some(*id));
                self.last = self.last.max(Some(*id));
                let held = next_index(self.last) > id.index + 1;
                self.first = self.first.map(|first| first.max(id.index + 1)).filter(|_| held);
            }
        }
    }

    /// Checks that the damage at the end of the last file is a torn tail.
    fn judge(&self, chunk: &Chunk, damage: &Damage, floor: Floor) -> Result<(), OpenError> {
        let refuse = |why: String| {
            let what = format!("{}; {why}", damage.what);
            Err(OpenError::damaged(&chunk.path, damage.offset as u64, what))
        };
        let tail = &chunk.bytes[damage.offset..];
        let short = damage.what.kind() == io::ErrorKind::UnexpectedEof;
        if !short && !has_lost_page(chunk, damage.offset) {
            return refuse("nothing is missing there, so a crash is not the cause".to_string());
        }
        if let Some(evidence) = Self::synced_after(chunk, damage.offset, tail) {
            return refuse(evidence);
        }
        self.lacks(floor).map_or(Ok(()), refuse)
    }

    /// Describes the entries that the log had and has lost; `None` if it reaches everything in `floor`.
    fn lacks(&self, floor: Floor) -> Option<String> {
        let lacking = |id: Option<LogId>| next_index(id) > next_index(self.last);
        if lacking(self.committed) {
            let (committed, last) = (shown(self.committed), shown(self.last));
            return Some(format!("entries up to {committed} were committed, {last} remains"));
        }
        if lacking(floor.snapshot) && !floor.received {
            return Some(format!("the snapshot file holds {}, which was synced here", shown(floor.snapshot)));
        }
        // A mirror at or below the snapshot was made from it. A mirror beyond it was made from entries of the log.
        if lacking(floor.mirror) && next_index(floor.snapshot) < next_index(floor.mirror) {
            return Some(format!("the mirror holds {}, which was synced here", shown(floor.mirror)));
        }
        None
    }

    /// Finds an intact record after the damage that can only have been written after a sync of the damaged bytes.
    ///
    /// Every record except an entry is the first one of its request (see `Log` in `disk`), so everything before it had
    /// been synced. An entry has the start of its request. The length of the damaged part proves nothing: an entry can
    /// be as long as several commits.
    fn synced_after(chunk: &Chunk, damaged_at: usize, tail: &[u8]) -> Option<String> {
        let global = chunk.start + damaged_at as u64;
        let mut at = 1;
        while at + 4 <= tail.len() {
            // Record types are 0 to 5, big-endian, so the first bytes rule out most offsets.
            if tail[at..at + 3] != [0, 0, 0] || tail[at + 3] > 5 {
                at += 1;
                continue;
            }
            let mut rest = &tail[at..];
            let Ok(record) = Record::decode(&mut rest) else {
                at += 1;
                continue;
            };
            let place = damaged_at + at;
            let proof = match record {
                WALRecord::Action(RaftLogAction::Append(id, payload)) => {
                    (payload.window_start > global).then(|| format!("entry {id}"))
                }
                WALRecord::Action(RaftLogAction::Commit(id)) => Some(format!("commit {id}")),
                WALRecord::Action(RaftLogAction::SaveVote(vote)) => Some(format!("{vote:?}")),
                WALRecord::Action(RaftLogAction::TruncateAfter(_)) => Some("a truncation".to_string()),
                WALRecord::Action(RaftLogAction::PurgeUpto(_)) => Some("a purge".to_string()),
                WALRecord::Checkpoint(_) => Some("a checkpoint".to_string()),
            };
            if let Some(proof) = proof {
                return Some(format!("{proof} at offset {place} was written after it had been synced"));
            }
            at = tail.len() - rest.len();
        }
        None
    }

    /// Returns an error if files are missing at the front of the log.
    fn no_hole(&self, dir: &Path) -> Result<(), OpenError> {
        let expected = next_index(self.purged);
        let held = self.first.unwrap_or_else(|| next_index(self.last));
        if held > expected && (self.purged.is_some() || expected != held) {
            let what = format!("holds entries from {held}, and is purged up to {}", shown(self.purged));
            return Err(OpenError::damaged(dir, 0, what));
        }
        Ok(())
    }
}

/// No intact record begins or ends with this many zero bytes: the type and the term put a nonzero byte into the first
/// twelve, and a record ends with a checksum. Up to eight zero bytes do occur there.
///
/// A crash can lose fewer bytes than these: the start of a record at the end of one page, while the next page with the
/// rest of the record is written. Nothing distinguishes this from damage, so such a log is refused.
const LOST_BYTES: usize = 16;

/// Whether a page after `offset`, or the part of one after `offset`, never reached the disk.
fn has_lost_page(chunk: &Chunk, offset: usize) -> bool {
    let mut from = offset;
    while from < chunk.bytes.len() {
        let to = ((from / DISK_PAGE_BYTES + 1) * DISK_PAGE_BYTES).min(chunk.bytes.len());
        if to - from >= LOST_BYTES && chunk.bytes[from..to].iter().all(|byte| *byte == 0) {
            return true;
        }
        from = to;
    }
    // A write that stops inside a page leaves zeros from there to the end of the file.
    chunk.bytes.len() - offset >= LOST_BYTES && chunk.bytes.ends_with(&[0; LOST_BYTES])
}

fn list(dir: &Path) -> Result<Vec<(PathBuf, u64)>, OpenError> {
    let entries = fs::read_dir(dir).map_err(|error| OpenError::io("list", dir, error))?;
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| OpenError::io("list", dir, error))?;
        if let Ok(start) = chunked_wal::Config::parse_chunk_file_name(&entry.file_name().to_string_lossy()) {
            files.push((entry.path(), start));
        }
    }
    files.sort_by_key(|(_, start)| *start);
    Ok(files)
}

fn read(path: &Path) -> Result<Vec<u8>, OpenError> {
    fs::read(path).map_err(|error| OpenError::io("read", path, error))
}

/// Replaces the file by a new one with the bytes of `chunk`, durably. Removes the file if there are none.
fn rewrite(dir: &Path, chunk: &Chunk) -> Result<(), OpenError> {
    if chunk.bytes.is_empty() {
        return remove(dir, &chunk.path);
    }
    // With this name, no reader of the log treats it as one of its files.
    let temporary = chunk.path.with_extension("tmp");
    let write = |mut file: File| {
        file.write_all(&chunk.bytes)?;
        file.sync_all()
    };
    let written = File::create_new(&temporary).and_then(write).and_then(|()| fs::rename(&temporary, &chunk.path));
    if let Err(error) = written {
        // A file that cannot be removed now is removed at the next start. The first error is reported.
        let _ = fs::remove_file(&temporary);
        return Err(OpenError::io("write", &temporary, error));
    }
    sync_directory(dir).map_err(|error| OpenError::io("sync", dir, error))
}

fn remove(dir: &Path, path: &Path) -> Result<(), OpenError> {
    fs::remove_file(path).map_err(|error| OpenError::io("remove", path, error))?;
    sync_directory(dir).map_err(|error| OpenError::io("sync", dir, error))
}
