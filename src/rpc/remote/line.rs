//! The way out of one session's stream: which frames are on their way, and who waits for their answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant as TokioInstant, timeout_at};

use crate::limits;
use crate::model::Reply;
use crate::rpc::pb;
use crate::rpc::pb::client_frame::Body;
use crate::service::ServiceError;

pub(super) type Answer = Result<Reply, ServiceError>;

/// One frame to send, and where its answer goes.
pub(super) struct Ask {
    pub(super) body: Body,
    /// Number of the session's request, for an acquire.
    pub(super) request: Option<u64>,
    pub(super) answer: oneshot::Sender<Answer>,
    /// Set before the frame is handed to the transport, where that is not done by the one who asks.
    pub(super) sent: Option<Arc<AtomicBool>>,
}

/// The way out, which those who ask and the stream's task share. Held for a few instructions, never across an await.
pub(super) struct Line {
    /// `None` once the stream is over.
    pub(super) outgoing: Option<mpsc::Sender<pb::ClientFrame>>,
    /// Frames that the node lets be unanswered.
    pub(super) credit: usize,
    pub(super) next_number: u64,
    pub(super) unanswered: BTreeMap<u64, Unanswered>,
    /// What is waited for under a frame of its own.
    pub(super) settling: BTreeMap<u64, oneshot::Sender<Answer>>,
}

/// A frame that was sent.
pub(super) struct Unanswered {
    pub(super) since: TokioInstant,
    /// Number of the session's request, for an acquire.
    pub(super) request: Option<u64>,
    pub(super) answer: oneshot::Sender<Answer>,
}

/// What becomes of a frame.
pub(super) enum Sending {
    /// It is handed to the transport, unless nobody wants it any more.
    Sent,
    /// The node lets no more be unanswered, or the stream is over.
    Waits(Ask),
    /// The transport is full.
    Full(Ask, mpsc::Sender<pb::ClientFrame>),
}

impl Line {
    pub(super) fn send(&mut self, ask: Ask) -> Sending {
        let Some(outgoing) = self.outgoing.as_ref().filter(|_| self.unanswered.len() < self.credit) else {
            return Sending::Waits(ask);
        };
        let Ok(place) = outgoing.try_reserve() else {
            return Sending::Full(ask, outgoing.clone());
        };
        // In this order: an asker that gave up and does not see the mark is always seen here.
        if let Some(sent) = &ask.sent {
            sent.store(true, Ordering::SeqCst);
        }
        if ask.answer.is_closed() {
            return Sending::Sent;
        }
        let number = self.next_number;
        self.next_number += 1;
        let Ask { body, request, answer, .. } = ask;
        if matches!(body, Body::Settle(_)) {
            self.settling.retain(|_, waits| !waits.is_closed());
            self.settling.insert(number, answer);
        } else {
            self.unanswered.insert(number, Unanswered { since: TokioInstant::now(), request, answer });
        }
        place.send(pb::ClientFrame { number, body: Some(body) });
        Sending::Sent
    }

    /// Since when the oldest frame is unanswered.
    pub(super) fn oldest(&self) -> Option<TokioInstant> {
        self.unanswered.first_key_value().map(|(_, sent)| sent.since)
    }
}

/// Waits until the transport takes another frame. False where it is over, or was full for too long, counted from `since`.
pub(super) async fn has_room(outgoing: mpsc::Sender<pb::ClientFrame>, since: TokioInstant) -> bool {
    let longest = Duration::from_millis(limits::STREAM_SEND_MS_MAX);
    matches!(timeout_at(since + longest, outgoing.reserve()).await, Ok(Ok(_)))
}
