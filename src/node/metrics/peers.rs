//! What the leader measures of the other nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use metrics::Gauge;

use crate::limits;
use crate::mutex::Mutex;
use crate::raft::View;
use crate::telemetry::Series;

/// The metrics of the other nodes, by their ids. All are 0 while this node does not lead.
pub(in crate::node) struct Peers {
    series: Series,
    by_node: Mutex<BTreeMap<u64, PeerSeries>>,
}

#[derive(Clone)]
struct PeerSeries {
    lag: Gauge,
    rtt: Gauge,
}

impl Peers {
    pub(super) fn new(series: Series) -> Self {
        Self { series, by_node: Mutex::default() }
    }

    /// Returns the metrics of another node; `None` if too many others were members since this node started.
    fn series_of(&self, node: u64) -> Option<PeerSeries> {
        let mut by_node = self.by_node.lock();
        if limits::METRICS_PEERS_MAX <= by_node.len() && !by_node.contains_key(&node) {
            return None;
        }
        let new = || {
            let peer = node.to_string();
            let gauge = |name, help| self.series.gauge(name, help, &[("peer", peer.as_str())]);
            PeerSeries {
                lag: gauge(
                    "lockkeeper_raft_follower_lag_entries",
                    "Log entries that a follower is not known to have; measured by the leader only",
                ),
                rtt: gauge(
                    "lockkeeper_raft_peer_rtt_seconds",
                    "Time in which a node answered the leader's last question, in seconds; measured by the leader only",
                ),
            }
        };
        Some(by_node.entry(node).or_insert_with(new).clone())
    }

    /// Records how far the other members are behind the leader `own`. `is_leader` says whether this node leads.
    pub(in crate::node) fn update(&self, own: u64, view: &View, is_leader: bool) {
        for (node, member) in view.members.iter().filter(|(node, _)| **node != own) {
            let Some(series) = self.series_of(*node) else { continue };
            let lag = view.last.unwrap_or_default().saturating_sub(member.matched.unwrap_or_default());
            series.lag.set(if is_leader { lag as f64 } else { 0.0 });
            if !is_leader {
                series.rtt.set(0.0);
            }
        }
        // A node that has left lags no more.
        let by_node = self.by_node.lock();
        for (_, left) in by_node.iter().filter(|(node, _)| !view.members.contains_key(node)) {
            left.lag.set(0.0);
            left.rtt.set(0.0);
        }
    }

    /// Records how long another node took to answer.
    pub(in crate::node) fn answered(&self, node: u64, took: Duration) {
        if let Some(series) = self.series_of(node) {
            series.rtt.set(took.as_secs_f64());
        }
    }
}
