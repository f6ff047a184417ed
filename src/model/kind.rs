//! What a lock is.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a name is in use as. New variants are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// A lock: exclusive and shared.
    Lock,
    /// A semaphore with a limit.
    Semaphore,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Lock => "lock",
            Kind::Semaphore => "semaphore",
        })
    }
}
