//! Operations on the locks of other clients: `ask`, `break`, `handover` and `semaphore`.

use serde::Deserialize;
use utoipa::ToSchema;

use super::body::present;
use super::call::{Answered, Call, RequestContext, decided};
use super::fields::{session, token};
use super::problem::{Failed, named};
use crate::model::{BreakReport, Command, LockKey, Manage, Managing, Outcome, Query, QueryResult, Reason, Reply};
use crate::service::{ErrorCode, LockService};
use crate::shapes::{Asked, Broken, HandedOver, Semaphore};

/// Codes of calls that name a grant by its token.
const OF_GRANTS: &[ErrorCode] = &[ErrorCode::NotHeld, ErrorCode::HeldByOther];

impl<S: LockService> RequestContext<S> {
    async fn managed(&self, lock: LockKey, what: Managing) -> Result<Reply, Failed> {
        self.operated(Command::Manage(Manage { lock, what })).await
    }
}

/// Asks a holder to give up its hold. The holder decides.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"lock": "nightly", "token": "31", "why": "please finish"}))]
pub(super) struct AskBody {
    lock: String,
    /// Fencing token of the hold.
    token: String,
    /// Reason, shown to the holder.
    why: String,
}

impl Call for AskBody {
    const WORD: &'static str = "ask";
    const ERRORS: &'static [ErrorCode] = OF_GRANTS;
    type Answer = Asked;

    async fn answer<S: LockService>(self, context: &RequestContext<S>) -> Result<Answered<Asked>, Failed> {
        let what = Managing::Ask { token: token(&self.token)?, why: Reason::parse(&self.why)? };
        let reply = context.managed(context.lock(&self.lock)?, what).await?;
        let Outcome::Done = reply.outcome else { return Err(Failed::unexpected(reply.outcome)) };
        let (namespace, lock, token) = (context.namespace.to_string(), self.lock, self.token);
        Ok(Answered::by(&reply, Asked { namespace, lock, token, asked: true }))
    }
}

/// Ends a hold of another client, so that the next waiter gets the lock; with `dry_run`, only says what that would do.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"lock": "nightly", "token": "31", "why": "dead host", "dry_run": true}))]
pub(super) struct BreakBody {
    lock: String,
    /// Fencing token of the hold. A newer hold is not broken.
    token: String,
    /// Reason, kept in the history of the lock. If the hold has ended and only keeps the lock closed, the break has no
    /// record there, and only the audit log keeps the reason.
    why: String,
    dry_run: Option<bool>,
}

impl Call for BreakBody {
    const WORD: &'static str = "break";
    const ERRORS: &'static [ErrorCode] = OF_GRANTS;
    type Answer = Broken;

    async fn answer<S: LockService>(self, context: &RequestContext<S>) -> Result<Answered<Broken>, Failed> {
        let (lock, token, why) = (context.lock(&self.lock)?, token(&self.token)?, Reason::parse(&self.why)?);
        let name = lock.name.clone();
        let reply = if self.dry_run == Some(true) {
            let answered = context.query(Query::WouldBreak { lock, token }, None).await?;
            let QueryResult::WouldBreak(outcome) = answered.answer else {
                return Err(Failed::unexpected(answered.answer));
            };
            decided(Reply::new(answered.index, answered.now, outcome))?
        } else {
            context.managed(lock, Managing::BreakHold { token, why }).await?
        };
        let Outcome::Broken(report) = &reply.outcome else { return Err(Failed::unexpected(reply.outcome)) };
        let report: &BreakReport = report;
        Ok(Answered::by(&reply, Broken::new(&name, report, reply.stamp)))
    }
}

/// Makes another session the holder, under a new token and without a moment in which the lock is free.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"lock": "nightly", "token": "31", "to": "44"}))]
pub(super) struct HandOverBody {
    lock: String,
    /// Fencing token of the hold.
    token: String,
    /// The session that becomes the holder. It must wait for the lock, or accept hand-overs.
    to: String,
}

impl Call for HandOverBody {
    const WORD: &'static str = "handover";
    const ERRORS: &'static [ErrorCode] = &[
        ErrorCode::NotHeld,
        ErrorCode::HeldByOther,
        ErrorCode::NotAccepted,
        ErrorCode::SessionEnded,
        ErrorCode::AlreadyHeld,
    ];
    type Answer = HandedOver;

    async fn answer<S: LockService>(self, context: &RequestContext<S>) -> Result<Answered<HandedOver>, Failed> {
        let to = named("to", session(&self.to))?;
        let what = Managing::HandOver { token: token(&self.token)?, to };
        let reply = context.managed(context.lock(&self.lock)?, what).await?;
        let Outcome::HandedOver { token, .. } = reply.outcome else { return Err(Failed::unexpected(reply.outcome)) };
        let (namespace, lock, session) = (context.namespace.to_string(), self.lock, to.to_string());
        Ok(Answered::by(&reply, HandedOver { namespace, lock, token: token.to_string(), session }))
    }
}

/// Sets the limit of a semaphore, which is kept while no permit is used, or removes it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"lock": "builders", "limit": 4}))]
pub(super) struct SemaphoreBody {
    lock: String,
    /// Number of permits; null removes the limit once no permit is used.
    #[serde(deserialize_with = "present")]
    #[schema(required = true)]
    limit: Option<u32>,
}

impl Call for SemaphoreBody {
    const WORD: &'static str = "semaphore";
    const ERRORS: &'static [ErrorCode] = &[ErrorCode::KindMismatch, ErrorCode::Quota];
    type Answer = Semaphore;

    async fn answer<S: LockService>(self, context: &RequestContext<S>) -> Result<Answered<Semaphore>, Failed> {
        let limit = self.limit;
        let what = limit.map_or(Managing::RemoveLimit, |limit| Managing::SetLimit { limit });
        let reply = context.managed(context.lock(&self.lock)?, what).await?;
        let Outcome::Done = reply.outcome else { return Err(Failed::unexpected(reply.outcome)) };
        let (namespace, lock) = (context.namespace.to_string(), self.lock);
        Ok(Answered::by(&reply, Semaphore { namespace, lock, limit }))
    }
}
