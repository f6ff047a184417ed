//! Options of a node that depend on the application or test that opens it.

use std::fmt;
use std::sync::Arc;

use crate::clock::{Clock, SystemClock};
use crate::limits;
use crate::net::{Connector, Incoming};
use crate::storage::MemoryDisk;

/// Options of a node that its config does not contain.
#[derive(Debug)]
pub struct NodeOptions {
    /// Clock and source of random numbers.
    pub clock: Arc<dyn Clock>,
    /// Keep the log and the state in memory: a node that stops loses its data.
    pub ephemeral: bool,
    /// A disk in memory that the node uses instead of its directory. The disk outlives the node. For simulations.
    pub memory: Option<MemoryDisk>,
    /// Use a separate runtime for the node, so that a blocking task of the application cannot delay heartbeats.
    pub own_runtime: bool,
    /// Listener for the other nodes, at any address; `None` binds the address of the config.
    pub peer_listener: Option<std::net::TcpListener>,
    /// When the node writes checkpoints and snapshots, and how much it keeps.
    pub tuning: Tuning,
    /// Network between the nodes other than TCP; it overrides `peer_listener` and the address of the config.
    pub peer_network: Option<PeerNetwork>,
}

/// When a node writes checkpoints and snapshots and purges its log. The default suits disks and clusters of every usual
/// size. A simulation uses small values, so that each of these happens often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Milliseconds between checkpoints, see [`limits::CHECKPOINT_MS`].
    pub checkpoint_ms: u64,
    /// Bytes of log after which a snapshot file is due, see [`limits::SNAPSHOT_LOG_BYTES_MIN`].
    pub snapshot_log_bytes_min: u64,
    /// Entries that are kept behind a snapshot file, see [`limits::PURGE_MARGIN_ENTRIES`].
    pub purge_margin_entries: u64,
    /// Renewals in one entry, see [`limits::RENEWALS_AN_ENTRY_MAX`].
    pub renewals_an_entry_max: usize,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            checkpoint_ms: limits::CHECKPOINT_MS,
            snapshot_log_bytes_min: limits::SNAPSHOT_LOG_BYTES_MIN,
            purge_margin_entries: limits::PURGE_MARGIN_ENTRIES,
            renewals_an_entry_max: limits::RENEWALS_AN_ENTRY_MAX,
        }
    }
}

/// A network between nodes: how this node dials the others, and how it accepts their connections.
pub struct PeerNetwork {
    /// Dials the members' addresses.
    pub connector: Connector,
    /// Connections from the other nodes.
    pub incoming: Incoming,
}

impl fmt::Debug for PeerNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a network between nodes")
    }
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock::monotonic()),
            ephemeral: false,
            memory: None,
            own_runtime: true,
            peer_listener: None,
            tuning: Tuning::default(),
            peer_network: None,
        }
    }
}
