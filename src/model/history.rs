//! What is kept of the past: who held which lock, in a chain of hashes.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Event, Fairness, Invalid, Mode, Owner, Position, Principal};

/// A link of the chain: the first 16 bytes of a SHA-256. All zero where the chain begins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct ChainHash(pub [u8; 16]);

impl ChainHash {
    /// Before the first record.
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
    /// What happened, where and when. Always of one namespace and one lock.
    pub event: Event,
    /// How the grant is or was held; `None` where only a limit changed.
    pub mode: Option<Mode>,
    /// The semaphore's limit at that time, where permits are or were held.
    pub limit: Option<u32>,
    /// Who got it and by what right, where it is a grant to somebody new.
    pub grant: Option<GrantFacts>,
    /// Hash of the record before it of the same lock; the beginning where none was kept.
    pub previous: ChainHash,
    /// Hash of the record before it of the namespace.
    pub before: ChainHash,
    /// Its own.
    pub hash: ChainHash,
}

/// Who was granted a lock, and by what right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantFacts {
    /// Its place in the order of arrival.
    pub arrival: Arrival,
    /// Whether it may pass others that barge.
    pub fairness: Fairness,
    /// It was asked for together with other locks.
    pub set: bool,
    /// A set waited in the same queue: a session that held what the set lacked was allowed to pass it.
    pub passing: bool,
    /// The line of execution, if named.
    pub owner: Option<Owner>,
    /// Who the cluster says that it is.
    pub principal: Principal,
    /// What it is called, see [`Metadata::name`](crate::model::Metadata::name).
    pub who: Arc<str>,
    /// What for, as it says.
    pub why: Arc<str>,
}

/// When somebody asked, in the order of the cluster's place numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// Its number in the queue; where it did not wait, the newest number that anybody had then.
    pub sequence: u64,
    /// It stood in the queue.
    pub queued: bool,
}

/// Some of the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryPage {
    /// In order.
    pub records: Vec<HistoryRecord>,
    /// More may follow: ask again after this position. `None` at the end.
    pub next: Option<Position>,
    /// Records up to this position are no longer kept.
    pub floor: Position,
}
