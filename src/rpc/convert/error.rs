//! Converts errors to gRPC statuses with details and metadata, and to messages on a stream, and back.
//!
//! Clients of every language can read the details: a `google.rpc.Status` with a `google.rpc.ErrorInfo`, a
//! `google.rpc.RetryInfo` and this crate's own `Error`.

use std::time::Duration;

use prost::{Message, Name};
use prost_types::Any;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, ConnectError, Status};
use tonic_types::pb::{ErrorInfo, RetryInfo, Status as RichStatus};

use super::table::Wire;
use crate::limits;
use crate::model::{DeadlockLink, EndReason, Invalid, LockKey, Refusal};
use crate::net::causes;
use crate::protobuf::{Refuse, TooMany};
use crate::rpc::pb;
use crate::service::{Advice, ErrorCode, LeaderHint, NotSent, ServiceError};

const CODE: &str = "lockkeeper-error";
const ADVICE: &str = "lockkeeper-advice";
const LEADER: &str = "lockkeeper-leader";
/// Domain of the reasons in an `ErrorInfo`.
const DOMAIN: &str = "lockkeeper";

impl From<ServiceError> for Status {
    fn from(error: ServiceError) -> Self {
        let mut wire = error_to_wire(&error);
        let text = std::mem::take(&mut wire.detail);
        of_wire(error.code(), wire, text)
    }
}

impl From<Invalid> for Status {
    fn from(invalid: Invalid) -> Self {
        ServiceError::Invalid(invalid).into()
    }
}

/// Refuses a list that is too long like any other value out of bounds.
pub(crate) struct AsInvalid;

impl Refuse for AsInvalid {
    fn refuse(list: &TooMany) -> Status {
        let TooMany { field, most, found } = list;
        Invalid::new(field, format!("at most {most}"), found).into()
    }
}

/// Returns the error of a repeated acquire whose hold has ended since.
pub(in crate::rpc) fn hold_ended(lock: &LockKey, reason: EndReason) -> Status {
    let text = format!("{} was granted to this request, and the hold has ended since: {reason}", lock.name);
    without_details(ErrorCode::Lost, text)
}

/// Returns the error of a repeated acquire whose wait was over before, or that was withdrawn.
pub(in crate::rpc) fn wait_over(lock: &LockKey) -> Status {
    let text = format!("{} was not acquired: the wait of this request is over, or it was withdrawn", lock.name);
    without_details(ErrorCode::NotAcquired, format!("{text}; send a new request"))
}

fn without_details(error: ErrorCode, text: String) -> Status {
    let row = error.row();
    let (code, advice) = (row.text.to_owned(), row.advice.word().to_owned());
    of_wire(error, pb::Error { code, advice, ..Default::default() }, text)
}

/// Returns the status of an error, at most as large as every client accepts: if it is too large, its text is cut first,
/// and then the details of the obstacle are left out.
fn of_wire(code: ErrorCode, mut error: pb::Error, text: String) -> Status {
    let row = code.row();
    let mut metadata = MetadataMap::new();
    metadata.insert(CODE, MetadataValue::from_static(row.text));
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
            let bytes_max = message.len() * 7 / 8;
            truncate(&mut message, bytes_max);
        }
        details = rich(code, &message, &error);
    }
    Status::with_details_and_metadata(code, message, details.into(), metadata)
}

/// Returns the size of the message and the details in the headers of a call: the message is escaped, the details are in
/// base 64.
pub(super) fn bytes_in_headers(message: &str, details: &[u8]) -> usize {
    let escaped = |byte: &u8| if matches!(byte, b' '..=b'~') && *byte != b'%' { 1 } else { 3 };
    message.as_bytes().iter().map(escaped).sum::<usize>() + details.len().div_ceil(3) * 4 + limits::ERROR_REST_BYTES
}

/// Returns the details of a status.
fn rich(code: Code, message: &str, error: &pb::Error) -> Vec<u8> {
    let any = |name: &str, value| Any { type_url: format!("type.googleapis.com/{name}"), value };
    let reason = error.code.to_uppercase().replace('-', "_");
    let metadata = [("advice".to_owned(), error.advice.clone())].into();
    let info = ErrorInfo { reason, domain: DOMAIN.to_owned(), metadata };
    let mut details = vec![any("google.rpc.ErrorInfo", info.encode_to_vec())];
    if error.retry_after_ms > 0 {
        let retry_delay = Duration::from_millis(error.retry_after_ms).try_into().ok();
        details.push(any("google.rpc.RetryInfo", RetryInfo { retry_delay }.encode_to_vec()));
    }
    details.push(any(&pb::Error::full_name(), error.encode_to_vec()));
    RichStatus { code: code as i32, message: message.to_owned(), details }.encode_to_vec()
}

/// Converts an error to a message on the stream.
pub(in crate::rpc) fn error_to_wire(error: &ServiceError) -> pb::Error {
    let row = error.code().row();
    pb::Error {
        code: row.text.to_owned(),
        detail: error.to_string(),
        advice: row.advice.word().to_owned(),
        leader: error.leader().map(LeaderHint::to_wire),
        retry_after_ms: error.pause_ms(),
        refusal: shortened(error.clone()).to_wire(),
    }
}

/// Cuts a text to at most `bytes_max` bytes, between two characters.
fn truncate(text: &mut String, bytes_max: usize) {
    let end = (0..=bytes_max.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or_default());
}

