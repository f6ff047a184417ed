//! The fields of events, for `watch` and for `history`, and the positions after which a caller continues.

use std::str::FromStr;

use serde::Serialize;
use utoipa::ToSchema;

use super::{cluster_id_text, mode_word};
use crate::clock::date_of;
use crate::limits::{CLUSTER_DIGITS_MAX, CLUSTER_DIGITS_MIN};
use crate::model::{Claim, Event, EventKind, FencingToken, Invalid, Mode, Position, Principal, Reason, WaitEndReason};

/// The fields of an event besides its position, lock and token.
#[derive(Debug, Default)]
pub(crate) struct Facts<'a> {
    pub(crate) mode: Option<Mode>,
    pub(crate) limit: Option<u32>,
    /// Number of permits that a hold returned while it continues.
    pub(crate) returned: Option<u32>,
    /// The previous token.
    pub(crate) from: Option<FencingToken>,
    /// The previous holder, for a hand-over.
    pub(crate) was: Option<Claim>,
    pub(crate) by: Option<&'a Principal>,
    pub(crate) sequence: Option<u64>,
    /// How the hold, wait or session ended. For a break and for a request to release, the same as `why`.
    pub(crate) reason: Option<String>,
    /// The reason in the words of the client or operator that acted.
    pub(crate) why: Option<&'a Reason>,
    pub(crate) waited_ms: Option<u64>,
    pub(crate) held_ms: Option<u64>,
    /// How long the cluster had no leader.
    pub(crate) gap_ms: Option<u64>,
}

impl<'a> Facts<'a> {
    pub(crate) fn of(kind: &'a EventKind) -> Self {
        let none = Self::default();
        match kind {
            EventKind::Queued { sequence, .. } => Self { sequence: Some(*sequence), ..none },
            EventKind::Granted { mode, waited_ms, .. } => {
                Self { mode: Some(*mode), waited_ms: Some(*waited_ms), ..none }
            }
            EventKind::WaitEnded { sequence, why, .. } => {
                Self { sequence: Some(*sequence), reason: Some(wait_end_word(*why).to_owned()), ..none }
            }
            EventKind::Released { held_ms, .. } => Self { held_ms: Some(*held_ms), ..none },
            EventKind::Expired { reason, held_ms, .. } => {
                Self { reason: Some(reason.to_string()), held_ms: Some(*held_ms), ..none }
            }
            EventKind::Broken { by, why, held_ms, .. } => {
                let reason = Some(why.as_str().to_owned());
                Self { by: Some(by), reason, why: Some(why), held_ms: Some(*held_ms), ..none }
            }
            EventKind::PermitsReturned { count, .. } => Self { returned: Some(*count), ..none },
            EventKind::Upgraded { from, waited_ms, .. } => {
                Self { from: Some(*from), waited_ms: Some(*waited_ms), ..none }
            }
            EventKind::Resumed { from, mode, .. } => Self { from: Some(*from), mode: Some(*mode), ..none },
            EventKind::HandedOver { was, from, mode, by, .. } => {
                Self { was: Some(*was), from: Some(*from), mode: Some(*mode), by: Some(by), ..none }
            }
            EventKind::LimitChanged { limit, .. } => Self { limit: *limit, ..none },
            EventKind::RevokeRequested { by, why } => {
                Self { by: Some(by), reason: Some(why.as_str().to_owned()), why: Some(why), ..none }
            }
            EventKind::SessionEnded { reason, why, .. } => {
                Self { reason: Some(reason.to_string()), why: why.as_ref(), ..none }
            }
            EventKind::LeaderlessGap { gap_ms } => Self { gap_ms: Some(*gap_ms), ..none },
            EventKind::SessionOpened
            | EventKind::Downgraded
            | EventKind::ValueChanged
            | EventKind::Recalled
            | EventKind::Reopened => none,
        }
    }
}

fn wait_end_word(reason: WaitEndReason) -> &'static str {
    match reason {
        WaitEndReason::TimedOut => "timed-out",
        WaitEndReason::Withdrawn => "withdrawn",
        WaitEndReason::SessionEnded => "session-ended",
        WaitEndReason::HoldEnded => "hold-ended",
        WaitEndReason::Impossible => "impossible",
        WaitEndReason::Deadlock => "deadlock",
    }
}

/// Returns the time of the event, in the format of RFC 3339.
pub(crate) fn date(event: &Event) -> String {
    humantime::format_rfc3339_millis(date_of(event.wall)).to_string()
}

