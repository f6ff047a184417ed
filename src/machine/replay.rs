//! Finds which owners can finish. A replay takes every queue that the given owners depend on and grants waits; each
//! owner that can finish does so and releases what it holds. An owner that is left over can never finish.
//!
//! Everything in a replay only grows: finished owners, granted waits, free capacity. So its result does not depend on
//! the order. It grants everything that some real order could grant; an owner that is left over is stuck in every
//! order.
//!
//! A claim without a named owner, a wait with a time-out and a hold with its own deadline end automatically, so they
//! are left out. A wait that will get such a hold must be granted like any other, and keeps nothing afterwards.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::rc::Rc;

use super::Machine;
use crate::model::{FencingToken, Kind, LockKey, Mode, SessionId, WaitReason};
use crate::state::{ClaimState, Holder, Lock, Lookup, Owned, OwnerKey, Purpose, Waiter};

/// The capacity that an exclusive hold takes of a lock: more than all shared holds together can take.
const WHOLE: i64 = 1 << 40;

/// A replay that was run until nothing more can happen.
pub(super) struct Replay<'m> {
    pub(super) machine: &'m Machine,
    pub(super) owners: Vec<Replayed<'m>>,
    pub(super) numbers: Lookup<&'m OwnerKey, usize>,
    pub(super) queues: Vec<Queue<'m>>,
    pub(super) queue_numbers: Lookup<&'m LockKey, usize>,
    /// The turns of each waiting set, by its sequence number.
    pub(super) sets: Lookup<u64, Vec<TurnId>>,
    /// The locks where sessions have claims next to waiting sets.
    pub(super) contested: Lookup<SessionId, Rc<ContestedClaims<'m>>>,
    whole_queues: Vec<(&'m LockKey, &'m Lock)>,
    /// Queues that may advance.
    pub(super) work: Vec<usize>,
    pub(super) steps_left: usize,
}

pub(super) struct Replayed<'m> {
    pub(super) key: &'m OwnerKey,
    pub(super) owned: &'m Owned,
    /// The number of its waits that are not granted yet and of its nested runs that did not finish yet.
    pub(super) unmet: usize,
    pub(super) finished: bool,
    pub(super) waits: Vec<TurnId>,
    /// The capacity that it returns when it finishes.
    pub(super) keeps: Vec<Kept>,
    pub(super) parents: Vec<usize>,
}

/// Capacity of a queue that an owner keeps until it finishes.
pub(super) struct Kept {
    pub(super) queue: usize,
    pub(super) of_all: i64,
    /// The capacity as fair requests see it: zero if a barging wait keeps it.
    pub(super) of_fair: i64,
}

/// The claims for one lock that do not end automatically: first the holds, then the waits.
pub(super) struct Queue<'m> {
    pub(super) key: &'m LockKey,
    pub(super) lock: &'m Lock,
    pub(super) turns: Vec<Turn<'m>>,
    /// How many of the turns are holds.
    pub(super) holds: usize,
    /// Waits from this sequence number on are not among the turns yet.
    end: u64,
    /// The first turn that the queue has not advanced past. All turns before it are granted.
    pub(super) next: usize,
    /// Capacity that no unfinished turn before `next` keeps.
    pub(super) free: i64,
    /// Like `free`, but as if barging waits kept nothing.
    pub(super) free_of_fair: i64,
    /// The run of barging waits that begins at `next`, ordered by the capacity that they take.
    pub(super) barging: BinaryHeap<Reverse<(i64, usize)>>,
    /// The turn after the run of barging waits in `barging`.
    pub(super) barging_end: usize,
    /// Turns that may overtake others although those are ahead in the queue.
    pub(super) passing: BTreeMap<usize, Passing>,
}

/// One claim of a queue.
pub(super) struct Turn<'m> {
    pub(super) owner: usize,
    pub(super) asks: Asks<'m>,
    pub(super) mode: Mode,
    pub(super) barges: bool,
    pub(super) granted: bool,
    /// The capacity that must be free before it is granted.
    pub(super) takes: i64,
    /// The capacity that its owner keeps until it finishes: zero if the hold has its own deadline.
    pub(super) keeps: i64,
}

/// Whether a claim is a hold or a wait.
#[derive(Clone, Copy)]
pub(super) enum Asks<'m> {
    Holds(FencingToken),
    Waits(u64, &'m Waiter),
}

/// The sequence numbers of the waits that a wait overtakes.
#[derive(Default)]
pub(super) struct Passing {
    pub(super) now: BTreeSet<u64>,
    /// Pairs of turns and waits: it overtakes these waits once one of these turns is granted.
    pub(super) once: Vec<(Vec<TurnId>, BTreeSet<u64>)>,
}

/// The locks where a session has a claim and a set of another request waits, of the same session or of another.
pub(super) type ContestedClaims<'m> = BTreeMap<&'m LockKey, Vec<ContestedClaim<'m>>>;

/// A claim of a session for a lock where a set of another request waits.
pub(super) struct ContestedClaim<'m> {
    pub(super) lock: &'m Lock,
    pub(super) number: u64,
    pub(super) mode: Mode,
    /// Whether the claim is a hold or a wait.
    pub(super) standing: ClaimState,
}

/// A turn: its queue, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct TurnId {
    pub(super) queue: usize,
    pub(super) turn: usize,
}

/// What must happen before a turn is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Node {
    /// This owner must finish.
    Owner(usize),
    /// This turn must be granted.
    Turn(TurnId),
}

/// Something that must happen before a turn is granted, and why.
pub(super) type Edge = (Node, WaitReason);

