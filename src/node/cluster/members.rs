//! Changes of the cluster's members: which changes are refused because they would cost the quorum, and how the others
//! are made.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::{Instant as TokioInstant, sleep};

use crate::clock::millis;
use crate::limits;
use crate::model::{Invalid, Member, Refusal};
use crate::node::Node;
use crate::node::forward::Forward;
use crate::raft::{MembershipChange, MembershipError, View};
use crate::service::{MemberChange, NotSent, Operation, ServiceError};

/// What the leader knows about a member and needs to decide about a change.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MemberState {
    member: Member,
    voter: bool,
    /// Whether the member answered the leader within an election timeout.
    alive: bool,
    /// Number of log entries that the member lacks; `None` if unknown.
    behind: Option<u64>,
}

type MemberStates = BTreeMap<u64, MemberState>;

/// What has to be done for a change; `None` if it was made before.
type Plan = Option<MembershipChange>;

impl Node {
    pub(in crate::node) async fn change_members_here(&self, change: MemberChange) -> Result<(), ServiceError> {
        let changing = self.core.changing_members.write().await;
        let before = self.core.consensus.watch().borrow().clone();
        if before.joint.as_ref().is_some_and(|voters| !voters.contains(&self.core.id)) {
            // That change removes this node, so another leader finishes it. The caller asks again there.
            self.hand_over_now().await;
            return Err(self.not_sent(NotSent::NotLeader));
        }
        self.finish_change(&before).await?;
        if !self.leads() {
            return Err(self.not_sent(NotSent::NotLeader));
        }
        let view = self.core.consensus.watch().borrow().clone();
        let states = self.states(&view);
        let plan = match &change {
            MemberChange::Add { node, client, peer } => {
                let member = Member { client: client.clone(), peer: peer.clone() };
                let used = self.core.consensus.machine(|machine| machine.announced(*node).is_some());
                add(&states, *node, member, used)?
            }
            MemberChange::Promote { node, instead_of } => promote(&states, *node, *instead_of)?,
            // The change that was half-way is this one.
            MemberChange::Remove { node } if before.members.contains_key(node) && !states.contains_key(node) => None,
            MemberChange::Remove { node } => remove(&states, *node)?,
        };
        let Some(planned) = plan else { return Ok(()) };
        if leaves(&planned) == Some(self.core.id) {
            self.step_down().await?;
            drop(changing);
            return self.ask_next_leader(change).await;
        }
        tracing::info!(node = self.core.id, ?change, "changing the members");
        self.core.consensus.change_membership(planned).await.map_err(|error| self.change_failed(error))
    }

    /// Transfers leadership, because a node that is no longer a member cannot lead.
    async fn step_down(&self) -> Result<(), ServiceError> {
        self.hand_over_now().await;
        if self.leads() {
            let why = format!("node {} leads, and no other node could take over; try again", self.core.id);
            return Err(unfit(why).into());
        }
        Ok(())
    }

    /// Asks the next leader to make the change. An attempt that has begun is never cancelled, because it may succeed.
    async fn ask_next_leader(&self, change: MemberChange) -> Result<(), ServiceError> {
        let ends = TokioInstant::now() + Duration::from_millis(limits::MEMBERSHIP_WAIT_MS_MAX);
        loop {
            let left_ms = millis(ends.saturating_duration_since(TokioInstant::now()));
            let asking = Forward::Operate(Operation::ChangeMembers(change.clone()));
            match Box::pin(self.send_to_leader(asking, Some(left_ms))).await {
                // No node leads yet, or no member has answered the next leader yet. The change was fit here.
                Err(ServiceError::NotSent { .. } | ServiceError::Refused(Refusal::MembersUnfit { .. }))
                    if TokioInstant::now() < ends =>
                {
                    sleep(Duration::from_millis(limits::RETRY_MS_MIN)).await;
                }
                answered => return answered.map(drop),
            }
        }
    }