/// One event, as `watch` prints it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Happened {
    /// `INDEX.N`, after which a watch can continue.
    pub(crate) position: String,
    pub(crate) at: String,
    /// What happened, for example `granted`, `released`, `expired`, `broken`, `handed-over` or `revoke-requested`.
    pub(crate) event: &'static str,
    pub(crate) namespace: Option<String>,
    pub(crate) lock: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) session: Option<String>,
    pub(crate) mode: Option<&'static str>,
    pub(crate) permits: Option<u32>,
    pub(crate) sequence: Option<String>,
    /// How a hold, wait or session ended. Of a break and of a request to release, the same as `why`.
    pub(crate) reason: Option<String>,
    /// The reason that the client or operator gave that broke or asked for the hold, or ended the session.
    pub(crate) why: Option<String>,
    /// Principal that broke, handed over or asked for the hold.
    pub(crate) by: Option<String>,
    /// Token of the grant that this one replaces, after an upgrade, a resume or a hand-over.
    pub(crate) from: Option<String>,
    /// Session that held the lock before a hand-over.
    pub(crate) was_session: Option<String>,
    pub(crate) waited_ms: Option<u64>,
    pub(crate) held_ms: Option<u64>,
    pub(crate) gap_ms: Option<u64>,
    pub(crate) cluster_id: String,
}

impl Happened {
    /// Creates the object of an event of this cluster.
    pub(crate) fn new(event: &Event, cluster_id: u128) -> Self {
        let facts = Facts::of(&event.kind);
        Self {
            position: event.position.to_string(),
            at: date(event),
            event: event.kind.word(),
            namespace: event.namespace.as_ref().map(ToString::to_string),
            lock: event.subject.lock().map(|lock| lock.name.to_string()),
            token: event.subject.token().map(|token| token.to_string()),
            session: event.subject.session().map(|session| session.to_string()),
            mode: facts.mode.map(mode_word),
            permits: facts.returned,
            sequence: facts.sequence.map(|sequence| sequence.to_string()),
            reason: facts.reason,
            why: facts.why.map(|why| why.as_str().to_owned()),
            by: facts.by.map(ToString::to_string),
            from: facts.from.map(|from| from.to_string()),
            was_session: facts.was.and_then(|was| was.session()).map(|session| session.to_string()),
            waited_ms: facts.waited_ms,
            held_ms: facts.held_ms,
            gap_ms: facts.gap_ms,
            cluster_id: cluster_id_text(cluster_id),
        }
    }
}

/// A position after which to resume: `INDEX.N`, or `INDEX.N@CLUSTER` with the first digits of the id of its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResumePosition {
    pub(crate) position: Position,
    cluster_digits: Option<String>,
}

impl ResumePosition {
    /// Returns the digits of the position's cluster if that is not the cluster with this id.
    pub(crate) fn other_cluster(&self, cluster_id: &str) -> Option<&str> {
        self.cluster_digits.as_deref().filter(|digits| !cluster_id.starts_with(digits))
    }
}

impl FromStr for ResumePosition {
    type Err = Invalid;
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let Some((position, digits)) = text.split_once('@') else {
            return Ok(Self { position: text.parse()?, cluster_digits: None });
        };
        let hex = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if !hex || !(CLUSTER_DIGITS_MIN..=CLUSTER_DIGITS_MAX).contains(&digits.len()) {
            let bound =
                format!("INDEX.N@ and the first {CLUSTER_DIGITS_MIN} to {CLUSTER_DIGITS_MAX} digits of a cluster_id");
            return Err(Invalid::new("position", bound, format!("{text:?}")));
        }
        Ok(Self { position: position.parse()?, cluster_digits: Some(digits.to_owned()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<ResumePosition, Invalid> {
        text.parse()
    }

    /// A position may have a cluster or none. A cluster with too few or too many digits, or with other characters, is
    /// refused.
    #[test]
    fn a_position_may_name_its_cluster() {
        let position = Position { index: 12, n: 3 };
        assert_eq!(parsed("12.3"), Ok(ResumePosition { position, cluster_digits: None }));
        assert_eq!(parsed("12.3@0af9"), Ok(ResumePosition { position, cluster_digits: Some("0af9".into()) }));
        for bad in ["12", "12.3@", "12.3@0af", "12.3@0AF9", "12@0af9", &format!("1.0@{}", "0".repeat(33))] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
    }
}
