//! A node without free descriptors: its limit is set to the number of descriptors that it has open, and connections
//! arrive.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

const CONNECTIONS: usize = 16;
const CONNECT_WAIT: Duration = Duration::from_millis(200);

/// A lowered limit. Dropping it restores the previous one.
pub(super) struct Limited {
    node: Pid,
    before: Rlimit,
    /// Connections that need more descriptors than are left.
    _connections: Vec<TcpStream>,
}

/// Lowers the limit of a node to what it has open, and connects to it.
pub(super) fn exhaust(node: u32, address: &str) -> Limited {
    let open = std::fs::read_dir(format!("/proc/{node}/fd")).map_or(0, |open| open.count() as u64);
    let node = i32::try_from(node).ok().and_then(Pid::from_raw).expect("a pid");
    // A node inherits the hard limit of this process.
    let low = Rlimit { current: Some(open), maximum: getrlimit(Resource::Nofile).maximum };
    let before = prlimit(Some(node), Resource::Nofile, low).expect("a limit");
    let address: SocketAddr = address.parse().expect("an address");
    let connections = (0..CONNECTIONS).filter_map(|_| TcpStream::connect_timeout(&address, CONNECT_WAIT).ok());
    Limited { node, before, _connections: connections.collect() }
}

impl Drop for Limited {
    fn drop(&mut self) {
        // The node may have ended meanwhile.
        prlimit(Some(self.node), Resource::Nofile, self.before).ok();
    }
}
