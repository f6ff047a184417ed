//! One session's stream on the asking side.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::endpoints::{At, Endpoints, locks};
use super::{Shared, led_elsewhere};
use crate::limits;
use crate::model::{Namespace, Outcome, Reply};
use crate::rpc::convert::{error_from_status, error_from_wire, not_understood};
use crate::rpc::pb::client_frame::Body;
use crate::rpc::pb::server_frame::Body as Told;
use crate::rpc::{PROTOCOL_MAX, PROTOCOL_MIN, pb};
use crate::service::{LeaderHint, NotSent, ServiceError};

type Answer = Result<Reply, ServiceError>;

/// A stream, for those who ask over it. The stream ends when all its handles are gone, or one cuts it.
#[derive(Clone)]
pub(super) struct StreamHandle {
    asks: mpsc::Sender<Ask>,
    settlements: Arc<Mutex<Settlements>>,
    /// Told by a handle: an answer stayed away, so nothing more is expected of this stream.
    cut: Arc<watch::Sender<bool>>,
    pub(super) namespace: Namespace,
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

/// One frame to send, and where its answer goes.
struct Ask {
    body: Body,
    /// Number of the session's request, for an acquire.
    request: Option<u64>,
    answer: oneshot::Sender<Answer>,
    /// Set before the frame is handed to the transport.
    sent: Arc<AtomicBool>,
}

/// Queued acquires of a stream: those that wait, and the last ones that were settled and not asked for yet.
#[derive(Default)]
struct Settlements {
    waiting: HashMap<u64, watch::Receiver<Option<Reply>>>,
    settled: VecDeque<(u64, Reply)>,
}

impl StreamHandle {
    /// Opens a stream and exchanges the hellos. Whatever fails here, no command was sent.
    pub(super) async fn open(shared: &Shared, at: At, namespace: Namespace) -> Result<Opened, ServiceError> {
        let (outgoing, frames) = mpsc::channel(limits::STREAM_FRAMES_WAITING_MAX);
        let hello = pb::ClientHello {
            protocol_min: PROTOCOL_MIN,
            protocol_max: PROTOCOL_MAX,
            features: Vec::new(),
            namespace: namespace.to_string(),
            cluster_id: Bytes::new(),
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
                Some(pb::ServerFrame { body: Some(Told::Hello(hello)), .. }) => Ok((incoming, hello)),
                Some(_) => Err(ServiceError::Internal(format!("{address} did not begin with a hello"))),
                None => Err(unreachable("the stream ended before the hello".to_owned())),
            }
        };
        let longest = Duration::from_millis(limits::CONNECT_MS_MAX);
        let (incoming, hello) =
            timeout(longest, greeted).await.map_err(|_| unreachable("no hello in time".to_owned()))??;

        let (asks, asked) = mpsc::channel(limits::STREAM_ASKS_WAITING_MAX);
        let (cut, is_cut) = watch::channel(false);
        let settlements = Arc::new(Mutex::default());
        let stream = Stream {
            endpoints: shared.endpoints.clone(),
            outgoing,
            asked,
            is_cut,
            settlements: Arc::clone(&settlements),
            credit: (hello.frames_in_flight_max as usize).max(1),
            next_number: 1,
            unanswered: BTreeMap::new(),
            queued: BTreeMap::new(),
        };
        shared.endpoints.learn(&hello.endpoints);
        let led_elsewhere = led_elsewhere(&hello);
        shared.tasks.run(stream.run(incoming));
        let stream = StreamHandle { asks, settlements, cut: Arc::new(cut), namespace, address: opened_at, attempt: 0 };
        Ok(Opened { stream, led_elsewhere })
    }

    /// Whether nothing can be asked over it any more.
    pub(super) fn is_over(&self) -> bool {
        self.asks.is_closed() || *self.cut.borrow()
    }

    /// Sends a frame and waits for its answer, however long that takes.
    pub(super) async fn ask(&self, body: Body, request: Option<u64>) -> Answer {
        self.ask_noting(body, request, Arc::default()).await
    }

