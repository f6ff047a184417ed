//! The client side of one session's stream.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant as TokioInstant, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::endpoints::{ConnectedEndpoint, Endpoints, locks};
use super::hold_events::HoldEvents;
use super::send_queue::{OutgoingFrame, PendingReply, ReplyResult, SendQueue, Unanswered, Unsent, wait_for_capacity};
use crate::limits;
use crate::model::{Event, Namespace, Outcome, Position, Reply};
use crate::mutex::Mutex;
use crate::rpc::background::Tasks;
use crate::rpc::convert::{Wire, error_from_wire, not_understood};
use crate::rpc::pb::client_frame::Body;
use crate::rpc::pb::server_frame::Body as ServerBody;
use crate::rpc::{GROUP, PROTOCOL_MAX, PROTOCOL_MIN, pb};
use crate::service::{LeaderHint, NotSent, ServiceError};

/// The callers' handle of a stream. The stream ends when its last handle is dropped, or when a frame stays unanswered
/// for too long.
pub(super) struct StreamHandle {
    pub(super) state: Arc<StreamState>,
    /// Takes the frames that find no capacity in the queue.
    pub(super) overflow: mpsc::Sender<OutgoingFrame>,
    /// Whether the stream still works; false once it is over.
    pub(super) alive: watch::Receiver<bool>,
    /// Attempt number of the attach that bound it; 0 if the session was opened on it.
    pub(super) attempt: u64,
}

/// The parts of a stream that its handles and its task share.
pub(super) struct StreamState {
    /// Endpoint of the stream.
    pub(super) address: String,
    queue: Mutex<SendQueue>,
    acquires: Mutex<QueuedAcquires>,
    /// Notified when the session has a newer stream, which ends this one: callers that wait on it get an error. If the
    /// node has sent `move_to`, the stream first waits a moment for their answers.
    pub(super) replaced: Notify,
    pub(super) hold_events: HoldEvents,
}

/// Queued acquires of a stream: those that wait, and the most recent outcomes that no caller has read yet.
#[derive(Default)]
struct QueuedAcquires {
    waiting: HashMap<u64, watch::Receiver<Option<Reply>>>,
    finished: VecDeque<(u64, Reply)>,
}

impl StreamHandle {
    /// Opens a stream and exchanges the hellos. Also returns the leader, if it is another node. If this fails, no
    /// command was sent.
    pub(super) async fn open(
        endpoints: &Arc<Endpoints>,
        tasks: &Tasks,
        endpoint: ConnectedEndpoint,
        namespace: Namespace,
    ) -> Result<(Self, Option<LeaderHint>), ServiceError> {
        let (outgoing, frames) = mpsc::channel(limits::STREAM_FRAMES_WAITING_MAX);
        let hello = pb::ClientHello {
            protocol_min: PROTOCOL_MIN,
            protocol_max: PROTOCOL_MAX,
            features: Vec::new(),
            namespace: namespace.to_string(),
            cluster_id: endpoint.channel.cluster_id().to_wire(),
        };
        let address = endpoint.address.clone();
        let unreachable = |why: String| ServiceError::not_sent(NotSent::Unreachable(why));
        // No command is sent before the hellos, so a lost answer leaves nothing in doubt.
        let handshake = async {
            let frame = pb::ClientFrame { number: 0, body: Some(Body::Hello(hello)) };
            outgoing.send(frame).await.map_err(|_| unreachable("the stream closed".to_owned()))?;
            let opened = locks(endpoint).session(ReceiverStream::new(frames)).await;
            let mut incoming = opened.map_err(|status| ServiceError::from(status).of_read())?.into_inner();
            match incoming.message().await.map_err(|status| ServiceError::from(status).of_read())? {
                Some(pb::ServerFrame { body: Some(ServerBody::Hello(hello)), .. }) => Ok((incoming, hello)),
                Some(_) => Err(ServiceError::Internal(format!("{address} did not begin with a hello"))),
                None => Err(unreachable("the stream ended before the hello".to_owned())),
            }
        };
        let longest = Duration::from_millis(limits::CONNECT_MS_MAX);
        let (incoming, hello) =
            timeout(longest, handshake).await.map_err(|_| unreachable("no hello in time".to_owned()))??;
        check_hello(&hello)?;

        let (overflow, overflowed) = mpsc::channel(limits::STREAM_ASKS_WAITING_MAX);
        let (alive_sender, alive) = watch::channel(true);
        let state = Arc::new(StreamState {
            address,
            queue: Mutex::new(SendQueue::new(outgoing, &hello)),
            acquires: Mutex::default(),
            replaced: Notify::new(),
            hold_events: HoldEvents::new(),
        });
        let task = StreamTask {
            endpoints: Arc::clone(endpoints),
            state: Arc::clone(&state),
            overflow: overflowed,
            unsent: None,
            outcome_senders: BTreeMap::new(),
            alive: alive_sender,
        };
        endpoints.learn(&hello.endpoints);
        tasks.run(task.run(incoming));
        let leader = LeaderHint::from_wire("leader", hello.leader).ok().filter(|leader| leader.node != hello.node);
        Ok((Self { state, overflow, alive, attempt: 0 }, leader))
    }

