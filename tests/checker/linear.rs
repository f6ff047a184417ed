//! Checks whether the operations that clients saw on one lock are linearizable: whether they could have happened one
//! after the other, each between its call and its answer. It uses the search of Wing and Gong, with Lowe's memory of
//! tried states. It knows neither log nor nodes, so it is independent of them.
//!
//! A call without an answer is left out if it may have had no effect; otherwise it may take effect at any later time.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Bound;
use std::time::Duration;

use lockkeeper::model::{FencingToken, LockName, Mode};

use super::{Rule, Violation};

/// One call of a client and its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) lock: LockName,
    pub(crate) did: Did,
    pub(crate) call: Duration,
    /// When the call was answered. If `None`, it may have taken effect at any time since the call, or never.
    pub(crate) answered: Option<Duration>,
}

/// The result of a call, as the client saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Did {
    /// The client acquired the lock.
    Acquire(FencingToken, Mode),
    /// The client released the lock, or stopped being sure that it holds it.
    End(FencingToken),
    /// The client read the holders of the lock.
    Look(BTreeSet<FencingToken>),
}

/// The holders of one lock that clients know of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct State {
    holders: BTreeSet<FencingToken>,
    shared: bool,
    newest: Option<FencingToken>,
}

impl State {
    /// The state after the operation; `None` if the operation is impossible in this state. `known` are the grants that
    /// some client received.
    fn after(&self, did: &Did, known: &BTreeSet<FencingToken>) -> Option<Self> {
        let mut next = self.clone();
        match did {
            Did::Acquire(token, mode) => {
                let shared = *mode == Mode::Shared;
                let free = self.holders.is_empty() || (shared && self.shared);
                // Tokens increase, so a grant that skips the token of a known grant makes that one impossible.
                let after = self.newest.map_or(Bound::Unbounded, Bound::Excluded);
                let passed = known.range((after, Bound::Unbounded)).next().is_some_and(|next| next < token);
                if !free || Some(*token) <= self.newest || passed {
                    return None;
                }
                next.holders.insert(*token);
                (next.shared, next.newest) = (shared, Some(*token));
            }
            Did::End(token) => {
                if !next.holders.remove(token) {
                    return None;
                }
            }
            // A read also sees holders whose grant no client received; these are not compared.
            Did::Look(seen) => {
                if seen.intersection(known).ne(&self.holders) {
                    return None;
                }
            }
        }
        Some(next)
    }
}

/// The operations known at a time before which all calls are recorded. A later answer may depend on calls that are not
/// recorded, so it is treated as not received yet.
pub(super) fn until(operations: &[Operation], known: Duration) -> Vec<Operation> {
    let called = operations.iter().filter(|operation| operation.call < known).cloned();
    let answered = |answered: Option<Duration>| answered.filter(|answered| *answered < known);
    called.map(|operation| Operation { answered: answered(operation.answered), ..operation }).collect()
}

/// Average number of tries for each operation of a lock, after which the search ends without a result.
const TRIES_PER_OPERATION: usize = 2_000;

/// The operations, sorted by their calls, that have happened: all before `frontier` except those in `left`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct Happened {
    frontier: usize,
    left: Vec<usize>,
}

impl Happened {
    fn and(&self, at: usize) -> Self {
        let mut next = self.clone();
        if self.frontier <= at {
            next.left.extend(self.frontier..at);
            next.frontier = at + 1;
        } else {
            next.left.retain(|left| *left != at);
        }
        next
    }

    /// The operations that may happen next: they were called before any operation that has not happened was answered.
    /// Also returns the one of them that was answered first.
    fn next(&self, operations: &[&Operation]) -> (Vec<usize>, Option<usize>) {
        let (mut next, mut first) = (Vec::new(), None::<(Duration, usize)>);
        for at in self.left.iter().copied().chain(self.frontier..operations.len()) {
            if first.is_some_and(|(answered, _)| answered < operations[at].call) {
                break;
            }
            next.push(at);
            let earlier = |answered: &Duration| first.is_none_or(|(known, _)| *answered < known);
            if let Some(answered) = operations[at].answered.filter(earlier) {
                first = Some((answered, at));
            }
        }
        next.retain(|at| first.is_none_or(|(answered, _)| operations[*at].call <= answered));
        (next, first.map(|(_, at)| at))
    }
}

/// The locks whose operations have no possible order, or none that the search found.
pub(super) fn broken(operations: &[Operation]) -> Vec<Violation> {
    let mut by_lock: BTreeMap<&LockName, Vec<&Operation>> = BTreeMap::new();
    for operation in operations {
        by_lock.entry(&operation.lock).or_default().push(operation);
    }
    let stuck = by_lock.into_iter().filter_map(|(lock, operations)| Some((lock, stuck_at(operations)?)));
    let violation = |(lock, at): (&LockName, String)| {
        let what = format!("{lock}: no order of the operations is possible, {at}");
        Violation { rule: Rule::Linearizable, what }
    };
    stuck.map(violation).collect()
}

