//! Outcomes of commands and answers to questions.

use super::error::{error_from_wire, error_to_wire};
use super::part::{known, lock_key, metadata, namespace, required};
use crate::model::{
    Attachment, BreakReport, Checked, Closing, EndReason, FencingToken, Grant, HolderView, Invalid, Kind, LockName,
    LockSummary, LockValue, LockView, LogTime, Namespace, Outcome, Page, Place, QueryReply, QueryResult, Reply,
    RequestId, SessionId, SessionView, TokenState, WaiterView,
};
use crate::rpc::pb;
use crate::service::ServiceError;

impl From<&Reply> for pb::Reply {
    fn from(reply: &Reply) -> Self {
        let outcome = Some((&reply.outcome).into());
        Self { namespace: String::new(), index: reply.index, stamp_ms: reply.stamp.0, outcome }
    }
}

impl TryFrom<pb::Reply> for Reply {
    type Error = Invalid;
    fn try_from(reply: pb::Reply) -> Result<Self, Invalid> {
        let outcome = required("outcome", reply.outcome)?.try_into()?;
        Ok(Self { index: reply.index, stamp: LogTime(reply.stamp_ms), outcome })
    }
}

fn granted(grant: &Grant) -> pb::Granted {
    let deadline_ms = grant.deadline.map(|deadline| deadline.0);
    let ends_ms = grant.ends.map(|ends| ends.0);
    pb::Granted { token: grant.token.as_u64(), deadline_ms, waited_ms: grant.waited_ms, ends_ms }
}

fn read_granted(grant: &pb::Granted) -> Result<Grant, Invalid> {
    let deadline = grant.deadline_ms.map(LogTime);
    let (token, ends) = (FencingToken::from_u64(grant.token)?, grant.ends_ms.map(LogTime));
    Ok(Grant { token, deadline, ends, waited_ms: grant.waited_ms })
}

impl From<&Outcome> for pb::reply::Outcome {
    fn from(outcome: &Outcome) -> Self {
        use pb::reply::Outcome as Wire;
        match outcome {
            Outcome::Opened { session, ttl_ms, deadline } => {
                Wire::Opened(pb::Opened { session: session.as_u64(), ttl_ms: *ttl_ms, deadline_ms: deadline.0 })
            }
            Outcome::Attached { attachment, deadline } => {
                Wire::Attached(pb::Attached { attachment: attachment.0, deadline_ms: deadline.0 })
            }
            Outcome::Closed => Wire::Closed(pb::Empty {}),
            Outcome::Renewed { deadline, attempt, token } => Wire::Renewed(pb::Renewed {
                deadline_ms: deadline.0,
                attempt: *attempt,
                token: token.map(FencingToken::as_u64),
            }),
            Outcome::Granted(grant) => Wire::Granted(granted(grant)),
            Outcome::GrantedSet(grants) => {
                let member = |(name, grant): &(LockName, Grant)| pb::GrantedMember {
                    lock: name.to_string(),
                    grant: Some(granted(grant)),
                };
                Wire::GrantedSet(pb::GrantedSet { members: grants.iter().map(member).collect() })
            }
            Outcome::Queued(Place { lock, place, sequence, held_by }) => Wire::Queued(pb::Queued {
                lock: lock.to_string(),
                place: *place,
                sequence: *sequence,
                held_by: held_by.as_deref().map(Into::into),
            }),
            Outcome::TimedOut => Wire::TimedOut(pb::Empty {}),
            Outcome::Withdrawn => Wire::Withdrawn(pb::Empty {}),
            Outcome::HoldEnded { reason } => {
                Wire::HoldEnded(pb::HoldEnded { reason: pb::EndReason::from(*reason).into() })
            }
            Outcome::Released { left } => Wire::Released(pb::Released { left: *left }),
            Outcome::Downgraded => Wire::Downgraded(pb::Empty {}),
            Outcome::Done => Wire::Done(pb::Empty {}),
            Outcome::Broken(breach) => Wire::Broken(pb::Broken {
                done: breach.done,
                holder: Some((&breach.holder).into()),
                last_seen_ms: breach.last_seen.map(|seen| seen.0),
                next: breach.next.as_ref().map(Into::into),
            }),
            Outcome::HandedOver { token, to } => Wire::HandedOver(pb::HandedOver {
                token: token.as_u64(),
                to: Some(pb::RequestId { session: to.session.as_u64(), number: to.number }),
            }),
            Outcome::Freed { locks } => Wire::Freed(*locks),
            Outcome::Refused(refusal) => Wire::Refused(error_to_wire(&ServiceError::Refused(refusal.clone()))),
        }
    }
}

