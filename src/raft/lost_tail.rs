//! A follower whose log is shorter than what it acknowledged: its disk lied about a sync, or its directory was put back from
//! an older copy. It has forgotten what others count on, and must not go on as if nothing had happened.
//!
//! The leader remembers, for as long as it leads, up to which entry each follower acknowledged its log as durable, and says
//! so in the first message of every stream of entries and in every heartbeat. A follower that has less stops. A vote is such
//! an acknowledgement, too; so a new leader knows from the beginning where the logs of its voters end.
//!
//! What remains: only the leader that was told knows. Where it is gone, too, nobody does; then a disk and a leader are lost
//! at once, which is one more than three nodes bear.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::types::{RaftLogId, RaftVote, to_log_id, to_vote};
use crate::storage::{LogId, Vote, WalState};

/// What the followers acknowledged to this leader, by node, and in which term.
#[derive(Default)]
pub(super) struct Acknowledged(Mutex<BTreeMap<u64, (Vote, LogId)>>);

impl Acknowledged {
    fn table(&self) -> MutexGuard<'_, BTreeMap<u64, (Vote, LogId)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node said that its log is durable up to here. The terms of a leader only grow.
    pub(super) fn note(&self, node: u64, vote: &RaftVote, upto: &RaftLogId) {
        self.learn(node, (to_vote(vote), to_log_id(upto)));
    }

    /// The node has voted for this one, and said where its own log ends. A vote is written behind the entries before it and
    /// synced with them, and a voter takes entries from nobody else afterwards.
    ///
    /// Where both logs end in entries of one leader, the shorter one is the beginning of the longer one, by Raft's log matching
    /// property: such an end is in the log of this node and is never cut off. Another one might be.
    pub(super) fn voted(&self, node: u64, candidate: &RaftVote, theirs: &RaftLogId, ours: &RaftLogId) {
        if theirs.leader_id == ours.leader_id && theirs.index <= ours.index {
            self.learn(node, (Vote { committed: true, ..to_vote(candidate) }, to_log_id(theirs)));
        }
    }

    fn learn(&self, node: u64, news: (Vote, LogId)) {
        let mut table = self.table();
        let known = table.entry(node).or_insert(news);
        *known = news.max(*known);
    }

    /// What the node acknowledged in this term; `None` where it acknowledged nothing yet.
    pub(super) fn of(&self, node: u64, vote: &RaftVote) -> Option<LogId> {
        let (term, upto) = self.table().get(&node).copied()?;
        (term == to_vote(vote)).then_some(upto)
    }
}

/// Whether the log lacks what this node acknowledged to the leader of `vote`. Under a newer vote it may: then another leader
/// has replaced that tail, which is as it should be.
pub(super) fn is_short(log: &WalState, vote: Vote, acknowledged: LogId) -> bool {
    let outvoted = log.vote.is_some_and(|own| vote < own);
    !outvoted && log.last.max(log.purged) < Some(acknowledged)
}

/// Whether the log has this entry, or had it before it was purged: only then a node may say that its log ends there.
pub(super) fn reaches(log: &WalState, end: &RaftLogId) -> bool {
    log.last.max(log.purged) >= Some(to_log_id(end))
}

/// What a node with such a log says when it stops.
pub(super) fn short(node: u64, log: &WalState, acknowledged: LogId) -> String {
    let last = log.last.max(log.purged).map_or_else(|| "nothing".to_owned(), |last| format!("log entry {last}"));
    format!(
        "the log of node {node} ends at {last}, and it has acknowledged {acknowledged} as durable: its disk lost what it had \
         synced, or its data directory is an older copy. It must not vote or count as node {node}. Put its newest directory \
         back, or move it away and give the disk a new node id: lockkeeper member add"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raft::types::{from_log_id, from_vote};

    fn vote(term: u64) -> Vote {
        Vote { term, node: 1, committed: true }
    }

    fn log(term: u64, last: Option<LogId>, purged: Option<LogId>) -> WalState {
        WalState { vote: Some(vote(term)), last, purged, ..WalState::default() }
    }

    const UPTO: LogId = LogId { term: 2, node: 1, index: 20 };

    /// A log that ends before what was acknowledged is short, be it empty; one that was purged up to there is not.
    #[test]
    fn a_log_that_ends_before_what_was_acknowledged_is_short() {
        let at = |index| Some(LogId { index, ..UPTO });
        assert!(is_short(&log(2, at(19), None), vote(2), UPTO));
        assert!(is_short(&log(1, None, None), vote(2), UPTO), "its vote is as old as its log");
        assert!(is_short(&WalState::default(), vote(2), UPTO));
        assert!(!is_short(&log(2, at(20), at(3)), vote(2), UPTO));
        assert!(!is_short(&log(2, at(25), at(25)), vote(2), UPTO));
    }

    /// A log that a snapshot has not replaced yet does not reach as far as the snapshot.
    #[test]
    fn a_log_reaches_what_it_has_or_had() {
        let at = |index| Some(LogId { index, ..UPTO });
        let end = from_log_id(UPTO);
        assert!(!reaches(&log(2, None, None), &end));
        assert!(!reaches(&log(2, at(19), at(3)), &end));
        assert!(reaches(&log(2, at(20), at(3)), &end));
        assert!(reaches(&log(2, None, at(20)), &end));
    }

    /// A vote tells where the voter's log ends, to the leader that comes of it; an end that the candidate's log may lack says
    /// nothing, for it may be cut off.
    #[test]
    fn a_vote_acknowledges_what_both_logs_have() {
        let (acknowledged, ours) = (Acknowledged::default(), from_log_id(UPTO));
        let candidate = from_vote(Vote { committed: false, ..vote(3) });
        let known = || acknowledged.of(3, &from_vote(vote(3)));
        let of_another_leader = LogId { term: 1, node: 1, index: 15 };
        acknowledged.voted(3, &candidate, &from_log_id(of_another_leader), &ours);
        assert_eq!(known(), None);
        let behind = LogId { index: 15, ..UPTO };
        acknowledged.voted(3, &candidate, &from_log_id(behind), &ours);
        assert_eq!(known(), Some(behind));
        assert_eq!(acknowledged.of(3, &from_vote(vote(2))), None);
    }

    /// A tail that a later leader replaced is nobody's loss, whatever the old one still says.
    #[test]
    fn a_tail_that_was_replaced_is_not_lost() {
        let replaced = Some(LogId { term: 1, node: 1, index: 12 });
        assert!(!is_short(&log(3, replaced, None), vote(2), UPTO));
    }

    /// The newest acknowledgement of the newest term counts, and none of an older term.
    #[test]
    fn a_leader_remembers_its_own_term_only() {
        let acknowledged = Acknowledged::default();
        let note = |term, index| {
            let upto = from_log_id(LogId { term, node: 1, index });
            acknowledged.note(3, &from_vote(vote(term)), &upto);
        };
        note(2, 20);
        note(2, 18);
        assert_eq!(acknowledged.of(3, &from_vote(vote(2))), Some(UPTO));
        assert_eq!(acknowledged.of(2, &from_vote(vote(2))), None);
        note(4, 3);
        assert_eq!(acknowledged.of(3, &from_vote(vote(2))), None);
        assert_eq!(acknowledged.of(3, &from_vote(vote(4))).map(|id| id.index), Some(3));
    }
}