impl Queue<'_> {
    pub(super) fn is_semaphore(&self) -> bool {
        self.lock.kind == Kind::Semaphore
    }

    /// The index of the turn that waits under this sequence number.
    pub(super) fn turn_at(&self, place: u64) -> Option<usize> {
        let found = self.turns.binary_search_by_key(&Some(place), |turn| match turn.asks {
            Asks::Holds(_) => None,
            Asks::Waits(place, _) => Some(place),
        });
        found.ok()
    }
}

impl Machine {
    /// Replays what these owners depend on. Returns `None` if that takes more steps than are left.
    pub(super) fn replay<'a>(
        &self,
        owners: impl IntoIterator<Item = &'a OwnerKey>,
        steps: &mut usize,
    ) -> Option<Replay<'_>> {
        let mut replay = Replay {
            machine: self,
            owners: Vec::new(),
            numbers: Lookup::default(),
            queues: Vec::new(),
            queue_numbers: Lookup::default(),
            sets: Lookup::default(),
            contested: Lookup::default(),
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
}

impl<'m> Replay<'m> {
    /// The number of an owner, if it has any claim.
    fn number(&mut self, owner: &OwnerKey) -> Option<usize> {
        self.number_if(owner, |_| true)
    }

    /// The number of the owner of a wait. An owner with a single claim gets no entry in the table of numbers, because
    /// no other claim refers to it.
    fn number_of_waiter(&mut self, owner: &OwnerKey) -> Option<usize> {
        self.number_if(owner, |owned| !owned.is_single())
    }

    /// The known number of an owner, or a new one, which is entered in the table if `is_entered` returns `true`.
    fn number_if(&mut self, owner: &OwnerKey, is_entered: impl Fn(&Owned) -> bool) -> Option<usize> {
        if let Some(number) = self.numbers.get(owner) {
            return Some(*number);
        }
        let (key, owned) = self.machine.state.index.owners.get_key_value(owner)?;
        let number = self.owners.len();
        let (waits, keeps, parents) = (Vec::new(), Vec::new(), Vec::new());
        self.owners.push(Replayed { key, owned, unmet: 0, finished: false, waits, keeps, parents });
        if is_entered(owned) {
            self.numbers.insert(key, number);
        }
        Some(number)
    }

    /// Uses up steps. Returns `false` once no step is left.
    pub(super) fn spend(&mut self, steps: usize) -> bool {
        self.steps_left = self.steps_left.saturating_sub(steps);
        self.steps_left != 0
    }

    /// Collects everything that the first owners depend on. Returns `false` if that takes too many steps.
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
                let passing = self.passing_of(TurnId { queue, turn });
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
        if owned.waits.len() == self.owners[number].waits.len() {
            return;
        }
        for (key, place) in &owned.waits {
            let known = self.queue_numbers.get(key).is_some_and(|queue| *place < self.queues[*queue].end);
            let Some((key, lock)) = machine.state.locks.get_key_value(key).filter(|_| !known) else { continue };
            // The first waiter of a lock without holders is granted in any case.
            let first = lock.holders.is_empty() && lock.queue.keys().next() == Some(place);
            if !first && lock.queue.get(place).is_some_and(|waiter| lock.endless_wait(waiter).is_some()) {
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
        let Some(owner) = holder.endless_owner().and_then(|owner| self.number(&owner)) else { return };
        let (mode, takes) = (holder.request.mode, takes(holder.request.mode));
        let turn = Turn { owner, asks: Asks::Holds(token), mode, barges: false, granted: true, takes, keeps: takes };
        self.queues[queue].turns.push(turn);
    }

    /// Adds the waits of the queue up to this sequence number.
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
        let Some(owner) = lock.endless_wait(waiter).and_then(|owner| self.number_of_waiter(&owner)) else { return };
        let at = TurnId { queue, turn: self.queues[queue].turns.len() };
        // An upgrade has its share of the lock already. So has a wait behind other waits of its owner, because it never
        // waits for those.
        let has = match waiter.purpose {
            Purpose::Upgrade(_) => 1,
            Purpose::Hold | Purpose::Set => self.kept_by_own(at, owner),
        };
        let takes = (takes(waiter.request.mode) - has).max(0);
        let keeps = if waiter.is_for_a_while() { 0 } else { takes };
        let (mode, barges) = (waiter.request.mode, waiter.barges());
        let turn = Turn { owner, asks: Asks::Waits(place, waiter), mode, barges, granted: false, takes, keeps };
        self.queues[queue].turns.push(turn);
        self.owners[owner].unmet += 1;
        self.owners[owner].waits.push(at);
        if waiter.purpose == Purpose::Set {
            self.sets.entry(place).or_default().push(at);
        }
        if lock.queue.has_sets() {
            let elsewhere = self.contested_locks(self.queues[queue].key, waiter);
            if !elsewhere.is_empty() || (barges && mode == Mode::Shared) {
                self.queues[queue].passing.insert(at.turn, Passing::default());
            }
            self.whole_queues.extend(elsewhere);
        }
    }

    /// The capacity of this lock that earlier waits of the same owner keep.
    fn kept_by_own(&self, at: TurnId, owner: usize) -> i64 {
        let (queue, Replayed { owned, waits, .. }) = (&self.queues[at.queue], &self.owners[owner]);
        let several = 1 < owned.waits.len() && 1 < owned.waits_at(queue.key).take(2).count();
        if queue.is_semaphore() || !several {
            return 0;
        }
        let earlier = waits.iter().filter(|other| other.queue == at.queue);
        earlier.map(|other| queue.turns[other.turn].keeps).sum()
    }
}

/// The capacity of a lock or semaphore that a mode takes.
fn takes(mode: Mode) -> i64 {
    match mode {
        Mode::Exclusive => WHOLE,
        Mode::Shared => 1,
        Mode::Permits(count) => i64::from(count),
    }
}
