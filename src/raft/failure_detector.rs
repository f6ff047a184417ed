//! Detects that the process of the leader is gone, and lets the next leader request votes at once.
//!
//! The election timeout must be long, because a silent leader may only be slow. But the kernel closes all sockets of a
//! process that ends, and refuses further connections to it. So when the stream of entries from the leader ends, its
//! follower dials the leader again. A refusal, or an answer from a process that does not lead, proves that the leader
//! is gone. Silence proves nothing: then the election timeout decides.
//!
//! One node may be wrong, for example behind a firewall that rejects connections, and an election interrupts a healthy
//! leader even if it fails. So a follower also asks the other voters, each of which dials for itself. Only if a quorum
//! of voters finds the leader gone, the voter with the longest log requests votes. If several did, they could take the
//! votes from each other.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::{join_all, try_join};
use openraft::async_runtime::watch::WatchReceiver;
use openraft::network::RPCOption;
use openraft::raft::TransferLeaderRequest;
use openraft::{Raft, RaftNetworkFactory, RaftNetworkV2};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::connections::{Purpose, dial};
use super::messages;
use super::peer::{Network, call};
use super::state_machine::StateMachine;
use super::types::{RaftLogId, RaftVote, StoredMembership, Types, from_log_id};
use crate::faults::{self, Fault};
use crate::limits::{ENDED_STREAMS_MAX, PROBE_MS_MAX, PROBE_PAUSE_MS, PROBE_VOTERS_MS_MAX, REPLACE_ATTEMPTS_MAX};

/// A leader in its term, and the process that leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Leadership {
    pub(super) vote: RaftVote,
    pub(super) process: u128,
}

impl Leadership {
    fn node(&self) -> u64 {
        self.vote.leader_id.node_id
    }
}

/// What a probe of the leader found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finding {
    /// The address refuses connections, or another process answers there, or the process does not lead.
    Gone,
    /// The process answers, and it leads.
    Alive,
    /// There was no answer in time.
    Silent,
}

/// Reports the end of a stream of entries to the detector when it is dropped.
pub(super) struct StreamEnd {
    ended: mpsc::Sender<Leadership>,
    /// The leader that sent the last message; `None` before the first.
    pub(super) leader: Option<Leadership>,
}

impl Drop for StreamEnd {
    fn drop(&mut self) {
        // If the queue is full, the detector is busy with streams of the same leader.
        let _ = self.leader.map(|leader| self.ended.try_send(leader));
    }
}

/// Probes the leader after the end of a stream, and for other voters.
#[derive(Clone)]
pub(super) struct FailureDetector {
    raft: Raft<Types, StateMachine>,
    network: Network,
    ended: mpsc::Sender<Leadership>,
}

impl FailureDetector {
    /// Creates the detector of a node and the queue that [`run`](Self::run) reads.
    pub(super) fn new(raft: Raft<Types, StateMachine>, network: Network) -> (Self, mpsc::Receiver<Leadership>) {
        let (ended, queue) = mpsc::channel(ENDED_STREAMS_MAX);
        (Self { raft, network, ended }, queue)
    }

    /// Returns the guard for a new stream of entries from a leader.
    pub(super) fn stream(&self) -> StreamEnd {
        StreamEnd { ended: self.ended.clone(), leader: None }
    }

    /// Checks the leader after each stream that ended, until the node stops.
    pub(super) async fn run(self, mut ended: mpsc::Receiver<Leadership>) {
        while let Some(leader) = ended.recv().await {
            // The requests of one attempt may be lost with connections that end together with the leader.
            for _ in 0..REPLACE_ATTEMPTS_MAX {
                if !self.replace(&leader).await {
                    break;
                }
                sleep(Duration::from_millis(PROBE_MS_MAX)).await;
            }
        }
    }

    /// Lets the next leader stand if this one is gone and a quorum agrees. Returns whether this node followed the
    /// leader and found it gone.
    async fn replace(&self, leader: &Leadership) -> bool {
        if self.follows(leader).await.is_none() {
            return false;
        }
        let probed = async {
            let found = self.probe(leader).await;
            tracing::debug!(node = self.me(), leader = leader.node(), ?found, "the leader's stream ended");
            if found == Finding::Gone { Ok(()) } else { Err(()) }
        };
        // The other voters probe meanwhile. Their answers count only if this node finds the leader gone.
        let asked = async { Ok(self.successor(leader).await) };
        let Ok(((), successor)) = try_join(probed, asked).await else { return false };
        if let Some((next, last)) = successor {
            tracing::info!(node = self.me(), leader = leader.node(), next, "the leader's process is gone");
            self.stand(next, leader, last).await;
        }
        true
    }

    fn me(&self) -> u64 {
        self.network.shared.me.node
    }

    fn membership(&self) -> StoredMembership {
        StoredMembership::clone(&self.raft.metrics().borrow_watched().membership_config)
    }

    /// Returns the end of this node's log if the node still follows this leader. Raft's core answers, after everything
    /// that it received before.
    async fn follows(&self, leader: &Leadership) -> Option<Option<RaftLogId>> {
        let vote = leader.vote;
        let follows = self.raft.with_raft_state(move |state| *state.vote_ref() == vote).await;
        let log = self.network.shared.wal.state();
        matches!(follows, Ok(true)).then(|| log.last.max(log.purged).map(from_log_id))
    }

