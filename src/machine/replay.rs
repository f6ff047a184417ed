//! Which owners can finish: a replay of every queue that some owners depend on, in which each owner that can finish does so
//! and releases what it holds. An owner that is left can never finish.
//!
//! Everything in a replay only grows: finished owners, granted waits, free capacity. So its end does not depend on the order.
//! It grants whatever some real order could grant; an owner that is left is stuck in every order.
//!
//! Unnamed claims, bounded waits and leased holds end by themselves and are left out. A wait for a leased hold has to be
//! granted like any other, and then keeps nothing.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};
use std::rc::Rc;

use foldhash::fast::FixedState;

use super::Machine;
use super::lock::Lock;
use super::owners::{Owned, OwnerKey, endless_hold};
use super::queue::conflict;
use super::state::{Holder, Purpose, Standing, Waiter, request_of};
use crate::model::{Claim, FencingToken, LockKey, Mode, RequestId, SessionId, WaitsBecause};

/// What an exclusive hold takes of a lock: more than all shared ones together.
const WHOLE: i64 = 1 << 40;

/// A replay that has come to its end.
pub(super) struct Replay<'m> {
    pub(super) machine: &'m Machine,
    pub(super) owners: Vec<Replayed<'m>>,
    pub(super) numbers: HashMap<&'m OwnerKey, usize, FixedState>,
    pub(super) queues: Vec<Queue<'m>>,
    queue_numbers: HashMap<&'m LockKey, usize, FixedState>,
    /// The turns of each waiting set, by its place.
    pub(super) sets: HashMap<u64, Vec<At>, FixedState>,
    /// Where sessions have claims beside waiting sets.
    beside: HashMap<SessionId, Rc<BesideSets<'m>>, FixedState>,
    /// Queues that are replayed to their end.
    whole_queues: Vec<(&'m LockKey, &'m Lock)>,
    /// Queues that may advance.
    work: Vec<usize>,
    steps_left: usize,
}

/// One owner.
pub(super) struct Replayed<'m> {
    pub(super) key: &'m OwnerKey,
    pub(super) owned: &'m Owned,
    /// Its waits that were not granted, and nested runs that did not finish.
    unmet: usize,
    pub(super) finished: bool,
    pub(super) waits: Vec<At>,
    /// What it returns when it finishes: to which queue, how much, and whether as a barging wait.
    keeps: Vec<(usize, i64, bool)>,
    parents: Vec<usize>,
}

/// One lock: its endless holds, then its endless waits.
pub(super) struct Queue<'m> {
    pub(super) key: &'m LockKey,
    pub(super) lock: &'m Lock,
    pub(super) turns: Vec<Turn<'m>>,
    /// How many of the turns are holds.
    holds: usize,
    /// The first place that is not among the turns yet.
    end: u64,
    /// The first turn that was not passed yet: what is before it is granted.
    next: usize,
    /// Capacity that no unfinished turn before `next` keeps.
    free: i64,
    /// The same where barging waits keep nothing.
    free_of_fair: i64,
    /// Barging waits at `next`, by what they take.
    barging: BinaryHeap<Reverse<(i64, usize)>>,
    /// The end of that run.
    barging_end: usize,
    /// Turns that may pass others, besides by their place.
    pub(super) passing: BTreeMap<usize, Passing>,
}

/// One claim.
pub(super) struct Turn<'m> {
    pub(super) owner: usize,
    pub(super) asks: Asks<'m>,
    pub(super) mode: Mode,
    pub(super) barges: bool,
    pub(super) granted: bool,
    /// What has to be free before it is granted.
    pub(super) takes: i64,
    /// What its owner keeps until it finishes; nothing where the hold ends by itself.
    pub(super) keeps: i64,
}

/// A claim as it stands.
#[derive(Clone, Copy)]
pub(super) enum Asks<'m> {
    Holds(FencingToken),
    Waits(u64, &'m Waiter),
}

