//! Fields that several calls have: how they are read, and how answers show when something ends.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::call::RequestContext;
use super::problem::Failed;
use crate::model::{
    Access, FencingToken, Handle, Instance, Invalid, LeaseRequestId, LogTime, Metadata, Mode, Position, RequestId,
    SessionId, parse_request_number, parse_uuid,
};
use crate::service::{LockService, Proof, ServiceError};
use crate::shapes::{ResumePosition, cluster_id_text};

/// How a lock is to be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum ModeWord {
    /// The holder is alone.
    Exclusive,
    /// Together with other shared holders.
    Shared,
    /// As some permits of a semaphore.
    Permits,
}

/// Returns the access that the fields `mode`, `permits` and `limit` ask for.
pub(super) fn access(mode: Option<ModeWord>, permits: Option<u32>, limit: Option<u32>) -> Result<Access, Invalid> {
    let mode = match (mode.unwrap_or(ModeWord::Exclusive), permits) {
        (ModeWord::Permits, count) => Mode::Permits(count.unwrap_or(1)),
        (ModeWord::Exclusive, None) => Mode::Exclusive,
        (ModeWord::Shared, None) => Mode::Shared,
        (ModeWord::Exclusive | ModeWord::Shared, Some(count)) => {
            return Err(Invalid::new("permits", "absent unless `mode` is `permits`", count));
        }
    };
    Ok(Access { mode, limit })
}

/// When something ends unless it is renewed. A caller surely has it for 0.99 times `remaining_ms`, counted from before
/// it sent the request.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub(super) struct Ends {
    /// Log time of the first entry of the log that the request caused.
    log_time_ms: u64,
    /// Log time of the end.
    deadline_ms: u64,
    /// The difference of the two.
    remaining_ms: u64,
}

impl Ends {
    pub(super) fn new(stamp: LogTime, deadline: LogTime) -> Self {
        Self { log_time_ms: stamp.0, deadline_ms: deadline.0, remaining_ms: deadline.ms_since(stamp) }
    }
}

/// Reads a number that is written as a text, because not every client has integers of 64 bits.
pub(super) fn number(field: &str, text: &str) -> Result<u64, Invalid> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.then(|| text.parse().ok()).flatten();
    number.ok_or_else(|| Invalid::new(field, "decimal digits, as a text", format!("{text:?}")))
}

/// Reads a fencing token.
pub(super) fn token(text: &str) -> Result<FencingToken, Invalid> {
    FencingToken::from_u64(number("token", text)?)
}

/// Reads the id of a session.
pub(super) fn session(text: &str) -> Result<SessionId, Invalid> {
    SessionId::from_u64(number("session", text)?)
}

/// Reads a position that may name its cluster.
pub(super) fn position(field: &str, text: &str) -> Result<ResumePosition, Invalid> {
    text.parse().map_err(|_| Invalid::new(field, "INDEX.N[@CLUSTER]", format!("{text:?}")))
}

/// Returns the position in the log of this cluster, which ends with the entry `end`.
///
/// # Errors
/// It is of another cluster, or after the end, as after a loss of all data. The caller would miss events without
/// notice. The error names `resume`.
pub(super) fn of_this_log(
    from: &ResumePosition,
    cluster_id: u128,
    end: u64,
    resume: Position,
) -> Result<Position, ServiceError> {
    let here = cluster_id_text(cluster_id);
    let why = if let Some(foreign) = from.other_cluster(&here) {
        format!("the position is of cluster {foreign}, and this cluster is {here}")
    } else if end < from.position.index {
        format!("the position is after entry {end}, the last one of this cluster")
    } else {
        return Ok(from.position);
    };
    Err(ServiceError::EventsMissed { why, resume })
}

/// Returns a field that the call needs in this form.
pub(super) fn needed<T>(form: &str, field: &str, value: Option<T>) -> Result<T, Invalid> {
    value.ok_or_else(|| Invalid::new(field, format!("needed {form}"), "nothing"))
}

