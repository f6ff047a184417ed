//! The one thread that writes mirror and snapshot files, one job after the other.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::sled::Change;
use super::{Checkpoint, Job, Mirror, Probe, Step, closed};
use crate::limits::MIRRORS_SET_ASIDE;
use crate::storage::error::{copy_error, explained, invalid_data};
use crate::storage::fs::{remove_files, set_aside, sync_directory};
use crate::storage::head::Head;
use crate::storage::ids::{LogId, next_index, shown};
use crate::storage::mutex::lock;
use crate::storage::snapshot::{ReceivedSnapshot, SnapshotFile, file_name, received_name};

/// What the thread owns.
pub(in crate::storage) struct Worker {
    /// The mirror's directory.
    pub(in crate::storage) state: PathBuf,
    /// The directory of snapshot files.
    pub(in crate::storage) snapshots: PathBuf,
    /// `None` while there is none that counts.
    pub(in crate::storage) mirror: Option<Mirror>,
    pub(in crate::storage) snapshot: Arc<Mutex<Option<SnapshotFile>>>,
    /// The newest snapshot's entry, behind which the log may be purged.
    pub(in crate::storage) floor: Arc<Mutex<Option<LogId>>>,
    pub(in crate::storage) probe: Probe,
}

impl Worker {
    pub(super) fn run(mut self, queue: Receiver<Job>, refill: bool) {
        let (state, snapshots) = (self.state.clone(), self.snapshots.clone());
        // Why there is no mirror: told to every job that needs one.
        let mut failure = refill.then(|| self.refill().err()).flatten();
        while let Ok(job) = queue.recv() {
            if let (Some(error), Job::Checkpoint(..) | Job::Export(_)) = (&failure, &job) {
                job.fail(copy_error(error));
                continue;
            }
            let result = match job {
                Job::Checkpoint(checkpoint, done) => tell(placed(&state, self.checkpoint(checkpoint)), done),
                Job::Rebuild(records, head, done) => tell(placed(&state, self.rebuild(records, head)), done),
                Job::Export(done) => tell(placed(&snapshots, self.export()), done).map(drop),
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
                    // A job may have come behind it: its caller waits for an answer, too.
                    return queue.into_iter().for_each(|job| job.fail(closed()));
                }
            };
            if result.is_err() {
                self.mirror = None;
            }
            failure = result.err();
        }
    }

    fn checkpoint(&mut self, checkpoint: Checkpoint) -> io::Result<()> {
        let probe = self.probe.clone();
        let mirror = self.mirror.as_mut().ok_or_else(no_mirror)?;
        let at = checkpoint.head.log_id;
        mirror.write(checkpoint.changes.into_iter().map(Ok), checkpoint.head, &*probe)?;
        self.settle(at)
    }

    /// A checkpoint beyond a received snapshot says that the log has arrived there: from now on a log that ends before it
    /// has lost something.
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
        let synced = written.and_then(|file| file.into_inner()?.sync_all());
        if let Err(error) = synced {
            // What cannot be removed now is removed at the next start; the first error is the one to tell.
            let _ = fs::remove_file(&temporary);
            if error.kind() == io::ErrorKind::InvalidData {
                self.mirror = None;
                set_aside(&self.state, MIRRORS_SET_ASIDE)?;
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

    /// From here on a start takes `file`. Older files go; whoever reads one still holds it open.
    fn make_newest(&mut self, file: SnapshotFile, path: &Path) -> io::Result<SnapshotFile> {
        sync_directory(&self.snapshots)?;
        (self.probe)(Step::SnapshotRenamed);
        *lock(&self.snapshot) = Some(file.clone());
        let mut floor = lock(&self.floor);
        *floor = (*floor).max(file.head().log_id);
        drop(floor);
        let kept = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        remove_files(&self.snapshots, |name| name.ends_with(".snapshot") && name != kept)?;
        Ok(file)
    }

    /// Builds the mirror anew from the newest snapshot file, or empty.
    fn refill(&mut self) -> io::Result<()> {
        let Some(file) = self.current() else { return self.replace(std::iter::empty(), Head::default()) };
        let records = file.records()?.map(|record| record.map(|(key, value)| (key, Some(value))));
        self.replace(records, file.head().clone())
    }

    fn rebuild(&mut self, records: Vec<(Bytes, Bytes)>, head: Head) -> io::Result<()> {
        self.replace(records.into_iter().map(|(key, value)| Ok((key, Some(value)))), head)
    }

    fn replace(&mut self, records: impl Iterator<Item = io::Result<Change>>, head: Head) -> io::Result<()> {
        // sled writes by path too: it must be gone before its directory is renamed.
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
        lock(&self.snapshot).clone()
    }
}

/// The result with the place of an error of the disk; one that says what is wrong with the content stays as it is.
fn placed<T>(path: &Path, result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| {
        let content = matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput);
        if content { error } else { explained("write into", path, &error) }
    })
}

/// Tells the result to `done` and keeps the error.
fn tell<T>(result: io::Result<T>, done: Box<dyn FnOnce(io::Result<T>) + Send>) -> io::Result<()> {
    let kept = result.as_ref().err().map(copy_error);
    done(result);
    kept.map_or(Ok(()), Err)
}

fn no_mirror() -> io::Error {
    invalid_data("there is no mirror; rebuild it")
}
