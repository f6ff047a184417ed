//! Listings of documents and of signs of life. Each looks only at one namespace, from the name where its page begins.

use std::ops::Bound;
use std::sync::Arc;

use super::Machine;
use crate::limits;
use crate::model::{
    Document, DocumentId, DocumentState, FencingToken, LockKey, LockName, Namespace, Page, Part, ProcessId,
    ProcessPing, QueryResult, SessionId, WhichDocuments, WhichPings, page_rows,
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
        let document =
            |name: &LockName| self.document_of(&LockKey { namespace: namespace.clone(), name: name.clone() });
        QueryResult::Documents(match which {
            WhichDocuments::Named(name) => Part { rows: document(name).into_iter().collect(), next: None },
            WhichDocuments::Stamped(ts) => {
                let mut names = self.state.index.documents.stamped(namespace, *ts, &LockName::least());
                let rows: Vec<_> = names.by_ref().filter_map(document).take(rows_max).collect();
                let next = rows.last().map(|row| row.lock.name.clone()).filter(|_| names.next().is_some());
                Part { rows, next }
            }
            WhichDocuments::After(after) => self.documents_after(namespace, after.as_ref(), rows_max),
        })
    }

    /// The documents after this name, in the order of their names. Looks at a bounded number of names, of locks and of
    /// free documents.
    fn documents_after(
        &self,
        namespace: &Namespace,
        after: Option<&LockName>,
        rows_max: usize,
    ) -> Part<Document, LockName> {
        let key_of = |name: &LockName| LockKey { namespace: namespace.clone(), name: name.clone() };
        let first = match after {
            Some(after) => Bound::Excluded(key_of(after)),
            None => Bound::Included(key_of(&LockName::least())),
        };
        let free = self.state.documents.range((first.clone(), Bound::Unbounded)).map(|(key, _)| key);
        let mut free = free.take_while(|key| key.namespace == *namespace).peekable();
        let locks = self.state.locks.range((first, Bound::Unbounded));
        let mut locks = locks.take_while(|(key, _)| key.namespace == *namespace).peekable();
        let (mut rows, mut last) = (Vec::new(), None::<&LockName>);
        for looked in 0.. {
            let names = [free.peek().copied(), locks.peek().map(|(key, _)| *key)];
            let Some(key) = names.into_iter().flatten().min() else { break };
            looked_at();
            if looked == limits::LISTED_MAX {
                return Part { rows, next: last.cloned() };
            }
            let before = last.replace(&key.name);
            // A free document has no holder, but its name may have waiters.
            let is_free = free.next_if_eq(&key).is_some();
            let lock = locks.next_if(|(of, _)| *of == key);
            if !is_free && lock.is_none_or(|(_, lock)| lock.holders.is_empty()) {
                continue;
            }
            if rows.len() == rows_max {
                return Part { rows, next: before.cloned() };
            }
            rows.extend(self.document_of(key));
        }
        Part { rows, next: None }
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
