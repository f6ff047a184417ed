//! Changes of the membership. Raft makes each change as a joint consensus of the old and the new membership, so two
//! separate quorums never exist.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use openraft::ChangeMembers;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{ChangeMembershipError, ClientWriteError, RaftError};

use super::consensus::Consensus;
use super::error::ProposeError;
use super::types::{RaftLogId, Types};
use crate::limits;
use crate::model::Member;

/// A change of the membership. The caller decides whether it is safe for availability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MembershipChange {
    /// Adds a learner, which receives the log and has no vote.
    AddLearner(u64, Member),
    /// Gives one learner a vote and, if another node is named, removes that node.
    Promote(u64, Option<u64>),
    /// Removes a voter from the members.
    RemoveVoter(u64),
    /// Removes a learner from the members.
    RemoveLearner(u64),
    /// Finishes a change that an earlier leader left half-way, as that leader planned it. Changes nothing if none is.
    Finish,
}

/// Why the membership was not changed, or why the outcome is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// The same error as for an entry.
    #[error(transparent)]
    Propose(#[from] ProposeError),
    /// Another change is in progress.
    #[error("another change of the membership is in progress")]
    Busy,
    /// Raft refuses this change.
    #[error("{0}")]
    Refused(String),
}

impl MembershipChange {
    fn change(self) -> ChangeMembers<u64, Member> {
        match self {
            MembershipChange::AddLearner(node, member) => ChangeMembers::AddNodes(BTreeMap::from([(node, member)])),
            MembershipChange::Promote(node, None) => ChangeMembers::AddVoterIds(BTreeSet::from([node])),
            MembershipChange::Promote(node, Some(other)) => ChangeMembers::Batch(vec![
                ChangeMembers::AddVoterIds(BTreeSet::from([node])),
                ChangeMembers::RemoveVoters(BTreeSet::from([other])),
            ]),
            MembershipChange::RemoveVoter(node) => ChangeMembers::RemoveVoters(BTreeSet::from([node])),
            MembershipChange::RemoveLearner(node) => ChangeMembers::RemoveNodes(BTreeSet::from([node])),
            // The change is made to the newer of the two memberships, and adds nothing to it.
            MembershipChange::Finish => ChangeMembers::AddVoterIds(BTreeSet::new()),
        }
    }
}

impl Consensus {
    /// Changes the membership and waits until the change is applied on this node, for at most
    /// [`limits::MEMBERSHIP_WAIT_MS_MAX`] milliseconds. The change continues without its caller: it consists of two
    /// entries, and until both are committed every command needs two quorums.
    ///
    /// # Errors
    /// See [`MembershipError`]. After [`ProposeError::Unknown`] the same change may be requested again.
    pub async fn change_membership(&self, change_membership: MembershipChange) -> Result<(), MembershipError> {
        let limit = Duration::from_millis(limits::MEMBERSHIP_WAIT_MS_MAX);
        let before = self.membership_id();
        let raft = self.raft().clone();
        let changing = tokio::spawn(async move { raft.change_membership(change_membership.change(), false).await });
        let Ok(changed) = tokio::time::timeout(limit, changing).await else {
            let why = format!("the new membership was not committed within {} ms", limits::MEMBERSHIP_WAIT_MS_MAX);
            return Err(ProposeError::Unknown(why).into());
        };
        let changed = changed.map_err(|_| ProposeError::Unknown("the node stopped".to_owned()))?;
        let Err(error) = changed.map_err(refused) else { return Ok(()) };
        let not_sent = matches!(error, MembershipError::Propose(ProposeError::NotSent { .. }));
        if not_sent && self.membership_id() != before {
            return Err(ProposeError::Unknown(
                "this node lost leadership after it had written the first half of the change".to_owned(),
            )
            .into());
        }
        Err(error)
    }

    /// Returns the id of the entry that has the newest membership.
    fn membership_id(&self) -> Option<RaftLogId> {
        *self.raft().metrics().borrow_watched().membership_config.log_id()
    }
}

fn refused(error: RaftError<Types, ClientWriteError<Types>>) -> MembershipError {
    let error = match error {
        // The log may have the change.
        RaftError::Fatal(_) => return ProposeError::Unknown("the node stopped".to_owned()).into(),
        RaftError::APIError(error) => error,
    };
    match error {
        ClientWriteError::ForwardToLeader(to) => ProposeError::NotSent { leader: to.leader_id }.into(),
        ClientWriteError::LogEntryDiscarded(_) | ClientWriteError::PreconditionFailed(_) => {
            ProposeError::Unknown("another leader was elected meanwhile".to_owned()).into()
        }
        ClientWriteError::ChangeMembershipError(
            ChangeMembershipError::InProgress(_) | ChangeMembershipError::UncommittedLeaderLog(_),
        ) => MembershipError::Busy,
        ClientWriteError::ChangeMembershipError(
            error @ (ChangeMembershipError::EmptyMembership(_)
            | ChangeMembershipError::LearnerNotFound(_)
            | ChangeMembershipError::UnsupportedMembershipTransition(_)
            | ChangeMembershipError::NodeMetadataChanged(_)),
        ) => MembershipError::Refused(error.to_string()),
    }
}
