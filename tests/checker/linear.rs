//! Whether what clients saw of one lock could have happened one after the other, each between its call and its answer: the
//! search of Wing and Gong, with Lowe's memory of what was tried. It knows no log and no node: what it finds nobody could
//! have explained away.
//!
//! A call whose answer never came is left out where it may have had no effect, and otherwise may take effect at any later
//! time.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Bound;
use std::time::Duration;

use lockkeeper::model::{FencingToken, LockName, Mode};

use super::{Rule, Violation};

/// One call of a client, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) lock: LockName,
    pub(crate) did: Did,
    pub(crate) call: Duration,
    /// When it was answered; `None` where it was not: then it may have happened at any time since, or never.
    pub(crate) answered: Option<Duration>,
}

/// What a client did, as it was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Did {
    /// It got the lock.
    Acquire(FencingToken, Mode),
    /// It gave the lock back, or stopped being sure of it.
    End(FencingToken),
    /// It was told who holds the lock.
    Look(BTreeSet<FencingToken>),
}

/// Who holds one lock, of those that clients know of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
struct State {
    holders: BTreeSet<FencingToken>,
    shared: bool,
    newest: Option<FencingToken>,
}

impl State {
    /// What the operation makes of it; `None` where it could not have happened now. `known` are the grants that somebody
    /// was told of.
    fn after(&self, did: &Did, known: &BTreeSet<FencingToken>) -> Option<Self> {
        let mut next = self.clone();
        match did {
            Did::Acquire(token, mode) => {
                let shared = *mode == Mode::Shared;
                let free = self.holders.is_empty() || (shared && self.shared);
                // Tokens grow: whoever passes by one that was told leaves a grant that can never happen.
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
            // Who was never told of its grant is seen by others, and by nobody else.
            Did::Look(seen) => {
                if seen.intersection(known).ne(&self.holders) {
                    return None;
                }
            }
        }
        Some(next)
    }
}

/// What is known of operations at a time before which all calls are written down. What was answered later may have depended
/// on calls that are not: it is taken as not answered yet.
pub(super) fn until(operations: &[Operation], known: Duration) -> Vec<Operation> {
    let called = operations.iter().filter(|operation| operation.call < known).cloned();
    let answered = |answered: Option<Duration>| answered.filter(|answered| *answered < known);
    called.map(|operation| Operation { answered: answered(operation.answered), ..operation }).collect()
}

/// So many ways are tried for each operation of a lock, on the average; a search that needs more has found nothing.
const TRIES_PER_OPERATION: usize = 2_000;

/// Which of the operations, sorted by their calls, have happened: all before `frontier` but those `left` out.
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

