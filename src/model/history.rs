//! The history of locks: a chain of records about all holders over time.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Event, Fairness, Invalid, Mode, Owner, Position, Principal, parse_hex};

/// A hash of the chain: the first 16 bytes of a SHA-256. All bytes are zero before the first record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct ChainHash(pub [u8; 16]);

impl ChainHash {
    /// The hash before the first record.
    pub const BEGINNING: ChainHash = ChainHash([0; 16]);
}

impl fmt::Display for ChainHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for ChainHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ChainHash {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let refused = || Invalid::new("hash", "32 lower-case hex digits", format!("{text:?}"));
        let number = parse_hex("hash", text).ok().filter(|_| !text.bytes().any(|byte| byte.is_ascii_uppercase()));
        Ok(Self(number.ok_or_else(refused)?.to_be_bytes()))
    }
}

/// A record of something that happened to the holders of a lock.
///
/// - `hash` covers everything else in the record, including its namespace.
/// - `before` is the hash of the previous record of the namespace, `previous` that of the same lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryRecord {
    /// What happened, with its position and time. The event always has a namespace and a lock.
    pub event: Event,
    /// The mode of the hold. `None` if only a limit changed.
    pub mode: Option<Mode>,
    /// The semaphore's limit at that time, if the hold is one of permits.
    pub limit: Option<u32>,
    /// The new holder, and how the grant came about. `None` if the record is not about a new holder.
    pub grant: Option<GrantFacts>,
    /// Hash of the previous record of the same lock. [`ChainHash::BEGINNING`] if there is none.
    pub previous: ChainHash,
    /// Hash of the previous record of the namespace.
    pub before: ChainHash,
    /// Hash of this record.
    pub hash: ChainHash,
}

/// The new holder of a lock, and how the grant came about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantFacts {
    /// When the request arrived relative to other requests.
    pub arrival: Arrival,
    /// Whether the request may overtake other barging requests.
    pub fairness: Fairness,
    /// Whether the request was for a set of locks.
    pub set: bool,
    /// Whether a set waited in the same queue. If so, a session that held what the set lacked was allowed to overtake
    /// it.
    pub passing: bool,
    /// The line of execution, if the request named one.
    pub owner: Option<Owner>,
    /// The caller's identity, as the cluster checked it.
    pub principal: Principal,
    /// The name of the client, see [`Metadata::name`](crate::model::Metadata::name).
    pub who: Arc<str>,
    /// The `why` of the request's metadata.
    pub why: Arc<str>,
}

/// When a request arrived, in the order of the cluster's sequence numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// The sequence number in the queue. For a request that did not wait, the highest number assigned so far.
    pub sequence: u64,
    /// Whether the request waited in the queue.
    pub queued: bool,
}

/// One page of the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryPage {
    /// The records, in order.
    pub records: Vec<HistoryRecord>,
    /// The position after which to continue, because more records may follow. `None` at the end.
    pub next: Option<Position>,
    /// Records up to this position are no longer kept.
    pub floor: Position,
}