    /// Probes the leader for another voter. Returns the end of this node's log if the leader is gone.
    pub(super) async fn probe_for(&self, leader: &Leadership) -> Option<Option<RaftLogId>> {
        self.follows(leader).await?;
        if self.probe(leader).await != Finding::Gone {
            return None;
        }
        self.follows(leader).await
    }

    /// Dials the leader on a new connection, and asks it whether it leads. Dials again if the connection fails in any
    /// other way than by a refusal, because the process may be about to end.
    async fn probe(&self, leader: &Leadership) -> Finding {
        let asked = async {
            loop {
                match self.ask(leader).await {
                    Some(finding) => return finding,
                    None => sleep(Duration::from_millis(PROBE_PAUSE_MS)).await,
                }
            }
        };
        timeout(Duration::from_millis(PROBE_MS_MAX), asked).await.unwrap_or(Finding::Silent)
    }

    /// One attempt of a probe; `None` if it had no result.
    async fn ask(&self, leader: &Leadership) -> Option<Finding> {
        let node = leader.node();
        let address = self.membership().get_node(&node)?.peer.clone();
        let mut client = match dial(&self.network.links.connector, (node, &address)).await {
            Ok(channel) => messages::peer_client::PeerClient::new(channel),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => return Some(Finding::Gone),
            Err(_) => return None,
        };
        let request = messages::ProbeRequest {
            header: Some(self.network.header(node)),
            leader: Some(messages::ballot(&leader.vote)),
        };
        let answer = client.probe(request).await.ok()?.into_inner();
        let same = messages::read_u128(&answer.process) == Some(leader.process);
        let alive = (same && answer.leads) || faults::on(Fault::AnyProcessLeads);
        Some(if alive && !faults::on(Fault::LiveLeaderGone) { Finding::Alive } else { Finding::Gone })
    }

    /// Answers a probe: whether this process leads with this vote.
    pub(super) async fn leads(&self, vote: RaftVote) -> bool {
        let leads = self.raft.with_raft_state(move |state| {
            *state.vote_ref() == vote && state.server_state == openraft::ServerState::Leader
        });
        self.network.shared.fault.borrow().is_none() && leads.await.unwrap_or(false)
    }

    /// Asks the other voters to probe the leader. This node counts as one that finds it gone. If a quorum of voters
    /// does, returns the voter among them with the longest log, and the end of that log. Of equal logs, that of the
    /// higher id counts.
    async fn successor(&self, leader: &Leadership) -> Option<(u64, Option<RaftLogId>)> {
        let membership = self.membership();
        let others = membership.voter_ids().filter(|voter| ![self.me(), leader.node()].contains(voter));
        let asked = others.map(|voter| {
            let address = membership.get_node(&voter).map(|member| member.peer.clone());
            async move { Some((voter, self.ask_voter(voter, &address?, leader).await?)) }
        });
        let mut gone: BTreeMap<u64, Option<RaftLogId>> = join_all(asked).await.into_iter().flatten().collect();
        gone.insert(self.me(), self.follows(leader).await?);
        let quorum = membership.membership().get_joint_config().iter().all(|voters| {
            voters.contains(&self.me()) && voters.len() < 2 * voters.iter().filter(|id| gone.contains_key(id)).count()
        });
        if faults::on(Fault::EachStands) || (faults::on(Fault::OneObserver) && !quorum) {
            return gone.get(&self.me()).map(|last| (self.me(), *last));
        }
        let longest = gone.into_iter().max_by_key(|(voter, last)| (*last, *voter));
        longest.filter(|_| quorum)
    }

    /// Asks one voter to probe the leader. Returns the end of its log if it finds the leader gone, and `None` if it
    /// does not or does not answer.
    async fn ask_voter(&self, voter: u64, address: &str, leader: &Leadership) -> Option<Option<RaftLogId>> {
        let message = messages::ProbeLeaderRequest {
            header: Some(self.network.header(voter)),
            leader: Some(messages::ballot(&leader.vote)),
            process: messages::bytes_of(leader.process),
        };
        let deadline = Duration::from_millis(PROBE_VOTERS_MS_MAX);
        let asked = async {
            loop {
                let message = message.clone();
                let run = |mut client: messages::peer_client::PeerClient<_>| async move {
                    client.probe_leader(message).await
                };
                match call(&self.network, (voter, address, Purpose::Vote), deadline, run).await {
                    Ok(answer) => return answer,
                    // The connection to the voter may have ended together with that to the leader.
                    Err(_) => sleep(Duration::from_millis(PROBE_PAUSE_MS)).await,
                }
            }
        };
        let answer = timeout(deadline, asked).await.ok()?;
        answer.gone.then(|| answer.last.as_ref().map(messages::read_log_id))
    }

    /// Lets the next leader request votes as if the old leader had transferred its leadership, which needs no wait for
    /// the election timeout. Does nothing if that node does not follow the old leader any more.
    async fn stand(&self, next: u64, leader: &Leadership, last: Option<RaftLogId>) {
        let request = TransferLeaderRequest::new(leader.vote, next, last);
        if next == self.me() {
            // An error says that Raft has stopped, or that the node follows another leader by now.
            let _ = self.raft.handle_transfer_leader(request).await;
            return;
        }
        let Some(member) = self.membership().get_node(&next).cloned() else { return };
        let mut peer = self.network.clone().new_client(next, &member).await;
        let deadline = RPCOption::new(Duration::from_millis(PROBE_MS_MAX));
        // If that node cannot be reached, the next attempt or the election timeout elects the next leader.
        let _ = peer.transfer_leader(request, deadline).await;
    }
}
