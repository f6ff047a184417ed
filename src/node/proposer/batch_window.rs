//! How long the proposer lets commands gather before the next entry.
//!
//! An entry costs several times as much as a command in it: a sync on every node, and the messages between them. BatchReplies
//! who were answered together come back together, a moment later; an entry that leaves before them takes along only those
//! who came while the last one was on its way, and makes the others wait for the one after. So after an entry that served
//! many the next one waits for three in four of all callers that there seem to be, those just answered and those who wait
//! already, but not longer than the last one took: the last of them may come late or not at all, and while the entry is
//! on its way they are read without anybody waiting for them. A caller who is alone, or nearly so, never waits for others.

use std::time::Duration;

use tokio::time::Instant;

use crate::limits::{GATHER_COMMANDS_MIN, GATHER_MS_MAX};

/// What the next entry waits for.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchWindow {
    wanted: usize,
    until: Instant,
}

impl BatchWindow {
    /// Nothing: the first that comes is proposed.
    pub(super) fn none(now: Instant) -> Self {
        Self { wanted: 1, until: now }
    }

    /// After an entry which served so many and took so long, while so many wait already.
    pub(super) fn after(served: usize, waiting: usize, took: Duration, now: Instant) -> Self {
        if served < GATHER_COMMANDS_MIN {
            return Self::none(now);
        }
        Self { wanted: (served + waiting) * 3 / 4, until: now + took.min(Duration::from_millis(GATHER_MS_MAX)) }
    }

    /// How many must wait, before the time is over, for the next entry to leave.
    pub(super) fn wanted(&self, now: Instant) -> usize {
        if now < self.until { self.wanted } else { 1 }
    }

    /// How much longer it lasts.
    pub(super) fn left(&self, now: Instant) -> Duration {
        self.until.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After many the next entry waits for most of those who asked and those who were answered, as long as the last one took
    /// and never longer than the bound; after a few it waits for nobody.
    #[test]
    fn many_are_waited_for_and_few_are_not() {
        let (now, short) = (Instant::now(), Duration::from_micros(300));
        let few = BatchWindow::after(GATHER_COMMANDS_MIN - 1, 50, short, now);
        assert_eq!((few.wanted(now), few.left(now)), (1, Duration::ZERO));
        let many = BatchWindow::after(40, 24, short, now);
        assert_eq!((many.wanted(now), many.left(now)), (48, short));
        assert_eq!(many.wanted(now + short), 1);
        let slow = BatchWindow::after(50, 0, Duration::from_secs(1), now);
        assert_eq!(slow.left(now), Duration::from_millis(GATHER_MS_MAX));
    }
}
