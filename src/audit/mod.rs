//! The history of a namespace as bytes and as a chain of hashes, and the proof that one was kept to the rules.
//!
//! Knows: limits, model. Never: the machine, a clock, disks, JSON.
//!
//! The machine writes each record in the one way that [`bytes`] has; its hash covers those bytes, the namespace and the
//! hash of the record before. [`verify`](fn@verify) takes records from anywhere, a file above all, and trusts none of them.
//!
//! What a chain cannot show: that lines were cut off at its beginning or its end, or that somebody wrote all of it anew.
//! Who wants to exclude that compares the last hash with that of the cluster, or keeps it elsewhere.

pub mod bytes;
mod chain;
mod read;
mod verify;

pub use chain::link;
pub(crate) use read::split_off;
pub use read::{Damaged, Written, read};
pub use verify::{Flaw, Proof, verify};

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

/// [`GrantFacts`] that belong to somebody else.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// As there.
    pub arrival: Arrival,
    /// As there.
    pub fairness: Fairness,
    /// As there.
    pub set: bool,
    /// As there.
    pub passing: bool,
    /// As there.
    pub owner: Option<&'a str>,
    /// As there.
    pub principal: &'a str,
    /// As there.
    pub who: &'a str,
    /// As there.
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
