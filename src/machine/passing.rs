//! Whom a waiter may come to pass, as deadlock detection has to know it: whoever it passes is not in its way for ever.
//!
//! A session that holds what a waiting set lacks passes that set elsewhere, and everybody behind it. So whom it passes
//! changes with what it holds, with what sets wait, and with the permits that they lack: those changes are noted here, for
//! they may leave a circle that nothing breaks any more.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::Machine;
use super::graph::{Beside, Graph, Node};
use super::parties::waiting_party;
use super::queue::conflict;
use super::state::{Purpose, Standing, Waiter, request_of};
use crate::model::{Claim, LockKey, Mode, RequestId, SessionId};

/// Whom a waiter passes, by place: now, and once something else is granted.
#[derive(Default)]
pub(super) struct Passing {
    pub(super) now: BTreeSet<u64>,
    pub(super) once: Vec<(Node, BTreeSet<u64>)>,
}

impl Passing {
    pub(super) fn is_empty(&self) -> bool {
        self.now.is_empty() && self.once.is_empty()
    }

    /// Whether it was found that this place is passed, now or once one of these is granted, and so everybody behind it.
    fn is_known(&self, place: u64, grants: Option<&[Node]>) -> bool {
        match grants {
            None => self.now.contains(&place),
            Some([grant]) => self.once.iter().any(|(other, passed)| other == grant && passed.contains(&place)),
            Some(_) => false,
        }
    }
}

impl Machine {
    /// Whom this waiter passes here: sets that wait at another lock where its session stands by another request, in a mode
    /// that they conflict with, and everybody behind them. Now, where that request holds what they lack, or may come to
    /// without anybody's end; once it is granted, where it waits; once others are granted permits, where there are still
    /// enough for the set.
    pub(super) fn passing(&self, graph: &mut Graph, at: &LockKey, waiter: &Waiter) -> Passing {
        let mut passing = Passing::default();
        let Some((id, own)) = request_of(waiter.claim) else { return passing };
        if !self.may_pass_at(graph, at).contains(&id) {
            return passing;
        }
        let (most, mut looked_at) = (graph.left(), 0);
        let beside = graph.beside_sets.entry(id).or_insert_with(|| self.beside_sets(id));
        let elsewhere = beside.iter().filter(|(key, _)| *key != at).flat_map(|(_, beside)| beside);
        for beside in elsewhere.filter(|beside| beside.number != own) {
            looked_at += 1;
            if most <= looked_at {
                break;
            }
            let queue = self.locks.get(&beside.key).into_iter().flat_map(|lock| lock.queue.iter());
            let theirs = Claim::Request(RequestId { session: id, number: beside.number });
            let sets = queue.filter(|(_, set)| set.purpose == Purpose::Set && conflict(beside.mode, set.mode));
            for (place, set) in sets.filter(|(_, set)| set.claim != theirs) {
                if most <= looked_at {
                    break;
                }
                looked_at += 1;
                let grants = self.granted_before(beside, (*place, set));
                if passing.is_known(*place, grants.as_deref()) {
                    continue;
                }
                let passed: BTreeSet<u64> =
                    self.and_behind(vec![(*place, beside.key.clone(), set.claim)]).into_keys().collect();
                looked_at += passed.len();
                match grants {
                    None => passing.now.extend(passed),
                    Some(grants) => passing.once.extend(grants.into_iter().map(|grant| (grant, passed.clone()))),
                }
            }
        }
        graph.spend(looked_at);
        passing
    }

    /// Sessions that stand beside waiting sets at another lock than this one: nobody else passes anybody here.
    pub(super) fn may_pass_at(&self, graph: &mut Graph, at: &LockKey) -> Rc<BTreeSet<SessionId>> {
        if let Some(known) = graph.may_pass.get(at) {
            return Rc::clone(known);
        }
        let mut sessions = BTreeSet::new();
        for (_, lock) in self.shared_in(&at.namespace).filter(|(key, _)| *key != at) {
            graph.spend(lock.holders.len() + lock.queue.len());
            if graph.left() == 0 {
                break;
            }
            sessions.extend(lock.claims().filter_map(|claim| claim.session()));
        }
        let sessions = Rc::new(sessions);
        graph.may_pass.insert(at.clone(), Rc::clone(&sessions));
        sessions
    }

    /// The grants of which one is needed before the set lacks what this request has there; `None` where none is.
    fn granted_before(&self, beside: &Beside, (place, set): (u64, &Waiter)) -> Option<Vec<Node>> {
        let lock = self.locks.get(&beside.key)?;
        let others: Vec<u64> = match (beside.waits, beside.mode) {
            (Some(waits), _) => vec![waits],
            (None, Mode::Permits { .. }) if lock.admits(set.mode) => {
                lock.queue.keys().copied().filter(|other| *other != place).collect()
            }
            (None, Mode::Exclusive | Mode::Shared | Mode::Permits { .. }) => return None,
        };
        let endless = |at: &u64| lock.queue.get(at).and_then(waiting_party).is_some();
        let all_endless = others.iter().all(endless);
        all_endless.then(|| others.into_iter().map(|at| Node::Grant(beside.key.clone(), at)).collect())
    }

    /// Where this session stands beside waiting sets of others, by lock: its requests, and in which mode.
    fn beside_sets(&self, session: SessionId) -> BTreeMap<LockKey, Vec<Beside>> {
        let standings = self.sessions.get(&session).into_iter().flat_map(|session| session.standings());
        let mut found: BTreeMap<LockKey, Vec<Beside>> = BTreeMap::new();
        for (number, key, standing) in standings {
            let lock = self.locks.get(key).filter(|lock| lock.queue.has_sets());
            let stands = lock.and_then(|lock| match standing {
                Standing::Holds(token) => Some((lock.holders.get(&token)?.mode, None)),
                Standing::Waits(sequence) if lock.has_sets_beside(sequence) => {
                    Some((lock.queue.get(&sequence)?.mode, Some(sequence)))
                }
                Standing::Waits(_) => None,
            });
            if let Some((mode, waits)) = stands {
                found.entry(key.clone()).or_default().push(Beside { key: key.clone(), number, mode, waits });
            }
        }
        found
    }
}
