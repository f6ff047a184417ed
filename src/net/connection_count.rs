//! Counts the connections of one listener, and refuses those beyond the limits of its port.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use metrics::Counter;

use super::port::{ConnectionLimits, Port};
use crate::limits::PLACES_KEPT_ONE_IN;
use crate::mutex::Mutex;

/// The connections of one listener.
#[derive(Debug)]
pub(super) struct ConnectionCount {
    limits: ConnectionLimits,
    counts: Mutex<Counts>,
    /// Connections that were refused, by the limit.
    refused: [Counter; ConnectionLimits::LABELS.len()],
}

#[derive(Debug, Default)]
struct Counts {
    all: Count,
    /// Open connections of the addresses that have some. All loopback addresses are one.
    open_of: HashMap<IpAddr, usize>,
    /// Unproven connections of the networks that have some.
    unproven_of: HashMap<IpAddr, usize>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Count {
    open: usize,
    unproven: usize,
}

/// One of the connections that a port may have. Dropping it makes space for another one.
#[derive(Debug)]
pub(super) struct Counted {
    among: Arc<ConnectionCount>,
    address: IpAddr,
    proven: bool,
}

/// Returns the network of an address: an IPv4 address, or the /64 of an IPv6 address, because one machine can use all
/// addresses of a /64.
pub(crate) fn network(of: IpAddr) -> IpAddr {
    match of.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> HOST_BITS << HOST_BITS)),
    }
}

/// Bits of an IPv6 address that one machine can choose.
const HOST_BITS: u32 = 64;

/// Removes one from the count of an address, and the count with the last one.
fn remove_one(counts: &mut HashMap<IpAddr, usize>, of: IpAddr) {
    if let Some(count) = counts.get_mut(&of) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&of);
        }
    }
}

impl Counts {
    fn of(&self, address: IpAddr) -> Count {
        let count = |counts: &HashMap<IpAddr, usize>, of: IpAddr| counts.get(&of).copied().unwrap_or_default();
        Count { open: count(&self.open_of, address), unproven: count(&self.unproven_of, network(address)) }
    }

    /// Adds a connection of this address, which is unproven.
    fn add(&mut self, address: IpAddr) {
        (self.all.open, self.all.unproven) = (self.all.open + 1, self.all.unproven + 1);
        *self.open_of.entry(address).or_default() += 1;
        *self.unproven_of.entry(network(address)).or_default() += 1;
    }

    /// Records that a connection is not unproven any more.
    fn prove(&mut self, address: IpAddr) {
        self.all.unproven -= 1;
        remove_one(&mut self.unproven_of, network(address));
    }

    /// Removes a connection, which is not unproven.
    fn remove(&mut self, address: IpAddr) {
        self.all.open -= 1;
        remove_one(&mut self.open_of, address);
    }
}

impl ConnectionLimits {
    /// Names of the limits, as labels of a metric.
    const LABELS: [&str; 4] = ["open", "open_an_address", "unproven", "unproven_an_address"];

    /// Returns these limits without those of one address, for the clients on this machine: they all share one.
    fn of_loopback(self) -> Self {
        Self { open_an_address: usize::MAX, unproven_an_address: usize::MAX, ..self }
    }

    /// Returns the place of the limit that one more connection would exceed. A few networks that open connections and
    /// send nothing cannot use all that may be unproven: a part of these is kept for networks that have none. This
    /// machine is one of the networks.
    fn exceeded(&self, all: Count, of_address: Count) -> Option<usize> {
        let kept = if of_address.unproven == 0 { 0 } else { self.unproven / PLACES_KEPT_ONE_IN };
        let exceeded = [
            self.open <= all.open,
            self.open_an_address <= of_address.open,
            self.unproven - kept <= all.unproven,
            self.unproven_an_address <= of_address.unproven,
        ];
        exceeded.into_iter().position(|exceeded| exceeded)
    }
}

impl ConnectionCount {
    pub(super) fn new(port: Port, limits: ConnectionLimits) -> Arc<Self> {
        let name = "lockkeeper_connections_refused_total";
        metrics::describe_counter!(
            name,
            "Connections that were closed at once because a limit of their port was reached"
        );
        let refused =
            ConnectionLimits::LABELS.map(|limit| metrics::counter!(name, "port" => port.name(), "limit" => limit));
        Arc::new(Self { limits, counts: Mutex::default(), refused })
    }

    /// Counts a new connection from this address, which is unproven at first. Returns `None` if the port may have no
    /// more connections, or no more from this address.
    pub(super) fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Counted> {
        let address = address.to_canonical();
        let (address, limits) = if address.is_loopback() {
            (IpAddr::V4(Ipv4Addr::LOCALHOST), self.limits.of_loopback())
        } else {
            (address, self.limits)
        };
        let mut counts = self.counts.lock();
        if let Some(limit) = limits.exceeded(counts.all, counts.of(address)) {
            drop(counts);
            self.refused[limit].increment(1);
            return None;
        }
        counts.add(address);
        Some(Counted { among: Arc::clone(self), address, proven: false })
    }
}

