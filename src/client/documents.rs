//! Locks as documents: changes that are made only if something is as it was seen. What is pleasant is made of them in
//! [`compat`](crate::compat).

use std::sync::Arc;

use super::client::{Client, ReadAt, read};
use super::error::ClientError;
use super::lease::lease_call;
use crate::model::{
    Command, Document, DocumentCommand, DocumentId, FencingToken, Grab, Handle, LockName, LockValue, LogTime, Metadata,
    Outcome, Page, ProcessId, ProcessPing, Query, Reply, WallTime, WhichDocuments, WhichPings,
};
use crate::service::LockService;

/// A document that a process has just come to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grabbed {
    /// The fencing token of the grant.
    pub token: FencingToken,
    /// Log time of the answer.
    pub at: LogTime,
    /// Log index of the answer: what ends the hold stands in this entry or a later one.
    pub index: u64,
}

/// A document as it is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDocument {
    /// Drawn anew for each acquisition.
    pub ts: DocumentId,
    /// `process`, which has to be said, `who` and `why`.
    pub metadata: Metadata,
    /// The election term in which it was made, where the process keeps one.
    pub term: Option<u64>,
    /// Only prepare it: nobody else gets the lock, and it is to be [confirmed](Client::confirm).
    pub prepare: bool,
}

impl<S: LockService> Client<S> {
    /// Takes a lock as a document if nobody has it, until it is unlocked. Repeated with the same `ts` it is the first one.
    pub async fn grab(&self, name: &str, new: NewDocument) -> Result<Grabbed, ClientError> {
        let grab = self.new_document(name, new, None)?;
        self.grabbed(DocumentCommand::Grab(grab)).await
    }

    /// Takes a lock whose document is free, or still the one with the `ts` that was seen.
    pub async fn overtake(&self, name: &str, seen: DocumentId, new: NewDocument) -> Result<Grabbed, ClientError> {
        let grab = self.new_document(name, new, Some(seen))?;
        self.grabbed(DocumentCommand::Grab(grab)).await
    }

    /// Makes a document that is being prepared a held one; done twice it is done once.
    pub async fn confirm(&self, name: &str, ts: DocumentId) -> Result<Grabbed, ClientError> {
        let lock = self.key(LockName::parse(name)?);
        self.grabbed(DocumentCommand::Confirm { lock, ts }).await
    }

    /// Frees the documents with this `ts`, or the one of them with this name, and answers how many were held. None is a
    /// success, too.
    pub async fn unlock(&self, ts: DocumentId, name: Option<&str>) -> Result<u64, ClientError> {
        let namespace = self.settings.namespace.clone();
        let name = name.map(LockName::parse).transpose()?;
        self.freed(DocumentCommand::Unlock { namespace, ts, name }).await
    }

    /// Frees every document of a process, or those of an election term and earlier ones, and answers how many.
    pub async fn unlock_all(&self, process: ProcessId, term: Option<u64>) -> Result<u64, ClientError> {
        let namespace = self.settings.namespace.clone();
        self.freed(DocumentCommand::UnlockAll { namespace, process, term }).await
    }

    /// Notes that a process lives.
    pub async fn ping(&self, process: ProcessId) -> Result<(), ClientError> {
        let namespace = self.settings.namespace.clone();
        self.done_with(DocumentCommand::Ping { namespace, process }).await
    }

    /// Forgets a process. Its documents stay.
    pub async fn stop_ping(&self, process: ProcessId) -> Result<(), ClientError> {
        let namespace = self.settings.namespace.clone();
        self.done_with(DocumentCommand::StopPing { namespace, process }).await
    }

    /// Makes sure that a hold which was seen with this end is over by the cluster's time. One that was prolonged since is
    /// refused as changed, one that is not over as held.
    pub async fn remove_expired(&self, name: &str, token: FencingToken, end: LogTime) -> Result<(), ClientError> {
        let lock = self.key(LockName::parse(name)?);
        self.done_with(DocumentCommand::RemoveExpired { lock, token, deadline: end }).await
    }

    /// Changes the text kept with a lease if it still is what was seen; otherwise it is refused with what it is now.
    pub async fn swap_value(
        &self,
        name: &str,
        handle: &Handle,
        seen: Option<LockValue>,
        value: Option<LockValue>,
    ) -> Result<(), ClientError> {
        let lock = self.key(LockName::parse(name)?);
        self.done_with(DocumentCommand::SwapValue { lock, handle: handle.clone(), seen, value }).await
    }

