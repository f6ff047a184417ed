//! Free documents and signs of life, and where documents are found by `ts` and by process; and the commands that free many of
//! them: a bounded number at once, the others by the sweeps that follow.
//!
//! A command that meets one of the others frees it first, so that no command finds a document held that was freed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::expiry::DeadlineOf;
use super::owners::Change;
use super::state::{FreeDocument, Holder, ProcessRecord};
use super::{Machine, looked_at};
use crate::limits;
use crate::model::{
    Document, DocumentId, DocumentState, EndReason, FencingToken, LockKey, LockName, LogTime, Namespace, Outcome, Page,
    ProcessId, ProcessPing, QueryResult, WallTime, WhichDocuments, WhichPings,
};

/// What there is besides the locks themselves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Documents {
    /// Names without a holder whose last holder held them as documents.
    pub(super) free: BTreeMap<LockKey, FreeDocument>,
    /// Processes that gave signs of life.
    pub(super) pings: BTreeMap<(Namespace, ProcessId), ProcessRecord>,
    /// Names by the `ts` of their documents, free or held; derived.
    by_stamp: BTreeSet<(Namespace, DocumentId, LockName)>,
    /// Held documents by process; derived.
    by_process: BTreeMap<(Namespace, Arc<str>), BTreeMap<LockName, FencingToken>>,
    /// Free documents of a namespace by their last grant; derived.
    by_age: BTreeMap<Namespace, BTreeMap<FencingToken, LockName>>,
}

impl Documents {
    /// Names whose documents have this `ts`, from one on.
    pub(super) fn stamped<'a>(
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
    pub(super) fn held_by(&self, namespace: &Namespace, process: &str) -> Option<&BTreeMap<LockName, FencingToken>> {
        self.by_process.get(&(namespace.clone(), process.into()))
    }

    /// The oldest free document where there are more than so many.
    pub(super) fn oldest_beyond(&self, namespace: &Namespace, bound: u64) -> Option<LockKey> {
        let ages = self.by_age.get(namespace).filter(|ages| bound < ages.len() as u64)?;
        let (_, name) = ages.first_key_value()?;
        Some(LockKey { namespace: namespace.clone(), name: name.clone() })
    }

    pub(super) fn note_held(&mut self, key: &LockKey, token: FencingToken, holder: &Holder, change: Change) {
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
        self.note_stamp(key, mark.ts, change);
    }

    pub(super) fn note_free(&mut self, key: &LockKey, free: &FreeDocument, change: Change) {
        let ages = self.by_age.entry(key.namespace.clone()).or_default();
        match change {
            Change::Came => drop(ages.insert(free.token, key.name.clone())),
            Change::Went => drop(ages.remove(&free.token)),
        }
        if ages.is_empty() {
            self.by_age.remove(&key.namespace);
        }
        self.note_stamp(key, free.mark.ts, change);
    }

    fn note_stamp(&mut self, key: &LockKey, ts: DocumentId, change: Change) {
        let entry = (key.namespace.clone(), ts, key.name.clone());
        change.put(&mut self.by_stamp, entry);
    }
}

impl Machine {
    /// A lock as a document: held as one, held natively, or free and held as one before.
    pub(super) fn document_of(&self, key: &LockKey) -> Option<Document> {
        let held = self.locks.get(key).and_then(|lock| lock.holders.first_key_value());
        if let Some((token, holder)) = held {
            return Some(held_document(key, *token, holder));
        }
        let free = self.documents.free.get(key)?;
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
        let rows_max = (rows as usize).clamp(1, limits::PAGE_ROWS_MAX);
        let key_of = |name: LockName| LockKey { namespace: namespace.clone(), name };
        let names: BTreeSet<LockName> = match which {
            WhichDocuments::Named(name) => BTreeSet::from([name.clone()]),
            WhichDocuments::Stamped(ts) => {
                self.documents.stamped(namespace, *ts, &LockName::least()).take(rows_max + 1).cloned().collect()
            }
            WhichDocuments::After(after) => {
                let from = key_of(after.clone().unwrap_or(LockName::least()));
                let later = |key: &&LockKey| key.namespace == *namespace && after.as_ref() != Some(&key.name);
                let held = self.locks.range(from.clone()..).filter(|(_, lock)| !lock.holders.is_empty());
                let held = held.map(|(key, _)| key).take_while(|key| key.namespace == *namespace).filter(later);
                let free = self.documents.free.range(from..).map(|(key, _)| key);
                let free = free.take_while(|key| key.namespace == *namespace).filter(later);
                let names = held.take(rows_max + 1).chain(free.take(rows_max + 1));
                names.map(|key| key.name.clone()).collect()
            }
        };
        let mut rows: Vec<Document> =
            names.into_iter().take(rows_max + 1).filter_map(|name| self.document_of(&key_of(name))).collect();
        let more = rows_max < rows.len();
        rows.truncate(rows_max);
        QueryResult::Documents(Page { rows, more })
    }

