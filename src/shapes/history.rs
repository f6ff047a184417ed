//! The lines that `history --json` prints and `verify` reads, one record each.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::events::{Facts, date};
use super::{cluster_id_text, mode_word};
use crate::model::{
    Arrival, Claim, EndReason, Event, EventKind, Fairness, FencingToken, GrantFacts, HistoryRecord, Invalid,
    LeaseRequestId, LockKey, LockName, LogTime, Mode, Namespace, Owner, Principal, Reason, RequestId, SessionId,
    Subject, WallTime, parse_hex,
};

/// The JSON line of one record.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HistoryLine {
    pub(crate) position: String,
    pub(crate) at: String,
    pub(crate) log_time_ms: u64,
    pub(crate) event: String,
    pub(crate) namespace: String,
    pub(crate) lock: String,
    pub(crate) token: Option<String>,
    pub(crate) session: Option<String>,
    pub(crate) request: Option<String>,
    pub(crate) take: Option<String>,
    pub(crate) mode: Option<String>,
    pub(crate) permits: Option<u32>,
    pub(crate) limit: Option<u32>,
    pub(crate) returned: Option<u32>,
    pub(crate) from: Option<String>,
    pub(crate) was_session: Option<String>,
    pub(crate) was_request: Option<String>,
    pub(crate) was_take: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) by: Option<String>,
    pub(crate) waited_ms: Option<u64>,
    pub(crate) held_ms: Option<u64>,
    pub(crate) sequence: Option<String>,
    pub(crate) queued: Option<bool>,
    pub(crate) unfair: Option<bool>,
    pub(crate) set: Option<bool>,
    pub(crate) passing: Option<bool>,
    pub(crate) owner: Option<String>,
    pub(crate) principal: Option<String>,
    pub(crate) who: Option<String>,
    pub(crate) why: Option<String>,
    pub(crate) previous: String,
    pub(crate) before: String,
    pub(crate) hash: String,
    pub(crate) cluster_id: Option<String>,
}

impl HistoryLine {
    pub(crate) fn new(record: &HistoryRecord) -> Self {
        let event = &record.event;
        let (session, request, take) = claim_fields(event.subject.claim());
        let mut line = Self {
            position: event.position.to_string(),
            at: date(event),
            log_time_ms: event.at.0,
            event: event.kind.word().to_owned(),
            namespace: event.namespace.as_ref().map(ToString::to_string).unwrap_or_default(),
            lock: event.subject.lock().map(|lock| lock.name.to_string()).unwrap_or_default(),
            token: event.subject.token().map(|token| token.to_string()),
            session,
            request,
            take,
            previous: record.previous.to_string(),
            before: record.before.to_string(),
            hash: record.hash.to_string(),
            ..Self::default()
        };
        line.add_mode(record.mode, record.limit);
        line.add_kind(&event.kind);
        if let Some(facts) = &record.grant {
            line.add_facts(facts);
        }
        line
    }

    /// Adds the id of the cluster.
    pub(crate) fn of(mut self, cluster_id: u128) -> Self {
        self.cluster_id = Some(cluster_id_text(cluster_id));
        self
    }

    fn add_mode(&mut self, mode: Option<Mode>, limit: Option<u32>) {
        self.mode = mode.map(|mode| mode_word(mode).to_owned());
        if let Some(Mode::Permits(count)) = mode {
            (self.permits, self.limit) = (Some(count), limit);
        }
    }

    fn add_kind(&mut self, kind: &EventKind) {
        let facts = Facts::of(kind);
        self.returned = facts.returned;
        self.limit = facts.limit.or(self.limit);
        self.from = facts.from.map(|from| from.to_string());
        (self.was_session, self.was_request, self.was_take) = claim_fields(facts.was);
        (self.reason, self.by) = (facts.reason, facts.by.map(ToString::to_string));
        (self.waited_ms, self.held_ms) = (facts.waited_ms, facts.held_ms);
    }

    fn add_facts(&mut self, facts: &GrantFacts) {
        (self.sequence, self.queued) = (Some(facts.arrival.sequence.to_string()), Some(facts.arrival.queued));
        self.unfair = Some(facts.fairness == Fairness::Barging);
        (self.set, self.passing) = (Some(facts.set), Some(facts.passing));
        self.owner = facts.owner.as_ref().map(ToString::to_string);
        self.principal = Some(facts.principal.to_string());
        self.who = Some(facts.who.to_string());
        self.why = Some(facts.why.to_string()).filter(|why| !why.is_empty());
    }

    /// Returns the record of this line, or an error that names the first invalid field.
    pub(crate) fn record(&self) -> Result<HistoryRecord, Invalid> {
        let namespace = Namespace::parse(&self.namespace)?;
        let lock = LockKey { namespace: namespace.clone(), name: LockName::parse(&self.lock)? };
        let mode = self.read_mode()?;
        let (subject, kind) = self.read_what(lock, mode)?;
        let event = Event {
            position: self.position.parse()?,
            at: LogTime(self.log_time_ms),
            wall: wall(&self.at)?,
            namespace: Some(namespace),
            subject,
            kind,
        };
        Ok(HistoryRecord {
            event,
            mode,
            limit: mode.and(self.limit),
            grant: self.read_facts()?,
            previous: self.previous.parse()?,
            before: self.before.parse()?,
            hash: self.hash.parse()?,
        })
    }

