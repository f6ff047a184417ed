//! Raft's calls to the other nodes. Every call has a deadline, and a failed call drops its connection.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use openraft::base::{BoxFuture, BoxStream};
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{Backoff, RPCOption};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest, TransferLeaderResponse,
    VoteRequest, VoteResponse,
};
use openraft::{OptionalSend, RaftNetworkFactory, RaftNetworkV2};
use tokio::sync::watch;

use super::append_stream::{AppendResult, AppendStream};
use super::blocking::on_files;
use super::connections::{Purpose, pause};
use super::messages;
use super::peer::{Network, Peer, call, call_until};
use super::types::{RaftVote, Snapshot, SnapshotData, Types};
use crate::limits::{
    APPEND_PAUSE_MS_MAX, APPEND_PAUSES_SHORT, GUESS_ENTRIES, INSTALL_SNAPSHOT_BYTES_A_MS, INSTALL_SNAPSHOT_MS_MAX,
    PEER_MESSAGE_BYTES_MAX, SNAPSHOT_CHUNK_BYTES, SNAPSHOT_STALL_MS_MAX,
};
use crate::model::Member;
use crate::storage::SnapshotFile;

/// The stream of answers to a stream of append requests.
type Answers<'s> = BoxStream<'s, Result<AppendResult, RPCError<Types>>>;

impl RaftNetworkFactory<Types> for Network {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, member: &Member) -> Peer {
        Peer { network: self.clone(), target, address: member.peer.clone(), guessed: None }
    }
}

fn unreachable(error: impl ToString) -> Unreachable<Types> {
    Unreachable::from_string(error)
}

/// Completes when the transfer of a snapshot of this many bytes makes no progress, and returns the reason: either the
/// receiver accepted no part of it for too long, or it accepted all parts and did not answer.
pub(super) async fn stalled(mut moves: watch::Receiver<()>, bytes: u64) -> String {
    let limit = Duration::from_millis(SNAPSHOT_STALL_MS_MAX);
    loop {
        match tokio::time::timeout(limit, moves.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => break,
            Err(_) => return format!("it took no part of the snapshot within {SNAPSHOT_STALL_MS_MAX} ms"),
        }
    }
    let install_ms = INSTALL_SNAPSHOT_MS_MAX + bytes / INSTALL_SNAPSHOT_BYTES_A_MS;
    tokio::time::sleep(Duration::from_millis(install_ms)).await;
    format!("it did not install the snapshot within {install_ms} ms")
}

impl Peer {
    /// Whether this request is a guess of openraft that need not be sent, because the follower is known to have the
    /// entry before it and many later entries.
    ///
    /// A new leader of openraft finds the end of a follower's log by binary search. This takes about a dozen
    /// consecutive round trips, and no entry is committed before the last one. The follower's vote has already reported
    /// where its log ends, so the first guesses can be answered here. Such an answer says only that the position
    /// matches. It does not say that the follower received the entries, and it does not count as a sign that the
    /// follower is alive.
    ///
    /// Guesses within [`GUESS_ENTRIES`] of the end are sent. A guess that was already answered here is sent, too.
    fn guesses_well(&mut self, request: &AppendEntriesRequest<Types>) -> bool {
        let Some(before) = request.prev_log_id else { return false };
        let known = self.network.acknowledged.of(self.target, &request.vote);
        let well = self.guessed < Some(before)
            && !request.entries.is_empty()
            && known.is_some_and(|end| before.index + GUESS_ENTRIES < end.index);
        if well {
            self.guessed = Some(before);
        }
        well
    }

    async fn ask_vote(
        &self,
        request: VoteRequest<Types>,
        pre_vote: bool,
        deadline: Duration,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        let message = messages::VoteRequest {
            header: Some(self.header()),
            vote: Some(messages::ballot(&request.vote)),
            last: request.last_log_id.as_ref().map(messages::log_id),
            pre_vote,
            transfer: request.leadership_transfer,
        };
        let run = |mut client: messages::peer_client::PeerClient<_>| async move { client.vote(message).await };
        let answer = call(&self.network, self.at(Purpose::Vote), deadline, run).await.map_err(unreachable)?;
        let vote = messages::read_ballot(answer.vote.as_ref()).map_err(|status| unreachable(status.message()))?;
        let last = answer.last.as_ref().map(messages::read_log_id);
        if let (Some(theirs), Some(ours)) = (&last, &request.last_log_id)
            && (answer.granted && !pre_vote)
        {
            self.network.acknowledged.voted(self.target, &request.vote, theirs, ours);
        }
        Ok(VoteResponse::new(vote, last, answer.granted))
    }

