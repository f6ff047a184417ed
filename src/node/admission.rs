//! Limits the backups and watches of a node: a backup writes a file of the whole state to the disk that the log needs,
//! and a watch costs work at every event.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Instant, millis};
use crate::limits;
use crate::mutex::Mutex;
use crate::service::{Counted, NotSent, Source, SourceCount};

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

/// The open watches of a node.
#[derive(Debug)]
pub(super) struct Watchers {
    of_source_max: usize,
    open: Arc<SourceCount>,
}

impl Watchers {
    pub(super) fn new(of_source_max: usize) -> Self {
        Self { of_source_max, open: Arc::default() }
    }

    /// Counts a new watch of a source, until the returned count is dropped. The error names the limit that is reached.
    pub(super) fn admit(&self, source: Source) -> Result<Counted, NotSent> {
        let whose = match &source {
            Source::Principal(name) => format!("principal {:?}", name.as_str()),
            Source::Connection(_) => "the connection".to_owned(),
            Source::InProcess => "the application".to_owned(),
            Source::Node(id) => format!("node {id}"),
        };
        self.open.add(source, |all, of_source| {
            let limit = if limits::WATCHERS_A_NODE_MAX <= all {
                format!("the node has {all} watches, its limit; end some of them, or use another node")
            } else if self.of_source_max <= of_source {
                let next = "end some of them, or raise limits.watchers_a_principal";
                format!("{whose} has {of_source} watches on this node, its limit; {next}")
            } else {
                return Ok(());
            };
            Err(NotSent::LimitReached { limit, pause_ms: limits::WATCH_PAUSE_MS })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Principal;

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

    fn refusal(admitted: Result<Counted, NotSent>) -> String {
        admitted.expect_err("refused").to_string()
    }

    /// A source has a limited number of watches, and so have all sources together. Other sources are not affected, and
    /// a watch that ends makes space. The error names the source, the limit and what to do.
    #[test]
    fn each_source_has_few_watches() {
        let watchers = Watchers::new(2);
        let ci = || Source::Principal(Principal::parse("ci").expect("legal"));
        let mut open = vec![watchers.admit(ci()).expect("the first"), watchers.admit(ci()).expect("the second")];
        assert_eq!(
            refusal(watchers.admit(ci())),
            "principal \"ci\" has 2 watches on this node, its limit; end some of them, or raise \
             limits.watchers_a_principal; try again in 1s"
        );
        open.push(watchers.admit(Source::Connection(1)).expect("another source"));
        open.remove(0);
        open.push(watchers.admit(ci()).expect("one has ended"));
        for connection in (2..).take(limits::WATCHERS_A_NODE_MAX - open.len()) {
            open.push(watchers.admit(Source::Connection(connection)).expect("below the limit of the node"));
        }
        assert!(refusal(watchers.admit(Source::Node(2))).starts_with("the node has 4096 watches, its limit; "));
    }
}
