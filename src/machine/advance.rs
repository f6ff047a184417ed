//! The progress of a replay: owners finish, turns are granted, queues advance, and waits overtake others.
//!
//! A session overtakes, at other locks, what waits for one of its holds, and every wait behind that. So what a wait
//! overtakes depends on the other claims of its session: it can overtake some waits from the start of a replay, and
//! others only after the replay has granted further turns. From then on it can overtake them until the replay ends.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::Machine;
use super::replay::{Asks, ContestedClaim, ContestedClaims, Edge, Kept, Node, Passing, Replay, Turn, TurnId};
use crate::model::{Claim, LockKey, Mode, RequestId, SessionId, WaitReason};
use crate::state::{ClaimState, Lock, Waiter};

impl Replay<'_> {
    /// Runs the replay until nothing more can happen. Returns `false` if that takes too many steps.
    pub(super) fn run(&mut self) -> bool {
        (0..self.owners.len()).for_each(|owner| self.finish(owner));
        self.work.extend(0..self.queues.len());
        loop {
            while let Some(queue) = self.work.pop() {
                self.advance(queue);
                if !self.spend(1) {
                    return false;
                }
            }
            if !self.let_pass() {
                return self.steps_left != 0;
            }
        }
    }

    /// Finishes this owner if none of its needs is unmet, and then each parent that had only this need left.
    fn finish(&mut self, owner: usize) {
        let mut work = vec![owner];
        while let Some(owner) = work.pop() {
            let owner = &mut self.owners[owner];
            if owner.unmet != 0 || owner.finished {
                continue;
            }
            owner.finished = true;
            for Kept { queue, of_all, of_fair } in std::mem::take(&mut owner.keeps) {
                self.queues[queue].free += of_all;
                self.queues[queue].free_of_fair += of_fair;
                self.work.push(queue);
            }
            for parent in std::mem::take(&mut owner.parents) {
                self.owners[parent].unmet -= 1;
                work.push(parent);
            }
        }
    }

    /// Grants a turn that is not granted yet. The queues of its whole set may then advance, and its owner may finish.
    pub(super) fn grant(&mut self, at: TurnId) {
        let turn = &mut self.queues[at.queue].turns[at.turn];
        if std::mem::replace(&mut turn.granted, true) {
            return;
        }
        let owner = turn.owner;
        let queues = self.members(at).map(|member| member.queue).collect::<Vec<_>>();
        self.work.extend(queues);
        self.owners[owner].unmet -= 1;
        self.finish(owner);
    }

    /// Grants turns of the queue with this number in their order, while there is capacity.
    fn advance(&mut self, number: usize) {
        loop {
            let queue = &self.queues[number];
            let (at, next) = (TurnId { queue: number, turn: queue.next }, queue.next);
            let Some(turn) = queue.turns.get(next) else { return };
            let (barges, fits) = (turn.barges, turn.takes <= queue.free);
            if turn.granted {
                if queue.is_semaphore() && !self.is_whole(at) {
                    return;
                }
                self.advance_past(at);
            } else if barges {
                self.advance_barging(number);
                if !self.turn(at).granted {
                    return;
                }
            } else if fits {
                self.grant(at);
            } else {
                return;
            }
        }
    }

    /// Advances past this turn. The capacity that its owner keeps becomes free once the owner finishes.
    fn advance_past(&mut self, at: TurnId) {
        self.steps_left = self.steps_left.saturating_sub(1);
        let queue = &mut self.queues[at.queue];
        queue.next += 1;
        let Turn { owner, keeps, barges, .. } = queue.turns[at.turn];
        let owner = &mut self.owners[owner];
        if keeps == 0 || owner.finished {
            return;
        }
        let kept = Kept { queue: at.queue, of_all: keeps, of_fair: if barges { 0 } else { keeps } };
        queue.free -= kept.of_all;
        queue.free_of_fair -= kept.of_fair;
        owner.keeps.push(kept);
    }

    /// Grants each turn of a run of barging turns that would be granted if it were the first of the run.
    fn advance_barging(&mut self, number: usize) {
        let queue = &mut self.queues[number];
        queue.barging_end = queue.barging_end.max(queue.next);
        while let Some(turn) = queue.turns.get(queue.barging_end).filter(|turn| turn.barges) {
            queue.barging.push(Reverse((turn.takes, queue.barging_end)));
            queue.barging_end += 1;
        }
        loop {
            let queue = &mut self.queues[number];
            let Some(Reverse((takes, turn))) = queue.barging.peek().copied() else { return };
            if queue.free_of_fair < takes {
                return;
            }
            queue.barging.pop();
            self.grant(TurnId { queue: number, turn });
        }
    }
}