    /// Finishes a change that an earlier leader left half-way. Raft would apply the next change to the newer of the two
    /// memberships. But that change is checked against the view, which has the voters of both.
    async fn finish_change(&self, before: &View) -> Result<(), ServiceError> {
        if before.joint.is_none() {
            return Ok(());
        }
        let finishing = self.core.consensus.change_membership(MembershipChange::Finish).await;
        finishing.map_err(|error| self.change_failed(error))?;
        let wait = Duration::from_millis(limits::MEMBERSHIP_WAIT_MS_MAX);
        let mut views = self.core.consensus.watch();
        match tokio::time::timeout(wait, views.wait_for(|view| view.joint.is_none())).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(ServiceError::Stopping),
            Err(_) => Err(self.change_failed(MembershipError::Busy)),
        }
    }

    fn states(&self, view: &View) -> MemberStates {
        let me = self.core.id;
        let state = |(node, member): (&u64, &crate::raft::MemberView)| {
            let in_contact = member.last_contact.is_some_and(|at| at.elapsed() <= self.core.election_max);
            let last = view.last.unwrap_or_default();
            let behind = if *node == me { Some(0) } else { member.matched.map(|at| last.saturating_sub(at)) };
            let state = MemberState {
                member: member.member.clone(),
                voter: member.voter,
                alive: *node == me || in_contact,
                behind,
            };
            (*node, state)
        };
        view.members.iter().map(state).collect()
    }

    fn change_failed(&self, error: MembershipError) -> ServiceError {
        match error {
            MembershipError::Propose(error) => self.proposal_failed(error, NotSent::NotLeader),
            MembershipError::Busy => ServiceError::not_sent(NotSent::OVERLOADED),
            MembershipError::Refused(why) => unfit(why).into(),
        }
    }
}

/// Returns the node that a change removes from the cluster.
fn leaves(change: &MembershipChange) -> Option<u64> {
    match change {
        MembershipChange::Promote(_, other) => *other,
        MembershipChange::RemoveVoter(node) | MembershipChange::RemoveLearner(node) => Some(*node),
        MembershipChange::AddLearner(..) | MembershipChange::Finish => None,
    }
}

fn unfit(why: impl Into<String>) -> Refusal {
    Refusal::MembersUnfit { why: why.into() }
}

fn add(states: &MemberStates, node: u64, member: Member, used: bool) -> Result<Plan, ServiceError> {
    if node == 0 {
        return Err(Invalid::new("node", "1 or more", node).into());
    }
    member.checked()?;
    if let Some(state) = states.get(&node) {
        if state.member == member {
            return Ok(None);
        }
        let Member { client, peer } = &state.member;
        let why = format!("node {node} is a member already, at {client} (clients) and {peer} (peers)");
        return Err(unfit(why).into());
    }
    if used {
        let why = format!("node id {node} was used before: a new disk is a new node, with an id that was never used");
        return Err(unfit(why).into());
    }
    if limits::MEMBERS_MAX <= states.len() {
        return Err(unfit(format!("there are {} members, and no more are allowed", states.len())).into());
    }
    let taken = |state: &MemberState| {
        let theirs = [&state.member.client, &state.member.peer];
        theirs.contains(&&member.client) || theirs.contains(&&member.peer)
    };
    if let Some((other, _)) = states.iter().find(|(_, state)| taken(state)) {
        let why = format!("node {other} is reached at one of these addresses: each node has its own");
        return Err(unfit(why).into());
    }
    Ok(Some(MembershipChange::AddLearner(node, member)))
}

fn state(states: &MemberStates, node: u64) -> Result<&MemberState, Invalid> {
    states.get(&node).ok_or_else(|| unknown_member(states, "node", node))
}

fn unknown_member(states: &MemberStates, field: &str, node: u64) -> Invalid {
    let known: Vec<_> = states.keys().collect();
    Invalid::new(field, format!("one of the members {known:?}"), node)
}

