//! One session's stream on the asking side.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::OptionFuture;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant as TokioInstant, sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::endpoints::{At, Endpoints, locks};
use super::hello::{check_hello, led_elsewhere};
use super::hold_events::HoldEvents;
use super::send_queue::{Answer, OutgoingFrame, PendingReply, SendQueue, Sending, Unanswered, wait_for_capacity};
use crate::limits;
use crate::model::{Event, LockKey, Namespace, Outcome, Reply};
use crate::rpc::background::Tasks;
use crate::rpc::convert::{Wire, error_from_status, error_from_wire, not_understood};
use crate::rpc::pb::client_frame::Body;
use crate::rpc::pb::server_frame::Body as ServerBody;
use crate::rpc::{PROTOCOL_MAX, PROTOCOL_MIN, pb};
use crate::service::{LeaderHint, NotSent, ServiceError};

/// A stream, for those who ask over it. It ends when nobody has it any more, or a frame of it stays unanswered for too long.
pub(super) struct StreamHandle {
    queue: Arc<Mutex<SendQueue>>,
    /// What finds no room on the queue goes this way.
    pub(super) overflow: mpsc::Sender<OutgoingFrame>,
    results: Arc<Mutex<WaitResults>>,
    replaced: Arc<Notify>,
    /// False once it is over.
    pub(super) alive: watch::Receiver<bool>,
    pub(super) hold_events: Arc<HoldEvents>,
    /// The endpoint that it was opened at.
    pub(super) address: String,
    /// The client's count of the attach that bound it; 0 where the session was opened on it.
    pub(super) attempt: u64,
}

/// A stream whose hello was answered.
pub(super) struct Opened {
    pub(super) stream: StreamHandle,
    /// The leader, where it is another node.
    pub(super) led_elsewhere: Option<LeaderHint>,
}

/// Queued acquires of a stream: those that wait, and the last ones that were settled and not asked for yet.
#[derive(Default)]
struct WaitResults {
    waiting: HashMap<u64, watch::Receiver<Option<Reply>>>,
    finished: VecDeque<(u64, Reply)>,
}

impl StreamHandle {
    /// Opens a stream and exchanges the hellos. Whatever fails here, no command was sent.
    pub(super) async fn open(
        endpoints: &Arc<Endpoints>,
        tasks: &Tasks,
        at: At,
        namespace: Namespace,
    ) -> Result<Opened, ServiceError> {
        let (outgoing, frames) = mpsc::channel(limits::STREAM_FRAMES_WAITING_MAX);
        let hello = pb::ClientHello {
            protocol_min: PROTOCOL_MIN,
            protocol_max: PROTOCOL_MAX,
            features: Vec::new(),
            namespace: namespace.to_string(),
            cluster_id: at.channel.cluster_id().to_wire(),
        };
        let address = at.address.clone();
        let opened_at = address.clone();
        let unreachable = |why: String| ServiceError::not_sent(NotSent::Unreachable(why));
        let greeted = async {
            let frame = pb::ClientFrame { number: 0, body: Some(Body::Hello(hello)) };
            outgoing.send(frame).await.map_err(|_| unreachable("the stream closed".to_owned()))?;
            let opened = locks(at).session(ReceiverStream::new(frames)).await;
            let mut incoming = opened.map_err(|status| never_sent(error_from_status(&status)))?.into_inner();
            match incoming.message().await.map_err(|status| never_sent(error_from_status(&status)))? {
                Some(pb::ServerFrame { body: Some(ServerBody::Hello(hello)), .. }) => Ok((incoming, hello)),
                Some(_) => Err(ServiceError::Internal(format!("{address} did not begin with a hello"))),
                None => Err(unreachable("the stream ended before the hello".to_owned())),
            }
        };
        let longest = Duration::from_millis(limits::CONNECT_MS_MAX);
        let (incoming, hello) =
            timeout(longest, greeted).await.map_err(|_| unreachable("no hello in time".to_owned()))??;

        check_hello(&hello)?;

        let (overflow, overflowed) = mpsc::channel(limits::STREAM_ASKS_WAITING_MAX);
        let results = Arc::new(Mutex::default());
        let queue = Arc::new(Mutex::new(SendQueue::new(outgoing, &hello)));
        let replaced = Arc::new(Notify::new());
        let (living, alive) = watch::channel(true);
        let hold_events = Arc::new(HoldEvents::new());
        let stream = Stream {
            endpoints: Arc::clone(endpoints),
            queue: Arc::clone(&queue),
            overflow: overflowed,
            unsent: None,
            longest: endpoints.request_wait,
            results: Arc::clone(&results),
            queued: BTreeMap::new(),
            replaced: Arc::clone(&replaced),
            alive: living,
            hold_events: Arc::clone(&hold_events),
        };
        endpoints.learn(&hello.endpoints);
        let led_elsewhere = led_elsewhere(&hello);
        tasks.run(stream.run(incoming));
        let stream =
            StreamHandle { queue, overflow, results, replaced, alive, hold_events, address: opened_at, attempt: 0 };
        Ok(Opened { stream, led_elsewhere })
    }

