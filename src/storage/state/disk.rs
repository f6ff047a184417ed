//! The handle of the one thread that owns mirror and snapshot files.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use bytes::Bytes;

use super::actor::{Actor, Job, closed};
use super::{Checkpoint, ExportDone, StateStore};
use crate::limits::STATE_THREAD_NICE;
use crate::storage::Done;
use crate::storage::head::Head;
use crate::storage::snapshot::{ReceivedSnapshot, SnapshotFile, SnapshotWriter};

/// Mirror and snapshot files on disk. The last handle to go ends the thread behind everything queued.
#[derive(Clone)]
pub struct DiskState(Arc<Handle>);

struct Handle {
    /// `None` once closed.
    jobs: Mutex<Option<Sender<Job>>>,
    thread: Option<JoinHandle<()>>,
    snapshot: Arc<Mutex<Option<SnapshotFile>>>,
    snapshots: PathBuf,
    received: AtomicU64,
}

impl Drop for Handle {
    fn drop(&mut self) {
        lock(&self.jobs).take();
        // The last handle may go inside a `done`, on the thread itself, which then ends on its own.
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != thread::current().id()) {
            // A panic there was reported by the panic hook; there is nobody left to tell.
            let _ = thread.join();
        }
    }
}

impl DiskState {
    /// Starts the thread. With `refill` the mirror is first built from the newest snapshot file.
    pub(in crate::storage) fn start(actor: Actor, refill: bool) -> io::Result<Self> {
        let (jobs, queue) = channel();
        let (snapshot, snapshots) = (actor.snapshot.clone(), actor.snapshots.clone());
        let run = move || {
            // Priority is a courtesy to the threads that answer people: without it everything still works.
            let _ = rustix::process::setpriority_process(None, STATE_THREAD_NICE);
            actor.run(queue, refill);
        };
        let thread = thread::Builder::new().name("lockkeeper-state".to_string()).spawn(run)?;
        Ok(Self(Arc::new(Handle {
            jobs: Mutex::new(Some(jobs)),
            thread: Some(thread),
            snapshot,
            snapshots,
            received: AtomicU64::new(0),
        })))
    }

    /// Queues a job; a job that finds the thread gone tells its own `done`.
    fn queue(&self, job: Job) {
        let refused = match lock(&self.0.jobs).as_ref() {
            Some(jobs) => jobs.send(job).err().map(|error| error.0),
            None => Some(job),
        };
        if let Some(job) = refused {
            job.fail(closed());
        }
    }
}

impl StateStore for DiskState {
    fn checkpoint(&self, checkpoint: Checkpoint, done: Done) {
        self.queue(Job::Checkpoint(checkpoint, done));
    }

    fn export(&self, done: ExportDone) {
        self.queue(Job::Export(done));
    }

    fn install(&self, file: ReceivedSnapshot, done: ExportDone) {
        self.queue(Job::Install(file, done));
    }

    fn rebuild(&self, records: Vec<(Bytes, Bytes)>, head: Head, done: Done) {
        self.queue(Job::Rebuild(records, head, done));
    }

    fn current_snapshot(&self) -> Option<SnapshotFile> {
        lock(&self.0.snapshot).clone()
    }

    fn receive(&self) -> io::Result<SnapshotWriter> {
        let number = self.0.received.fetch_add(1, Ordering::Relaxed);
        SnapshotWriter::create(self.0.snapshots.join(format!("received-{number}.tmp")))
    }

    fn may_block(&self) -> bool {
        true
    }

    fn close(&self, done: Done) {
        self.queue(Job::Close(done));
        lock(&self.0.jobs).take();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
