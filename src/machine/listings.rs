//! Listings of documents and of signs of life. Each looks only at one namespace, from the name where its page begins.

use std::ops::Bound;
use std::sync::Arc;

use super::Machine;
use crate::limits;
use crate::model::{
    Document, DocumentId, DocumentState, FencingToken, LockKey, LockName, Namespace, Page, ProcessId, ProcessPing,
    QueryResult, SessionId, WhichDocuments, WhichPings, page_rows,
};
use crate::state::{Holder, looked_at};

impl Machine {
    /// A lock as a document: held as a document, held natively, or free with its last document kept.
    fn document_of(&self, key: &LockKey) -> Option<Document> {
        let held = self.state.lock(key).and_then(|lock| lock.holders.first_key_value());
        if let Some((token, holder)) = held {
            return Some(held_document(key, *token, holder));
        }
        let free = self.state.documents.get(key)?;
        Some(Document {
            lock: key.clone(),
            state: DocumentState::Free,
            ts: free.mark.ts,
            process: Arc::clone(&free.metadata.process),
            who: free.metadata.name().into(),
            why: Arc::clone(&free.metadata.why),
            when: free.when,
            term: free.mark.term,
            token: free.token,
            native: false,
        })
    }

    pub(super) fn list_documents(&self, namespace: &Namespace, which: &WhichDocuments, rows: u32) -> QueryResult {
        let rows_max = page_rows(rows);
        let (names, cut) = match which {
            WhichDocuments::Named(name) => (vec![name.clone()], false),
            WhichDocuments::Stamped(ts) => {
                let stamped = self.state.index.documents.stamped(namespace, *ts, &LockName::least());
                (stamped.take(rows_max + 1).cloned().collect(), false)
            }
            WhichDocuments::After(after) => self.documents_after(namespace, after.as_ref(), rows_max),
        };
        let key_of = |name| LockKey { namespace: namespace.clone(), name };
        let mut rows: Vec<Document> = names.into_iter().filter_map(|name| self.document_of(&key_of(name))).collect();
        let more = cut || rows_max < rows.len();
        rows.truncate(rows_max);
        QueryResult::Documents(Page { rows, more })
    }

    /// The names of the documents after this name, in order, at most one more than `rows_max`, and whether the search
    /// stopped before the end. It stops after a bounded number of locks, but not before it has found a document:
    /// the next page begins after the last document of this one.
    fn documents_after(
        &self,
        namespace: &Namespace,
        after: Option<&LockName>,
        rows_max: usize,
    ) -> (Vec<LockName>, bool) {
        let key_of = |name: &LockName| LockKey { namespace: namespace.clone(), name: name.clone() };
        let first = match after {
            Some(after) => Bound::Excluded(key_of(after)),
            None => Bound::Included(key_of(&LockName::least())),
        };
        let free = self.state.documents.range((first.clone(), Bound::Unbounded)).map(|(key, _)| key);
        let mut free = free.take_while(|key| key.namespace == *namespace).peekable();
        let locks = self.state.locks.range((first, Bound::Unbounded));
        let mut names = Vec::new();
        for ((key, lock), looked) in locks.take_while(|(key, _)| key.namespace == *namespace).zip(1..) {
            looked_at();
            // A free document has no holder, so that no name is listed twice.
            while let Some(before) = free.next_if(|next| names.len() <= rows_max && *next <= key) {
                names.push(before.name.clone());
            }
            if rows_max < names.len() || (limits::LISTED_MAX < looked && !names.is_empty()) {
                return (names, true);
            }
            if !lock.holders.is_empty() {
                names.push(key.name.clone());
            }
        }
        let left = (rows_max + 1).saturating_sub(names.len());
        names.extend(free.take(left).map(|key| key.name.clone()));
        (names, false)
    }

    /// The signs of life of processes and sessions, in the order of the processes' names. A page ends after a bounded
    /// number of them, but not between two of the same process, of which the newest counts.
    pub(super) fn list_pings(&self, namespace: &Namespace, which: &WhichPings, rows: u32) -> QueryResult {
        let rows_max = page_rows(rows);
        let (from, only): (Arc<str>, _) = match which {
            // The least text after this one.
            WhichPings::After(Some(after)) => (format!("{after}\0").into(), None),
            WhichPings::After(None) => ("".into(), None),
            WhichPings::Of(of) => (Arc::clone(of), Some(of)),
        };
        let pinged = self.state.processes.range((namespace.clone(), ProcessId::search_bound(Arc::clone(&from)))..);
        let pinged = pinged.take_while(|((of, _), _)| of == namespace);
        let mut pinged = pinged.map(|((_, process), record)| (process.as_str(), record.ping)).peekable();
        let renewed = self.state.index.processes.range((namespace.clone(), from, SessionId::new(0, 0))..);
        let renewed = renewed.take_while(|(of, ..)| of == namespace);
        let mut renewed = renewed
            .filter_map(|(_, process, id)| Some((&**process, self.state.session(*id)?.record.renewed_wall)))
            .peekable();
        let (mut rows, mut looked): (Vec<ProcessPing>, _) = (Vec::new(), 0);
        let more = loop {
            let earlier = pinged.next_if(|(process, _)| renewed.peek().is_none_or(|(other, _)| process <= other));
            let Some((process, ping)) = earlier.or_else(|| renewed.next()) else { break false };
            looked_at();
            looked += 1;
            if let Some(row) = rows.last_mut().filter(|row| *row.process == *process) {
                row.ping = ping.max(row.ping);
                continue;
            }
            if only.is_some_and(|only| **only != *process) {
                break false;
            }
            if rows.len() == rows_max || limits::LISTED_MAX < looked {
                break true;
            }
            rows.push(ProcessPing { process: process.into(), ping });
        };
        QueryResult::Pings(Page { rows, more })
    }
}

fn held_document(key: &LockKey, token: FencingToken, holder: &Holder) -> Document {
    let mark = holder.document();
    let metadata = &holder.request.metadata;
    let named = Some(&metadata.process).filter(|process| !process.is_empty()).cloned();
    let session = || holder.request.claim.session().map_or("".into(), |session| session.to_string().into());
    Document {
        lock: key.clone(),
        state: if mark.is_some_and(|mark| mark.prepared) { DocumentState::Prepared } else { DocumentState::Held },
        ts: mark.map_or_else(|| DocumentId::of_grant(holder.when, token), |mark| mark.ts),
        process: named.unwrap_or_else(session),
        who: metadata.name().into(),
        why: Arc::clone(&metadata.why),
        when: holder.when,
        term: mark.and_then(|mark| mark.term),
        token,
        native: mark.is_none(),
    }
}