    /// Whether nothing can be asked over it any more.
    pub(super) fn is_over(&self) -> bool {
        self.overflow.is_closed()
    }

    /// Sends a frame and waits for its answer. A stream that leaves one unanswered for the bound of a request is given up:
    /// its session attaches anew.
    pub(super) async fn ask(&self, body: Body, request: Option<u64>) -> Answer {
        self.send(body, request).answer(&self.overflow).await
    }

    /// Sends a frame at once, if it can be: handing it to the stream's own task first would cost each frame a wake-up.
    pub(super) fn send(&self, body: Body, request: Option<u64>) -> PendingReply {
        let (answer, answered) = oneshot::channel();
        let sending = locked(&self.queue).send(OutgoingFrame { body, request, answer, sent: None });
        let unsent = match sending {
            Sending::Sent => None,
            Sending::Waits(ask) | Sending::Full(ask, _) => Some(Box::new(ask)),
        };
        PendingReply { answered, unsent }
    }

    /// Waits for what becomes of an acquire that was queued on an earlier stream. However long that accepts, it is no
    /// unanswered frame.
    pub(super) async fn wait_result(&self, request: u64, lock: &LockKey) -> Answer {
        let lock = lock.name.to_string();
        self.ask(Body::Settle(pb::StreamSettle { request, lock }), None).await
    }

    /// Ends it: its session has a newer one. Whoever waits for something over it is on_frame so; where the node has sent it away,
    /// they have a moment left.
    pub(super) fn replaced(&self) {
        self.replaced.notify_one();
    }

    /// What became of a queued acquire of this stream; `None` where it has to be asked for otherwise.
    pub(super) async fn result(&self, request: u64) -> Option<Reply> {
        let mut waiting = {
            let mut results = locked(&self.results);
            if let Some(position) = results.finished.iter().position(|(number, _)| *number == request) {
                return results.finished.remove(position).map(|(_, reply)| reply);
            }
            results.waiting.get(&request)?.clone()
        };
        let reply = waiting.wait_for(Option::is_some).await.ok()?.clone();
        locked(&self.results).finished.retain(|(number, _)| *number != request);
        reply
    }
}

