//! The server side of one session's stream: reads frames, writes replies and notifications, until the stream breaks or
//! the node ends it.

mod disconnect;
mod frames;
mod hello;
mod redirect;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::pin::{Pin, pin};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::OptionFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio::time::{Sleep, sleep, timeout};
use tonic::{Status, Streaming};

use self::redirect::Redirect;
use crate::limits;
use crate::model::{Attachment, EndReason, Event, Invalid, Namespace, Outcome, Position, Reason, Reply, SessionId};
use crate::net::CertificateState;
use crate::rpc::convert::{Wire, error_to_wire};
use crate::rpc::pb;
use crate::rpc::pb::server_frame::Body;
use crate::service::{ClaimRef, Events, LeaderHint, LockService, ServerInfo, ServiceError};

/// A frame to the client. Boxed: a channel allocates space for 32 values at its creation, and most streams are idle.
pub(in crate::rpc::server) type Outgoing = Result<Box<pb::ServerFrame>, Status>;

/// The stream of at most one session.
///
/// - The first open or attach that succeeds binds it to its session. A stream that has none for
///   [`limits::UNBOUND_STREAM_MS_MAX`] ends.
/// - Commands go to the service in the order of their frames, and are answered as they complete.
/// - When the stream breaks, the service gets a `Disconnected` command; not when the node ends the stream with
///   `move_to`, and not when the node no longer accepts the certificate of the connection.
pub(in crate::rpc::server) struct SessionStream<S> {
    service: S,
    info: ServerInfo,
    stop: watch::Receiver<bool>,
    /// State of the certificate of the connection.
    certificate: CertificateState,
    outgoing: mpsc::Sender<Outgoing>,
    /// Frames for which the channel had no space, oldest first: those of one step at most.
    unsent: Vec<Outgoing>,
    namespace: Namespace,
    bound: Option<Bound>,
    /// When the stream ends because it has no session; `None` while it has one. Boxed, because most streams have one.
    unbound: Option<Pin<Box<Sleep>>>,
    /// Whether an open or attach is in progress.
    binding: bool,
    /// Frame numbers in use: unanswered, or waiting for the outcome of a queued request.
    numbers: HashSet<u64>,
    /// Number of unanswered frames.
    unanswered: usize,
    running: FuturesUnordered<Pin<Box<dyn Future<Output = Done> + Send>>>,
}

/// The session of a stream.
#[derive(Clone, Copy)]
struct Bound {
    session: SessionId,
    attachment: Attachment,
    /// Time without a renewal after which the session has ended, in milliseconds.
    ttl_ms: u64,
}

/// Result of a future that runs for the stream.
enum Done {
    /// An open or attach has a result. `attaching` is the session of an attach.
    Bound { number: u64, attaching: Option<SessionId>, result: Result<Reply, ServiceError> },
    /// The close of the stream's session has a result.
    Closed { number: u64, session: SessionId, result: Result<Reply, ServiceError> },
    /// Any other frame has a result. With a claim, a queued reply is followed by the claim's outcome.
    Replied { number: u64, claim: Option<ClaimRef>, result: Result<Reply, ServiceError> },
    /// A queued request has an outcome, or still waits.
    Settled { number: u64, claim: ClaimRef, result: Result<Reply, ServiceError> },
    /// The session has ended.
    SessionEnded { session: SessionId, reason: EndReason, why: Option<Reason> },
    /// There are no more events of the session. If it has ended, they or its renewals show that.
    EventsOver,
    /// The caller is no longer a principal of the cluster.
    Denied(ServiceError),
    /// An event of a hold of the session; more may follow.
    HoldEvent { session: SessionId, event: Box<Event>, events: Events },
    /// Some events of the session's holds were missed.
    HoldEventsMissed { session: SessionId, resume: Option<Position> },
}

/// Returns the end of a stream without a session.
fn unused() -> StreamEnd {
    let bound = format!("opened or attached within {} ms", limits::UNBOUND_STREAM_MS_MAX);
    StreamEnd::Refused(Invalid::new("session", bound, "none"))
}

