//! Documents, free or held; signs of life of processes; and the index that finds documents by `ts` and by process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Change, Holder};
use crate::model::{DocumentId, FencingToken, LockKey, LockName, LogTime, Metadata, Namespace, ProcessId, WallTime};

/// The fields of a document besides those of every hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentMark {
    /// Its `ts`; the claim is the take with that id.
    pub ts: DocumentId,
    /// The election term in which it was made.
    pub term: Option<u64>,
    /// Not confirmed yet. Always false in a free document.
    pub prepared: bool,
}

/// The document of a lock without a holder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeDocument {
    /// The document's `ts` and term.
    pub mark: DocumentMark,
    /// What its last holder stated about itself.
    pub metadata: Arc<Metadata>,
    /// When the last holder was granted the lock, by the leader's wall clock.
    pub when: WallTime,
    /// The token of the last grant.
    pub token: FencingToken,
}

/// A process that gave signs of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessRecord {
    /// The last sign of life, by the leader's wall clock.
    pub ping: WallTime,
    /// Forgotten when log time passes this, unless it holds locks.
    pub forget_after: LogTime,
}

/// The remaining work of a command that frees many documents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unlocking {
    /// The namespace of the documents.
    pub namespace: Namespace,
    /// Which documents it frees.
    pub which: WhichHeld,
    /// The newest token when the command was executed. Documents with newer tokens stay.
    pub newest: FencingToken,
    /// When the command was executed.
    pub since: LogTime,
    /// The next name to look at. All names before it are done.
    pub next: LockName,
}

/// Held documents that are freed together. New variants are added at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhichHeld {
    /// All of one process, or those of this election term and earlier ones.
    Process(ProcessId, Option<u64>),
    /// All documents with this `ts`.
    Stamp(DocumentId),
}

/// Finds documents by `ts`, process and age. Derived.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct DocumentIndex {
    /// Names by the `ts` of their documents, free or held.
    by_stamp: BTreeSet<(Namespace, DocumentId, LockName)>,
    /// Held documents by their process.
    by_process: BTreeMap<(Namespace, Arc<str>), BTreeMap<LockName, FencingToken>>,
    /// Free documents of a namespace by their last grant.
    by_age: BTreeMap<Namespace, BTreeMap<FencingToken, LockName>>,
}

impl DocumentIndex {
    /// Names whose documents have this `ts`, beginning at a name.
    pub(crate) fn stamped<'a>(
        &'a self,
        namespace: &Namespace,
        ts: DocumentId,
        from: &LockName,
    ) -> impl Iterator<Item = &'a LockName> + use<'a> {
        let namespace = namespace.clone();
        let first = self.by_stamp.range((namespace.clone(), ts, from.clone())..);
        first.take_while(move |(of, stamp, _)| *of == namespace && *stamp == ts).map(|(_, _, name)| name)
    }

    /// The documents that a process holds; `None` if it holds none.
    pub(crate) fn held_by(&self, namespace: &Namespace, process: &str) -> Option<&BTreeMap<LockName, FencingToken>> {
        self.by_process.get(&(namespace.clone(), process.into()))
    }

    /// The oldest free document if there are more than `bound`.
    pub(crate) fn oldest_beyond(&self, namespace: &Namespace, bound: u64) -> Option<LockKey> {
        let ages = self.by_age.get(namespace).filter(|ages| bound < ages.len() as u64)?;
        let (_, name) = ages.first_key_value()?;
        Some(LockKey { namespace: namespace.clone(), name: name.clone() })
    }

    pub(crate) fn change_held(&mut self, key: &LockKey, token: FencingToken, holder: &Holder, change: Change) {
        let Some(mark) = holder.document() else { return };
        let process = (key.namespace.clone(), Arc::clone(&holder.request.metadata.process));
        let held = self.by_process.entry(process.clone()).or_default();
        match change {
            Change::Came => drop(held.insert(key.name.clone(), token)),
            Change::Went => drop(held.remove(&key.name)),
        }
        if held.is_empty() {
            self.by_process.remove(&process);
        }
        self.change_stamp(key, mark.ts, change);
    }

    pub(crate) fn change_free(&mut self, key: &LockKey, free: &FreeDocument, change: Change) {
        let ages = self.by_age.entry(key.namespace.clone()).or_default();
        match change {
            Change::Came => drop(ages.insert(free.token, key.name.clone())),
            Change::Went => drop(ages.remove(&free.token)),
        }
        if ages.is_empty() {
            self.by_age.remove(&key.namespace);
        }
        self.change_stamp(key, free.mark.ts, change);
    }

    fn change_stamp(&mut self, key: &LockKey, ts: DocumentId, change: Change) {
        let entry = (key.namespace.clone(), ts, key.name.clone());
        change.put(&mut self.by_stamp, entry);
    }
}
