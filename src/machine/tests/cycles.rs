//! Deadlock detection, compared with the naive model, and with the state that is left when all owners that can finish
//! do so.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks at one answer among many")]

use std::collections::BTreeMap;

use super::mirror::{Watched, entry};
use super::naive::Naive;
use super::random::Random;
use crate::machine::Machine;
use crate::model::*;
use crate::state::ClaimState;

const SCENARIOS: u64 = 2_200;
pub(super) const COMMANDS_A_SCENARIO: u64 = 60;
pub(super) const SESSIONS: u64 = 5;
const LOCKS: [&str; 4] = ["a", "b", "c", "pool"];
const OWNERS: [&str; 2] = ["job", "task"];
const MS_A_COMMAND: u64 = 7;
/// All leases and lock-delays of a scenario end before this time, and all sessions end after it.
const LAST_END: LogTime = LogTime(30_000);

fn scenarios() -> u64 {
    let wanted = std::env::var("LOCKKEEPER_CYCLES").ok().and_then(|text| text.parse().ok());
    wanted.unwrap_or(SCENARIOS)
}

fn session(number: u64) -> SessionId {
    SessionId::new(0, number)
}

/// Opens the session with this number.
pub(super) fn open(number: u64) -> Command {
    Command::OpenSession(OpenSession {
        namespace: Namespace::default(),
        handle: Handle::from_random(number.into()),
        instance: Instance(1),
        ttl_ms: 60_000,
        disconnect_grace_ms: None,
        metadata: Metadata::default(),
        accepts_hand_over: false,
    })
}

pub(super) fn set_limit(limit: u32) -> Command {
    let lock = LockKey { namespace: Namespace::default(), name: LockName::parse("pool").expect("legal") };
    Command::Manage(Manage { lock, what: Managing::SetLimit { limit } })
}

/// A random scenario in which no session and no wait ends; only some leases do.
pub(super) struct Scenario {
    random: Random,
    numbers: BTreeMap<SessionId, u64>,
    /// Every claim has an owner, so that no cycle may be missed.
    all_named: bool,
    /// Whether requests may be for several locks together.
    sets: bool,
    /// Whether most requests are for permits, and half of them barge.
    contended: bool,
    /// Whether some holds are lost, so that a lock-delay keeps their names closed.
    delays: bool,
}

impl Scenario {
    /// The scenario with this number. The number also decides whether time passes in the scenario.
    pub(super) fn new(seed: u64) -> Self {
        let (third, contended, delays) = (seed % 3, seed % 4 == 3, seed % 5 < 2);
        let (all_named, sets) = (third != 2, third != 0);
        Self { random: Random(seed), numbers: BTreeMap::new(), all_named, sets, contended, delays }
    }

    /// The stamp of this command.
    pub(super) fn stamp(&self, at: u64) -> u64 {
        if self.delays { at * MS_A_COMMAND } else { 0 }
    }

    fn request(&mut self) -> RequestId {
        let session = session(1 + self.random.below(SESSIONS));
        let number = self.numbers.entry(session).or_default();
        *number += 1;
        RequestId { session, number: *number }
    }

    fn owner(&mut self) -> Option<Owner> {
        // A claim without an owner counts as able to end. So every cycle is found only if every claim has an owner.
        let named = self.all_named || self.random.below(8) != 0;
        let owner = OWNERS[self.random.below(2) as usize];
        named.then(|| Owner::parse(owner).expect("legal"))
    }

    fn member(&mut self) -> (LockName, Access) {
        let pool = self.contended && self.random.below(2) == 0;
        let name = if pool { "pool" } else { LOCKS[self.random.below(4) as usize] };
        let count = 1 + self.random.below(3) as u32;
        let mode = match name {
            "pool" => Mode::Permits(count),
            _ if self.random.below(2) == 0 => Mode::Shared,
            _ => Mode::Exclusive,
        };
        (LockName::parse(name).expect("legal"), mode.into())
    }

    /// Random choices of an acquire, and its lease.
    fn extras(&mut self) -> (Extras, Option<u64>) {
        let roll = self.random.below(12);
        let reentry = if roll == 0 && !self.all_named { Reentry::Wait } else { Reentry::Refuse };
        let barges = roll == 1 || self.contended && self.random.below(2) == 0;
        let fairness = if barges { Fairness::Barging } else { Fairness::Fair };
        let parent = Parent { session: session(1 + roll % SESSIONS), owner: Owner::parse("job").expect("legal") };
        let parent = Some(parent).filter(|_| roll == 2);
        let loses = self.delays && self.random.below(3) == 0;
        let lease_ms = loses.then(|| 1 + self.random.below(50));
        let delay_ms = if loses { 1 + self.random.below(100) } else { 0 };
        let at_most_ms = (self.delays && self.random.below(8) == 0).then(|| 1 + self.random.below(50));
        (Extras { reentry, fairness, parent, delay_ms, at_most_ms, ..Extras::default() }, lease_ms)
    }

