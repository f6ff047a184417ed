//! Tests of three nodes over loopback.

use std::collections::BTreeSet;

use futures_util::FutureExt;
use openraft::async_runtime::watch::WatchReceiver;

use super::super::messages::{self, SelfIdentity};
use super::super::types::{RaftMembership, RaftPayload};
use super::*;
use crate::model::Announcement;

impl Consensus {
    /// Makes only the first half of a change to these voters, as a leader that stops in the middle of it. Returns
    /// whether this node led.
    pub(crate) async fn leave_half_way(&self, planned: BTreeSet<u64>) -> bool {
        let now = self.raft().metrics().borrow_watched().membership_config.clone();
        let nodes = now.nodes().map(|(id, member)| (*id, member.clone())).collect::<BTreeMap<_, _>>();
        let both = RaftMembership::new(vec![now.voter_ids().collect(), planned], nodes).expect("a membership");
        self.raft().append_membership(both, RaftPayload::Blank, []).await.is_ok()
    }
}

/// A cluster elects a leader, applies proposals in the order of submission, and all nodes have the same state.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_elect_and_apply_in_order() {
    let cluster = Cluster::start(|_| ()).await;
    let leader = cluster.leader().await;
    let term = cluster.node(leader).watch().borrow().term;
    let mut submitted = Vec::new();
    for stamp in 1..=20 {
        submitted.push(cluster.node(leader).submit(term, tick(stamp), None).await.unwrap());
    }
    let mut last = 0;
    for one in submitted {
        let reply = one.applied().await.unwrap().commands[0].clone();
        assert!(reply.index > last, "{} after {last}", reply.index);
        last = reply.index;
    }
    cluster.node(leader).read_barrier().await.unwrap();
    for node in 1..=3 {
        cluster.caught_up(node).await;
        assert_eq!(cluster.node(node).machine(|machine| machine.now()), LogTime(20));
    }
    let follower = (1..=3).find(|node| *node != leader).unwrap();
    let refused = propose(cluster.node(follower), tick(99)).await;
    assert_eq!(refused.unwrap_err(), ProposeError::NotSent { leader: Some(leader) });
}

/// A node that was stopped restarts with its state and gets the missing entries from the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_node_catches_up_from_the_log() {
    let mut cluster = Cluster::start(|_| ()).await;
    cluster.propose(1).await;
    let leader = cluster.leader().await;
    cluster.stop(leader).await;
    for stamp in 2..=10 {
        cluster.propose(stamp).await;
    }
    cluster.restart(leader).await;
    cluster.caught_up(leader).await;
    assert_eq!(cluster.node(leader).machine(|machine| machine.now()), LogTime(10));
}

/// A node that stops leaves in doubt what it was asked to append, because its log may have it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_leaves_entries_and_changes_in_doubt() {
    let mut cluster = Cluster::start(|_| ()).await;
    cluster.propose(1).await;
    let leader = cluster.leader().await;
    let others: Vec<_> = (1..=3).filter(|node| *node != leader).collect();
    for other in &others {
        cluster.stop(*other).await;
    }
    let consensus = cluster.node(leader).clone();
    let term = consensus.watch().borrow().term;
    let submitted = consensus.submit(term, tick(2), None).await.unwrap();
    cluster.stop(leader).await;
    assert!(matches!(soon(submitted.applied()).await, Err(ProposeError::Unknown(_))));
    let removed = soon(consensus.change_membership(MembershipChange::RemoveVoter(others[0]))).await;
    assert!(matches!(removed, Err(MembershipError::Propose(ProposeError::Unknown(_)))), "{removed:?}");
}

