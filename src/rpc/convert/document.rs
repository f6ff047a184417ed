//! Locks as documents: changes and questions as they come in and are sent, and the documents themselves.

use std::sync::Arc;

use bytes::Bytes;

use super::answer::other_answer;
use super::command::Sent;
use super::part::{lock_key, metadata, namespace, required, rows};
use crate::limits;
use crate::model::{
    Command, Document, DocumentCommand, DocumentId, DocumentState, FencingToken, Grab, Handle, Invalid, LockName,
    LockValue, LogTime, Namespace, Page, ProcessId, ProcessPing, Query, QueryReply, QueryResult, WallTime,
    WhichDocuments, WhichPings,
};
use crate::rpc::pb;
use crate::rpc::pb::document_request::What;
use crate::service::{Call, ServiceError};

fn read_ts(bytes: &[u8]) -> Result<DocumentId, Invalid> {
    let whole = bytes.try_into().map_err(|_| Invalid::new("ts", "12 bytes", format!("{} bytes", bytes.len())))?;
    Ok(DocumentId(whole))
}

fn ts(id: DocumentId) -> Bytes {
    Bytes::copy_from_slice(&id.0)
}

fn value(text: Option<String>) -> Result<Option<LockValue>, Invalid> {
    text.map(|text| LockValue::parse(&text)).transpose()
}

fn read_grab(namespace_text: &str, grab: Option<pb::Grab>) -> Result<Grab, Invalid> {
    let grab = required("grab", grab)?;
    Ok(Grab {
        lock: lock_key(namespace_text, &grab.lock)?,
        ts: read_ts(&grab.ts)?,
        metadata: metadata(grab.metadata)?,
        term: grab.term,
        prepare: grab.prepare,
        seen: None,
    })
}

fn grab(grab: &Grab) -> pb::Grab {
    pb::Grab {
        lock: grab.lock.name.to_string(),
        ts: ts(grab.ts),
        metadata: Some((&grab.metadata).into()),
        term: grab.term,
        prepare: grab.prepare,
    }
}

impl TryFrom<pb::DocumentRequest> for Call {
    type Error = Invalid;
    fn try_from(asked: pb::DocumentRequest) -> Result<Self, Invalid> {
        let of = asked.namespace.as_str();
        let namespace = namespace(of)?;
        let command = match required("what", asked.what)? {
            What::Grab(grab) => DocumentCommand::Grab(read_grab(of, Some(grab))?),
            What::Overtake(overtake) => {
                let seen = Some(read_ts(&overtake.seen)?);
                DocumentCommand::Grab(Grab { seen, ..read_grab(of, overtake.grab)? })
            }
            What::Unlock(unlock) => {
                let name = unlock.lock.map(|name| LockName::parse(&name)).transpose()?;
                DocumentCommand::Unlock { namespace, ts: read_ts(&unlock.ts)?, name }
            }
            What::UnlockAll(all) => {
                let process = ProcessId::parse(&all.process)?;
                DocumentCommand::UnlockAll { namespace, process, term: all.term }
            }
            What::Ping(process) => DocumentCommand::Ping { namespace, process: ProcessId::parse(&process)? },
            What::StopPing(process) => DocumentCommand::StopPing { namespace, process: ProcessId::parse(&process)? },
            What::RemoveExpired(remove) => DocumentCommand::RemoveExpired {
                lock: lock_key(of, &remove.lock)?,
                token: FencingToken::from_u64(remove.token)?,
                deadline: LogTime(remove.deadline_ms),
            },
            What::SwapValue(swap) => DocumentCommand::SwapValue {
                lock: lock_key(of, &swap.lock)?,
                handle: Handle::parse(&swap.handle)?,
                seen: value(swap.seen)?,
                value: value(swap.value)?,
            },
            What::Confirm(confirm) => {
                DocumentCommand::Confirm { lock: lock_key(of, &confirm.lock)?, ts: read_ts(&confirm.ts)? }
            }
        };
        let since = asked.since_ms.map(LogTime);
        Ok(Call { age_ms: asked.age_ms, since, ..Call::new(Command::Document(command)) })
    }
}

