//! Outgoing frames of one session's stream, and the calls that wait for their answers.

use std::collections::BTreeMap;
use std::time::Duration;

use prost::encoding::encoded_len_varint;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant as TokioInstant, timeout_at};

use crate::limits;
use crate::model::{Invalid, Reply};
use crate::rpc::pb;
use crate::rpc::pb::client_frame::Body;
use crate::service::{NotSent, ServiceError};

pub(super) type ReplyResult = Result<Reply, ServiceError>;

/// One frame to send, with the channel for its answer.
pub(super) struct OutgoingFrame {
    pub(super) body: Body,
    /// Request number of an acquire.
    pub(super) request: Option<u64>,
    pub(super) answer: oneshot::Sender<ReplyResult>,
}

/// The outgoing side of a stream, shared by the callers and the stream's task. Locked for a few instructions, never
/// across an await.
pub(super) struct SendQueue {
    /// Sender to the transport; `None` once the stream is over.
    pub(super) outgoing: Option<mpsc::Sender<pb::ClientFrame>>,
    /// Unanswered frames that the node allows.
    credit: usize,
    /// Largest frame that the node reads, in bytes.
    frame_bytes_max: usize,
    next_number: u64,
    pub(super) unanswered: BTreeMap<u64, Unanswered>,
    /// Waits for the outcome of an acquire that was queued on an earlier stream, by frame.
    pub(super) outcome_waits: BTreeMap<u64, oneshot::Sender<ReplyResult>>,
    /// Number of such waits at which the waits of dropped callers are removed: whenever the number has doubled, not at
    /// every frame.
    sweep_at: usize,
}

/// A frame that was sent and has no answer yet.
pub(super) struct Unanswered {
    pub(super) since: TokioInstant,
    /// Request number of an acquire.
    pub(super) request: Option<u64>,
    pub(super) answer: oneshot::Sender<ReplyResult>,
}

/// A frame that cannot be sent yet.
pub(super) struct Unsent {
    pub(super) frame: OutgoingFrame,
    /// The channel to the transport, if that is full. Otherwise the node allows no more unanswered frames, or the
    /// stream is over.
    pub(super) full: Option<mpsc::Sender<pb::ClientFrame>>,
}

impl SendQueue {
    /// Creates a queue with the limits from the node's hello.
    pub(super) fn new(outgoing: mpsc::Sender<pb::ClientFrame>, hello: &pb::ServerHello) -> Self {
        Self {
            outgoing: Some(outgoing),
            credit: (hello.frames_in_flight_max as usize).max(1),
            frame_bytes_max: hello.frame_bytes_max as usize,
            next_number: 1,
            unanswered: BTreeMap::new(),
            outcome_waits: BTreeMap::new(),
            sweep_at: limits::STREAM_SETTLES_SWEEP_MIN,
        }
    }

    /// Hands a frame to the transport, unless its caller is gone. Returns the frame if it has to wait.
    pub(super) fn send(&mut self, frame: OutgoingFrame) -> Option<Unsent> {
        let Some(outgoing) = self.outgoing.as_ref().filter(|_| self.unanswered.len() < self.credit) else {
            return Some(Unsent { frame, full: None });
        };
        // This client's frames never exceed its own limit: only a lower limit of the node has to be checked.
        if self.frame_bytes_max < limits::FRAME_BYTES_MAX {
            let bytes = frame.body.encoded_len() + 1 + encoded_len_varint(self.next_number);
            if self.frame_bytes_max < bytes {
                let bound = format!("at most {} bytes, as the node says", self.frame_bytes_max);
                // If it were sent, the frame would end the stream and fail every call in flight on it.
                let _ = frame.answer.send(Err(Invalid::new("frame", bound, bytes).into()));
                return None;
            }
        }
        let Ok(place) = outgoing.try_reserve() else {
            return Some(Unsent { full: Some(outgoing.clone()), frame });
        };
        if frame.answer.is_closed() {
            return None;
        }
        let number = self.next_number;
        self.next_number += 1;
        let OutgoingFrame { body, request, answer } = frame;
        if matches!(body, Body::Settle(_)) {
            if self.sweep_at <= self.outcome_waits.len() {
                self.outcome_waits.retain(|_, waits| !waits.is_closed());
                self.sweep_at = limits::STREAM_SETTLES_SWEEP_MIN.max(2 * self.outcome_waits.len());
            }
            self.outcome_waits.insert(number, answer);
        } else {
            self.unanswered.insert(number, Unanswered { since: TokioInstant::now(), request, answer });
        }
        place.send(pb::ClientFrame { number, body: Some(body) });
        None
    }