/// A node whose missing entries were purged on all nodes gets a snapshot and later entries from the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_far_behind_gets_a_snapshot() {
    let mut cluster = Cluster::start(|settings| settings.purge_margin_entries = 0).await;
    cluster.propose(1).await;
    let leader = cluster.leader().await;
    let behind = (1..=3).find(|node| *node != leader).unwrap();
    cluster.stop(behind).await;
    for stamp in 2..=30 {
        cluster.propose(stamp).await;
    }
    let at = cluster.node(leader).watch().borrow().applied;
    cluster.node(leader).snapshot().await.unwrap();
    let (wal, _) = cluster.storages[&leader].clone();
    soon(async {
        while crate::storage::Wal::state(&wal).purged.map(|id| id.index) < at {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    cluster.restart(behind).await;
    cluster.propose(31).await;
    cluster.caught_up(behind).await;
    assert_eq!(cluster.node(behind).machine(|machine| machine.now()), LogTime(31));
    assert!(cluster.node(behind).snapshot_bytes().is_some(), "it received a snapshot");
}

/// A transfer makes the named follower the leader, and the cluster accepts entries at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_is_transferred() {
    let cluster = Cluster::start(|_| ()).await;
    cluster.propose(1).await;
    let leader = cluster.leader().await;
    let to = (1..=3).find(|node| *node != leader).unwrap();
    let mut views = cluster.node(leader).watch();
    soon(views.wait_for(|view| view.can_take_over(to, 0, Duration::from_millis(100)))).await.unwrap();
    cluster.node(leader).transfer(to).await.unwrap();
    soon(cluster.node(to).watch().wait_for(|view| view.own_term_applied)).await.unwrap();
    cluster.propose(2).await;
    let refused = cluster.node(leader).transfer(to).await.unwrap_err();
    assert_eq!(refused, ProposeError::NotSent { leader: Some(to) });
}

/// A new leader knows from the votes where the logs of its followers end. Of the guesses with which openraft finds
/// this, which have eight entries each, it sends only the last ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_leader_sends_few_guesses() {
    let cluster = Cluster::start(|_| ()).await;
    let leader = cluster.leader().await;
    let large = |stamp| {
        let entry = tick(stamp);
        Entry { commands: vec![entry.commands[0].clone(); 100], ..entry }
    };
    let before = cluster.lossy.bytes();
    for stamp in 1..=1_000 {
        propose(cluster.node(leader), large(stamp)).await.unwrap();
    }
    for node in 1..=3 {
        cluster.caught_up(node).await;
    }
    let an_entry = (cluster.lossy.bytes() - before) / 2_000;
    let to = leader % 3 + 1;
    let mut views = cluster.node(leader).watch();
    soon(views.wait_for(|view| view.can_take_over(to, 0, Duration::from_millis(100)))).await.unwrap();
    let before = cluster.lossy.bytes();
    cluster.node(leader).transfer(to).await.unwrap();
    cluster.propose(1_001).await;
    for node in 1..=3 {
        cluster.caught_up(node).await;
    }
    let entries = (cluster.lossy.bytes() - before) / an_entry;
    // openraft alone halves a thousand entries six times, and covers the rest in two or three steps.
    let (steps, followers, entries_each) = (4, 2, 8);
    assert!(entries < steps * followers * entries_each, "as many bytes as {entries} entries have");
}

/// The target of a transfer becomes unreachable when the transfer begins. Raft never cancels the transfer, so the old
/// leader accepts no more entries. It also sends no heartbeats, so the remaining follower is elected with the old
/// leader's vote. The old leader can lead again later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_transfer_ends_with_an_election() {
    let cluster = Cluster::start(|_| ()).await;
    cluster.propose(1).await;
    let leader = cluster.leader().await;
    let [to, other] = [1, 2, 3].into_iter().filter(|node| *node != leader).collect::<Vec<_>>()[..] else {
        panic!("three nodes")
    };
    let begun = |cluster: &Cluster| {
        let old = cluster.node(leader).clone();
        let mut views = old.watch();
        async move {
            let fresh = Duration::from_millis(100);
            soon(views.wait_for(|view| view.can_take_over(to, 0, fresh) && view.members[&other].matched == view.last))
                .await
                .unwrap();
            old
        }
    };
    loop {
        let old = begun(&cluster).await;
        cluster.lossy.cut(Some(to));
        match old.transfer(to).await {
            // The target had already failed to answer for too long, so the transfer was not started.
            Err(ProposeError::NotSent { .. }) => cluster.lossy.cut(None),
            Ok(()) | Err(ProposeError::Unknown(_)) => break,
            Err(ProposeError::Stopped) => panic!("raft has stopped"),
        }
    }
    soon(cluster.node(other).watch().wait_for(|view| view.own_term_applied)).await.unwrap();
    cluster.propose(2).await;

    cluster.lossy.cut(None);
    cluster.caught_up(to).await;
    let mut views = cluster.node(other).watch();
    soon(views.wait_for(|view| view.can_take_over(leader, 0, Duration::from_millis(100)))).await.unwrap();
    cluster.node(other).transfer(leader).await.unwrap();
    soon(cluster.node(leader).watch().wait_for(|view| view.own_term_applied)).await.unwrap();
    cluster.propose(3).await;
}

