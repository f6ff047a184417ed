//! The thread that writes mirror and snapshot files, one job at a time.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use bytes::Bytes;

use super::{Change, Job, Mirror, Probe, Step, closed};
use crate::limits::MIRRORS_QUARANTINED;
use crate::mutex::Mutex;
use crate::storage::Done;
use crate::storage::error::{copy_error, explained, invalid_data};
use crate::storage::fs::{quarantine, remove_files, sync_directory, sync_snapshot};
use crate::storage::head::Head;
use crate::storage::ids::{LogId, next_index, shown};
use crate::storage::snapshot::{ReceivedSnapshot, SnapshotFile, file_name, received_name};
use crate::storage::wal::PurgeLimit;

/// State of the writer thread.
pub(in crate::storage) struct Worker {
    /// The mirror's directory.
    pub(in crate::storage) state: PathBuf,
    /// The directory of snapshot files.
    pub(in crate::storage) snapshots: PathBuf,
    /// `None` while there is no valid mirror.
    pub(in crate::storage) mirror: Option<Mirror>,
    pub(in crate::storage) snapshot: Arc<Mutex<Option<SnapshotFile>>>,
    pub(in crate::storage) purge_limit: PurgeLimit,
    pub(in crate::storage) probe: Probe,
}

impl Worker {
    pub(super) fn run(mut self, queue: Receiver<Job>, refill: bool) {
        let (state, snapshots) = (self.state.clone(), self.snapshots.clone());
        // Why there is no mirror: reported to every job that needs one.
        let mut failure = refill.then(|| self.refill().err()).flatten();
        while let Ok(job) = queue.recv() {
            if let (Some(error), Job::Checkpoint(..) | Job::Export(_)) = (&failure, &job) {
                job.fail(copy_error(error));
                continue;
            }
            let result = match job {
                Job::Checkpoint(changes, head, done) => report(placed(&state, self.checkpoint(changes, head)), done),
                Job::Rebuild(records, head, done) => report(placed(&state, self.rebuild(records, head)), done),
                Job::Export(done) => match report(placed(&snapshots, self.export()), done) {
                    // The mirror is intact, and no job needs the file.
                    Err(error) if error.kind() != io::ErrorKind::InvalidData => continue,
                    exported => exported,
                },
                Job::Install(file, done) => match placed(&snapshots, self.install(file)) {
                    Ok(file) => {
                        done(Ok(file));
                        self.refill()
                    }
                    Err(error) => {
                        done(Err(error));
                        continue;
                    }
                },
                Job::Close(done) => {
                    self.mirror = None;
                    done(Ok(()));
                    // Callers of jobs that were queued after the close wait for a result, too.
                    return queue.into_iter().for_each(|job| job.fail(closed()));
                }
            };
            if result.is_err() {
                self.mirror = None;
            }
            failure = result.err();
        }
    }

    fn checkpoint(&mut self, changes: Vec<Change>, head: Head) -> io::Result<()> {
        let probe = self.probe.clone();
        let mirror = self.mirror.as_mut().ok_or_else(no_mirror)?;
        let at = head.log_id;
        mirror.write(changes.into_iter().map(Ok), head, &*probe)?;
        self.settle(at)
    }

    /// Gives a received snapshot its final name after a checkpoint beyond it. The log has then reached the snapshot, so
    /// if the log ends before it later, it has lost entries.
    fn settle(&self, at: Option<LogId>) -> io::Result<()> {
        let id = self.current().and_then(|current| current.head().log_id);
        let received = self.snapshots.join(received_name(id));
        if next_index(at) <= next_index(id) || !received.exists() {
            return Ok(());
        }
        fs::rename(received, self.snapshots.join(file_name(id)))?;
        sync_directory(&self.snapshots)
    }

