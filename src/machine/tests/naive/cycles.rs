//! Owners that wait for each other.

use std::collections::BTreeSet;

use super::*;

impl Naive {
    /// Undoes the newest wait if it closes a cycle, or is for a lock that an ancestor holds.
    pub(super) fn take_back(&mut self) -> Option<Outcome> {
        let newest = self.waits.last().expect("just pushed");
        let (claim, sequence, policy) = (newest.ask.claim, newest.sequence, newest.ask.extras.deadlock);
        let parts: Vec<&Wait> =
            self.waits.iter().filter(|wait| wait.ask.claim == claim && wait.sequence == sequence).collect();
        let cycle = parts.iter().any(|wait| {
            self.asks_an_ancestor(&wait.ask) || endless_wait(wait).is_some_and(|party| self.in_cycle(&party))
        });
        if policy == OnDeadlock::Wait || !cycle {
            return None;
        }
        self.waits.retain(|wait| wait.ask.claim != claim || wait.sequence != sequence);
        self.sequences -= u64::from(sequence != 0);
        self.forget_limits();
        Some(Outcome::Refused(Refusal::Deadlock { cycle: vec![] }))
    }

    /// Records that something changes at this lock. If a set waits for the lock, or waited until now, sessions may
    /// overtake fewer waiters afterwards.
    pub(super) fn changes(&mut self, lock: &LockKey, session: Option<SessionId>) {
        if self.changed.contains(lock) || self.waits.iter().any(|wait| wait.ask.set && wait.ask.lock == *lock) {
            self.changed.push(lock.clone());
            self.changed_sessions.extend(session);
        }
    }

    /// Records that this wait ends, together with all of its set.
    pub(super) fn wait_changes(&mut self, at: usize) {
        let ended = &self.waits[at].ask;
        let parts = self.waits.iter().map(|wait| &wait.ask);
        let parts = parts.filter(|ask| ask.claim == ended.claim && (ended.set || ask.lock == ended.lock));
        let parts: Vec<_> = parts.map(|ask| (ask.lock.clone(), ask.claim.session())).collect();
        parts.iter().for_each(|(lock, session)| self.changes(lock, *session));
    }

    /// Owners that may overtake fewer waiters than before. Such an owner waits at a lock where a set waits, or waited
    /// until now. Its session has another request in the namespace of a change, or had one that changed.
    fn may_pass_fewer(&mut self) -> Vec<Party> {
        let (changed, sessions) = (std::mem::take(&mut self.changed), std::mem::take(&mut self.changed_sessions));
        let of_set = |lock: &LockKey| self.waits.iter().any(|wait| wait.ask.set && wait.ask.lock == *lock);
        let near = |lock: &LockKey| changed.iter().any(|other| other.namespace == lock.namespace);
        let there = |lock: &LockKey| changed.contains(lock) || (near(lock) && of_set(lock));
        let several = |id: SessionId| {
            let asks = self.holds.iter().map(|hold| &hold.ask).chain(self.waits.iter().map(|wait| &wait.ask));
            let claims: BTreeSet<Claim> =
                asks.filter(|ask| ask.claim.session() == Some(id)).map(|ask| ask.claim).collect();
            1 < claims.len()
        };
        let waits = self.waits.iter().filter(|wait| {
            let session = wait.ask.claim.session();
            there(&wait.ask.lock) && session.is_some_and(|id| sessions.contains(&id) || several(id))
        });
        waits.filter_map(endless_wait).collect()
    }

    /// All waits, with queue and sequence number.
    pub(in super::super) fn waiting(&self) -> Vec<(LockKey, u64, Claim)> {
        let mut waits: Vec<_> =
            self.waits.iter().map(|wait| (wait.ask.lock.clone(), wait.sequence, wait.ask.claim)).collect();
        waits.sort_by_key(|(lock, at, _)| (lock.clone(), *at));
        waits
    }

    /// Refuses a wait of an owner in a cycle. Owners that gained a hold are checked first, so that the one that closed
    /// the cycle is refused. Then owners are checked that overtake fewer waiters than before.
    pub(super) fn refuse_in_cycles(&mut self) -> bool {
        if self.refuse_a_suspect() {
            return true;
        }
        self.suspects = self.may_pass_fewer();
        self.refuse_a_suspect()
    }

    fn refuse_a_suspect(&mut self) -> bool {
        let mut nesting = vec![];
        while !self.suspects.is_empty() {
            self.suspects.sort();
            self.suspects.dedup();
            let party = self.suspects.remove(0);
            if !self.in_cycle(&party) {
                continue;
            }
            let mine = |wait: &Wait| {
                endless_wait(wait).as_ref() == Some(&party) && wait.ask.extras.deadlock == OnDeadlock::Refuse
            };
            let waits = self.waits.iter().enumerate().filter(|(_, wait)| mine(wait));
            let newest = waits.max_by_key(|(_, wait)| (wait.sequence, wait.ask.lock.clone())).map(|(at, _)| at);
            if let Some(at) = newest {
                self.end_wait(at, Outcome::Refused(Refusal::Deadlock { cycle: vec![] }));
                self.suspects.push(party);
                return true;
            }
            nesting.push(party);
            let runs = self.children(&nesting[nesting.len() - 1]);
            self.suspects.extend(runs.into_iter().filter(|run| !nesting.contains(run)));
        }
        false
    }

