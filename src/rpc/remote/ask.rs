//! The unary calls: leases, proofs in hand, and questions.

use tonic::{Response, Status};

use super::RemoteService;
use super::endpoints::{At, Effect, admin, locks};
use crate::model::{
    Command, EndSession, Handle, Invalid, LeaseRequestId, LockKey, Manage, Query, QueryReply, RenewalTarget, Reply,
    SessionId, Setting, TakeLease,
};
use crate::rpc::convert::{
    Sent, acquire_of_one, bytes_of, decided, dry_run, dry_run_answer, error_from_status, not_understood,
};
use crate::rpc::pb;
use crate::service::{ClaimRef, Freshness, Proof, RenewalCall, ServiceError};

impl RemoteService {
    pub(super) async fn take(&self, take: &TakeLease, sent: Sent) -> Result<Reply, ServiceError> {
        let asked = pb::AcquireRequest::from((take, sent));
        let call = |asked, at| async move { reply(locks(at).acquire(asked).await) };
        self.shared.endpoints.ask(Effect::Repeats, asked, call).await
    }

    pub(super) async fn withdraw(
        &self,
        lock: &LockKey,
        take: LeaseRequestId,
        handle: &Handle,
        sent: Sent,
    ) -> Result<Reply, ServiceError> {
        let asked = pb::WithdrawRequest {
            namespace: lock.namespace.to_string(),
            lock: lock.name.to_string(),
            take: bytes_of(take.0),
            handle: handle.reveal().to_owned(),
            age_ms: sent.age_ms,
            since_ms: sent.since.map(|since| since.0),
        };
        let call = |asked, at| async move { reply(locks(at).withdraw(asked).await) };
        self.shared.endpoints.ask(Effect::Repeats, asked, call).await
    }

    pub(super) async fn drop_lease(&self, lock: &LockKey, handle: &Handle, sent: Sent) -> Result<Reply, ServiceError> {
        let asked = pb::ReleaseRequest {
            namespace: lock.namespace.to_string(),
            lock: lock.name.to_string(),
            handle: handle.reveal().to_owned(),
            age_ms: sent.age_ms,
            since_ms: sent.since.map(|since| since.0),
        };
        let call = |asked, at| async move { reply(locks(at).release(asked).await) };
        self.shared.endpoints.ask(Effect::Repeats, asked, call).await
    }

    pub(super) async fn manage(&self, manage: &Manage) -> Result<Reply, ServiceError> {
        let call = |asked, at| async move { reply(locks(at).manage(asked).await) };
        self.shared.endpoints.ask(Effect::Repeats, pb::ManageRequest::from(manage), call).await
    }

    pub(super) async fn change_setting(&self, setting: Setting) -> Result<Reply, ServiceError> {
        let call = |asked, at| async move { reply(admin(at).change_setting(asked).await) };
        self.shared.endpoints.ask(Effect::Repeats, pb::ChangeSettingRequest::from(setting), call).await
    }

    pub(super) async fn end_session(&self, end: &EndSession) -> Result<Reply, ServiceError> {
        let call = |asked, at| async move { reply(locks(at).end_session(asked).await) };
        self.shared.endpoints.ask(Effect::Repeats, pb::EndSessionRequest::from(end), call).await
    }

