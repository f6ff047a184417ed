//! Limits the wrong handles of each source, because weak handles could be guessed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::buckets::Buckets;
use crate::clock::Instant;
use crate::limits::WRONG_HANDLES_A_SECOND;
use crate::service::{NotSent, Source};

/// The wrong handles of all sources in the last second.
#[derive(Debug, Default)]
pub(super) struct WrongHandles {
    /// Whether any source has shown a wrong handle since the node started.
    any: AtomicBool,
    buckets: Mutex<Buckets<Source>>,
}

impl WrongHandles {
    /// Refuses a source that has shown too many wrong handles, before its next handle is compared. The error says how
    /// long to wait.
    pub(super) fn check(&self, source: &Source, now: Instant) -> Result<(), NotSent> {
        if !self.any.load(Ordering::Relaxed) {
            return Ok(());
        }
        let buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let checked = buckets.check(source, WRONG_HANDLES_A_SECOND, now);
        checked.map_err(|pause_ms| {
            let limit = format!("a caller may show {WRONG_HANDLES_A_SECOND} wrong handles a second; check its handles");
            NotSent::LimitReached { limit, pause_ms }
        })
    }

    pub(super) fn count(&self, source: &Source, now: Instant) {
        self.any.store(true, Ordering::Relaxed);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        buckets.take(source, 1, WRONG_HANDLES_A_SECOND, now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A source that shows wrong handles is refused with a pause until the second is over; other sources are not.
    #[test]
    fn each_source_has_few_wrong_handles_a_second() {
        let (wrong, one, other) = (WrongHandles::default(), &Source::Connection(1), &Source::Connection(2));
        let at = |ms| Instant::from_nanos(0).after(Duration::from_millis(ms));
        for _ in 0..WRONG_HANDLES_A_SECOND {
            wrong.check(one, at(0)).expect("few were wrong");
            wrong.count(one, at(0));
        }
        let pause_ms = 1_000 / u64::from(WRONG_HANDLES_A_SECOND);
        let limit = "a caller may show 10 wrong handles a second; check its handles".to_owned();
        assert_eq!(wrong.check(one, at(0)), Err(NotSent::LimitReached { limit, pause_ms }));
        wrong.check(other, at(0)).expect("it has shown none");
        wrong.check(one, at(pause_ms)).expect("one more");
        wrong.count(one, at(pause_ms));
        assert!(wrong.check(one, at(pause_ms)).is_err());
    }
}
