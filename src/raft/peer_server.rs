//! The calls that other nodes make to this one. The header of a call is checked before its contents.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use openraft::Raft;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::raft::{StreamAppendError, TransferLeaderRequest, VoteRequest};
use tokio::time::Instant as TokioInstant;
use tonic::{Request, Response, Status, Streaming};

use super::blocking::on_files;
use super::disk_ids::wiped;
use super::error::removed;
use super::failure_detector::{FailureDetector, Leadership};
use super::hooks::Sender;
use super::lost_tail;
use super::messages::append_response::Result as Appended;
use super::messages::peer_server::{Peer, PeerServer};
use super::messages::{self, BadHeader};
use super::state_machine::{Shared, StateMachine, meta_of};
use super::types::{Snapshot, SnapshotData, Types, to_vote};
use crate::limits::{ANSWER_BYTES_MAX, PEER_MESSAGE_BYTES_MAX, SNAPSHOT_STALL_MS_MAX};
use crate::net::{CertificateName, ConnectionInfo, Role};
use crate::storage::{Head, LogId, ReceivedSnapshot, StateStore};

/// The server of the calls between nodes.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) raft: Raft<Types, StateMachine>,
    pub(super) shared: Arc<Shared>,
    pub(super) detector: FailureDetector,
}

fn stopped(error: impl std::fmt::Display) -> Status {
    Status::unavailable(format!("this node's Raft has stopped: {error}"))
}

impl Server {
    /// The tonic service with its limits.
    pub(super) fn service(self) -> PeerServer<Self> {
        PeerServer::new(self)
            .max_decoding_message_size(PEER_MESSAGE_BYTES_MAX)
            .max_encoding_message_size(ANSWER_BYTES_MAX)
    }

    /// Returns the sender if it belongs to this cluster. A node that must stop answers no call: it neither votes nor
    /// counts as reachable.
    fn admit(&self, proven: Option<&CertificateName>, header: Option<&messages::Header>) -> Result<u64, Status> {
        if let Some(why) = self.shared.fault.borrow().as_ref() {
            return Err(stopped(why));
        }
        self.identify(proven, header)
    }

    /// Returns the sender if it belongs to this cluster. On a connection with TLS, the sender must be the node that the
    /// certificate names. This comes first, because the rest of the header can stop this node.
    fn identify(&self, proven: Option<&CertificateName>, header: Option<&messages::Header>) -> Result<u64, Status> {
        if let (Some(name), Some(header)) = (proven, header)
            && name.role != Role::Node(header.sender)
        {
            let why = format!("a call of node {} on a connection of {name}", header.sender);
            return Err(Status::permission_denied(why));
        }
        let me = &self.shared.me;
        me.check(header, &self.shared.disks).map_err(|bad| match bad {
            BadHeader::NotForUs(why) => Status::failed_precondition(why),
            BadHeader::SenderWiped(sender) => Status::data_loss(wiped(sender)),
            BadHeader::ReceiverWiped => {
                self.shared.fail(&wiped(me.node));
                Status::failed_precondition(wiped(me.node))
            }
        })
    }

    /// Stops this node if its log lacks what it acknowledged to the leader that sent this request.
    fn check_tail(&self, request: &messages::AppendRequest) -> Result<(), Status> {
        let Some(acknowledged) = request.acknowledged.as_ref().map(messages::read_stored_log_id) else { return Ok(()) };
        let vote = to_vote(&messages::read_ballot(request.vote.as_ref())?);
        let log = self.shared.wal.state();
        if !lost_tail::is_short(&log, vote, acknowledged) {
            return Ok(());
        }
        let why = lost_tail::short(self.shared.me.node, &log, acknowledged);
        self.shared.fail(&why);
        Err(stopped(why))
    }

