//! Errors as problem details (RFC 9457), with the codes and advice of the error table.

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use crate::client::ClientError;
use crate::model::{DurationField, EndReason, Invalid, LockKey, LogTime, Namespace, Refusal};
use crate::service::{ErrorCode, ServiceError};
use crate::shapes::{CycleLink, Holder, LeaderNode};

/// Why a request failed.
#[derive(Debug)]
pub(in crate::http) enum Failed {
    /// The service did not do it, as of this point of the log.
    Service(Box<ServiceError>, Decided),
    /// A value of the request, or the request itself, is not one that this port accepts.
    Malformed(StatusCode, Invalid),
    /// The request was granted before, and its hold has ended.
    Lost { lock: String, reason: EndReason, decided: Decided },
    /// The wait of the request was over before this copy of it arrived, or the request was withdrawn.
    WaitOver { lock: String, decided: Decided },
}

/// Where in the log an error was decided.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::http) struct Decided {
    /// Index of the entry; `None` if it is not known.
    index: Option<u64>,
    /// The log time; 0 if it is not known.
    now: LogTime,
}

impl Decided {
    /// At this entry and log time.
    pub(super) fn at(index: u64, now: LogTime) -> Self {
        Self { index: Some(index), now }
    }
}

impl From<ServiceError> for Failed {
    fn from(error: ServiceError) -> Self {
        Failed::Service(Box::new(error), Decided::default())
    }
}

impl From<Invalid> for Failed {
    fn from(invalid: Invalid) -> Self {
        Failed::Malformed(StatusCode::BAD_REQUEST, in_request(&invalid))
    }
}

impl Failed {
    /// The error of a call of the client, which was decided at this point of the log.
    pub(super) fn of_client(error: ClientError, namespace: &Namespace, at: Decided) -> Self {
        match error {
            ClientError::NotAcquired { lock, holder, closed } => {
                let lock = LockKey { namespace: namespace.clone(), name: lock };
                Self::refused(Refusal::Held { lock, holder, closed }, at)
            }
            ClientError::Refused(refusal) => Self::refused(refusal, at),
            ClientError::SessionLost { session, reason, why } => {
                let reason = reason.unwrap_or(EndReason::Expired);
                Self::refused(Refusal::SessionEnded { session, reason, why }, at)
            }
            ClientError::HoldEnded { lock, reason } => Self::Lost { lock: lock.to_string(), reason, decided: at },
            ClientError::Service(error) => error.into(),
            ClientError::Invalid(invalid) => ServiceError::Invalid(invalid).into(),
        }
    }

    /// A refusal that was decided at this point of the log.
    pub(super) fn refused(refusal: Refusal, at: Decided) -> Self {
        Failed::Service(Box::new(refusal.into()), at)
    }

    /// An answer that does not belong to the request.
    pub(super) fn unexpected(answer: impl std::fmt::Debug) -> Self {
        ServiceError::Internal(format!("the service answered another request: {answer:?}")).into()
    }

    /// An error of the request itself, with the status that says so.
    pub(in crate::http) fn malformed(status: StatusCode, field: &str, bound: &str, value: &str) -> Self {
        Failed::Malformed(status, Invalid::new(field, bound, value))
    }
}

/// Gives the error of a value the name that the caller has for its field.
pub(super) fn named<T>(field: &str, read: Result<T, Invalid>) -> Result<T, Invalid> {
    read.map_err(|invalid| Invalid { field: field.to_owned(), ..invalid })
}

/// An error: what happened, and what the caller can do.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Problem {
    /// `/v1/errors#` and the code of the error.
    #[serde(rename = "type")]
    kind: String,
    /// Description of the error, the same for all its causes.
    title: &'static str,
    status: u16,
    /// Description of this cause.
    detail: String,
    /// Code of the error, one of `/v1/errors`.
    error: &'static str,
    /// `retry`: nothing happened, try again. `ask`: it may have happened, repeat it with the same `request`.
    /// `give_up`: a retry does not help.
    advice: &'static str,
    leader: Option<LeaderNode>,
    #[serde(flatten)]
    more: More,
}

