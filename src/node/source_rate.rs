//! Limits how often each source may do something that most sources do seldom or never.

use std::sync::atomic::{AtomicBool, Ordering};

use super::buckets::Buckets;
use crate::clock::Instant;
use crate::limits::{AUDITED_ACTS_A_SECOND, AUDITED_ASKS_A_SECOND, WRONG_HANDLES_A_SECOND};
use crate::mutex::Mutex;
use crate::service::{NotSent, Source};

/// What all sources did in the last second, of one kind.
#[derive(Debug)]
pub(super) struct SourceRate {
    a_second: u32,
    /// The limit, as the error names it.
    limit: String,
    /// Whether any source has done it since the node started.
    any: AtomicBool,
    buckets: Mutex<Buckets<Source>>,
}

impl SourceRate {
    /// Limits wrong handles, because weak handles could be guessed.
    pub(super) fn of_wrong_handles() -> Self {
        let a_second = WRONG_HANDLES_A_SECOND;
        Self::new(a_second, format!("a caller may show {a_second} wrong handles a second; check its handles"))
    }

    /// Limits audited acts: the log keeps only its newest files, so a flood would remove the older acts.
    pub(super) fn of_acts() -> Self {
        let a_second = AUDITED_ACTS_A_SECOND;
        Self::new(a_second, format!("a caller may send {a_second} acts a second for the audit log"))
    }

    /// Limits requests to release a lock, apart from the other acts: they need less than the right of an operator, and
    /// must leave its acts their rate.
    pub(super) fn of_asks() -> Self {
        let a_second = AUDITED_ASKS_A_SECOND;
        Self::new(a_second, format!("a caller may send {a_second} asks a second for the audit log"))
    }

    fn new(a_second: u32, limit: String) -> Self {
        Self { a_second, limit, any: AtomicBool::default(), buckets: Mutex::default() }
    }

    /// Refuses a source that has done it too often in the last second. The error says how long to wait.
    pub(super) fn check(&self, source: &Source, now: Instant) -> Result<(), NotSent> {
        if !self.any.load(Ordering::Relaxed) {
            return Ok(());
        }
        let checked = self.buckets.lock().check(source, self.a_second, now);
        checked.map_err(|pause_ms| self.reached(pause_ms))
    }

    fn reached(&self, pause_ms: u64) -> NotSent {
        NotSent::LimitReached { limit: self.limit.clone(), pause_ms }
    }

    /// Counts something for its source, or refuses a source that has done it too often in the last second. Calls at the
    /// same moment never exceed the limit together.
    pub(super) fn take(&self, source: &Source, now: Instant) -> Result<(), NotSent> {
        let mut buckets = self.buckets.lock();
        buckets.check(source, self.a_second, now).map_err(|pause_ms| self.reached(pause_ms))?;
        buckets.take(source, 1, self.a_second, now);
        Ok(())
    }

    pub(super) fn count(&self, source: &Source, now: Instant) {
        self.any.store(true, Ordering::Relaxed);
        self.buckets.lock().take(source, 1, self.a_second, now);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;
    use std::time::Duration;

    use super::*;

    const THREADS: usize = 4;

    /// A source that shows wrong handles is refused with a pause until the second is over; other sources are not.
    #[test]
    fn each_source_has_few_wrong_handles_a_second() {
        let (wrong, one, other) = (SourceRate::of_wrong_handles(), &Source::Connection(1), &Source::Connection(2));
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

    /// Of many acts of one caller at the same moment, exactly those within the limit pass.
    #[test]
    fn acts_of_one_moment_are_within_the_limit() {
        let (source, now) = (&Source::Connection(1), Instant::from_nanos(0));
        for _ in 0..100 {
            let (acts, start) = (&SourceRate::of_acts(), &Barrier::new(THREADS));
            let passed: usize = thread::scope(|scope| {
                let work = || {
                    start.wait();
                    (0..AUDITED_ACTS_A_SECOND).filter(|_| acts.take(source, now).is_ok()).count()
                };
                let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
                threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
            });
            assert_eq!(passed, AUDITED_ACTS_A_SECOND as usize);
        }
    }
}
