//! Where documents are found: by `ts`, by process and by age.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::documents::FreeDocument;
use super::holder::Holder;
use super::indexed::Change;
use crate::model::{DocumentId, FencingToken, LockKey, LockName, Namespace};

/// Finds documents by `ts`, process and age. Derived from the records.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct DocumentIndex {
    /// Names by the `ts` of their documents, free or held.
    by_stamp: BTreeSet<(Namespace, DocumentId, LockName)>,
    by_process: BTreeMap<(Namespace, Arc<str>), BTreeMap<LockName, FencingToken>>,
    /// Free documents of a namespace by their last grant.
    by_age: BTreeMap<Namespace, BTreeMap<FencingToken, LockName>>,
}

impl DocumentIndex {
    /// The names from this name on whose documents have this `ts`.
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

    /// The documents that a process holds. `None` if it holds none.
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
