//! Documents, free or held; signs of life of processes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::{DocumentId, FencingToken, LockName, LogTime, Metadata, Namespace, ProcessId, WallTime};

/// What a document has besides the fields of every hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentMark {
    /// Its `ts`; the claim is the take of that name.
    pub ts: DocumentId,
    /// Its election term.
    pub term: Option<u64>,
    /// Not confirmed yet. Always false in a free document.
    pub prepared: bool,
}

/// The document of a lock that nobody holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeDocument {
    /// `ts` and term.
    pub mark: DocumentMark,
    /// What its last holder said of itself.
    pub metadata: Arc<Metadata>,
    /// When that came to hold it, by the leader's wall clock.
    pub when: WallTime,
    /// Under which token.
    pub token: FencingToken,
}

/// A process that gave signs of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessRecord {
    /// The last one, by the leader's wall clock.
    pub ping: WallTime,
    /// Forgotten when log time passes this, unless it has locks.
    pub forget_after: LogTime,
}

/// What is left of a command that freed many documents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unlocking {
    /// Where it frees documents.
    pub namespace: Namespace,
    /// Which documents it frees.
    pub which: WhichHeld,
    /// Documents with newer tokens came after the command, and stay.
    pub newest: FencingToken,
    /// When the command was executed.
    pub since: LogTime,
    /// All names before this one were gone through.
    pub next: LockName,
}

/// Held documents that are freed together. New variants are added at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhichHeld {
    /// All of one process, or those of one election term and before.
    Process(ProcessId, Option<u64>),
    /// All with this `ts`.
    Stamp(DocumentId),
}