    pub(super) fn list_pings(&self, namespace: &Namespace, which: &WhichPings, rows: u32) -> QueryResult {
        let rows_max = (rows as usize).clamp(1, limits::PAGE_ROWS_MAX);
        let mut pings: BTreeMap<Arc<str>, WallTime> = BTreeMap::new();
        let meant = |process: &str| match which {
            WhichPings::After(after) => after.as_ref().is_none_or(|after| **after < *process),
            WhichPings::Of(of) => **of == *process,
        };
        let mut note = |process: Arc<str>, ping: WallTime| {
            if meant(&process) {
                let known = pings.entry(process).or_default();
                *known = ping.max(*known);
            }
        };
        for ((of, process), record) in &self.documents.pings {
            if of == namespace {
                note(process.as_str().into(), record.ping);
            }
        }
        for (id, session) in &self.sessions {
            let record = &session.record;
            if record.namespace == *namespace {
                let named = Some(&record.metadata.process).filter(|process| !process.is_empty());
                note(named.cloned().unwrap_or_else(|| id.to_string().into()), record.renewed_wall);
            }
        }
        let more = rows_max < pings.len();
        let rows = pings.into_iter().take(rows_max).map(|(process, ping)| ProcessPing { process, ping }).collect();
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

impl Machine {
    /// Frees these documents. Returns how many there were, however many of them are left to the sweep.
    pub(super) fn unlock_many(&mut self, namespace: &Namespace, which: WhichHeld) -> Outcome {
        let newest = FencingToken::new(self.globals.epoch, self.globals.tokens);
        let (namespace, since, next) = (namespace.clone(), self.globals.now, LockName::least());
        let unlocking = Unlocking { namespace, which, newest, since, next };
        let all = self.meant(&unlocking).filter_map(|(name, token)| Some((name, token?)));
        // What an earlier command freed is not freed again.
        let locks = all.filter(|(name, token)| !self.is_freed(&unlocking.namespace, name, *token)).count() as u64;
        let (_, left) = self.unlock_some(unlocking);
        if let Some(left) = left {
            self.go_on_with(|unlocking| {
                // What is left of an earlier one of the same kind is part of this one.
                unlocking.retain(|other| other.namespace != left.namespace || other.which != left.which);
                unlocking.push(left);
            });
        }
        Outcome::Freed { locks }
    }

    /// Goes on with the oldest of these commands. Returns how many documents it went through.
    pub(super) fn unlock_more(&mut self) -> usize {
        let Some(first) = self.globals.unlocking.first().cloned() else { return 0 };
        let (looked_at, left) = self.unlock_some(first);
        self.go_on_with(|unlocking| match left {
            Some(left) => unlocking[0] = left,
            None => drop(unlocking.remove(0)),
        });
        looked_at
    }

    /// Changes what the sweep goes on with.
    fn go_on_with(&mut self, change: impl FnOnce(&mut Vec<Unlocking>)) {
        let before = self.globals.unlocking.first().map(|first| first.since);
        change(&mut self.globals.unlocking);
        let after = self.globals.unlocking.first().map(|first| first.since);
        self.move_deadline(before, after, DeadlineOf::Unlocking);
    }

    /// Frees the document of this lock where a command freed it that the sweep goes on with.
    pub(super) fn unlock_at(&mut self, key: &LockKey) {
        let held = self.locks.get(key).and_then(|lock| lock.holders.first_key_value());
        let Some(token) = held.map(|(token, _)| *token) else { return };
        if self.is_freed(&key.namespace, &key.name, token) {
            self.end_hold(key, token, EndReason::Released, None);
        }
    }

    /// Whether a command freed this document that the sweep goes on with.
    fn is_freed(&self, namespace: &Namespace, name: &LockName, token: FencingToken) -> bool {
        self.globals.unlocking.iter().any(|unlocking| {
            let left = unlocking.namespace == *namespace && unlocking.next <= *name;
            left && self.meant_at(unlocking, name) == Some(token)
        })
    }

    /// Goes through a bounded number of names. Returns how many, and what is left.
    fn unlock_some(&mut self, mut unlocking: Unlocking) -> (usize, Option<Unlocking>) {
        let max = limits::DOCUMENTS_UNLOCKED_AT_ONCE_MAX;
        let mut names: Vec<(LockName, Option<FencingToken>)> = self.meant(&unlocking).take(max + 1).collect();
        let next = if names.len() <= max { None } else { names.pop() };
        for (name, token) in &names {
            if let Some(token) = token {
                let key = LockKey { namespace: unlocking.namespace.clone(), name: name.clone() };
                self.end_hold(&key, *token, EndReason::Released, None);
            }
        }
        let left = next.map(|(next, _)| {
            unlocking.next = next;
            unlocking
        });
        (names.len().max(1), left)
    }

    /// Names that may be meant, from the first on that was not gone through; with the token of the hold that is.
    fn meant<'a>(&'a self, of: &'a Unlocking) -> impl Iterator<Item = (LockName, Option<FencingToken>)> + 'a {
        let (process, stamp) = match &of.which {
            WhichHeld::Process(process, _) => (Some(self.documents.held_by(&of.namespace, process.as_str())), None),
            WhichHeld::Stamp(ts) => (None, Some(self.documents.stamped(&of.namespace, *ts, &of.next))),
        };
        let from = (Bound::Included(&of.next), Bound::Unbounded);
        let process = process.flatten().into_iter().flat_map(move |held| held.range::<LockName, _>(from));
        let names = process.map(|(name, _)| name).chain(stamp.into_iter().flatten());
        names.map(move |name| {
            looked_at();
            (name.clone(), self.meant_at(of, name))
        })
    }

    /// The token of the hold of this name, where it is meant.
    fn meant_at(&self, of: &Unlocking, name: &LockName) -> Option<FencingToken> {
        let key = LockKey { namespace: of.namespace.clone(), name: name.clone() };
        let (token, holder) = self.locks.get(&key)?.holders.first_key_value()?;
        let mark = holder.document().filter(|_| *token <= of.newest)?;
        let meant = match &of.which {
            WhichHeld::Process(process, term) => {
                let in_term = term.is_none_or(|term| mark.term.is_some_and(|of| of <= term));
                *holder.request.metadata.process == *process.as_str() && in_term
            }
            WhichHeld::Stamp(ts) => mark.ts == *ts,
        };
        meant.then_some(*token)
    }
}