/// A node of another cluster gets an error that names it and cannot vote here; calls between nodes of one cluster
/// succeed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_is_refused() {
    let cluster = Cluster::start(|_| ()).await;
    cluster.propose(1).await;
    let leader = cluster.leader().await;
    let term = cluster.node(leader).watch().borrow().term;
    let settings = RaftSettings { node: 2, peers_id: 43, ..cluster.settings.clone() };
    let (wal, state) = (Arc::new(MemoryWal::default()), Arc::new(MemoryState::default()));
    let stranger =
        Consensus::start(settings, wal, state, &nothing(), Arc::new(Deaf), cluster.connector(2)).await.unwrap();
    let deadline = Duration::from_secs(5);
    let refused = stranger.forward(1, Bytes::from_static(b"hello"), deadline).await.unwrap_err();
    assert!(refused.to_string().contains("another cluster"), "{refused}");
    let answer = cluster.node(2).forward(1, Bytes::from_static(b"hello"), deadline).await.unwrap();
    assert_eq!(answer, b"hello"[..]);
    assert_eq!(cluster.node(leader).watch().borrow().term, term);
    stranger.shutdown().await.unwrap();
}

/// A voter lags, and knows neither that a node was promoted nor that another one was removed. The old leader fails, and
/// only the promoted node has the whole log: it is elected with the vote of the one that lags.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_voter_that_lags_elects_a_member_that_it_does_not_know() {
    let mut cluster = Cluster::start(|_| ()).await;
    cluster.propose(1).await;
    let leader = cluster.leader().await;
    let [lags, leaves] = [leader % 3 + 1, (leader + 1) % 3 + 1];
    cluster.caught_up(lags).await;
    cluster.stop(lags).await;
    cluster.add(4).await;
    cluster.node(leader).change_membership(MembershipChange::Promote(4, Some(leaves))).await.unwrap();
    cluster.propose(2).await;
    cluster.caught_up(4).await;
    cluster.stop(leaves).await;
    cluster.stop(leader).await;
    cluster.restart(lags).await;
    assert_eq!(cluster.leader().await, 4);
    cluster.propose(3).await;
    cluster.caught_up(lags).await;
}

/// Only the first half of a replacement was made. [`MembershipChange::Finish`] makes the second half as planned: the
/// replaced node is removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_left_half_way_is_finished_as_planned() {
    let mut cluster = Cluster::start(|_| ()).await;
    cluster.propose(1).await;
    cluster.add(4).await;
    let leader = cluster.leader().await;
    let consensus = cluster.node(leader);
    let planned = BTreeSet::from([leader, leader % 3 + 1, 4]);
    assert!(consensus.leave_half_way(planned.clone()).await);
    let mut views = consensus.watch();
    soon(views.wait_for(|view| view.joint.is_some())).await.unwrap();
    consensus.change_membership(MembershipChange::Finish).await.unwrap();
    let view = soon(views.wait_for(|view| view.joint.is_none())).await.unwrap().clone();
    assert_eq!(view.members.into_keys().collect::<BTreeSet<_>>(), planned);
}

/// A change has two halves, and each is an entry of the log. A caller that leaves before the first one is committed
/// leaves no half-way change, in which a command needs two majorities.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_needs_no_caller() {
    let mut cluster = Cluster::start(|_| ()).await;
    cluster.propose(1).await;
    cluster.add(4).await;
    let leader = cluster.leader().await;
    let consensus = cluster.node(leader);
    let mut views = consensus.watch();
    assert_eq!(consensus.change_membership(MembershipChange::Promote(4, None)).now_or_never(), None);
    soon(views.wait_for(|view| view.joint.is_none() && view.members[&4].voter)).await.unwrap();
}