    pub(super) fn children(&self, of: &Party) -> Vec<Party> {
        let holds = self.holds.iter().filter(|hold| endless_hold(hold).is_some()).map(|hold| &hold.ask);
        let asks = holds.chain(
            self.waits.iter().filter(|wait| endless_wait(wait).is_some() && !is_leased(wait)).map(|wait| &wait.ask),
        );
        let mine = |ask: &&Ask| {
            let parent = ask.extras.parent.as_ref();
            parent.is_some_and(|parent| parent.session == of.0 && parent.owner == of.1)
        };
        asks.filter(mine).filter_map(party).filter(|child| child != of).collect()
    }

    pub(super) fn asks_an_ancestor(&self, ask: &Ask) -> bool {
        let (Some(parent), Some(_), false) = (&ask.extras.parent, party(ask), is_semaphore(ask.mode)) else {
            return false;
        };
        let mut ancestors = vec![(parent.session, parent.owner.clone())];
        if party(ask).as_ref() == ancestors.first() {
            return false;
        }
        let parties = self.all_parties();
        while let Some(next) = parties.iter().find(|party| {
            !ancestors.contains(party) && self.children(party).iter().any(|child| ancestors.contains(child))
        }) {
            ancestors.push(next.clone());
        }
        let mut holds = self.holds.iter().filter(|hold| hold.ask.lock == ask.lock && conflict(hold.ask.mode, ask.mode));
        holds.any(|hold| endless_hold(hold).is_some_and(|party| ancestors.contains(&party)))
    }

    pub(super) fn all_parties(&self) -> Vec<Party> {
        let asks = self.holds.iter().map(|hold| &hold.ask).chain(self.waits.iter().map(|wait| &wait.ask));
        let parents = asks.clone().filter_map(|ask| ask.extras.parent.clone()).map(|p| (p.session, p.owner));
        let mut parties: Vec<Party> = asks.filter_map(party).chain(parents).collect();
        parties.sort();
        parties.dedup();
        parties
    }

    /// Endless waits ahead of this one that it does not overtake, each with the waits whose grant would let it overtake
    /// them.
    pub(super) fn waits_ahead(&self, wait: &Wait) -> Vec<(&Wait, Party, Vec<&Wait>)> {
        let ask = &wait.ask;
        if wait.upgrades.is_some() {
            return vec![];
        }
        let ahead = self.waits.iter().filter(|o| o.ask.lock == ask.lock && o.sequence < wait.sequence);
        let fair = |o: &Wait| ask.extras.fairness == Fairness::Barging && !o.ask.set && o.upgrades.is_none();
        let blocks = ahead.filter(|o| fair(o) || conflict(o.ask.mode, ask.mode)).filter(|o| !passes(ask, &o.ask));
        let blocks = blocks.filter_map(|o| {
            let (now, once) = self.lets_pass(ask, o);
            Some((o, endless_wait(o).filter(|_| !now)?, once))
        });
        blocks.collect()
    }

    /// The waits that are granted together with this one: for a set, all of its waits.
    fn whole(&self, wait: &Wait) -> Vec<Node> {
        let of = |part: &&Wait| std::ptr::eq(*part, wait) || (wait.ask.set && part.ask.claim == wait.ask.claim);
        self.waits.iter().filter(of).map(node_of).collect()
    }

