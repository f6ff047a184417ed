//! `release`, `withdraw` and `refresh`: gives back a hold or a request, and keeps a hold.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::acquire::LENGTHENED_ATTEMPT;
use super::call::{Answered, Call, OF_HOLDS, RequestContext, decided};
use super::fields::{Ends, absent, lease_request, needed, token};
use super::problem::Failed;
use crate::model::{Alter, Alteration, Command, Handle, Outcome, Release, RenewalTarget};
use crate::service::{self, ErrorCode, LockService, Proof, RenewalCall};

/// Releases a lease by its `handle`, or a hold of a session by its `token`. With `permits`, returns only that many.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"lock": "nightly", "handle": "c0ffee"}))]
pub(super) struct ReleaseBody {
    lock: String,
    /// The secret that proves the lease or the session.
    handle: String,
    /// Id of the session, for its hold.
    session: Option<String>,
    /// Number of the session's request, for a safe retry.
    request: Option<String>,
    /// Fencing token of the session's hold.
    token: Option<String>,
    /// Number of permits to return. Default: the whole hold.
    permits: Option<u32>,
}

/// What remains of a hold.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Released {
    /// This is always true.
    released: bool,
    /// The depth or the permits that remain; 0 if the hold has ended.
    left: u32,
    /// Number of the session's request, also if the node drew it. Not for a lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<String>,
}

impl Call for ReleaseBody {
    const WORD: &'static str = "release";
    const ERRORS: &'static [ErrorCode] = OF_HOLDS;
    type Answer = Released;

    async fn answer<S: LockService>(self, context: &RequestContext<S>) -> Result<Answered<Released>, Failed> {
        let lock = context.lock(&self.lock)?;
        let Some(id) = &self.session else {
            let form = "for a lease; only a request with `session` has it";
            absent(form, "request", self.request.as_ref())?;
            absent(form, "token", self.token.as_ref())?;
            absent(form, "permits", self.permits.as_ref())?;
            let drop = Command::DropLease { lock, handle: Handle::parse(&self.handle)? };
            let (reply, in_doubt) = context.repeated(&service::Call::new(drop)).await?;
            // An earlier attempt of this call has released it.
            let done = in_doubt && reply.outcome.hold_is_gone();
            let reply = if done { reply } else { decided(reply)? };
            return Ok(Answered::by(&reply, Released { released: true, left: 0, request: None }));
        };
        let (session, proof) = context.proven(id, &self.handle)?;
        let token = token(needed("for a hold of a session", "token", self.token.as_deref())?)?;
        let (request, answered_below) = (context.request(session, self.request.as_deref()).await?, 0);
        let command = match self.permits {
            None => Command::Release(Release { request, answered_below, name: lock.name, token, acquire: 0 }),
            Some(count) => {
                let what = Alteration::ReturnPermits { token, count };
                Command::Alter(Alter { request, answered_below, name: lock.name, what })
            }
        };
        let reply = context.submit(service::Call { proof, ..service::Call::new(command) }).await?;
        let Outcome::Released { left } = reply.outcome else { return Err(Failed::unexpected(reply.outcome)) };
        let request = Some(request.number.to_string());
        Ok(Answered::by(&reply, Released { released: true, left, request }))
    }
}

/// Withdraws an acquire: it leaves the queue, or what it was granted is released. A later copy does nothing. An upgrade
/// that was granted before is not withdrawn: the answer is its grant.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"lock": "nightly", "request": "7f1e0c3a-52d4-4b0e-9a55-0b3a3f6b9d11", "handle": "c0ffee"}))]
pub(super) struct WithdrawBody {
    /// Name of the lock, for a lease.
    lock: Option<String>,
    /// The request of the acquire or of the upgrade.
    request: String,
    /// The secret that proves the lease or the session.
    handle: String,
    /// Id of the session, for its request.
    session: Option<String>,
}

/// What became of the request.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Withdrawn {
    /// The word `withdrawn`; `granted` for an upgrade that was granted before, whose hold stays.
    state: &'static str,
    /// Fencing token of the granted upgrade.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
}