/// Cuts the texts of other programs in an error to the length that a message allows.
fn shortened(mut error: ServiceError) -> ServiceError {
    let cut = |text: &mut String| truncate(text, limits::ERROR_TEXT_BYTES_MAX);
    match &mut error {
        ServiceError::NotSent {
            why: NotSent::Unreachable(text) | NotSent::LimitReached { limit: text, .. }, ..
        }
        | ServiceError::Unknown { why: text, .. }
        | ServiceError::Forbidden { why: text }
        | ServiceError::Unauthenticated { why: text }
        | ServiceError::EventsMissed { why: text, .. }
        | ServiceError::Internal(text) => cut(text),
        ServiceError::Invalid(Invalid { field, bound, value }) => [field, bound, value].into_iter().for_each(cut),
        ServiceError::NotSent { .. } | ServiceError::Refused(_) | ServiceError::Stopping => {}
    }
    error
}

/// Converts a message on the stream to an error. An error of a newer node with unknown details keeps its advice.
pub(in crate::rpc) fn error_from_wire(error: &pb::Error) -> ServiceError {
    let pb::Error { code, detail, leader, refusal, .. } = error.clone();
    let leader = LeaderHint::from_wire("leader", leader).ok();
    match (Wire::from_wire("refusal", refusal), ErrorCode::from_text(&code).map(|code| code.row().advice)) {
        (Ok(ServiceError::NotSent { why, .. }), _) => ServiceError::NotSent { why, leader },
        (Ok(ServiceError::Unknown { why, .. }), _) => ServiceError::Unknown { why, leader },
        (Ok(error), _) => error,
        (Err(_), Some(Advice::Retry)) => ServiceError::NotSent { why: NotSent::Unreachable(detail), leader },
        (Err(_), Some(Advice::Ask) | None) => ServiceError::Unknown { why: format!("{code}: {detail}"), leader },
        (Err(_), Some(Advice::GiveUp)) => ServiceError::Internal(format!("{code}: {detail}")),
    }
}

/// Converts a status to an error. A status without this crate's metadata comes from the transport: the request was
/// certainly not sent only if there was no connection or the call was refused as a whole.
impl From<Status> for ServiceError {
    fn from(status: Status) -> Self {
        if let Some(wire) = wire(&status) {
            return error_from_wire(&wire);
        }
        let why = match causes(&status).skip(1).last() {
            Some(cause) if cause.to_string() != status.message() => format!("{}: {cause}", status.message()),
            Some(_) | None => status.message().to_owned(),
        };
        if causes(&status).any(|cause| cause.is::<ConnectError>()) {
            return Self::not_sent(NotSent::Unreachable(why));
        }
        if status.code() == Code::PermissionDenied {
            return Self::Forbidden { why };
        }
        if status.code() == Code::Unauthenticated {
            return Self::Unauthenticated { why };
        }
        if matches!(status.code(), Code::Unimplemented | Code::InvalidArgument) {
            return Self::Internal(format!("the node refused the call: {why}"));
        }
        Self::unknown(why)
    }
}

/// Returns the error for an answer that this version cannot decode.
pub(in crate::rpc) fn not_understood(invalid: Invalid) -> ServiceError {
    ServiceError::Internal(format!("the node's answer was not understood: {invalid}"))
}

/// Returns this crate's own part of the details of a status, with the status message as its text.
fn wire(status: &Status) -> Option<pb::Error> {
    let details = RichStatus::decode(status.details()).ok()?.details;
    let own = details.iter().find(|any| any.type_url.ends_with("/lockkeeper.v1.Error"))?;
    let error = crate::protobuf::read::<pb::Error, AsInvalid>(own.value.as_slice()).ok()?;
    Some(pb::Error { detail: status.message().to_owned(), ..error })
}

wire_messages! {
    LeaderHint = Leader { node, client }
    Invalid = InvalidValue { field, bound, value }
    DeadlockLink = DeadlockLink { session, owner, who, what_for, lock, why }
}

wire_oneof! {
    Refusal = refused::Why in Refused.why {
        Held = HeldLock { lock, holder, closed },
        AlreadyHeld = AlreadyHeld { lock, session, token },
        KindMismatch = KindMismatch { lock, kind },
        LimitMismatch = LimitConflict { lock, limit, asked },
        LimitExceeded = LimitConflict { lock, limit, asked },
        LimitUnknown { lock },
        Deadlock = Cycle { ; links: cycle },
        Quota = ReachedQuota { limit; kind: what },
        NotHeld { lock },
        HeldByOther = OtherHolder { lock, holder },
        SessionEnded = SessionEnded { session, reason, why },
        AlreadyOpen { session },
        Tombstoned { reason },
        WrongHandle,
        StaleAttempt { newest },
        TooOld = OldRequest { number, floor },
        RequestReused { claim },
        OutOfBounds = OutOfBounds { field, advice; low_ms: low, high_ms: high, value_ms: value },
        OtherDisk { node },
        FeaturesUnsupported = UnsupportedLevel { to, node, supports },
        FeatureLevel = LowLevel { needed, active },
        Reentered = ReenteredHold { lock, depth },
        NotAccepted = UnwillingSession { lock, session },
        Changed = ChangedLock { lock, value },
        MembersUnfit { why },
        Closed { left_ms },
        PermitsNotHeld = PermitConflict { lock, held, asked },
        OtherNamespace = OtherNamespace { session, namespace, asked },
    }
}

wire_oneof! {
    ServiceError = error::Refusal {
        NotSent { why + leader },
        Unknown { why + leader },
        Invalid(invalid),
        Refused(refused),
        Forbidden { why },
        EventsMissed = MissedEvents { why, resume },
        Stopping,
        Internal(text),
        Unauthenticated { why },
    }
}

wire_oneof! {
    NotSent = not_sent::Why in NotSent.why {
        NotLeader,
        NoLeader,
        Unreachable(text),
        Overloaded { pause_ms },
        Detached,
        RateExceeded = ExceededRate { a_second, pause_ms },
        LimitReached = ReachedLimit { limit, pause_ms },
    }
}
