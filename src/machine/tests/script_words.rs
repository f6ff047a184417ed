//! The words with which scripts show outcomes, events and answers.

use std::collections::BTreeMap;

use super::script_documents;
use crate::machine::Machine;
use crate::model::*;

/// Names that a script gave to sessions and takes.
#[derive(Default)]
pub(super) struct Names {
    pub(super) sessions: BTreeMap<SessionId, String>,
    pub(super) takes: BTreeMap<LeaseRequestId, String>,
}

/// Milliseconds, shown as seconds if they are whole.
pub(super) fn time(ms: u64) -> String {
    if ms.is_multiple_of(1000) { format!("{}s", ms / 1000) } else { format!("{ms}ms") }
}

/// The cluster's feature level, and the announcements of nodes, one line each.
pub(super) fn nodes(machine: &Machine) -> String {
    let line = |announcement: &Announcement| {
        let http = announcement.http.as_deref().unwrap_or("none");
        format!("node {} disk={} features={} http={http}", announcement.node, announcement.disk, announcement.features)
    };
    let level = format!("feature level {}", machine.feature_level());
    std::iter::once(level).chain(machine.announcements().map(line)).collect::<Vec<_>>().join("\n")
}

fn mode(mode: Mode) -> String {
    match mode {
        Mode::Exclusive => "exclusive".into(),
        Mode::Shared => "shared".into(),
        Mode::Permits(count) => format!("permits={count}"),
    }
}

fn lock(key: &LockKey) -> String {
    if key.namespace == Namespace::default() { key.name.to_string() } else { format!("{}/{}", key.namespace, key.name) }
}

/// The recalled holds that an answer names.
pub(super) fn named(recalled: &[FencingToken]) -> String {
    let tokens: Vec<_> = recalled.iter().map(ToString::to_string).collect();
    if tokens.is_empty() { String::new() } else { format!(" recalled={}", tokens.join(",")) }
}

fn until(deadline: impl Into<Option<LogTime>>) -> String {
    deadline.into().map_or("without end".into(), |deadline| format!("until={}", time(deadline.0)))
}

impl Names {
    pub(super) fn session(&self, id: SessionId) -> String {
        self.sessions.get(&id).cloned().unwrap_or_else(|| format!("session-{id}"))
    }

    fn claim(&self, claim: Claim) -> String {
        match claim {
            Claim::Request(request) => format!("{}#{}", self.session(request.session), request.number),
            Claim::Lease(take) => self.takes.get(&take).cloned().unwrap_or_else(|| format!("take-{}", take.0)),
        }
    }

    fn holder(&self, view: &HolderView) -> String {
        let whose = view.session.map_or("a lease".into(), |id| self.session(id));
        let owner = view.owner.as_ref().map_or(String::new(), |owner| format!(" owner={owner}"));
        let who = if view.metadata.who.is_empty() { String::new() } else { format!(" who={}", view.metadata.who) };
        let how = mode(view.mode);
        let since = time(view.since.0);
        let cached = match (view.cached, view.recalled) {
            (false, false) => "",
            (true, false) => " cached",
            (true, true) => " recalled",
            (false, true) => " recalled, but not cached",
        };
        format!("{whose}{owner}{who} token={} {how} since={since} {}{cached}", view.token, until(view.deadline))
    }

