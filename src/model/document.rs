//! Locks as documents: the fields of a config server's collections `locks` and `lockpings`, and commands with the
//! condition that something still is as the caller saw it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    FencingToken, Handle, Invalid, LeaseRequestId, LockKey, LockName, LockValue, LogTime, Metadata, Namespace,
    WallTime, text,
};
use crate::limits;

/// The `ts` of a document: twelve bytes that its owner chose at random for one acquisition. Clients of the config
/// server know it as an ObjectId. It is public, and enough to unlock the document.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DocumentId(pub [u8; 12]);

impl DocumentId {
    /// The `ts` that is shown for a native hold. It consists of the second of the grant and the fencing token.
    #[must_use]
    pub fn of_grant(when: WallTime, token: FencingToken) -> Self {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&((when.0 / 1000) as u32).to_be_bytes());
        bytes[4..].copy_from_slice(&token.as_u64().to_be_bytes());
        Self(bytes)
    }

    /// The take id of the acquisition in the machine. Its top 32 bits are zero, so a random take id equals it only by
    /// chance.
    #[must_use]
    pub fn take_id(self) -> LeaseRequestId {
        let mut bytes = [0; 16];
        bytes[4..].copy_from_slice(&self.0);
        LeaseRequestId(u128::from_be_bytes(bytes))
    }

    /// The handle that proves the acquisition to commands that need one. It is no secret, because the `ts` is public.
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

    /// Returns an error for a text other than 24 hexadecimal digits.
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

/// The name of a process that keeps its locks by pings: 1 to 255 bytes, no control characters, the same for the whole
/// life of the process. By convention it is `host:port:start-second:random`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId(#[serde(deserialize_with = "text::shared")] Arc<str>);

impl ProcessId {
    /// Refuses a text that is empty, longer than 255 bytes, or has a control character.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        text::bounded("process", text, limits::PROCESS_BYTES_MAX).map(Self)
    }

    /// The bound of a search by name. The text need not be the legal name of a process.
    pub(crate) fn search_bound(text: Arc<str>) -> Self {
        Self(text)
    }
}

text::shown!(ProcessId);

/// A change on condition that something still is as the caller saw it. New variants are added at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DocumentCommand {
    /// Takes the lock if it is free, or if its document is the one that the caller saw. A grab with the same `ts` gets
    /// the result of the first one, and no lock if the first hold has ended.
    Grab(Grab),
    /// Frees the documents with this `ts`. Succeeds also if there is none. With a name, the `ts` is used up: a later
    /// grab with it gets no lock.
    Unlock {
        /// The namespace of the documents.
        namespace: Namespace,
        /// The acquisition to end.
        ts: DocumentId,
        /// Only this lock. `None` for all documents with this `ts`.
        name: Option<LockName>,
    },
    /// Frees every document of a process.
    UnlockAll {
        /// The namespace of the documents.
        namespace: Namespace,
        /// The process that holds them.
        process: ProcessId,
        /// Only documents of this election term or an earlier one.
        term: Option<u64>,
    },
    /// Records that a process is alive.
    Ping {
        /// The namespace of the process.
        namespace: Namespace,
        /// The process that is alive.
        process: ProcessId,
    },
    /// Removes the record of a process. Its locks stay until they are overtaken.
    StopPing {
        /// The namespace of the process.
        namespace: Namespace,
        /// The process to forget.
        process: ProcessId,
    },
    /// Ends a hold whose deadline has passed by log time, if it still is the hold that the caller saw. A hold that was
    /// prolonged in the meantime, or whose deadline has not passed, stays.
    RemoveExpired {
        /// The lock's full name.
        lock: LockKey,
        /// The token of the grant.
        token: FencingToken,
        /// The deadline of the hold as the caller saw it.
        deadline: LogTime,
    },
    /// Changes the text of a hold without a session, if the text still is what the caller saw.
    SwapValue {
        /// The lock's full name.
        lock: LockKey,
        /// Proves the hold.
        handle: Handle,
        /// The text that the caller saw. `None` if it saw no text.
        seen: Option<LockValue>,
        /// The new text. `None` removes it.
        value: Option<LockValue>,
    },
    /// Turns a prepared document into a held one. Does not change a held document. If the hold has ended, the answer is
    /// how it ended.
    Confirm {
        /// The lock's full name.
        lock: LockKey,
        /// The acquisition to confirm.
        ts: DocumentId,
    },
}

