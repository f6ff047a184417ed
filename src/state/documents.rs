//! Documents, free or held, and signs of life of processes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::{DocumentId, FencingToken, LockName, LogTime, Metadata, Namespace, ProcessId, WallTime};

/// The fields that a document has in addition to those of every hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentMark {
    /// The document's `ts`. Its claim is the take with that id.
    pub ts: DocumentId,
    /// The election term in which the document was made.
    pub term: Option<u64>,
    /// Whether the document is not confirmed yet. Always `false` in a free document.
    pub prepared: bool,
}

/// The document of a lock without a holder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreeDocument {
    /// The document's `ts` and term.
    pub mark: DocumentMark,
    /// What its last holder stated about itself.
    pub metadata: Arc<Metadata>,
    /// When the last holder was granted the lock, by the leader's wall clock.
    pub when: WallTime,
    /// The token of the last grant.
    pub token: FencingToken,
}

/// A process that gave signs of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessRecord {
    /// The last sign of life, by the leader's wall clock.
    pub ping: WallTime,
    /// The record is removed when log time passes this, unless the process holds locks.
    pub forget_after: LogTime,
}

/// The remaining work of a command that frees many documents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unlocking {
    /// The namespace of the documents.
    pub namespace: Namespace,
    /// Which documents it frees.
    pub which: WhichHeld,
    /// The newest token when the command was executed. Documents with newer tokens stay.
    pub newest: FencingToken,
    /// When the command was executed.
    pub since: LogTime,
    /// The next name to look at. All names before it are done.
    pub next: LockName,
}

/// Held documents that are freed together. New variants are added at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WhichHeld {
    /// All of one process, or those of this election term and earlier ones.
    Process(ProcessId, Option<u64>),
    /// All documents with this `ts`.
    Stamp(DocumentId),
}
