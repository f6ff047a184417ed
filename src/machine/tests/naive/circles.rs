//! Owners that wait for each other.

use super::*;

impl Naive {
    /// Undoes the newest wait where it closes a circle, or asks for what an ancestor holds.
    pub(super) fn take_back(&mut self) -> Option<Outcome> {
        let newest = self.waits.last().expect("just pushed");
        let (claim, sequence, policy) = (newest.ask.claim, newest.sequence, newest.ask.extras.deadlock);
        let parts: Vec<&Wait> =
            self.waits.iter().filter(|wait| wait.ask.claim == claim && wait.sequence == sequence).collect();
        let circle = parts.iter().any(|wait| {
            self.asks_an_ancestor(&wait.ask) || endless_wait(wait).is_some_and(|party| self.in_circle(&party))
        });
        if policy == OnDeadlock::Wait || !circle {
            return None;
        }
        self.waits.retain(|wait| wait.ask.claim != claim || wait.sequence != sequence);
        self.sequences -= u64::from(sequence != 0);
        self.forget_limits();
        Some(Outcome::Refused(Refusal::Deadlock { circle: vec![] }))
    }

    pub(super) fn refuse_in_circles(&mut self) -> bool {
        self.suspect_loosened();
        self.suspects.sort();
        while !self.suspects.is_empty() {
            let party = self.suspects.remove(0);
            if !self.in_circle(&party) {
                continue;
            }
            let mine = |wait: &Wait| {
                endless_wait(wait).as_ref() == Some(&party) && wait.ask.extras.deadlock == OnDeadlock::Refuse
            };
            let waits = self.waits.iter().enumerate().filter(|(_, wait)| mine(wait));
            let newest = waits.max_by_key(|(_, wait)| (wait.sequence, wait.ask.lock.clone())).map(|(at, _)| at);
            if let Some(at) = newest {
                self.end_wait(at, Outcome::Refused(Refusal::Deadlock { circle: vec![] }));
                self.suspects.push(party);
                return true;
            }
        }
        false
    }

    pub(super) fn children(&self, of: &Party) -> Vec<Party> {
        let asks = self.holds.iter().map(|hold| &hold.ask).chain(self.waits.iter().map(|wait| &wait.ask));
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
        let everybody = self.everybody();
        while let Some(next) = everybody.iter().find(|party| {
            !ancestors.contains(party) && self.children(party).iter().any(|child| ancestors.contains(child))
        }) {
            ancestors.push(next.clone());
        }
        let mut holds = self.holds.iter().filter(|hold| hold.ask.lock == ask.lock && conflict(hold.ask.mode, ask.mode));
        holds.any(|hold| endless_hold(hold).is_some_and(|party| ancestors.contains(&party)))
    }

    pub(super) fn everybody(&self) -> Vec<Party> {
        let asks = self.holds.iter().map(|hold| &hold.ask).chain(self.waits.iter().map(|wait| &wait.ask));
        let parents = asks.clone().filter_map(|ask| ask.extras.parent.clone()).map(|p| (p.session, p.owner));
        let mut everybody: Vec<Party> = asks.filter_map(party).chain(parents).collect();
        everybody.sort();
        everybody.dedup();
        everybody
    }

    /// Endless waits ahead of this one that it may not come to pass.
    pub(super) fn waits_ahead(&self, wait: &Wait) -> Vec<(&Wait, Party)> {
        let ask = &wait.ask;
        if wait.upgrades.is_some() {
            return vec![];
        }
        let ahead = self.waits.iter().filter(|o| o.ask.lock == ask.lock && o.sequence < wait.sequence);
        let fair = |o: &Wait| ask.extras.fairness == Fairness::Barging && !o.ask.set && o.upgrades.is_none();
        let blocks = ahead.filter(|o| fair(o) || conflict(o.ask.mode, ask.mode));
        let blocks = blocks.filter(|o| !passes(ask, &o.ask) && !self.may_come_to_pass(ask, o));
        blocks.filter_map(|o| Some((o, endless_wait(o)?))).collect()
    }

    /// Whom or what this wait needs to come to an end; and whether enough of it has.
    pub(super) fn in_the_way(&self, wait: &Wait, done: &[Node]) -> (Vec<Node>, bool) {
        let (ask, own) = (&wait.ask, endless_wait(wait));
        let is_done = |party: &Party| done.contains(&Node::Party(party.clone()));
        let holds: Vec<(&Hold, Party)> = self
            .holds
            .iter()
            .filter(|hold| hold.ask.lock == ask.lock)
            .filter_map(|hold| Some((hold, endless_hold(hold)?)))
            .collect();
        let ahead = self.waits_ahead(wait);
        let Mode::Permits { count, .. } = ask.mode else {
            let others = holds.into_iter().filter(|(hold, _)| wait.upgrades != Some(hold.token));
            let held = others.filter(|(hold, _)| conflict(hold.ask.mode, ask.mode)).map(|(_, party)| party);
            let ahead = ahead.into_iter().filter(|(_, party)| Some(party) != own.as_ref());
            let ahead = ahead.map(
                |(wait, party)| {
                    if conflict(wait.ask.mode, ask.mode) { Node::Party(party) } else { node_of(wait) }
                },
            );
            let found: Vec<Node> = held.map(Node::Party).chain(ahead).collect();
            let met = found.iter().all(|node| done.contains(node));
            return (found, met);
        };
        let permits = |ask: &Ask| if let Mode::Permits { count, .. } = ask.mode { count } else { 0 };
        let held = holds.iter().map(|(hold, party)| (permits(&hold.ask), party));
        let takers: Vec<_> = held.chain(ahead.iter().map(|(wait, party)| (permits(&wait.ask), party))).collect();
        let stuck = |done: bool| -> u32 {
            takers.iter().filter(|(_, party)| !done || !is_done(party)).map(|(count, _)| count).sum()
        };
        let limit = self.limit(&ask.lock).unwrap_or_default();
        // A set that stands ahead goes with all its parts, or not at all.
        let parts = |ahead: &&Wait, part: &Wait| ahead.ask.set && part.ask.claim == ahead.ask.claim;
        let whole = |ahead: &Wait| -> Vec<Node> {
            let all = self.waits.iter().filter(|part| std::ptr::eq(*part, ahead) || parts(&ahead, part));
            all.map(node_of).collect()
        };
        let mut found: Vec<Node> = ahead.iter().flat_map(|(wait, _)| whole(wait)).collect();
        let granted = found.iter().all(|node| done.contains(node));
        if limit < stuck(false) + count {
            found.extend(takers.iter().map(|(_, party)| Node::Party((*party).clone())));
        }
        (found, granted && stuck(true) + count <= limit)
    }

    /// Whether this party can never finish, and waits, over others that cannot, for itself.
    pub(super) fn in_circle(&self, party: &Party) -> bool {
        let mut nodes: Vec<Node> = self.everybody().into_iter().map(Node::Party).collect();
        nodes.extend(self.waits.iter().filter(|wait| endless_wait(wait).is_some()).map(node_of));
        let mut done: Vec<Node> = Vec::new();
        while let Some(next) = nodes.iter().find(|node| !done.contains(node) && self.ends(node, &done).1) {
            done.push(next.clone());
        }
        let start = Node::Party(party.clone());
        let mut reached = vec![start.clone()];
        let mut at = 0;
        while at < reached.len() {
            for next in self.ends(&reached[at], &done).0 {
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

    /// What has to end before this can; and whether it has.
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
