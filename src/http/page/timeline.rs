//! The timeline of a lock: a row for each of the last holds and the first waiters, with bars for waiting and holding.

use std::collections::BTreeMap;

use super::text::{Client, clock, span};
use super::walls::Walls;
use crate::limits;
use crate::model::{EventKind, FencingToken, HistoryRecord, LockView, LogTime};

/// Width of the picture, in its own units.
const WIDTH: u64 = 1_000;
/// Parts between the times below the picture.
const PARTS: u64 = 4;
/// Smallest width of a bar, so that none is invisible.
const BAR_MIN: u64 = 3;

/// The last holds and the first waiters, the oldest first.
#[derive(Debug)]
pub(super) struct Timeline {
    pub(super) lanes: Vec<Lane>,
    /// The times below the picture, from left to right; the last is now.
    pub(super) times: Vec<String>,
}

/// The row of one hold or waiter.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) name: String,
    /// The token of the hold; empty for a waiter.
    pub(super) token: String,
    pub(super) wait: Option<Bar>,
    pub(super) hold: Option<Bar>,
    /// Where a hold was lost.
    pub(super) lost: Option<u64>,
    /// The same in words.
    pub(super) text: String,
}

/// A bar, in units of the picture.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Bar {
    pub(super) x: u64,
    pub(super) width: u64,
}

/// A hold or a waiter in log time.
struct Span {
    name: String,
    token: Option<FencingToken>,
    queued: LogTime,
    granted: Option<LogTime>,
    ended: Option<LogTime>,
    /// How the hold ended, as in history; empty while it lasts.
    end: &'static str,
}

impl Timeline {
    pub(super) fn new(records: &[HistoryRecord], view: &LockView, now: LogTime, walls: &Walls) -> Self {
        let mut spans = past(records);
        for holder in &view.holders {
            spans.entry(holder.token).or_insert_with(|| {
                let name = Client::new(&holder.metadata).name;
                let (token, since) = (Some(holder.token), holder.since);
                Span { name, token, queued: since, granted: Some(since), ended: None, end: "" }
            });
        }
        let holds = |token: &FencingToken| view.holders.iter().any(|holder| holder.token == *token);
        // The end of a hold that is neither held nor ended in these records is not known.
        let mut rows: Vec<_> = spans
            .into_iter()
            .filter(|(token, span)| span.ended.is_some() || holds(token))
            .map(|(_, span)| span)
            .collect();
        rows.drain(..rows.len().saturating_sub(limits::SCREEN_SHORT_ROWS));
        rows.extend(view.waiters.iter().take(limits::SCREEN_SHORT_ROWS / 2).map(|waiter| {
            let name = Client::new(&waiter.metadata).name;
            Span { name, token: None, queued: waiter.since, granted: None, ended: None, end: "" }
        }));
        let begin = rows.iter().map(|row| row.queued).min().unwrap_or(now);
        let scale = Scale { begin, length: now.ms_since(begin).max(1), now };
        let time = |part| {
            let ago_ms = scale.length * (PARTS - part) / PARTS;
            if part == PARTS { "now".to_owned() } else { clock(walls.at(LogTime(now.0.saturating_sub(ago_ms)))) }
        };
        Self { lanes: rows.iter().map(|row| scale.lane(row)).collect(), times: (0..=PARTS).map(time).collect() }
    }
}

/// The holds of these records, by their tokens.
fn past(records: &[HistoryRecord]) -> BTreeMap<FencingToken, Span> {
    let mut spans: BTreeMap<FencingToken, Span> = BTreeMap::new();
    let end = |spans: &mut BTreeMap<FencingToken, Span>, token: FencingToken, at, how| {
        if let Some(span) = spans.get_mut(&token) {
            (span.ended, span.end) = (Some(at), how);
        }
    };
    for record in records {
        let event = &record.event;
        let Some(token) = event.subject.token() else { continue };
        match &event.kind {
            EventKind::Released { .. } => end(&mut spans, token, event.at, "released"),
            EventKind::Expired { .. } => end(&mut spans, token, event.at, "expired"),
            EventKind::Broken { .. } => end(&mut spans, token, event.at, "broken"),
            EventKind::Upgraded { from, .. } => end(&mut spans, *from, event.at, "upgraded"),
            EventKind::HandedOver { from, .. } => end(&mut spans, *from, event.at, "handed over"),
            EventKind::Queued { .. }
            | EventKind::Granted { .. }
            | EventKind::WaitEnded { .. }
            | EventKind::Downgraded
            | EventKind::Resumed { .. }
            | EventKind::RevokeRequested { .. }
            | EventKind::ValueChanged
            | EventKind::LimitChanged { .. }
            | EventKind::Reopened
            | EventKind::SessionOpened
            | EventKind::SessionEnded { .. }
            | EventKind::LeaderlessGap { .. }
            | EventKind::PermitsReturned { .. }
            | EventKind::Recalled => {}
        }
        if let Some(grant) = &record.grant {
            let queued = LogTime(event.at.0.saturating_sub(waited_ms(&event.kind)));
            let (name, granted) = (grant.who.to_string(), Some(event.at));
            spans.insert(token, Span { name, token: Some(token), queued, granted, ended: None, end: "" });
        }
    }
    spans
}

/// How long a grant waited in the queue.
fn waited_ms(kind: &EventKind) -> u64 {
    if let EventKind::Granted { waited_ms, .. } | EventKind::Upgraded { waited_ms, .. } = kind { *waited_ms } else { 0 }
}

struct Scale {
    begin: LogTime,
    length: u64,
    now: LogTime,
}

impl Scale {
    fn at(&self, time: LogTime) -> u64 {
        time.ms_since(self.begin).min(self.length) * WIDTH / self.length
    }

    fn bar(&self, from: LogTime, to: LogTime) -> Bar {
        let x = self.at(from).min(WIDTH - BAR_MIN);
        Bar { x, width: self.at(to).saturating_sub(self.at(from)).max(BAR_MIN).min(WIDTH - x) }
    }

    fn lane(&self, span_of: &Span) -> Lane {
        let Span { name, token, queued, granted, ended, end } = span_of;
        let until = ended.unwrap_or(self.now);
        let waited_ms = granted.unwrap_or(self.now).ms_since(*queued);
        let waited = if granted.is_some() { "waited" } else { "waits for" };
        let wait_text = (waited_ms != 0).then(|| format!("{waited} {}", span(waited_ms)));
        let hold_text = granted.map(|granted| {
            let held = span(until.ms_since(granted));
            if end.is_empty() { format!("holds for {held}") } else { format!("held {held}, {end}") }
        });
        let hold = granted.map(|granted| self.bar(granted, until));
        let is_lost = ["expired", "broken"].contains(end);
        Lane {
            name: name.clone(),
            token: token.map(|token| token.to_string()).unwrap_or_default(),
            wait: (waited_ms != 0).then(|| self.bar(*queued, granted.unwrap_or(self.now))),
            lost: hold.as_ref().filter(|_| is_lost).map(|hold| (hold.x + hold.width).saturating_sub(BAR_MIN)),
            hold,
            text: wait_text.into_iter().chain(hold_text).collect::<Vec<_>>().join(", "),
        }
    }
}