/// Refuses a `request` without a `handle`, and the reverse: the node does not draw one of the two only, because the
/// caller repeats its request with both.
pub(super) fn both_or_neither(request: Option<&String>, handle: Option<&String>) -> Result<(), Invalid> {
    let (given, missing, what) = match (request, handle) {
        (None, Some(_)) => ("handle", "request", "a UUID"),
        (Some(_), None) => ("request", "handle", "a secret"),
        (Some(_), Some(_)) | (None, None) => return Ok(()),
    };
    let bound =
        format!("{what}, because there is a `{given}`, and a retry repeats both (send neither if you never retry)");
    Err(Invalid::new(missing, bound, "nothing"))
}

/// Refuses a field that the call does not take in this form.
pub(super) fn absent<T>(form: &str, field: &str, value: Option<&T>) -> Result<(), Invalid> {
    if value.is_none() { Ok(()) } else { Err(Invalid::new(field, format!("absent {form}"), "a value")) }
}

/// Reads the id of a lease's request.
pub(super) fn lease_request(text: &str) -> Result<LeaseRequestId, Invalid> {
    parse_uuid("request", text).map(LeaseRequestId)
}

/// Reads the run of a client.
pub(super) fn instance(text: Option<&str>) -> Result<Instance, Invalid> {
    text.map_or(Ok(Instance(0)), |text| parse_uuid("instance", text).map(Instance))
}

/// Makes a random UUID of version 4.
pub(super) fn drawn_uuid(random: u128) -> String {
    let bits = random & !(0xf << 76 | 0xc << 60) | 0x4 << 76 | 0x8 << 60;
    let digits = format!("{bits:032x}");
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &digits[part]);
    parts.join("-")
}

impl<S: LockService> RequestContext<S> {
    /// Returns a session and the proof that the caller may act for it.
    pub(super) fn proven(&self, id: &str, handle: &str) -> Result<(SessionId, Proof), Invalid> {
        Ok((session(id)?, self.proof(handle)?))
    }

    /// Returns the proof that a handle gives in the namespace of the path.
    pub(super) fn proof(&self, handle: &str) -> Result<Proof, Invalid> {
        Ok(Proof::Handle { handle: Handle::parse(handle)?, namespace: self.namespace.clone() })
    }

    /// Returns the number of a session's request; a generated one if the caller names none.
    pub(super) async fn request(&self, session: SessionId, request: Option<&str>) -> Result<RequestId, Failed> {
        let Some(text) = request else {
            let number = self.api.drawn.next(&self.service, &self.api.clock).await?;
            return Ok(RequestId { session, number });
        };
        Ok(RequestId { session, number: parse_request_number(text)? })
    }

    /// Draws a handle.
    pub(super) fn drawn_handle(&self) -> String {
        Handle::from_random(self.api.clock.random_u128()).reveal().to_owned()
    }
}

/// Returns what the caller states about itself, from the fields `who`, `why`, `host`, `pid`, `process` and `trace`.
pub(super) fn metadata(texts: [Option<String>; 5], pid: Option<u32>) -> Metadata {
    let [who, why, host, process, trace] = texts.map(|text| text.unwrap_or_default().into());
    Metadata { who, why, host, pid: pid.unwrap_or_default(), process, trace }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half of a pair is refused with the name of the other half, what it is, and what else the caller may do.
    #[test]
    fn half_of_a_pair_names_the_other_half() {
        let some = "x".to_owned();
        let refused = |request, handle| both_or_neither(request, handle).map_err(|invalid| invalid.to_string());
        assert_eq!((refused(None, None), refused(Some(&some), Some(&some))), (Ok(()), Ok(())));
        for (field, what, given, half) in [
            ("request", "a UUID", "handle", refused(None, Some(&some))),
            ("handle", "a secret", "request", refused(Some(&some), None)),
        ] {
            let why =
                format!("because there is a `{given}`, and a retry repeats both (send neither if you never retry)");
            assert_eq!(half.expect_err("half"), format!("{field}: {what}, {why}, got nothing"));
        }
    }
}