/// A turn: its queue, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct At {
    pub(super) queue: usize,
    pub(super) turn: usize,
}

/// The places that a wait passes.
#[derive(Default)]
pub(super) struct Passing {
    pub(super) now: BTreeSet<u64>,
    /// Once one of these turns is granted.
    pub(super) once: Vec<(Vec<At>, BTreeSet<u64>)>,
}

type BesideSets<'m> = BTreeMap<&'m LockKey, Vec<Beside<'m>>>;

/// A claim at a lock where another request's set waits.
struct Beside<'m> {
    lock: &'m Lock,
    number: u64,
    mode: Mode,
    /// Its place, where it waits itself.
    waits: Option<u64>,
}

/// What has to come about before a turn is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    /// This owner finishes.
    Owner(usize),
    /// This turn is granted.
    Turn(At),
}

/// Something that is in the way of a turn, and how.
pub(super) type Edge = (Node, WaitsBecause);

impl Machine {
    /// Replays what these owners depend on. Returns `None` where that takes more steps than are left.
    pub(super) fn replay<'a>(
        &self,
        owners: impl IntoIterator<Item = &'a OwnerKey>,
        steps: &mut usize,
    ) -> Option<Replay<'_>> {
        let mut replay = Replay {
            machine: self,
            owners: Vec::new(),
            numbers: HashMap::default(),
            queues: Vec::new(),
            queue_numbers: HashMap::default(),
            sets: HashMap::default(),
            beside: HashMap::default(),
            whole_queues: Vec::new(),
            work: Vec::new(),
            steps_left: *steps,
        };
        for owner in owners {
            replay.number(owner);
        }
        let done = replay.collect() && replay.run();
        *steps = replay.steps_left;
        done.then_some(replay)
    }

    /// Where this session has claims at locks where sets of other requests wait.
    fn claims_beside_sets(&self, session: SessionId) -> BesideSets<'_> {
        let mut found: BesideSets<'_> = BTreeMap::new();
        let session = self.sessions.get(&session);
        for (number, key, standing) in session.into_iter().flat_map(|session| session.standings()) {
            let Some(lock) = self.locks.get(key).filter(|lock| lock.queue.has_sets()) else { continue };
            let (mode, waits) = match standing {
                Standing::Holds(token) => (lock.holders.get(&token).map(|holder| holder.mode), None),
                Standing::Waits(place) => (lock.queue.get(&place).map(|waiter| waiter.mode), Some(place)),
            };
            let others = waits.is_none_or(|place| lock.has_sets_beside(place));
            let beside = mode.filter(|_| others).map(|mode| Beside { lock, number, mode, waits });
            found.entry(key).or_default().extend(beside);
        }
        found.retain(|_, beside| !beside.is_empty());
        found
    }
}

impl<'m> Replay<'m> {
    /// The number of an owner, if it has any claim.
    pub(super) fn number(&mut self, owner: &OwnerKey) -> Option<usize> {
        if let Some(number) = self.numbers.get(owner) {
            return Some(*number);
        }
        let (key, owned) = self.machine.owners.get_key_value(owner)?;
        let number = self.owners.len();
        let (waits, keeps, parents) = (Vec::new(), Vec::new(), Vec::new());
        self.owners.push(Replayed { key, owned, unmet: 0, finished: false, waits, keeps, parents });
        self.numbers.insert(key, number);
        Some(number)
    }

    /// Counts steps. Returns `false` once none is left.
    pub(super) fn spend(&mut self, steps: usize) -> bool {
        self.steps_left = self.steps_left.saturating_sub(steps);
        self.steps_left != 0
    }

    pub(super) fn steps_left(&self) -> usize {
        self.steps_left
    }