/// A stream that was refused or broke before anything but the hello was sent: nothing happened.
fn never_sent(error: ServiceError) -> ServiceError {
    let ServiceError::Unknown { why, leader } = error else { return error };
    ServiceError::NotSent { why: NotSent::Unreachable(why), leader }
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The stream itself: one task, which ends with the stream, its handles, or its owner.
struct Stream {
    endpoints: Arc<Endpoints>,
    queue: Arc<Mutex<SendQueue>>,
    overflow: mpsc::Receiver<OutgoingFrame>,
    /// The oldest that found no room on the queue.
    unsent: Option<OutgoingFrame>,
    /// How long a frame may be unanswered.
    longest: Duration,
    results: Arc<Mutex<WaitResults>>,
    /// Queued acquires, by frame: their request, and where the settlement goes.
    queued: BTreeMap<u64, (u64, watch::Sender<Option<Reply>>)>,
    /// The session has a newer stream.
    replaced: Arc<Notify>,
    alive: watch::Sender<bool>,
    hold_events: Arc<HoldEvents>,
}

impl Stream {
    async fn run(mut self, mut incoming: Streaming<pb::ServerFrame>) {
        let over = self.serve(&mut incoming).await;
        let (unanswered, result_waits) = {
            let mut queue = locked(&self.queue);
            queue.outgoing = None;
            (std::mem::take(&mut queue.unanswered), std::mem::take(&mut queue.result_waits))
        };
        // Before any caller has its answer: a caller that looks for the stream then finds that it is over.
        self.close();
        // In order, as every wake of many: a simulation repeats it.
        for asker in unanswered.into_values().map(|sent| sent.answer).chain(result_waits.into_values()) {
            let _ = asker.send(Err(over.clone()));
        }
        self.reject_unsent().await;
        locked(&self.results).waiting.clear();
    }

    /// Takes no more frames.
    fn close(&mut self) {
        self.overflow.close();
        self.hold_events.close();
        self.alive.send_replace(false);
    }

    /// Tells those whose frames were not sent. Nobody else gets in queue.
    async fn reject_unsent(&mut self) {
        self.close();
        if let Some(ask) = self.unsent.take() {
            let _ = ask.answer.send(Err(ServiceError::not_sent(NotSent::Detached)));
        }
        while let Some(ask) = self.overflow.recv().await {
            let _ = ask.answer.send(Err(ServiceError::not_sent(NotSent::Detached)));
        }
    }

    /// The node sends the stream away: nothing more is sent over it, and the node is on_frame that this was all. Where the next
    /// leader is known, what is unanswered may have its answer yet; for a moment only, as the node may stand still by now.
    async fn move_away(
        &mut self,
        leader: Option<LeaderHint>,
        incoming: &mut Streaming<pb::ServerFrame>,
    ) -> ServiceError {
        locked(&self.queue).outgoing = None;
        self.reject_unsent().await;
        if let Some(leader) = &leader {
            self.endpoints.prefer(&leader.client);
            let last_answers = async {
                while !locked(&self.queue).unanswered.is_empty() {
                    let Ok(Some(frame)) = incoming.message().await else { break };
                    if self.on_frame(frame).is_err() {
                        break;
                    }
                }
            };
            let _ = timeout(2 * Duration::from_millis(limits::LAST_ANSWERS_MS_MAX), last_answers).await;
        }
        ServiceError::Unknown { why: "the node sends its streams away".to_owned(), leader }
    }

    /// Until it is over; the error is what the unanswered ones are on_frame.
    async fn serve(&mut self, incoming: &mut Streaming<pb::ServerFrame>) -> ServiceError {
        // One timer for all frames: it looks at the oldest.
        let mut look = pin!(sleep(self.longest));
        let replaced = Arc::clone(&self.replaced);
        let mut full_since = None;
        loop {
            // What comes in is read while the transport is full: the node may wait for that before it accepts more.
            let outgoing = self.send_unsent();
            full_since = outgoing.as_ref().map(|_| full_since.unwrap_or_else(TokioInstant::now));
            let room = outgoing.zip(full_since).map(|(outgoing, since)| Box::pin(wait_for_capacity(outgoing, since)));
            let mut room = OptionFuture::from(room);
            tokio::select! {
                biased;
                frame = incoming.message() => match frame {
                    Ok(Some(pb::ServerFrame { body: Some(ServerBody::MoveTo(pb::MoveTo { leader })), .. })) => {
                        return Box::pin(self.move_away(LeaderHint::from_wire("leader", leader).ok(), incoming)).await;
                    }
                    Ok(Some(frame)) => {
                        if let Err(over) = self.on_frame(frame) {
                            return over;
                        }
                    }
                    Ok(None) => return ServiceError::unknown("the node ended the session's stream"),
                    Err(status) => return broken(&error_from_status(&status)),
                },
                ask = self.overflow.recv(), if self.unsent.is_none() => match ask {
                    Some(ask) => self.unsent = Some(ask),
                    None => return ServiceError::unknown("the session's stream was dropped"),
                },
                Some(wait_for_capacity) = &mut room => {
                    if !wait_for_capacity {
                        return ServiceError::unknown("the session's stream accepts no more frames");
                    }
                    full_since = None;
                }
                () = replaced.notified() => return ServiceError::unknown("the session has a newer stream"),
                () = &mut look => {
                    let now = TokioInstant::now();
                    let due = locked(&self.queue).oldest().unwrap_or(now) + self.longest;
                    if due <= now {
                        return ServiceError::unknown("the session's stream did not answer in time");
                    }
                    look.as_mut().reset(due);
                }
            }
        }
    }

    /// Sends what found no room before, if the node lets it be unanswered by now. Where the transport is full, this returns
    /// the transport.
    fn send_unsent(&mut self) -> Option<mpsc::Sender<pb::ClientFrame>> {
        let sending = locked(&self.queue).send(self.unsent.take()?);
        let (ask, outgoing) = match sending {
            Sending::Sent => return None,
            Sending::Waits(ask) => (ask, None),
            Sending::Full(ask, outgoing) => (ask, Some(outgoing)),
        };
        self.unsent = Some(ask);
        outgoing
    }

    fn on_frame(&mut self, frame: pb::ServerFrame) -> Result<(), ServiceError> {
        let number = frame.number;
        match frame.body {
            Some(ServerBody::Reply(reply)) => {
                let reply = Reply::from_wire("reply", reply).map_err(not_understood);
                self.on_reply(number, reply);
            }
            Some(ServerBody::Error(error)) => {
                self.queued.remove(&number).inspect(|(request, _)| {
                    locked(&self.results).waiting.remove(request);
                });
                self.on_reply(number, Err(error_from_wire(&error)));
            }
            Some(ServerBody::Settled(reply)) => {
                let reply = Reply::from_wire("reply", reply).map_err(not_understood);
                if let Some((request, settled)) = self.queued.remove(&number) {
                    self.on_result(request, &settled, reply.ok());
                } else if let Some(asker) = locked(&self.queue).result_waits.remove(&number) {
                    let _ = asker.send(reply);
                }
            }
            Some(ServerBody::SessionEnded(_)) => return Err(ServiceError::unknown("the session has ended")),
            Some(ServerBody::HoldEvent(event)) => match Event::from_wire("event", event) {
                Ok(event) => self.hold_events.push(event),
                Err(_) => self.hold_events.missed(),
            },
            Some(ServerBody::HoldEventsMissed(_)) => self.hold_events.missed(),
            Some(ServerBody::Hello(_) | ServerBody::MoveTo(_)) | None => {}
        }
        Ok(())
    }

    fn on_reply(&mut self, number: u64, answer: Answer) {
        let (known, result_waits) = {
            let mut queue = locked(&self.queue);
            (queue.unanswered.remove(&number), queue.result_waits.remove(&number))
        };
        if let Some(asker) = result_waits {
            let _ = asker.send(answer);
            return;
        }
        let Some(Unanswered { request, answer: asker, .. }) = known else { return };
        if let (Ok(Reply { outcome: Outcome::Queued(_), .. }), Some(request)) = (&answer, request) {
            let (settled, waiting) = watch::channel(None);
            locked(&self.results).waiting.insert(request, waiting);
            self.queued.insert(number, (request, settled));
        }
        let _ = asker.send(answer);
    }

    /// Keeps a settlement for those who wait, and for one who will ask in a moment. One that was not understood is
    /// left to be asked for otherwise.
    fn on_result(&self, request: u64, settled: &watch::Sender<Option<Reply>>, reply: Option<Reply>) {
        let mut results = locked(&self.results);
        results.waiting.remove(&request);
        let Some(reply) = reply else {
            return;
        };
        if results.finished.len() == limits::STREAM_FRAMES_IN_FLIGHT_MAX {
            results.finished.pop_front();
        }
        results.finished.push_back((request, reply.clone()));
        settled.send_replace(Some(reply));
    }
}

/// What unanswered ones are on_frame when their stream broke: nobody knows what became of them, whatever the status says.
fn broken(error: &ServiceError) -> ServiceError {
    ServiceError::Unknown { why: format!("the session's stream broke: {error}"), leader: error.leader().cloned() }
}
