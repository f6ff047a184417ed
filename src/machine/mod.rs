//! The deterministic lock state machine: decides who holds what, and when it ends.
//!
//! Knows: limits, model. Never: a clock, randomness, async, disks, openraft, tracing.

use crate::model::{Answer, Entry, Event, Query, Reply};

/// What an entry did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Applied {
    /// One reply for each renewal, in order.
    pub renewals: Vec<Reply>,
    /// One reply for each command, in order.
    pub commands: Vec<Reply>,
    /// In the order in which they happened.
    pub events: Vec<Event>,
}

/// All locks, sessions and queues. Equal logs give equal machines.
#[derive(Debug, Clone)]
pub struct Machine {}

impl Machine {
    /// Applies the entry at `index`. Total: it cannot fail, and refusals are answers.
    pub fn apply(&mut self, _index: u64, _entry: &Entry) -> Applied {
        Applied::default()
    }

    /// Answers from the state as it is.
    #[must_use]
    pub fn query(&self, _query: &Query) -> Option<Answer> {
        None
    }
}
