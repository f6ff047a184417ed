//! Detects nodes whose states differ. The leader asks every voter for the state digests that it remembers, and the next
//! entry carries the digest that most voters agree on. A node that applies this entry and remembers another digest for
//! the same position stops, even if it is the leader.
//!
//! All nodes remember the digests of the same entries, because log time selects them. If two voters differ and no
//! majority decides, both are reported and keep running: stopping the correct one would cost as much as keeping the
//! wrong one.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;

use crate::limits;
use crate::model::{Command, DigestClaim};
use crate::node::Node;
use crate::node::forward::{Forward, Forwarded};

/// Result of a comparison of all voters' digests.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// No position is remembered by most voters.
    Unknown,
    /// Most voters agree, and these others differ.
    Agreed(DigestClaim, Vec<u64>),
    /// The voters differ at this position, and no digest has a majority.
    Split(u64),
}

/// What decides between the voters' states, as advice.
pub(in crate::node) const DECIDE: &str =
    "start the voters that do not answer, and restore a backup only if all of them answer";

/// Compares the digests while this node leads, until it closes.
pub(in crate::node) async fn compare(node: Node) {
    let mut reported = None;
    loop {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(limits::DIGEST_MS)) => {}
            () = node.core.stopped() => return,
        }
        if !node.leads() {
            node.core.split.store(0, Ordering::Relaxed);
            continue;
        }
        let verdict = tokio::select! {
            verdict = node.compare_voters() => verdict,
            () = node.core.stopped() => return,
        };
        match verdict {
            Verdict::Unknown => {}
            Verdict::Agreed(claim, differing) => {
                node.core.split.store(0, Ordering::Relaxed);
                if differing.is_empty() && reported == Some(claim) {
                    continue;
                }
                reported = Some(claim);
                *node.core.agreed.lock() = Some(claim);
                if !differing.is_empty() {
                    let index = claim.index;
                    tracing::error!(nodes = ?differing, index, "these nodes' states differ from that of most voters");
                    // Propose the digest now: without calls there may be no next entry for a long time.
                    node.core.submit_internal(Command::Tick);
                }
            }
            Verdict::Split(index) => {
                node.core.split.store(index, Ordering::Relaxed);
                tracing::error!(index, "the voters' states differ, and no digest has a majority; {DECIDE}");
            }
        }
    }
}

impl Node {
    /// Asks every voter for the digests that it remembers, and compares them.
    async fn compare_voters(&self) -> Verdict {
        let asked = self.core.voters().into_iter().map(|voter| async move { (voter, self.digests_of(voter).await) });
        verdict(&join_all(asked).await)
    }

    /// Returns the digests of a voter; none if it does not answer.
    async fn digests_of(&self, voter: u64) -> Vec<DigestClaim> {
        if voter == self.core.id {
            return self.core.consensus.digests();
        }
        match self.ask(voter, &Forward::Digests, limits::DIGEST_WAIT_MS).await {
            Some(Forwarded::Digests(digests)) => digests,
            Some(_) | None => Vec::new(),
        }
    }
}

/// Compares the digests at the newest position that most voters remember.
fn verdict(voters: &[(u64, Vec<DigestClaim>)]) -> Verdict {
    let mut positions: BTreeMap<u64, Vec<(u64, u128)>> = BTreeMap::new();
    for (voter, digests) in voters {
        for claim in digests {
            positions.entry(claim.index).or_default().push((*voter, claim.digest));
        }
    }
    let most = voters.len() / 2 + 1;
    let Some((index, found)) = positions.into_iter().rev().find(|(_, found)| most <= found.len()) else {
        return Verdict::Unknown;
    };
    let supporters = |digest: u128| found.iter().filter(|(_, other)| *other == digest).count();
    let Some((_, digest)) = found.iter().find(|(_, digest)| most <= supporters(*digest)) else {
        return Verdict::Split(index);
    };
    let claim = DigestClaim { index, digest: *digest };
    let differing = found.iter().filter(|(_, other)| other != digest).map(|(voter, _)| *voter).collect();
    Verdict::Agreed(claim, differing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(digests: &[(u64, u128)]) -> Vec<DigestClaim> {
        digests.iter().map(|(index, digest)| DigestClaim { index: *index, digest: *digest }).collect()
    }

    fn judged(voters: &[&[(u64, u128)]]) -> Verdict {
        let voters: Vec<_> = (1..).zip(voters).map(|(id, digests)| (id, claims(digests))).collect();
        verdict(&voters)
    }

    const RIGHT: DigestClaim = DigestClaim { index: 20, digest: 7 };

    /// The newest position that most voters remember decides. A voter that differs there is named; a voter that lags is
    /// not.
    #[test]
    fn most_voters_decide() {
        assert_eq!(
            judged(&[&[(10, 5), (20, 7), (30, 9)], &[(10, 5), (20, 7)], &[(10, 5)]]),
            Verdict::Agreed(RIGHT, vec![])
        );
        assert_eq!(judged(&[&[(20, 7)], &[(20, 7)], &[(20, 8)]]), Verdict::Agreed(RIGHT, vec![3]));
        assert_eq!(judged(&[&[(20, 8)], &[(20, 7)], &[(20, 7)]]), Verdict::Agreed(RIGHT, vec![1]));
        assert_eq!(judged(&[&[(20, 7)]]), Verdict::Agreed(RIGHT, vec![]));
    }

    /// If no digest has a majority, no voter is named; if too few voters answered, there is no result.
    #[test]
    fn without_a_majority_no_voter_is_named() {
        assert_eq!(judged(&[&[(20, 7)], &[(20, 8)]]), Verdict::Split(20));
        assert_eq!(judged(&[&[(20, 7)], &[(20, 8)], &[]]), Verdict::Split(20));
        assert_eq!(judged(&[&[(20, 7)], &[], &[]]), Verdict::Unknown);
        assert_eq!(judged(&[&[(20, 7)], &[(10, 7)], &[]]), Verdict::Unknown);
    }
}
