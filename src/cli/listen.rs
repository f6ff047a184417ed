//! Listens on a port, and finds the process that uses a port. The process can be found only on Linux.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io};

use tokio::net::TcpListener;

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
    let table = fs::read_to_string("/proc/net/tcp").ok()?;
    let inode = listening_inode(&table, address.port())?;
    let socket = format!("socket:[{inode}]");
    let is_process = |entry: &fs::DirEntry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit);
    for process in fs::read_dir("/proc").ok()?.flatten().filter(is_process) {
        let path = process.path();
        if has_descriptor(&path, &socket) {
            let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
            return Some(format!("{} (process {})", name.trim(), process.file_name().to_string_lossy()));
        }
    }
    None
}

fn has_descriptor(process: &Path, socket: &str) -> bool {
    let Ok(descriptors) = fs::read_dir(process.join("fd")) else { return false };
    descriptors.flatten().any(|fd| fs::read_link(fd.path()).is_ok_and(|target| target.as_os_str() == socket))
}

/// The inode of the socket that listens on this port, in the table of `/proc/net/tcp`.
fn listening_inode(table: &str, port: u16) -> Option<&str> {
    const LISTENING: &str = "0A";
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
        let found = u16::from_str_radix(local.split(':').nth(1)?, 16).ok()?;
        (found == port && *state == LISTENING).then_some(*inode)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The process that listens on a port is found. A free port has none.
    #[test]
    fn the_process_that_listens_is_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let found = holder(address).expect("this process listens");
        assert!(found.ends_with(&format!("(process {})", std::process::id())), "{found}");
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
