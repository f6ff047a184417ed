//! The share of the process's file descriptors that each port may use.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Resource, getrlimit};

#[cfg(feature = "cli")]
use super::port::ConnectionsMax;
use super::port::Port;

/// Open connections of each kind of port in this process. It may run several nodes, which share its descriptors.
static OPEN: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// The descriptor of one connection. Dropping it makes space for another connection.
#[derive(Debug)]
pub(super) struct Descriptor(Port);

fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns the most connections that a listener of this port may have.
#[cfg(feature = "cli")]
pub(crate) fn connections_max(port: Port, most: ConnectionsMax) -> usize {
    usize::try_from(port.share(limit())).unwrap_or(usize::MAX).min(port.limits(most).open)
}

/// Logs a warning if the process has too few descriptors for this number of connections.
pub(super) fn warn_if_few(port: Port, connections: usize) {
    let (limit, port_name) = (limit(), port.name());
    let share = port.share(limit);
    if share < connections as u64 {
        tracing::warn!(
            port = port_name,
            "{limit} descriptors leave this port {share} connections of {connections}; raise the limit (ulimit -n, LimitNOFILE=)"
        );
    }
}

impl Descriptor {
    /// Takes a descriptor for the next connection. The error says that the port has used its share.
    pub(super) fn take(port: Port) -> io::Result<Self> {
        let limit = limit();
        let open = OPEN[port as usize].fetch_add(1, Ordering::Relaxed);
        let descriptor = Self(port);
        if port.share(limit) <= open {
            return Err(io::Error::other(format!("{open} are open, of {limit} descriptors")));
        }
        Ok(descriptor)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        OPEN[self.0 as usize].fetch_sub(1, Ordering::Relaxed);
    }
}