    /// Refuses a sender that was a member and no longer is one. Only the applied state decides. The state has the disk
    /// id of each node that was ever a member, and ids of removed nodes are never used again. Raft's own view of the
    /// membership may be older, or contain uncommitted changes.
    fn check_not_removed(&self, sender: u64) -> Result<(), Status> {
        let membership = Arc::clone(&self.raft.metrics().borrow_watched().membership_config);
        let known = membership.get_node(&sender).is_some() || self.shared.disks.of(sender).is_none();
        if known || !self.shared.core().has_lost(sender) {
            return Ok(());
        }
        Err(Status::data_loss(removed(sender)))
    }

    /// Refuses a sender that is not a member, because only a member may raise the term. This check does not apply to
    /// log entries: a node that lags may know an old membership and learns the new one from the entries, and a quorum
    /// elected their sender. For votes, see [`check_candidate`](Self::check_candidate).
    fn check_member(&self, sender: u64) -> Result<(), Status> {
        let membership = self.raft.metrics().borrow_watched().membership_config.clone();
        let pristine = membership.nodes().next().is_none();
        if pristine || membership.get_node(&sender).is_some() {
            return Ok(());
        }
        self.check_not_removed(sender)?;
        Err(Status::permission_denied(format!("node {sender} is not a member of this cluster")))
    }

    /// Refuses a candidate that is not a member, unless its log, which ends at `last`, does not end before this node's
    /// log. In that case this node may lack the entry that made the candidate a member, and the cluster may need this
    /// node's vote. Raft itself adopts the term of a candidate under the same condition.
    fn check_candidate(&self, sender: u64, last: Option<LogId>) -> Result<(), Status> {
        let log = self.shared.wal.state();
        if log.last.max(log.purged) <= last {
            return self.check_not_removed(sender);
        }
        self.check_member(sender)
    }
}

/// Returns the name that the sender of a call has proven.
fn proven<T>(request: &Request<T>) -> Option<Arc<CertificateName>> {
    request.extensions().get::<ConnectionInfo>()?.proven.clone()
}

/// Receives a file of this many bytes. Fails if no part arrives within [`SNAPSHOT_STALL_MS_MAX`] milliseconds.
pub(super) async fn receive(
    store: &dyn StateStore,
    (announced, bytes): (Head, u64),
    mut parts: impl Stream<Item = Result<messages::SnapshotPart, Status>> + Unpin,
) -> Result<ReceivedSnapshot, Status> {
    let failed = |error: io::Error| Status::aborted(format!("the snapshot could not be received: {error}"));
    let mut writer = store.receive().map_err(failed)?;
    let mut left = bytes;
    while let Some(part) = in_time(parts.next()).await? {
        let Some(messages::snapshot_part::Part::Chunk(chunk)) = part?.part else {
            return Err(Status::invalid_argument("a snapshot with a part that is no chunk"));
        };
        let Some(rest) = left.checked_sub(chunk.len() as u64) else {
            return Err(Status::invalid_argument(format!("a snapshot of more than the announced {bytes} bytes")));
        };
        left = rest;
        let write = move || writer.write(&chunk).map(|()| writer);
        writer = on_files(store, write).await.flatten().map_err(failed)?;
    }
    let received = on_files(store, move || writer.finish()).await.flatten().map_err(failed)?;
    if *received.head() != announced {
        return Err(Status::invalid_argument("the snapshot's own head is not the one that was announced"));
    }
    Ok(received)
}

/// Waits for the next part of a snapshot, with a deadline.
async fn in_time<T>(part: impl Future<Output = T>) -> Result<T, Status> {
    let limit = Duration::from_millis(SNAPSHOT_STALL_MS_MAX);
    tokio::time::timeout(limit, part).await.map_err(|_| {
        Status::deadline_exceeded(format!("no part of the snapshot came within {SNAPSHOT_STALL_MS_MAX} ms"))
    })
}

#[tonic::async_trait]
impl Peer for Server {
    type AppendsStream = Pin<Box<dyn Stream<Item = Result<messages::AppendResponse, Status>> + Send>>;

