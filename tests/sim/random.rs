//! The random choices of a run, which follow from its seed.

use std::time::Duration;

/// The SplitMix64 generator.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A random number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Shuffles the slice.
    #[allow(dead_code, reason = "nothing is shuffled in the simulation")]
    pub(crate) fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            things.swap(last, self.below(last as u64 + 1) as usize);
        }
    }

    /// A random duration from `low` up to but not including `high`, in milliseconds.
    pub(crate) fn ms(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_millis(low + self.below(high - low))
    }

    /// A separate generator for a part of the run, so that its draws do not affect other parts.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.next())
    }
}