/// Fields that only some errors have.
#[derive(Debug, Default, Serialize, ToSchema)]
struct More {
    /// The field of the request that was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    /// The values that the field may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    bound: Option<String>,
    /// The value that was refused; for `changed`, the value that is stored now.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    /// One of the holders.
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<Holder>,
    /// The waiters of a deadlock.
    #[serde(skip_serializing_if = "Option::is_none")]
    cycle: Option<Vec<CycleLink>>,
    /// The bound that was reached, or the limit of the semaphore.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    /// Time to wait before a retry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pause_ms: Option<u64>,
    /// The position to continue from.
    #[serde(skip_serializing_if = "Option::is_none")]
    resume: Option<String>,
    /// How the session or the hold ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl More {
    fn of(error: &ServiceError, now: LogTime) -> Self {
        let pause_ms = Some(error.pause_ms()).filter(|pause_ms| *pause_ms != 0);
        let more = Self { pause_ms, ..Self::default() };
        match error {
            ServiceError::Invalid(invalid) => Self::of_value(&in_request(invalid)),
            ServiceError::Refused(refusal) => Self::of_refusal(refusal, now),
            ServiceError::EventsMissed { resume, .. } => Self { resume: Some(resume.to_string()), ..more },
            ServiceError::NotSent { .. }
            | ServiceError::Unknown { .. }
            | ServiceError::Forbidden { .. }
            | ServiceError::Stopping
            | ServiceError::Internal(_)
            | ServiceError::Unauthenticated { .. } => more,
        }
    }

    fn of_value(invalid: &Invalid) -> Self {
        let Invalid { field, bound, value } = invalid.clone();
        Self { field: Some(field), bound: Some(bound), value: Some(value), ..Self::default() }
    }

    fn of_refusal(refusal: &Refusal, now: LogTime) -> Self {
        let none = Self::default();
        match refusal {
            Refusal::Held { holder, .. } => {
                Self { holder: holder.as_deref().map(|holder| Holder::new(holder, now)), ..none }
            }
            Refusal::HeldByOther { holder, .. } => Self { holder: Some(Holder::new(holder, now)), ..none },
            Refusal::Deadlock { cycle } => Self { cycle: Some(cycle.iter().map(CycleLink::new).collect()), ..none },
            Refusal::LimitMismatch { limit, .. } | Refusal::LimitExceeded { limit, .. } => {
                Self { limit: Some(u64::from(*limit)), ..none }
            }
            Refusal::Quota { limit, .. } => Self { limit: Some(*limit), ..none },
            Refusal::SessionEnded { reason, .. } | Refusal::Tombstoned { reason } => {
                Self { reason: Some(reason.to_string()), ..none }
            }
            Refusal::Changed { value, .. } => Self { value: value.as_ref().map(ToString::to_string), ..none },
            Refusal::Closed { left_ms } => Self { pause_ms: Some(*left_ms), ..none },
            // The refusal has the age of the request, and the caller sent a log time.
            Refusal::OutOfBounds { field: DurationField::Age, high, value: age_ms, .. } => Self {
                field: Some(SINCE.to_owned()),
                bound: Some(recent(*high)),
                value: now.0.checked_sub(*age_ms).map(|since| since.to_string()),
                ..none
            },
            Refusal::OutOfBounds { field, low, high, value, .. } => {
                Self::of_value(&in_request(&Invalid::new(&field.to_string(), format!("{low} to {high}"), value)))
            }
            Refusal::OtherNamespace { namespace, asked, .. } => {
                Self::of_value(&Invalid::new("namespace", format!("that of the session, {namespace}"), asked.as_str()))
            }
            Refusal::AlreadyHeld { .. }
            | Refusal::KindMismatch { .. }
            | Refusal::LimitUnknown { .. }
            | Refusal::NotHeld { .. }
            | Refusal::AlreadyOpen { .. }
            | Refusal::WrongHandle
            | Refusal::StaleAttempt { .. }
            | Refusal::TooOld { .. }
            | Refusal::RequestReused { .. }
            | Refusal::OtherDisk { .. }
            | Refusal::FeaturesUnsupported { .. }
            | Refusal::FeatureLevel { .. }
            | Refusal::Reentered { .. }
            | Refusal::NotAccepted { .. }
            | Refusal::MembersUnfit { .. }
            | Refusal::PermitsNotHeld { .. } => none,
        }
    }
}