    /// A session's command with its proof, for a session that has no stream here.
    pub(super) async fn unary_session_command(
        &self,
        session: SessionId,
        handle: &Handle,
        namespace: String,
        command: &Command,
    ) -> Result<Reply, ServiceError> {
        let (session, handle) = (session.as_u64(), handle.reveal().to_owned());
        let endpoints = &self.shared.endpoints;
        match command {
            Command::Acquire(acquire) => {
                if let acquire @ Some(_) = acquire_of_one(acquire) {
                    let asked = pb::SessionAcquireRequest { namespace, session, handle, acquire };
                    let call = |asked, at| async move { reply(locks(at).session_acquire(asked).await) };
                    return endpoints.ask(Effect::Repeats, asked, call).await;
                }
                let acquire = Some(acquire.into());
                let asked = pb::SessionAcquireSetRequest { namespace, session, handle, acquire };
                let call = |asked, at| async move { reply(locks(at).session_acquire_set(asked).await) };
                endpoints.ask(Effect::Repeats, asked, call).await
            }
            Command::Release(release) => {
                let release = Some(release.into());
                let asked = pb::SessionReleaseRequest { namespace, session, handle, release };
                let call = |asked, at| async move { reply(locks(at).session_release(asked).await) };
                endpoints.ask(Effect::Repeats, asked, call).await
            }
            Command::Alter(alter) => {
                let alter = Some(alter.into());
                let asked = pb::SessionAlterRequest { namespace, session, handle, alter };
                let call = |asked, at| async move { reply(locks(at).session_alter(asked).await) };
                endpoints.ask(Effect::Repeats, asked, call).await
            }
            Command::Cancel { request } => {
                let asked = pb::SessionCancelRequest { namespace, session, handle, request: request.number };
                let call = |asked, at| async move { reply(locks(at).session_cancel(asked).await) };
                endpoints.ask(Effect::Repeats, asked, call).await
            }
            Command::CloseSession { end, .. } => {
                let end = super::session_close(*end);
                let asked = pb::CloseSessionRequest { namespace, session, handle, end };
                let call = |asked, at| async move { reply(locks(at).close_session(asked).await) };
                endpoints.ask(Effect::Repeats, asked, call).await
            }
            Command::OpenSession(_)
            | Command::Attach(_)
            | Command::Disconnected { .. }
            | Command::TakeLease(_)
            | Command::CancelTake { .. }
            | Command::DropLease { .. }
            | Command::Manage(_)
            | Command::Document(_)
            | Command::EndSession(_)
            | Command::ChangeSetting(_)
            | Command::Tick
            | Command::LeaderlessGap { .. }
            | Command::Configure { .. }
            | Command::Announce(_)
            | Command::RaiseFeatures(_) => Err(ServiceError::Internal("not a command of a bound session".to_owned())),
        }
    }

    pub(super) async fn unary_renewal(&self, renewal: RenewalCall) -> Result<Reply, ServiceError> {
        let attempt = renewal.attempt;
        let (target, handle, namespace) = match (renewal.target, renewal.proof) {
            (RenewalTarget::Session(session), Proof::Handle { handle, namespace }) => {
                (pb::renewal::Target::Session(session.as_u64()), handle, namespace)
            }
            (RenewalTarget::Session(_) | RenewalTarget::Hold { .. }, Proof::Trusted) => {
                let missing = Invalid::new("handle", "the session's proof", "nothing");
                return Err(ServiceError::Invalid(missing));
            }
            (RenewalTarget::Hold { lock, session, token, lease_ms }, Proof::Handle { handle, namespace }) => {
                let (lock, session, token) = (Some((&lock).into()), session.as_u64(), token.as_u64());
                (pb::renewal::Target::Hold(pb::HoldTarget { lock, session, token, lease_ms }), handle, namespace)
            }
            (RenewalTarget::Lease { lock, handle, lease_ms }, _) => {
                let lease = pb::LeaseTarget { lock: Some((&lock).into()), lease_ms };
                (pb::renewal::Target::Lease(lease), handle, lock.namespace)
            }
        };
        let renewal = pb::Renewal { target: Some(target), handle: handle.reveal().to_owned(), attempt };
        let asked = pb::RenewRequest { namespace: namespace.to_string(), renewals: vec![renewal] };
        let call = |asked, at| async move {
            let answered = locks(at).renew(asked).await;
            let replies = answered.map_err(|status| error_from_status(&status))?.into_inner().replies;
            let missing = || ServiceError::Internal("a renewal was not answered".to_owned());
            replies.into_iter().next().ok_or_else(missing)?.try_into().map_err(not_understood)
        };
        self.shared.endpoints.ask(Effect::Repeats, asked, call).await
    }

    /// Waits by a call of its own. The wait has no bound; a vanished node is found by keepalive.
    pub(super) async fn unary_settled(&self, claim: &ClaimRef) -> Result<Reply, ServiceError> {
        let asked = pb::SettledRequest::from(claim);
        let at = self.shared.endpoints.ask(Effect::Reads, (), |(), at: At| async move { Ok(at) }).await?;
        let address = at.address.clone();
        let settled = reply(locks(at).settled(asked).await);
        if let Err(error) = &settled {
            match error {
                ServiceError::NotSent { .. } | ServiceError::Unknown { .. } | ServiceError::Stopping => {
                    self.shared.endpoints.forget(&address);
                    if let Some(leader) = error.leader() {
                        self.shared.endpoints.prefer(&leader.client);
                    }
                }
                ServiceError::Invalid(_)
                | ServiceError::Refused(_)
                | ServiceError::Forbidden { .. }
                | ServiceError::EventsMissed { .. }
                | ServiceError::Internal(_) => {}
            }
        }
        settled
    }

