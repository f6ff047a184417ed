//! Documents, free or held; signs of life of processes; and where documents are found by `ts` and by process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Change, Holder};
use crate::model::{DocumentId, FencingToken, LockKey, LockName, LogTime, Metadata, Namespace, ProcessId, WallTime};

/// What a document has besides the fields of every hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentMark {
    /// Its `ts`; the claim is the take of that name.
    pub ts: DocumentId,
    /// Its election term.
    pub term: Option<u64>,
    /// Not confirmed yet. Always false in a free document.
    pub prepared: bool,
}

/// The document of a lock that nobody holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeDocument {
    /// `ts` and term.
    pub mark: DocumentMark,
    /// What its last holder said of itself.
    pub metadata: Arc<Metadata>,
    /// When that came to hold it, by the leader's wall clock.
    pub when: WallTime,
    /// Under which token.
    pub token: FencingToken,
}

/// A process that gave signs of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessRecord {
    /// The last one, by the leader's wall clock.
    pub ping: WallTime,
    /// Forgotten when log time passes this, unless it has locks.
    pub forget_after: LogTime,
}

/// What is left of a command that freed many documents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unlocking {
    /// Where it frees documents.
    pub namespace: Namespace,
    /// Which documents it frees.
    pub which: WhichHeld,
    /// Documents with newer tokens came after the command, and stay.
    pub newest: FencingToken,
    /// When the command was executed.
    pub since: LogTime,
    /// All names before this one were gone through.
    pub next: LockName,
}

/// Held documents that are freed together. New variants are added at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhichHeld {
    /// All of one process, or those of one election term and before.
    Process(ProcessId, Option<u64>),
    /// All with this `ts`.
    Stamp(DocumentId),
}

/// Where documents are found; derived.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct DocumentIndex {
    /// Names by the `ts` of their documents, free or held.
    by_stamp: BTreeSet<(Namespace, DocumentId, LockName)>,
    /// Held documents by process.
    by_process: BTreeMap<(Namespace, Arc<str>), BTreeMap<LockName, FencingToken>>,
    /// Free documents of a namespace by their last grant.
    by_age: BTreeMap<Namespace, BTreeMap<FencingToken, LockName>>,
}

impl DocumentIndex {
    /// Names whose documents have this `ts`, from one on.
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

    /// What a process holds as documents; `None` where it is nothing.
    pub(crate) fn held_by(&self, namespace: &Namespace, process: &str) -> Option<&BTreeMap<LockName, FencingToken>> {
        self.by_process.get(&(namespace.clone(), process.into()))
    }

    /// The oldest free document where there are more than so many.
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