/// Why a stream ends.
enum StreamEnd {
    /// The client closed its side and has all replies, or it is gone.
    Broken,
    /// The client violated a rule of the protocol.
    Refused(Invalid),
    /// A frame could not be read or cannot be served yet, or the client is gone and no frame reaches it.
    Unread(Box<Status>),
    /// The node stops, or another node leads now.
    Moved(Option<LeaderHint>),
    /// The caller is no longer a principal of the cluster. Its session ends after its TTL, and not earlier.
    Denied(Box<Status>),
}

impl<S: LockService> SessionStream<S> {
    pub(in crate::rpc::server) fn new(
        service: S,
        info: ServerInfo,
        stop: watch::Receiver<bool>,
        certificate: CertificateState,
        outgoing: mpsc::Sender<Outgoing>,
    ) -> Self {
        Self {
            service,
            info,
            stop,
            certificate,
            outgoing,
            unsent: Vec::new(),
            namespace: Namespace::default(),
            bound: None,
            unbound: None,
            binding: false,
            numbers: HashSet::new(),
            unanswered: 0,
            running: FuturesUnordered::new(),
        }
    }

    /// Serves the stream with this number until it ends. The node numbers its streams in the order in which they begin.
    ///
    /// Ten thousand of these streams may be idle. An async block holds its captures once, where an `async fn` holds its
    /// arguments twice, and futures that are rarely awaited are boxed: so an idle stream needs little more memory than
    /// its state.
    pub(in crate::rpc::server) fn run(
        self,
        number: u64,
        incoming: Streaming<pb::ClientFrame>,
    ) -> impl Future<Output = ()> + Send {
        let (mut stream, mut incoming) = (self, incoming);
        async move {
            let mut redirect = Redirect::new(&stream.info, stream.stop.clone(), number);
            let end = match Box::pin(stream.greet(&mut incoming)).await {
                Ok(()) => stream.serve(&mut incoming, redirect.due()).await,
                Err(end) => end,
            };
            if let StreamEnd::Moved(Some(leader)) = &end {
                return Box::pin(stream.leave(leader, &mut incoming)).await;
            }
            Box::pin(stream.over(end)).await;
        }
    }

    /// Sends the stream to the next leader, and serves it until its client has closed it and has all replies. Forwarded
    /// commands are answered within moments. A client without a reply does not know the outcome of its command, pauses,
    /// and retries.
    async fn leave(&mut self, leader: &LeaderHint, incoming: &mut Streaming<pb::ClientFrame>) {
        if self.send_away(Some(leader)).is_ok() && self.hand_over().await.is_ok() {
            let longest = Duration::from_millis(limits::LAST_ANSWERS_MS_MAX);
            let _ = timeout(longest, self.serve(incoming, std::future::pending())).await;
        }
    }

    fn send_away(&mut self, leader: Option<&LeaderHint>) -> Result<(), StreamEnd> {
        let stops = *self.stop.borrow();
        self.push(Body::MoveTo(pb::MoveTo { leader: leader.map(LeaderHint::to_wire), stops }))
    }

    /// Sends the reason for the end to the client, and reports the end to the service unless the node ended the stream.
    async fn over(&mut self, end: StreamEnd) {
        let (last, gone) = match end {
            StreamEnd::Moved(leader) => (self.send_away(leader.as_ref()), false),
            StreamEnd::Refused(invalid) => (self.send(Err(invalid.into())), true),
            StreamEnd::Unread(status) => (self.send(Err(*status)), true),
            StreamEnd::Denied(status) => (self.send(Err(*status)), false),
            StreamEnd::Broken => (Err(StreamEnd::Broken), true),
        };
        if last.is_ok() {
            let _ = self.hand_over().await;
        }
        if gone && !self.certificate.is_refused() {
            self.disconnected().await;
        }
    }