    /// An outcome in one line.
    pub(super) fn outcome(&self, outcome: &Outcome) -> String {
        match outcome {
            Outcome::Opened { session, ttl_ms, deadline } => {
                format!("opened session={session} ttl={} {}", time(*ttl_ms), until(*deadline))
            }
            Outcome::Attached { attachment, deadline } => {
                format!("attached attachment={} {}", attachment.0, until(*deadline))
            }
            Outcome::Closed => "closed".into(),
            Outcome::Renewed { deadline, attempt, token } => {
                let token = token.map_or(String::new(), |token| format!(" token={token}"));
                format!("renewed attempt={attempt} {}{token}", until(*deadline))
            }
            Outcome::Granted(grant) => {
                let end = grant.deadline.map_or(String::new(), |deadline| format!(" {}", until(deadline)));
                let ends = grant.ends.map_or(String::new(), |ends| format!(" ends={}", time(ends.0)));
                format!("granted token={}{end}{ends} waited={}", grant.token, time(grant.waited_ms))
            }
            Outcome::GrantedSet(grants) => {
                let grants = grants.iter().map(|(name, grant)| format!(" {name}={}", grant.token));
                format!("granted{}", grants.collect::<String>())
            }
            Outcome::Queued(place) => {
                let behind = place.held_by.as_ref().map_or("none".into(), |holder| self.holder(holder));
                format!("queued place={} sequence={} held by {behind}", place.place, place.sequence)
            }
            Outcome::TimedOut => "timed out".into(),
            Outcome::Withdrawn => "withdrawn".into(),
            Outcome::HoldEnded { reason } => format!("hold ended: {reason}"),
            Outcome::Released { left: 0 } => "released".into(),
            Outcome::Released { left } => format!("released left={left}"),
            Outcome::Downgraded => "downgraded".into(),
            Outcome::Done => "done".into(),
            Outcome::Broken(report) => {
                let what = if report.done { "broken" } else { "would be broken" };
                let seen = report.last_seen.map_or(String::new(), |at| format!(" seen={}", time(at.0)));
                let next = report.next.as_ref().map_or("none".into(), |waiter| self.waiter(waiter));
                format!("{what}: {}{seen}; next {next}", self.holder(&report.holder))
            }
            Outcome::HandedOver { token, to } => {
                format!("handed over to {} token={token}", self.session(to.session))
            }
            Outcome::Freed { locks } => format!("freed {locks}"),
            Outcome::Refused(refusal) => format!("refused: {}", self.refusal(refusal)),
        }
    }

    /// The refusal as callers read it, and the claims that it contains.
    fn refusal(&self, refusal: &Refusal) -> String {
        match refusal {
            Refusal::Held { holder: Some(holder), .. } | Refusal::HeldByOther { holder, .. } => {
                format!("{refusal} [{}]", self.holder(holder))
            }
            Refusal::Changed { value, .. } => {
                let value = value.as_ref().map_or("none", |value| value.as_str());
                format!("{refusal} [value={value}]")
            }
            Refusal::Held { holder: None, closed: Some(closed), .. } => {
                format!("{refusal} [until={}]", time(closed.until.0))
            }
            Refusal::Held { holder: None, closed: None, .. }
            | Refusal::AlreadyHeld { .. }
            | Refusal::Deadlock { .. }
            | Refusal::Reentered { .. }
            | Refusal::NotAccepted { .. }
            | Refusal::KindMismatch { .. }
            | Refusal::LimitMismatch { .. }
            | Refusal::LimitExceeded { .. }
            | Refusal::LimitUnknown { .. }
            | Refusal::Quota { .. }
            | Refusal::NotHeld { .. }
            | Refusal::PermitsNotHeld { .. }
            | Refusal::SessionEnded { .. }
            | Refusal::AlreadyOpen { .. }
            | Refusal::Tombstoned { .. }
            | Refusal::WrongHandle
            | Refusal::StaleAttempt { .. }
            | Refusal::TooOld { .. }
            | Refusal::RequestReused { .. }
            | Refusal::OtherNamespace { .. }
            | Refusal::OutOfBounds { .. }
            | Refusal::OtherDisk { .. }
            | Refusal::FeaturesUnsupported { .. }
            | Refusal::FeatureLevel { .. }
            | Refusal::Closed { .. }
            | Refusal::MembersUnfit { .. } => refusal.to_string(),
        }
    }

