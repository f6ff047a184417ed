//! Addresses of loopback that nobody else takes between now and a node's start.
//!
//! A port that the system picks (`:0`) is free only until somebody dials out, for outgoing connections use the same
//! range; a node that starts a second later, or again, would find it taken. So ports come from below that range, and
//! no two tests of this process get the same one.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// Where ports start: above what services of a machine usually use.
const LOWEST: u16 = 10_000;
/// How many there are: below 32,768, where Linux' own choice begins (macOS and Windows begin at 49,152).
const COUNT: u16 = 22_000;

/// The next port to try. Another run of these tests beside this one begins elsewhere.
static NEXT: AtomicU16 = AtomicU16::new(0);

/// A port at which nobody listens, and that no other caller of this process gets before all have been given out.
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

/// That many of them.
pub(crate) fn free_ports<const N: usize>() -> [u16; N] {
    std::array::from_fn(|_| free_port())
}
