//! Errors as gRPC statuses with metadata, and as messages on the stream; rebuilt exactly on the other side.

use std::error::Error as _;

use serde::{Deserialize, Serialize};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, ConnectError, Status};

use crate::model::{Invalid, LogTime, Outcome, Reply};
use crate::protobuf::{Refuse, TooMany};
use crate::rpc::pb;
use crate::service::{Advice, LeaderHint, NotSent, ServiceError, Word};

const WORD: &str = "lockkeeper-error";
const ADVICE: &str = "lockkeeper-advice";
const LEADER: &str = "lockkeeper-leader";
const DETAIL: &str = "lockkeeper-detail-bin";

/// The whole error, as it stands in `lockkeeper-detail-bin`.
#[derive(Debug, Serialize, Deserialize)]
struct Detail {
    error: ServiceError,
    /// For a refusal: the entry that decided it, and its stamp.
    #[serde(default)]
    index: u64,
    #[serde(default)]
    stamp_ms: u64,
}

/// An error as a call's status.
pub(in crate::rpc) fn error_to_status(error: &ServiceError) -> Status {
    status(Detail { error: error.clone(), index: 0, stamp_ms: 0 })
}

/// Clients are told of a list that is too long as of any other input that is out of bounds.
pub(crate) struct AsInvalid;

impl Refuse for AsInvalid {
    fn refuse(list: &TooMany) -> Status {
        let TooMany { field, most, found } = list;
        error_to_status(&Invalid::new(field, format!("at most {most}"), found).into())
    }
}

/// A reply as a call's answer: a refusal is the call's error.
#[allow(clippy::result_large_err)] // tonic's handlers answer so.
pub(in crate::rpc) fn reply_to_answer(namespace: &str, reply: &Reply) -> Result<pb::Reply, Status> {
    if let Outcome::Refused(refusal) = &reply.outcome {
        let error = ServiceError::Refused(refusal.clone());
        return Err(status(Detail { error, index: reply.index, stamp_ms: reply.stamp.0 }));
    }
    Ok(pb::Reply { namespace: namespace.to_owned(), ..reply.into() })
}

fn status(detail: Detail) -> Status {
    let row = detail.error.word().row();
    let mut metadata = MetadataMap::new();
    metadata.insert(WORD, MetadataValue::from_static(row.text));
    metadata.insert(ADVICE, MetadataValue::from_static(row.advice.word()));
    if let Some(leader) = detail.error.leader()
        && let Ok(hint) = format!("{} {}", leader.node, leader.client).parse()
    {
        metadata.insert(LEADER, hint);
    }
    metadata.insert_bin(DETAIL, MetadataValue::from_bytes(&json(&detail)));
    Status::with_metadata(Code::from(i32::from(row.grpc)), detail.error.to_string(), metadata)
}

/// An error as a message on the stream.
pub(in crate::rpc) fn error_to_wire(error: &ServiceError) -> pb::Error {
    let row = error.word().row();
    pb::Error {
        word: row.text.to_owned(),
        detail: error.to_string(),
        advice: row.advice.word().to_owned(),
        leader: error.leader().map(Into::into),
        json: json(&Detail { error: error.clone(), index: 0, stamp_ms: 0 }).into(),
    }
}

/// The JSON of an error; empty where serde fails, and the word stands for it.
fn json(detail: &Detail) -> Vec<u8> {
    serde_json::to_vec(detail).unwrap_or_default()
}

/// The error that a message on the stream tells.
pub(in crate::rpc) fn error_from_wire(error: &pb::Error) -> ServiceError {
    match serde_json::from_slice::<Detail>(&error.json) {
        Ok(detail) => detail.error,
        Err(_) => by_word(&error.word, &error.detail, error.leader.clone().map(Into::into)),
    }
}

/// The reply that a refused call tells in its status: the exact outcome with the place where it was decided.
pub(in crate::rpc) fn decided(status: &Status) -> Option<Reply> {
    let Detail { error: ServiceError::Refused(refusal), index, stamp_ms } = detail(status)? else {
        return None;
    };
    Some(Reply { index, stamp: LogTime(stamp_ms), outcome: Outcome::Refused(refusal) })
}

/// The error that a status tells. One without our metadata comes from the way: the request was certainly not sent
/// only where no connection came about or it was turned away whole.
pub(in crate::rpc) fn error_from_status(status: &Status) -> ServiceError {
    if let Some(detail) = detail(status) {
        return detail.error;
    }
    if let Some(word) = text(status, WORD) {
        return by_word(word, status.message(), text(status, LEADER).and_then(leader_from_text));
    }
    let why = why(status);
    if never_connected(status) {
        return ServiceError::not_sent(NotSent::Unreachable(why));
    }
    match status.code() {
        Code::PermissionDenied | Code::Unauthenticated => ServiceError::Forbidden { why },
        Code::Unimplemented | Code::InvalidArgument => {
            ServiceError::Internal(format!("the node refused the call: {why}"))
        }
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::NotFound
        | Code::AlreadyExists
        | Code::ResourceExhausted
        | Code::FailedPrecondition
        | Code::Aborted
        | Code::OutOfRange
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => ServiceError::unknown(why),
    }
}

/// The error for an answer that this version cannot read.
pub(in crate::rpc) fn not_understood(invalid: Invalid) -> ServiceError {
    ServiceError::Internal(format!("the node's answer was not understood: {invalid}"))
}

fn detail(status: &Status) -> Option<Detail> {
    let bytes = status.metadata().get_bin(DETAIL)?.to_bytes().ok()?;
    serde_json::from_slice(&bytes).ok()
}

fn text<'a>(status: &'a Status, key: &str) -> Option<&'a str> {
    status.metadata().get(key)?.to_str().ok()
}

fn leader_from_text(text: &str) -> Option<LeaderHint> {
    let (node, client) = text.split_once(' ')?;
    Some(LeaderHint { node: node.parse().ok()?, client: client.to_owned() })
}

/// What a newer node says in words that this version does not know in full: its advice is kept.
fn by_word(word: &str, detail: &str, leader: Option<LeaderHint>) -> ServiceError {
    match Word::from_text(word).map(|word| word.row().advice) {
        Some(Advice::Retry) => ServiceError::NotSent { why: NotSent::Unreachable(detail.to_owned()), leader },
        Some(Advice::Ask) | None => ServiceError::Unknown { why: format!("{word}: {detail}"), leader },
        Some(Advice::GiveUp) => ServiceError::Internal(format!("{word}: {detail}")),
    }
}

fn never_connected(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// The status' message with the innermost cause, which is what helps.
fn why(status: &Status) -> String {
    let mut innermost: Option<&dyn std::error::Error> = status.source();
    while let Some(next) = innermost.and_then(std::error::Error::source) {
        innermost = Some(next);
    }
    match innermost {
        Some(cause) if cause.to_string() != status.message() => format!("{}: {cause}", status.message()),
        Some(_) | None => status.message().to_owned(),
    }
}
