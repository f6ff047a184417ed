//! Detects a follower whose log is shorter than what it acknowledged, because its disk lost synced data or its
//! directory was restored from an older copy. The follower has lost entries that others rely on, so it must not
//! continue.
//!
//! While a node leads, it remembers up to which entry each follower acknowledged its log as durable. It sends this in
//! the first message of every stream of entries and in every heartbeat. A follower whose log ends earlier stops. A vote
//! also acknowledges the end of the voter's log, so a new leader has this knowledge about its voters from the
//! beginning.
//!
//! Only the leader that received an acknowledgement knows it, so these short logs are not detected:
//!
//! - The log of a follower, if that leader fails as well. Then one disk and one leader are lost at once, which is one
//!   failure more than three nodes tolerate.
//! - The log of a follower that has restarted, if it votes for a node that has lost its link to that leader before the
//!   leader's first message arrives: two faults at once, too.
//! - The log of a former leader, because a leader acknowledges its own log to no other node. This is harmless if the
//!   other nodes have elected the next leader without its vote: that leader has every committed entry, and sends them
//!   again. Before that, the former leader may vote for a candidate that lacks an entry which only the third node still
//!   has. So this failure alone can lose acknowledged entries.

use std::collections::BTreeMap;

use super::types::{RaftLogId, RaftVote, to_log_id, to_vote};
use crate::mutex::Mutex;
use crate::storage::{LogId, Vote, WalState};

/// The last entry that each follower acknowledged to this leader, by node, with the vote of the leader.
#[derive(Default)]
pub(super) struct Acknowledged(Mutex<BTreeMap<u64, (Vote, LogId)>>);

impl Acknowledged {
    /// Records that the node acknowledged its log as durable up to `upto`. An acknowledgement of a lower term is
    /// ignored.
    pub(super) fn note(&self, node: u64, vote: &RaftVote, upto: &RaftLogId) {
        self.learn(node, (to_vote(vote), to_log_id(upto)));
    }

    /// Records that the node voted for this candidate and reported where its own log ends. The voter writes the vote
    /// after its entries and syncs both, and from then on accepts entries only from this candidate.
    ///
    /// The end counts only if both logs end with entries of the same leader. Raft's log matching property then says
    /// that the shorter log is a prefix of the longer one, so the candidate's log contains this end, and it is never
    /// truncated. Any other end might be truncated.
    pub(super) fn voted(&self, node: u64, candidate: &RaftVote, theirs: &RaftLogId, ours: &RaftLogId) {
        if theirs.leader_id == ours.leader_id && theirs.index <= ours.index {
            self.learn(node, (Vote { committed: true, ..to_vote(candidate) }, to_log_id(theirs)));
        }
    }

    fn learn(&self, node: u64, news: (Vote, LogId)) {
        let mut table = self.0.lock();
        let known = table.entry(node).or_insert(news);
        *known = news.max(*known);
    }

    /// What the node acknowledged in this term; `None` if it has not acknowledged anything yet.
    pub(super) fn of(&self, node: u64, vote: &RaftVote) -> Option<LogId> {
        let (term, upto) = self.0.lock().get(&node).copied()?;
        (term == to_vote(vote)).then_some(upto)
    }
}

/// Whether the log lacks entries that this node acknowledged to the leader of `vote`. Under a newer vote it may lack
/// them, because another leader may have replaced that tail.
pub(super) fn is_short(log: &WalState, vote: Vote, acknowledged: LogId) -> bool {
    let outvoted = log.vote.is_some_and(|own| vote < own);
    !outvoted && log.last.max(log.purged) < Some(acknowledged)
}

/// Whether the log has this entry, or had it before a purge. Only then may a node report that its log ends there.
pub(super) fn reaches(log: &WalState, end: &RaftLogId) -> bool {
    log.last.max(log.purged) >= Some(to_log_id(end))
}

/// The error with which a node with a short log stops.
pub(super) fn short(node: u64, log: &WalState, acknowledged: LogId) -> String {
    let last = log.last.max(log.purged).map_or_else(|| "nothing".to_owned(), |last| format!("log entry {last}"));
    format!(
        "the log of node {node} ends at {last}, and it has acknowledged {acknowledged} as durable: its disk lost what it had \
         synced, or its data directory is an older copy. It must not vote or count as node {node}. Restore its newest \
         directory, or move it away and give the disk a new node id: lockkeeper member add ID"
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

    /// A log that ends before the acknowledged entry is short, even if it is empty. A log that was purged up to that
    /// entry is not.
    #[test]
    fn a_log_that_ends_before_what_was_acknowledged_is_short() {
        let at = |index| Some(LogId { index, ..UPTO });
        assert!(is_short(&log(2, at(19), None), vote(2), UPTO));
        assert!(is_short(&log(1, None, None), vote(2), UPTO), "its vote is as old as its log");
        assert!(is_short(&WalState::default(), vote(2), UPTO));
        assert!(!is_short(&log(2, at(20), at(3)), vote(2), UPTO));
        assert!(!is_short(&log(2, at(25), at(25)), vote(2), UPTO));
    }

    /// A leader acknowledges its own log to no other node. If it restarts with an older copy, it may vote for the next
    /// leader, and that leader accepts the shorter end as all that the voter has acknowledged.
    #[test]
    fn the_short_log_of_a_former_leader_is_not_detected() {
        let acknowledged = Acknowledged::default();
        let candidate = from_vote(Vote { term: 3, node: 2, committed: false });
        let (older, ours) = (LogId { index: 15, ..UPTO }, LogId { index: 18, ..UPTO });
        acknowledged.voted(1, &candidate, &from_log_id(older), &from_log_id(ours));
        let elected = Vote { term: 3, node: 2, committed: true };
        let known = acknowledged.of(1, &from_vote(elected)).expect("the end that the vote reported");
        let restored = WalState { vote: Some(elected), ..log(2, Some(older), None) };
        assert!(!is_short(&restored, elected, known), "it had synced all up to {UPTO}");
    }

    /// A log that a snapshot will replace does not reach the end of that snapshot.
    #[test]
    fn a_log_reaches_what_it_has_or_had() {
        let at = |index| Some(LogId { index, ..UPTO });
        let end = from_log_id(UPTO);
        assert!(!reaches(&log(2, None, None), &end));
        assert!(!reaches(&log(2, at(19), at(3)), &end));
        assert!(reaches(&log(2, at(20), at(3)), &end));
        assert!(reaches(&log(2, None, at(20)), &end));
    }

    /// A vote reports to the new leader where the voter's log ends. An end that the candidate's log may lack does not
    /// count, because it may be truncated.
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

    /// A tail that a later leader replaced is not lost, even if an older leader still reports it.
    #[test]
    fn a_tail_that_was_replaced_is_not_lost() {
        let replaced = Some(LogId { term: 1, node: 1, index: 12 });
        assert!(!is_short(&log(3, replaced, None), vote(2), UPTO));
    }

    /// Only the newest acknowledgement of the newest term counts.
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
