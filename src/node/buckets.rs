//! Token buckets that hold the tokens of one second.
//!
//! A full bucket needs no entry, so only keys whose tokens were taken in the last second have one.

use std::collections::HashMap;
use std::hash::Hash;

use crate::clock::Instant;
use crate::limits::RATES_SWEPT_MIN;

/// Capacity of a bucket, in nanoseconds of its rate.
const BURST_NANOS: u64 = 1_000_000_000;

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

    /// Returns when the bucket of a key will be full if nothing more is taken from it.
    fn full_at(&self, key: &K, now: Instant) -> u64 {
        self.full_at.get(key).copied().unwrap_or_default().max(now.as_nanos())
    }

    /// Checks that the bucket of a key has a token, if it gets `a_second` tokens a second. The error is the time until
    /// then, in milliseconds.
    pub(super) fn check(&self, key: &K, a_second: u32, now: Instant) -> Result<(), u64> {
        let after_one = self.full_at(key, now) + nanos_of(1, a_second);
        let beyond = after_one.saturating_sub(now.as_nanos() + BURST_NANOS);
        if beyond == 0 { Ok(()) } else { Err(beyond.div_ceil(1_000_000)) }
    }

    /// Takes tokens out of the bucket of a key, even if it has too few. Then the bucket has none until the
    /// missing ones have come, but not for longer than a second, or than these tokens alone take.
    pub(super) fn take(&mut self, key: &K, tokens: usize, a_second: u32, now: Instant) {
        if 2 * self.swept.max(RATES_SWEPT_MIN) <= self.full_at.len() {
            self.full_at.retain(|_, full_at| now.as_nanos() < *full_at);
            self.swept = self.full_at.len();
        }
        let taken = nanos_of(tokens, a_second);
        let longest = now.as_nanos() + BURST_NANOS + taken.max(BURST_NANOS);
        let full_at = (self.full_at(key, now) + taken).min(longest);
        self.full_at.insert(key.clone(), full_at);
    }
}

/// Returns the time in which a bucket gets this number of tokens.
fn nanos_of(tokens: usize, a_second: u32) -> u64 {
    tokens as u64 * (BURST_NANOS / u64::from(a_second.max(1)))
}