/// The operation at which every order ends; `None` if one order contains all operations.
fn stuck_at(mut operations: Vec<&Operation>) -> Option<String> {
    operations.sort_by_key(|operation| operation.call);
    // A grant that no client received restricts nothing: what it excludes waits for an end that was not called yet.
    operations.retain(|operation| operation.answered.is_some() || !matches!(operation.did, Did::Acquire(..)));
    let granted = |operation: &&Operation| match &operation.did {
        Did::Acquire(token, _) => Some(*token),
        Did::End(_) | Did::Look(_) => None,
    };
    let known: BTreeSet<FencingToken> = operations.iter().filter_map(granted).collect();
    let end = operations.iter().filter(|operation| operation.answered.is_some()).count();
    let mut tried = HashSet::new();
    // The operations that have happened, how many of these were answered, and the state.
    let mut open = vec![(Happened::default(), 0, State::default())];
    let mut furthest = (0, operations.first().copied());
    while let Some((happened, answered, state)) = open.pop() {
        if answered == end {
            return None;
        }
        if operations.len() * TRIES_PER_OPERATION < tried.len() {
            return Some(format!("the search ended undecided: it had reached {:?}", furthest.1));
        }
        let (next, first) = happened.next(&operations);
        if furthest.0 <= answered {
            furthest = (answered, first.map(|first| operations[first]));
        }
        // The last one is tried first, and the operation with the earliest call is the likeliest next one.
        for at in next.into_iter().rev() {
            let Some(after) = state.after(&operations[at].did, &known) else { continue };
            let happened = happened.and(at);
            if tried.insert((happened.clone(), after.clone())) {
                open.push((happened, answered + usize::from(operations[at].answered.is_some()), after));
            }
        }
    }
    Some(format!("at the latest up to {:?}", furthest.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(counter: u64) -> FencingToken {
        FencingToken::new(0, counter)
    }

    fn at(call: u64, answered: u64, did: Did) -> Operation {
        let ms = Duration::from_millis;
        let lock = LockName::parse("red").expect("a name");
        Operation { lock, did, call: ms(call), answered: Some(ms(answered)) }
    }

    fn acquire(counter: u64) -> Did {
        Did::Acquire(token(counter), Mode::Exclusive)
    }

    fn look<const N: usize>(counters: [u64; N]) -> Did {
        Did::Look(counters.map(token).into())
    }

    fn unanswered(operation: Operation) -> Operation {
        Operation { answered: None, ..operation }
    }

    /// Overlapping calls may happen in either order; calls without an answer at any later time or never.
    #[test]
    fn a_possible_history_is_accepted() {
        let good = [
            at(0, 10, acquire(1)),
            // The release was called before the next grant and answered after it.
            at(20, 60, Did::End(token(1))),
            at(5, 40, acquire(2)),
            at(30, 65, look([2])),
            at(15, 70, look([1])),
            unanswered(at(80, 0, Did::End(token(2)))),
            at(90, 300, Did::Acquire(token(4), Mode::Shared)),
            at(100, 310, Did::Acquire(token(5), Mode::Shared)),
            // No client received token 3.
            at(82, 85, look([2, 3])),
            at(311, 320, look([4, 5])),
        ];
        assert_eq!(broken(&good), []);
    }

    /// Two holders at once, a token that decreases, and a read of an earlier holder are impossible in every order.
    #[test]
    fn an_impossible_history_is_found() {
        let overlap = [at(0, 10, acquire(1)), at(11, 20, acquire(2)), at(30, 40, Did::End(token(1)))];
        let backwards = [at(0, 10, acquire(2)), at(11, 12, Did::End(token(2))), at(13, 20, acquire(1))];
        let stale = [at(0, 10, acquire(1)), at(11, 12, Did::End(token(1))), at(13, 20, look([1]))];
        let blind = [at(0, 10, acquire(1)), at(11, 12, look([])), unanswered(at(20, 0, Did::End(token(1))))];
        let too_early = [at(0, 10, acquire(1)), at(11, 12, Did::Acquire(token(2), Mode::Shared))];
        for bad in [&overlap[..], &backwards, &stale, &blind, &too_early] {
            let rules: Vec<_> = broken(bad).into_iter().map(|violation| violation.rule).collect();
            assert_eq!(rules, [Rule::Linearizable], "{bad:?}");
        }
    }

    /// During a run, an operation that depends on calls that are not recorded yet is no violation; other violations are
    /// found.
    #[test]
    fn an_unfinished_history_is_judged_up_to_its_known_end() {
        let ms = Duration::from_millis;
        // Token 1 was released at 30 by a call that is not recorded yet.
        let good = [at(0, 10, acquire(1)), at(5, 40, acquire(2))];
        assert_eq!(broken(&until(&good, ms(30))), []);
        let bad = [&good[..], &[at(11, 20, look([]))]].concat();
        assert_eq!(broken(&until(&bad, ms(30))).len(), 1);
    }

    /// Each lock is checked separately.
    #[test]
    fn each_lock_is_checked_separately() {
        let other = Operation { lock: LockName::parse("green").expect("a name"), ..at(11, 20, acquire(2)) };
        assert_eq!(broken(&[at(0, 10, acquire(1)), other]), []);
    }

    /// Long histories with many concurrent calls are checked quickly, both possible and impossible ones.
    #[test]
    fn long_histories_are_judged() {
        let mut long = Vec::new();
        for turn in 0..120_u64 {
            let begin = turn * 10;
            long.push(at(begin.saturating_sub(35), begin + 3, acquire(turn + 1)));
            long.push(at(begin + 5, begin + 25, Did::End(token(turn + 1))));
            long.push(at(begin, begin + 40, look([turn + 1])));
        }
        assert_eq!(broken(&long), []);
        long.push(at(600, 601, look([1])));
        assert_eq!(broken(&long).len(), 1);
    }

    /// The history of a run of many minutes is checked, too, although some of its ends were never answered.
    #[test]
    fn a_run_of_many_minutes_is_judged() {
        let mut long = Vec::new();
        for turn in 0..20_000_u64 {
            let begin = turn * 10;
            long.push(at(begin.saturating_sub(35), begin + 3, acquire(turn + 1)));
            let end = at(begin + 5, begin + 25, Did::End(token(turn + 1)));
            long.push(if turn % 10 == 0 { unanswered(end) } else { end });
        }
        assert_eq!(broken(&long), []);
    }
}
