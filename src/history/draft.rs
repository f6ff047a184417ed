//! A record of history before it is written.

use crate::model::{Arrival, ChainHash, Event, Fairness, GrantFacts, HistoryRecord, LockName, Mode};

/// A record before it is written: everything except the hashes of the chain.
#[derive(Debug, Clone, Copy)]
pub struct Draft<'a> {
    /// Same as [`HistoryRecord::event`].
    pub event: &'a Event,
    /// The lock that the event is about.
    pub lock: &'a LockName,
    /// Same as [`HistoryRecord::mode`].
    pub mode: Option<Mode>,
    /// Same as [`HistoryRecord::limit`]. Written only for permits.
    pub limit: Option<u32>,
    /// Same as [`HistoryRecord::grant`].
    pub facts: Option<Facts<'a>>,
    /// Same as [`HistoryRecord::previous`].
    pub previous: ChainHash,
}

/// The fields of [`GrantFacts`], borrowed.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// Same as [`GrantFacts::arrival`].
    pub arrival: Arrival,
    /// Same as [`GrantFacts::fairness`].
    pub fairness: Fairness,
    /// Same as [`GrantFacts::set`].
    pub set: bool,
    /// Same as [`GrantFacts::passing`].
    pub passing: bool,
    /// Same as [`GrantFacts::owner`].
    pub owner: Option<&'a str>,
    /// Same as [`GrantFacts::principal`].
    pub principal: &'a str,
    /// Same as [`GrantFacts::who`].
    pub who: &'a str,
    /// Same as [`GrantFacts::why`].
    pub why: &'a str,
}

impl<'a> Draft<'a> {
    /// The draft of a record that was written. `None` for an event without a lock, because history keeps no such event.
    #[must_use]
    pub fn of(record: &'a HistoryRecord) -> Option<Self> {
        let facts = |grant: &'a GrantFacts| Facts {
            arrival: grant.arrival,
            fairness: grant.fairness,
            set: grant.set,
            passing: grant.passing,
            owner: grant.owner.as_ref().map(|owner| owner.as_str()),
            principal: grant.principal.as_str(),
            who: &grant.who,
            why: &grant.why,
        };
        Some(Self {
            event: &record.event,
            lock: &record.event.subject.lock()?.name,
            mode: record.mode,
            limit: record.limit,
            facts: record.grant.as_ref().map(facts),
            previous: record.previous,
        })
    }
}
