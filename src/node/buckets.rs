//! Token buckets that hold the tokens of one second.
//!
//! A full bucket needs no entry, so only keys whose tokens were taken in the last second have one.

use std::collections::HashMap;
use std::hash::Hash;

use crate::clock::Instant;
use crate::limits::RATES_SWEPT_MIN;

/// Capacity of a bucket, in nanoseconds of its rate.
const BURST_NANOS: u64 = 1_000_000_000;

/// One bucket for each key.
#[derive(Debug)]
pub(super) struct Buckets<K> {
    /// Time of the node's clock, in nanoseconds, when each bucket will be full again.
    full_at: HashMap<K, u64>,
    /// Number of buckets after the last removal of full ones.
    swept: usize,
}

impl<K> Default for Buckets<K> {
    fn default() -> Self {
        Self { full_at: HashMap::new(), swept: 0 }
    }
}

impl<K: Eq + Hash + Clone> Buckets<K> {
    /// Returns the number of buckets that may have too few tokens.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.full_at.len()
    }

    /// Returns when the bucket of a key will be full after one more token was taken from it.
    fn full_after_one(&self, key: &K, a_second: u32, now: Instant) -> u64 {
        let full_at = self.full_at.get(key).copied().unwrap_or_default();
        full_at.max(now.as_nanos()) + BURST_NANOS / u64::from(a_second.max(1))
    }

    /// Checks that the bucket of a key has a token, if it gets `a_second` tokens a second. The error is the time until
    /// then, in milliseconds.
    pub(super) fn check(&self, key: &K, a_second: u32, now: Instant) -> Result<(), u64> {
        let beyond = self.full_after_one(key, a_second, now).saturating_sub(now.as_nanos() + BURST_NANOS);
        if beyond == 0 { Ok(()) } else { Err(beyond.div_ceil(1_000_000)) }
    }

    /// Takes a token out of the bucket of a key, even if it has none.
    pub(super) fn take(&mut self, key: &K, a_second: u32, now: Instant) {
        if 2 * self.swept.max(RATES_SWEPT_MIN) <= self.full_at.len() {
            self.full_at.retain(|_, full_at| now.as_nanos() < *full_at);
            self.swept = self.full_at.len();
        }
        let full_at = self.full_after_one(key, a_second, now);
        self.full_at.insert(key.clone(), full_at);
    }
}
