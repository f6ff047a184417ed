//! Errors: every kind is unchanged after a round trip, and the largest fits the headers that every client accepts.

use std::collections::{BTreeSet, HashSet};
use std::mem::discriminant;

use prost::Message;
use prost_types::Any;
use tonic::{Code, Status};
use tonic_types::pb::{ErrorInfo, RetryInfo, Status as RichStatus};

use super::super::{error_from_wire, error_to_wire};
use crate::limits;
use crate::model::{
    BoundAdvice, Claim, Closing, DeadlockLink, DurationField, EndReason, FencingToken, HolderView, Invalid, Kind,
    LeaseRequestId, LockKey, LockName, LockValue, LogTime, Metadata, Mode, Namespace, Owner, Position, Principal,
    QuotaKind, Reason, Refusal, SessionId, WaitReason,
};
use crate::rpc::pb;
use crate::service::{ErrorCode, LeaderHint, NotSent, ServiceError, TABLE};

/// Returns a text of this length in which every character is escaped.
fn long(bytes: usize) -> String {
    "ä".repeat(bytes / 2) + &"x".repeat(bytes % 2)
}

fn lock() -> LockKey {
    let namespace = Namespace::parse(&"n".repeat(limits::NAMESPACE_BYTES_MAX)).expect("legal");
    LockKey { namespace, name: LockName::parse(&long(limits::LOCK_NAME_BYTES_MAX)).expect("legal") }
}

fn session() -> SessionId {
    SessionId::from_u64((1 << 63) - 1).expect("the largest")
}

fn token() -> FencingToken {
    FencingToken::from_u64((1 << 63) - 1).expect("the largest")
}

fn owner() -> Owner {
    Owner::parse(&"o".repeat(limits::OWNER_BYTES_MAX)).expect("legal")
}

fn holder() -> Box<HolderView> {
    let long_text = long(limits::METADATA_BYTES_MAX / 2 - 16);
    Box::new(HolderView {
        session: Some(session()),
        owner: Some(owner()),
        principal: Principal::parse(&"p".repeat(64)).expect("legal"),
        token: token(),
        mode: Mode::Permits(limits::PERMITS_MAX),
        metadata: Metadata {
            who: long_text.as_str().into(),
            why: long_text.into(),
            pid: u32::MAX,
            ..Metadata::default()
        },
        since: LogTime(u64::MAX),
        deadline: Some(LogTime(u64::MAX)),
        cached: true,
        recalled: true,
    })
}

fn cycle() -> Vec<DeadlockLink> {
    let who: std::sync::Arc<str> = long(limits::CYCLE_TEXT_BYTES_MAX).into();
    let why = WaitReason::StandsAhead;
    let link = DeadlockLink { session: session(), owner: owner(), who: who.clone(), what_for: who, lock: lock(), why };
    vec![link; limits::CYCLE_LINKS_MAX]
}