/// A change, as it is sent.
impl From<(&DocumentCommand, Sent)> for pb::DocumentRequest {
    fn from((command, sent): (&DocumentCommand, Sent)) -> Self {
        let (namespace, what) = match command {
            DocumentCommand::Grab(asked) => {
                let what = match asked.seen {
                    None => What::Grab(grab(asked)),
                    Some(seen) => What::Overtake(pb::Overtake { grab: Some(grab(asked)), seen: ts(seen) }),
                };
                (&asked.lock.namespace, what)
            }
            DocumentCommand::Unlock { namespace, ts: id, name } => {
                (namespace, What::Unlock(pb::Unlock { ts: ts(*id), lock: name.as_ref().map(ToString::to_string) }))
            }
            DocumentCommand::UnlockAll { namespace, process, term } => {
                (namespace, What::UnlockAll(pb::UnlockAll { process: process.to_string(), term: *term }))
            }
            DocumentCommand::Ping { namespace, process } => (namespace, What::Ping(process.to_string())),
            DocumentCommand::StopPing { namespace, process } => (namespace, What::StopPing(process.to_string())),
            DocumentCommand::RemoveExpired { lock, token, deadline } => {
                let (name, token, deadline_ms) = (lock.name.to_string(), token.as_u64(), deadline.0);
                (&lock.namespace, What::RemoveExpired(pb::RemoveExpired { lock: name, token, deadline_ms }))
            }
            DocumentCommand::SwapValue { lock, handle, seen, value } => {
                let swap = pb::SwapValue {
                    lock: lock.name.to_string(),
                    handle: handle.reveal().to_owned(),
                    seen: seen.as_ref().map(ToString::to_string),
                    value: value.as_ref().map(ToString::to_string),
                };
                (&lock.namespace, What::SwapValue(swap))
            }
            DocumentCommand::Confirm { lock, ts: id } => {
                (&lock.namespace, What::Confirm(pb::Confirm { lock: lock.name.to_string(), ts: ts(*id) }))
            }
        };
        let since_ms = sent.since.map(|since| since.0);
        Self { namespace: namespace.to_string(), age_ms: sent.age_ms, since_ms, what: Some(what) }
    }
}

impl TryFrom<pb::FindDocumentsRequest> for Query {
    type Error = Invalid;
    fn try_from(asked: pb::FindDocumentsRequest) -> Result<Self, Invalid> {
        let name = |name: Option<String>| name.map(|name| LockName::parse(&name)).transpose();
        let which = match name(asked.lock)? {
            Some(name) => WhichDocuments::Named(name),
            None if !asked.ts.is_empty() => WhichDocuments::Stamped(read_ts(&asked.ts)?),
            None => WhichDocuments::After(name(asked.after)?),
        };
        Ok(Query::Documents { namespace: namespace(&asked.namespace)?, which, rows: rows(asked.rows)? })
    }
}

/// A question for documents, as it is sent.
pub(in crate::rpc) fn find_documents(
    namespace: &Namespace,
    which: &WhichDocuments,
    rows: u32,
    freshness: i32,
) -> pb::FindDocumentsRequest {
    let asked = pb::FindDocumentsRequest { namespace: namespace.to_string(), rows, freshness, ..Default::default() };
    match which {
        WhichDocuments::After(after) => {
            pb::FindDocumentsRequest { after: after.as_ref().map(ToString::to_string), ..asked }
        }
        WhichDocuments::Named(name) => pb::FindDocumentsRequest { lock: Some(name.to_string()), ..asked },
        WhichDocuments::Stamped(id) => pb::FindDocumentsRequest { ts: ts(*id), ..asked },
    }
}

impl TryFrom<pb::PingsRequest> for Query {
    type Error = Invalid;
    fn try_from(asked: pb::PingsRequest) -> Result<Self, Invalid> {
        let named = |field: &str, text: String| -> Result<Arc<str>, Invalid> {
            let bound = limits::METADATA_BYTES_MAX;
            if bound < text.len() {
                return Err(Invalid::new(field, format!("at most {bound} bytes"), format!("{} bytes", text.len())));
            }
            Ok(text.into())
        };
        let which = match asked.process {
            Some(process) => WhichPings::Of(named("process", process)?),
            None => WhichPings::After(asked.after.map(|after| named("after", after)).transpose()?),
        };
        Ok(Query::Pings { namespace: namespace(&asked.namespace)?, which, rows: rows(asked.rows)? })
    }
}

