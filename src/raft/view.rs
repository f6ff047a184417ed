//! What Raft is doing, in words of our own, as it changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::Fatal;
use openraft::{Raft, RaftMetrics, ServerState, TokioInstant};
use tokio::sync::watch;
use tokio::time::Instant;

use super::state_machine::{Shared, StateMachine};
use super::types::{Member, Types};
use crate::limits::VIEW_MS_MIN;

/// A node's part in Raft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// Receives the log and has no vote.
    #[default]
    Learner,
    /// Receives the log and votes.
    Follower,
    /// Asks for votes.
    Candidate,
    /// Proposes.
    Leader,
    /// Has stopped.
    Stopped,
}

/// What a node knows of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberView {
    /// Where it is reached.
    pub member: Member,
    /// Whether it votes.
    pub voter: bool,
    /// On the leader: the newest entry that it is known to have.
    pub matched: Option<u64>,
    /// On the leader: when it was last heard of.
    pub heard: Option<Instant>,
}

/// What Raft is doing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct View {
    /// The term.
    pub term: u64,
    /// This node's part.
    pub role: Role,
    /// Who leads, where that is known.
    pub leader: Option<u64>,
    /// Newest entry in the log; `None` before the first.
    pub last: Option<u64>,
    /// Newest applied entry; `None` before the first.
    pub applied: Option<u64>,
    /// This node leads and has applied an entry of its own term: its state contains all that was ever acknowledged.
    pub own_term_applied: bool,
    /// On the leader: when a quorum last acknowledged it.
    pub quorum_acked: Option<Instant>,
    /// All members.
    pub members: BTreeMap<u64, MemberView>,
    /// The membership is on its way from one to another.
    pub joint: bool,
    /// Why this node must stop.
    pub fatal: Option<String>,
}

impl View {
    /// Whether this node leads, has applied an entry of its own term, and a quorum acknowledged it within this time. A
    /// leader that is cut off from the others goes on to believe that it leads; it must not say so.
    #[must_use]
    pub fn leads_within(&self, acked_within: Duration) -> bool {
        let alone = self.members.values().filter(|member| member.voter).count() == 1;
        self.own_term_applied && (alone || self.quorum_acked.is_some_and(|at| at.elapsed() <= acked_within))
    }

    /// Whether `node` could take over at once: it votes, has the whole log, and was heard of a moment ago.
    #[must_use]
    pub fn can_take_over(&self, node: u64, heard_within: Duration) -> bool {
        let Some(member) = self.members.get(&node) else { return false };
        self.role == Role::Leader
            && self.leader != Some(node)
            && member.voter
            && member.matched == self.last
            && member.heard.is_some_and(|heard| heard.elapsed() <= heard_within)
    }
}

/// Turns Raft's instants, which hide what they are, into tokio's: by one pair of both, so that equal stays equal.
#[derive(Clone, Copy)]
struct Anchor {
    raft: TokioInstant,
    here: Instant,
}

impl Anchor {
    fn of(self, at: TokioInstant) -> Instant {
        self.here + if at > self.raft { at - self.raft } else { Duration::ZERO }
    }
}

fn seen(anchor: Anchor, metrics: &RaftMetrics<Types>, fault: Option<String>) -> View {
    let membership = &metrics.membership_config;
    let voters: Vec<u64> = membership.voter_ids().collect();
    let members = membership.nodes().map(|(id, member)| {
        let matched = metrics.replication.as_ref().and_then(|all| all.get(id)?.as_ref().map(|at| at.index));
        let heard = metrics.heartbeat.as_ref().and_then(|all| all.get(id)?.as_ref().map(|at| anchor.of(**at)));
        let view = MemberView { member: member.clone(), voter: voters.contains(id), matched, heard };
        (*id, view)
    });
    let leads = metrics.state == ServerState::Leader;
    let own = metrics
        .last_applied
        .is_some_and(|at| at.leader_id.term == metrics.current_term && at.leader_id.node_id == metrics.id);
    // A core that ended is in the state of a shutdown, whatever ended it.
    let broken = metrics.running_state.as_ref().err().filter(|fatal| !matches!(fatal, Fatal::Stopped));
    View {
        term: metrics.current_term,
        role: match metrics.state {
            ServerState::Learner => Role::Learner,
            ServerState::Follower => Role::Follower,
            ServerState::Candidate => Role::Candidate,
            ServerState::Leader => Role::Leader,
            ServerState::Shutdown => Role::Stopped,
        },
        leader: metrics.current_leader,
        last: metrics.last_log_index,
        applied: metrics.last_applied.map(|at| at.index),
        own_term_applied: leads && own,
        quorum_acked: metrics.last_quorum_acked.map(|at| anchor.of(*at)),
        members: members.collect(),
        joint: 1 < membership.membership().get_joint_config().len(),
        fatal: fault.or_else(|| broken.map(ToString::to_string)),
    }
}

/// Keeps the view up to date, and tells the node when it must stop. Ends with Raft.
///
/// Raft's metrics change several times an entry, and whoever watches the view wants to know of few of these changes:
/// a new role, leader or membership is told at once, progress at most every [`VIEW_MS_MIN`](crate::limits::VIEW_MS_MIN).
pub(super) async fn follow(raft: Raft<Types, StateMachine>, shared: Arc<Shared>, views: watch::Sender<View>) {
    let anchor = Anchor { raft: <TokioInstant as openraft::Instant>::now(), here: tokio::time::Instant::now() };
    let mut metrics = raft.metrics();
    let mut server = raft.server_metrics();
    let mut faults = shared.fault.subscribe();
    let mut ended = false;
    loop {
        // Cloned at once: the guard blocks Raft's core.
        let now = metrics.borrow_and_update().clone();
        // What the disk said is clearer than what Raft makes of it.
        let fault = faults.borrow_and_update().clone().or_else(|| shared.wal.failure());
        let view = seen(anchor, &now, fault);
        let settled = view.role != Role::Leader || view.own_term_applied;
        let fatal = view.fatal.clone();
        views.send_if_modified(|before| {
            let changed = *before != view;
            *before = view;
            changed
        });
        if let Some(why) = fatal {
            shared.fail(&why);
            shared.hooks.stopped(&why);
            return;
        }
        if ended {
            return;
        }
        let pause = if settled { Duration::from_millis(VIEW_MS_MIN) } else { Duration::ZERO };
        let next = tokio::time::Instant::now() + pause;
        let progress = async {
            let changed = metrics.changed().await;
            // Awaited only where something changed so soon: an idle node is not woken once more for every beat.
            if tokio::time::Instant::now() < next {
                tokio::time::sleep_until(next).await;
            }
            changed
        };
        // Where the core ended, its last words are in the metrics, and their change may have been noticed in `progress`
        // already: they are read once more, and no other change is waited for.
        ended = tokio::select! {
            changed = progress => changed.is_err(),
            changed = server.changed() => changed.is_err(),
            changed = faults.changed() => changed.is_err(),
        };
    }
}
