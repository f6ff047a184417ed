//! Listens on a port, and finds the processes of this machine that listen at an address or have locked a file, from
//! `/proc`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io};

use tokio::net::TcpListener;

use crate::limits::{LISTEN_PAUSE_MS, LISTEN_WAIT_MS};

/// The inode of the socket that listens at this address; `None` if the address is not one of this machine.
pub(super) fn listening_at(address: &str) -> Option<u64> {
    let wanted: Vec<_> = address.to_socket_addrs().ok()?.filter(|at| is_own(at.ip())).collect();
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let mut sockets = tables.iter().flat_map(|table| table.lines().skip(1)).filter_map(listening);
    let answers = |at: SocketAddr| wanted.iter().any(|want| want.port() == at.port() && covers(at.ip(), want.ip()));
    sockets.find(|(at, _)| answers(*at)).map(|(_, inode)| inode)
}

/// The name and the id of the process that listens at this address, if this user may see it.
pub(super) fn process_at(address: SocketAddr) -> Option<(String, u32)> {
    let socket = listening_at(&address.to_string())?;
    let pid = owners_of(&BTreeSet::from([socket])).remove(&socket)?;
    Some((name_of(pid), pid))
}

fn name_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

/// Only an address of this machine can be bound here.
fn is_own(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

fn covers(listens: IpAddr, wanted: IpAddr) -> bool {
    listens.is_unspecified() || wanted.is_unspecified() || listens.to_canonical() == wanted.to_canonical()
}

/// The address and the inode in a line of the kernel's table; `None` if the socket does not listen.
fn listening(line: &str) -> Option<(SocketAddr, u64)> {
    const LISTENS: &str = "0A";
    let fields: Vec<_> = line.split_whitespace().collect();
    let (local, state, inode) = (*fields.get(1)?, *fields.get(3)?, *fields.get(9)?);
    if state != LISTENS {
        return None;
    }
    let (address, port) = local.split_once(':')?;
    let words: Option<Vec<u32>> = address
        .as_bytes()
        .chunks(8)
        .map(|word| u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok())
        .collect();
    // The kernel prints each word in the byte order of this machine. Its bytes in memory are the address.
    let bytes: Vec<u8> = words?.into_iter().flat_map(u32::to_ne_bytes).collect();
    let address = match bytes.len() {
        4 => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        _ => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)),
    };
    Some((SocketAddr::new(address, u16::from_str_radix(port, 16).ok()?), inode.parse().ok()?))
}

/// The processes with these sockets, if this user may see them.
pub(super) fn owners_of(sockets: &BTreeSet<u64>) -> BTreeMap<u64, u32> {
    let mut owners = BTreeMap::new();
    if sockets.is_empty() {
        return owners;
    }
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        for open in fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten() {
            let link = fs::read_link(open.path()).unwrap_or_default();
            let inode = link.to_str().and_then(|text| text.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
            if let Some(inode) = inode.filter(|inode| sockets.contains(inode)) {
                owners.insert(inode, pid);
            }
        }
    }
    owners
}

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

/// Returns the process that has locked this file, as `NAME (process PID)`, if the system shows it.
pub(super) fn lock_holder(file: &Path) -> Option<String> {
    lock_owner(file).map(|pid| format!("{} (process {pid})", name_of(pid)))
}

/// Returns the id of the process that has locked this file, if the system shows it.
pub(super) fn lock_owner(file: &Path) -> Option<u32> {
    only_owner(&fs::read_to_string("/proc/locks").ok()?, fs::metadata(file).ok()?.ino())
}

/// Returns the process that has locked the file with this inode number; `None` if several locked files have the number.
/// Only the device would say which file a lock belongs to, and some file systems show another device here than `stat`
/// does.
fn only_owner(locks: &str, inode: u64) -> Option<u32> {
    let mut owners = locks.lines().filter_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let (kind, pid, place) = (*fields.get(1)?, *fields.get(4)?, *fields.get(5)?);
        let is_this = kind == "FLOCK" && place.rsplit(':').next()?.parse::<u64>() == Ok(inode);
        pid.parse().ok().filter(|_| is_this)
    });
    let owner = owners.next()?;
    owners.next().is_none().then_some(owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A listener of this process is found by its address, and the usage of this process is measured.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_is_found_by_where_it_listens() {
        for address in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0"] {
            let Ok(listener) = std::net::TcpListener::bind(address) else { continue };
            let port = listener.local_addr().unwrap().port();
            let host = if address.starts_with('[') { "[::1]" } else { "127.0.0.1" };
            let socket = listening_at(&format!("{host}:{port}")).expect("it listens");
            assert_eq!(owners_of(&BTreeSet::from([socket])).get(&socket), Some(&std::process::id()), "{address}");
        }
        assert_eq!(listening_at("192.0.2.1:80"), None, "no address of this machine");
    }

    /// The kernel's lines are read for both kinds of address. Sockets that do not listen are skipped.
    #[test]
    fn lines_of_the_kernel_are_read() {
        let line = |state: &str| {
            let address = u32::from_ne_bytes([127, 0, 0, 1]);
            format!("0: {address:08X}:1DB1 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 0 0 4711 1")
        };
        assert_eq!(listening(&line("0A")), Some(("127.0.0.1:7601".parse().unwrap(), 4711)));
        assert_eq!(listening(&line("01")), None);
        assert_eq!(listening("no such line"), None);
    }

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

    /// The process that has locked a file is found.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_process_with_the_lock_is_named() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert_eq!(lock_holder(file.path()), None);
        file.as_file().try_lock().expect("locked");
        let found = lock_holder(file.path()).expect("this process has the lock");
        assert!(found.ends_with(&format!("(process {})", std::process::id())), "{found}");
    }

    /// Nodes with volumes of their own may have the same inode number. Then the system does not show which process has
    /// locked which file. Requests that wait for a lock and locks of other kinds do not count.
    #[test]
    fn a_lock_with_the_number_of_another_has_no_owner() {
        let own = "1: FLOCK  ADVISORY  WRITE 4711 08:02:77 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 4712 08:02:77 0 EOF\n\
                   2: POSIX  ADVISORY  WRITE 4713 08:02:77 0 EOF\n3: FLOCK  ADVISORY  WRITE 4714 08:02:177 0 EOF\n";
        assert_eq!([77, 177, 7].map(|inode| only_owner(own, inode)), [Some(4_711), Some(4_714), None]);
        let other = "4: FLOCK  ADVISORY  WRITE 4715 00:2f:77 0 EOF\n";
        assert_eq!(only_owner(&format!("{own}{other}"), 77), None);
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
