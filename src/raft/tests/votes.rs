//! Tests of votes that were answered before a power cut.

use futures_util::FutureExt as _;
use openraft::storage::RaftLogStorage as _;

use super::super::log_store::LogStore;
use super::super::messages::{self, SelfIdentity, peer_client::PeerClient};
use super::super::types::from_vote;
use super::*;
use crate::storage::{Vote, Wal};

/// The term of the votes, which no election of the test reaches.
const TERM: u64 = 1_000;
/// An answer that arrives within this time did not wait for the disk.
const TOO_EARLY: Duration = Duration::from_millis(200);

impl Cluster {
    /// Requests a vote in [`TERM`] for the candidate, and returns whether it was granted. The request is part of a
    /// transfer of leadership, which needs no wait for the end of a lease.
    fn request_vote(&self, voter: u64, candidate: u64) -> impl Future<Output = bool> + Send + use<> {
        let address = format!("http://{}", self.settings.members[&voter].peer);
        let RaftSettings { peers_id, .. } = self.settings;
        let sender = SelfIdentity { peers_id, node: candidate, disk: u128::from(candidate), process: 0 };
        let request = messages::VoteRequest {
            header: Some(sender.header(voter, None)),
            vote: Some(messages::Ballot { term: TERM, node: candidate, committed: false }),
            last: self.storages[&voter].0.state().last.as_ref().map(messages::stored_log_id),
            pre_vote: false,
            transfer: true,
        };
        async move {
            let mut client = PeerClient::connect(address).await.unwrap();
            client.vote(request).await.unwrap().into_inner().granted
        }
    }
}

/// A node votes, its answer leaves, and its power is cut. After the next start it does not vote for another candidate
/// in the same term, because its vote was durable before the answer left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vote_survives_a_power_cut() {
    let mut cluster = Cluster::start(|_| ()).await;
    cluster.propose(1).await;
    let leader = cluster.leader().await;
    let voter = leader % 3 + 1;
    let third = 6 - leader - voter;
    cluster.caught_up(voter).await;
    // The leader is killed last, so that no other node is elected.
    cluster.kill(third);
    cluster.kill(leader);
    let (wal, _) = cluster.storages[&voter].clone();
    wal.hold_syncs();
    // In one term, Raft lets a voter change to a candidate with a higher id. So the first vote is for the higher id,
    // and a later one for the lower id would be a fault.
    let mut first = tokio::spawn(cluster.request_vote(voter, leader.max(third)));
    soon(async {
        while wal.state().vote.is_none_or(|vote| vote.term < TERM) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    let granted = match tokio::time::timeout(TOO_EARLY, &mut first).await {
        Ok(too_early) => too_early,
        Err(_) => {
            wal.release_syncs();
            soon(first).await
        }
    };
    assert!(granted.unwrap(), "the first vote was refused");
    cluster.kill(voter);
    wal.crash();
    cluster.restart(voter).await;
    assert!(!soon(cluster.request_vote(voter, leader.min(third))).await, "it voted twice in a term");
}

/// A vote is durable before it counts. The end of the election that it decided is not written, and the vote of another
/// leader is.
#[tokio::test]
async fn an_election_is_written_once() {
    let wal = MemoryWal::default();
    let mut log = LogStore::new(Arc::new(wal.clone()));
    let vote = |node, committed| from_vote(Vote { term: 3, node, committed });
    log.save_vote(&vote(1, false)).await.unwrap();
    wal.hold_syncs();
    assert!(log.save_vote(&vote(1, true)).now_or_never().is_some(), "it waits for a sync");
    assert_eq!(openraft::RaftLogReader::read_vote(&mut log).await.unwrap(), Some(vote(1, true)));
    assert!(log.save_vote(&vote(2, true)).now_or_never().is_none(), "it is not written");
    wal.crash();
    assert_eq!(wal.state().vote, Some(Vote { term: 3, node: 1, committed: false }));
}