impl Machine {
    /// The locks where this session has a claim and where, in addition, a set of another request waits.
    fn find_contested_claims(&self, session: SessionId) -> ContestedClaims<'_> {
        let mut found: ContestedClaims<'_> = BTreeMap::new();
        let session = self.state.session(session);
        for (number, key, standing) in session.into_iter().flat_map(|session| session.claims()) {
            let Some(lock) = self.state.lock(key).filter(|lock| lock.queue.has_sets()) else { continue };
            // A hold is not in the queue, so every set that waits there belongs to another request.
            let (mode, has_other_sets) = match standing {
                ClaimState::Holding(token) => (lock.holders.get(&token).map(|holder| holder.request.mode), true),
                ClaimState::Waiting(place) => {
                    (lock.queue.get(&place).map(|waiter| waiter.request.mode), lock.has_other_sets(place))
                }
            };
            let contested = mode.filter(|_| has_other_sets).map(|mode| ContestedClaim { lock, number, mode, standing });
            found.entry(key).or_default().extend(contested);
        }
        found.retain(|_, contested| !contested.is_empty());
        found
    }
}

impl<'m> Replay<'m> {
    /// The other locks where a set waits and where this waiter's session has a claim of a request that is not the
    /// waiter's.
    pub(super) fn contested_locks(&mut self, at: &LockKey, waiter: &Waiter) -> Vec<(&'m LockKey, &'m Lock)> {
        let Some(RequestId { session, number }) = waiter.request.claim.request() else { return Vec::new() };
        if self.machine.state.session(session).is_none_or(|session| !session.has_several()) {
            return Vec::new();
        }
        let contested = self.contested_claims(session);
        let elsewhere = contested.iter().filter(|(key, _)| **key != at);
        let others = elsewhere.filter_map(|(key, claims)| {
            let other = claims.iter().find(|claim| claim.number != number)?;
            Some((*key, other.lock))
        });
        others.collect()
    }

