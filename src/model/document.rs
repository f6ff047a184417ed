//! Locks as documents: the words of a config server's collections `locks` and `lockpings`, and the commands that change
//! something only if it is as its caller saw it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    FencingToken, Handle, Invalid, LeaseRequestId, LockKey, LockName, LockValue, LogTime, Metadata, Namespace,
    WallTime, text,
};
use crate::limits;

/// The `ts` of a document: twelve bytes that its owner drew for one acquisition, an ObjectId to the original's clients.
/// It is public, and all that it takes to unlock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DocumentId(pub [u8; 12]);

impl DocumentId {
    /// The one that a native hold is shown with: the second of its grant, then its fencing token.
    #[must_use]
    pub fn of_grant(when: WallTime, token: FencingToken) -> Self {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&((when.0 / 1000) as u32).to_be_bytes());
        bytes[4..].copy_from_slice(&token.as_u64().to_be_bytes());
        Self(bytes)
    }

    /// The name under which the machine remembers the acquisition: no take that was drawn from 128 random bits meets it.
    #[must_use]
    pub fn take(self) -> LeaseRequestId {
        let mut bytes = [0; 16];
        bytes[4..].copy_from_slice(&self.0);
        LeaseRequestId(u128::from_be_bytes(bytes))
    }

    /// What proves the acquisition to commands that ask for a handle: the digits that everybody may see.
    #[must_use]
    pub fn handle(self) -> Handle {
        Handle::from_document(self)
    }
}

impl fmt::Display for DocumentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for DocumentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for DocumentId {
    type Err = Invalid;

    /// Refuses what is not 24 hexadecimal digits.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let refused = || Invalid::new("ts", "24 hexadecimal digits", format!("{text:?}"));
        if text.len() != 24 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(refused());
        }
        let mut bytes = [0; 12];
        for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| refused())?;
        }
        Ok(Self(bytes))
    }
}

/// Name of a process whose ping keeps its locks, `host:port:start-second:random` by custom: 1 to 255 bytes, no control
/// characters, the same for the process's whole life.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId(#[serde(deserialize_with = "text::shared")] Arc<str>);

impl ProcessId {
    /// Refuses what is empty, longer than 255 bytes, or has a control character.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        if text.is_empty() || limits::PROCESS_BYTES_MAX < text.len() || text.chars().any(char::is_control) {
            let bound = format!("1 to {} bytes, no control characters", limits::PROCESS_BYTES_MAX);
            return Err(Invalid::new("process", bound, format!("{} bytes: {text:?}", text.len())));
        }
        Ok(Self(text.into()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &self.0)
    }
}

/// A change that is made only if something is as its caller saw it. New variants are added at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DocumentCommand {
    /// Take the lock if it is free, or if its document is the one that was seen. Repeated with the same `ts`, the first
    /// grant counts; a `ts` whose hold has ended gets nothing any more.
    Grab(Grab),
    /// Free the documents with this `ts`. Matching nothing is a success. Where the name is said, the `ts` is spent: a
    /// grab with it that comes later gets nothing.
    Unlock {
        /// Where.
        namespace: Namespace,
        /// Which acquisition.
        ts: DocumentId,
        /// Of this lock only.
        name: Option<LockName>,
    },
    /// Free every document of a process.
    UnlockAll {
        /// Where.
        namespace: Namespace,
        /// Whose.
        process: ProcessId,
        /// Only those of this election term or an earlier one.
        term: Option<u64>,
    },
    /// Note that a process lives.
    Ping {
        /// Where.
        namespace: Namespace,
        /// Which.
        process: ProcessId,
    },
    /// Forget a process. Its locks stay, and may be overtaken in time.
    StopPing {
        /// Where.
        namespace: Namespace,
        /// Which.
        process: ProcessId,
    },
    /// End a hold that is over, if it is still the one that was seen: by the cluster's time, whatever the caller's clock
    /// says. One that was prolonged since, or is not over, is left alone.
    RemoveExpired {
        /// Which lock.
        lock: LockKey,
        /// Which grant.
        token: FencingToken,
        /// Its end as it was seen.
        deadline: LogTime,
    },
    /// Change the text that is kept with a hold without a session, if it still is what was seen.
    SwapValue {
        /// Which lock.
        lock: LockKey,
        /// Proof of the hold.
        handle: Handle,
        /// The text as it was seen; `None` for none.
        seen: Option<LockValue>,
        /// The new one.
        value: Option<LockValue>,
    },
    /// Make a document that is being prepared a held one. One that is held already stays so; whose hold has ended is told
    /// how.
    Confirm {
        /// Which lock.
        lock: LockKey,
        /// Which acquisition.
        ts: DocumentId,
    },
}

