//! Attacks on the port for the other nodes of a cluster with TLS: by a process without a certificate, by a client with
//! one, and by a node that pretends to be another node.

use futures_util::stream;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use super::super::connections::dial;
use super::super::messages::{self, SelfIdentity, peer_client::PeerClient};
use super::*;
use crate::net::TestCerts;

/// Term of the forged messages.
const FORGED_TERM: u64 = 1_000_000;

/// A cluster with TLS, and the certificates of its attackers.
struct Attacked {
    cluster: Cluster,
    certs: TestCerts,
    leader: u64,
    term: u64,
}

impl Attacked {
    async fn start() -> Self {
        let certs = TestCerts::new();
        let tls =
            (1..=3).map(|id| (id, PortTls::for_nodes(&certs.node(id), "harbour", id, false).expect("files"))).collect();
        let cluster = Cluster::start_with(tls, |_| ()).await;
        cluster.propose(1).await;
        let leader = cluster.leader().await;
        let term = cluster.node(leader).watch().borrow().term;
        Self { cluster, certs, leader, term }
    }

    /// A node other than the leader, which the attacks are aimed at.
    fn target(&self) -> u64 {
        (1..=3).find(|node| *node != self.leader).expect("three nodes")
    }

    /// The node that `attacker` is, and the third one, which it pretends to be.
    fn impersonated(&self) -> u64 {
        (1..=3).find(|node| *node != self.leader && *node != self.target()).expect("three nodes")
    }

    /// Returns a connection of the leader's certificate to the target.
    async fn as_node(&self) -> PeerClient<Channel> {
        let (target, from) = (self.target(), &self.cluster.tls[&self.leader]);
        let address = &self.cluster.settings.members[&target].peer;
        PeerClient::new(dial(&from.connector(), (target, address)).await.expect("a node's certificate"))
    }

    /// The header of a message that names the sender, correct in every other respect.
    fn header(&self, sender: u64, target_disk: Option<u128>) -> Option<messages::Header> {
        let RaftSettings { peers_id, .. } = self.cluster.settings;
        let me = SelfIdentity { peers_id, node: sender, disk: u128::from(sender), process: 99 };
        Some(me.header(self.target(), target_disk))
    }

    /// Neither a process without TLS nor a client with a certificate gets a connection.
    async fn only_nodes_connect(&self) {
        let (target, files) = (self.target(), self.certs.client("ci"));
        let address = &self.cluster.settings.members[&target].peer;
        let connected = dial(&Connector::tcp(), (target, address)).await;
        if let Ok(plain) = connected {
            // Plain TCP is accepted, and closed at the first byte.
            let refused = PeerClient::new(plain).vote(self.vote(self.leader, None)).await.expect_err("plain text");
            assert_ne!(refused.code(), Code::Ok, "{refused}");
        }
        assert!(
            PortTls::for_nodes(&files, "harbour", self.leader, false).is_err(),
            "a client's certificate is not a node's"
        );
        let dialled = self.certs.dial_as(&files, address).await;
        assert!(dialled.is_err_and(|why| why.contains("refused the name in")));
    }

    /// The cluster has the same leader and term as before, and every node works.
    async fn unharmed(&self) {
        for (stamp, node) in (2..).zip(1..=3) {
            assert_eq!(self.cluster.node(node).watch().borrow().term, self.term, "term of node {node}");
            self.cluster.propose(stamp).await;
            self.cluster.caught_up(node).await;
        }
        assert_eq!(self.cluster.leader().await, self.leader);
    }

    fn vote(&self, sender: u64, target_disk: Option<u128>) -> messages::VoteRequest {
        messages::VoteRequest {
            header: self.header(sender, target_disk),
            vote: Some(messages::Ballot { term: FORGED_TERM, node: sender, committed: false }),
            last: Some(messages::LogId { term: FORGED_TERM, node: sender, index: FORGED_TERM }),
            pre_vote: false,
            transfer: true,
        }
    }

    fn append(&self, sender: u64, acknowledged: Option<messages::LogId>) -> messages::AppendRequest {
        messages::AppendRequest {
            header: self.header(sender, None),
            vote: Some(messages::Ballot { term: FORGED_TERM, node: sender, committed: true }),
            previous: None,
            entries: Vec::new(),
            committed: None,
            acknowledged,
        }
    }
}

