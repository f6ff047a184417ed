//! Sessions that clients take over from each other. A client that opens such a session has it until the next one opens
//! it with the same handle and instance; then all that it holds and waits for continues.

use std::time::Duration;

use super::keep_alive::Tenure;
use super::reference::BackgroundTask;
use super::state::SessionEnd;
use super::{Opened, Session, SessionBuilder};
use crate::client::error::ClientError;
use crate::client::validity::{RenewalAnswer, Validity};
use crate::limits::ATTEMPTS_A_TENURE_BITS;
use crate::model::{Acquire, Attach, Command, Instance, LogTime, Outcome, Refusal, Reply, RequestId};
use crate::service::{Advice, Call, LockService, Proof};

/// A session that was opened or taken over.
pub(crate) struct TakenOver<S: LockService> {
    pub(crate) session: Session<S>,
    /// Whether another client had it before.
    pub(crate) resumed: bool,
}

/// How a session is taken over, and how its client keeps it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Takeover {
    /// What all its clients have in common besides the handle.
    pub(crate) instance: Instance,
    /// Renewals within a TTL.
    pub(crate) renewals: u32,
    /// How long the session lives after [`Session::leave_broken`]; `None` for the rest of its TTL. The first client
    /// decides it.
    pub(crate) grace: Option<Duration>,
}

/// An open session that its client has not attached yet. No other client notices it.
pub(crate) struct Unattached<S: LockService> {
    builder: SessionBuilder<S>,
    opened: Opened,
    takeover: Takeover,
}

impl<S: LockService> SessionBuilder<S> {
    /// Opens the session, or finds the one that an earlier client opened with the same handle and instance.
    pub(crate) async fn open_unattached(self, takeover: Takeover) -> Result<Unattached<S>, ClientError> {
        let opened = self.send(takeover.instance, takeover.grace).await?;
        Ok(Unattached { builder: self, opened, takeover })
    }
}

impl<S: LockService> Unattached<S> {
    /// Takes the session over from the client that has it, if there is one. That client learns of it by its next
    /// renewal or the one after, and ends nothing. A client that another one overtakes during this call gets the
    /// refusal [`StaleAttempt`](Refusal::StaleAttempt).
    ///
    /// `acquire` is what the client is about to request with [`acquire_in`](crate::client::acquire_in). If another
    /// client requested something else, the takeover is refused and that client keeps the session. Of clients that
    /// begin at the same time, the first in the log decides the request. If the future is dropped, the session may keep
    /// what was requested until its TTL is over.
    ///
    /// A session that was taken over is closed only by [`Session::close`]: if its last reference is dropped, or its
    /// deadline passes, it is left to the next client.
    pub(crate) async fn take_over(self, acquire: &Acquire) -> Result<TakenOver<S>, ClientError> {
        self.request(acquire).await?;
        let mut validity = Validity::new(self.opened.answer, None);
        let (tenure, answer, resumed) = self.attach().await?;
        let Self { builder, opened, takeover } = self;
        validity.answered(answer, builder.settings.clock.now());
        let interval = opened.ttl / takeover.renewals;
        let mut session = builder.start(opened, (interval, takeover.renewals), validity, Some(tenure));
        // An outage does not end its requests, because the next client could still continue them.
        session.settings.request_wait = Duration::MAX;
        Ok(TakenOver { session, resumed })
    }