/// The field for the log time that the caller of a lease knew before its first try.
const SINCE: &str = "since_ms";

/// Returns the bound of a log time that is at most this old.
fn recent(age_ms_max: u64) -> String {
    format!("a log time of the last {} minutes", age_ms_max / 60_000)
}

/// Returns the error for a value of the model with the name that a request has for its field.
fn in_request(invalid: &Invalid) -> Invalid {
    let field = match &*invalid.field {
        "take" => "request",
        "wait" => "wait_ms",
        "ttl" => "ttl_ms",
        "lease" => "lease_ms",
        "delay" => "delay_ms",
        "at_least" => "at_least_ms",
        "at_most" => "at_most_ms",
        "since" => SINCE,
        other => other,
    };
    Invalid { field: field.to_owned(), ..invalid.clone() }
}

/// Returns the description of an error. A session that is not known may have ended long ago, or never have been open.
fn detail(error: &ServiceError) -> String {
    if let ServiceError::Refused(Refusal::SessionEnded { session, reason: EndReason::Expired, why: None }) = error {
        return format!("session {session} is not open: it has expired, or never existed");
    }
    // The request of a `hold` is a UUID to its caller, and a number to the session.
    if let ServiceError::Refused(Refusal::RequestReused { .. }) = error {
        return "this `request` was used before with other fields".to_owned();
    }
    if let ServiceError::Invalid(invalid) = error {
        return in_request(invalid).to_string();
    }
    if let ServiceError::Refused(Refusal::OutOfBounds { field: DurationField::Age, high, .. }) = error {
        let bound = recent(*high);
        return format!("{SINCE} must be {bound}: an older request might be a late duplicate; send a new one");
    }
    error.to_string()
}

impl Problem {
    fn new(code: ErrorCode, detail: String, more: More) -> Self {
        let row = code.row();
        Self {
            kind: format!("/v1/errors#{}", row.text),
            title: row.title,
            status: row.http,
            detail,
            error: row.text,
            advice: row.advice.word(),
            leader: None,
            more,
        }
    }

    fn of(failed: &Failed) -> Self {
        match failed {
            Failed::Service(error, decided) => {
                let leader = error.leader().map(LeaderNode::new);
                Self { leader, ..Self::new(error.code(), detail(error), More::of(error, decided.now)) }
            }
            Failed::Malformed(status, invalid) => {
                let (detail, more) = (invalid.to_string(), More::of_value(invalid));
                Self { status: status.as_u16(), ..Self::new(ErrorCode::Invalid, detail, more) }
            }
            Failed::Lost { lock, reason, .. } => {
                let detail = format!("{lock} was granted to this request, and the hold has ended since: {reason}");
                let more = More { reason: Some(reason.to_string()), ..More::default() };
                Self::new(ErrorCode::Lost, detail, more)
            }
            Failed::WaitOver { lock, .. } => {
                let detail = format!("{lock} was not acquired: the wait of this request is over, or it was withdrawn");
                Self::new(ErrorCode::NotAcquired, format!("{detail}; send a new request"), More::default())
            }
        }
    }
}

/// The last event of a stream that ends with an error.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Ended {
    /// Code of the error.
    pub(super) event: &'static str,
    #[serde(flatten)]
    problem: Problem,
}

impl Ended {
    pub(super) fn new(failed: &Failed) -> Self {
        let problem = Problem::of(failed);
        Self { event: problem.error, problem }
    }
}

/// Marks the answer of a request that the port refused itself, with its code. The node counts what its service refuses.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct RefusedByPort(pub(in crate::http) ErrorCode);

