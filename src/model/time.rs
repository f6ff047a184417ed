//! Log time: the cluster's own, replicated, monotonic time.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A point of log time, in milliseconds since the cluster began. It is independent of every wall clock.
///
/// - It never goes back, and stands still while nothing can be committed.
/// - A hold or session with deadline `d` lives while `now <= d` and has ended when `now > d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct LogTime(pub u64);

impl LogTime {
    /// This point plus `ms` milliseconds, at most the largest point of time.
    #[must_use]
    pub fn after_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this point; 0 if `earlier` is later.
    #[must_use]
    pub fn ms_since(self, earlier: LogTime) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The first stamp at which an item with this deadline has ended.
    #[must_use]
    pub fn first_past(self) -> Self {
        self.after_ms(1)
    }
}

impl fmt::Display for LogTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

/// The leader's wall clock at a stamp, in milliseconds since 1970. For display only; no decision depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct WallTime(pub u64);
