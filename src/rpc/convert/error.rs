//! Errors as gRPC statuses with details and metadata, and as messages on the stream; rebuilt on the other side.
//!
//! The details are what every language reads: a `google.rpc.Status` with a `google.rpc.ErrorInfo`, a `google.rpc.RetryInfo` and our
//! own `Error`. The crate of those messages has no place for one of our own beside them, so that the few fields stand here.

use std::collections::BTreeMap;
use std::error::Error as _;

use prost::{Message, Name};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, ConnectError, Status};

use super::refusal;
use crate::limits;
use crate::model::{EndReason, Invalid, LockKey, LogTime, Outcome, Reply};
use crate::protobuf::{Refuse, TooMany};
use crate::rpc::pb;
use crate::service::{Advice, LeaderHint, NotSent, ServiceError, Word};

const WORD: &str = "lockkeeper-error";
const ADVICE: &str = "lockkeeper-advice";
const LEADER: &str = "lockkeeper-leader";
/// Who defines the reasons in an `ErrorInfo`.
const DOMAIN: &str = "lockkeeper";

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RichStatus {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
    #[prost(string, tag = "2")]
    pub(super) message: String,
    #[prost(message, repeated, tag = "3")]
    pub(super) details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Any {
    #[prost(string, tag = "1")]
    pub(super) type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
}

impl Any {
    fn new(name: &str, message: &impl Message) -> Self {
        Self { type_url: format!("type.googleapis.com/{name}"), value: message.encode_to_vec() }
    }
}

/// `google.rpc.ErrorInfo`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ErrorInfo {
    /// The word of the error in capital letters.
    #[prost(string, tag = "1")]
    pub(super) reason: String,
    #[prost(string, tag = "2")]
    pub(super) domain: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub(super) metadata: BTreeMap<String, String>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    pub(super) retry_delay: Option<Delay>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Delay {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(super) nanos: i32,
}

/// An error as a call's status.
pub(in crate::rpc) fn error_to_status(error: &ServiceError) -> Status {
    status(error, 0, LogTime::default())
}

/// A list that is too long is refused like any other input that is out of bounds.
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
        return Err(status(&ServiceError::Refused(refusal.clone()), reply.index, reply.stamp));
    }
    Ok(pb::Reply { namespace: namespace.to_owned(), ..reply.into() })
}

/// The error of a repeated acquire whose hold has ended since.
pub(in crate::rpc) fn hold_ended(lock: &LockKey, reason: EndReason) -> Status {
    let text = format!("{} was granted to this request, and the hold has ended since: {reason}", lock.name);
    let row = Word::Lost.row();
    let (code, advice) = (row.text.to_owned(), row.advice.word().to_owned());
    of_wire(Word::Lost, pb::Error { code, advice, ..Default::default() }, text)
}

fn status(error: &ServiceError, index: u64, stamp: LogTime) -> Status {
    let wire = pb::Error { index, stamp_ms: stamp.0, detail: String::new(), ..error_to_wire(error) };
    of_wire(error.word(), wire, error.to_string())
}

/// The status of an error, in the size that every client takes: where it is long, first its text is cut, and then what was
/// exactly in the way is left out.
fn of_wire(word: Word, mut error: pb::Error, text: String) -> Status {
    let row = word.row();
    let mut metadata = MetadataMap::new();
    metadata.insert(WORD, MetadataValue::from_static(row.text));
    metadata.insert(ADVICE, MetadataValue::from_static(row.advice.word()));
    if let Some(leader) = &error.leader
        && let Ok(hint) = format!("{} {}", leader.node, leader.client).parse()
    {
        metadata.insert(LEADER, hint);
    }
    let code = Code::from(i32::from(row.grpc));
    let mut message = text;
    let mut details = rich(code, &message, &error);
    if limits::ERROR_STATUS_BYTES_MAX < bytes_in_headers(&message, &details) {
        let shortest = rich(code, "", &error);
        if limits::ERROR_STATUS_BYTES_MAX < bytes_in_headers("", &shortest) + 4 * limits::ERROR_TEXT_BYTES_MIN {
            error.refusal = None;
        }
        while limits::ERROR_STATUS_BYTES_MAX < bytes_in_headers(&message, &rich(code, &message, &error)) {
            message.truncate(refusal::beginning(&message, message.len() * 7 / 8).len());
        }
        details = rich(code, &message, &error);
    }
    Status::with_details_and_metadata(code, message, details.into(), metadata)
}

