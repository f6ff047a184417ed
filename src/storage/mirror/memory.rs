//! Mirror and snapshot in memory, for simulation. Jobs run at once.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use super::{Job, StateStore, closed};
use crate::faults::{self, Fault};
use crate::mutex::Mutex;
use crate::storage::head::{Head, Tally};
use crate::storage::recover::{Recovered, recover};
use crate::storage::snapshot::{Builder, ReceivedSnapshot, SnapshotFile, SnapshotWriter};
use crate::storage::wal::MemoryWal;

/// Mirror and snapshot in memory.
#[derive(Clone, Default)]
pub struct MemoryState(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    records: BTreeMap<Bytes, Bytes>,
    head: Head,
    snapshot: Option<SnapshotFile>,
    /// What a power failure leaves of these three with [`Fault::SnapshotUnsynced`]; otherwise they are durable at once.
    durable: Option<(BTreeMap<Bytes, Bytes>, Head, Option<SnapshotFile>)>,
    closed: bool,
}

impl MemoryState {
    /// Simulates a power failure, and opens the store again.
    pub fn crash(&self) {
        let mut inner = self.0.lock();
        if let Some(durable) = inner.durable.take() {
            (inner.records, inner.head, inner.snapshot) = durable;
        }
        inner.closed = false;
    }

    pub(in crate::storage) fn copy(&self) -> Self {
        let inner = self.0.lock();
        let (records, head, snapshot) = (inner.records.clone(), inner.head.clone(), inner.snapshot.clone());
        Self(Arc::new(Mutex::new(Inner { records, head, snapshot, ..Inner::default() })))
    }

    pub(in crate::storage) fn restore(&self, copy: &Self) {
        let copy = copy.copy();
        std::mem::swap(&mut *self.0.lock(), &mut *copy.0.lock());
    }

    /// Returns the state that a start recovers, by the same rules as for a directory. It may purge `wal` up to the
    /// snapshot.
    pub fn recover(&self, wal: &MemoryWal) -> io::Result<Recovered> {
        let inner = self.0.lock();
        let records: Vec<_> = inner.records.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        let mut tally = Tally::default();
        records.iter().for_each(|(key, value)| tally.add(key, value));
        let mirror = match tally.differs_from(&inner.head) {
            None => Ok((inner.head.clone(), records)),
            Some(difference) => Err(difference),
        };
        let snapshot = inner.snapshot.clone();
        drop(inner);
        let disk = Path::new("the disk in memory");
        let recovered = recover(disk, wal, mirror, snapshot.as_ref()).map_err(io::Error::other)?;
        let mut inner = self.0.lock();
        inner.records = recovered.records.iter().cloned().collect();
        inner.head = recovered.head.clone();
        Ok(recovered)
    }
}

impl Inner {
    fn export(&mut self) -> io::Result<SnapshotFile> {
        let mut builder = Builder::new(Vec::new(), self.head.clone())?;
        for (key, value) in &self.records {
            builder.add(key, value)?;
        }
        let file = SnapshotFile::from_memory(builder.finish()?.into())?;
        self.snapshot = Some(file.clone());
        Ok(file)
    }

    fn install(&mut self, file: ReceivedSnapshot) -> io::Result<SnapshotFile> {
        let file = file.into_file();
        self.records = file.records()?.collect::<io::Result<_>>()?;
        self.head = file.head().clone();
        self.snapshot = Some(file.clone());
        Ok(file)
    }
}

impl StateStore for MemoryState {
    fn submit(&self, job: Job) {
        let mut inner = self.0.lock();
        if inner.closed {
            drop(inner);
            return job.fail(closed());
        }
        if faults::on(Fault::SnapshotUnsynced) && inner.durable.is_none() {
            inner.durable = Some((inner.records.clone(), inner.head.clone(), inner.snapshot.clone()));
        }
        match job {
            Job::Checkpoint(changes, head, done) => {
                for (key, value) in changes {
                    match value {
                        Some(value) => inner.records.insert(key, value),
                        None => inner.records.remove(&key),
                    };
                }
                inner.head = head;
                drop(inner);
                done(Ok(()));
            }
            Job::Export(done) => {
                let exported = inner.export();
                drop(inner);
                done(exported);
            }
            Job::Install(file, done) => {
                let installed = inner.install(file);
                drop(inner);
                done(installed);
            }
            Job::Rebuild(records, head, done) => {
                (inner.records, inner.head) = (records.into_iter().collect(), head);
                drop(inner);
                done(Ok(()));
            }
            Job::Close(done) => {
                inner.closed = true;
                drop(inner);
                done(Ok(()));
            }
        }
    }

    fn current_snapshot(&self) -> Option<SnapshotFile> {
        self.0.lock().snapshot.clone()
    }

    fn receive(&self) -> io::Result<SnapshotWriter> {
        Ok(SnapshotWriter::in_memory())
    }

    fn may_block(&self) -> bool {
        false
    }
}