fn promote(states: &MemberStates, node: u64, instead_of: Option<u64>) -> Result<Plan, ServiceError> {
    let learner = state(states, node)?;
    if instead_of == Some(node) {
        return Err(Invalid::new("instead_of", "another node than the one to promote", node).into());
    }
    let other = instead_of.filter(|other| states.contains_key(other));
    if let Some(other) = instead_of.filter(|_| !learner.voter && other.is_none()) {
        return Err(unknown_member(states, "instead_of", other).into());
    }
    if let Some(other) = other.filter(|other| !states[other].voter) {
        return Err(Invalid::new("instead_of", "a voter; `lockkeeper member remove` removes others", other).into());
    }
    if learner.voter {
        let Some(other) = other else { return Ok(None) };
        // No node joins the voters.
        check_left(states, other)?;
    }
    if !learner.alive {
        return Err(unfit(format!("node {node} does not answer the leader: start it first")).into());
    }
    if !learner.voter && learner.behind.is_none_or(|behind| limits::PROMOTE_LAG_ENTRIES_MAX < behind) {
        let lacks = learner.behind.map_or("an unknown number of".to_owned(), |behind| behind.to_string());
        return Err(unfit(format!("node {node} still lacks {lacks} log entries: wait until it has caught up")).into());
    }
    check_quorum(states, Some(node), other)?;
    Ok(Some(MembershipChange::Promote(node, other)))
}

fn remove(states: &MemberStates, node: u64) -> Result<Plan, ServiceError> {
    if !state(states, node)?.voter {
        return Ok(Some(MembershipChange::RemoveLearner(node)));
    }
    check_left(states, node)?;
    check_quorum(states, None, Some(node))?;
    Ok(Some(MembershipChange::RemoveVoter(node)))
}

/// Refuses to remove a voter without another one in its place if none or two would be left.
fn check_left(states: &MemberStates, node: u64) -> Result<(), Refusal> {
    match states.values().filter(|state| state.voter).count() {
        1 => Err(unfit(format!("node {node} is the only voter"))),
        3 => Err(unfit(format!(
            "two voters would be left, and then none may fail: replace it by another node with `lockkeeper member \
             promote NEW --instead-of {node}`"
        ))),
        _ => Ok(()),
    }
}