/// A question for signs of life, as it is sent.
pub(in crate::rpc) fn find_pings(
    namespace: &Namespace,
    which: &WhichPings,
    rows: u32,
    freshness: i32,
) -> pb::PingsRequest {
    let (process, after) = match which {
        WhichPings::Of(process) => (Some(process.to_string()), None),
        WhichPings::After(after) => (None, after.as_ref().map(ToString::to_string)),
    };
    pb::PingsRequest { namespace: namespace.to_string(), process, after, rows, freshness }
}

impl From<&Document> for pb::Document {
    fn from(row: &Document) -> Self {
        Self {
            lock: row.lock.name.to_string(),
            state: row.state.number().unsigned_abs(),
            ts: ts(row.ts),
            process: row.process.to_string(),
            who: row.who.to_string(),
            why: row.why.to_string(),
            when_ms: row.when.0,
            term: row.term,
            token: row.token.as_u64(),
            native: row.native,
        }
    }
}

fn read_document(namespace_text: &str, row: pb::Document) -> Result<Document, Invalid> {
    Ok(Document {
        lock: lock_key(namespace_text, &row.lock)?,
        state: match row.state {
            0 => DocumentState::Free,
            1 => DocumentState::Prepared,
            2 => DocumentState::Held,
            other => return Err(Invalid::new("state", "0 to 2", other)),
        },
        ts: read_ts(&row.ts)?,
        process: row.process.into(),
        who: row.who.into(),
        why: row.why.into(),
        when: WallTime(row.when_ms),
        term: row.term,
        token: FencingToken::from_u64(row.token)?,
        native: row.native,
    })
}

/// Documents as an answer; `namespace` is the question's.
pub(in crate::rpc) fn documents(namespace: &Namespace, of: QueryReply) -> Result<pb::FindDocumentsReply, ServiceError> {
    let (index, now_ms) = (of.index, of.now.0);
    #[allow(clippy::wildcard_enum_match_arm, reason = "every other answer is to another question")]
    match of.answer {
        QueryResult::Documents(Page { rows, more }) => {
            let rows = rows.iter().map(Into::into).collect();
            Ok(pb::FindDocumentsReply { namespace: namespace.to_string(), index, now_ms, rows, more })
        }
        other => Err(other_answer(&other)),
    }
}

impl TryFrom<pb::FindDocumentsReply> for QueryReply {
    type Error = Invalid;
    fn try_from(reply: pb::FindDocumentsReply) -> Result<Self, Invalid> {
        let rows = reply.rows.into_iter().map(|row| read_document(&reply.namespace, row)).collect::<Result<_, _>>()?;
        let answer = QueryResult::Documents(Page { rows, more: reply.more });
        Ok(QueryReply { index: reply.index, now: LogTime(reply.now_ms), answer })
    }
}

/// Signs of life as an answer; `namespace` is the question's.
pub(in crate::rpc) fn pings(namespace: &Namespace, of: QueryReply) -> Result<pb::PingsReply, ServiceError> {
    let (index, now_ms) = (of.index, of.now.0);
    #[allow(clippy::wildcard_enum_match_arm, reason = "every other answer is to another question")]
    match of.answer {
        QueryResult::Pings(Page { rows, more }) => {
            let row = |row: &ProcessPing| pb::ProcessPing { process: row.process.to_string(), ping_ms: row.ping.0 };
            let rows = rows.iter().map(row).collect();
            Ok(pb::PingsReply { namespace: namespace.to_string(), index, now_ms, rows, more })
        }
        other => Err(other_answer(&other)),
    }
}

impl TryFrom<pb::PingsReply> for QueryReply {
    type Error = Invalid;
    fn try_from(reply: pb::PingsReply) -> Result<Self, Invalid> {
        let row = |row: pb::ProcessPing| ProcessPing { process: row.process.into(), ping: WallTime(row.ping_ms) };
        let answer = QueryResult::Pings(Page { rows: reply.rows.into_iter().map(row).collect(), more: reply.more });
        Ok(QueryReply { index: reply.index, now: LogTime(reply.now_ms), answer })
    }
}