    pub(super) async fn question(&self, query: Query, freshness: Freshness) -> Result<QueryReply, ServiceError> {
        let how = pb::Freshness::from(freshness).into();
        let endpoints = &self.shared.endpoints;
        match query {
            Query::Check { lock, token } => {
                let LockKey { namespace, name } = &lock;
                let (namespace, lock) = (namespace.to_string(), name.to_string());
                let asked = pb::CheckRequest { namespace, lock, token: token.as_u64(), freshness: how };
                endpoints
                    .ask(Effect::Reads, asked, |asked, at| async move { answer(locks(at).check(asked).await) })
                    .await
            }
            Query::Inspect { lock } => {
                let LockKey { namespace, name } = &lock;
                let (namespace, lock) = (namespace.to_string(), name.to_string());
                let asked = pb::InspectRequest { namespace, lock, freshness: how };
                endpoints
                    .ask(Effect::Reads, asked, |asked, at| async move { answer(locks(at).inspect(asked).await) })
                    .await
            }
            Query::List(filter) => {
                let asked = pb::ListRequest { freshness: how, ..(&filter).into() };
                endpoints
                    .ask(Effect::Reads, asked, |asked, at| async move { answer(locks(at).list(asked).await) })
                    .await
            }
            Query::Sessions { namespace, after, rows } => {
                let (namespace, after) = (namespace.to_string(), after.map(SessionId::as_u64));
                let asked = pb::SessionsRequest { namespace, after, rows, freshness: how };
                endpoints
                    .ask(Effect::Reads, asked, |asked, at| async move { answer(locks(at).sessions(asked).await) })
                    .await
            }
            Query::Claim { lock, claim } => {
                let (namespace, lock) =
                    lock.map(|lock| (lock.namespace.to_string(), lock.name.to_string())).unwrap_or_default();
                let asked = pb::ClaimRequest { namespace, lock, claim: Some(claim.into()), freshness: how };
                endpoints
                    .ask(Effect::Reads, asked, |asked, at| async move { answer(locks(at).claim(asked).await) })
                    .await
            }
            Query::Explain(about) => {
                let asked = pb::ExplainRequest { freshness: how, ..(&about).into() };
                endpoints
                    .ask(Effect::Reads, asked, |asked, at| async move { answer(locks(at).explain(asked).await) })
                    .await
            }
            Query::Tokens { lock } => {
                let LockKey { namespace, name } = &lock;
                let (namespace, lock) = (namespace.to_string(), name.to_string());
                let asked = pb::TokensRequest { namespace, lock, freshness: how };
                endpoints
                    .ask(Effect::Reads, asked, |asked, at| async move { answer(locks(at).tokens(asked).await) })
                    .await
            }
            Query::History { namespace, lock, after, rows } => {
                let (namespace, lock) = (namespace.to_string(), lock.map(|lock| lock.to_string()).unwrap_or_default());
                let after = after.map(Into::into);
                let asked = pb::HistoryRequest { namespace, lock, after, rows, freshness: how };
                endpoints
                    .ask(Effect::Reads, asked, |asked, at| async move { answer(locks(at).history(asked).await) })
                    .await
            }
            Query::Documents { namespace, which, rows } => self.find_documents(&namespace, &which, rows, how).await,
            Query::Pings { namespace, which, rows } => self.find_pings(&namespace, &which, rows, how).await,
            Query::WouldBreak { lock, token } => {
                let call = |asked, at| async move { reply(locks(at).manage(asked).await) };
                endpoints.ask(Effect::Reads, dry_run(&lock, token), call).await.map(dry_run_answer)
            }
            Query::Totals => {
                let asked = pb::TotalsRequest { freshness: how };
                endpoints
                    .ask(Effect::Reads, asked, |asked, at| async move { answer(locks(at).totals(asked).await) })
                    .await
            }
        }
    }
}

/// A command's answer: a refusal comes back as a status, and is an answer all the same.
pub(super) fn reply(answered: Result<Response<pb::Reply>, Status>) -> Result<Reply, ServiceError> {
    match answered {
        Ok(reply) => reply.into_inner().try_into().map_err(not_understood),
        Err(status) => decided(&status).ok_or_else(|| error_from_status(&status)),
    }
}

pub(super) fn answer<R>(answered: Result<Response<R>, Status>) -> Result<QueryReply, ServiceError>
where
    QueryReply: TryFrom<R, Error = Invalid>,
{
    answered.map_err(|status| error_from_status(&status))?.into_inner().try_into().map_err(not_understood)
}