/// Adds the headers that name the point of the log at which an answer is true.
pub(super) fn add_point(headers: &mut HeaderMap, index: u64, now: LogTime) {
    headers.insert(INDEX, index.into());
    headers.insert(LOG_TIME, now.0.into());
}

const INDEX: HeaderName = HeaderName::from_static("lockkeeper-index");
const LOG_TIME: HeaderName = HeaderName::from_static("lockkeeper-log-time");

/// The media type of problem details.
pub(super) const PROBLEM: &str = "application/problem+json";

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let problem = Problem::of(&self);
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let pause_ms = problem.more.pause_ms;
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut answer = (status, [(header::CONTENT_TYPE, PROBLEM)], body).into_response();
        if status == StatusCode::UNAUTHORIZED {
            answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Failed::Malformed(..) = self {
            answer.extensions_mut().insert(RefusedByPort(ErrorCode::Invalid));
        }
        if let Failed::Service(_, decided) | Failed::Lost { decided, .. } | Failed::WaitOver { decided, .. } = self
            && let Some(index) = decided.index
        {
            add_point(answer.headers_mut(), index, decided.now);
        }
        if let Some(pause_ms) = pause_ms {
            answer.headers_mut().insert(header::RETRY_AFTER, pause_ms.div_ceil(1_000).into());
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::{BoundAdvice, Claim, RequestId, SessionId};
    use crate::service::NotSent;

    /// A request that is too old gets the log time that it sent, and a bound of log times. The age, which the cluster
    /// reports, is not the value of the field. A request whose wait is over is to be sent as a new one, too.
    #[test]
    fn a_request_that_is_too_old_gets_the_log_time_that_it_sent() {
        let (field, advice) = (DurationField::Age, BoundAdvice::NewRequest);
        let old = || Refusal::OutOfBounds { field, low: 0, high: 600_000, value: 600_001, advice };
        let body = |failed: Failed| serde_json::to_value(Problem::of(&failed)).expect("JSON");
        let problem = body(Failed::refused(old(), Decided::at(7, LogTime(601_001))));
        let shown = ["field", "bound", "value"].map(|field| problem[field].clone());
        assert_eq!(shown, [json!("since_ms"), json!("a log time of the last 10 minutes"), json!("1000")]);
        let detail = problem["detail"].as_str().expect("a text");
        assert!(detail.starts_with("since_ms must be a log time of the last 10 minutes: "), "{detail}");
        assert_eq!(body(ServiceError::Refused(old()).into())["value"], Value::Null, "the log time is not known");
        let over = body(Failed::WaitOver { lock: "a".to_owned(), decided: Decided::default() });
        assert_eq!(over["error"], "not-acquired");
        assert!(over["detail"].as_str().is_some_and(|detail| detail.ends_with("; send a new request")), "{over}");
        let ahead = Invalid::new("since", "a log time that has passed", 9);
        assert_eq!(body(ServiceError::Invalid(ahead).into())["field"], "since_ms");
    }

    /// An error that asks for a pause has it in milliseconds, and in `Retry-After` in whole seconds, rounded up.
    #[test]
    fn a_pause_is_in_the_header_too() {
        let failed = Failed::from(ServiceError::not_sent(NotSent::Overloaded { pause_ms: 1_500 }));
        assert_eq!(Problem::of(&failed).more.pause_ms, Some(1_500));
        assert_eq!(failed.into_response().headers()[header::RETRY_AFTER], "2");
        let none = Failed::from(ServiceError::not_sent(NotSent::NoLeader)).into_response();
        assert_eq!(none.headers().get(header::RETRY_AFTER), None);
    }

    /// The request of a `hold` is a UUID to its caller, so the error shows no number of the session.
    #[test]
    fn a_reused_request_shows_no_number() {
        let claim = Claim::Request(RequestId { session: SessionId::new(0, 1), number: 1 });
        let failed = Failed::refused(Refusal::RequestReused { claim }, Decided::default());
        assert_eq!(Problem::of(&failed).detail, "this `request` was used before with other fields");
    }
}
