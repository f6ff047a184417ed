//! Checks a state against its own records.

use std::collections::BTreeMap;

use super::core::State;
use super::holder::Holder;
use super::index::Indexes;
use super::load::derive_claims;
use super::session::Session;
use crate::model::Claim;

impl State {
    /// Describes the first of these invariants that does not hold, if any.
    ///
    /// - Everything derived equals what the records give.
    /// - A free lock has no record.
    /// - No request number of a session is both active and finished, and no take is.
    /// - A document is a take of its `ts` without a lease. A lock that is held has no free document.
    /// - A node's announcement is stored under its own id.
    /// - Tokens and sequence numbers in use are not above their counters.
    /// - History is within its bounds, and its size is counted correctly.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.check_derived()?;
        for (key, lock) in &self.locks {
            if lock.is_free() {
                return Err(format!("{key:?} is free and has a record"));
            }
            let newest = lock.holders.last_key_value().map_or(0, |(token, _)| token.counter());
            let last = lock.queue.keys().last().copied().unwrap_or_default();
            if self.globals.tokens < newest || self.globals.sequences < last {
                return Err(format!("{key:?}: token {newest} or place {last} is above its counter"));
            }
            if lock.holders.values().any(|holder| is_wrong_document(holder)) {
                return Err(format!("{key:?}: a document of another claim, or with its own deadline"));
            }
            if !lock.holders.is_empty() && self.documents.contains_key(key) {
                return Err(format!("{key:?} is held, and has a free document"));
            }
        }
        for (id, session) in &self.sessions {
            if let Some((number, ..)) = session.claims().find(|(number, ..)| session.finished.contains_key(number)) {
                return Err(format!("request {id}#{number} is live and finished"));
            }
        }
        if let Some((id, announcement)) = self.nodes.iter().find(|(id, announcement)| **id != announcement.node) {
            return Err(format!("node {} is filed as node {id}", announcement.node));
        }
        self.history.check()
    }

    /// Derives everything again from the records alone, and compares.
    fn check_derived(&self) -> Result<(), String> {
        let mut locks: BTreeMap<_, _> =
            self.locks.iter().map(|(key, lock)| (key.clone(), Box::new(lock.underived()))).collect();
        let opened = self.sessions.iter().map(|(id, session)| (*id, Session::new(session.record.clone()).into()));
        let mut sessions: BTreeMap<_, _> = opened.collect();
        derive_claims(&mut locks, &mut sessions, &self.finished_leases).map_err(|corrupt| corrupt.to_string())?;
        if let Some((key, lock)) = self.locks.iter().find(|(key, lock)| locks.get(key) != Some(lock)) {
            return Err(format!("{key:?} is {lock:?}, derived {:?}", locks.get(key)));
        }
        if let Some((id, session)) = self.sessions.iter().find(|(id, session)| !session.has_claims_of(&sessions[id])) {
            return Err(format!("session {id} is {session:?}, derived {:?}", sessions[id]));
        }
        let index = Indexes::of(self);
        if self.index != index {
            return Err(format!("the indexes are {:?}, derived {index:?}", self.index));
        }
        Ok(())
    }
}

fn is_wrong_document(holder: &Holder) -> bool {
    let wrong = |ts| holder.request.claim != Claim::Lease(ts) || holder.lease.is_some();
    holder.document().is_some_and(|mark| wrong(mark.ts.take_id()))
}
