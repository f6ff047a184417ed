//! Ports of the loopback address that no other program takes before a node starts.
//!
//! For `:0` the system picks a port from the range that it also uses for outgoing connections. A node that starts a
//! second later, or again, might find that port in use. The ports of this module are below that range, and no two tests
//! of this process get the same port.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// The lowest port: above those that services of a machine usually use.
const LOWEST: u16 = 10_000;
/// The number of ports. All are below those that scripts and pages use: 27,600 to 27,723, 28,100 to 32,023
/// (`pages.rs`), and 32,100 to 32,759 (`scripts/python/tests/nodes.py`). At 32,768 the range of Linux for outgoing
/// connections begins (49,152 on macOS and Windows).
const COUNT: u16 = 17_600;

/// The next port to try, relative to a start that depends on the process id. Parallel runs of these tests start at
/// different ports.
static NEXT: AtomicU16 = AtomicU16::new(0);

/// Returns a port that is not in use. No other caller in this process gets the same port until all ports have been
/// used.
pub(crate) fn free_port() -> u16 {
    let start = std::process::id().wrapping_mul(97) % u32::from(COUNT);
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed) % COUNT;
        let port = LOWEST + u16::try_from((start + u32::from(step)) % u32::from(COUNT)).expect("below the count");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("all {COUNT} ports from {LOWEST} are taken");
}

/// Returns `N` ports from [`free_port`].
pub(crate) fn free_ports<const N: usize>() -> [u16; N] {
    std::array::from_fn(|_| free_port())
}
