//! Handles the frames of the client.

use super::{Done, SessionStream, StreamEnd};
use crate::limits;
use crate::model::{
    Claim, Command, EventKind, Invalid, LockKey, LockName, Refusal, RenewalTarget, RequestId, SessionId, Subject,
};
use crate::rpc::convert::{call, required};
use crate::rpc::pb;
use crate::rpc::pb::client_frame::Body;
use crate::rpc::server::measured::overloaded;
use crate::service::{
    Call, ClaimRef, Events, LockService, NotSent, Proof, RenewalCall, Scope, ServiceError, Subscription, only_reply,
};

impl<S: LockService> SessionStream<S> {
    /// Starts the command of a frame. A frame that violates a rule of the protocol ends the stream; one with values out
    /// of bounds gets an error as its reply.
    pub(super) fn frame(&mut self, frame: pb::ClientFrame) -> Result<(), StreamEnd> {
        let pb::ClientFrame { number, body } = frame;
        let body = required("body", body).map_err(StreamEnd::Refused)?;
        if number == 0 || !self.numbers.insert(number) {
            return Err(StreamEnd::Refused(Invalid::new("number", "not 0 and not in use", number)));
        }
        if self.unanswered == limits::STREAM_FRAMES_IN_FLIGHT_MAX {
            let bound = format!("at most {} unanswered", limits::STREAM_FRAMES_IN_FLIGHT_MAX);
            return Err(StreamEnd::Refused(Invalid::new("frames", bound, self.unanswered + 1)));
        }
        self.unanswered += 1;
        match self.start(number, body) {
            Ok(()) => Ok(()),
            Err(invalid) => self.answer(number, Err(invalid.into())),
        }
    }

    fn start(&mut self, number: u64, body: Body) -> Result<(), Invalid> {
        match body {
            Body::Hello(_) => return Err(Invalid::new("hello", "only the first frame", "a later one")),
            Body::Command(asked) => self.start_asked(number, asked)?,
            Body::Renew(pb::StreamRenew { attempt }) => {
                let target = RenewalTarget::Session(self.session()?);
                self.start_renewal(number, RenewalCall { target, proof: Proof::Trusted, attempt });
            }
            Body::Settle(pb::StreamSettle { request, lock }) => {
                let request = RequestId { session: self.session()?, number: request };
                let claim = self.claim(&LockName::parse(&lock)?, request);
                self.start_settling(number, claim);
            }
        }
        Ok(())
    }

    /// Starts a command. If it is queued, its outcome follows under the frame's number; any of its locks identifies its
    /// claim.
    fn start_asked(&mut self, number: u64, asked: pb::Command) -> Result<(), Invalid> {
        let mut call = call(asked, |_| Ok((self.session()?, Proof::Trusted)))?;
        if let Command::OpenSession(open) = &mut call.command {
            self.may_bind()?;
            open.namespace = self.namespace.clone();
            self.start_binding(number, None, call);
        } else if let Command::Attach(attach) = &mut call.command {
            self.may_bind()?;
            attach.namespace = self.namespace.clone();
            let session = attach.session;
            self.start_binding(number, Some(session), call);
        } else {
            self.start_command(number, call);
        }
        Ok(())
    }

    fn session(&self) -> Result<SessionId, Invalid> {
        self.bound.map(|bound| bound.session).ok_or_else(|| {
            Invalid::new("session", "opened or attached, and answered, before anything else", "none on this stream")
        })
    }

    fn may_bind(&self) -> Result<(), Invalid> {
        if self.bound.is_some() || self.binding {
            return Err(Invalid::new("session", "one a stream", "a second one"));
        }
        Ok(())
    }

    fn claim(&self, name: &LockName, request: RequestId) -> ClaimRef {
        let lock = LockKey { namespace: self.namespace.clone(), name: name.clone() };
        ClaimRef { lock, claim: Claim::Request(request) }
    }

    fn start_binding(&mut self, number: u64, attaching: Option<SessionId>, call: Call) {
        self.binding = true;
        let service = self.service.clone();
        self.running
            .push(Box::pin(async move { Done::Bound { number, attaching, result: service.submit(call).await } }));
    }