    /// Whether the stream is over.
    pub(super) fn is_over(&self) -> bool {
        self.overflow.is_closed()
    }

    /// Sends a frame and waits for its answer. If none arrives within the time limit of a request, the stream ends and
    /// its session attaches again.
    pub(super) async fn ask(&self, body: Body) -> ReplyResult {
        self.send(body, None).answer(&self.overflow).await
    }

    /// Sends a frame at once if there is capacity: to pass each frame to the stream's task would cost a wake-up.
    /// `request` is the request number of an acquire.
    pub(super) fn send(&self, body: Body, request: Option<u64>) -> PendingReply {
        let (answer, answered) = oneshot::channel();
        let unsent = self.state.queue.lock().send(OutgoingFrame { body, request, answer });
        let unsent = unsent.map(|unsent| Box::new(unsent.frame));
        PendingReply { answered, unsent }
    }

    /// Returns the outcome of a queued acquire of this stream; `None` if the stream does not know it.
    pub(super) async fn outcome(&self, request: u64) -> Option<Reply> {
        let mut waiting = {
            let mut acquires = self.state.acquires.lock();
            if let Some(position) = acquires.finished.iter().position(|(number, _)| *number == request) {
                return acquires.finished.remove(position).map(|(_, reply)| reply);
            }
            acquires.waiting.get(&request)?.clone()
        };
        let reply = waiting.wait_for(Option::is_some).await.ok()?.clone();
        self.state.acquires.lock().finished.retain(|(number, _)| *number != request);
        reply
    }
}

/// The task of a stream. It ends with the stream, its handles, or its owner.
struct StreamTask {
    endpoints: Arc<Endpoints>,
    state: Arc<StreamState>,
    overflow: mpsc::Receiver<OutgoingFrame>,
    /// Oldest frame that found no capacity.
    unsent: Option<OutgoingFrame>,
    /// Senders of the outcomes of queued acquires, by frame, with their request numbers.
    outcome_senders: BTreeMap<u64, (u64, watch::Sender<Option<Reply>>)>,
    alive: watch::Sender<bool>,
}

impl StreamTask {
    async fn run(mut self, mut incoming: Streaming<pb::ServerFrame>) {
        let error = self.serve(&mut incoming).await;
        let (unanswered, outcome_waits) = {
            let mut queue = self.state.queue.lock();
            queue.outgoing = None;
            (std::mem::take(&mut queue.unanswered), std::mem::take(&mut queue.outcome_waits))
        };
        // Closed before any caller gets its answer: a caller that looks for the stream then finds that it is over.
        self.close();
        // In order, so that a simulation is repeatable.
        for caller in unanswered.into_values().map(|sent| sent.answer).chain(outcome_waits.into_values()) {
            let _ = caller.send(Err(error.clone()));
        }
        self.reject_unsent().await;
        self.state.acquires.lock().waiting.clear();
    }

    /// Stops accepting frames.
    fn close(&mut self) {
        self.overflow.close();
        self.state.hold_events.close();
        self.alive.send_replace(false);
    }

    /// Fails the frames that were not sent, and accepts no more.
    async fn reject_unsent(&mut self) {
        self.close();
        if let Some(frame) = self.unsent.take() {
            let _ = frame.answer.send(Err(ServiceError::not_sent(NotSent::Detached)));
        }
        while let Some(frame) = self.overflow.recv().await {
            let _ = frame.answer.send(Err(ServiceError::not_sent(NotSent::Detached)));
        }
    }