    /// Finds everything that the first owners depend on. Returns `false` where that takes too many steps.
    fn collect(&mut self) -> bool {
        let mut explored = 0;
        loop {
            if let Some((key, lock)) = self.whole_queues.pop() {
                let queue = self.queue(key, lock);
                self.include(queue, u64::MAX);
            } else if explored < self.owners.len() {
                self.explore(explored);
                explored += 1;
            } else {
                break;
            }
            if self.steps_left == 0 {
                return false;
            }
        }
        for queue in 0..self.queues.len() {
            for turn in self.queues[queue].passing.keys().copied().collect::<Vec<_>>() {
                let passing = self.passing_of(At { queue, turn });
                self.queues[queue].passing.insert(turn, passing);
            }
        }
        self.steps_left != 0
    }

    fn explore(&mut self, number: usize) {
        self.spend(1);
        let (machine, owned) = (self.machine, self.owners[number].owned);
        for child in owned.endless_children() {
            let Some(child) = self.number(child) else { continue };
            self.owners[child].parents.push(number);
            self.owners[number].unmet += 1;
        }
        for (key, place) in &owned.waits {
            let known = self.queue_numbers.get(key).is_some_and(|queue| *place < self.queues[*queue].end);
            let Some((key, lock)) = machine.locks.get_key_value(key).filter(|_| !known) else { continue };
            if lock.queue.get(place).is_some_and(|waiter| lock.endless_wait(waiter).is_some()) {
                let queue = self.queue(key, lock);
                self.include(queue, *place);
            }
        }
    }

    fn queue(&mut self, key: &'m LockKey, lock: &'m Lock) -> usize {
        if let Some(number) = self.queue_numbers.get(key) {
            return *number;
        }
        let number = self.queues.len();
        let free = lock.limit.map_or(WHOLE, i64::from);
        self.queues.push(Queue {
            key,
            lock,
            turns: Vec::new(),
            holds: 0,
            end: 0,
            next: 0,
            free,
            free_of_fair: free,
            barging: BinaryHeap::new(),
            barging_end: 0,
            passing: BTreeMap::new(),
        });
        self.queue_numbers.insert(key, number);
        for (token, holder) in &lock.holders {
            self.spend(1);
            self.add_hold(number, *token, holder);
        }
        self.queues[number].holds = self.queues[number].turns.len();
        number
    }

    fn add_hold(&mut self, queue: usize, token: FencingToken, holder: &Holder) {
        let Some(owner) = endless_hold(holder).and_then(|owner| self.number(&owner)) else { return };
        let (mode, takes) = (holder.mode, takes(holder.mode));
        let turn = Turn { owner, asks: Asks::Holds(token), mode, barges: false, granted: true, takes, keeps: takes };
        self.queues[queue].turns.push(turn);
    }

    /// Takes the queue up as far as this place.
    fn include(&mut self, queue: usize, place: u64) {
        let (lock, end) = (self.queues[queue].lock, self.queues[queue].end);
        if place < end {
            return;
        }
        for (place, waiter) in lock.queue.range(end..=place) {
            self.spend(1);
            self.add_wait(queue, *place, waiter);
        }
        self.queues[queue].end = place.saturating_add(1);
    }

    fn add_wait(&mut self, queue: usize, place: u64, waiter: &'m Waiter) {
        let lock = self.queues[queue].lock;
        let Some(owner) = lock.endless_wait(waiter).and_then(|owner| self.number(&owner)) else { return };
        let at = At { queue, turn: self.queues[queue].turns.len() };
        // An upgrade has its share of the lock already. So has a wait behind others of its owner, which it never waits for.
        let has = match waiter.purpose {
            Purpose::Upgrade(_) => 1,
            Purpose::Hold | Purpose::Set => self.kept_by_own(at, owner),
        };
        let takes = (takes(waiter.mode) - has).max(0);
        let keeps = if waiter.is_leased() { 0 } else { takes };
        let (mode, barges) = (waiter.mode, waiter.barges());
        let turn = Turn { owner, asks: Asks::Waits(place, waiter), mode, barges, granted: false, takes, keeps };
        self.queues[queue].turns.push(turn);
        self.owners[owner].unmet += 1;
        self.owners[owner].waits.push(at);
        if waiter.purpose == Purpose::Set {
            self.sets.entry(place).or_default().push(at);
        }
        if lock.queue.has_sets() {
            let elsewhere = self.may_pass_beside(self.queues[queue].key, waiter);
            if !elsewhere.is_empty() || (barges && mode == Mode::Shared) {
                self.queues[queue].passing.insert(at.turn, Passing::default());
            }
            self.whole_queues.extend(elsewhere);
        }
    }