async fn denied<T>(call: impl Future<Output = Result<Response<T>, Status>>) {
    match call.await {
        Ok(_) => panic!("the call was served"),
        Err(status) => assert_eq!(status.code(), Code::PermissionDenied, "{status}"),
    }
}

/// Sends one append, and returns the first answer.
async fn appended(mut client: PeerClient<Channel>, message: messages::AppendRequest) -> Status {
    let mut answers = match client.appends(stream::iter([message])).await {
        Ok(answers) => answers.into_inner(),
        Err(status) => return status,
    };
    match answers.message().await {
        Ok(answer) => panic!("the append was served: {answer:?}"),
        Err(status) => status,
    }
}

/// H-01, X-14: messages that would stop a node, a wrong disk id and an acknowledged entry beyond the log, are refused
/// before their contents matter, unless the node that they name has sent them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_messages_stop_no_node() {
    let attacked = Attacked::start().await;
    attacked.only_nodes_connect().await;
    let other = attacked.impersonated();
    denied(attacked.as_node().await.vote(attacked.vote(other, Some(7)))).await;
    let beyond = messages::LogId { term: attacked.term, node: attacked.leader, index: FORGED_TERM };
    let refused = appended(attacked.as_node().await, attacked.append(other, Some(beyond))).await;
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    attacked.unharmed().await;
}

/// H-02: log entries of a node that is not the owner of the certificate do not raise the term.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_raises_no_term() {
    let attacked = Attacked::start().await;
    attacked.only_nodes_connect().await;
    for sender in [attacked.impersonated(), 4] {
        let refused = appended(attacked.as_node().await, attacked.append(sender, None)).await;
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        denied(attacked.as_node().await.vote(attacked.vote(sender, None))).await;
    }
    attacked.unharmed().await;
}

/// H-03: a client that knows the id by which the nodes recognize each other gets no connection to their port. A node
/// of another cluster with the same authority gets none, either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cluster_id_opens_nothing() {
    let attacked = Attacked::start().await;
    attacked.only_nodes_connect().await;
    let (target, foreign) = (attacked.target(), attacked.certs.node_of("quay", attacked.leader));
    let address = &attacked.cluster.settings.members[&target].peer;
    let dialled = attacked.certs.dial_as(&foreign, address).await;
    assert!(dialled.is_err_and(|why| why.contains("refused the name in")));
    attacked.unharmed().await;
}

/// H-04: a snapshot of another node than the owner of the certificate is refused before any part of it is stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_snapshot_is_refused() {
    let attacked = Attacked::start().await;
    attacked.only_nodes_connect().await;
    let sender = attacked.impersonated();
    let announced = messages::SnapshotAnnouncement {
        header: attacked.header(sender, None),
        vote: Some(messages::Ballot { term: FORGED_TERM, node: sender, committed: true }),
        last: Some(messages::LogId { term: FORGED_TERM, node: sender, index: FORGED_TERM }),
        records: 1,
        digest: vec![5; 16].into(),
        meta: Bytes::new(),
        bytes: u64::MAX,
    };
    let part = messages::SnapshotPart { part: Some(messages::snapshot_part::Part::Announcement(announced)) };
    denied(attacked.as_node().await.install_snapshot(stream::iter([part]))).await;
    attacked.unharmed().await;
}

/// H-05: a call that is forwarded to the leader comes from a node, under the node's own id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forward_needs_a_node() {
    let attacked = Attacked::start().await;
    attacked.only_nodes_connect().await;
    for sender in [attacked.impersonated(), 4] {
        let (header, payload) = (attacked.header(sender, None), Bytes::from_static(b"hello"));
        denied(attacked.as_node().await.forward(messages::ForwardRequest { header, payload })).await;
    }
    let (header, payload) = (attacked.header(attacked.leader, None), Bytes::from_static(b"hello"));
    let own = attacked.as_node().await.forward(messages::ForwardRequest { header, payload }).await;
    assert_eq!(own.expect("the node's own id").into_inner().payload, b"hello"[..]);
    attacked.unharmed().await;
}
