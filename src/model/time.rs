//! Log time: the cluster's own, replicated, monotonic time.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

impl WallTime {
    /// The last second of the year 9999.
    const END_MS: u64 = 253_402_300_799_000;

    /// Returns the time for display as a date. RFC 3339 has no year after 9999, so a later time becomes the last second
    /// of that year.
    #[must_use]
    pub fn to_date(self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.0.min(Self::END_MS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node may report any number, and a date of it is still shown.
    #[test]
    fn a_date_has_no_year_after_9999() {
        for (ms, date) in [
            (1_700_000_000_000, "2023-11-14T22:13:20Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59Z"),
            (u64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(humantime::format_rfc3339_seconds(WallTime(ms).to_date()).to_string(), date);
        }
    }
}
