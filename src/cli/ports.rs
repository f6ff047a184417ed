//! Who listens on a port, so that "in use" can say by whom. Linux only; elsewhere nobody knows.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

/// The process that listens on this address, as `NAME (process PID)`, where this user may see it.
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

    /// The listener on a port is found by its process; a free port has none.
    #[test]
    fn the_process_that_listens_is_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let found = holder(address).expect("this process listens");
        assert!(found.ends_with(&format!("(process {})", std::process::id())), "{found}");
        drop(listener);
        assert_eq!(holder(address), None);
    }
}