impl Call for WithdrawBody {
    const WORD: &'static str = "withdraw";
    const ERRORS: &'static [ErrorCode] = &[ErrorCode::WrongHandle, ErrorCode::SessionEnded, ErrorCode::Quota];
    type Answer = Withdrawn;

    async fn answer<S: LockService>(self, context: &RequestContext<S>) -> Result<Answered<Withdrawn>, Failed> {
        let (command, proof) = match &self.session {
            None => {
                let lock = context.lock(needed(
                    "for a lease; a request of a session needs `session` instead",
                    "lock",
                    self.lock.as_deref(),
                )?)?;
                let (take, handle) = (lease_request(&self.request)?, Handle::parse(&self.handle)?);
                (Command::CancelTake { lock, take, handle }, Proof::Trusted)
            }
            Some(id) => {
                absent("in a session", "lock", self.lock.as_ref())?;
                let (session, proof) = context.proven(id, &self.handle)?;
                (Command::Cancel { request: context.request(session, Some(&self.request)).await? }, proof)
            }
        };
        let reply = context.submit(service::Call { proof, ..service::Call::new(command) }).await?;
        if let Outcome::Granted(upgrade) = &reply.outcome {
            let token = Some(upgrade.token.to_string());
            return Ok(Answered::by(&reply, Withdrawn { state: "granted", token }));
        }
        let Outcome::Withdrawn = reply.outcome else { return Err(Failed::unexpected(reply.outcome)) };
        Ok(Answered::by(&reply, Withdrawn { state: "withdrawn", token: None }))
    }
}

/// Sets the end of a lease, or of a session's hold that has a lease, to this long from now.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"lock": "nightly", "handle": "c0ffee", "lease_ms": 600_000}))]
pub(super) struct RefreshBody {
    lock: String,
    /// The secret that proves the lease or the session.
    handle: String,
    lease_ms: u64,
    /// Count of the caller's refreshes. A lower one than the last applied changes nothing. Default: none is counted.
    attempt: Option<u64>,
    /// Id of the session, for its hold.
    session: Option<String>,
    /// Fencing token of the session's hold.
    token: Option<String>,
}

/// The hold and its new end.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Refreshed {
    token: Option<String>,
    #[serde(flatten)]
    ends: Ends,
}

impl Call for RefreshBody {
    const WORD: &'static str = "refresh";
    const ERRORS: &'static [ErrorCode] = OF_HOLDS;
    type Answer = Refreshed;

    async fn answer<S: LockService>(self, context: &RequestContext<S>) -> Result<Answered<Refreshed>, Failed> {
        let (lock, lease_ms) = (context.lock(&self.lock)?, self.lease_ms);
        let (target, proof, held) = match &self.session {
            None => {
                absent("for a lease; only a request with `session` has it", "token", self.token.as_ref())?;
                let handle = Handle::parse(&self.handle)?;
                (RenewalTarget::Lease { lock, handle, lease_ms }, Proof::Trusted, None)
            }
            Some(id) => {
                let (session, proof) = context.proven(id, &self.handle)?;
                let token = token(needed("for a hold of a session", "token", self.token.as_deref())?)?;
                (RenewalTarget::Hold { lock, session, token, lease_ms }, proof, Some(token))
            }
        };
        // The count of the renewal that an acquire itself makes is below those of its caller.
        let attempt = self.attempt.map_or(0, |attempt| attempt.saturating_add(LENGTHENED_ATTEMPT));
        let renewal = RenewalCall { target, proof, attempt };
        let reply = decided(context.renewed(renewal).await?)?;
        let Outcome::Renewed { deadline, token, .. } = reply.outcome else {
            return Err(Failed::unexpected(reply.outcome));
        };
        let token = token.or(held).map(|token| token.to_string());
        Ok(Answered::by(&reply, Refreshed { token, ends: Ends::new(reply.stamp, deadline) }))
    }
}