    /// The same within a bound. A stream that leaves a frame unanswered is cut: its session attaches anew.
    pub(super) async fn ask_within(&self, body: Body, request: Option<u64>, longest: Duration) -> Answer {
        let sent = Arc::new(AtomicBool::new(false));
        match timeout(longest, self.ask_noting(body, request, Arc::clone(&sent))).await {
            Ok(answer) => answer,
            Err(_) => {
                self.cut.send_replace(true);
                if sent.load(Ordering::SeqCst) {
                    return Err(ServiceError::unknown("the session's stream did not answer in time"));
                }
                Err(ServiceError::not_sent(NotSent::Detached))
            }
        }
    }

    async fn ask_noting(&self, body: Body, request: Option<u64>, sent: Arc<AtomicBool>) -> Answer {
        let (answer, answered) = oneshot::channel();
        let ask = Ask { body, request, answer, sent: Arc::clone(&sent) };
        if self.asks.send(ask).await.is_err() {
            return Err(ServiceError::not_sent(NotSent::Detached));
        }
        match answered.await {
            Ok(answer) => answer,
            Err(_) if sent.load(Ordering::SeqCst) => Err(ServiceError::unknown("the session's stream broke")),
            Err(_) => Err(ServiceError::not_sent(NotSent::Detached)),
        }
    }

    /// What became of a queued acquire of this stream; `None` where it has to be asked for otherwise.
    pub(super) async fn settled(&self, request: u64) -> Option<Reply> {
        let mut waiting = {
            let mut settlements = lock(&self.settlements);
            if let Some(position) = settlements.settled.iter().position(|(number, _)| *number == request) {
                return settlements.settled.remove(position).map(|(_, reply)| reply);
            }
            settlements.waiting.get(&request)?.clone()
        };
        let reply = waiting.wait_for(Option::is_some).await.ok()?.clone();
        lock(&self.settlements).settled.retain(|(number, _)| *number != request);
        reply
    }
}

/// A stream that was refused or broke before anything but the hello was sent: nothing happened.
fn never_sent(error: ServiceError) -> ServiceError {
    match error {
        ServiceError::Unknown { why, leader } => ServiceError::NotSent { why: NotSent::Unreachable(why), leader },
        ServiceError::NotSent { .. }
        | ServiceError::Invalid(_)
        | ServiceError::Refused(_)
        | ServiceError::Forbidden { .. }
        | ServiceError::EventsMissed { .. }
        | ServiceError::Stopping
        | ServiceError::Internal(_) => error,
    }
}

fn lock(settlements: &Mutex<Settlements>) -> MutexGuard<'_, Settlements> {
    settlements.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The stream itself: one task, which ends with the stream, its handles, or its owner.
struct Stream {
    endpoints: Arc<Endpoints>,
    outgoing: mpsc::Sender<pb::ClientFrame>,
    asked: mpsc::Receiver<Ask>,
    is_cut: watch::Receiver<bool>,
    settlements: Arc<Mutex<Settlements>>,
    /// Frames that the node lets be unanswered.
    credit: usize,
    next_number: u64,
    unanswered: BTreeMap<u64, (Option<u64>, oneshot::Sender<Answer>)>,
    /// Queued acquires, by frame: their request, and where the settlement goes.
    queued: BTreeMap<u64, (u64, watch::Sender<Option<Reply>>)>,
}

impl Stream {
    async fn run(mut self, mut incoming: Streaming<pb::ServerFrame>) {
        let over = self.serve(&mut incoming).await;
        // In order, as every wake of many: a simulation repeats it.
        for (_, answer) in std::mem::take(&mut self.unanswered).into_values() {
            let _ = answer.send(Err(over.clone()));
        }
        self.asked.close();
        while let Some(ask) = self.asked.recv().await {
            let _ = ask.answer.send(Err(ServiceError::not_sent(NotSent::Detached)));
        }
        lock(&self.settlements).waiting.clear();
    }

