//! A record of history before it is written.

use crate::model::{Arrival, ChainHash, Event, Fairness, GrantFacts, HistoryRecord, LockName, Mode};

/// A record before it is written: everything but what the chain adds.
#[derive(Debug, Clone, Copy)]
pub struct Draft<'a> {
    /// As in [`HistoryRecord`].
    pub event: &'a Event,
    /// The lock that the event is about.
    pub lock: &'a LockName,
    /// As in [`HistoryRecord`].
    pub mode: Option<Mode>,
    /// As in [`HistoryRecord`]; written for permits only.
    pub limit: Option<u32>,
    /// As in [`HistoryRecord`].
    pub facts: Option<Facts<'a>>,
    /// As in [`HistoryRecord`].
    pub previous: ChainHash,
}

/// [`GrantFacts`], borrowed.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// As in [`GrantFacts`].
    pub arrival: Arrival,
    /// As in [`GrantFacts`].
    pub fairness: Fairness,
    /// As in [`GrantFacts`].
    pub set: bool,
    /// As in [`GrantFacts`].
    pub passing: bool,
    /// As in [`GrantFacts`].
    pub owner: Option<&'a str>,
    /// As in [`GrantFacts`].
    pub principal: &'a str,
    /// As in [`GrantFacts`].
    pub who: &'a str,
    /// As in [`GrantFacts`].
    pub why: &'a str,
}

impl<'a> Draft<'a> {
    /// What was written when this record was made; `None` for one that is about no lock, which is no history.
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
