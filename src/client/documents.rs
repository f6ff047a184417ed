//! Locks as documents, with conditional changes: the cluster changes a document only if it is still as the caller saw
//! it. The recipes in [`compat`](crate::compat) use them.

use std::sync::Arc;

use super::client::{Client, ReadAt, read};
use super::error::ClientError;
use super::lease::lease_call;
use super::query::filled;
use super::retry::{Retry, repeated};
use crate::model::{
    Command, Document, DocumentCommand, DocumentId, FencingToken, Grab, Handle, LockName, LockValue, LogTime, Metadata,
    Outcome, Page, Part, ProcessId, ProcessPing, Query, Refusal, Reply, WallTime, WhichDocuments, WhichPings,
};
use crate::service::{Call, LockService, ServiceError};

/// The grant of a document that a process now holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grabbed {
    /// The fencing token of the grant.
    pub token: FencingToken,
    /// Log time of the answer.
    pub at: LogTime,
    /// Log index of the answer. The entry that ends the hold has this index or a larger one.
    pub index: u64,
}

/// The content of a document that is about to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDocument {
    /// The document's id, which must be new for each acquisition.
    pub ts: DocumentId,
    /// Keys `process` (required), `who` and `why`.
    pub metadata: Metadata,
    /// The election term in which the document was made, if the process has one.
    pub term: Option<u64>,
    /// Whether to only prepare the lock. Then no other process gets it, and the caller must [confirm](Client::confirm)
    /// it.
    pub prepare: bool,
}

impl<S: LockService> Client<S> {
    /// Takes a lock as a document if no process holds it, until it is unlocked. A repetition with the same `ts` returns
    /// the first grant.
    ///
    /// A refusal is not remembered: an earlier attempt without an answer may still take the lock, until the `ts` is
    /// [unlocked](Self::unlock) with the name.
    pub async fn grab(&self, name: &str, new: NewDocument) -> Result<Grabbed, ClientError> {
        self.grab_noting_doubt(name, None, new, &mut false).await
    }

    /// Takes a lock whose document is free or still has the `ts` that the caller saw. As with [`grab`](Self::grab), a
    /// refusal is not remembered.
    pub async fn overtake(&self, name: &str, seen: DocumentId, new: NewDocument) -> Result<Grabbed, ClientError> {
        self.grab_noting_doubt(name, Some(seen), new, &mut false).await
    }

    /// Like [`grab`](Self::grab), or like [`overtake`](Self::overtake) of a document that the caller saw. Sets
    /// `in_doubt` if an attempt had no answer, so that it may have been executed or may still be.
    pub(crate) async fn grab_noting_doubt(
        &self,
        name: &str,
        seen: Option<DocumentId>,
        new: NewDocument,
        in_doubt: &mut bool,
    ) -> Result<Grabbed, ClientError> {
        let grab = self.new_document(name, new, seen)?;
        let (lock, mut retry) = (grab.lock.name.clone(), self.retry());
        let answer = self.change(DocumentCommand::Grab(grab), &mut retry).await;
        *in_doubt |= retry.is_in_doubt();
        grabbed(lock, answer?)
    }

    /// Turns a prepared document into a held one. A repetition has no further effect.
    pub async fn confirm(&self, name: &str, ts: DocumentId) -> Result<Grabbed, ClientError> {
        let lock = self.key(LockName::parse(name)?);
        let name = lock.name.clone();
        grabbed(name, self.change(DocumentCommand::Confirm { lock, ts }, &mut self.retry()).await?)
    }

    /// Frees the documents with this `ts`, or only the one with this name. Returns how many were held; zero is not an
    /// error. If an answer is lost, the repetition does not count what the first attempt has freed.
    pub async fn unlock(&self, ts: DocumentId, name: Option<&str>) -> Result<u64, ClientError> {
        let namespace = self.settings.namespace.clone();
        let name = name.map(LockName::parse).transpose()?;
        self.freed(DocumentCommand::Unlock { namespace, ts, name }).await
    }

    /// Frees every document of a process, or those of an election term and earlier terms. Returns how many were held;
    /// if an answer is lost, the repetition does not count what the first attempt has freed.
    pub async fn unlock_all(&self, process: ProcessId, term: Option<u64>) -> Result<u64, ClientError> {
        let namespace = self.settings.namespace.clone();
        self.freed(DocumentCommand::UnlockAll { namespace, process, term }).await
    }

    /// Records that a process is alive.
    pub async fn ping(&self, process: ProcessId) -> Result<(), ClientError> {
        let namespace = self.settings.namespace.clone();
        self.done_with(DocumentCommand::Ping { namespace, process }).await
    }

    /// Removes the record of a process. Its documents stay.
    pub async fn stop_ping(&self, process: ProcessId) -> Result<(), ClientError> {
        let namespace = self.settings.namespace.clone();
        self.done_with(DocumentCommand::StopPing { namespace, process }).await
    }

    /// Ensures that a hold that the caller saw with this end has ended by the cluster's time. Refused as *changed* if
    /// the hold was extended since, and as *held* if it has not ended yet.
    pub async fn remove_expired(&self, name: &str, token: FencingToken, end: LogTime) -> Result<(), ClientError> {
        let lock = self.key(LockName::parse(name)?);
        self.done_with(DocumentCommand::RemoveExpired { lock, token, deadline: end }).await
    }

