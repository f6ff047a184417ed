//! Cycles of owners that wait for each other, as refusals show them.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{LockKey, LogTime, Metadata, Owner, SessionId, WallTime};
use crate::limits::CYCLE_TEXT_BYTES_MAX;

/// A link of a cycle of owners that wait for each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadlockLink {
    /// The session that waits.
    pub session: SessionId,
    /// The line of execution that waits.
    pub owner: Owner,
    /// The `who` of the request's metadata, cut after 64 bytes.
    pub who: Arc<str>,
    /// The `why` of the request's metadata, cut after 64 bytes.
    pub what_for: Arc<str>,
    /// The lock that the link waits for.
    pub lock: LockKey,
    /// How the owner of the next link blocks this one.
    pub why: WaitReason,
}

impl DeadlockLink {
    /// A link with the metadata's `who` and `why`, each cut after 64 bytes.
    #[must_use]
    pub fn new((session, owner): (SessionId, Owner), metadata: &Metadata, lock: LockKey, why: WaitReason) -> Self {
        Self { session, owner, who: cut(&metadata.who), what_for: cut(&metadata.why), lock, why }
    }

    /// One sentence for each link of a cycle, without a full stop.
    #[must_use]
    pub fn sentences(cycle: &[DeadlockLink]) -> Vec<String> {
        let Some(first) = cycle.first() else { return Vec::new() };
        let next = cycle.iter().skip(1).chain([first]);
        let links = cycle.iter().zip(next);
        let sentence = |(link, next): (&DeadlockLink, &DeadlockLink)| {
            let (name, why) = (&link.lock.name, link.why);
            format!("{link} waits for {name}, {why} {} (session {})", next.owner, next.session)
        };
        links.map(sentence).collect()
    }
}

/// Shows the owner, its session, and what the request states about itself.
impl fmt::Display for DeadlockLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (", self.owner)?;
        if !self.who.is_empty() {
            write!(f, "{}, ", self.who)?;
        }
        write!(f, "session {}", self.session)?;
        if !self.what_for.is_empty() {
            write!(f, ": {}", self.what_for)?;
        }
        f.write_str(")")
    }
}

/// A deadlock that was found: the cluster refused one of its requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedDeadlock {
    /// Log time of the refusal.
    pub at: LogTime,
    /// The leader's wall clock, for display only.
    pub wall: WallTime,
    /// The locks of the cycle, each once and in its order, and no more than a refusal lists. The first one has the
    /// least name, so that equal short cycles have equal lists.
    pub locks: Vec<LockKey>,
}

impl RefusedDeadlock {
    /// The refusal of a request of this cycle.
    #[must_use]
    pub fn new(at: LogTime, wall: WallTime, cycle: &[DeadlockLink]) -> Self {
        let mut locks: Vec<LockKey> = Vec::with_capacity(cycle.len());
        for link in cycle {
            if !locks.contains(&link.lock) {
                locks.push(link.lock.clone());
            }
        }
        let least = locks.iter().enumerate().min_by_key(|(_, lock)| *lock).map_or(0, |(at, _)| at);
        locks.rotate_left(least);
        Self { at, wall, locks }
    }
}

fn cut(text: &Arc<str>) -> Arc<str> {
    if text.len() <= CYCLE_TEXT_BYTES_MAX {
        return text.clone();
    }
    let ends = text.char_indices().map(|(at, letter)| at + letter.len_utf8());
    let end = ends.take_while(|end| *end <= CYCLE_TEXT_BYTES_MAX).last().unwrap_or_default();
    text[..end].into()
}

/// Why an owner waits for the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum WaitReason {
    /// The next one holds the lock.
    Holds,
    /// The next one waits ahead in the queue.
    StandsAhead,
    /// The next one is a nested run that must finish first. The lock is one that the nested run holds or waits for.
    Nested,
    /// The lock is closed for some time after a hold of the next one. This ends automatically, so it is never part of a
    /// cycle.
    Closed,
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WaitReason::Holds => "held by",
            WaitReason::StandsAhead => "behind",
            WaitReason::Nested => "until the end of",
            WaitReason::Closed => "kept closed by",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{LockName, Namespace};

    /// A cycle is shown link by link, each with its owner, what it waits for and why. Long texts are cut.
    #[test]
    fn a_cycle_is_shown_in_sentences() {
        let lock = |name| LockKey { namespace: Namespace::default(), name: LockName::parse(name).expect("legal") };
        let link = |number, owner, metadata: &Metadata, name, why| {
            let party = (SessionId::new(0, number), Owner::parse(owner).expect("legal"));
            DeadlockLink::new(party, metadata, lock(name), why)
        };
        let ann = Metadata { who: "ann".into(), why: "é".repeat(40).into(), ..Metadata::default() };
        let cycle = [
            link(7, "build", &ann, "a", WaitReason::Holds),
            link(9, "test", &Metadata::default(), "b", WaitReason::StandsAhead),
        ];
        let first = format!("build (ann, session 7: {}) waits for a, held by test (session 9)", "é".repeat(32));
        let second = "test (session 9) waits for b, behind build (session 7)".to_owned();
        assert_eq!(DeadlockLink::sentences(&cycle), [first, second]);
        // The same locks, from wherever the search began, and each once.
        let [a, b] = cycle;
        for cycle in [vec![a.clone(), b.clone()], vec![b.clone(), a.clone()], vec![a.clone(), a, b]] {
            let refused = RefusedDeadlock::new(LogTime(1), WallTime(2), &cycle);
            assert_eq!(refused.locks, [lock("a"), lock("b")], "{cycle:?}");
        }
    }
}
