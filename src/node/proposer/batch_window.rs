//! How long the proposer waits for more commands before the next entry.
//!
//! An entry costs several times as much as a command in it: an fsync on every node, and the messages between nodes.
//! Callers that are answered together call again together, a moment later. An entry that leaves before their calls
//! contains only the calls that arrived while the last entry was in flight, and the others have to wait for the entry
//! after it. So after an entry with many callers, the next entry waits for three quarters of all expected calls: those
//! just answered, and those that wait already. It waits no longer than the last entry took: the last calls may be late
//! or never come, and they can arrive while the entry is in flight. A caller that is alone, or almost alone, never
//! waits for others.

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
    /// Waits for nothing: the first command is proposed at once.
    pub(super) fn none(now: Instant) -> Self {
        Self { wanted: 1, until: now }
    }

    /// Returns the window after an entry that served `served` callers and took `took`, while `waiting` calls wait
    /// already.
    pub(super) fn after(served: usize, waiting: usize, took: Duration, now: Instant) -> Self {
        if served < GATHER_COMMANDS_MIN {
            return Self::none(now);
        }
        Self { wanted: (served + waiting) * 3 / 4, until: now + took.min(Duration::from_millis(GATHER_MS_MAX)) }
    }

    /// Returns how many calls must wait for the next entry to leave before the window ends.
    pub(super) fn wanted(&self, now: Instant) -> usize {
        if now < self.until { self.wanted } else { 1 }
    }

    /// Returns how much longer the window lasts.
    pub(super) fn left(&self, now: Instant) -> Duration {
        self.until.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After an entry with many callers, the next one waits for most of them and of the waiting calls, as long as the
    /// last entry took and never longer than the limit. After an entry with few callers it does not wait.
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
