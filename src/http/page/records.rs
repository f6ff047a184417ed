//! Records of history as rows.

use super::text::{Link, clock, full, span};
use crate::model::{EventKind, HistoryRecord, Namespace};
use crate::shapes::events::Facts;

/// One record as a row.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) clock: String,
    pub(super) at: String,
    pub(super) event: &'static str,
    /// `good`, `bad` or nothing, for its colour.
    pub(super) level: &'static str,
    pub(super) lock: String,
    pub(super) link: String,
    pub(super) token: String,
    /// The new holder; may be empty.
    pub(super) who: String,
    /// What else the record says, as in `waited 12 s`.
    pub(super) more: String,
    /// A reason, in the words of a client or operator; may be empty.
    pub(super) reason: String,
}

impl Row {
    pub(super) fn new(record: &HistoryRecord, namespace: &Namespace) -> Self {
        let event = &record.event;
        let lock = event.subject.lock().map(|lock| &lock.name);
        let facts = Facts::of(&event.kind);
        let waited = facts.waited_ms.filter(|ms| *ms != 0).map(|ms| format!("waited {}", span(ms)));
        let held = facts.held_ms.map(|ms| format!("held {}", span(ms)));
        let from = facts.from.map(|from| format!("in place of token {from}"));
        let by = facts.by.map(|by| format!("by {by}"));
        let limit = facts.limit.map(|limit| format!("limit {limit}"));
        let returned = facts.returned.map(|count| format!("{count} returned"));
        let more: Vec<_> = [waited, held, from, by, limit, returned].into_iter().flatten().collect();
        let grant = record.grant.as_ref();
        let why = grant.map(|grant| grant.why.to_string()).unwrap_or_default();
        Self {
            clock: clock(event.wall),
            at: full(event.wall),
            event: event.kind.word(),
            level: level(&event.kind),
            lock: lock.map(ToString::to_string).unwrap_or_default(),
            link: lock.map(|lock| Link::lock(namespace, lock).text()).unwrap_or_default(),
            token: event.subject.token().map(|token| token.to_string()).unwrap_or_default(),
            who: grant.map(|grant| grant.who.to_string()).unwrap_or_default(),
            more: more.join(", "),
            reason: facts.reason.unwrap_or(why),
        }
    }
}

fn level(kind: &EventKind) -> &'static str {
    match kind {
        EventKind::Granted { .. } | EventKind::Upgraded { .. } | EventKind::Resumed { .. } => "good",
        EventKind::Expired { .. } | EventKind::Broken { .. } => "bad",
        EventKind::Queued { .. }
        | EventKind::WaitEnded { .. }
        | EventKind::Released { .. }
        | EventKind::Downgraded
        | EventKind::HandedOver { .. }
        | EventKind::RevokeRequested { .. }
        | EventKind::ValueChanged
        | EventKind::LimitChanged { .. }
        | EventKind::Reopened
        | EventKind::SessionOpened
        | EventKind::SessionEnded { .. }
        | EventKind::LeaderlessGap { .. }
        | EventKind::PermitsReturned { .. }
        | EventKind::Recalled => "",
    }
}