    /// Closes the outgoing side, because the node sends the stream to another node. If the next leader is known, waits
    /// a moment for answers to unanswered frames; not longer, as the node may already hang.
    async fn move_away(
        &mut self,
        pb::MoveTo { leader, stops }: pb::MoveTo,
        incoming: &mut Streaming<pb::ServerFrame>,
    ) -> ServiceError {
        let leader = LeaderHint::from_wire("leader", leader).ok();
        self.state.queue.lock().outgoing = None;
        self.reject_unsent().await;
        let mut works = false;
        if let Some(leader) = &leader {
            self.endpoints.prefer(&leader.client);
            // The node ends the stream after its last answer.
            let last_answers = async {
                while let Some(frame) = incoming.message().await.map_err(drop)? {
                    self.on_frame(frame).map_err(drop)?;
                }
                Ok::<_, ()>(())
            };
            let longest = 2 * Duration::from_millis(limits::LAST_ANSWERS_MS_MAX);
            works = timeout(longest, last_answers).await.is_ok_and(|read| read.is_ok());
        }
        // A node that works but no longer leads keeps its connection, which the client will need when it leads again.
        if stops || !works {
            self.endpoints.forget(&self.state.address);
        }
        ServiceError::Unknown { why: "the node sends its streams to other nodes".to_owned(), leader }
    }

    /// Serves the stream until it is over. The error is for the unanswered frames.
    async fn serve(&mut self, incoming: &mut Streaming<pb::ServerFrame>) -> ServiceError {
        // One timer for all frames: it checks the oldest one.
        let longest = self.endpoints.settings.request_wait;
        let mut check = pin!(sleep(longest));
        let state = Arc::clone(&self.state);
        let mut full_since = None;
        loop {
            // Frames are read even while the transport is full: the node may send before it reads more.
            let outgoing = self.send_unsent();
            full_since = outgoing.as_ref().map(|_| full_since.unwrap_or_else(TokioInstant::now));
            let capacity =
                outgoing.zip(full_since).map(|(outgoing, since)| Box::pin(wait_for_capacity(outgoing, since)));
            let mut capacity = OptionFuture::from(capacity);
            tokio::select! {
                biased;
                frame = incoming.message() => match frame {
                    Ok(Some(pb::ServerFrame { body: Some(ServerBody::MoveTo(moves)), .. })) => {
                        return Box::pin(self.move_away(moves, incoming)).await;
                    }
                    Ok(Some(frame)) => {
                        if let Err(error) = self.on_frame(frame) {
                            return error;
                        }
                    }
                    Ok(None) => return self.lost(ServiceError::unknown("the node ended the session's stream")),
                    Err(status) => return self.lost(broken(&status.into())),
                },
                frame = self.overflow.recv(), if self.unsent.is_none() => match frame {
                    Some(frame) => self.unsent = Some(frame),
                    None => return ServiceError::unknown("the session's stream was dropped"),
                },
                Some(has_capacity) = &mut capacity => {
                    if !has_capacity {
                        return self.lost(ServiceError::unknown("the session's stream accepts no more frames"));
                    }
                    full_since = None;
                }
                () = state.replaced.notified() => return ServiceError::unknown("the session has a newer stream"),
                () = &mut check => {
                    let now = TokioInstant::now();
                    let due = state.queue.lock().oldest().unwrap_or(now) + longest;
                    if due <= now {
                        return self.lost(ServiceError::unknown("the session's stream did not answer in time"));
                    }
                    check.as_mut().reset(due);
                }
            }
        }
    }

    /// Drops the connection of a stream that broke, so that no other call uses it.
    fn lost(&self, why: ServiceError) -> ServiceError {
        self.endpoints.forget(&self.state.address);
        why
    }

    /// Sends the frame that found no capacity before, if the node allows it now. Returns the transport's sender if it
    /// is full.
    fn send_unsent(&mut self) -> Option<mpsc::Sender<pb::ClientFrame>> {
        let Unsent { frame, full } = self.state.queue.lock().send(self.unsent.take()?)?;
        self.unsent = Some(frame);
        full
    }