    /// Sends the acquire before the session is attached, and refuses one that differs from the first that the cluster
    /// got. Two clients that compared their acquires in another way could both find none before theirs.
    async fn request(&self, acquire: &Acquire) -> Result<(), ClientError> {
        let request = RequestId { session: self.opened.session, number: FIRST_REQUEST };
        let acquire = Acquire { request, answered_below: FIRST_REQUEST, ..acquire.clone() };
        let call = self.call(Command::Acquire(acquire));
        let submit = || self.builder.service.submit(call.clone());
        match self.builder.settings.retry().until_answered(submit).await {
            Ok(Reply { outcome: Outcome::Refused(refusal @ Refusal::RequestReused { .. }), .. }) => Err(refusal.into()),
            Err(error) if error.advice() != Advice::GiveUp => Err(error.into()),
            // `acquire_in` gets any other answer again, after the session's events are followed.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Returns a call of the session.
    fn call(&self, command: Command) -> Call {
        let (handle, namespace) = (self.opened.handle.clone(), self.builder.settings.namespace.clone());
        Call { proof: Proof::Handle { handle, namespace }, ..Call::new(command) }
    }

    /// Attaches the session until that is answered. Returns the tenure that begins, and whether another client had the
    /// session before.
    async fn attach(&self) -> Result<(Tenure, RenewalAnswer, bool), ClientError> {
        let Self { builder: SessionBuilder { service, settings, .. }, opened, .. } = self;
        // Later requests to open have larger indices, so the attempts of later tenures have larger numbers.
        let index = opened.answer.index;
        let mut attempt = index << ATTEMPTS_A_TENURE_BITS;
        // Number of this client's attaches that may have been applied.
        let mut own = 1;
        let clock = &settings.clock;
        loop {
            let (namespace, handle, session) = (settings.namespace.clone(), opened.handle.clone(), opened.session);
            let call = self.call(Command::Attach(Attach { namespace, session, handle, attempt }));
            let attached = || {
                let (sent, answer) = (clock.now(), service.submit(call.clone()));
                async move { Ok((sent, answer.await?)) }
            };
            let mut retry = settings.retry();
            let (sent, reply) = retry.until_answered(attached).await?;
            if let Outcome::Attached { attachment, deadline } = reply.outcome {
                let answer = RenewalAnswer { sent, index: reply.index, stamp: reply.stamp, deadline };
                return Ok((Tenure { attachment, attempt }, answer, own < attachment.0));
            }
            own += u64::from(retry.is_in_doubt());
            // An earlier copy of this attach was applied, or that of a client that opened it in the same entry.
            let Outcome::Refused(Refusal::StaleAttempt { newest }) = reply.outcome else {
                return Err(ClientError::unexpected(reply.outcome));
            };
            if newest >> ATTEMPTS_A_TENURE_BITS != index {
                return Err(Refusal::StaleAttempt { newest }.into());
            }
            // The other client may be renewing already, in the same rhythm. If its counts could equal those of this
            // one, neither would be superseded.
            attempt = newest + RENEWALS_AHEAD;
        }
    }
}

/// How far the attempts of a client are ahead of those of the client that it takes over from.
const RENEWALS_AHEAD: u64 = 1 << 12;

/// The number of the only acquire of a session that clients take over from each other.
const FIRST_REQUEST: u64 = 1;

impl<S: LockService> Session<S> {
    /// Stops renewing the session and leaves it open: all that it holds remains until its deadline, unless another
    /// client takes it over.
    pub(crate) fn leave(&self) {
        self.reference.queue(BackgroundTask::Leave(None));
    }

    /// Like [`leave`](Self::leave), and reports after a pause that the stream of its client broke. The session then
    /// ends after its grace, unless another client has taken it over.
    pub(crate) fn leave_broken(&self, pause: Duration) {
        self.reference.queue(BackgroundTask::Leave(Some(pause)));
    }

    /// Renews the session now.
    pub(crate) fn renew(&self) {
        self.reference.queue(BackgroundTask::Renew);
    }

    /// Waits until a renewal is answered. One answer that arrived since the last call counts.
    pub(crate) async fn renewed(&self) {
        self.reference.state.renewed.notified().await;
    }

    /// Returns the request that was sent before the session was attached.
    pub(crate) fn first_request(&self) -> RequestId {
        RequestId { session: self.id(), number: FIRST_REQUEST }
    }

    /// Returns the newest deadline, and the log time of the entry that set it.
    pub(crate) fn ends(&self) -> (LogTime, LogTime) {
        let validity = self.reference.state.validity();
        (validity.stamp(), validity.deadline())
    }

    /// Whether another client has taken the session over.
    pub(crate) fn is_superseded(&self) -> bool {
        self.reference.state.ended() == Some(SessionEnd::Superseded)
    }
}