    pub(super) fn command(&mut self, machine: &Machine) -> Command {
        let request = self.request();
        let (answered_below, metadata, patience) = (0, Metadata::default(), Patience::Session);
        let (extras, lease_ms) = self.extras();
        let held = self.held(machine);
        match (self.random.below(20), held) {
            (0..4, Some((request, name, token))) => {
                Command::Release(Release { request: RequestId { ..request }, answered_below, name, token, acquire: 0 })
            }
            (4..10, Some((request, name, token))) => {
                let what = Alteration::Upgrade { token, patience };
                Command::Alter(Alter { request, answered_below, name, what })
            }
            (18, Some((request, name, token))) if name.as_str() == "pool" => {
                let what = Alteration::ReturnPermits { token, count: 1 };
                Command::Alter(Alter { request, answered_below, name, what })
            }
            (19, _) => set_limit(2 + self.random.below(2) as u32),
            (10..14, _) if self.sets => {
                let locks = (0..2).map(|_| self.member()).collect();
                let owner = self.owner();
                let (lease_ms, extras) = (None, None);
                Command::Acquire(Acquire {
                    request,
                    answered_below,
                    locks,
                    owner,
                    patience,
                    metadata,
                    lease_ms,
                    extras,
                })
            }
            _ => {
                let (locks, owner) = (self.member().into(), self.owner());
                let named = owner.is_some();
                let (extras, lease_ms) = (Some(Box::new(extras)).filter(|_| named), lease_ms.filter(|_| named));
                // A hold that will have a deadline does not block its parent before it is granted, so a cycle through
                // it may be missed.
                let chosen = extras.as_deref().unwrap_or(Extras::PLAIN);
                let nested = (lease_ms.is_some() || chosen.at_most_ms.is_some()) && chosen.parent.is_some();
                let patience = if nested { Patience::Try } else { patience };
                Command::Acquire(Acquire {
                    request,
                    answered_below,
                    locks,
                    owner,
                    patience,
                    metadata,
                    lease_ms,
                    extras,
                })
            }
        }
    }

    /// A random hold, and a new request of its session.
    fn held(&mut self, machine: &Machine) -> Option<(RequestId, LockName, FencingToken)> {
        let holds: Vec<_> = holds(machine).collect();
        if holds.is_empty() {
            return None;
        }
        let (session, name, token) = holds[self.random.below(holds.len() as u64) as usize].clone();
        let number = self.numbers.entry(session).or_default();
        *number += 1;
        Some((RequestId { session, number: *number }, name, token))
    }
}

fn holds(machine: &Machine) -> impl Iterator<Item = (SessionId, LockName, FencingToken)> {
    let sessions = machine.state.sessions.iter();
    sessions.flat_map(|(id, session)| {
        session.claims().filter_map(|(_, key, standing)| match standing {
            ClaimState::Holding(token) => Some((*id, key.name.clone(), token)),
            ClaimState::Waiting(_) => None,
        })
    })
}

/// All waits, each with its queue and sequence number.
pub(super) fn waits(machine: &Machine) -> Vec<(LockKey, u64, Claim)> {
    let queues = machine.state.locks.iter();
    queues
        .flat_map(|(key, lock)| lock.queue.iter().map(|(at, waiter)| (key.clone(), *at, waiter.request.claim)))
        .collect()
}

type Holds = Vec<(LockKey, FencingToken)>;

