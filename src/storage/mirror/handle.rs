//! The handle of the writer thread, which queues jobs.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use super::worker::Worker;
use super::{Job, StateStore, closed};
use crate::limits::STATE_THREAD_NICE;
use crate::mutex::Mutex;
use crate::storage::snapshot::{SnapshotFile, SnapshotWriter};

/// Mirror and snapshot files on disk. When the last handle is dropped, the thread ends after all queued jobs.
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
        self.jobs.lock().take();
        // A `done` may drop the last handle on the writer thread itself, which then ends without a join.
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != thread::current().id()) {
            // If the thread panicked, the panic hook has reported that, and no caller is left.
            let _ = thread.join();
        }
    }
}

impl DiskState {
    /// Starts the thread. With `refill` it first rebuilds the mirror from the newest snapshot file.
    pub(in crate::storage) fn start(worker: Worker, refill: bool) -> io::Result<Self> {
        let (jobs, queue) = channel();
        let (snapshot, snapshots) = (worker.snapshot.clone(), worker.snapshots.clone());
        let run = move || {
            // With a lower priority this thread does not slow down the threads that serve requests. If the call fails,
            // everything still works.
            let _ = rustix::process::setpriority_process(None, STATE_THREAD_NICE);
            worker.run(queue, refill);
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
}

impl StateStore for DiskState {
    fn submit(&self, job: Job) {
        let closing = matches!(job, Job::Close(_));
        let mut jobs = self.0.jobs.lock();
        let refused = match jobs.as_ref() {
            Some(queue) => queue.send(job).err().map(|error| error.0),
            None => Some(job),
        };
        if closing {
            jobs.take();
        }
        drop(jobs);
        if let Some(job) = refused {
            job.fail(closed());
        }
    }

    fn current_snapshot(&self) -> Option<SnapshotFile> {
        self.0.snapshot.lock().clone()
    }

    fn receive(&self) -> io::Result<SnapshotWriter> {
        let number = self.0.received.fetch_add(1, Ordering::Relaxed);
        SnapshotWriter::create(self.0.snapshots.join(format!("received-{number}.tmp")))
    }

    fn may_block(&self) -> bool {
        true
    }
}