    /// Until it is over; the error is what the unanswered ones are told.
    async fn serve(&mut self, incoming: &mut Streaming<pb::ServerFrame>) -> ServiceError {
        let mut is_cut = self.is_cut.clone();
        let mut cut = pin!(until_cut(&mut is_cut));
        loop {
            let may_send = self.unanswered.len() < self.credit;
            tokio::select! {
                ask = self.asked.recv(), if may_send => match ask {
                    Some(ask) => {
                        if let Err(over) = self.send(ask).await {
                            return over;
                        }
                    }
                    None => return ServiceError::unknown("the session's stream was dropped"),
                },
                frame = incoming.message() => match frame {
                    Ok(Some(frame)) => {
                        if let Err(over) = self.told(frame) {
                            return over;
                        }
                    }
                    Ok(None) => return ServiceError::unknown("the node ended the session's stream"),
                    Err(status) => return broken(&error_from_status(&status)),
                },
                () = &mut cut => {
                    return ServiceError::unknown("the session's stream did not answer in time");
                }
            }
        }
    }

    async fn send(&mut self, ask: Ask) -> Result<(), ServiceError> {
        // In this order: an asker that gave up and does not see the mark is always seen here.
        ask.sent.store(true, Ordering::SeqCst);
        if ask.answer.is_closed() {
            return Ok(());
        }
        let number = self.next_number;
        self.next_number += 1;
        self.unanswered.insert(number, (ask.request, ask.answer));
        let frame = pb::ClientFrame { number, body: Some(ask.body) };
        let frame = match self.outgoing.try_send(frame) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Full(frame) | TrySendError::Closed(frame)) => frame,
        };
        let longest = Duration::from_millis(limits::STREAM_SEND_MS_MAX);
        match timeout(longest, self.outgoing.send(frame)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(ServiceError::unknown("the session's stream takes no more frames")),
        }
    }

    fn told(&mut self, frame: pb::ServerFrame) -> Result<(), ServiceError> {
        let number = frame.number;
        match frame.body {
            Some(Told::Reply(reply)) => {
                let reply = Reply::try_from(reply).map_err(not_understood);
                self.answered(number, reply);
            }
            Some(Told::Error(error)) => {
                self.queued.remove(&number).inspect(|(request, _)| {
                    lock(&self.settlements).waiting.remove(request);
                });
                self.answered(number, Err(error_from_wire(&error)));
            }
            Some(Told::Settled(reply)) => {
                if let Some((request, settled)) = self.queued.remove(&number) {
                    self.settled(request, &settled, Reply::try_from(reply).ok());
                }
            }
            Some(Told::SessionEnded(_)) => return Err(ServiceError::unknown("the session has ended")),
            Some(Told::MoveTo(pb::MoveTo { leader })) => {
                let leader: Option<LeaderHint> = leader.map(Into::into);
                if let Some(leader) = &leader {
                    self.endpoints.prefer(&leader.client);
                }
                return Err(ServiceError::Unknown { why: "the node sends its streams away".to_owned(), leader });
            }
            Some(Told::Hello(_) | Told::Overloaded(_)) | None => {}
        }
        Ok(())
    }

    fn answered(&mut self, number: u64, answer: Answer) {
        let Some((request, asker)) = self.unanswered.remove(&number) else {
            return;
        };
        if let (Ok(Reply { outcome: Outcome::Queued(_), .. }), Some(request)) = (&answer, request) {
            let (settled, waiting) = watch::channel(None);
            lock(&self.settlements).waiting.insert(request, waiting);
            self.queued.insert(number, (request, settled));
        }
        let _ = asker.send(answer);
    }

    /// Keeps a settlement for those who wait, and for one who will ask in a moment. One that was not understood is
    /// left to be asked for otherwise.
    fn settled(&self, request: u64, settled: &watch::Sender<Option<Reply>>, reply: Option<Reply>) {
        let mut settlements = lock(&self.settlements);
        settlements.waiting.remove(&request);
        let Some(reply) = reply else {
            return;
        };
        if settlements.settled.len() == limits::STREAM_FRAMES_IN_FLIGHT_MAX {
            settlements.settled.pop_front();
        }
        settlements.settled.push_back((request, reply.clone()));
        settled.send_replace(Some(reply));
    }
}

/// Waits until a handle cuts the stream; handles that are all gone are noticed by the asks' end.
async fn until_cut(is_cut: &mut watch::Receiver<bool>) {
    if is_cut.wait_for(|cut| *cut).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// What unanswered ones are told when their stream broke: nobody knows what became of them, whatever the status says.
fn broken(error: &ServiceError) -> ServiceError {
    ServiceError::Unknown { why: format!("the session's stream broke: {error}"), leader: error.leader().cloned() }
}
