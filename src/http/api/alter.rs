//! Changes of a session's hold: `upgrade`, `downgrade`, `resume` and `value`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::acquire::{Acquired, answered};
use super::acquire_body::patience_in_session;
use super::body::present;
use super::call::{Answered, Call, OF_HOLDS, RequestContext};
use super::fields::token;
use super::problem::{Failed, named};
use super::settle::poll;
use crate::model::{Alter, Alteration, Command, Handle, LockValue, Outcome, Reply};
use crate::service::{self, ErrorCode, LockService};

/// The fields by which a call names the hold.
struct Named<'a> {
    session: &'a str,
    handle: &'a str,
    request: Option<&'a str>,
    lock: &'a str,
}

impl Named<'_> {
    /// Returns the call that makes this change, and the number of its request.
    async fn call<S: LockService>(
        &self,
        context: &RequestContext<S>,
        what: Alteration,
    ) -> Result<(service::Call, String), Failed> {
        let (session, proof) = context.proven(self.session, self.handle)?;
        let name = context.lock(self.lock)?.name;
        let request = context.request(session, self.request).await?;
        let command = Command::Alter(Alter { request, answered_below: 0, name, what });
        Ok((service::Call { proof, ..service::Call::new(command) }, request.number.to_string()))
    }

    /// Makes a change that does not wait. Also returns the number of its request.
    async fn changed<S: LockService>(
        &self,
        context: &RequestContext<S>,
        what: Alteration,
    ) -> Result<(Reply, String), Failed> {
        let (call, number) = self.call(context, what).await?;
        Ok((context.submit(call).await?, number))
    }
}

/// What became of the hold.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct State {
    /// The word `downgraded` or `done`.
    state: &'static str,
    /// Number of the request, also if the node drew it.
    request: String,
}

/// Makes a shared hold exclusive, under a new token, as soon as no other client holds the lock. With `wait_ms` it waits
/// for them as `acquire` does.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"session": "41", "handle": "c0ffee", "lock": "nightly", "token": "31", "wait_ms": 10_000}))]
pub(super) struct UpgradeBody {
    session: String,
    handle: String,
    request: Option<String>,
    lock: String,
    /// Fencing token of the hold.
    token: String,
    /// Longest wait. Default 0: does not wait. The longest, a week, waits as long as the session lives.
    wait_ms: Option<u64>,
    /// Time after which a request that still waits is answered with 202. Default `wait_ms`, at most 30 s.
    poll_ms: Option<u64>,
}

impl Call for UpgradeBody {
    const WORD: &'static str = "upgrade";
    const STATUSES: &'static [u16] = &[200, 202];
    const ERRORS: &'static [ErrorCode] = OF_HOLDS;
    type Answer = Acquired;

    async fn answer<S: LockService>(self, context: &RequestContext<S>) -> Result<Answered<Acquired>, Failed> {
        let poll = poll(self.wait_ms, self.poll_ms)?;
        let what = Alteration::Upgrade { token: token(&self.token)?, patience: patience_in_session(self.wait_ms) };
        let Self { session, handle, request, lock, .. } = &self;
        let (call, number) = Named { session, handle, request: request.as_deref(), lock }.call(context, what).await?;
        answered(context.settle(&call, request.is_some(), poll).await?, None, number, None)
    }
}

/// Makes an exclusive hold shared, at once and under the same token.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"session": "41", "handle": "c0ffee", "lock": "nightly", "token": "31"}))]
pub(super) struct DowngradeBody {
    session: String,
    handle: String,
    request: Option<String>,
    lock: String,
    /// Fencing token of the hold.
    token: String,
}

impl Call for DowngradeBody {
    const WORD: &'static str = "downgrade";
    const ERRORS: &'static [ErrorCode] = OF_HOLDS;
    type Answer = State;

    async fn answer<S: LockService>(self, context: &RequestContext<S>) -> Result<Answered<State>, Failed> {
        let what = Alteration::Downgrade { token: token(&self.token)? };
        let Self { session, handle, request, lock, .. } = &self;
        let (reply, request) =
            Named { session, handle, request: request.as_deref(), lock }.changed(context, what).await?;
        let Outcome::Downgraded = reply.outcome else { return Err(Failed::unexpected(reply.outcome)) };
        Ok(Answered::by(&reply, State { state: "downgraded", request }))
    }
}

/// Takes over a hold that an ended session lost, under a new token, while its lock-delay keeps the lock closed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"session": "44", "handle": "c0ffee", "lock": "nightly", "token": "31", "lost_handle": "0ld"}))]
pub(super) struct ResumeBody {
    session: String,
    handle: String,
    request: Option<String>,
    lock: String,
    /// Fencing token of the lost hold.
    token: String,
    /// The secret of the session that lost it.
    lost_handle: String,
    /// How long the hold lasts unless it is renewed.
    lease_ms: Option<u64>,
}

impl Call for ResumeBody {
    const WORD: &'static str = "resume";
    const ERRORS: &'static [ErrorCode] = OF_HOLDS;
    type Answer = Acquired;

    async fn answer<S: LockService>(self, context: &RequestContext<S>) -> Result<Answered<Acquired>, Failed> {
        let (token, lost) = (token(&self.token)?, named("lost_handle", Handle::parse(&self.lost_handle))?);
        let what = Alteration::Resume { token, handle: lost, lease_ms: self.lease_ms };
        let Self { session, handle, request, lock, .. } = &self;
        let (call, number) = Named { session, handle, request: request.as_deref(), lock }.call(context, what).await?;
        answered(context.settle(&call, request.is_some(), None).await?, None, number, None)
    }
}

/// Changes or removes the text that is stored with a hold.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"session": "41", "handle": "c0ffee", "lock": "nightly", "token": "31", "value": "10.0.0.7:80"}))]
pub(super) struct ValueBody {
    session: String,
    handle: String,
    request: Option<String>,
    lock: String,
    /// Fencing token of the hold.
    token: String,
    /// The new text, at most 4 KiB; null removes it.
    #[serde(deserialize_with = "present")]
    #[schema(required = true)]
    value: Option<String>,
}

impl Call for ValueBody {
    const WORD: &'static str = "value";
    const ERRORS: &'static [ErrorCode] = OF_HOLDS;
    type Answer = State;

    async fn answer<S: LockService>(self, context: &RequestContext<S>) -> Result<Answered<State>, Failed> {
        let value = self.value.as_deref().map(LockValue::parse).transpose()?;
        let what = Alteration::SetValue { token: token(&self.token)?, value };
        let Self { session, handle, request, lock, .. } = &self;
        let (reply, request) =
            Named { session, handle, request: request.as_deref(), lock }.changed(context, what).await?;
        let Outcome::Done = reply.outcome else { return Err(Failed::unexpected(reply.outcome)) };
        Ok(Answered::by(&reply, State { state: "done", request }))
    }
}
