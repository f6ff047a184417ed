//! What `watch --json` prints: one event a line.

use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;

use super::mode_word;
use crate::cli::position::cluster_id_text;
use crate::model::{EndReason, Event, EventKind, WaitEndReason};

/// `watch`, a line each.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct Happened {
    position: String,
    at: String,
    event: &'static str,
    namespace: Option<String>,
    lock: Option<String>,
    token: Option<String>,
    session: Option<String>,
    mode: Option<&'static str>,
    permits: Option<u32>,
    sequence: Option<u64>,
    reason: Option<String>,
    waited_ms: Option<u64>,
    held_ms: Option<u64>,
    gap_ms: Option<u64>,
    cluster_id: String,
}

impl Happened {
    /// As this cluster tells it.
    pub(in crate::cli) fn new(event: &Event, cluster_id: u128) -> Self {
        let mut happened = Self {
            position: event.position.to_string(),
            at: date(event),
            event: event.kind.word(),
            namespace: event.namespace.as_ref().map(ToString::to_string),
            lock: event.subject.lock().map(|lock| lock.name.to_string()),
            token: event.subject.token().map(|token| token.to_string()),
            session: event.subject.session().map(|session| session.to_string()),
            mode: None,
            permits: None,
            sequence: None,
            reason: None,
            waited_ms: None,
            held_ms: None,
            gap_ms: None,
            cluster_id: cluster_id_text(cluster_id),
        };
        happened.add(&event.kind);
        happened
    }

    fn add(&mut self, kind: &EventKind) {
        match kind {
            EventKind::Queued { sequence, .. } => self.sequence = Some(*sequence),
            EventKind::Granted { mode, waited_ms, .. } => {
                self.mode = Some(mode_word(*mode));
                self.waited_ms = Some(*waited_ms);
            }
            EventKind::WaitEnded { sequence, why, .. } => {
                self.sequence = Some(*sequence);
                self.reason = Some(leave_word(*why).to_owned());
            }
            EventKind::Released { held_ms, .. } => self.held_ms = Some(*held_ms),
            EventKind::Expired { reason, held_ms, .. } => {
                self.held_ms = Some(*held_ms);
                self.reason = Some(end_word(*reason));
            }
            EventKind::PermitsReturned { count, .. } => self.permits = Some(*count),
            EventKind::Upgraded { waited_ms, .. } => self.waited_ms = Some(*waited_ms),
            EventKind::Resumed { mode, .. } => self.mode = Some(mode_word(*mode)),
            EventKind::HandedOver { mode, .. } => self.mode = Some(mode_word(*mode)),
            EventKind::Broken { why, held_ms, .. } => {
                self.held_ms = Some(*held_ms);
                self.reason = Some(why.as_str().to_owned());
            }
            EventKind::RevokeRequested { why, .. } => self.reason = Some(why.as_str().to_owned()),
            EventKind::SessionOpened
            | EventKind::Downgraded
            | EventKind::ValueChanged
            | EventKind::Recalled
            | EventKind::LimitChanged { .. }
            | EventKind::Reopened => {}
            EventKind::SessionEnded { reason, why, .. } => {
                self.reason = Some(why.as_ref().map_or_else(|| end_word(*reason), |why| why.as_str().to_owned()));
            }
            EventKind::LeaderlessGap { gap_ms } => self.gap_ms = Some(*gap_ms),
        }
    }

    /// The same for people, on one line.
    pub(in crate::cli) fn text(&self) -> String {
        let facts = [
            ("", self.lock.clone()),
            ("token ", self.token.clone()),
            ("session ", self.session.clone()),
            ("", self.reason.clone()),
            ("waited=", self.waited_ms.map(milliseconds)),
            ("held=", self.held_ms.map(milliseconds)),
            ("gap=", self.gap_ms.map(milliseconds)),
        ];
        let facts = facts.into_iter().filter_map(|(label, fact)| fact.map(|fact| format!("  {label}{fact}")));
        format!("{}  {}  {:<13}{}", self.at, self.position, self.event, facts.collect::<String>())
    }
}

fn milliseconds(ms: u64) -> String {
    format!("{ms}ms")
}

fn end_word(reason: EndReason) -> String {
    reason.to_string()
}

fn leave_word(reason: WaitEndReason) -> &'static str {
    match reason {
        WaitEndReason::TimedOut => "timed-out",
        WaitEndReason::Withdrawn => "withdrawn",
        WaitEndReason::SessionEnded => "session-ended",
        WaitEndReason::HoldEnded => "hold-ended",
        WaitEndReason::Impossible => "impossible",
        WaitEndReason::Deadlock => "deadlock",
    }
}

fn date(event: &Event) -> String {
    let moment = UNIX_EPOCH.checked_add(Duration::from_millis(event.wall.0)).unwrap_or(UNIX_EPOCH);
    humantime::format_rfc3339_millis(moment).to_string()
}
