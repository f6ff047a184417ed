//! Limits the backups of a node: each of them writes a file of the whole state to the disk that the log needs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Instant, millis};
use crate::limits;
use crate::mutex::Mutex;
use crate::service::NotSent;

/// The backups of a node that is making one, or made some in the last minute.
#[derive(Debug, Default)]
pub(super) struct BackupLimit(Mutex<Recent>);

#[derive(Debug, Default)]
struct Recent {
    in_progress: bool,
    /// When each complete backup of the last minute began, oldest first.
    complete: VecDeque<Instant>,
}

/// A backup in progress. Dropping it permits the next one.
#[derive(Debug)]
pub(super) struct BackupInProgress {
    limit: Arc<BackupLimit>,
    begun: Instant,
}

impl BackupLimit {
    /// Permits a backup, unless another one is in progress, or the last minute had too many. The error says which, and
    /// how long to wait.
    pub(super) fn begin(self: &Arc<Self>, now: Instant) -> Result<BackupInProgress, NotSent> {
        let refused = |why: String, pause_ms| {
            let limit = format!("{why}; name another node with --endpoints");
            NotSent::LimitReached { limit, pause_ms }
        };
        let (minute, most) = (Duration::from_millis(limits::BACKUPS_APART_MS), limits::BACKUPS_A_MINUTE_MAX);
        let mut recent = self.0.lock();
        if recent.in_progress {
            let why = "the node is making another backup, and makes one at a time".to_owned();
            return Err(refused(why, limits::BACKUP_PAUSE_MS));
        }
        recent.complete.retain(|complete| now.since(*complete) < minute);
        if let Some(oldest) = recent.complete.front().filter(|_| most <= recent.complete.len()) {
            let pause_ms = millis(minute.saturating_sub(now.since(*oldest))).max(1);
            return Err(refused(format!("the node has made {most} backups in the last minute, its limit"), pause_ms));
        }
        recent.in_progress = true;
        Ok(BackupInProgress { limit: Arc::clone(self), begun: now })
    }
}

impl BackupInProgress {
    /// Counts the backup, because all of it was sent.
    pub(super) fn complete(self) {
        self.limit.0.lock().complete.push_back(self.begun);
    }
}

impl Drop for BackupInProgress {
    fn drop(&mut self) {
        self.limit.0.lock().in_progress = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There is one backup at a time, and a few in a minute. A backup that was not complete does not count.
    #[test]
    fn backups_are_few() {
        let limit = Arc::new(BackupLimit::default());
        let at = |seconds| Instant::from_nanos(0).after(Duration::from_secs(seconds));
        let refusal = |seconds| limit.begin(at(seconds)).expect_err("refused").to_string();
        let first = limit.begin(at(0)).expect("the first");
        let next = "name another node with --endpoints";
        let one = format!("the node is making another backup, and makes one at a time; {next}; try again in 1s");
        assert_eq!(refusal(0), one);
        drop(first);
        for seconds in [1, 21, 31] {
            limit.begin(at(seconds)).expect("the first ones of the minute").complete();
        }
        let few = format!("the node has made 3 backups in the last minute, its limit; {next}; try again in 20s");
        assert_eq!(refusal(41), few);
        limit.begin(at(61)).expect("a minute after the oldest").complete();
        assert!(refusal(61).ends_with("try again in 20s"), "{}", refusal(61));
    }
}