    /// Those that may be the next to happen: called before any that has not happened was answered. And the one of these
    /// that was answered first.
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

/// The locks of whose operations there is no order, or none that can be found.
pub(super) fn broken(operations: &[Operation]) -> Vec<Violation> {
    let mut by_lock: BTreeMap<&LockName, Vec<&Operation>> = BTreeMap::new();
    for operation in operations {
        by_lock.entry(&operation.lock).or_default().push(operation);
    }
    let stuck = by_lock.into_iter().filter_map(|(lock, operations)| Some((lock, stuck_at(operations)?)));
    let violation = |(lock, at): (&LockName, String)| {
        let what = format!("{lock}: in no order could all of this have happened, {at}");
        Violation { rule: Rule::Linearizable, what }
    };
    stuck.map(violation).collect()
}

/// The operation beyond which no order gets; `None` where one gets to the end.
fn stuck_at(mut operations: Vec<&Operation>) -> Option<String> {
    operations.sort_by_key(|operation| operation.call);
    // A grant of which nobody was told yet restricts nobody: who it keeps out waits for an end that was not called yet.
    operations.retain(|operation| operation.answered.is_some() || !matches!(operation.did, Did::Acquire(..)));
    let granted = |operation: &&Operation| match &operation.did {
        Did::Acquire(token, _) => Some(*token),
        Did::End(_) | Did::Look(_) => None,
    };
    let known: BTreeSet<FencingToken> = operations.iter().filter_map(granted).collect();
    let end = operations.iter().filter(|operation| operation.answered.is_some()).count();
    let mut tried = HashSet::new();
    // What has happened, how many of these were answered, and what that came to.
    let mut open = vec![(Happened::default(), 0, State::default())];
    let mut furthest = (0, operations.first().copied());
    while let Some((happened, answered, state)) = open.pop() {
        if answered == end {
            return None;
        }
        if operations.len() * TRIES_PER_OPERATION < tried.len() {
            return Some(format!("as far as was tried, which was up to {:?}", furthest.1));
        }
        let (next, first) = happened.next(&operations);
        if furthest.0 <= answered {
            furthest = (answered, first.map(|first| operations[first]));
        }
        // Tried last to first: of what may come next, the earliest call is the likeliest.
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

    /// Overlapping calls may have happened in either order; answers that were lost, at any later time or never.
    #[test]
    fn what_could_have_happened_is_good() {
        let good = [
            at(0, 10, acquire(1)),
            // The release was answered after the next one had its grant, and was called before.
            at(20, 60, Did::End(token(1))),
            at(5, 40, acquire(2)),
            at(30, 65, look([2])),
            at(15, 70, look([1])),
            unanswered(at(80, 0, Did::End(token(2)))),
            at(90, 300, Did::Acquire(token(4), Mode::Shared)),
            at(100, 310, Did::Acquire(token(5), Mode::Shared)),
            // Nobody was told of token 3.
            at(82, 85, look([2, 3])),
            at(311, 320, look([4, 5])),
        ];
        assert_eq!(broken(&good), []);
    }

    /// Two that hold at once, a token that goes back, and a look at what is over are each in no order.
    #[test]
    fn what_could_not_have_happened_is_found() {
        let overlap = [at(0, 10, acquire(1)), at(11, 20, acquire(2)), at(30, 40, Did::End(token(1)))];
        let backwards = [at(0, 10, acquire(2)), at(11, 12, Did::End(token(2))), at(13, 20, acquire(1))];
        let stale = [at(0, 10, acquire(1)), at(11, 12, Did::End(token(1))), at(13, 20, look([1]))];
        let blind = [at(0, 10, acquire(1)), at(11, 12, look([])), unanswered(at(20, 0, Did::End(token(1))))];
        let beside = [at(0, 10, acquire(1)), at(11, 12, Did::Acquire(token(2), Mode::Shared))];
        for bad in [&overlap[..], &backwards, &stale, &blind, &beside] {
            let rules: Vec<_> = broken(bad).into_iter().map(|violation| violation.rule).collect();
            assert_eq!(rules, [Rule::Linearizable], "{bad:?}");
        }
    }

    /// While a run goes on, what waits for a call that is not written down yet breaks nothing, and what is over still does.
    #[test]
    fn an_unfinished_history_is_judged_as_far_as_it_is_known() {
        let ms = Duration::from_millis;
        // Token 1 was given back at 30 by a call that is not written down yet.
        let good = [at(0, 10, acquire(1)), at(5, 40, acquire(2))];
        assert_eq!(broken(&until(&good, ms(30))), []);
        let bad = [&good[..], &[at(11, 20, look([]))]].concat();
        assert_eq!(broken(&until(&bad, ms(30))).len(), 1);
    }

    /// Locks are looked at apart.
    #[test]
    fn other_locks_are_other_stories() {
        let other = Operation { lock: LockName::parse("green").expect("a name"), ..at(11, 20, acquire(2)) };
        assert_eq!(broken(&[at(0, 10, acquire(1)), other]), []);
    }

    /// A long history with many at a time is judged in no time, a good one and a bad one.
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

    /// So is one of a long run, in which some ends were never answered.
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