    /// Serves frames until the stream ends or `due` completes.
    async fn serve(
        &mut self,
        incoming: &mut Streaming<pb::ClientFrame>,
        due: impl Future<Output = Option<LeaderHint>>,
    ) -> StreamEnd {
        let mut reading = true;
        let outgoing = self.outgoing.clone();
        let mut closed = pin!(outgoing.closed());
        let mut due = pin!(due);
        self.limit_unbound();
        loop {
            if !reading && self.unanswered == 0 {
                return StreamEnd::Broken;
            }
            let step = tokio::select! {
                // The branch that is ready most often comes first.
                biased;
                Some(done) = self.running.next() => self.finished(done),
                frame = incoming.message(), if reading => match frame {
                    Ok(Some(frame)) => self.frame(frame),
                    Ok(None) => {
                        reading = false;
                        Ok(())
                    }
                    Err(status) => Err(StreamEnd::Unread(Box::new(status))),
                },
                leader = &mut due => Err(StreamEnd::Moved(leader)),
                () = &mut closed => Err(StreamEnd::Broken),
                Some(()) = OptionFuture::from(self.unbound.as_mut()), if !self.binding => Err(unused()),
            };
            if let Err(end) = step {
                return end;
            }
            if !self.unsent.is_empty()
                && let Err(end) = Box::pin(self.hand_over()).await
            {
                return end;
            }
        }
    }

    fn finished(&mut self, done: Done) -> Result<(), StreamEnd> {
        match done {
            Done::Bound { number, attaching, result } => {
                self.bind(attaching, result.as_ref().ok());
                self.answer(number, result)
            }
            Done::Replied { number, claim: Some(claim), result: Ok(reply) }
                if matches!(reply.outcome, Outcome::Queued(_)) =>
            {
                if self.awaits_too_many() {
                    // The request is queued, so the error must not say that it was not sent.
                    let why = format!("it waits, but the stream awaits {} outcomes already", limits::STREAM_WAITS_MAX);
                    return self.answer(number, Err(ServiceError::unknown(why)));
                }
                self.unanswered -= 1;
                self.settle(number, claim);
                self.write(number, Body::Reply(reply.to_wire()))
            }
            Done::Replied { number, claim: _, result } => self.answer(number, result),
            Done::Closed { number, session, result } => {
                let closed = matches!(&result, Ok(Reply { outcome: Outcome::Closed, .. }));
                // A repeated close may be answered after the stream has got another session.
                if closed && self.is_bound_to(session) {
                    self.unbind();
                }
                self.answer(number, result)
            }
            // The service answers long waits several times; the client only gets the final outcome.
            Done::Settled { number, claim, result: Ok(Reply { outcome: Outcome::Queued(_), .. }) } => {
                self.settle(number, claim);
                Ok(())
            }
            Done::Settled { number, claim: _, result } => {
                self.numbers.remove(&number);
                let body = match result {
                    Ok(reply) => Body::Settled(reply.to_wire()),
                    Err(error) => Body::Error(error_to_wire(&error)),
                };
                self.write(number, body)
            }
            Done::SessionEnded { session, reason, why } if self.is_bound_to(session) => {
                self.unbind();
                let (session, reason, why) = (session.to_wire(), reason.to_wire(), why.to_wire());
                self.push(Body::SessionEnded(pb::SessionEnded { session, reason, why }))
            }
            Done::HoldEvent { session, event, events } if self.is_bound_to(session) => {
                self.watch_holds(session, events);
                // If the channel is full, this frame waits behind earlier frames, and the next event waits behind this
                // frame.
                let of_a_hold = event.subject.token().is_some();
                if of_a_hold { self.push(Body::HoldEvent(event.to_wire())) } else { Ok(()) }
            }
            // Events are subscribed again before the client learns of the gap, so that a hold that it reads then has no
            // second gap.
            Done::HoldEventsMissed { session, resume } if self.is_bound_to(session) => {
                self.follow_holds(session);
                self.push(Body::HoldEventsMissed(pb::HoldEventsMissed { resume: resume.to_wire() }))
            }
            Done::Denied(error) => Err(StreamEnd::Denied(Box::new(error.into()))),
            Done::SessionEnded { .. } | Done::HoldEvent { .. } | Done::HoldEventsMissed { .. } | Done::EventsOver => {
                Ok(())
            }
        }
    }

