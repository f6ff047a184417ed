//! Sends entries to one follower over one stream of messages. A limited number of messages may be unanswered at a time.
//!
//! With a stream, an append needs no separate call. New entries can be sent while the follower is still being notified
//! that earlier ones are committed.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use openraft::raft::{AppendEntriesRequest, StreamAppendError, StreamAppendResult};
use tokio::sync::mpsc;
use tokio::time::{Instant as TokioInstant, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::connections::{Borrowed, Purpose};
use super::messages;
use super::peer::{Network, Peer};
use super::types::{RaftLogId, RaftVote, Types};
use crate::limits::{APPEND_MS_MAX, APPENDS_IN_FLIGHT_MAX, COMMIT_NEWS_MS_MAX};

pub(super) type AppendResult = StreamAppendResult<Types>;

/// A stream to one follower. Dropping it ends the stream; if an append is unanswered, the connection is dropped, too.
pub(super) struct AppendStream<S> {
    input: S,
    input_ended: bool,
    network: Network,
    target: u64,
    /// Index of the newest snapshot that Raft knew when it chose to send entries.
    snapshot: u64,
    outgoing: mpsc::Sender<messages::AppendRequest>,
    incoming: Streaming<messages::AppendResponse>,
    /// A commit notice without entries. It is delayed briefly, because an append with entries carries the same
    /// information.
    held: Option<Held>,
    waiting: VecDeque<Sent>,
    /// The answer to the first append in `waiting`. If merged appends come before it, they get this answer first.
    answer: Option<messages::AppendResponse>,
    connection: Borrowed,
}

/// A commit notice that was not sent yet.
struct Held {
    request: AppendEntriesRequest<Types>,
    until: TokioInstant,
}

/// An append that was sent or merged and is not answered yet.
struct Sent {
    previous: Option<RaftLogId>,
    last: Option<RaftLogId>,
    deadline: TokioInstant,
    /// True if the append was not sent, because the next one contains the same information. It gets the answer to that
    /// one.
    merged: bool,
    /// Vote of the leader that sent the entries; `None` if the append has no entries.
    leader: Option<RaftVote>,
}

impl Sent {
    fn new(request: &AppendEntriesRequest<Types>, merged: bool) -> Self {
        let last = request.entries.last().map(|entry| entry.log_id).or(request.prev_log_id);
        let deadline = TokioInstant::now() + Duration::from_millis(APPEND_MS_MAX);
        let leader = request.entries.last().map(|_| request.vote);
        Self { previous: request.prev_log_id, last, deadline, merged, leader }
    }
}

impl<S: Stream<Item = AppendEntriesRequest<Types>> + Unpin> AppendStream<S> {
    /// Opens the stream within [`APPEND_MS_MAX`] milliseconds. The first request is sent together with the call, before
    /// the follower has accepted the stream.
    pub(super) async fn open(
        peer: &Peer,
        snapshot: u64,
        first: AppendEntriesRequest<Types>,
        input: S,
    ) -> Result<Self, String> {
        let opening = async {
            let (target, address, purpose) = peer.at(Purpose::Entries);
            let connection =
                peer.network.links.borrow(target, address, purpose).await.map_err(|error| error.to_string())?;
            let (outgoing, messages) = mpsc::channel(APPENDS_IN_FLIGHT_MAX);
            let mut waiting = VecDeque::with_capacity(2 * APPENDS_IN_FLIGHT_MAX);
            waiting.push_back(Sent::new(&first, false));
            // The first message of each stream reports to the follower what it has acknowledged.
            let acknowledged = peer.network.acknowledged.of(target, &first.vote);
            let first = messages::append(peer.network.header(target), &first, acknowledged);
            outgoing.send(first).await.map_err(|_| "the stream of appends is closed".to_owned())?;
            let mut client = connection.client.clone();
            let opened = client.appends(ReceiverStream::new(messages)).await;
            let incoming = opened.map_err(|status| peer.network.note_failure(&status))?.into_inner();
            Ok(Self {
                input,
                input_ended: false,
                network: peer.network.clone(),
                target,
                snapshot,
                outgoing,
                incoming,
                held: None,
                waiting,
                answer: None,
                connection,
            })
        };
        let longest = Duration::from_millis(APPEND_MS_MAX);
        tokio::time::timeout(longest, opening).await.unwrap_or_else(|_| Err(late()))
    }

    /// Sends all requests that may be sent now, and waits for the next answer. The stream ends after an error, and
    /// after any answer other than success.
    pub(super) async fn next(mut self) -> Option<(Result<AppendResult, String>, Option<Self>)> {
        loop {
            if let Some(answer) = self.answer.take() {
                let answer = self.read(answer);
                let continues = matches!(answer, Ok(Ok(_)));
                return Some((answer, continues.then_some(self)));
            }
            let in_flight = self.waiting.iter().filter(|sent| !sent.merged).count();
            let may_send = !self.input_ended && in_flight < APPENDS_IN_FLIGHT_MAX;
            let deadline = self.waiting.front().map(|sent| sent.deadline);
            let held_until = self.held.as_ref().map(|held| held.until);
            if deadline.is_none() && held_until.is_none() && self.input_ended {
                self.connection.succeeded();
                return None;
            }
            tokio::select! {
                biased;
                request = self.input.next(), if may_send => match request {
                    Some(request) => if let Err(error) = self.take(request).await {
                        return Some((Err(error), None));
                    },
                    None => self.input_ended = true,
                },
                answer = answered(&self.network, &mut self.incoming, deadline), if deadline.is_some() => match answer {
                    Ok(answer) => self.answer = Some(answer),
                    Err(error) => return Some((Err(error), None)),
                },
                () = reached(held_until), if held_until.is_some() => if let Err(error) = self.send_held().await {
                    return Some((Err(error), None));
                },
            }
        }
    }

    /// Sends a request with entries at once, merged with a delayed commit notice if possible. Delays a request without
    /// entries.
    async fn take(&mut self, request: AppendEntriesRequest<Types>) -> Result<(), String> {
        self.check_lag(request.prev_log_id.as_ref())?;
        let same_place = |held: &Held| held.request.prev_log_id == request.prev_log_id;
        match self.held.take() {
            Some(held) if same_place(&held) => self.waiting.push_back(Sent::new(&held.request, true)),
            Some(held) => self.send(held.request).await?,
            None => {}
        }
        if request.entries.is_empty() {
            let until = TokioInstant::now() + Duration::from_millis(COMMIT_NEWS_MS_MAX);
            self.held = Some(Held { request, until });
            return Ok(());
        }
        self.send(request).await
    }

    /// Fails if a follower with the entries up to `previous` should get a snapshot instead of the next ones. openraft
    /// chooses between both only after the end of a stream, and until then it purges no entry that the follower lacks.
    /// So a snapshot counts if it is newer than the stream: openraft has not had that choice yet.
    fn check_lag(&self, previous: Option<&RaftLogId>) -> Result<(), String> {
        let (shared, previous) = (&self.network.shared, previous.map_or(0, |id| id.index));
        if shared.raft_snapshot.load(Ordering::Relaxed) <= self.snapshot.max(previous) {
            return Ok(());
        }
        let lag = shared.wal.state().last.map_or(0, |last| last.index).saturating_sub(previous);
        if lag <= self.network.lag_entries_max {
            return Ok(());
        }
        Err(format!("it lacks {lag} entries, and gets a snapshot if that has them"))
    }

    async fn send_held(&mut self) -> Result<(), String> {
        match self.held.take() {
            Some(held) => self.send(held.request).await,
            None => Ok(()),
        }
    }

    async fn send(&mut self, request: AppendEntriesRequest<Types>) -> Result<(), String> {
        self.waiting.push_back(Sent::new(&request, false));
        // The header is built for each message, because the follower's disk may have become known meanwhile.
        let header = self.network.header(self.target);
        let sent = self.outgoing.send(messages::append(header, &request, None)).await;
        sent.map_err(|_| "the stream of appends is closed".to_owned())
    }

    /// Matches an answer with the first unanswered append. If that append was merged, the answer is kept for the next
    /// one.
    fn read(&mut self, answer: messages::AppendResponse) -> Result<AppendResult, String> {
        use messages::append_response::Result as Outcome;
        let Some(Sent { previous, last, merged, leader, .. }) = self.waiting.pop_front() else {
            return Err("an answer without a request".to_owned());
        };
        let outcome = answer.result.ok_or_else(|| "an answer without a result".to_owned())?;
        if merged && matches!(outcome, Outcome::Accepted(_) | Outcome::Partly(_)) {
            self.answer = Some(messages::AppendResponse { result: Some(outcome) });
            return Ok(Ok(last));
        }
        let result = match outcome {
            Outcome::Accepted(_) => Ok(last),
            Outcome::Partly(id) => Ok(Some(messages::read_log_id(&id))),
            Outcome::Conflict(_) => {
                let previous = previous.ok_or_else(|| "a conflict although no entry comes before".to_owned())?;
                Err(StreamAppendError::Conflict(previous))
            }
            Outcome::HigherVote(vote) => {
                let vote = messages::read_ballot(Some(&vote)).map_err(|status| status.message().to_owned())?;
                Err(StreamAppendError::HigherVote(vote))
            }
        };
        if let (Some(vote), Ok(Some(durable))) = (leader, &result) {
            self.network.acknowledged.note(self.target, &vote, durable);
        }
        Ok(result)
    }
}

async fn reached(until: Option<TokioInstant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

async fn answered(
    network: &Network,
    incoming: &mut Streaming<messages::AppendResponse>,
    deadline: Option<TokioInstant>,
) -> Result<messages::AppendResponse, String> {
    let Some(deadline) = deadline else { return std::future::pending().await };
    match timeout_at(deadline, incoming.message()).await {
        Ok(Ok(Some(answer))) => Ok(answer),
        Ok(Ok(None)) => Err("the follower ended the stream of appends".to_owned()),
        Ok(Err(status)) => Err(network.note_failure(&status)),
        Err(_) => Err(late()),
    }
}

fn late() -> String {
    format!("no answer within {APPEND_MS_MAX} ms")
}
