//! A record of history before it is written.

use crate::model::{Arrival, ChainHash, Event, Fairness, GrantFacts, HistoryRecord, LockName, Mode};

/// A record before it is written: everything except the links of the chain.
#[derive(Debug, Clone, Copy)]
pub struct Draft<'a> {
    /// As in [`HistoryRecord::event`].
    pub event: &'a Event,
    /// The lock that the event is about.
    pub lock: &'a LockName,
    /// As in [`HistoryRecord::mode`].
    pub mode: Option<Mode>,
    /// As in [`HistoryRecord::limit`]; written for permits only.
    pub limit: Option<u32>,
    /// As in [`HistoryRecord::grant`].
    pub facts: Option<Facts<'a>>,
    /// As in [`HistoryRecord::previous`].
    pub previous: ChainHash,
}

/// The fields of [`GrantFacts`], borrowed.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// As in [`GrantFacts::arrival`].
    pub arrival: Arrival,
    /// As in [`GrantFacts::fairness`].
    pub fairness: Fairness,
    /// As in [`GrantFacts::set`].
    pub set: bool,
    /// As in [`GrantFacts::passing`].
    pub passing: bool,
    /// As in [`GrantFacts::owner`].
    pub owner: Option<&'a str>,
    /// As in [`GrantFacts::principal`].
    pub principal: &'a str,
    /// As in [`GrantFacts::who`].
    pub who: &'a str,
    /// As in [`GrantFacts::why`].
    pub why: &'a str,
}

impl<'a> Draft<'a> {
    /// The draft from which this record was written; `None` for an event without a lock, which history does not keep.
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
