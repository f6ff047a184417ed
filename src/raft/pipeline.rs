//! Entries on their way to one follower: one stream of messages, a few of them unanswered at a time.
//!
//! A stream spares each append the cost of a call of its own, and lets the next entries leave while the follower is
//! still told that the last ones are committed.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use openraft::raft::{AppendEntriesRequest, StreamAppendError, StreamAppendResult};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::link::{Borrowed, Purpose};
use super::network::{Network, Peer};
use super::types::{RaftLogId, Types};
use super::wire;
use crate::limits::{APPEND_MS_MAX, APPENDS_IN_FLIGHT_MAX};

/// What became of one append.
pub(super) type Answer = StreamAppendResult<Types>;

/// A stream to one follower. Dropping it ends the stream; with an append unanswered it drops the connection, too.
pub(super) struct Pipeline<S> {
    input: S,
    input_ended: bool,
    network: Network,
    target: u64,
    outgoing: mpsc::Sender<wire::AppendRequest>,
    incoming: Streaming<wire::AppendResponse>,
    waiting: VecDeque<Sent>,
    connection: Borrowed,
}

/// An append that is not answered yet.
struct Sent {
    previous: Option<RaftLogId>,
    last: Option<RaftLogId>,
    deadline: Instant,
}

impl<S: Stream<Item = AppendEntriesRequest<Types>> + Unpin> Pipeline<S> {
    /// Opens the stream, within the time that an append may take.
    pub(super) async fn open(peer: &Peer, input: S) -> Result<Self, String> {
        let opening = async {
            let (target, address, purpose) = peer.at(Purpose::Entries);
            let connection =
                peer.network.links.borrow(target, address, purpose).await.map_err(|error| error.to_string())?;
            let (outgoing, messages) = mpsc::channel(APPENDS_IN_FLIGHT_MAX);
            let mut client = connection.client.clone();
            let opened = client.appends(ReceiverStream::new(messages)).await;
            let incoming = opened.map_err(|status| status.message().to_owned())?.into_inner();
            let (network, waiting) = (peer.network.clone(), VecDeque::with_capacity(APPENDS_IN_FLIGHT_MAX));
            Ok(Self { input, input_ended: false, network, target, outgoing, incoming, waiting, connection })
        };
        let longest = Duration::from_millis(APPEND_MS_MAX);
        tokio::time::timeout(longest, opening).await.unwrap_or_else(|_| Err(late()))
    }

    /// Sends what may be sent and waits for the next answer. After an answer other than success, or an error, there is
    /// nothing more to come.
    pub(super) async fn next(mut self) -> Option<(Result<Answer, String>, Option<Self>)> {
        loop {
            let may_send = !self.input_ended && self.waiting.len() < APPENDS_IN_FLIGHT_MAX;
            let deadline = self.waiting.front().map(|sent| sent.deadline);
            if deadline.is_none() && self.input_ended {
                self.connection.went_well();
                return None;
            }
            tokio::select! {
                biased;
                request = self.input.next(), if may_send => match request {
                    Some(request) => if self.send(request).await.is_err() {
                        return Some((Err("the stream of appends takes no more".to_owned()), None));
                    },
                    None => self.input_ended = true,
                },
                answer = answered(&mut self.incoming, deadline), if deadline.is_some() => {
                    let answer = answer.and_then(|answer| self.read(answer));
                    let goes_on = matches!(answer, Ok(Ok(_)));
                    return Some((answer, goes_on.then_some(self)));
                }
            }
        }
    }

    async fn send(&mut self, request: AppendEntriesRequest<Types>) -> Result<(), ()> {
        let last = request.entries.last().map(|entry| entry.log_id).or(request.prev_log_id);
        let deadline = Instant::now() + Duration::from_millis(APPEND_MS_MAX);
        self.waiting.push_back(Sent { previous: request.prev_log_id, last, deadline });
        // Anew for each: what is known of the follower's disk may have come meanwhile.
        let header = self.network.header(self.target);
        self.outgoing.send(wire::append(header, &request)).await.map_err(drop)
    }

    fn read(&mut self, answer: wire::AppendResponse) -> Result<Answer, String> {
        use wire::append_response::Result as Told;
        let Some(Sent { previous, last, .. }) = self.waiting.pop_front() else {
            return Err("an answer that nothing was asked for".to_owned());
        };
        let told = answer.result.ok_or_else(|| "an answer without a result".to_owned())?;
        Ok(match told {
            Told::Accepted(_) => Ok(last),
            Told::Partly(id) => Ok(Some(wire::read_log_id(&id))),
            Told::Conflict(_) => {
                let previous = previous.ok_or_else(|| "a conflict where nothing comes before".to_owned())?;
                Err(StreamAppendError::Conflict(previous))
            }
            Told::HigherVote(vote) => {
                let vote = wire::read_ballot(Some(&vote)).map_err(|status| status.message().to_owned())?;
                Err(StreamAppendError::HigherVote(vote))
            }
        })
    }
}

async fn answered(
    incoming: &mut Streaming<wire::AppendResponse>,
    deadline: Option<Instant>,
) -> Result<wire::AppendResponse, String> {
    let Some(deadline) = deadline else { return std::future::pending().await };
    match timeout_at(deadline, incoming.message()).await {
        Ok(Ok(Some(answer))) => Ok(answer),
        Ok(Ok(None)) => Err("the follower ended the stream of appends".to_owned()),
        Ok(Err(status)) => Err(Status::message(&status).to_owned()),
        Err(_) => Err(late()),
    }
}

fn late() -> String {
    format!("no answer within {APPEND_MS_MAX} ms")
}
