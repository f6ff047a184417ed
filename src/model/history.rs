//! The history of locks: a chain of records of all holders over time.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Event, Fairness, Invalid, Mode, Owner, Position, Principal};

/// A link of the chain: the first 16 bytes of a SHA-256. All zero at the beginning of the chain.
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
        let digits =
            text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        let number = u128::from_str_radix(text, 16).ok().filter(|_| digits);
        Ok(Self(number.ok_or_else(refused)?.to_be_bytes()))
    }
}

/// One thing that happened to the holders of a lock.
///
/// - `hash` covers everything else in the record, its namespace included.
/// - `before` is the hash of the namespace's record before it, `previous` that of the same lock's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryRecord {
    /// What happened, with its position and time. Always of one namespace and one lock.
    pub event: Event,
    /// How the grant is or was held; `None` if only a limit changed.
    pub mode: Option<Mode>,
    /// The semaphore's limit at that time, if permits are or were held.
    pub limit: Option<u32>,
    /// The new holder and how the grant came about, if it is a grant to a new holder.
    pub grant: Option<GrantFacts>,
    /// Hash of the previous record of the same lock; the beginning if none was kept.
    pub previous: ChainHash,
    /// Hash of the previous record of the namespace.
    pub before: ChainHash,
    /// Hash of this record.
    pub hash: ChainHash,
}

/// The new holder of a lock, and how the grant came about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantFacts {
    /// When the request arrived, in the order of arrival.
    pub arrival: Arrival,
    /// Whether the request may overtake others that barge.
    pub fairness: Fairness,
    /// Whether it was asked for together with other locks.
    pub set: bool,
    /// Whether a set waited in the same queue. Then a session that held what the set lacked was allowed to overtake it.
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
    /// Its number in the queue. For a request that did not wait: the highest number that was given out by then.
    pub sequence: u64,
    /// Whether it waited in the queue.
    pub queued: bool,
}

/// One page of the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryPage {
    /// The records, in order.
    pub records: Vec<HistoryRecord>,
    /// More records may follow: query again after this position. `None` at the end.
    pub next: Option<Position>,
    /// Records up to this position are no longer kept.
    pub floor: Position,
}