    /// Returns the send time of the oldest unanswered frame.
    pub(super) fn oldest(&self) -> Option<TokioInstant> {
        self.unanswered.first_key_value().map(|(_, sent)| sent.since)
    }
}

/// The answer to a frame that was sent or waits for capacity. It is small, because it is part of every caller's future.
pub(super) struct PendingReply {
    pub(super) answered: oneshot::Receiver<ReplyResult>,
    pub(super) unsent: Option<Box<OutgoingFrame>>,
}

impl PendingReply {
    /// Sends the frame through `overflow` if it waits for capacity, then waits for its answer.
    pub(super) async fn answer(self, overflow: &mpsc::Sender<OutgoingFrame>) -> ReplyResult {
        if let Some(frame) = self.unsent
            && Box::pin(overflow.send(*frame)).await.is_err()
        {
            return Err(ServiceError::not_sent(NotSent::Detached));
        }
        // The stream's task answers every frame before it ends, unless its runtime stops.
        self.answered.await.unwrap_or_else(|_| Err(ServiceError::unknown("the session's stream broke")))
    }
}

/// Waits until the transport takes another frame. Returns false if the transport is over, or was full for
/// [`limits::STREAM_SEND_MS_MAX`] since `since`.
pub(super) async fn wait_for_capacity(outgoing: mpsc::Sender<pb::ClientFrame>, since: TokioInstant) -> bool {
    let longest = Duration::from_millis(limits::STREAM_SEND_MS_MAX);
    matches!(timeout_at(since + longest, outgoing.reserve()).await, Ok(Ok(_)))
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    fn hello(frame_bytes_max: usize) -> pb::ServerHello {
        pb::ServerHello { frames_in_flight_max: 1, frame_bytes_max: frame_bytes_max as u32, ..Default::default() }
    }

    /// A frame that is larger than its node reads is refused to its caller and not sent: it would end the stream.
    #[test]
    fn a_frame_that_the_node_does_not_read_is_refused() {
        let cancel = pb::command::Command::Cancel(pb::Cancel { session: None, request: 300 });
        let body = Body::Command(pb::Command { command: Some(cancel) });
        let bytes = pb::ClientFrame { number: 1, body: Some(body.clone()) }.encoded_len();
        for (most, sent) in [(bytes - 1, false), (bytes, true)] {
            let (outgoing, mut frames) = mpsc::channel(1);
            let mut queue = SendQueue::new(outgoing, &hello(most));
            let (answer, mut answered) = oneshot::channel();
            assert!(queue.send(OutgoingFrame { body: body.clone(), request: None, answer }).is_none());
            assert_eq!((frames.try_recv().is_ok(), queue.unanswered.len()), (sent, usize::from(sent)));
            let refused = matches!(answered.try_recv(), Ok(Err(ServiceError::Invalid(_))));
            assert_eq!(refused, !sent);
        }
    }

    /// Waits of dropped callers are removed, though not at every frame; the other waits stay.
    #[test]
    fn waits_of_dropped_callers_are_removed() {
        let frames = 100 * limits::STREAM_SETTLES_SWEEP_MIN;
        let (outgoing, _frames) = mpsc::channel(frames);
        let mut queue = SendQueue::new(outgoing, &hello(limits::FRAME_BYTES_MAX));
        let (mut waits, mut sweeps, mut most) = (Vec::new(), 0, 0);
        for request in 0..frames as u64 {
            let (answer, waiting) = oneshot::channel();
            let body = Body::Settle(pb::StreamSettle { request, lock: "a".to_owned() });
            let before = queue.outcome_waits.len();
            assert!(queue.send(OutgoingFrame { body, request: None, answer }).is_none());
            sweeps += usize::from(queue.outcome_waits.len() <= before);
            most = most.max(queue.outcome_waits.len());
            // Every tenth caller keeps waiting.
            if request % 10 == 0 {
                waits.push(waiting);
            }
        }
        assert!(waits.iter_mut().all(|waiting| waiting.try_recv() == Err(oneshot::error::TryRecvError::Empty)));
        assert!(most <= limits::STREAM_SETTLES_SWEEP_MIN.max(2 * waits.len() + 1), "{most}");
        assert!(0 < sweeps && sweeps < frames / limits::STREAM_SETTLES_SWEEP_MIN * 2, "{sweeps}");
    }
}
