//! Sockets that close before all others when the process ends.
//!
//! When a process is killed, Linux closes its descriptors from the highest to the lowest. Clients that lose their node
//! connect to other nodes at once. If they noticed the end before the other nodes, their calls would take processor
//! time from the election, and even from the process that is being closed. So sockets to other nodes have the highest
//! descriptors.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit};

use crate::limits::HIGH_DESCRIPTORS_MAX;

/// Moves a socket to one of the highest descriptors. Leaves it where it is if none is free.
pub(crate) fn closed_first<S: AsFd + From<OwnedFd>>(socket: S) -> S {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(HIGH_DESCRIPTORS_MAX).min(HIGH_DESCRIPTORS_MAX);
    let lowest = i32::try_from(limit - limit / 8).unwrap_or(0);
    fcntl_dupfd_cloexec(&socket, lowest).map_or(socket, S::from)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    use super::*;

    /// A moved socket has a higher descriptor than all that are opened in the usual way, and still works.
    #[test]
    fn a_socket_moves_above_the_others() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let before = listener.as_raw_fd();
        let listener = closed_first(listener);
        let usual = TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
        assert!(before.max(usual.as_raw_fd()) < listener.as_raw_fd());
        listener.accept().expect("the connection");
    }
}