/// How many bytes of a call's headers the message and the details take: the one is escaped, the others are in base 64.
pub(super) fn bytes_in_headers(message: &str, details: &[u8]) -> usize {
    let escaped = |byte: &u8| if matches!(byte, b' '..=b'~') && *byte != b'%' { 1 } else { 3 };
    message.as_bytes().iter().map(escaped).sum::<usize>() + details.len().div_ceil(3) * 4 + limits::ERROR_REST_BYTES
}

/// The details of a status.
fn rich(code: Code, message: &str, error: &pb::Error) -> Vec<u8> {
    let metadata = BTreeMap::from([("advice".to_owned(), error.advice.clone())]);
    let reason = error.code.to_uppercase().replace('-', "_");
    let info = ErrorInfo { reason, domain: DOMAIN.to_owned(), metadata };
    let mut details = vec![Any::new("google.rpc.ErrorInfo", &info)];
    if error.retry_after_ms > 0 {
        let (seconds, ms) = (error.retry_after_ms / 1_000, error.retry_after_ms % 1_000);
        let (seconds, nanos) = (i64::try_from(seconds).unwrap_or(i64::MAX), ms as i32 * 1_000_000);
        let retry = RetryInfo { retry_delay: Some(Delay { seconds, nanos }) };
        details.push(Any::new("google.rpc.RetryInfo", &retry));
    }
    details.push(Any::new(&pb::Error::full_name(), error));
    RichStatus { code: code as i32, message: message.to_owned(), details }.encode_to_vec()
}

/// An error as a message on the stream.
pub(in crate::rpc) fn error_to_wire(error: &ServiceError) -> pb::Error {
    let row = error.word().row();
    pb::Error {
        code: row.text.to_owned(),
        detail: error.to_string(),
        advice: row.advice.word().to_owned(),
        leader: error.leader().map(Into::into),
        retry_after_ms: refusal::pause_ms(error),
        index: 0,
        stamp_ms: 0,
        refusal: Some(refusal::why(error)),
    }
}

/// The error in a message of the stream.
pub(in crate::rpc) fn error_from_wire(error: &pb::Error) -> ServiceError {
    let leader = || error.leader.clone().map(LeaderHint::from);
    let read = error.refusal.clone().and_then(|why| refusal::read(why, leader(), error.retry_after_ms).ok());
    read.unwrap_or_else(|| by_word(&error.code, &error.detail, leader()))
}

/// The reply in the status of a refused call: the exact outcome with the place where it was decided.
pub(in crate::rpc) fn decided(status: &Status) -> Option<Reply> {
    let wire = wire(status)?;
    let ServiceError::Refused(refusal) = error_from_wire(&wire) else { return None };
    Some(Reply::new(wire.index, LogTime(wire.stamp_ms), Outcome::Refused(refusal)))
}

/// The error in a status. One without our metadata comes from the way: the request was certainly not sent
/// only where no connection came about or it was turned away whole.
pub(in crate::rpc) fn error_from_status(status: &Status) -> ServiceError {
    if let Some(wire) = wire(status) {
        return error_from_wire(&wire);
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

/// Our own part of a status' details, with the status' message as its text.
fn wire(status: &Status) -> Option<pb::Error> {
    let details = RichStatus::decode(status.details()).ok()?.details;
    let own = details.iter().find(|any| any.type_url.ends_with("/lockkeeper.v1.Error"))?;
    let error = crate::protobuf::read::<pb::Error, AsInvalid>(own.value.as_slice()).ok()?;
    Some(pb::Error { detail: status.message().to_owned(), ..error })
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