    /// An event in one line, with its position.
    pub(super) fn event(&self, event: &Event) -> String {
        let whose = event.subject.claim().map_or(String::new(), |claim| self.claim(claim));
        let key = event.subject.lock().map_or(String::new(), lock);
        let token = event.subject.token().map_or(String::new(), |token| format!("token={token}"));
        let session = event.subject.session().map_or(String::new(), |session| self.session(session));
        let what = match &event.kind {
            EventKind::Queued { sequence } => format!("{whose} queued {key} sequence={sequence}"),
            EventKind::Granted { mode: how, waited_ms } => {
                format!("{whose} granted {key} {token} {} waited={}", mode(*how), time(*waited_ms))
            }
            EventKind::WaitEnded { sequence, why } => format!("{whose} left {key} sequence={sequence} {why:?}"),
            EventKind::Released { held_ms } => format!("{whose} released {key} {token} held={}", time(*held_ms)),
            EventKind::Expired { reason, held_ms } => {
                format!("{whose} lost its hold of {key} {token} {reason} held={}", time(*held_ms))
            }
            EventKind::Upgraded { from, waited_ms } => {
                format!("{whose} upgraded {key} token={from} to {token} waited={}", time(*waited_ms))
            }
            EventKind::Downgraded => format!("{whose} downgraded {key} {token}"),
            EventKind::PermitsReturned { count } => format!("{whose} returned {count} permits of {key} {token}"),
            EventKind::Resumed { from, mode: how } => {
                format!("{whose} resumed {key} token={from} as {token} {}", mode(*how))
            }
            EventKind::Broken { by, why, held_ms } => {
                let (why, held) = (why.as_str(), time(*held_ms));
                format!("{whose} lost {key} {token}, broken by {by}: {why} held={held}")
            }
            EventKind::HandedOver { was: _, from, mode: how, by } => {
                let to = if session.is_empty() { whose } else { session };
                format!("{to} handed {key} token={from} as {token} {} by {by}", mode(*how))
            }
            EventKind::RevokeRequested { by, why } => {
                format!("{whose} asked by {by} for {key} {token}: {}", why.as_str())
            }
            EventKind::ValueChanged => format!("{whose} changed the value of {key} {token}"),
            EventKind::LimitChanged { limit } => {
                format!("{key} limit={}", limit.map_or("forgotten".into(), |limit| limit.to_string()))
            }
            EventKind::Reopened => format!("{key} open again after {token}"),
            EventKind::Recalled => format!("{whose} recalled {key} {token}"),
            EventKind::SessionOpened => format!("{session} opened"),
            EventKind::SessionEnded { reason, why } => {
                let why = why.as_ref().map_or(String::new(), |why| format!(" ({})", why.as_str()));
                format!("{session} ended: {reason}{why}")
            }
            EventKind::LeaderlessGap { gap_ms } => format!("no leader for {}", time(*gap_ms)),
        };
        format!("=> {} {what}", event.position)
    }

    /// An answer to a query, one line for each row.
    pub(super) fn answer(&self, answer: &QueryResult) -> String {
        match answer {
            QueryResult::Checked(Checked { state, lowest_valid, .. }) => {
                format!("{state:?} lowest_valid={lowest_valid}")
            }
            QueryResult::Lock(view) => self.lock_view(view),
            QueryResult::Locks(Part { rows, next }) => {
                let rows = rows.iter().map(|row| {
                    let oldest = row.oldest.as_ref().map_or("none".into(), |holder| self.holder(holder));
                    let limit = row.limit.map_or(String::new(), |limit| format!(" limit={limit}"));
                    let counts = format!("holders={} waiters={}", row.holders, row.waiters);
                    format!("{} {}{limit} {counts} oldest: {oldest}\n", lock(&row.lock), row.kind)
                });
                rows.collect::<String>() + if next.is_some() { "more" } else { "no more" }
            }
            QueryResult::Sessions(Part { rows, next }) => {
                let rows = rows.iter().map(|row| {
                    let times =
                        format!("ttl={} opened={} {}", time(row.ttl_ms), time(row.opened.0), until(row.deadline));
                    let counts = format!("holds={} waits={}", row.holds, row.waits);
                    let gone = if row.disconnected { " disconnected" } else { "" };
                    let longer = if row.leaderless_ms == 0 {
                        String::new()
                    } else {
                        format!(" leaderless={}", time(row.leaderless_ms))
                    };
                    format!("{} {times} {counts}{gone}{longer}\n", self.session(row.session))
                });
                rows.collect::<String>() + if next.is_some() { "more" } else { "no more" }
            }
            QueryResult::Documents(Part { rows, next }) => script_documents::documents(rows, next.is_some()),
            QueryResult::Pings(Page { rows, more }) => script_documents::pings(rows, *more),
            QueryResult::Claim { outcome, recalled } => {
                outcome.as_ref().map_or("nothing is known".into(), |o| self.outcome(o)) + &named(recalled)
            }
            QueryResult::Tokens(valid) => format!("{:?} next={}", valid.tokens, valid.next),
            QueryResult::History(page) => format!("{} records of history", page.records.len()),
            QueryResult::Totals(Totals { sessions, locks, holders, waiters, grants }) => {
                format!("sessions={sessions} locks={locks} holders={holders} waiters={waiters} grants={grants}")
            }
            QueryResult::Explained(explanation) => self.explanation(explanation),
            QueryResult::WouldBreak(outcome) => self.outcome(outcome),
        }
    }

