//! The unary calls: leases, proofs in hand, and questions.

use tonic::{Response, Status};

use super::RemoteService;
use super::endpoints::{At, Effect, admin, documents, locks};
use crate::model::{
    Command, EndSession, Handle, Invalid, LogTime, Manage, Outcome, Query, QueryReply, RenewalTarget, Reply, SessionId,
    Setting,
};
use crate::rpc::convert::{Question, Wire, decided, error_from_status, not_understood};
use crate::rpc::pb;
use crate::rpc::pb::client_frame::Body;
use crate::service::{Call, ClaimRef, Freshness, Proof, RenewalCall, ServiceError};

impl RemoteService {
    pub(super) async fn take(&self, call: &Call) -> Result<Reply, ServiceError> {
        let send = |asked, at| async move { reply(locks(at).enqueue(asked).await) };
        self.shared.endpoints.ask(Effect::Repeats, pb::AcquireRequest::try_from(call)?, send).await
    }

    pub(super) async fn withdraw(&self, call: &Call) -> Result<Reply, ServiceError> {
        let send = |asked, at| async move { reply(locks(at).withdraw(asked).await) };
        self.shared.endpoints.ask(Effect::Repeats, pb::WithdrawRequest::try_from(call)?, send).await
    }

    pub(super) async fn drop_lease(&self, call: &Call) -> Result<Reply, ServiceError> {
        let send = |asked, at| async move { released(locks(at).release(asked).await) };
        self.shared.endpoints.ask(Effect::Repeats, pb::ReleaseRequest::try_from(call)?, send).await
    }

    pub(super) async fn document(&self, call: &Call) -> Result<Reply, ServiceError> {
        let send = |asked, at| async move { reply(documents(at).change(asked).await) };
        self.shared.endpoints.ask(Effect::Repeats, pb::DocumentRequest::try_from(call)?, send).await
    }

    pub(super) async fn manage(&self, manage: &Manage) -> Result<Reply, ServiceError> {
        let call = |asked, at| async move { reply(locks(at).manage(asked).await) };
        self.shared.endpoints.ask(Effect::Repeats, pb::ManageRequest::from(manage), call).await
    }

    pub(super) async fn change_setting(&self, setting: Setting) -> Result<Reply, ServiceError> {
        let call = |asked, at| async move { reply(admin(at).change_setting(asked).await) };
        self.shared.endpoints.ask(Effect::Repeats, pb::ChangeSettingRequest::from(&setting), call).await
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
        let session = Some(pb::SessionProof { id: session.as_u64(), handle: handle.reveal().to_owned() });
        let command = Some(by_itself(super::stream_body(command)?.0)?);
        let asked = pb::CommandRequest { namespace, session, command };
        let call = |asked, at| async move { reply(locks(at).command(asked).await) };
        self.shared.endpoints.ask(Effect::Repeats, asked, call).await
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
                let (lock, session, token) = (lock.to_wire(), session.as_u64(), token.as_u64());
                (pb::renewal::Target::Hold(pb::HoldTarget { lock, session, token, lease_ms }), handle, namespace)
            }
            (RenewalTarget::Lease { lock, handle, lease_ms }, _) => {
                let lease = pb::LeaseTarget { lock: lock.to_wire(), lease_ms };
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
    pub(super) async fn unary_outcome(&self, claim: &ClaimRef) -> Result<Reply, ServiceError> {
        let asked = pb::WaitOutcomeRequest::from(claim);
        let at = self.shared.endpoints.ask(Effect::Reads, (), |(), at: At| async move { Ok(at) }).await?;
        let address = at.address.clone();
        let settled = reply(locks(at).wait_outcome(asked).await);
        if let Err(error @ (ServiceError::NotSent { .. } | ServiceError::Unknown { .. } | ServiceError::Stopping)) =
            &settled
        {
            self.shared.endpoints.forget(&address);
            if let Some(leader) = error.leader() {
                self.shared.endpoints.prefer(&leader.client);
            }
        }
        settled
    }

    pub(super) async fn question(&self, query: Query, freshness: Freshness) -> Result<QueryReply, ServiceError> {
        let send = |asked: pb::QueryRequest, at| async move {
            let answered = locks(at).query(asked).await.map_err(|status| error_from_status(&status))?;
            QueryReply::from_wire("reply", answered.into_inner()).map_err(not_understood)
        };
        self.shared.endpoints.ask(Effect::Reads, Question { query, freshness }.to_wire(), send).await
    }
}

/// A command's answer: a refusal comes back as a status, and is an answer all the same.
fn reply(answered: Result<Response<pb::Reply>, Status>) -> Result<Reply, ServiceError> {
    match answered {
        Ok(reply) => reply.into_inner().try_into().map_err(not_understood),
        Err(status) => decided(&status).ok_or_else(|| error_from_status(&status)),
    }
}

/// What a frame asks for, as a call of its own asks for it.
fn by_itself(body: Body) -> Result<pb::command_request::Command, ServiceError> {
    use pb::command_request::Command as Alone;
    Ok(match body {
        Body::Acquire(acquire) => Alone::Acquire(acquire),
        Body::AcquireSet(set) => Alone::AcquireSet(set),
        Body::Release(release) => Alone::Release(release),
        Body::Cancel(cancel) => Alone::Cancel(cancel),
        Body::Alter(alter) => Alone::Alter(alter),
        Body::Close(close) => Alone::Close(close),
        Body::Hello(_) | Body::Open(_) | Body::Attach(_) | Body::Renew(_) | Body::Settle(_) => {
            return Err(ServiceError::Internal("not a command of a bound session".to_owned()));
        }
    })
}

/// The answer to a release.
fn released(answered: Result<Response<pb::ReleaseReply>, Status>) -> Result<Reply, ServiceError> {
    match answered {
        Ok(reply) => {
            let pb::ReleaseReply { namespace: _, index, stamp_ms, left } = reply.into_inner();
            Ok(Reply::new(index, LogTime(stamp_ms), Outcome::Released { left }))
        }
        Err(status) => decided(&status).ok_or_else(|| error_from_status(&status)),
    }
}