    /// Returns the contested claims of a session. A replay searches for them only once.
    fn contested_claims(&mut self, session: SessionId) -> Rc<ContestedClaims<'m>> {
        if let Some(known) = self.contested.get(&session) {
            return Rc::clone(known);
        }
        let found = Rc::new(self.machine.find_contested_claims(session));
        self.spend(1 + self.machine.state.session(session).map_or(0, |session| session.locks));
        self.contested.insert(session, Rc::clone(&found));
        found
    }

    /// What this turn overtakes: waits for another lock where its session has a claim of another request, in a mode
    /// that conflicts with theirs, and every wait behind those.
    ///
    /// The turn overtakes them now if that claim already holds what they lack, or can hold it before any owner
    /// finishes. Otherwise it overtakes them once the claim is granted, or once other waits take the permits.
    pub(super) fn passing_of(&mut self, at: TurnId) -> Passing {
        let mut passing = Passing::default();
        let Asks::Waits(_, waiter) = self.turn(at).asks else { return passing };
        let Some(RequestId { session, number: own }) = waiter.request.claim.request() else { return passing };
        let (contested, here) = (self.contested_claims(session), self.queues[at.queue].key);
        let elsewhere = contested.iter().filter(|(key, _)| **key != here);
        for (key, claim) in elsewhere.flat_map(|(key, claims)| claims.iter().map(move |claim| (*key, claim))) {
            let this_claim = Claim::Request(RequestId { session, number: claim.number });
            let waiters = claim.lock.queue.iter().filter(|(_, waiter)| waiter.request.claim != this_claim);
            let awaited = waiters.filter(|(_, waiter)| claim.number != own && claim.is_awaited_by(waiter));
            let (mut awaited, mut starts) = (awaited.peekable(), Vec::new());
            while let Some((place, waiter)) = awaited.next() {
                starts.push((*place, key.clone(), waiter.request.claim));
                // One walk finds what is behind all shared waiters. A walk for each would take too many steps.
                if waiter.request.mode == Mode::Shared && awaited.peek().is_some() {
                    continue;
                }
                let first = self.granted_first(key, claim, (*place, waiter));
                // Whether the result for this waiter also covers the waiters behind it. If it is not shared, these are
                // all later waiters.
                let covers_behind = first.is_none() || claim.waiting_place().is_some();
                let mut steps = starts.len();
                starts.retain(|(place, _, _)| !passing.is_known(*place, first.as_deref()));
                if !starts.is_empty() {
                    let behind = self.machine.blocked_behind(std::mem::take(&mut starts));
                    let behind: BTreeSet<u64> = behind.into_keys().collect();
                    steps += behind.len() + first.as_ref().map_or(0, Vec::len);
                    match first {
                        None => passing.now.extend(behind),
                        Some(turns) => passing.once.push((turns, behind)),
                    }
                }
                if !self.spend(steps) {
                    return passing;
                }
                if covers_behind && waiter.request.mode != Mode::Shared {
                    break;
                }
            }
        }
        passing
    }

    /// The waiter can be overtaken because of this claim once it lacks what the claim holds. Returns the turns of which
    /// at least one must be granted before that; `None` if no grant is needed.
    fn granted_first(
        &self,
        key: &LockKey,
        claim: &ContestedClaim<'m>,
        (place, waiter): (u64, &Waiter),
    ) -> Option<Vec<TurnId>> {
        let queue = *self.queue_numbers.get(key)?;
        let turn = |place: &u64| self.queues[queue].turn_at(*place).map(|turn| TurnId { queue, turn });
        match (claim.waiting_place(), claim.mode) {
            (Some(own_place), _) => Some(vec![turn(&own_place)?]),
            (None, Mode::Permits(_)) if claim.lock.admits(waiter.request.mode) => {
                let head = claim.lock.queue.keys().next().filter(|head| **head != place);
                // If this waiter is the head, each later turn may take the permits that it needs.
                let Some(head) = head else { return claim.lock.queue.keys().skip(1).map(turn).collect() };
                // Otherwise the head is enough: its own result has the other turns, and covers this waiter behind it.
                Some(vec![turn(head)?])
            }
            (None, Mode::Exclusive | Mode::Shared | Mode::Permits(_)) => None,
        }
    }

    /// Grants the turns that can be granted because they overtake others. Returns `false` if it granted none, or if the
    /// steps were used up.
    pub(super) fn let_pass(&mut self) -> bool {
        let mut any = false;
        for queue in 0..self.queues.len() {
            for turn in self.queues[queue].passing.keys().copied().collect::<Vec<_>>() {
                let at = TurnId { queue, turn };
                if self.turn(at).granted {
                    continue;
                }
                // The search for blockers looks at every earlier turn of the queue.
                if !self.spend(turn) {
                    return false;
                }
                let blocked = self.blockers(at).next().is_some();
                if !blocked {
                    self.grant(at);
                    any = true;
                }
            }
        }
        any
    }

    /// The turns that let the turn at `at` overtake the wait at `other`, as soon as one of them is granted.
    pub(super) fn ways(&self, at: TurnId, other: TurnId) -> impl Iterator<Item = Edge> + '_ {
        let place = match self.turn(other).asks {
            Asks::Holds(_) => None,
            Asks::Waits(place, _) => Some(place),
        };
        let passing = self.queues[at.queue].passing.get(&at.turn).filter(|_| place.is_some());
        let once = passing.into_iter().flat_map(|passing| &passing.once);
        let once = once.filter(move |(_, behind)| place.is_some_and(|place| behind.contains(&place)));
        let turns = once.flat_map(|(turns, _)| turns).flat_map(|turn| self.members(*turn));
        turns.map(|turn| (Node::Turn(turn), WaitReason::StandsAhead))
    }
}

impl ContestedClaim<'_> {
    /// The sequence number of the claim, if it is a wait.
    fn waiting_place(&self) -> Option<u64> {
        match self.standing {
            ClaimState::Waiting(place) => Some(place),
            ClaimState::Holding(_) => None,
        }
    }

    /// Whether this waiter has to wait for the end of the claim, once that is a hold.
    fn is_awaited_by(&self, waiter: &Waiter) -> bool {
        match self.standing {
            ClaimState::Waiting(_) => self.mode.conflicts_with(waiter.request.mode),
            ClaimState::Holding(token) => waiter.waits_for(token, self.mode),
        }
    }
}

impl Passing {
    /// Whether this wait, and so every wait behind it, is already recorded as overtaken: now, or once one of these
    /// turns is granted.
    fn is_known(&self, place: u64, first: Option<&[TurnId]>) -> bool {
        match first {
            None => self.now.contains(&place),
            Some(first) => self.once.iter().any(|(turns, behind)| turns == first && behind.contains(&place)),
        }
    }

    /// Whether this turn overtakes the wait with this sequence number, after the grants so far.
    pub(super) fn passes(&self, replay: &Replay<'_>, place: u64) -> bool {
        let granted = |turns: &[TurnId]| turns.iter().any(|turn| replay.is_whole(*turn));
        let mut once = self.once.iter().filter(|(_, behind)| behind.contains(&place));
        self.now.contains(&place) || once.any(|(turns, _)| granted(turns))
    }
}