    fn explanation(&self, explanation: &Explanation) -> String {
        let mut lines = Vec::new();
        for wait in &explanation.chain {
            let until = wait.until.map_or(String::new(), |deadline| format!(" {}", until(deadline)));
            let (who, at) = (self.participant(&wait.waiter), lock(&wait.lock));
            lines.push(format!("{who} waits for {at} place={}{until}", wait.place));
            lines.extend(wait.waits_for.iter().map(|one| format!("  {}", self.obstacle(one))));
        }
        lines.extend(explanation.freed_by.iter().map(|one| format!("freed by: {}", self.obstacle(one))));
        if lines.is_empty() {
            lines.push("no request waits".into());
        }
        if explanation.more {
            lines.push("more".into());
        }
        lines.join("\n")
    }

    fn obstacle(&self, obstacle: &Obstacle) -> String {
        format!("{} {} {}", lock(&obstacle.lock), obstacle.why, self.participant(&obstacle.who))
    }

    fn participant(&self, who: &Participant) -> String {
        let session = who.session.map_or("a lease".into(), |id| self.session(id));
        let owner = who.owner.as_ref().map_or(String::new(), |owner| format!("/{owner}"));
        let token = who.token.map_or(String::new(), |token| format!(" token={token}"));
        let ends = until(who.ends);
        let recalled = if who.recalled { " recalled" } else { "" };
        let (how, since, health) = (mode(who.mode), time(who.since.0), who.health.word());
        format!("{session}{owner}{token} {how} since={since} {health} {ends}{recalled}")
    }

    fn lock_view(&self, view: &LockView) -> String {
        let kind = view.kind.map_or("not in use".into(), |kind| kind.to_string());
        let limit = view.limit.map_or(String::new(), |limit| format!(" limit={limit}"));
        let holders = view.holders.iter().map(|holder| format!("\nheld by {}", self.holder(holder)));
        let waiters = view.waiters.iter().map(|waiter| format!("\nawaited by {}", self.waiter(waiter)));
        let value = view.value.as_ref().map_or(String::new(), |value| format!(" value={value}"));
        let delay = view.delay_ms.map_or(String::new(), |ms| format!(" closed for={}", time(ms)));
        let closed = view.closed.iter().map(|closed| {
            let Closing { token, who, until: end, left_ms: _ } = closed;
            format!("\nclosed by {who} token={token} {}", until(*end))
        });
        let (holders, waiters) = (holders.collect::<String>(), waiters.collect::<String>());
        let closed = closed.collect::<String>();
        format!("{} {kind}{limit}{value}{delay}{holders}{closed}{waiters}", lock(&view.lock))
    }

    fn waiter(&self, waiter: &WaiterView) -> String {
        let whose = waiter.session.map_or("a lease".into(), |id| self.session(id));
        let place = format!("place={} sequence={}", waiter.place, waiter.sequence);
        format!("{whose} {place} {} since={}", mode(waiter.mode), time(waiter.since.0))
    }
}