impl TryFrom<pb::reply::Outcome> for Outcome {
    type Error = Invalid;
    fn try_from(outcome: pb::reply::Outcome) -> Result<Self, Invalid> {
        use pb::reply::Outcome as Wire;
        Ok(match outcome {
            Wire::Opened(pb::Opened { session, ttl_ms, deadline_ms }) => {
                Outcome::Opened { session: SessionId::from_u64(session)?, ttl_ms, deadline: LogTime(deadline_ms) }
            }
            Wire::Attached(pb::Attached { attachment, deadline_ms }) => {
                Outcome::Attached { attachment: Attachment(attachment), deadline: LogTime(deadline_ms) }
            }
            Wire::Closed(_) => Outcome::Closed,
            Wire::Renewed(pb::Renewed { deadline_ms, attempt, token }) => Outcome::Renewed {
                deadline: LogTime(deadline_ms),
                attempt,
                token: token.map(FencingToken::from_u64).transpose()?,
            },
            Wire::Granted(grant) => Outcome::Granted(read_granted(&grant)?),
            Wire::GrantedSet(pb::GrantedSet { members }) => {
                let member = |member: pb::GrantedMember| -> Result<(LockName, Grant), Invalid> {
                    Ok((LockName::parse(&member.lock)?, read_granted(&required("grant", member.grant)?)?))
                };
                Outcome::GrantedSet(members.into_iter().map(member).collect::<Result<_, _>>()?)
            }
            Wire::Queued(pb::Queued { lock, place, sequence, held_by }) => {
                let held_by = held_by.map(HolderView::try_from).transpose()?.map(Box::new);
                Outcome::Queued(Place { lock: LockName::parse(&lock)?, place, sequence, held_by })
            }
            Wire::TimedOut(_) => Outcome::TimedOut,
            Wire::Withdrawn(_) => Outcome::Withdrawn,
            Wire::HoldEnded(pb::HoldEnded { reason }) => {
                Outcome::HoldEnded { reason: EndReason::try_from(known::<pb::EndReason>("reason", reason)?)? }
            }
            Wire::Released(pb::Released { left }) => Outcome::Released { left },
            Wire::Downgraded(_) => Outcome::Downgraded,
            Wire::Done(_) => Outcome::Done,
            Wire::Broken(pb::Broken { done, holder, last_seen_ms, next }) => Outcome::Broken(Box::new(BreakReport {
                done,
                holder: required("holder", holder)?.try_into()?,
                last_seen: last_seen_ms.map(LogTime),
                next: next.map(WaiterView::try_from).transpose()?,
            })),
            Wire::HandedOver(pb::HandedOver { token, to }) => {
                let to = required("to", to)?;
                let to = RequestId { session: SessionId::from_u64(to.session)?, number: to.number };
                Outcome::HandedOver { token: FencingToken::from_u64(token)?, to }
            }
            Wire::Freed(locks) => Outcome::Freed { locks },
            Wire::Refused(error) => match error_from_wire(&error) {
                ServiceError::Refused(refusal) => Outcome::Refused(refusal),
                other @ (ServiceError::NotSent { .. }
                | ServiceError::Unknown { .. }
                | ServiceError::Invalid(_)
                | ServiceError::Forbidden { .. }
                | ServiceError::EventsMissed { .. }
                | ServiceError::Stopping
                | ServiceError::Internal(_)) => return Err(Invalid::new("refused", "a known refusal", other)),
            },
        })
    }
}

/// The error of a service that answered another question than it was asked.
pub(super) fn other_answer(answer: &QueryResult) -> ServiceError {
    let kind = match answer {
        QueryResult::Checked(_) => "checked",
        QueryResult::Lock(_) => "lock",
        QueryResult::Locks(_) => "locks",
        QueryResult::Sessions(_) => "sessions",
        QueryResult::Claim(_) => "claim",
        QueryResult::Totals(_) => "totals",
        QueryResult::Explained(_) => "explained",
        QueryResult::History(_) => "history",
        QueryResult::Tokens(_) => "tokens",
        QueryResult::Documents(_) => "documents",
        QueryResult::Pings(_) => "pings",
        QueryResult::WouldBreak(_) => "would break",
    };
    ServiceError::Internal(format!("the service answered another question ({kind})"))
}

/// The answer to a dry run, in the form of the command's reply.
pub(in crate::rpc) fn dry_run_reply(answered: QueryReply) -> Result<Reply, ServiceError> {
    let QueryReply { index, now: stamp, answer: QueryResult::WouldBreak(outcome) } = answered else {
        return Err(other_answer(&answered.answer));
    };
    Ok(Reply { index, stamp, outcome })
}