    /// What earlier waits of the same owner keep of this lock.
    fn kept_by_own(&self, at: At, owner: usize) -> i64 {
        let (queue, Replayed { owned, waits, .. }) = (&self.queues[at.queue], &self.owners[owner]);
        let several = 1 < owned.waits.len() && 1 < owned.waits_at(queue.key).take(2).count();
        if queue.is_semaphore() || !several {
            return 0;
        }
        let earlier = waits.iter().filter(|other| other.queue == at.queue);
        earlier.map(|other| queue.turns[other.turn].keeps).sum()
    }

    /// The other locks where this waiter's session has another request beside waiting sets.
    fn may_pass_beside(&mut self, at: &LockKey, waiter: &Waiter) -> Vec<(&'m LockKey, &'m Lock)> {
        let Some((session, number)) = request_of(waiter.claim) else { return Vec::new() };
        if self.machine.sessions.get(&session).is_none_or(|session| session.requests() < 2) {
            return Vec::new();
        }
        let beside = self.beside_sets(session);
        let elsewhere = beside.iter().filter(|(key, _)| **key != at);
        let others = elsewhere.filter_map(|(key, beside)| {
            let other = beside.iter().find(|beside| beside.number != number)?;
            Some((*key, other.lock))
        });
        others.collect()
    }