/// A leader is removed while it is partitioned. When it can reach the others again, it stops, although it only sends
/// entries to them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_leader_stops_at_its_first_append() {
    let mut cluster = Cluster::start(|_| ()).await;
    cluster.propose(1).await;
    cluster.add(4).await;
    let leader = cluster.leader().await;
    let announced = Announcement {
        node: leader,
        disk: u128::from(leader),
        features: 1,
        version: "1".to_owned(),
        http: None,
        rules: None,
    };
    let mut entry = tick(2);
    entry.commands[0].command = Command::Announce(announced);
    propose(cluster.node(leader), entry).await.unwrap();

    cluster.lossy.cut(Some(leader));
    // The old leader has no stream that was opened before its removal, so it receives no higher term on it.
    cluster.lossy.reset();
    let removed = cluster.running.remove(&leader).unwrap();
    let next = cluster.leader().await;
    cluster.node(next).change_membership(MembershipChange::Promote(4, Some(leader))).await.unwrap();
    for node in (1..=4).filter(|node| *node != leader) {
        cluster.caught_up(node).await;
    }
    // No call of an earlier election reaches the old leader later.
    soon(cluster.lossy.hanging().wait_for(|hanging| *hanging == 0)).await.unwrap();
    let mut views = removed.consensus.watch();
    assert!(views.borrow().own_term_applied, "it still leads for itself");
    cluster.lossy.cut(None);
    let view = soon(views.wait_for(|view| view.fatal.is_some())).await.unwrap().clone();
    assert!(view.fatal.unwrap().contains("was removed from this cluster"));
    assert!(view.own_term_applied, "no other call stopped it");
}

/// A node that is not a member and whose log is shorter gets no vote, and raises no term.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shorter_log_of_a_stranger_raises_no_term() {
    let cluster = Cluster::start(|_| ()).await;
    cluster.propose(1).await;
    let leader = cluster.leader().await;
    let (node, term) = (leader % 3 + 1, cluster.node(leader).watch().borrow().term);
    cluster.caught_up(node).await;
    let address = format!("http://{}", cluster.settings.members[&node].peer);
    let mut client = messages::peer_client::PeerClient::connect(address).await.unwrap();
    let stranger = SelfIdentity { peers_id: 42, node: 9, disk: 9, process: 0 };
    let vote = messages::VoteRequest {
        header: Some(stranger.header(node, None)),
        vote: Some(messages::Ballot { term: 1_000, node: 9, committed: false }),
        last: Some(messages::LogId { term: 0, node: 9, index: 1_000 }),
        pre_vote: false,
        transfer: true,
    };
    let refused = client.vote(vote).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::PermissionDenied, "{refused}");
    cluster.propose(2).await;
    cluster.caught_up(node).await;
    assert_eq!(cluster.node(node).watch().borrow().term, term);
}

/// While one node is down the others continue, and do not connect to it more often than the pause allows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dials_to_a_node_that_is_down_stay_bounded() {
    let mut cluster = Cluster::start(|_| ()).await;
    cluster.propose(1).await;
    let leader = cluster.leader().await;
    let down = (1..=3).find(|node| *node != leader).unwrap();
    cluster.stop(down).await;
    cluster.propose(2).await;
    let before = cluster.dials.load(Ordering::Relaxed);
    let began = tokio::time::Instant::now();
    for stamp in 3..=300 {
        cluster.propose(stamp).await;
    }
    let dials = cluster.dials.load(Ordering::Relaxed) - before;
    // For each of the three purposes: a few attempts while the pause grows, and then one attempt per 200 ms.
    let allowed = 3 * (6 + began.elapsed().as_millis() as u64 / crate::limits::DIAL_PAUSE_MS_MAX + 1);
    assert!(dials <= allowed, "{dials} dials, {allowed} allowed");
}

/// A node whose disk failed reports this, even if its Raft core ends right after the last read of its metrics. The node
/// must stop; it must not keep running without serving. The runtime of each node has one thread.
#[tokio::test]
async fn a_core_that_ends_right_after_a_read_is_detected() {
    for _ in 0..20 {
        let cluster = Cluster::start(|_| ()).await;
        let leader = cluster.leader().await;
        let node = leader % 3 + 1;
        // A node waits for the sync of its vote before it accepts entries.
        cluster.caught_up(node).await;
        let mut views = cluster.node(node).watch();
        let (wal, _) = cluster.storages[&node].clone();
        wal.hold_syncs();
        cluster.propose(1).await;
        cluster.caught_up(node).await;
        wal.fail_next_sync();
        assert!(wal.release_one_sync());
        soon(views.wait_for(|view| view.fatal.is_some())).await.expect("it reports why it stopped");
    }
}
