//! Sockets that close before all others when the process ends.
//!
//! When a process is killed, Linux closes its descriptors from the highest to the lowest. Clients that lose their node
//! connect to other nodes at once. If they noticed the end before the other nodes, their calls would take processor
//! time from the election, and even from the process that is being closed. So sockets to other nodes have the highest
//! descriptors. The listener for the other nodes is above them: a node whose stream ends dials that listener, and an
//! open listener would accept the connection and not answer.

use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit};

use crate::limits::HIGH_DESCRIPTORS_MAX;

/// Moves a connection to a high descriptor. Leaves it where it is if none is free.
pub(crate) fn closed_early<S: AsFd + From<OwnedFd>>(connection: S) -> S {
    moved(connection, 8)
}

/// Moves a listener above all connections. Leaves it where it is if no descriptor is free there.
pub(crate) fn closed_first(listener: TcpListener) -> TcpListener {
    moved(listener, 64)
}

/// Moves a socket to a descriptor in the last 1/`part` of all.
fn moved<S: AsFd + From<OwnedFd>>(socket: S, part: u64) -> S {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(HIGH_DESCRIPTORS_MAX).min(HIGH_DESCRIPTORS_MAX);
    let lowest = i32::try_from(limit - limit / part).unwrap_or(0);
    fcntl_dupfd_cloexec(&socket, lowest).map_or(socket, S::from)
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::os::fd::AsRawFd;

    use super::*;

    /// The listener has a higher descriptor than connections that were moved, which are above all that are opened in
    /// the usual way. Both still work.
    #[test]
    fn a_listener_moves_above_connections_and_these_above_the_others() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let usual = listener.as_raw_fd();
        let listener = closed_first(listener);
        let connection = TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
        let usual = usual.max(connection.as_raw_fd());
        let connection = closed_early(connection);
        assert!(usual < connection.as_raw_fd());
        assert!(connection.as_raw_fd() < listener.as_raw_fd());
        let (_, peer) = listener.accept().expect("the connection");
        assert_eq!(connection.local_addr().expect("connected"), peer);
    }
}