    /// Replaces the text kept with a lease if it still equals `seen`. Otherwise the change is refused, and the error
    /// has the current text.
    ///
    /// The error is *unknown* if an attempt had no answer and its repetition found another text: that attempt may have
    /// replaced the text, or another caller with this handle. Read the text before the next change.
    pub async fn swap_value(
        &self,
        name: &str,
        handle: &Handle,
        seen: Option<LockValue>,
        value: Option<LockValue>,
    ) -> Result<(), ClientError> {
        let lock = self.key(LockName::parse(name)?);
        let swap = DocumentCommand::SwapValue { lock, handle: handle.clone(), seen, value };
        let call = Call::new(Command::Document(swap));
        let (reply, in_doubt) = repeated(&self.service, &call, &mut self.retry()).await?;
        if in_doubt && matches!(reply.outcome, Outcome::Refused(Refusal::Changed { .. })) {
            let why = "the text is another one, by an attempt of this call or by another caller with this handle";
            return Err(ServiceError::unknown(why).into());
        }
        if reply.outcome == Outcome::Done { Ok(()) } else { Err(ClientError::unexpected(reply.outcome)) }
    }

    /// Returns the lock of this name as a document; `None` if no process holds it and none ever held it as a document.
    pub async fn document(&self, name: &str) -> Result<ReadAt<Option<Document>>, ClientError> {
        let page = self.find(WhichDocuments::Named(LockName::parse(name)?), 1).await?;
        Ok(ReadAt { index: page.index, now: page.now, value: page.value.rows.into_iter().next() })
    }

    /// Returns the documents with this `ts`, held or free, at most [`PAGE_ROWS_MAX`](crate::limits::PAGE_ROWS_MAX) of
    /// them. If `more` is set there are others, which only [`documents`](Self::documents) returns.
    pub async fn documents_stamped(&self, ts: DocumentId) -> Result<ReadAt<Page<Document>>, ClientError> {
        let ReadAt { index, now, value: Part { rows, next } } =
            self.find(WhichDocuments::Stamped(ts), u32::MAX).await?;
        Ok(ReadAt { index, now, value: Page { rows, more: next.is_some() } })
    }

    /// Returns one page of the namespace's locks as documents, in the order of names, after the given name.
    pub async fn documents(&self, after: Option<LockName>, rows: u32) -> Result<ReadAt<Page<Document>>, ClientError> {
        filled(after, rows, |after, rows| self.find(WhichDocuments::After(after), rows)).await
    }

    /// Returns the last time at which a process, or a session that names it, was known to be alive.
    pub async fn ping_of(&self, process: &str) -> Result<ReadAt<Option<WallTime>>, ClientError> {
        let page = self.find_pings(WhichPings::Of(process.into()), 1).await?;
        Ok(ReadAt { index: page.index, now: page.now, value: page.value.rows.first().map(|row| row.ping) })
    }

    /// Returns one page of the namespace's processes and when each was last known to be alive, after the given process.
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

    async fn freed(&self, command: DocumentCommand) -> Result<u64, ClientError> {
        let outcome = self.change(command, &mut self.retry()).await?.outcome;
        let Outcome::Freed { locks } = outcome else { return Err(ClientError::unexpected(outcome)) };
        Ok(locks)
    }

    async fn done_with(&self, command: DocumentCommand) -> Result<(), ClientError> {
        let outcome = self.change(command, &mut self.retry()).await?.outcome;
        if outcome == Outcome::Done { Ok(()) } else { Err(ClientError::unexpected(outcome)) }
    }

    /// Repeats the change until it is answered. A repetition changes nothing more, but it counts only what it frees
    /// itself.
    async fn change(&self, command: DocumentCommand, retry: &mut Retry) -> Result<Reply, ClientError> {
        let clock = &self.settings.clock;
        let (since, began) = (self.log_time().await?, clock.now());
        let command = Command::Document(command);
        let attempt = || self.service.submit(lease_call(command.clone(), &**clock, began, since));
        Ok(retry.until_answered(attempt).await?)
    }

    async fn find(&self, which: WhichDocuments, rows: u32) -> Result<ReadAt<Part<Document, LockName>>, ClientError> {
        let namespace = self.settings.namespace.clone();
        Ok(read!(self, Query::Documents { namespace, which, rows }, Documents))
    }

    async fn find_pings(&self, which: WhichPings, rows: u32) -> Result<ReadAt<Page<ProcessPing>>, ClientError> {
        let namespace = self.settings.namespace.clone();
        Ok(read!(self, Query::Pings { namespace, which, rows }, Pings))
    }
}

fn grabbed(lock: LockName, reply: Reply) -> Result<Grabbed, ClientError> {
    let Reply { index, stamp, outcome, .. } = reply;
    #[allow(clippy::wildcard_enum_match_arm, reason = "every other outcome is no answer to a grab")]
    match outcome {
        Outcome::Granted(grant) => Ok(Grabbed { token: grant.token, at: stamp, index }),
        Outcome::HoldEnded { reason } => Err(ClientError::HoldEnded { lock, reason }),
        Outcome::Withdrawn => Err(ClientError::NotAcquired { lock, holder: None, closed: None }),
        other => Err(ClientError::unexpected(other)),
    }
}
