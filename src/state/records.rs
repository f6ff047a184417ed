//! The records of the whole state, and which of them changed.

use super::core::State;
use super::record::{Record, RecordKey};

impl State {
    /// Calls `fold` with the key of each record that changed since the last call, each once, in an unspecified order. A
    /// record that was both added and removed since then is left out. The set of keys keeps its memory, because
    /// allocating it again costs more than the rest.
    pub fn take_dirty(&mut self, mut fold: impl FnMut(&Self, RecordKey)) {
        self.history.carried_over();
        let mut dirty = std::mem::take(&mut self.dirty);
        for key in dirty.drain() {
            fold(self, key);
        }
        self.dirty = dirty;
    }

    /// How many keys the next [`take_dirty`](Self::take_dirty) will report.
    #[must_use]
    pub fn dirty_records(&self) -> usize {
        self.dirty.len()
    }

    /// The current record under this key. `None` if there is none.
    #[must_use]
    pub fn record(&self, key: &RecordKey) -> Option<Record> {
        match key {
            RecordKey::Globals => Some(Record::Globals(self.globals.clone())),
            RecordKey::Semaphore(lock) => {
                let lock = self.locks.get(lock)?;
                lock.limit.map(|limit| Record::Semaphore { limit, kept: lock.limit_kept })
            }
            RecordKey::Session(id) => self.sessions.get(id).map(|session| Record::Session(session.record.clone())),
            RecordKey::Finished(id, number) => {
                self.sessions.get(id)?.finished.get(number).cloned().map(Record::Finished)
            }
            RecordKey::Tombstone(id) => self.tombstones.get(id).cloned().map(Record::Tombstone),
            RecordKey::Holder(lock, token) => self.holder(lock, *token).cloned().map(Record::Holder),
            RecordKey::Waiter(lock, place) => self.waiter(lock, *place).cloned().map(Record::Waiter),
            RecordKey::FinishedLease(lock, take) => {
                self.finished_leases.get(&(lock.clone(), *take)).cloned().map(Record::FinishedLease)
            }
            RecordKey::Node(id) => self.nodes.get(id).cloned().map(Record::Node),
            RecordKey::Document(lock) => self.documents.get(lock).cloned().map(Record::Document),
            RecordKey::Process(namespace, process) => {
                self.processes.get(&(namespace.clone(), process.clone())).copied().map(Record::Process)
            }
            RecordKey::Delay(lock, token) => self.locks.get(lock)?.delays.get(token).cloned().map(Record::Delay),
            RecordKey::History(namespace, number) => {
                self.history.segment(namespace, *number).cloned().map(Record::History)
            }
        }
    }

    /// Every record, in key order within each kind.
    pub fn records(&self) -> impl Iterator<Item = (RecordKey, Record)> + '_ {
        self.record_keys().filter_map(|key| self.record(&key).map(|record| (key, record)))
    }

    /// The key of every record, in order within each kind.
    pub fn record_keys(&self) -> impl Iterator<Item = RecordKey> + '_ {
        let globals = std::iter::once(RecordKey::Globals);
        let semaphores = self.locks.iter().filter(|(_, lock)| lock.limit.is_some());
        let semaphores = semaphores.map(|(key, _)| RecordKey::Semaphore(key.clone()));
        let sessions = self.sessions.keys().map(|id| RecordKey::Session(*id));
        let finished = self
            .sessions
            .iter()
            .flat_map(|(id, session)| session.finished.keys().map(|number| RecordKey::Finished(*id, *number)));
        let tombstones = self.tombstones.keys().map(|id| RecordKey::Tombstone(*id));
        let holders = self
            .locks
            .iter()
            .flat_map(|(key, lock)| lock.holders.keys().map(|token| RecordKey::Holder(key.clone(), *token)));
        let waiters = self
            .locks
            .iter()
            .flat_map(|(key, lock)| lock.queue.keys().map(|sequence| RecordKey::Waiter(key.clone(), *sequence)));
        let delays = self
            .locks
            .iter()
            .flat_map(|(key, lock)| lock.delays.keys().map(|token| RecordKey::Delay(key.clone(), *token)));
        let takes = self.finished_leases.keys().map(|(lock, take)| RecordKey::FinishedLease(lock.clone(), *take));
        let nodes = self.nodes.keys().map(|id| RecordKey::Node(*id));
        let documents = self.documents.keys().map(|lock| RecordKey::Document(lock.clone()));
        let pings = self.processes.keys();
        let processes = pings.map(|(namespace, process)| RecordKey::Process(namespace.clone(), process.clone()));
        let segments = self.history.segments();
        let segments = segments.map(|(namespace, number)| RecordKey::History(namespace.clone(), number));
        globals
            .chain(semaphores)
            .chain(sessions)
            .chain(finished)
            .chain(tombstones)
            .chain(holders)
            .chain(waiters)
            .chain(takes)
            .chain(nodes)
            .chain(delays)
            .chain(segments)
            .chain(documents)
            .chain(processes)
    }
}
