//! Raft's timing, from a profile or from custom times, and the shortest TTL that the timing allows.

use crate::limits;

/// Named timings for the usual networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Profile {
    /// One site: fails over in about half a second.
    #[default]
    Lan,
    /// Loopback and tests.
    Fast,
    /// Nodes in several sites.
    Wan,
}

/// Raft's timing. The heartbeat is less than half of the shortest election timeout, and the shortest election timeout
/// is less than the longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// The profile, or `None` for custom times.
    pub profile: Option<Profile>,
    /// Interval of a leader's heartbeats, in milliseconds.
    pub heartbeat_ms: u64,
    /// Shortest election timeout, in milliseconds.
    pub election_ms_min: u64,
    /// Longest election timeout, in milliseconds.
    pub election_ms_max: u64,
    /// Shortest TTL of a session, in milliseconds. A session with a shorter one would not survive a failover.
    pub ttl_ms_min: u64,
}

impl Profile {
    /// Returns the profile's name in files and options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Profile::Lan => "lan",
            Profile::Fast => "fast",
            Profile::Wan => "wan",
        }
    }

    /// Returns the profile with that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Profile::Lan, Profile::Fast, Profile::Wan].into_iter().find(|profile| profile.name() == name)
    }

    /// Returns the timing of the profile.
    #[must_use]
    pub fn timing(self) -> Timing {
        let ([heartbeat_ms, election_ms_min, election_ms_max], ttl_ms_min) = match self {
            Profile::Lan => (limits::LAN_TIMING_MS, limits::LAN_TTL_MS_MIN),
            Profile::Fast => (limits::FAST_TIMING_MS, limits::FAST_TTL_MS_MIN),
            Profile::Wan => (limits::WAN_TIMING_MS, limits::WAN_TTL_MS_MIN),
        };
        Timing { profile: Some(self), heartbeat_ms, election_ms_min, election_ms_max, ttl_ms_min }
    }
}

impl Default for Timing {
    fn default() -> Self {
        Profile::default().timing()
    }
}

impl Timing {
    /// Creates a custom timing. `Err` describes the rule that the times break.
    pub fn by_hand(heartbeat_ms: u64, election_ms_min: u64, election_ms_max: u64) -> Result<Self, String> {
        if heartbeat_ms == 0 {
            return Err("heartbeat is zero".to_owned());
        }
        if heartbeat_ms.saturating_mul(2) >= election_ms_min {
            return Err(format!(
                "two heartbeats ({} ms) must be shorter than election_min ({election_ms_min} ms)",
                heartbeat_ms.saturating_mul(2)
            ));
        }
        if election_ms_min >= election_ms_max {
            return Err(format!(
                "election_min ({election_ms_min} ms) must be shorter than election_max ({election_ms_max} ms)"
            ));
        }
        if election_ms_max > limits::ELECTION_MS_MAX {
            return Err(format!("election_max ({election_ms_max} ms) is above {} ms", limits::ELECTION_MS_MAX));
        }
        let ttl_ms_min = election_ms_max * limits::TTL_MIN_IN_ELECTIONS;
        Ok(Self { profile: None, heartbeat_ms, election_ms_min, election_ms_max, ttl_ms_min })
    }
}
