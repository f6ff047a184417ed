//! How often a `hold` has events, and how long its client believes in it because of one.

use std::time::Duration;

use crate::limits;

/// The time that all others follow from: the TTL of the session, or less if the hold may end before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pace(Duration);

impl Pace {
    /// The pace of a session with this TTL, whose events follow its renewals at once.
    pub(super) fn of_session(ttl: Duration) -> Self {
        Self(ttl)
    }

    /// The pace of a hold that may end before its session: by the length of a lease, and by the time that is left until
    /// an end that no renewal moves.
    ///
    /// The lease and the session are renewed at different times, so the older proof has lost a beat or more when an
    /// event is sent. Before a fixed end there must be time for several events, because the last one is sent the whole
    /// [`belief`](Self::belief) before it.
    pub(super) fn of_hold(ttl: Duration, lease: Option<Duration>, left: Option<Duration>) -> Self {
        let renewed = lease.map(|lease| ttl.min(lease) * limits::HOLD_LEASE_PERCENT / 100);
        let fixed = left.map(|left| left / 2);
        Self(renewed.into_iter().chain(fixed).fold(ttl, Duration::min))
    }

    /// Returns the time between two events.
    pub(super) fn beat(self) -> Duration {
        (self.0 / limits::HOLD_RENEWALS_A_TTL).max(Duration::from_millis(1))
    }

    /// Returns the time without an event after which the client does not believe in its hold.
    pub(super) fn silence(self) -> Duration {
        self.0 * limits::HOLD_SILENCE_PERCENT / 100
    }

    /// Returns the longest time after an event was sent for which its client believes in the hold because of it.
    pub(super) fn belief(self) -> Duration {
        self.silence() + self.0 * limits::HOLD_EVENT_LATE_PERCENT / 100
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A client never believes in a hold for longer than the oldest proof lasts that an event may follow.
    #[test]
    fn a_belief_ends_before_the_hold() {
        for lease in [1, 700, 9_500, 10_000, 11_000, 60_000].map(ms) {
            let pace = Pace::of_hold(TTL, Some(lease), None);
            let shortest = lease.min(TTL);
            let oldest = shortest - shortest / 100 - shortest / limits::HOLD_RENEWALS_A_TTL;
            assert!(pace.belief() < oldest, "{lease:?}: {pace:?}");
        }
        for left in [1, 2_000, 60_000].map(ms) {
            let pace = Pace::of_hold(TTL, None, Some(left));
            assert!(pace.belief() + 2 * pace.beat() < left || left < ms(10), "{left:?}: {pace:?}");
        }
    }

    /// The shortest end decides, and a hold without an end of its own has the pace of its session.
    #[test]
    fn the_shortest_end_decides() {
        assert_eq!(Pace::of_hold(TTL, None, None), Pace::of_session(TTL));
        assert_eq!(Pace::of_hold(TTL, None, Some(TTL * 2)), Pace::of_session(TTL));
        let both = Pace::of_hold(TTL, Some(ms(900)), Some(ms(600)));
        assert_eq!((both.silence(), both.beat()), (ms(180), ms(60)));
        assert_eq!(Pace::of_hold(TTL, Some(ms(900)), Some(TTL)).silence(), Duration::from_micros(356_400));
    }
}