impl Counted {
    /// Stops counting the connection as unproven, because its first request has begun.
    pub(super) fn prove(&mut self) {
        if !std::mem::replace(&mut self.proven, true) {
            self.among.counts.lock().prove(self.address);
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.prove();
        self.among.counts.lock().remove(self.address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ConnectionLimits =
        ConnectionLimits { open: 6, open_an_address: 3, unproven: 4, unproven_an_address: 2 };

    fn counting() -> Arc<ConnectionCount> {
        ConnectionCount::new(Port::Client, LIMITS)
    }

    fn address(last: u8) -> IpAddr {
        Ipv4Addr::new(10, 0, 0, last).into()
    }

    /// Each limit refuses the first connection beyond it: of one address, of all addresses, and of those that have sent
    /// no request. The last of these is for an address that has none. A connection that has ended, or has sent its
    /// request, makes space. The same address in IPv6 notation has the same limit.
    #[test]
    fn each_limit_refuses_the_next_connection() {
        let count = counting();
        let admit = |last| count.admit(address(last));
        let mut one = vec![admit(1).expect("the first"), admit(1).expect("the second")];
        assert!(admit(1).is_none(), "two of this address have sent nothing");
        let mapped = Ipv4Addr::new(10, 0, 0, 1).to_ipv6_mapped();
        assert!(count.admit(mapped.into()).is_none(), "the same address");
        let mut two = vec![admit(2).expect("the third")];
        assert!(admit(2).is_none(), "the fourth is for another address");
        let mut three = admit(3).expect("the fourth");
        assert!(admit(4).is_none(), "four have sent nothing");
        one.iter_mut().chain(&mut two).chain([&mut three]).for_each(Counted::prove);
        one.push(admit(1).expect("the fifth"));
        one[2].prove();
        assert!(admit(1).is_none(), "three of this address are open");
        two.push(admit(2).expect("the sixth"));
        assert!(admit(3).is_none(), "six are open");
        drop((one, two, three));
        assert!(admit(1).is_some());
        assert!(
            count.counts.lock().open_of.is_empty() && count.counts.lock().unproven_of.is_empty(),
            "addresses without connections are forgotten"
        );
    }

    /// All addresses of an IPv6 /64 share the limit of unproven connections, because one machine can use all of them.
    /// Each has its own limit of open ones.
    #[test]
    fn a_network_shares_its_unproven_connections() {
        let count = counting();
        let admit = |address: &str| count.admit(address.parse().expect("an address"));
        let mut open = ["2001:db8::1", "2001:db8::2"].map(|of| admit(of).expect("below the limit"));
        assert!(admit("2001:db8::3").is_none(), "two of this network have sent nothing");
        assert!(admit("2001:db8:0:1::3").is_some(), "another network");
        open.iter_mut().for_each(Counted::prove);
        let proven = |of| {
            let mut counted = admit(of).expect("below the limit");
            counted.prove();
            counted
        };
        let _others = ["2001:db8::1", "2001:db8::1", "2001:db8::3"].map(proven);
        assert!(admit("2001:db8::1").is_none(), "three of this address are open");
    }

    /// Connections from this machine have no limit by address, although all its addresses count as one.
    #[test]
    fn loopback_has_no_limit_by_address() {
        let count = counting();
        let admit = |address: &str| {
            let mut counted = count.admit(address.parse().expect("an address")).expect("below the other limits");
            counted.prove();
            counted
        };
        let open = ["127.0.0.1", "127.0.0.1", "::1", "::ffff:127.0.0.2"].map(admit);
        assert_eq!(count.counts.lock().open_of.len(), 1);
        drop(open);
        assert!(count.counts.lock().open_of.is_empty());
    }

    /// Silent connections from this machine leave the places that are kept for networks without a connection. Silent
    /// connections from other networks leave one for this machine.
    #[test]
    fn loopback_does_not_use_the_places_of_other_networks() {
        let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
        let count = counting();
        let _silent = [loopback; 3].map(|address| count.admit(address).expect("more than one address may have"));
        assert!(count.admit(loopback).is_none(), "the last place is kept");
        assert!(count.admit(address(1)).is_some(), "for another network");

        let count = counting();
        let _silent = [1, 1, 2].map(|last| count.admit(address(last)).expect("below the limits"));
        assert!(count.admit(address(2)).is_none(), "the last place is kept");
        assert!(count.admit(loopback).is_some(), "for this machine");
    }
}
