//! What the leader measures of the other nodes.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use metrics::Gauge;

use crate::limits;
use crate::raft::View;
use crate::telemetry::Series;

/// The metrics of the other nodes, by their ids. All are 0 while this node does not lead.
pub(in crate::node) struct Peers {
    series: Series,
    of: Mutex<BTreeMap<u64, PeerSeries>>,
}

#[derive(Clone)]
struct PeerSeries {
    lag: Gauge,
    rtt: Gauge,
}

impl Peers {
    pub(super) fn new(series: Series) -> Self {
        Self { series, of: Mutex::default() }
    }

    /// Returns the metrics of another node; `None` if too many others were members since this node started.
    fn of(&self, node: u64) -> Option<PeerSeries> {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if limits::METRICS_PEERS_MAX <= of.len() && !of.contains_key(&node) {
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
        Some(of.entry(node).or_insert_with(new).clone())
    }

    /// Records how far the other members are behind the leader `own`. `leads` says whether this is the leader's view.
    pub(in crate::node) fn update(&self, own: u64, view: &View, leads: bool) {
        for (node, member) in view.members.iter().filter(|(node, _)| **node != own) {
            let Some(series) = self.of(*node) else { continue };
            let lag = view.last.unwrap_or_default().saturating_sub(member.matched.unwrap_or_default());
            series.lag.set(if leads { lag as f64 } else { 0.0 });
            if !leads {
                series.rtt.set(0.0);
            }
        }
        // A node that has left lags no more.
        let of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, left) in of.iter().filter(|(node, _)| !view.members.contains_key(node)) {
            left.lag.set(0.0);
            left.rtt.set(0.0);
        }
    }

    /// Records how long another node took to answer.
    pub(in crate::node) fn answered(&self, node: u64, took: Duration) {
        if let Some(series) = self.of(node) {
            series.rtt.set(took.as_secs_f64());
        }
    }
}
