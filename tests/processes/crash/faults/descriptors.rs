//! A node that may open nothing more: its limit on descriptors becomes what it has, and connections come in.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

const CONNECTIONS: usize = 16;
const CONNECT_WAIT: Duration = Duration::from_millis(200);

/// The limit that a node had, until it is given back.
pub(super) struct Limited {
    node: Pid,
    before: Rlimit,
    /// What asks for more descriptors than there are.
    _connections: Vec<TcpStream>,
}

/// Takes away what a node has not opened yet, and asks it for more.
pub(super) fn exhaust(node: u32, address: &str) -> Limited {
    let open = std::fs::read_dir(format!("/proc/{node}/fd")).map_or(0, |open| open.count() as u64);
    let node = i32::try_from(node).ok().and_then(Pid::from_raw).expect("a pid");
    // A node has the hard limit of whoever started it.
    let low = Rlimit { current: Some(open), maximum: getrlimit(Resource::Nofile).maximum };
    let before = prlimit(Some(node), Resource::Nofile, low).expect("a limit");
    let address: SocketAddr = address.parse().expect("an address");
    let connections = (0..CONNECTIONS).filter_map(|_| TcpStream::connect_timeout(&address, CONNECT_WAIT).ok());
    Limited { node, before, _connections: connections.collect() }
}

impl Drop for Limited {
    fn drop(&mut self) {
        // It may have ended meanwhile.
        prlimit(Some(self.node), Resource::Nofile, self.before).ok();
    }
}