    async fn appends(
        &self,
        request: Request<Streaming<messages::AppendRequest>>,
    ) -> Result<Response<Self::AppendsStream>, Status> {
        let (server, refused, proven) = (self.clone(), Arc::new(OnceLock::new()), proven(&request));
        let refusal = Arc::clone(&refused);
        let serves = Arc::new(AtomicBool::new(false));
        let served = Arc::clone(&serves);
        // The end of the messages is an item, too: a stream that the leader ended is no sign that the leader is gone.
        let messages = request.into_inner().map(Some).chain(futures_util::stream::once(std::future::ready(None)));
        // The first message that is refused ends the stream, because later messages would leave a gap.
        let appends = messages.scan(self.detector.stream(), move |end, message| {
            let Some(message) = message else {
                end.leader = None;
                return std::future::ready(None);
            };
            let checked = message.and_then(|message| {
                let sender = server.admit(proven.as_deref(), message.header.as_ref())?;
                if end.leader.is_none() {
                    server.check_not_removed(sender)?;
                }
                server.check_tail(&message)?;
                let process = messages::process(message.header.as_ref())?;
                let append = messages::read_append(message)?;
                // A leader that has committed nothing of its term has served no caller yet.
                let term = append.vote.leader_id.term;
                serves.store(append.leader_commit.is_some_and(|id| id.leader_id.term == term), Ordering::Relaxed);
                end.leader = Some(Leadership { vote: append.vote, process });
                Ok(append)
            });
            std::future::ready(checked.map_err(|status| refusal.set(status)).ok())
        });
        let shared = Arc::clone(&self.shared);
        let answers = self.raft.stream_append(appends).map(move |answer| {
            let answer = answer.map_err(stopped)?;
            if answer.is_ok() && served.load(Ordering::Relaxed) {
                shared.had_leader(TokioInstant::now());
            }
            let result = match answer {
                Ok(Some(id)) => Appended::Partly(messages::log_id(&id)),
                Ok(None) => Appended::Accepted(messages::Accepted {}),
                Err(StreamAppendError::Conflict(_)) => Appended::Conflict(messages::Conflict {}),
                Err(StreamAppendError::HigherVote(vote)) => Appended::HigherVote(messages::ballot(&vote)),
            };
            Ok(messages::AppendResponse { result: Some(result) })
        });
        let last_word = futures_util::stream::once(async move { refused.get().cloned().map(Err) });
        Ok(Response::new(Box::pin(answers.chain(last_word.filter_map(std::future::ready)))))
    }

    async fn vote(&self, request: Request<messages::VoteRequest>) -> Result<Response<messages::VoteResponse>, Status> {
        let (proven, request) = (proven(&request), request.into_inner());
        let sender = self.admit(proven.as_deref(), request.header.as_ref())?;
        self.check_candidate(sender, request.last.as_ref().map(messages::read_stored_log_id))?;
        let vote = messages::read_ballot(request.vote.as_ref())?;
        let mut message = VoteRequest::new(vote, request.last.as_ref().map(messages::read_log_id));
        message.leadership_transfer = request.transfer;
        let answer = if request.pre_vote { self.raft.pre_vote(message).await } else { self.raft.vote(message).await };
        let answer = answer.map_err(stopped)?;
        // While a snapshot is installed, Raft's log already ends with the snapshot, but the log on disk does not.
        let log = self.shared.wal.state();
        Ok(Response::new(messages::VoteResponse {
            vote: Some(messages::ballot(&answer.vote)),
            granted: answer.vote_granted,
            last: answer
                .last_log_id
                .filter(|last| !answer.vote_granted || lost_tail::reaches(&log, last))
                .as_ref()
                .map(messages::log_id),
        }))
    }