/// Returns one of every refusal, each as large as possible.
fn refusals() -> Vec<Refusal> {
    let (lock, session, number) = (lock(), session(), u64::MAX);
    let closing = Closing { token: token(), who: long(200).into(), until: LogTime(number), left_ms: number / 2 };
    let why = Reason::parse(&long(limits::REASON_BYTES_MAX)).expect("legal");
    let value = LockValue::parse(&long(limits::LOCK_VALUE_BYTES_MAX)).expect("legal");
    let (limit, asked) = (u32::MAX, u32::MAX - 1);
    vec![
        Refusal::Held { lock: lock.clone(), holder: Some(holder()), closed: None },
        Refusal::Held { lock: lock.clone(), holder: None, closed: Some(Box::new(closing)) },
        Refusal::AlreadyHeld { lock: lock.clone(), session, token: Some(token()) },
        Refusal::KindMismatch { lock: lock.clone(), kind: Kind::Semaphore },
        Refusal::LimitMismatch { lock: lock.clone(), limit, asked },
        Refusal::Deadlock { cycle: cycle() },
        Refusal::LimitExceeded { lock: lock.clone(), limit, asked },
        Refusal::LimitUnknown { lock: lock.clone() },
        Refusal::Quota { what: QuotaKind::HoldersOfLock, limit: number },
        Refusal::NotHeld { lock: lock.clone() },
        Refusal::HeldByOther { lock: lock.clone(), holder: holder() },
        Refusal::SessionEnded { session, reason: EndReason::Broken, why: Some(why) },
        Refusal::AlreadyOpen { session },
        Refusal::Tombstoned { reason: EndReason::Lost },
        Refusal::WrongHandle,
        Refusal::StaleAttempt { newest: number },
        Refusal::TooOld { number, floor: number },
        Refusal::RequestReused { claim: Claim::Lease(LeaseRequestId(9)) },
        Refusal::OutOfBounds {
            field: DurationField::Ttl,
            low: 1,
            high: number,
            value: 0,
            advice: BoundAdvice::RaiseToFloor,
        },
        Refusal::OtherDisk { node: number },
        Refusal::FeaturesUnsupported { to: limit, node: number, supports: Some(asked) },
        Refusal::FeatureLevel { needed: limit, active: asked },
        Refusal::Reentered { lock: lock.clone(), depth: limit },
        Refusal::NotAccepted { lock: lock.clone(), session },
        Refusal::Changed { lock: lock.clone(), value: Some(value) },
        Refusal::MembersUnfit { why: long(limits::ERROR_TEXT_BYTES_MAX) },
        Refusal::Closed { left_ms: number },
        Refusal::PermitsNotHeld { lock: lock.clone(), held: limit, asked },
        Refusal::OtherNamespace { session, namespace: lock.namespace.clone(), asked: lock.namespace },
    ]
}

/// Returns one of every error that is not a refusal.
fn faults() -> Vec<ServiceError> {
    let text = || long(limits::ERROR_TEXT_BYTES_MAX);
    let leader = || Some(LeaderHint { node: u64::MAX, client: "h".repeat(255) + ":65535" });
    let not_sent = |why| ServiceError::NotSent { why, leader: leader() };
    vec![
        not_sent(NotSent::NotLeader),
        not_sent(NotSent::NoLeader),
        not_sent(NotSent::Unreachable(text())),
        not_sent(NotSent::Overloaded { pause_ms: 1_250 }),
        not_sent(NotSent::Detached),
        not_sent(NotSent::RateExceeded { a_second: 7, pause_ms: 90 }),
        not_sent(NotSent::LimitReached { limit: text(), pause_ms: 90 }),
        ServiceError::Unknown { why: text(), leader: leader() },
        ServiceError::Invalid(Invalid::new("lock", text(), long(1_000))),
        ServiceError::Forbidden { why: text() },
        ServiceError::Unauthenticated { why: text() },
        ServiceError::EventsMissed { why: text(), resume: Position { index: u64::MAX, n: u32::MAX } },
        ServiceError::Stopping,
        ServiceError::Internal(text()),
    ]
}

fn all() -> Vec<ServiceError> {
    faults().into_iter().chain(refusals().into_iter().map(ServiceError::Refused)).collect()
}

/// Returns the size of a status in the headers of a call, as clients of other languages count them: names, values, and
/// 32 bytes for each.
fn in_headers(status: &tonic::Status) -> usize {
    let headers = status.clone().into_http::<()>().into_parts().0.headers;
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum()
}