    fn is_bound_to(&self, session: SessionId) -> bool {
        self.bound.is_some_and(|bound| bound.session == session)
    }

    /// Records the result of an open or attach.
    fn bind(&mut self, attaching: Option<SessionId>, reply: Option<&Reply>) {
        self.binding = false;
        let bound = match (reply.map(|reply| &reply.outcome), attaching) {
            (Some(Outcome::Opened { session, ttl_ms, .. }), _) => {
                Bound { session: *session, attachment: Attachment::default(), ttl_ms: *ttl_ms }
            }
            (Some(Outcome::Attached { attachment, deadline }), Some(session)) => {
                let ttl_ms = reply.map_or(0, |reply| deadline.ms_since(reply.stamp));
                Bound { session, attachment: *attachment, ttl_ms }
            }
            (Some(_) | None, _) => return,
        };
        self.bound = Some(bound);
        self.unbound = None;
        self.watch_session(bound.session);
        self.follow_holds(bound.session);
    }

    /// Records that the session of the stream has ended.
    fn unbind(&mut self) {
        self.bound = None;
        self.limit_unbound();
    }

    /// Limits the time until the stream has a session, unless it has one.
    fn limit_unbound(&mut self) {
        let longest = Duration::from_millis(limits::UNBOUND_STREAM_MS_MAX);
        self.unbound = self.bound.is_none().then(|| Box::pin(sleep(longest)));
    }

    /// Subscribes to the events of the session's holds, from now on.
    fn follow_holds(&mut self, session: SessionId) {
        if let Ok(events) = self.service.hold_events(session) {
            self.watch_holds(session, events);
        }
    }

    fn answer(&mut self, number: u64, result: Result<Reply, ServiceError>) -> Result<(), StreamEnd> {
        self.unanswered -= 1;
        self.numbers.remove(&number);
        let body = match result {
            Ok(reply) => Body::Reply(reply.to_wire()),
            Err(error) => Body::Error(error_to_wire(&error)),
        };
        self.write(number, body)
    }

    /// Sends a frame that answers no frame of the client.
    fn push(&mut self, body: Body) -> Result<(), StreamEnd> {
        self.write(0, body)
    }

    fn write(&mut self, number: u64, body: Body) -> Result<(), StreamEnd> {
        self.send(Ok(pb::ServerFrame { number, body: Some(body) }))
    }

    /// Sends a frame to the client's connection, behind the frames that wait for space in the channel.
    fn send(&mut self, frame: Result<pb::ServerFrame, Status>) -> Result<(), StreamEnd> {
        let frame = frame.map(Box::new);
        if !self.unsent.is_empty() {
            self.unsent.push(frame);
            return Ok(());
        }
        match self.outgoing.try_send(frame) {
            Ok(()) => Ok(()),
            Err(TrySendError::Closed(_)) => Err(StreamEnd::Broken),
            Err(TrySendError::Full(frame)) => {
                self.unsent.push(frame);
                Ok(())
            }
        }
    }

    /// Waits until the channel has taken all frames. A client that takes no frame for [`limits::STREAM_SEND_MS_MAX`]
    /// counts as gone, so that its session can be reported as disconnected.
    async fn hand_over(&mut self) -> Result<(), StreamEnd> {
        let longest = Duration::from_millis(limits::STREAM_SEND_MS_MAX);
        for frame in std::mem::take(&mut self.unsent) {
            match timeout(longest, self.outgoing.send(frame)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return Err(StreamEnd::Broken),
            }
        }
        Ok(())
    }
}