/// The same, read back.
pub(in crate::rpc) fn dry_run_answer(reply: Reply) -> QueryReply {
    QueryReply { index: reply.index, now: reply.stamp, answer: QueryResult::WouldBreak(reply.outcome) }
}

/// `QueryReply` to one message and back; the message's namespace is set by who echoes it.
macro_rules! answers {
    ($($wire:ident, $variant:pat => $build:expr;)*) => { $(
        impl TryFrom<QueryReply> for pb::$wire {
            type Error = ServiceError;
            fn try_from(answered: QueryReply) -> Result<Self, ServiceError> {
                let (index, now_ms) = (answered.index, answered.now.0);
                match answered.answer {
                    $variant => Ok(Self { index, now_ms, ..$build }),
                    #[allow(unreachable_patterns, clippy::wildcard_enum_match_arm)]
                    other => Err(other_answer(&other)),
                }
            }
        }
    )* };
}
answers! {
    CheckReply, QueryResult::Checked(checked) => Self {
        state: match checked.state {
            TokenState::Valid => pb::TokenState::Valid,
            TokenState::Stale => pb::TokenState::Stale,
            TokenState::UnknownEpoch => pb::TokenState::UnknownEpoch,
        }.into(),
        lowest_valid: checked.lowest_valid.as_u64(),
        ..Self::default()
    };
    InspectReply, QueryResult::Lock(view) => Self {
        namespace: view.lock.namespace.to_string(),
        lock: view.lock.name.to_string(),
        kind: view.kind.map_or(pb::Kind::Unspecified, Into::into).into(),
        limit: view.limit,
        holders: view.holders.iter().map(Into::into).collect(),
        waiters: view.waiters.iter().map(Into::into).collect(),
        delay_ms: view.delay_ms,
        closed: view.closed.iter().map(Into::into).collect(),
        value: view.value.as_ref().map(ToString::to_string),
        free: view.free,
        ..Self::default()
    };
    ListReply, QueryResult::Locks(Page { rows, more }) => Self {
        rows: rows.iter().map(Into::into).collect(),
        more,
        ..Self::default()
    };
    SessionsReply, QueryResult::Sessions(Page { rows, more }) => Self {
        rows: rows.iter().map(Into::into).collect(),
        more,
        ..Self::default()
    };
    ClaimReply, QueryResult::Claim(outcome) => Self {
        outcome: outcome.map(|outcome| pb::Reply { outcome: Some((&outcome).into()), ..pb::Reply::default() }),
        ..Self::default()
    };
    TotalsReply, QueryResult::Totals(totals) => Self { totals: Some((&totals).into()), ..Self::default() };
    TokensReply, QueryResult::Tokens(valid) => Self::of_all(&valid);
    HistoryReply, QueryResult::History(page) => Self {
        records: page.records.iter().map(Into::into).collect(),
        next: page.next.map(Into::into),
        floor: Some(page.floor.into()),
        ..Self::default()
    };
}

fn answered(index: u64, now_ms: u64, answer: QueryResult) -> QueryReply {
    QueryReply { index, now: LogTime(now_ms), answer }
}

impl TryFrom<pb::CheckReply> for QueryReply {
    type Error = Invalid;
    fn try_from(reply: pb::CheckReply) -> Result<Self, Invalid> {
        let state = match known::<pb::TokenState>("state", reply.state)? {
            pb::TokenState::Unspecified => return Err(super::part::unknown("state", "unspecified")),
            pb::TokenState::Valid => TokenState::Valid,
            pb::TokenState::Stale => TokenState::Stale,
            pb::TokenState::UnknownEpoch => TokenState::UnknownEpoch,
        };
        let lowest_valid = FencingToken::from_u64(reply.lowest_valid)?;
        Ok(answered(reply.index, reply.now_ms, QueryResult::Checked(Checked { state, lowest_valid })))
    }
}

impl TryFrom<pb::InspectReply> for QueryReply {
    type Error = Invalid;
    fn try_from(reply: pb::InspectReply) -> Result<Self, Invalid> {
        let kind = match known::<pb::Kind>("kind", reply.kind)? {
            pb::Kind::Unspecified => None,
            pb::Kind::Lock => Some(Kind::Lock),
            pb::Kind::Semaphore => Some(Kind::Semaphore),
        };
        let view = LockView {
            lock: lock_key(&reply.namespace, &reply.lock)?,
            kind,
            limit: reply.limit,
            holders: reply.holders.into_iter().map(HolderView::try_from).collect::<Result<_, _>>()?,
            waiters: reply.waiters.into_iter().map(WaiterView::try_from).collect::<Result<_, _>>()?,
            delay_ms: reply.delay_ms,
            closed: reply.closed.iter().map(read_closing).collect::<Result<_, _>>()?,
            value: reply.value.map(|text| LockValue::parse(&text)).transpose()?,
            free: reply.free,
        };
        Ok(answered(reply.index, reply.now_ms, QueryResult::Lock(view)))
    }
}