/// Lets every owner finish that waits for nothing and has no unfinished nested run, and lets time pass, until no owner
/// can finish any more. Returns the requests that still wait, and the number of deadlocks that were reported.
fn can_continue(machine: &Machine) -> (Vec<RequestId>, usize) {
    let mut machine = machine.clone();
    let (mut number, mut alarms) = (1 << 40, 0);
    loop {
        let mut parties: BTreeMap<(SessionId, String), (bool, Holds)> = BTreeMap::new();
        let mut parents = Vec::new();
        let mut waits = Vec::new();
        for (key, lock) in &machine.state.locks {
            for (token, holder) in &lock.holders {
                let (Claim::Request(request), owner) = (holder.request.claim, &holder.request.owner) else { continue };
                let name = owner.as_ref().map_or(format!("#{}", request.number), ToString::to_string);
                let party = parties.entry((request.session, name)).or_default();
                party.1.push((key.clone(), *token));
                let own = |parent: &Parent| Some(&parent.owner) == owner.as_ref() && parent.session == request.session;
                let parent = holder.request.choices().parent.clone();
                parents.extend(parent.filter(|parent| owner.is_some() && !own(parent)));
            }
            for waiter in lock.queue.values() {
                let (Claim::Request(request), owner) = (waiter.request.claim, &waiter.request.owner) else { continue };
                waits.push(request);
                let own = |parent: &Parent| Some(&parent.owner) == owner.as_ref() && parent.session == request.session;
                parents
                    .extend(waiter.request.choices().parent.clone().filter(|parent| owner.is_some() && !own(parent)));
                if waiter.request.choices().reentry != Reentry::Wait {
                    let name = owner.as_ref().map_or(format!("#{}", request.number), ToString::to_string);
                    // Requests without an owner are independent: a wait of one does not delay the release of another.
                    parties.entry((request.session, name)).or_default().0 = owner.is_some();
                }
            }
        }
        let free = |session: SessionId, name: &str, waits: bool| {
            !waits && !parents.iter().any(|parent| parent.session == session && parent.owner.as_str() == name)
        };
        let can =
            parties.iter().find(|((session, name), (waits, held))| free(*session, name, *waits) && !held.is_empty());
        let releases =
            can.into_iter().flat_map(|((session, _), (_, held))| held.iter().map(|hold| (*session, hold.clone())));
        let releases = releases.map(|(session, (key, token))| {
            number += 1;
            let request = RequestId { session, number };
            Command::Release(Release { request, answered_below: 0, name: key.name, token, acquire: 0 })
        });
        let mut entries: Vec<Entry> = releases.map(|release| entry(0, vec![], vec![release])).collect();
        // If no owner can finish, leases and lock-delays still end.
        if entries.is_empty() {
            let end = machine.next_deadline().filter(|end| *end < LAST_END);
            entries.extend(end.map(|end| entry(end.0 + 1, vec![], vec![])));
        }
        if entries.is_empty() {
            return (waits, alarms);
        }
        for entry in entries {
            let applied = machine.apply(machine.applied() + 1, &entry);
            let alarm =
                |event: &&Event| matches!(event.kind, EventKind::WaitEnded { why: WaitEndReason::Deadlock, .. });
            alarms += applied.events.iter().filter(alarm).count();
        }
    }
}

pub(super) fn waiting_all_the_same(command: &Command) -> Option<Command> {
    match command.clone() {
        Command::Acquire(mut acquire) => {
            acquire.extras.get_or_insert_default().deadlock = OnDeadlock::Wait;
            Some(Command::Acquire(acquire))
        }
        _ => None,
    }
}

/// Every reported deadlock agrees with the naive model, and the refused request would never be granted if it waited. If
/// all refusals are obeyed, all owners finish in the end. `LOCKKEEPER_CYCLES` sets another number of scenarios.
#[test]
fn alarms_are_never_false_and_never_missing() {
    let mut alarms: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..scenarios() {
        let (mut watched, mut naive) = (Watched::default(), Naive::default());
        let mut scenario = Scenario::new(seed);
        let opens = entry(0, vec![], (1..=SESSIONS).map(open).chain([set_limit(3)]).collect());
        watched.apply(&opens);
        naive.apply(&opens);
        for at in 0..COMMANDS_A_SCENARIO {
            let before = watched.machine.clone();
            let command = scenario.command(&before);
            let stamp = scenario.stamp(at);
            let one = entry(stamp, vec![], vec![command.clone()]);
            let outcome = watched.apply(&one).commands.remove(0).outcome;
            let expected = naive.apply(&one).1.remove(0);
            if let Outcome::Refused(Refusal::Deadlock { cycle }) = &outcome {
                assert_eq!(expected, Outcome::Refused(Refusal::Deadlock { cycle: vec![] }), "scenario {seed}, {at}");
                assert!(!cycle.is_empty(), "a cycle without owners");
                let kind = match &command {
                    Command::Acquire(acquire) if acquire.is_set() => "set",
                    Command::Acquire(_) => "acquire",
                    _ => "upgrade",
                };
                *alarms.entry(kind).or_default() += 1;
                if let Some(waits) = waiting_all_the_same(&command) {
                    let mut other = before.clone();
                    other.apply(other.applied() + 1, &entry(stamp, vec![], vec![waits]));
                    let (waits, alarms) = can_continue(&other);
                    let stuck = !waits.is_empty() || 0 < alarms;
                    assert!(stuck, "scenario {seed}, {at}: a false alarm for {command:#?}: {cycle:#?}");
                }
            } else {
                assert_eq!(outcome, expected, "scenario {seed}, {at}: {command:#?}");
            }
            assert_eq!(waits(&watched.machine), naive.waiting(), "scenario {seed}, {at}: who waits after {command:#?}");
            let (stuck, _) = if scenario.all_named { can_continue(&watched.machine) } else { (vec![], 0) };
            assert!(stuck.is_empty(), "scenario {seed}, {at}: {stuck:?} still wait after {command:#?}: {outcome:?}");
        }
    }
    println!("{alarms:?} alarms");
    for kind in ["acquire", "set", "upgrade"] {
        assert!(alarms.get(kind).is_some_and(|times| 100 <= *times), "too rare: {alarms:?}");
    }
}
