//! The resource of the two holders. It accepts actions in the order in which they arrive.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// One accepted action: its time in milliseconds since the resource was created, and its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Action {
    pub(crate) at_ms: u64,
    pub(crate) token: u64,
}

/// Whether the resource checks tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guard {
    Open,
    Tokens,
}

/// A resource that records the actions of holders.
pub(super) struct Resource {
    guard: Guard,
    made: Instant,
    taken: Mutex<Vec<Action>>,
}

impl Resource {
    pub(super) fn new(guard: Guard) -> Self {
        Self { guard, made: Instant::now(), taken: Mutex::default() }
    }

    /// Accepts an action, or refuses it and returns the newest token. Comparing and accepting are one step.
    pub(super) fn act(&self, token: u64) -> Result<(), u64> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = taken.iter().map(|action| action.token).max().unwrap_or_default();
        if self.guard == Guard::Tokens && token < newest {
            return Err(newest);
        }
        let at_ms = u64::try_from(self.made.elapsed().as_millis()).unwrap_or(u64::MAX);
        taken.push(Action { at_ms, token });
        Ok(())
    }

    /// The accepted actions so far.
    pub(super) fn taken(&self) -> Vec<Action> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