    fn on_frame(&mut self, frame: pb::ServerFrame) -> Result<(), ServiceError> {
        let number = frame.number;
        match frame.body {
            Some(ServerBody::Reply(reply)) => {
                let reply = Reply::from_wire("reply", reply).map_err(not_understood);
                self.on_reply(number, reply);
            }
            Some(ServerBody::Error(error)) => {
                self.outcome_senders.remove(&number).inspect(|(request, _)| {
                    self.state.acquires.lock().waiting.remove(request);
                });
                self.on_reply(number, Err(error_from_wire(&error)));
            }
            Some(ServerBody::Settled(reply)) => {
                let reply = Reply::from_wire("reply", reply).map_err(not_understood);
                if let Some((request, sender)) = self.outcome_senders.remove(&number) {
                    self.on_settled(request, &sender, reply.ok());
                } else if let Some(caller) = self.state.queue.lock().outcome_waits.remove(&number) {
                    let _ = caller.send(reply);
                }
            }
            Some(ServerBody::SessionEnded(ended)) => {
                self.state.hold_events.session_ended(ended);
                return Err(ServiceError::unknown("the session has ended"));
            }
            Some(ServerBody::HoldEvent(event)) => match Event::from_wire("event", event) {
                Ok(event) => self.state.hold_events.push(event),
                Err(_) => self.state.hold_events.missed(None),
            },
            Some(ServerBody::HoldEventsMissed(pb::HoldEventsMissed { resume })) => {
                self.state.hold_events.missed(resume.and_then(|resume| Position::from_wire("resume", resume).ok()));
            }
            Some(ServerBody::Hello(_) | ServerBody::MoveTo(_)) | None => {}
        }
        Ok(())
    }

    fn on_reply(&mut self, number: u64, answer: ReplyResult) {
        let (unanswered, outcome_wait) = {
            let mut queue = self.state.queue.lock();
            (queue.unanswered.remove(&number), queue.outcome_waits.remove(&number))
        };
        if let Some(caller) = outcome_wait {
            let _ = caller.send(answer);
            return;
        }
        let Some(Unanswered { request, answer: caller, .. }) = unanswered else { return };
        if let (Ok(Reply { outcome: Outcome::Queued(_), .. }), Some(request)) = (&answer, request) {
            let (sender, waiting) = watch::channel(None);
            self.state.acquires.lock().waiting.insert(request, waiting);
            self.outcome_senders.insert(number, (request, sender));
        }
        let _ = caller.send(answer);
    }

    /// Stores an outcome for the callers that wait for it or will ask for it soon. An outcome that could not be decoded
    /// is not stored, so its callers have to query it.
    fn on_settled(&self, request: u64, sender: &watch::Sender<Option<Reply>>, reply: Option<Reply>) {
        let mut acquires = self.state.acquires.lock();
        acquires.waiting.remove(&request);
        let Some(reply) = reply else { return };
        if acquires.finished.len() == limits::STREAM_FRAMES_IN_FLIGHT_MAX {
            acquires.finished.pop_front();
        }
        acquires.finished.push_back((request, reply.clone()));
        sender.send_replace(Some(reply));
    }
}

/// Returns the error for unanswered frames of a broken stream: their outcome is unknown with any status.
fn broken(error: &ServiceError) -> ServiceError {
    ServiceError::Unknown { why: format!("the session's stream broke: {error}"), leader: error.leader().cloned() }
}

/// Refuses a stream if the node uses a protocol version that this build does not support. Also refuses any Raft group
/// other than the only one that this build knows, because the client would treat its replies as those of that group.
fn check_hello(hello: &pb::ServerHello) -> Result<(), ServiceError> {
    if !(PROTOCOL_MIN..=PROTOCOL_MAX).contains(&hello.protocol) {
        let why = format!("the node uses protocol {}, not {PROTOCOL_MIN} to {PROTOCOL_MAX}", hello.protocol);
        return Err(ServiceError::Internal(why));
    }
    if hello.group != GROUP {
        let why = format!(
            "the node serves the namespace by group {}, and this version knows group {GROUP} alone",
            hello.group
        );
        return Err(ServiceError::Internal(why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client accepts only a node with a protocol and group that it knows. Unknown features are no reason to refuse
    /// it.
    #[test]
    fn an_incompatible_hello_is_refused() {
        let hello = |protocol, group| pb::ServerHello {
            protocol,
            group,
            features: vec!["of-tomorrow".to_owned()],
            ..Default::default()
        };
        assert_eq!(check_hello(&hello(PROTOCOL_MAX, GROUP)), Ok(()));
        for (protocol, group) in [(PROTOCOL_MAX + 1, GROUP), (PROTOCOL_MIN - 1, GROUP), (PROTOCOL_MAX, GROUP + 1)] {
            assert!(
                matches!(check_hello(&hello(protocol, group)), Err(ServiceError::Internal(_))),
                "{protocol} {group}"
            );
        }
    }
}
