//! What a node does beside answering: it watches its views, its sizes, and whether its clock loses too much time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant as TokioInstant;

use super::Node;
use crate::clock::Instant;
use crate::limits;

/// Wakes parked calls whenever leadership moves: they are resolved elsewhere.
pub(super) async fn follow_views(node: Node) {
    let mut views = node.core.consensus.watch();
    let mut stop = node.core.stop.subscribe();
    let mut led = None;
    let mut until_named: Option<TokioInstant> = None;
    loop {
        let view = views.borrow_and_update().clone();
        let leads = node.leads();
        node.core.shared.metrics.term.set(view.term as f64);
        node.core.shared.metrics.leader.set(f64::from(u8::from(leads)));
        let now = TokioInstant::now();
        if view.leader.is_none() && led.is_some_and(|(led, _)| led) && node.core.lanes.is_paused() {
            // Handed over: whoever leads next has a name in a moment, and clients go straight there.
            until_named.get_or_insert(now + node.core.election_max);
        } else {
            until_named = None;
        }
        if led != Some((leads, view.leader)) && until_named.is_none_or(|until| until <= now) {
            led = Some((leads, view.leader));
            node.core.shared.parked.wake_all();
            // A leader that nobody follows any more sends its clients away.
            let leader = view.leader.filter(|leader| *leader != node.core.id || leads || !view.own_term_applied);
            let hint = node.core.hint(leader);
            if !leads {
                node.core.lanes.turn_away(hint.clone());
            }
            node.core.leader.send_replace(hint);
        }
        let endpoints: Vec<_> = node.core.members().into_values().map(|member| member.client).collect();
        node.core.endpoints.send_if_modified(|known| {
            let changed = *known != endpoints;
            *known = endpoints;
            changed
        });
        if let Some(why) = view.fatal {
            node.core.shared.fatal.send_replace(Some(why));
        }
        tokio::select! {
            changed = views.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(node.core.election_max) => {}
            stopped = stop.wait_for(|stop| *stop) => { stopped.ok(); return }
        }
    }
}

/// Publishes sizes once a second, stops a node whose timing or build does not fit its cluster, and hands leadership
/// over when too much real time was not counted.
pub(super) async fn keep_watch(node: Node) {
    let core = Arc::clone(&node.core);
    let mut stop = core.stop.subscribe();
    let mut hand_overs = HandOvers::default();
    while !wait_or_stop(&mut stop).await {
        if let Some(why) = unfit(&node) {
            core.shared.fatal.send_replace(Some(why));
            return;
        }
        let (totals, skipped) = core.consensus.machine(|machine| (machine.totals(), machine.deadlock_checks_skipped()));
        let metrics = &core.shared.metrics;
        metrics.sizes(totals);
        metrics.deadlock_checks_skipped.absolute(skipped);
        metrics.tasks.set(node.tasks.alive() as f64);
        metrics.wal_bytes.set(core.consensus.log_bytes() as f64);
        metrics.snapshot_bytes.set(core.consensus.snapshot_bytes().unwrap_or_default() as f64);
        metrics.applied.set(core.consensus.watch().borrow().applied.unwrap_or_default() as f64);
        let now = core.clock.now();
        let lost = core.lanes.uncounted(now);
        metrics.log_time_lag_seconds.set(lost.as_secs_f64());
        if node.leads() && hand_overs.due(now, lost) {
            let ms = u64::try_from(lost.as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(node = core.id, lost_ms = ms, "too much time was not counted within a minute: handing over");
            node.hand_over().await;
        }
    }
}

/// When this node last handed leadership over because its clock had lost too much time.
#[derive(Debug, Default)]
struct HandOvers(Option<Instant>);

impl HandOvers {
    /// Whether it has lost too much again, and its last time is long enough ago. If so, it is this time that counts from now on.
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

/// True when the node closes, false after a second.
async fn wait_or_stop(stop: &mut watch::Receiver<bool>) -> bool {
    tokio::select! {
        stopped = stop.wait_for(|stop| *stop) => { stopped.ok(); true }
        () = tokio::time::sleep(Duration::from_millis(limits::WATCH_MS)) => false,
    }
}

/// Why this node must not run in its cluster with its settings and build.
pub(super) fn unfit(node: &Node) -> Option<String> {
    timing_differs(node).or_else(|| node.core.build_too_old())
}

/// A node refuses to run with another timing than the one that its cluster was founded with.
fn timing_differs(node: &Node) -> Option<String> {
    let founded = node.core.consensus.machine(|machine| machine.settings())?;
    let own = node.core.settings;
    (founded.timing_ms != own.timing_ms).then(|| {
        let [heartbeat, min, max] = founded.timing_ms;
        format!(
            "this cluster was founded with the timing {heartbeat}/{min}/{max} ms, and node {}'s config says {:?}: \
             set [timing] to the cluster's",
            node.core.id, own.timing_ms
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A leader that loses more than two seconds hands over, and not again within ten minutes, whatever it loses.
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
