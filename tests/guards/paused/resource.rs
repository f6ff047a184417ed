//! What the two holders work on: it takes actions, in the order in which they reach it.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// One action that the resource took: when, in milliseconds since it was made, and under which token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Action {
    pub(crate) at_ms: u64,
    pub(crate) token: u64,
}

/// Whether it looks at the tokens of those who act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guard {
    Open,
    Tokens,
}

/// See the module.
pub(super) struct Resource {
    guard: Guard,
    made: Instant,
    taken: Mutex<Vec<Action>>,
}

impl Resource {
    pub(super) fn new(guard: Guard) -> Self {
        Self { guard, made: Instant::now(), taken: Mutex::default() }
    }

    /// Takes an action, or refuses it and tells the newest token. Comparing and taking are one step.
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

    /// What it has taken so far.
    pub(super) fn taken(&self) -> Vec<Action> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