    fn read_mode(&self) -> Result<Option<Mode>, Invalid> {
        let Some(word) = self.mode.as_deref() else { return Ok(None) };
        let count = self.permits.unwrap_or_default();
        let modes = [Mode::Exclusive, Mode::Shared, Mode::Permits(count)];
        let found = modes.into_iter().find(|mode| mode_word(*mode) == word);
        found.map(Some).ok_or_else(|| Invalid::new("mode", "a mode", word))
    }

    fn read_what(&self, lock: LockKey, mode: Option<Mode>) -> Result<(Subject, EventKind), Invalid> {
        if self.event == "limit-changed" {
            let subject = Subject::Lock { lock, claim: None, token: None };
            return Ok((subject, EventKind::LimitChanged { limit: self.limit }));
        }
        let claim = read_claim(self.session.as_ref(), self.request.as_ref(), self.take.as_ref())?;
        let subject = Subject::hold(&lock, claim, token("token", self.token.as_ref())?);
        let from = || token("from", self.from.as_ref());
        let by = || Principal::parse(there("by", self.by.as_ref())?);
        let mode = || there("mode", mode);
        let held_ms = || there("held_ms", self.held_ms);
        let waited_ms = || there("waited_ms", self.waited_ms);
        let kind = match self.event.as_str() {
            "granted" => EventKind::Granted { mode: mode()?, waited_ms: waited_ms()? },
            "released" => EventKind::Released { held_ms: held_ms()? },
            "expired" => EventKind::Expired { reason: self.read_end()?, held_ms: held_ms()? },
            "broken" => {
                let why = Reason::parse(there("reason", self.reason.as_ref())?)?;
                EventKind::Broken { by: by()?, why, held_ms: held_ms()? }
            }
            "upgraded" => EventKind::Upgraded { from: from()?, waited_ms: waited_ms()? },
            "downgraded" => EventKind::Downgraded,
            "permits-returned" => EventKind::PermitsReturned { count: there("returned", self.returned)? },
            "resumed" => EventKind::Resumed { from: from()?, mode: mode()? },
            "handed-over" => {
                let was = read_claim(self.was_session.as_ref(), self.was_request.as_ref(), self.was_take.as_ref())?;
                EventKind::HandedOver { was, from: from()?, mode: mode()?, by: by()? }
            }
            other => return Err(Invalid::new("event", "an event of history", other)),
        };
        Ok((subject, kind))
    }

    fn read_end(&self) -> Result<EndReason, Invalid> {
        let word = there("reason", self.reason.as_ref())?;
        let all = [
            EndReason::Released,
            EndReason::Expired,
            EndReason::Lost,
            EndReason::Cancelled,
            EndReason::Broken,
            EndReason::HandedOver,
            EndReason::Overtaken,
            EndReason::TimeOver,
        ];
        let found = all.into_iter().find(|reason| reason.to_string() == *word);
        found.ok_or_else(|| Invalid::new("reason", "how something ends", word))
    }

    fn read_facts(&self) -> Result<Option<GrantFacts>, Invalid> {
        let Some(sequence) = &self.sequence else { return Ok(None) };
        let sequence = number("sequence", sequence)?;
        let unfair = there("unfair", self.unfair)?;
        Ok(Some(GrantFacts {
            arrival: Arrival { sequence, queued: there("queued", self.queued)? },
            fairness: if unfair { Fairness::Barging } else { Fairness::Fair },
            set: there("set", self.set)?,
            passing: there("passing", self.passing)?,
            owner: self.owner.as_ref().map(|owner| Owner::parse(owner)).transpose()?,
            principal: Principal::parse(there("principal", self.principal.as_ref())?)?,
            who: there("who", self.who.as_deref())?.into(),
            // Lines of older versions have an empty text instead of null.
            why: self.why.as_deref().unwrap_or_default().into(),
        }))
    }
}

fn there<T>(field: &str, value: Option<T>) -> Result<T, Invalid> {
    value.ok_or_else(|| Invalid::new(field, "a value", "null"))
}

fn number(field: &str, text: &str) -> Result<u64, Invalid> {
    text.parse().map_err(|_| Invalid::new(field, "a number", text))
}

fn token(field: &str, text: Option<&String>) -> Result<FencingToken, Invalid> {
    FencingToken::from_u64(number(field, there(field, text)?)?)
}

type ClaimFields = (Option<String>, Option<String>, Option<String>);

fn claim_fields(claim: Option<Claim>) -> ClaimFields {
    match claim {
        Some(Claim::Request(RequestId { session, number })) => {
            (Some(session.to_string()), Some(number.to_string()), None)
        }
        Some(Claim::Lease(take)) => (None, None, Some(format!("{:032x}", take.0))),
        None => (None, None, None),
    }
}

fn read_claim(session: Option<&String>, request: Option<&String>, take: Option<&String>) -> Result<Claim, Invalid> {
    match (session, request, take) {
        (Some(session), Some(request), None) => {
            let session = SessionId::from_u64(number("session", session)?)?;
            Ok(Claim::Request(RequestId { session, number: number("request", request)? }))
        }
        (None, None, Some(take)) => parse_hex("take", take).map(|take| Claim::Lease(LeaseRequestId(take))),
        _ => Err(Invalid::new("session", "a session and its request, or a take", "something else")),
    }
}

fn wall(text: &str) -> Result<WallTime, Invalid> {
    let refused = || Invalid::new("at", "a date as in RFC 3339", text);
    let moment: SystemTime = humantime::parse_rfc3339(text).map_err(|_| refused())?;
    let since = moment.duration_since(UNIX_EPOCH).map_err(|_| refused())?;
    u64::try_from(since.as_millis()).map(WallTime).map_err(|_| refused())
}
