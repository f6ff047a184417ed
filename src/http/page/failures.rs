//! Failed sign-ins: a network that guesses tokens must wait.
//!
//! A network is an IPv4 address, or the /64 of an IPv6 address, because one machine can use all addresses of a /64. A
//! full table forgets the network that has not failed for the longest time, so no number of networks blocks another.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use crate::clock::Instant;
use crate::limits;
use crate::mutex::Mutex;
use crate::net::network;

/// The last failures of each network, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<BTreeMap<IpAddr, VecDeque<Instant>>>);

impl Failures {
    /// Permits a try, which counts as a failure until [`succeeded`](Self::succeeded).
    ///
    /// # Errors
    /// The network has failed too often. Returns how long it must wait.
    pub(super) fn permit(&self, from: IpAddr, now: Instant) -> Result<(), Duration> {
        let (network, window) = (network(from), Duration::from_millis(limits::SIGN_IN_TRY_MS));
        let mut known = self.0.lock();
        let failed = known.entry(network).or_default();
        while failed.front().is_some_and(|at| window <= now.since(*at)) {
            failed.pop_front();
        }
        if let Some(first) = failed.front().filter(|_| limits::SIGN_IN_TRIES_MAX <= failed.len()) {
            return Err(window.saturating_sub(now.since(*first)));
        }
        failed.push_back(now);
        if limits::SIGN_IN_NETWORKS_MAX < known.len() {
            let silent = known.iter().min_by_key(|(_, failed)| failed.back().copied()).map(|(of, _)| *of);
            silent.map(|network| known.remove(&network));
        }
        Ok(())
    }

    /// Forgets the last try of a network, because it has signed in.
    pub(super) fn succeeded(&self, from: IpAddr) {
        let (mut known, network) = (self.0.lock(), network(from));
        if known.get_mut(&network).is_some_and(|failed| failed.pop_back().is_some() && failed.is_empty()) {
            known.remove(&network);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;
    use crate::clock::{Clock, ManualClock};

    fn host(number: u32) -> IpAddr {
        IpAddr::from((0x0a00_0000 + number).to_be_bytes())
    }

    /// Tries of a network until it must wait.
    fn tries(failures: &Failures, from: IpAddr, now: Instant) -> usize {
        (0..100).take_while(|_| failures.permit(from, now).is_ok()).count()
    }

    /// A network has five failures a minute, and another network has its own. The wait that is returned is exact.
    #[test]
    fn failures_are_limited() {
        let (failures, clock) = (Failures::default(), ManualClock::new(1));
        assert_eq!(failures.permit(host(1), clock.now()), Ok(()));
        clock.advance(Duration::from_secs(20));
        assert_eq!(tries(&failures, host(1), clock.now()), limits::SIGN_IN_TRIES_MAX - 1);
        assert_eq!(failures.permit(host(1), clock.now()), Err(Duration::from_secs(40)));
        assert_eq!(tries(&failures, host(2), clock.now()), limits::SIGN_IN_TRIES_MAX);
        clock.advance(Duration::from_millis(39_999));
        assert_eq!(failures.permit(host(1), clock.now()), Err(Duration::from_millis(1)));
        clock.advance(Duration::from_millis(1));
        assert_eq!(tries(&failures, host(1), clock.now()), 1, "only the first failure is a minute old");
    }

    /// Sign-ins are no failures, and leave nothing in the table.
    #[test]
    fn sign_ins_do_not_count() {
        let (failures, clock) = (Failures::default(), ManualClock::new(1));
        for _ in 0..100 {
            assert_eq!(failures.permit(host(1), clock.now()), Ok(()));
            failures.succeeded(host(1));
        }
        assert!(failures.0.lock().is_empty());
        assert_eq!(tries(&failures, host(1), clock.now()), limits::SIGN_IN_TRIES_MAX);
    }

    /// Very many networks that fail block no other one. Those that fail again and again stay blocked.
    #[test]
    fn a_full_table_blocks_no_other_network() {
        let (failures, clock) = (Failures::default(), ManualClock::new(1));
        tries(&failures, host(0), clock.now());
        for number in 1..=3 * limits::SIGN_IN_NETWORKS_MAX as u32 {
            clock.advance(Duration::from_millis(1));
            assert_eq!(failures.permit(host(number), clock.now()), Ok(()), "{number}");
        }
        assert_eq!(failures.0.lock().len(), limits::SIGN_IN_NETWORKS_MAX);
        let newest = host(3 * limits::SIGN_IN_NETWORKS_MAX as u32);
        assert_eq!(tries(&failures, newest, clock.now()), limits::SIGN_IN_TRIES_MAX - 1);
    }

    /// All addresses of an IPv6 /64 share their failures, and an IPv4 address has its own in both notations.
    #[test]
    fn a_network_is_what_one_machine_can_use() {
        let address = |text: &str| text.parse::<IpAddr>().expect("an address");
        assert_eq!(network(address("2001:db8:1:2:3:4:5:6")), address("2001:db8:1:2::"));
        assert_eq!(network(address("::ffff:10.0.0.7")), address("10.0.0.7"));
        let (failures, clock) = (Failures::default(), ManualClock::new(1));
        let in_one = (1..100).filter(|host| {
            let from = Ipv6Addr::from_bits((0x2001_0db8_u128 << 96) + host);
            failures.permit(from.into(), clock.now()).is_ok()
        });
        assert_eq!(in_one.count(), limits::SIGN_IN_TRIES_MAX);
        assert_eq!(failures.permit(address("2001:db8:0:1::1"), clock.now()), Ok(()));
    }
}