    fn start_command(&mut self, number: u64, call: Call) {
        let service = self.service.clone();
        if let Command::CloseSession { session, .. } = call.command {
            let closing = async move { Done::Closed { number, session, result: service.submit(call).await } };
            self.running.push(Box::pin(closing));
            return;
        }
        let claim = if let Command::TakeLease(take) = &call.command {
            Some(ClaimRef { lock: take.lock.clone(), claim: Claim::Lease(take.take) })
        } else {
            call.command.may_wait().map(|(name, request)| self.claim(name, request))
        };
        self.running.push(Box::pin(async move { Done::Replied { number, claim, result: service.submit(call).await } }));
    }

    fn start_renewal(&mut self, number: u64, renewal: RenewalCall) {
        let service = self.service.clone();
        self.running.push(Box::pin(async move {
            let result = service.renew(vec![renewal]).await.and_then(only_reply);
            Done::Replied { number, claim: None, result }
        }));
    }

    /// Stops counting the frame as unanswered and waits for the outcome; refuses it at once if the stream already waits
    /// for too many.
    fn start_settling(&mut self, number: u64, claim: ClaimRef) {
        if self.awaits_too_many() {
            overloaded(self.info.node).increment(1);
            let why = NotSent::Overloaded { pause_ms: limits::OVERLOADED_PAUSE_MS };
            let result = Err(ServiceError::not_sent(why));
            self.running.push(Box::pin(async move { Done::Replied { number, claim: None, result } }));
            return;
        }
        self.unanswered -= 1;
        self.settle(number, claim);
    }

    /// Whether the stream awaits as many outcomes as it may.
    pub(super) fn awaits_too_many(&self) -> bool {
        limits::STREAM_WAITS_MAX <= self.numbers.len() - self.unanswered
    }

    /// Waits for the outcome of a queued request, which does not count as an unanswered frame.
    pub(super) fn settle(&mut self, number: u64, claim: ClaimRef) {
        let service = self.service.clone();
        self.running.push(Box::pin(async move {
            let result = service.wait_outcome(claim.clone()).await;
            Done::Settled { number, claim, result }
        }));
    }

    /// Waits for the next event of the session's holds.
    pub(super) fn watch_holds(&mut self, session: SessionId, mut events: Events) {
        self.running.push(Box::pin(async move {
            match events.next().await {
                Ok(event) => Done::HoldEvent { session, event: Box::new(event), events },
                // No event was missed: the session has ended, or the node stops.
                Err(ServiceError::Refused(Refusal::SessionEnded { .. }) | ServiceError::Stopping) => Done::EventsOver,
                Err(ServiceError::EventsMissed { resume, .. }) => {
                    Done::HoldEventsMissed { session, resume: Some(resume) }
                }
                Err(_) => Done::HoldEventsMissed { session, resume: None },
            }
        }));
    }

    /// Watches for the end of the session, which no reply would report.
    pub(super) fn watch_session(&mut self, session: SessionId) {
        let service = self.service.clone();
        self.running.push(Box::pin(async move {
            let mut after = None;
            loop {
                let subscription = Subscription { scope: Scope::SessionEnd(session), after, cluster_id: None };
                let mut events = match service.subscribe(subscription).await {
                    Ok(events) => events,
                    Err(error) => return over(error),
                };
                after = loop {
                    match events.next().await {
                        Ok(event) => {
                            if let EventKind::SessionEnded { reason, why } = event.kind
                                && event.subject == Subject::Session(session)
                            {
                                return Done::SessionEnded { session, reason, why };
                            }
                        }
                        Err(ServiceError::EventsMissed { resume, .. }) => break Some(resume),
                        Err(error) => return over(error),
                    }
                };
            }
        }));
    }
}

/// Returns what the end of a session's events means for its stream.
fn over(error: ServiceError) -> Done {
    if matches!(error, ServiceError::Unauthenticated { .. }) { Done::Denied(error) } else { Done::EventsOver }
}