    fn export(&mut self) -> io::Result<SnapshotFile> {
        let mirror = self.mirror.as_ref().ok_or_else(no_mirror)?;
        let head = mirror.head.clone();
        if let Some(current) = self.current().filter(|current| *current.head() == head) {
            return Ok(current);
        }
        let temporary = self.snapshots.join("export.tmp");
        let written = File::create(&temporary).and_then(|file| mirror.export(BufWriter::new(file)));
        let synced = written.and_then(|file| sync_snapshot(&file.into_inner()?));
        if let Err(error) = synced {
            // A file that cannot be removed now is removed at the next start. The first error is reported.
            let _ = fs::remove_file(&temporary);
            if error.kind() == io::ErrorKind::InvalidData {
                self.mirror = None;
                quarantine(&self.state, MIRRORS_QUARANTINED)?;
            }
            return Err(error);
        }
        (self.probe)(Step::SnapshotWritten);
        let path = self.snapshots.join(file_name(head.log_id));
        fs::rename(&temporary, &path)?;
        self.make_newest(SnapshotFile::open(&path)?, &path)
    }

    fn install(&mut self, file: ReceivedSnapshot) -> io::Result<SnapshotFile> {
        let newest = self.current().and_then(|current| current.head().log_id);
        let id = file.head().log_id;
        if next_index(id) < next_index(newest) {
            let what = format!("the snapshot at {} is older than {}", shown(id), shown(newest));
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        (self.probe)(Step::SnapshotWritten);
        let path = self.snapshots.join(received_name(id));
        let file = file.rename(&path)?;
        self.make_newest(file, &path)
    }

    /// Makes `file` the snapshot file from which a start reads. Older files are removed; open readers of them can
    /// continue.
    fn make_newest(&mut self, file: SnapshotFile, path: &Path) -> io::Result<SnapshotFile> {
        sync_directory(&self.snapshots)?;
        (self.probe)(Step::SnapshotRenamed);
        *self.snapshot.lock() = Some(file.clone());
        let mut purge_limit = self.purge_limit.lock();
        *purge_limit = (*purge_limit).max(file.head().log_id);
        drop(purge_limit);
        let kept = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        remove_files(&self.snapshots, |name| name.ends_with(".snapshot") && name != kept)?;
        Ok(file)
    }

    /// Rebuilds the mirror from the newest snapshot file. The mirror is empty if there is no such file.
    fn refill(&mut self) -> io::Result<()> {
        let Some(file) = self.current() else { return self.replace(std::iter::empty(), Head::default()) };
        let records = file.records()?.map(|record| record.map(|(key, value)| (key, Some(value))));
        self.replace(records, file.head().clone())
    }

    fn rebuild(&mut self, records: Vec<(Bytes, Bytes)>, head: Head) -> io::Result<()> {
        self.replace(records.into_iter().map(|(key, value)| Ok((key, Some(value)))), head)
    }

    fn replace(&mut self, records: impl Iterator<Item = io::Result<Change>>, head: Head) -> io::Result<()> {
        // sled also writes by path, so it must be closed before its directory is renamed.
        self.mirror = None;
        if self.state.exists() {
            let old = self.state.with_extension("old");
            fs::rename(&self.state, &old)?;
            fs::remove_dir_all(&old)?;
        }
        (self.probe)(Step::MirrorRemoved);
        let mut mirror = Mirror::create(&self.state)?;
        mirror.write(records, head, &*self.probe)?;
        self.mirror = Some(mirror);
        Ok(())
    }

    fn current(&self) -> Option<SnapshotFile> {
        self.snapshot.lock().clone()
    }
}

/// Adds the path to an error of the disk. Errors about the content of a file stay as they are.
fn placed<T>(path: &Path, result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| {
        let content = matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput);
        if content { error } else { explained("write into", path, &error) }
    })
}

/// Calls `done` with the result, and returns the error.
fn report<T>(result: io::Result<T>, done: Done<T>) -> io::Result<()> {
    let kept = result.as_ref().err().map(copy_error);
    done(result);
    kept.map_or(Ok(()), Err)
}

fn no_mirror() -> io::Error {
    invalid_data("there is no mirror; rebuild it")
}