/// Refuses a change that leaves voters without a quorum that answers: no command could be committed any more, not even
/// the reverse change.
fn check_quorum(states: &MemberStates, joins: Option<u64>, leaves: Option<u64>) -> Result<(), Refusal> {
    let votes = |(node, state): &(&u64, &MemberState)| (state.voter || joins == Some(**node)) && leaves != Some(**node);
    let after: Vec<_> = states.iter().filter(votes).collect();
    let alive = after.iter().filter(|(_, state)| state.alive).count();
    if after.len() / 2 < alive {
        return Ok(());
    }
    let silent: Vec<_> = after.iter().filter(|(_, state)| !state.alive).map(|(node, _)| **node).collect();
    Err(unfit(format!("the quorum would be lost: of {} voters {silent:?} do not answer the leader", after.len())))
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::service::LockService;
    use crate::testing::Cluster;

    fn member(node: u64) -> Member {
        Member { client: format!("n{node}.example:7600"), peer: format!("n{node}.example:7610") }
    }

    /// Returns these voters, each with whether it answers, and a learner 9 that lacks `behind` entries.
    fn states(voters: &[(u64, bool)], behind: Option<u64>) -> MemberStates {
        let voter = |(node, alive): &(u64, bool)| {
            (*node, MemberState { member: member(*node), voter: true, alive: *alive, behind: Some(0) })
        };
        let learner = MemberState { member: member(9), voter: false, alive: true, behind };
        voters.iter().map(voter).chain([(9, learner)]).collect()
    }

    const ALL: [(u64, bool); 3] = [(1, true), (2, true), (3, true)];
    const ONE_DEAD: [(u64, bool); 3] = [(1, true), (2, true), (3, false)];

    fn refused(plan: Result<Plan, ServiceError>) -> String {
        plan.expect_err("refused").to_string()
    }

    /// A new node gets an unused id and separate addresses; the same change again changes nothing.
    #[test]
    fn a_node_is_added_once_under_a_new_id() {
        let states = states(&ALL, Some(0));
        assert_eq!(add(&states, 4, member(4), false), Ok(Some(MembershipChange::AddLearner(4, member(4)))));
        assert_eq!(add(&states, 3, member(3), true), Ok(None));
        assert!(refused(add(&states, 3, member(4), true)).contains("is a member already, at n3.example:7600"));
        assert!(refused(add(&states, 4, member(4), true)).contains("was used before"));
        assert!(refused(add(&states, 4, member(3), false)).contains("node 3 is reached"));
        assert!(refused(add(&states, 0, member(4), false)).contains("node"));
        let nowhere = Member { client: "n4.example".to_owned(), peer: "n4.example:0".to_owned() };
        assert!(refused(add(&states, 4, nowhere, false)).contains("HOST:PORT"));
        let many: Vec<_> = (10..10 + limits::MEMBERS_MAX as u64).map(|node| (node, true)).collect();
        assert!(
            refused(add(&super::tests::states(&many, Some(0)), 4, member(4), false)).contains("no more are allowed")
        );
    }

    /// A vote is given to a node that answers and has caught up, alone or in place of a dead node.
    #[test]
    fn a_vote_needs_a_node_that_has_caught_up() {
        assert_eq!(promote(&states(&ALL, Some(3)), 9, None), Ok(Some(MembershipChange::Promote(9, None))));
        assert_eq!(promote(&states(&ONE_DEAD, Some(3)), 9, Some(3)), Ok(Some(MembershipChange::Promote(9, Some(3)))));
        assert_eq!(promote(&states(&ALL, Some(3)), 1, Some(7)), Ok(None));
        let far = Some(limits::PROMOTE_LAG_ENTRIES_MAX + 1);
        assert!(refused(promote(&states(&ALL, far), 9, None)).contains("still lacks"));
        assert!(refused(promote(&states(&ALL, None), 9, None)).contains("an unknown number"));
        assert!(refused(promote(&states(&ALL, Some(0)), 8, None)).contains("[1, 2, 3, 9]"));
        assert!(refused(promote(&states(&ALL, Some(0)), 9, Some(9))).contains("instead_of"));
        let unknown = refused(promote(&states(&ALL, Some(0)), 9, Some(7)));
        assert!(unknown.contains("instead_of") && unknown.contains("[1, 2, 3, 9]"), "{unknown}");
        let mut other = states(&ALL, Some(0));
        other.insert(8, other[&9].clone());
        assert!(refused(promote(&other, 9, Some(8))).contains("a voter"));
        let mut silent = states(&ALL, Some(0));
        silent.get_mut(&9).unwrap().alive = false;
        assert!(refused(promote(&silent, 9, None)).contains("start it first"));
    }

    /// A removal is refused if it would leave two voters, none, or too few that answer.
    #[test]
    fn what_would_cost_the_quorum_is_refused() {
        assert!(refused(remove(&states(&ALL, Some(0)), 3)).contains("--instead-of 3"));
        assert!(refused(remove(&states(&[(1, true)], Some(0)), 1)).contains("only voter"));
        let four = [(1, true), (2, true), (3, false), (4, false)];
        assert!(refused(remove(&states(&four, Some(0)), 2)).contains("[3, 4] do not answer"));
        assert_eq!(remove(&states(&four, Some(0)), 4), Ok(Some(MembershipChange::RemoveVoter(4))));
        assert_eq!(remove(&states(&ALL, Some(0)), 9), Ok(Some(MembershipChange::RemoveLearner(9))));
        assert!(refused(promote(&states(&ALL, Some(0)), 1, Some(3))).contains("two voters would be left"));
        assert_eq!(promote(&states(&four, Some(0)), 1, Some(4)), Ok(Some(MembershipChange::Promote(1, Some(4)))));
        let two = [(1, true), (2, false)];
        assert!(
            refused(promote(&states(&[(1, true), (2, false), (3, false)], Some(0)), 9, Some(1))).contains("quorum")
        );
        assert_eq!(remove(&states(&two, Some(0)), 2), Ok(Some(MembershipChange::RemoveVoter(2))));
    }

    /// A forwarded change that waits continues when its caller leaves. A transfer is refused meanwhile: it would leave
    /// the change half-way.
    #[tokio::test]
    async fn a_forwarded_change_needs_no_caller() {
        loop {
            let cluster = Cluster::start(4, None).await.expect("a cluster");
            let leader = cluster.leader().await;
            let node = leader.id() % 4 + 1;
            let mut views = leader.views();
            let term = views.borrow().term;
            let answers =
                |(id, member): (&u64, &crate::raft::MemberView)| *id == leader.id() || member.last_contact.is_some();
            let all_answer = |view: &View| view.members.iter().all(answers);
            drop(views.wait_for(|view| view.term != term || all_answer(view)).await);
            let other = leader.core.changing_members.write().await;
            let remove = Operation::ChangeMembers(MemberChange::Remove { node });
            if leader.serve_forwarded(Forward::Operate(remove)).now_or_never().is_some() {
                // It leads no more.
                continue;
            }
            let refused = leader.transfer_here(node).await;
            assert!(
                matches!(refused, Err(ServiceError::NotSent { why: NotSent::Overloaded { .. }, .. })),
                "{refused:?}"
            );
            drop(other);
            let is_made = |view: &View| view.joint.is_none() && !view.members.contains_key(&node);
            let ended = views.wait_for(|view| view.term != term || is_made(view)).await.expect("the node runs").clone();
            if ended.term == term {
                return;
            }
        }
    }

    /// If the next leader does not answer in time, it may still make the change: the outcome is unknown.
    #[tokio::test]
    async fn a_change_without_an_answer_of_the_next_leader_is_unknown() {
        let cluster = Cluster::start(3, None).await.expect("a cluster");
        loop {
            let (leader, follower) = (cluster.leader().await, cluster.follower().await);
            let term = leader.views().borrow().term;
            let other = leader.core.changing_members.write().await;
            let asked = follower.ask_next_leader(MemberChange::Remove { node: follower.id() }).await;
            drop(other);
            if follower.views().borrow().term == term {
                assert!(matches!(asked, Err(ServiceError::Unknown { .. })), "{asked:?}");
                return;
            }
        }
    }

    /// A change that an earlier leader left half-way is finished as planned before the next one is checked: it leaves
    /// three voters, and none of them is removed. A leader that the change itself removes leads no longer then.
    #[tokio::test]
    async fn a_change_that_is_half_way_is_finished_first() {
        for leader_leaves in [false, true] {
            let cluster = Cluster::start(4, None).await.expect("a cluster");
            let leaving = loop {
                let leader = cluster.leader().await;
                let leaving = if leader_leaves { leader.id() } else { leader.id() % 4 + 1 };
                if leader.core.consensus.leave_half_way((1..=4).filter(|id| *id != leaving).collect()).await {
                    break leaving;
                }
            };
            let [node, other] = [1, 2].map(|next| (leaving - 1 + next) % 4 + 1);
            let node = &cluster.nodes()[node as usize - 1];
            let refused = loop {
                match node.operate(Operation::ChangeMembers(MemberChange::Remove { node: other })).await {
                    // Another node begins to lead.
                    Err(ServiceError::NotSent { .. } | ServiceError::Unknown { .. }) => {
                        tokio::time::sleep(Duration::from_millis(limits::RETRY_MS_MIN)).await;
                    }
                    answered => break answered.expect_err("refused").to_string(),
                }
            };
            assert!(refused.contains("two voters would be left"), "{refused}");
            let mut views = node.views();
            let finished = views.wait_for(|view| view.joint.is_none() && !view.members.contains_key(&leaving));
            finished.await.expect("the node runs");
        }
    }
}