    async fn install_snapshot(
        &self,
        request: Request<Streaming<messages::SnapshotPart>>,
    ) -> Result<Response<messages::SnapshotResponse>, Status> {
        let (proven, mut parts) = (proven(&request), request.into_inner());
        let Some(messages::snapshot_part::Part::Announcement(announced)) =
            in_time(parts.message()).await??.and_then(|part| part.part)
        else {
            return Err(Status::invalid_argument("a snapshot without its announcement"));
        };
        let sender = self.admit(proven.as_deref(), announced.header.as_ref())?;
        // Like log entries, a snapshot may come from a leader that joined after this node's last entry. This node would
        // never learn that its sender is a member: the entries before the snapshot are gone.
        self.check_not_removed(sender)?;
        let vote = messages::read_ballot(announced.vote.as_ref())?;
        let head = messages::read_head(&announced)?;
        let meta = meta_of(&head).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let _receiving = (self.shared.receiving.try_lock())
            .map_err(|_| Status::resource_exhausted("this node receives another snapshot already"))?;
        let received = receive(&*self.shared.store, (head, announced.bytes), parts).await?;
        let snapshot = Snapshot { meta, snapshot: SnapshotData::Received(received) };
        let answer = self.raft.install_full_snapshot(vote, snapshot).await.map_err(stopped)?;
        Ok(Response::new(messages::SnapshotResponse { vote: Some(messages::ballot(&answer.vote)) }))
    }

    async fn transfer(
        &self,
        request: Request<messages::TransferRequest>,
    ) -> Result<Response<messages::TransferResponse>, Status> {
        let (proven, request) = (proven(&request), request.into_inner());
        let sender = self.admit(proven.as_deref(), request.header.as_ref())?;
        self.check_member(sender)?;
        let leader = messages::read_ballot(request.leader.as_ref())?;
        let message = TransferLeaderRequest::new(leader, request.to, request.last.as_ref().map(messages::read_log_id));
        let refused = match self.raft.handle_transfer_leader(message).await.map_err(stopped)? {
            Ok(()) => String::new(),
            Err(refusal) => refusal.to_string(),
        };
        Ok(Response::new(messages::TransferResponse { refused }))
    }

    async fn probe(
        &self,
        request: Request<messages::ProbeRequest>,
    ) -> Result<Response<messages::ProbeResponse>, Status> {
        let (proven, request) = (proven(&request), request.into_inner());
        self.identify(proven.as_deref(), request.header.as_ref())?;
        let leads = self.detector.leads(messages::read_ballot(request.leader.as_ref())?).await;
        let process = messages::bytes_of(self.shared.me.process);
        Ok(Response::new(messages::ProbeResponse { process, leads }))
    }

    async fn probe_leader(
        &self,
        request: Request<messages::ProbeLeaderRequest>,
    ) -> Result<Response<messages::ProbeLeaderResponse>, Status> {
        let (proven, request) = (proven(&request), request.into_inner());
        let sender = self.admit(proven.as_deref(), request.header.as_ref())?;
        self.check_member(sender)?;
        let vote = messages::read_ballot(request.leader.as_ref())?;
        let process = messages::read_process(&request.process)?;
        let gone = self.detector.probe_for(&Leadership { vote, process }).await;
        let last = gone.flatten().as_ref().map(messages::log_id);
        Ok(Response::new(messages::ProbeLeaderResponse { gone: gone.is_some(), last }))
    }

    async fn forward(
        &self,
        request: Request<messages::ForwardRequest>,
    ) -> Result<Response<messages::ForwardResponse>, Status> {
        let exposed = request.extensions().get::<ConnectionInfo>().is_none_or(|connection| connection.exposed);
        let (proven, request) = (proven(&request), request.into_inner());
        let node = self.admit(proven.as_deref(), request.header.as_ref())?;
        self.check_member(node)?;
        match self.shared.hooks.forwarded(Sender { node, exposed }, request.payload).await {
            Ok(payload) => Ok(Response::new(messages::ForwardResponse { payload })),
            Err(why) => Err(Status::aborted(why)),
        }
    }
}