/// The content of [`DocumentCommand::Grab`]: the document to create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grab {
    /// The document's `_id`.
    pub lock: LockKey,
    /// A new random value for each acquisition.
    pub ts: DocumentId,
    /// The document's `process`, `who` and `why`.
    pub metadata: Metadata,
    /// The election term in which the document is made, if the process keeps one.
    pub term: Option<u64>,
    /// Whether to only prepare the document, as older processes do in two steps. No other client gets the lock
    /// meanwhile.
    pub prepare: bool,
    /// The document to take over, as the caller saw it: a free one, or a held one with this `ts`, whose hold then ends.
    /// A waiter in the lock's queue takes precedence. The grab is refused if there is no document or a different one.
    /// `None` takes only a free lock.
    pub seen: Option<DocumentId>,
}

impl Grab {
    /// Refuses metadata whose `process` is not a valid [`ProcessId`].
    pub fn checked(&self) -> Result<(), Invalid> {
        ProcessId::parse(&self.metadata.process).map(|_| ())
    }
}

/// Whether a document's lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DocumentState {
    /// State 0: not held.
    Free,
    /// State 2: held.
    Held,
    /// State 1: reserved for a process that has not confirmed it yet.
    Prepared,
}

impl DocumentState {
    /// The number in the document's field `state`.
    #[must_use]
    pub fn number(self) -> i32 {
        match self {
            DocumentState::Free => 0,
            DocumentState::Held => 2,
            DocumentState::Prepared => 1,
        }
    }

    /// Whether the lock is unavailable to other clients.
    #[must_use]
    pub fn is_taken(self) -> bool {
        self != DocumentState::Free
    }
}

/// A lock as a document of `config.locks`. A native hold is shown as a document too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// The document's `_id`, with its namespace.
    pub lock: LockKey,
    /// The field `state`.
    pub state: DocumentState,
    /// The field `ts`.
    pub ts: DocumentId,
    /// The field `process`. For a native holder that names no process, the id of its session.
    pub process: Arc<str>,
    /// The field `who`: the holder's name, see [`Metadata::name`].
    pub who: Arc<str>,
    /// The field `why`.
    pub why: Arc<str>,
    /// The field `when`, by the leader's wall clock.
    pub when: WallTime,
    /// The field `term`.
    pub term: Option<u64>,
    /// The fencing token of the newest grant.
    pub token: FencingToken,
    /// Whether the lock was taken natively. The hold then ends with its session or lease, and cannot be overtaken.
    pub native: bool,
}

/// A sign of life as a document of `config.lockpings`. A session is shown as a document too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessPing {
    /// The document's `_id`. For a session that names no process, the id of the session.
    pub process: Arc<str>,
    /// The field `ping`, by the leader's wall clock.
    pub ping: WallTime,
}

/// Which documents to show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhichDocuments {
    /// Documents whose names come after this one.
    After(Option<LockName>),
    /// The document with this name.
    Named(LockName),
    /// Documents with this `ts`, free or held.
    Stamped(DocumentId),
}

/// Which signs of life to show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhichPings {
    /// Signs of life of processes whose names come after this one.
    After(Option<Arc<str>>),
    /// The sign of life of this process.
    Of(Arc<str>),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `ts` is written and read as 24 digits. The error for any other text names the field.
    #[test]
    fn a_document_id_is_24_digits() {
        let id = DocumentId([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 255]);
        assert_eq!(id.to_string(), "0102030405060708090a0bff");
        assert_eq!("0102030405060708090A0BFF".parse(), Ok(id));
        for bad in ["", "0102030405060708090a0bf", "0102030405060708090a0bfg", "+102030405060708090a0bff", "ä"] {
            assert_eq!(bad.parse::<DocumentId>().expect_err("refused").field, "ts", "{bad}");
        }
        assert_eq!(id.take_id().0 >> 96, 0);
        assert_eq!(id.handle().reveal(), id.to_string());
    }

    /// A process name is accepted up to its bounds and refused beyond them.
    #[test]
    fn processes_are_refused_beyond_their_bounds() {
        assert!(ProcessId::parse(&"x".repeat(255)).is_ok());
        for bad in ["", "a\nb", &"x".repeat(256)] {
            assert_eq!(ProcessId::parse(bad).expect_err("refused").field, "process");
        }
    }
}
