//! Decides when the next request begins: when the last one was answered (closed loop), or when it is due by the
//! requested rate (open loop).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::clock::{Clock, Instant, SystemClock};
use crate::limits;

/// The times of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    /// When the first request begins.
    pub(super) began: Instant,
    /// When the warm-up ends. Only later requests or answers count; each workload says which.
    pub(super) counts_from: Instant,
    /// When the run ends. No request begins later.
    pub(super) end: Instant,
}

impl Span {
    /// Creates a span that begins now.
    pub(super) fn from_now(warm_up: Duration, length: Duration) -> Self {
        let began = SystemClock::new().now();
        let counts_from = began.after(warm_up);
        Self { began, counts_from, end: counts_from.after(length) }
    }

    /// The length of the time in which requests count.
    pub(super) fn length(&self) -> Duration {
        self.end.since(self.counts_from)
    }
}

/// Assigns turns to idle clients.
#[derive(Debug)]
pub(super) struct Turns {
    span: Span,
    pace: Option<Pace>,
}

/// The turns of an open loop. The number of a turn alone determines when it is due.
#[derive(Debug)]
struct Pace {
    rate: u32,
    /// The number of the next turn that a client takes.
    next: AtomicU64,
    /// Turns that are due and not taken.
    ready: Semaphore,
}

impl Turns {
    /// Creates turns with a rate for all clients together, or without a rate.
    pub(super) fn new(span: Span, rate: Option<u32>) -> Self {
        let pace = rate.map(|rate| Pace { rate, next: AtomicU64::new(0), ready: Semaphore::new(0) });
        Self { span, pace }
    }

    /// Waits for the next turn and returns the time at which it was due. Returns `None` at the end of the run.
    pub(super) async fn next(&self) -> Option<Instant> {
        let due = match &self.pace {
            None => SystemClock::new().now(),
            Some(pace) => {
                pace.ready.acquire().await.ok()?.forget();
                self.span.began.after(due(pace.next.fetch_add(1, Ordering::Relaxed), pace.rate))
            }
        };
        (SystemClock::new().now() < self.span.end).then_some(due)
    }

    /// Releases turns when they are due, until the end. Sleeps on a thread, because the timers of the runtime have a
    /// resolution of a millisecond. Returns how many turns were due and never taken.
    pub(super) async fn keep_time(self: Arc<Self>) -> u64 {
        tokio::task::spawn_blocking(move || self.release_due()).await.unwrap_or_default()
    }

    fn release_due(&self) -> u64 {
        let Some(pace) = &self.pace else { return 0 };
        let (clock, mut gone) = (SystemClock::new(), 0);
        loop {
            let now = clock.now();
            if self.span.end <= now {
                break;
            }
            let all = due_by(now.since(self.span.began), pace.rate);
            // The number fits into a semaphore, because the rate and the length of a run are bounded.
            pace.ready.add_permits(usize::try_from(all - gone).unwrap_or(0));
            gone = all;
            let wait = self.span.began.after(due(gone, pace.rate)).since(clock.now());
            std::thread::sleep(wait.max(Duration::from_micros(limits::BENCH_PACE_US_MIN)));
        }
        pace.ready.close();
        gone.saturating_sub(pace.next.load(Ordering::Relaxed))
    }
}

/// When the turn with this number is due, counted from the beginning.
fn due(number: u64, rate: u32) -> Duration {
    let nanos = u128::from(number) * 1_000_000_000 / u128::from(rate);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Number of turns that are due after a time. The first one is due at once.
fn due_by(passed: Duration, rate: u32) -> u64 {
    u64::try_from(passed.as_nanos() * u128::from(rate) / 1_000_000_000 + 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns are due at equal distances from the beginning, and all due turns are released.
    #[test]
    fn turns_are_due_by_their_number() {
        assert_eq!(due(0, 3), Duration::ZERO);
        assert_eq!(due(6, 3), Duration::from_secs(2));
        for passed in [0, 1, 333, 334, 1_000, 59_999] {
            let passed = Duration::from_millis(passed);
            let gone = due_by(passed, 3);
            assert!(due(gone - 1, 3) <= passed, "not before it is due");
            assert!(passed <= due(gone, 3), "not later");
        }
    }

    /// Slow clients do not delay turns: each turn keeps its due time, and turns that no client took are counted.
    #[tokio::test]
    async fn an_open_loop_does_not_wait_for_the_slow() {
        let span = Span::from_now(Duration::ZERO, Duration::from_millis(500));
        let turns = Arc::new(Turns::new(span, Some(100)));
        let timer = tokio::spawn(Arc::clone(&turns).keep_time());
        let first = turns.next().await.expect("there is time");
        let second = turns.next().await.expect("there is time");
        assert_eq!(second.since(first), Duration::from_millis(10));
        let left = timer.await.expect("it ends");
        assert_eq!(left, 48, "of fifty that were due");
        assert!(turns.next().await.is_none(), "nothing is begun after the end");
    }
}
