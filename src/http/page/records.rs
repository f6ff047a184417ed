//! Records of history as rows.

use std::collections::HashMap;

use super::text::{Link, clock, full, span};
use crate::model::{EventKind, FencingToken, HistoryRecord, LockKey, Namespace};
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
    /// The holder; empty if the record has none, or its grant is not among the records that are shown.
    pub(super) who: String,
    /// What else the record says, as in `waited 12 s`.
    pub(super) more: String,
    /// A reason, in the words of a client or operator, or why a session ended; may be empty.
    pub(super) reason: String,
}

/// Returns the rows of these records, the newest first.
pub(super) fn rows(records: &[HistoryRecord], namespace: &Namespace) -> Vec<Row> {
    let mut holders = HashMap::new();
    let row = |record| Row::new(record, namespace, &mut holders);
    let mut rows: Vec<_> = records.iter().map(row).collect();
    rows.reverse();
    rows
}

/// The holders of tokens, by the records of their grants.
type Holders<'a> = HashMap<(&'a LockKey, FencingToken), &'a str>;

impl Row {
    /// Only the record of a grant has the name of the holder. The records after it take it from `holders`.
    fn new<'a>(record: &'a HistoryRecord, namespace: &Namespace, holders: &mut Holders<'a>) -> Self {
        let event = &record.event;
        let hold = event.subject.lock().zip(event.subject.token());
        let grant = record.grant.as_ref();
        if let Some((hold, grant)) = hold.zip(grant) {
            holders.insert(hold, &*grant.who);
        }
        let lock = event.subject.lock().map(|lock| &lock.name);
        let facts = Facts::of(&event.kind);
        let waited = facts.waited_ms.filter(|ms| *ms != 0).map(|ms| format!("waited {}", span(ms)));
        let held = facts.held_ms.map(|ms| format!("held {}", span(ms)));
        let from = facts.from.map(|from| format!("in place of token {from}"));
        let by = facts.by.map(|by| format!("by {by}"));
        let limit = facts.limit.map(|limit| format!("limit {limit}"));
        let returned = facts.returned.map(|count| format!("{count} returned"));
        let more: Vec<_> = [waited, held, from, by, limit, returned].into_iter().flatten().collect();
        let why = grant.map(|grant| grant.why.to_string()).unwrap_or_default();
        Self {
            clock: clock(event.wall),
            at: full(event.wall),
            event: event.kind.word(),
            level: level(&event.kind),
            lock: lock.map(ToString::to_string).unwrap_or_default(),
            link: lock.map(|lock| Link::lock(namespace, lock).text()).unwrap_or_default(),
            token: event.subject.token().map(|token| token.to_string()).unwrap_or_default(),
            who: hold.and_then(|hold| holders.get(&hold)).copied().unwrap_or_default().to_owned(),
            more: more.join(", "),
            reason: facts.reason.filter(|reason| reason != event.kind.word()).unwrap_or(why),
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