    /// What this wait still needs before it is granted, and whether enough of that is done.
    pub(super) fn in_the_way(&self, wait: &Wait, done: &[Node]) -> (Vec<Node>, bool) {
        let (ask, own) = (&wait.ask, endless_wait(wait));
        let is_done = |node: &Node| done.contains(node);
        let holds: Vec<(&Hold, Party)> = self
            .holds
            .iter()
            .filter(|hold| hold.ask.lock == ask.lock)
            .filter_map(|hold| Some((hold, endless_hold(hold)?)))
            .collect();
        let ahead = self.waits_ahead(wait);
        // Ways to pass a wait ahead: everything of one way must be done. Either the wait ahead ends, or a grant allows
        // overtaking it.
        let ways = |first: Vec<Node>, once: &[&Wait]| -> Vec<Vec<Node>> {
            std::iter::once(first).chain(once.iter().map(|wait| self.whole(wait))).collect()
        };
        let any = |ways: &[Vec<Node>]| ways.iter().any(|way| way.iter().all(is_done));
        let Mode::Permits(count) = ask.mode else {
            let others = holds.into_iter().filter(|(hold, _)| wait.upgrades != Some(hold.token));
            let held = others.filter(|(hold, _)| conflict(hold.ask.mode, ask.mode)).map(|(_, party)| party);
            let ahead = ahead.into_iter().filter(|(_, party, _)| Some(party) != own.as_ref());
            let ahead = ahead.map(|(wait, party, once)| {
                // A hold with a deadline must only be granted, because it then ends automatically.
                let passes = !conflict(wait.ask.mode, ask.mode) || is_leased(wait);
                ways(vec![if passes { node_of(wait) } else { Node::Party(party) }], &once)
            });
            let found = held.map(|party| vec![vec![Node::Party(party)]]).chain(ahead);
            let unmet: Vec<Node> = found.filter(|ways| !any(ways)).flatten().flatten().collect();
            let met = unmet.is_empty();
            return (unmet, met);
        };
        let permits = |ask: &Ask| if let Mode::Permits(count) = ask.mode { count } else { 0 };
        let held = holds.iter().map(|(hold, party)| (permits(&hold.ask), vec![vec![Node::Party(party.clone())]]));
        let queued = ahead
            .iter()
            .filter(|(wait, ..)| !is_leased(wait))
            .map(|(wait, party, once)| (permits(&wait.ask), ways(vec![Node::Party(party.clone())], once)));
        let takers: Vec<_> = held.chain(queued).collect();
        let stuck: Vec<_> = takers.into_iter().filter(|(_, ways)| !any(ways)).collect();
        let left: u32 = stuck.iter().map(|(count, _)| count).sum();
        // All parts of a set ahead must be granted together.
        let grants = ahead.iter().map(|(wait, _, once)| ways(self.whole(wait), once)).filter(|ways| !any(ways));
        let mut unmet: Vec<Vec<Vec<Node>>> = grants.collect();
        if self.limit(&ask.lock).unwrap_or_default() < left + count {
            unmet.extend(stuck.into_iter().map(|(_, ways)| ways));
        }
        let met = unmet.is_empty();
        (unmet.into_iter().flatten().flatten().collect(), met)
    }

    /// Whether this party can never finish and waits, over other parties that cannot, for itself.
    pub(super) fn in_cycle(&self, party: &Party) -> bool {
        self.leads_round(party, &self.all_that_end())
    }

    /// All parties that can finish, and all waits that can be granted.
    fn all_that_end(&self) -> Vec<Node> {
        let mut nodes: Vec<Node> = self.all_parties().into_iter().map(Node::Party).collect();
        nodes.extend(self.waits.iter().filter(|wait| endless_wait(wait).is_some()).map(node_of));
        let mut done: Vec<Node> = Vec::new();
        while let Some(next) = nodes.iter().find(|node| !done.contains(node) && self.ends(node, &done).1) {
            done.push(next.clone());
        }
        done
    }

    fn leads_round(&self, party: &Party, done: &[Node]) -> bool {
        let start = Node::Party(party.clone());
        let mut reached = vec![start.clone()];
        let mut at = 0;
        while at < reached.len() {
            for next in self.ends(&reached[at], done).0 {
                if next == start && !done.contains(&start) {
                    return true;
                }
                if !done.contains(&next) && !reached.contains(&next) {
                    reached.push(next);
                }
            }
            at += 1;
        }
        false
    }

    /// The owners that are in a cycle.
    pub(in super::super) fn in_cycles(&self) -> Vec<Party> {
        let done = self.all_that_end();
        self.all_parties().into_iter().filter(|party| self.leads_round(party, &done)).collect()
    }

    /// Whether each link of a reported cycle is right: its owner waits for the next one in the reported way.
    pub(in super::super) fn is_way_round(&self, cycle: &[DeadlockLink]) -> bool {
        let done = self.all_that_end();
        let next = cycle.iter().skip(1).chain(cycle.first());
        let whole = cycle.len() < crate::limits::CYCLE_LINKS_MAX;
        cycle.iter().zip(next).take(if whole { cycle.len() } else { cycle.len() - 1 }).all(|(link, next)| {
            let (from, to) = ((link.session, link.owner.clone()), (next.session, next.owner.clone()));
            if link.why == WaitReason::Nested {
                return self.children(&from).contains(&to);
            }
            let mine = |wait: &&Wait| endless_wait(wait).as_ref() == Some(&from) && wait.ask.lock == link.lock;
            let ends = self.waits.iter().filter(mine).flat_map(|wait| self.ends(&node_of(wait), &done).0);
            ends.filter(|node| !done.contains(node)).any(|node| match node {
                Node::Party(party) => party == to,
                Node::Wait(claim, lock) => self.waits.iter().any(|wait| {
                    wait.ask.claim == claim && wait.ask.lock == lock && endless_wait(wait).as_ref() == Some(&to)
                }),
            })
        })
    }

    /// What must happen before this can, and whether it has happened.
    pub(super) fn ends(&self, node: &Node, done: &[Node]) -> (Vec<Node>, bool) {
        match node {
            Node::Wait(claim, lock) => {
                let found = |wait: &&Wait| wait.ask.claim == *claim && wait.ask.lock == *lock;
                self.in_the_way(self.waits.iter().find(found).expect("it waits"), done)
            }
            Node::Party(party) => {
                let waits = self.waits.iter().filter(|wait| endless_wait(wait).as_ref() == Some(party)).map(node_of);
                let found: Vec<Node> = waits.chain(self.children(party).into_iter().map(Node::Party)).collect();
                let met = found.iter().all(|node| done.contains(node));
                (found, met)
            }
        }
    }
}
