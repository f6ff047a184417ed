//! Limits of a node's metrics: how many series there are, and how often they are updated.

use super::MEMBERS_MAX;

/// Most series of one node's metrics, as a port shows them.
pub const METRICS_SERIES_MAX: usize = 3_000;
/// Namespaces with their own series; all others share the series `other`.
pub const METRICS_NAMESPACES_MAX: usize = 32;
/// Classes of locks with their own series; all other locks share the series `other`.
pub const METRICS_CLASSES_MAX: usize = 16;
/// Other nodes with their own series. Nodes that have left count until this node restarts.
pub const METRICS_PEERS_MAX: usize = 14;
/// Series of `lockkeeper_http_requests_total`.
pub const METRICS_HTTP_REQUESTS_MAX: usize = 300;
/// Series of `lockkeeper_grpc_requests_total`.
pub const METRICS_GRPC_REQUESTS_MAX: usize = 300;
/// Interval at which recorded metrics are merged.
pub const METRICS_UPKEEP_MS: u64 = 5_000;
/// Interval at which a node measures what it must search for: its longest waits, and the sizes of its files.
pub const METRICS_SEARCH_MS: u64 = 15_000;
/// Interval at which a node keeps a sample of what it counts by the hour.
pub const METRICS_SAMPLE_MS: u64 = 60_000;
/// Time that the metrics of the last hour cover at least.
pub const METRICS_HOUR_MS: u64 = 3_600_000;
/// Changes of the leader that a node remembers, to count those of the last hour.
pub const METRICS_LEADER_CHANGES_MAX: usize = 1_000;
/// Namespaces or locks that one search of the state looks at. No entry is applied meanwhile.
pub const METRICS_SEARCH_ROWS: usize = 1_000;
/// Upper bounds of the histograms of times on a node, in seconds.
pub const SECONDS_BUCKETS: &[f64] = &[
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    600.0,
];
/// Upper bounds of the histograms of waits and holds, in seconds. Each class of locks has them.
pub const LOG_SECONDS_BUCKETS: &[f64] =
    &[0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0];
/// Upper bounds of the histograms of counts.
pub const COUNT_BUCKETS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0];

const _: () = assert!(MEMBERS_MAX <= METRICS_PEERS_MAX + 1);