    async fn send_snapshot(&self, vote: RaftVote, file: SnapshotFile) -> io::Result<RaftVote> {
        let bytes = file.size_bytes();
        let announcement = messages::announcement(self.header(), &vote, file.head(), bytes);
        let (sender, receiver) = tokio::sync::mpsc::channel(2);
        let (moved, moves) = watch::channel(());
        let shared = Arc::clone(&self.network.shared);
        // Ends with the file, or as soon as the receiver is dropped.
        let reading = tokio::spawn(async move {
            let mut part = Some(messages::snapshot_part::Part::Announcement(announcement));
            let mut chunks = file.chunks(SNAPSHOT_CHUNK_BYTES);
            while part.is_some() && sender.send(messages::SnapshotPart { part: part.take() }).await.is_ok() {
                moved.send_replace(());
                let (next, rest) = on_files(&*shared.store, move || (chunks.next(), chunks)).await?;
                chunks = rest;
                part = next.transpose()?.map(messages::snapshot_part::Part::Chunk);
            }
            io::Result::Ok(())
        });
        let parts = tokio_stream::wrappers::ReceiverStream::new(receiver);
        let run =
            |mut client: messages::peer_client::PeerClient<_>| async move { client.install_snapshot(parts).await };
        let answer = call_until(&self.network, self.at(Purpose::Snapshot), stalled(moves, bytes), run).await;
        // If the file cannot be read the stream ends early, and the file's error is clearer than the receiver's.
        reading.await.map_err(io::Error::other)??;
        messages::read_ballot(answer?.vote.as_ref()).map_err(|status| io::Error::other(status.message().to_owned()))
    }
}

impl RaftNetworkV2<Types> for Peer {
    type SnapshotData = SnapshotData;

    async fn append_entries(
        &mut self,
        _request: AppendEntriesRequest<Types>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        // openraft requires this function and never calls it: entries and heartbeats use `stream_append`.
        Err(unreachable("entries are sent on a stream").into())
    }

    fn stream_append<'s, S>(
        &'s mut self,
        mut input: S,
        _option: RPCOption,
    ) -> BoxFuture<'s, Result<Answers<'s>, RPCError<Types>>>
    where
        S: Stream<Item = AppendEntriesRequest<Types>> + OptionalSend + Unpin + 'static,
    {
        Box::pin(async move {
            // openraft has just chosen entries and no snapshot.
            let snapshot = self.network.shared.raft_snapshot.load(Ordering::Relaxed);
            // Waits for the first request before it opens the connection, because openraft pauses at this point after a
            // failure. If this function failed before it asked for a request, openraft would call it again immediately,
            // in a loop, while the other node is down.
            let Some(first) = input.next().await else {
                return Ok(Box::pin(futures_util::stream::empty()) as Answers<'s>);
            };
            if self.guesses_well(&first) {
                let matching = first.prev_log_id;
                return Ok(Box::pin(futures_util::stream::once(async move { Ok(Ok(matching)) })) as Answers<'s>);
            }
            let (target, address) = (self.target, self.address.as_str());
            let failed = move |why: String| RPCError::from(unreachable(format!("node {target} at {address}: {why}")));
            let pipeline = AppendStream::open(self, snapshot, first, input).await.map_err(failed)?;
            let answers = futures_util::stream::unfold(Some(pipeline), move |pipeline| async move {
                let (answer, pipeline) = pipeline?.next().await?;
                Some((answer.map_err(failed), pipeline))
            });
            Ok(Box::pin(answers) as Answers<'s>)
        })
    }

    async fn vote(
        &mut self,
        request: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.ask_vote(request, false, option.hard_ttl()).await
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        self.ask_vote(request, true, option.hard_ttl()).await
    }

    async fn full_snapshot(
        &mut self,
        vote: RaftVote,
        snapshot: Snapshot,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let SnapshotData::File(file) = snapshot.snapshot else {
            return Err(unreachable("only a finished snapshot can be sent").into());
        };
        tokio::select! {
            closed = cancel => Err(closed.into()),
            sent = self.send_snapshot(vote, file) => {
                Ok(SnapshotResponse::new(sent.map_err(unreachable)?))
            }
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Types>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        let message = messages::TransferRequest {
            header: Some(self.header()),
            leader: Some(messages::ballot(request.from_leader())),
            to: *request.to_node_id(),
            last: request.last_log_id().map(messages::log_id),
        };
        let run = |mut client: messages::peer_client::PeerClient<_>| async move { client.transfer(message).await };
        let answer = call(&self.network, self.at(Purpose::Vote), option.hard_ttl(), run).await.map_err(unreachable)?;
        if answer.refused.is_empty() { Ok(Ok(())) } else { Err(unreachable(answer.refused).into()) }
    }

    fn backoff(&self) -> Option<Backoff> {
        // A node that was restarted gets entries soon: a transfer of leadership to it waits for them.
        let short = |failures| pause(failures).min(Duration::from_millis(APPEND_PAUSE_MS_MAX));
        let soon = (0..APPEND_PAUSES_SHORT).map(short);
        Some(Backoff::new(soon.chain((APPEND_PAUSES_SHORT..).map(pause))))
    }
}

/// Sends a payload that Raft does not interpret to another node.
pub(super) async fn forward(
    network: &Network,
    (target, address): (u64, &str),
    payload: Bytes,
    deadline: Duration,
) -> io::Result<Bytes> {
    if payload.len() > PEER_MESSAGE_BYTES_MAX / 2 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("a call of {} bytes", payload.len())));
    }
    let message = messages::ForwardRequest { header: Some(network.header(target)), payload };
    let run = |mut client: messages::peer_client::PeerClient<_>| async move {
        let mut request = tonic::Request::new(message);
        request.set_timeout(deadline);
        client.forward(request).await
    };
    Ok(call(network, (target, address, Purpose::Forward), deadline, run).await?.payload)
}
