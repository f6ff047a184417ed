//! Listens on a port, and finds the process that uses a port. The process can be found only on Linux.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::net::TcpListener;

use super::sockets::process_at;
use crate::limits::{LISTEN_PAUSE_MS, LISTEN_WAIT_MS};

/// Listens on this address. If the address is in use but no process is visible there, it may become free soon, so this
/// retries: the system frees the memory of a killed process before its sockets, and killed nodes are often restarted at
/// once.
pub(super) async fn listen(
    address: SocketAddr,
    holder: impl Fn(SocketAddr) -> Option<String>,
) -> io::Result<TcpListener> {
    let (began, longest) = (Instant::now(), Duration::from_millis(LISTEN_WAIT_MS));
    loop {
        match TcpListener::bind(address).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if longest < began.elapsed() || holder(address).is_some() {
                    return Err(error);
                }
            }
            bound => return bound,
        }
        tokio::time::sleep(Duration::from_millis(LISTEN_PAUSE_MS)).await;
    }
}

/// Returns the process that listens on this address, as `NAME (process PID)`, if this user may see it.
pub(super) fn holder(address: SocketAddr) -> Option<String> {
    process_at(address).map(|(name, pid)| format!("{name} (process {pid})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The process that listens on a port is found, also if the other listener wants all addresses. A free port has
    /// none.
    #[test]
    fn the_process_that_listens_is_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        for wanted in [address, (std::net::Ipv4Addr::UNSPECIFIED, address.port()).into()] {
            let found = holder(wanted).expect("this process listens");
            assert!(found.ends_with(&format!("(process {})", std::process::id())), "{found}");
        }
        drop(listener);
        assert_eq!(holder(address), None);
    }

    /// If a visible process uses the address, that is an error. Otherwise `listen` waits until the address is free.
    #[tokio::test]
    async fn an_address_without_a_visible_process_is_waited_for() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let refused = listen(address, holder).await.expect_err("this process listens");
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        let dying = std::cell::Cell::new(Some(listener));
        let looks = std::cell::Cell::new(0);
        let no_process = |_| {
            looks.set(looks.get() + 1);
            if looks.get() == 2 {
                drop(dying.take());
            }
            None
        };
        let bound = listen(address, no_process).await.expect("it became free");
        assert_eq!((bound.local_addr().expect("bound"), looks.get()), (address, 2));
    }
}