    /// The lock of this name as a document; `None` where nobody holds it, and nobody held it as a document.
    pub async fn document(&self, name: &str) -> Result<ReadAt<Option<Document>>, ClientError> {
        let page = self.find(WhichDocuments::Named(LockName::parse(name)?), 1).await?;
        Ok(ReadAt { index: page.index, now: page.now, value: page.value.rows.into_iter().next() })
    }

    /// The documents with this `ts`, held or free.
    pub async fn documents_stamped(&self, ts: DocumentId) -> Result<ReadAt<Page<Document>>, ClientError> {
        self.find(WhichDocuments::Stamped(ts), u32::MAX).await
    }

    /// A page of the namespace's locks as documents, after the given name.
    pub async fn documents(&self, after: Option<LockName>, rows: u32) -> Result<ReadAt<Page<Document>>, ClientError> {
        self.find(WhichDocuments::After(after), rows).await
    }

    /// The last sign of life of a process, or of a session that names it.
    pub async fn ping_of(&self, process: &str) -> Result<ReadAt<Option<WallTime>>, ClientError> {
        let page = self.find_pings(WhichPings::Of(process.into()), 1).await?;
        Ok(ReadAt { index: page.index, now: page.now, value: page.value.rows.first().map(|row| row.ping) })
    }

    /// A page of the namespace's signs of life, after the given process.
    pub async fn pings(&self, after: Option<Arc<str>>, rows: u32) -> Result<ReadAt<Page<ProcessPing>>, ClientError> {
        self.find_pings(WhichPings::After(after), rows).await
    }

    fn new_document(&self, name: &str, new: NewDocument, seen: Option<DocumentId>) -> Result<Grab, ClientError> {
        let NewDocument { ts, metadata, term, prepare } = new;
        let (lock, metadata) = (self.key(LockName::parse(name)?), metadata.checked()?);
        let grab = Grab { lock, ts, metadata, term, prepare, seen };
        grab.checked()?;
        Ok(grab)
    }

    async fn grabbed(&self, command: DocumentCommand) -> Result<Grabbed, ClientError> {
        let name = match &command {
            DocumentCommand::Grab(grab) => Some(grab.lock.name.clone()),
            DocumentCommand::Confirm { lock, .. } => Some(lock.name.clone()),
            DocumentCommand::Unlock { .. }
            | DocumentCommand::UnlockAll { .. }
            | DocumentCommand::Ping { .. }
            | DocumentCommand::StopPing { .. }
            | DocumentCommand::RemoveExpired { .. }
            | DocumentCommand::SwapValue { .. } => None,
        };
        let Reply { index, stamp, outcome, .. } = self.change(command).await?;
        #[allow(clippy::wildcard_enum_match_arm, reason = "every other outcome is no answer to a grab")]
        match (outcome, name) {
            (Outcome::Granted(grant), _) => Ok(Grabbed { token: grant.token, at: stamp, index }),
            (Outcome::HoldEnded { reason }, Some(lock)) => Err(ClientError::HoldEnded { lock, reason }),
            (Outcome::Withdrawn, Some(lock)) => Err(ClientError::NotAcquired { lock, holder: None, closed: None }),
            (other, _) => Err(ClientError::unexpected(other)),
        }
    }

    async fn freed(&self, command: DocumentCommand) -> Result<u64, ClientError> {
        let outcome = self.change(command).await?.outcome;
        let Outcome::Freed { locks } = outcome else { return Err(ClientError::unexpected(outcome)) };
        Ok(locks)
    }

    async fn done_with(&self, command: DocumentCommand) -> Result<(), ClientError> {
        let outcome = self.change(command).await?.outcome;
        if outcome == Outcome::Done { Ok(()) } else { Err(ClientError::unexpected(outcome)) }
    }

    /// Repeats it until it is answered: each of these changes is the same when it is made twice.
    async fn change(&self, command: DocumentCommand) -> Result<Reply, ClientError> {
        let clock = &self.settings.clock;
        let (since, began) = (self.log_time().await?, clock.now());
        let command = Command::Document(command);
        let attempt = || self.service.submit(lease_call(command.clone(), &**clock, began, since).0);
        Ok(self.retry().until_answered(attempt).await?)
    }

    async fn find(&self, which: WhichDocuments, rows: u32) -> Result<ReadAt<Page<Document>>, ClientError> {
        let namespace = self.settings.namespace.clone();
        Ok(read!(self, Query::Documents { namespace, which, rows }, Documents))
    }

    async fn find_pings(&self, which: WhichPings, rows: u32) -> Result<ReadAt<Page<ProcessPing>>, ClientError> {
        let namespace = self.settings.namespace.clone();
        Ok(read!(self, Query::Pings { namespace, which, rows }, Pings))
    }
}