impl From<&Closing> for pb::Closing {
    fn from(closing: &Closing) -> Self {
        Self {
            token: closing.token.as_u64(),
            who: closing.who.to_string(),
            until_ms: closing.until.0,
            left_ms: closing.left_ms,
        }
    }
}

fn read_closing(closing: &pb::Closing) -> Result<Closing, Invalid> {
    let (token, until) = (FencingToken::from_u64(closing.token)?, LogTime(closing.until_ms));
    Ok(Closing { token, who: closing.who.as_str().into(), until, left_ms: closing.left_ms })
}

impl From<&LockSummary> for pb::LockSummary {
    fn from(row: &LockSummary) -> Self {
        Self {
            lock: row.lock.name.to_string(),
            kind: pb::Kind::from(row.kind).into(),
            limit: row.limit,
            holders: row.holders,
            waiters: row.waiters,
            oldest: row.oldest.as_ref().map(Into::into),
            delay_ms: row.delay_ms,
            value: row.value.as_ref().map(ToString::to_string),
        }
    }
}

impl TryFrom<pb::ListReply> for QueryReply {
    type Error = Invalid;
    fn try_from(reply: pb::ListReply) -> Result<Self, Invalid> {
        let row = |row: pb::LockSummary| -> Result<LockSummary, Invalid> {
            Ok(LockSummary {
                lock: lock_key(&reply.namespace, &row.lock)?,
                kind: known::<pb::Kind>("kind", row.kind)?.try_into()?,
                limit: row.limit,
                holders: row.holders,
                waiters: row.waiters,
                oldest: row.oldest.map(HolderView::try_from).transpose()?,
                delay_ms: row.delay_ms,
                value: row.value.map(|value| LockValue::parse(&value)).transpose()?,
            })
        };
        let rows = reply.rows.into_iter().map(row).collect::<Result<_, _>>()?;
        Ok(answered(reply.index, reply.now_ms, QueryResult::Locks(Page { rows, more: reply.more })))
    }
}

impl From<&SessionView> for pb::SessionSummary {
    fn from(row: &SessionView) -> Self {
        Self {
            session: row.session.as_u64(),
            metadata: Some((&row.metadata).into()),
            ttl_ms: row.ttl_ms,
            opened_ms: row.opened.0,
            deadline_ms: row.deadline.0,
            disconnected: row.disconnected,
            leaderless_ms: row.leaderless_ms,
            holds: row.holds,
            waits: row.waits,
        }
    }
}

fn session_view(namespace: &Namespace, row: pb::SessionSummary) -> Result<SessionView, Invalid> {
    Ok(SessionView {
        session: SessionId::from_u64(row.session)?,
        namespace: namespace.clone(),
        metadata: metadata(row.metadata)?,
        ttl_ms: row.ttl_ms,
        opened: LogTime(row.opened_ms),
        deadline: LogTime(row.deadline_ms),
        disconnected: row.disconnected,
        leaderless_ms: row.leaderless_ms,
        holds: row.holds,
        waits: row.waits,
    })
}

impl TryFrom<pb::SessionsReply> for QueryReply {
    type Error = Invalid;
    fn try_from(reply: pb::SessionsReply) -> Result<Self, Invalid> {
        let namespace = namespace(&reply.namespace)?;
        let rows = reply.rows.into_iter().map(|row| session_view(&namespace, row)).collect::<Result<_, _>>()?;
        Ok(answered(reply.index, reply.now_ms, QueryResult::Sessions(Page { rows, more: reply.more })))
    }
}

impl TryFrom<pb::ClaimReply> for QueryReply {
    type Error = Invalid;
    fn try_from(reply: pb::ClaimReply) -> Result<Self, Invalid> {
        let outcome = reply.outcome.map(|outcome| required("outcome", outcome.outcome)?.try_into()).transpose()?;
        Ok(answered(reply.index, reply.now_ms, QueryResult::Claim(outcome)))
    }
}

impl TryFrom<pb::TotalsReply> for QueryReply {
    type Error = Invalid;
    fn try_from(reply: pb::TotalsReply) -> Result<Self, Invalid> {
        let totals = required("totals", reply.totals)?.into();
        Ok(answered(reply.index, reply.now_ms, QueryResult::Totals(totals)))
    }
}