/// A document as it is to be. See [`DocumentCommand::Grab`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grab {
    /// Its `_id`.
    pub lock: LockKey,
    /// Drawn anew for each acquisition.
    pub ts: DocumentId,
    /// `process`, `who` and `why`.
    pub metadata: Metadata,
    /// The election term in which it was made, where the process keeps one.
    pub term: Option<u64>,
    /// It is only being prepared, as older processes do it in two steps: nobody else gets the lock meanwhile.
    pub prepare: bool,
    /// The document that it takes over, as it was seen: a free one, or a held one with this `ts`, whose hold ends then. A
    /// waiter in the lock's queue comes first. Without a document, or with another one, the grab is refused. `None` takes
    /// a free lock only.
    pub seen: Option<DocumentId>,
}

impl Grab {
    /// Refuses a process that is not named as a process has to be.
    pub fn checked(&self) -> Result<(), Invalid> {
        ProcessId::parse(&self.metadata.process).map(|_| ())
    }
}

/// Whether a document's lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DocumentState {
    /// 0.
    Free,
    /// 2.
    Held,
    /// 1: held for whoever has yet to confirm it.
    Prepared,
}

impl DocumentState {
    /// As the original writes it.
    #[must_use]
    pub fn number(self) -> i32 {
        match self {
            DocumentState::Free => 0,
            DocumentState::Held => 2,
            DocumentState::Prepared => 1,
        }
    }

    /// Whether nobody else gets the lock.
    #[must_use]
    pub fn is_taken(self) -> bool {
        self != DocumentState::Free
    }
}

/// A lock as a document of `config.locks`. A native hold is shown as one too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// `_id`, and where.
    pub lock: LockKey,
    /// `state`.
    pub state: DocumentState,
    /// `ts`.
    pub ts: DocumentId,
    /// `process`: the id of the session where a native holder names none.
    pub process: Arc<str>,
    /// `who`: what the holder is called, see [`Metadata::name`].
    pub who: Arc<str>,
    /// `why`.
    pub why: Arc<str>,
    /// `when`, by the leader's wall clock.
    pub when: WallTime,
    /// `term`.
    pub term: Option<u64>,
    /// The fencing token of the newest grant.
    pub token: FencingToken,
    /// It was taken natively: it ends with its session or lease, and nobody overtakes it.
    pub native: bool,
}

/// A sign of life as a document of `config.lockpings`. A session is shown as one too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessPing {
    /// `_id`: the id of the session where it names no process.
    pub process: Arc<str>,
    /// `ping`, by the leader's wall clock.
    pub ping: WallTime,
}

/// Which documents to show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhichDocuments {
    /// Those whose names come after this one.
    After(Option<LockName>),
    /// The one of this name.
    Named(LockName),
    /// Those with this `ts`, free or held.
    Stamped(DocumentId),
}

/// Which signs of life to show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhichPings {
    /// Those of processes whose names come after this one.
    After(Option<Arc<str>>),
    /// The one of this process.
    Of(Arc<str>),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `ts` is written and read as 24 digits; anything else is refused by name.
    #[test]
    fn a_document_id_is_24_digits() {
        let id = DocumentId([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 255]);
        assert_eq!(id.to_string(), "0102030405060708090a0bff");
        assert_eq!("0102030405060708090A0BFF".parse(), Ok(id));
        for bad in ["", "0102030405060708090a0bf", "0102030405060708090a0bfg", "+102030405060708090a0bff", "ä"] {
            assert_eq!(bad.parse::<DocumentId>().expect_err("refused").field, "ts", "{bad}");
        }
        assert_eq!(id.take().0 >> 96, 0);
        assert_eq!(id.handle().reveal(), id.to_string());
    }

    /// A process is named within bounds.
    #[test]
    fn processes_are_refused_beyond_their_bounds() {
        assert!(ProcessId::parse(&"x".repeat(255)).is_ok());
        for bad in ["", "a\nb", &"x".repeat(256)] {
            assert_eq!(ProcessId::parse(bad).expect_err("refused").field, "process");
        }
    }
}
