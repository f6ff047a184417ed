//! The watchdog of a node: stops a node that does not fit its cluster, and moves leadership from a node whose clock
//! lost too much time.

use std::sync::Arc;
use std::time::Duration;

use super::Node;
use crate::clock::{Instant, millis};
use crate::config::Profile;
use crate::limits;

/// Stops a node whose timing or build does not fit its cluster, and hands leadership over when too much real time was
/// not counted. Looks once a second.
pub(super) async fn run(node: Node) {
    let core = Arc::clone(&node.core);
    let pause = Duration::from_millis(limits::WATCH_MS);
    let mut hand_overs = HandOvers::default();
    while tokio::time::timeout(pause, core.stopped()).await.is_err() {
        if let Some(why) = unfit(&node) {
            core.shared.fatal.send_replace(Some(why));
            return;
        }
        let now = core.clock.now();
        let lost = core.queue.uncounted(now);
        if node.leads() && hand_overs.due(now, lost) {
            tracing::warn!(
                node = core.id,
                lost_ms = millis(lost),
                "too much time was not counted within a minute: handing over"
            );
            node.hand_over().await;
        }
    }
}

/// The last time that this node transferred leadership because its clock had lost too much time.
#[derive(Debug, Default)]
struct HandOvers(Option<Instant>);

impl HandOvers {
    /// Whether the clock has lost too much time again, long enough after the last transfer. If so, records `now` as the
    /// last transfer.
    fn due(&mut self, now: Instant, lost: Duration) -> bool {
        let pause = Duration::from_millis(limits::UNCOUNTED_HANDOVER_MS_MIN);
        let rested = self.0.is_none_or(|at| pause < now.since(at));
        let due = rested && Duration::from_millis(limits::UNCOUNTED_MS_MAX) < lost;
        if due {
            self.0 = Some(now);
        }
        due
    }
}

/// Returns why this node must not run in its cluster with its settings and build.
pub(super) fn unfit(node: &Node) -> Option<String> {
    timing_differs(node).or_else(|| node.core.build_too_old())
}

/// Returns how this node's timing differs from the timing with which its cluster was founded: the node must not run
/// then.
fn timing_differs(node: &Node) -> Option<String> {
    let founded = node.core.consensus.machine(|machine| machine.settings())?;
    let own = node.core.settings;
    (founded.timing_ms != own.timing_ms).then(|| {
        let words = |[heartbeat, min, max]: [u64; 3]| format!("{heartbeat}/{min}/{max} ms");
        let profile = [Profile::Lan, Profile::Fast, Profile::Wan].into_iter().find(|profile| {
            let timing = profile.timing();
            [timing.heartbeat_ms, timing.election_ms_min, timing.election_ms_max] == founded.timing_ms
        });
        let named = profile.map_or(String::new(), |profile| format!(", which is the profile {}", profile.name()));
        format!(
            "this cluster was founded with the timing {}, and node {} has {}: \
             set [timing], or --profile of `dev`, to the cluster's{named}",
            words(founded.timing_ms),
            node.core.id,
            words(own.timing_ms),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A leader that loses more than two seconds transfers leadership, and not again within ten minutes, however much
    /// it loses.
    #[test]
    fn leadership_is_handed_over_for_lost_time_once_in_ten_minutes() {
        let mut hand_overs = HandOvers::default();
        let minute = |minutes: u64| Instant::from_nanos(minutes * 60_000_000_000);
        let (most, more) = (Duration::from_millis(2_000), Duration::from_millis(2_001));
        assert!(!hand_overs.due(minute(0), most));
        assert!(hand_overs.due(minute(1), more));
        assert!(!hand_overs.due(minute(2), more * 10));
        assert!(!hand_overs.due(minute(11), more), "ten minutes are not over");
        assert!(!hand_overs.due(minute(12), most));
        assert!(hand_overs.due(minute(12), more));
        assert!(!hand_overs.due(minute(13), more));
    }
}