    fn beside_sets(&mut self, session: SessionId) -> Rc<BesideSets<'m>> {
        if let Some(known) = self.beside.get(&session) {
            return Rc::clone(known);
        }
        let found = Rc::new(self.machine.claims_beside_sets(session));
        self.spend(1 + self.machine.sessions.get(&session).map_or(0, |session| session.locks()));
        self.beside.insert(session, Rc::clone(&found));
        found
    }

    /// What this turn passes: sets that wait at another lock where its session has a claim by another request, in a mode
    /// that conflicts with theirs, and every wait behind them. It passes them now where that claim holds what they lack, or
    /// may come to without an owner's end; otherwise once the claim is granted, or other waits take the permits.
    fn passing_of(&mut self, at: At) -> Passing {
        let mut passing = Passing::default();
        let Asks::Waits(_, waiter) = self.turn(at).asks else { return passing };
        let Some((session, own)) = request_of(waiter.claim) else { return passing };
        let (beside, here) = (self.beside_sets(session), self.queues[at.queue].key);
        let elsewhere = beside.iter().filter(|(key, _)| **key != here);
        for (key, claim) in elsewhere.flat_map(|(key, claims)| claims.iter().map(move |claim| (*key, claim))) {
            let theirs = Claim::Request(RequestId { session, number: claim.number });
            let sets = claim.lock.queue.iter().filter(|(_, set)| set.purpose == Purpose::Set && set.claim != theirs);
            for (place, set) in sets.filter(|(_, set)| claim.number != own && conflict(claim.mode, set.mode)) {
                let behind = self.machine.and_behind(vec![(*place, key.clone(), set.claim)]);
                let behind: BTreeSet<u64> = behind.into_keys().collect();
                let first = self.granted_first(key, claim, (*place, set));
                let steps = 1 + behind.len() + first.as_ref().map_or(0, Vec::len);
                match first {
                    None => passing.now.extend(behind),
                    Some(turns) => passing.once.push((turns, behind)),
                }
                if !self.spend(steps) {
                    return passing;
                }
            }
        }
        passing
    }

    /// The turns of which one has to be granted before the set lacks what this claim has; `None` where it does already, or
    /// may come to by itself.
    fn granted_first(&self, key: &LockKey, claim: &Beside<'m>, (place, set): (u64, &Waiter)) -> Option<Vec<At>> {
        let queue = *self.queue_numbers.get(key)?;
        let turn = |place: &u64| self.queues[queue].turn_at(*place).map(|turn| At { queue, turn });
        match (claim.waits, claim.mode) {
            (Some(waits), _) => Some(vec![turn(&waits)?]),
            (None, Mode::Permits { .. }) if claim.lock.admits(set.mode) => {
                claim.lock.queue.keys().filter(|other| **other != place).map(turn).collect()
            }
            (None, Mode::Exclusive | Mode::Shared | Mode::Permits { .. }) => None,
        }
    }

    /// Lets everything happen that can. Returns `false` where that takes too many steps.
    fn run(&mut self) -> bool {
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

    fn finish(&mut self, owner: usize) {
        let mut work = vec![owner];
        while let Some(owner) = work.pop() {
            let owner = &mut self.owners[owner];
            if owner.unmet != 0 || owner.finished {
                continue;
            }
            owner.finished = true;
            for (queue, keeps, barges) in std::mem::take(&mut owner.keeps) {
                self.queues[queue].free += keeps;
                self.queues[queue].free_of_fair += if barges { 0 } else { keeps };
                self.work.push(queue);
            }
            for parent in std::mem::take(&mut owner.parents) {
                self.owners[parent].unmet -= 1;
                work.push(parent);
            }
        }
    }

    fn grant(&mut self, at: At) {
        let turn = &mut self.queues[at.queue].turns[at.turn];
        if std::mem::replace(&mut turn.granted, true) {
            return;
        }
        let owner = turn.owner;
        let queues = self.members(&at).iter().map(|member| member.queue).collect::<Vec<_>>();
        self.work.extend(queues);
        self.owners[owner].unmet -= 1;
        self.finish(owner);
    }

    /// Grants turns of a queue in their order, as far as there is capacity.
    fn advance(&mut self, number: usize) {
        loop {
            let queue = &self.queues[number];
            let (at, next) = (At { queue: number, turn: queue.next }, queue.next);
            let Some(turn) = queue.turns.get(next) else { return };
            let (barges, fits) = (turn.barges, turn.takes <= queue.free);
            if turn.granted {
                if queue.is_semaphore() && !self.is_whole(at) {
                    return;
                }
                self.pass(at);
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

    /// Goes on to the next turn. What the owner of this one keeps is free once it finishes.
    fn pass(&mut self, at: At) {
        self.steps_left = self.steps_left.saturating_sub(1);
        let queue = &mut self.queues[at.queue];
        queue.next += 1;
        let Turn { owner, keeps, barges, .. } = queue.turns[at.turn];
        let owner = &mut self.owners[owner];
        if keeps == 0 || owner.finished {
            return;
        }
        queue.free -= keeps;
        queue.free_of_fair -= if barges { 0 } else { keeps };
        owner.keeps.push((at.queue, keeps, barges));
    }

    /// Of neighbours that barge, each is granted that would be if it were the first of them.
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
            self.grant(At { queue: number, turn });
        }
    }

    /// Grants turns that pass others. Returns whether there was one.
    fn let_pass(&mut self) -> bool {
        let mut any = false;
        for queue in 0..self.queues.len() {
            for turn in self.queues[queue].passing.keys().copied().collect::<Vec<_>>() {
                let at = At { queue, turn };
                if self.turn(at).granted {
                    continue;
                }
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
}

/// How much of a lock or semaphore a mode takes.
fn takes(mode: Mode) -> i64 {
    match mode {
        Mode::Exclusive => WHOLE,
        Mode::Shared => 1,
        Mode::Permits { count, .. } => i64::from(count),
    }
}