/// Every error of the table is unchanged after a round trip, as a status and as a frame, even the largest; and its
/// status fits the 8 KiB that every client accepts. Only `lost` is never sent: the client detects it by its own clock.
#[test]
fn every_error_reads_back_and_fits() {
    let (mut codes, mut largest) = (BTreeSet::from([ErrorCode::Lost.row().text]), 0);
    let (mut kinds, mut refused, mut not_sent) = (HashSet::new(), HashSet::new(), HashSet::new());
    for error in all() {
        let (status, wire) = (Status::from(error.clone()), error_to_wire(&error));
        assert_eq!(ServiceError::from(status.clone()), error);
        assert_eq!(error_from_wire(&wire), error);
        let bytes_of_names = 2 * (32 + 32 + 32);
        let bytes = in_headers(&status) + bytes_of_names;
        assert!(bytes <= limits::ERROR_STATUS_BYTES_MAX, "{bytes} bytes: {error}");
        assert!(status.message().len() >= limits::ERROR_TEXT_BYTES_MIN.min(error.to_string().len()), "{error}");
        largest = largest.max(bytes);
        codes.insert(error.code().row().text);
        let refusal = wire.refusal.expect("what was in the way");
        kinds.insert(discriminant(&refusal));
        if let pb::error::Refusal::Refused(pb::Refused { why: Some(why) }) = &refusal {
            refused.insert(discriminant(why));
        }
        if let pb::error::Refusal::NotSent(pb::NotSent { why: Some(why) }) = &refusal {
            not_sent.insert(discriminant(why));
        }
    }
    assert!(limits::ERROR_STATUS_BYTES_MAX / 2 < largest, "only {largest} bytes: none was large");
    assert_eq!(codes, TABLE.iter().map(|row| row.text).collect(), "an error of the table was not tried");
    let file = include_str!("../../../../proto/lockkeeper/v1/error.proto");
    let choices = |oneof: &str| {
        let choices = file.split(oneof).nth(1).and_then(|rest| rest.split("\n  }").next()).expect("its choices");
        choices.lines().filter(|line| line.ends_with(';')).count()
    };
    let tried = (kinds.len(), refused.len(), not_sent.len());
    let all = (choices("oneof refusal {"), choices("message Refused {"), choices("message NotSent {"));
    assert_eq!(tried, all, "a kind was not tried");
}

/// A text without an end is cut between two characters; the rest of its error is kept.
#[test]
fn a_text_without_an_end_is_cut() {
    for error in [ServiceError::unknown(long(100_001)), ServiceError::Internal(long(100_000))] {
        let status = Status::from(error.clone());
        assert!(in_headers(&status) <= limits::ERROR_STATUS_BYTES_MAX);
        let read = ServiceError::from(status.clone());
        assert_eq!(discriminant(&read), discriminant(&error));
        assert!(error.to_string().starts_with(status.message()), "{status:?}");
    }
}

/// Clients of every language can read the details: the code and the text of the status, the error code as a reason, the
/// pause if one is requested, and this crate's own message.
#[test]
fn details_are_those_of_google() {
    for error in all() {
        let (status, row) = (Status::from(error.clone()), error.code().row());
        let rich = RichStatus::decode(status.details()).expect("a status");
        assert_eq!((rich.code, rich.message.as_str()), (i32::from(row.grpc), status.message()), "they are compared");
        let of = |name: &str| {
            let is = |any: &&Any| any.type_url == format!("type.googleapis.com/{name}");
            rich.details.iter().find(is).map(|any| any.value.clone())
        };
        let info = ErrorInfo::decode(of("google.rpc.ErrorInfo").expect("why").as_slice()).expect("readable");
        assert_eq!((info.reason, info.domain), (row.text.to_uppercase().replace('-', "_"), "lockkeeper".to_owned()));
        assert_eq!(info.metadata["advice"], row.advice.word());
        let pause = of("google.rpc.RetryInfo").map(|info| RetryInfo::decode(info.as_slice()).expect("readable"));
        let pause = pause.and_then(|info| info.retry_delay).map(|delay| (delay.seconds, delay.nanos));
        let pauses = [(1_250, (1, 250_000_000)), (90, (0, 90_000_000))];
        let asked =
            pauses.into_iter().find(|(ms, _)| *ms == error_to_wire(&error).retry_after_ms).map(|(_, delay)| delay);
        assert_eq!(asked.is_some(), error.code() == ErrorCode::Overloaded, "{error}");
        assert_eq!(pause, asked, "{error}");
        assert!(of("lockkeeper.v1.Error").is_some());
    }
}

/// A client that knows none of this crate's messages gets the error code, the advice and the leader as plain metadata,
/// and a sentence.
#[test]
fn a_client_without_our_messages_reads_words() {
    for error in all() {
        let (status, row) = (Status::from(error.clone()), error.code().row());
        let text = |key: &str| status.metadata().get(key).map(|value| value.to_str().expect("text"));
        assert_eq!((text("lockkeeper-error"), text("lockkeeper-advice")), (Some(row.text), Some(row.advice.word())));
        assert_eq!(text("lockkeeper-leader").is_some(), error.leader().is_some());
        assert!(!status.message().is_empty() && status.code() != Code::Ok, "{error:?}");
    }
}
