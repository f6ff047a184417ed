//! Long queues, compared with the naive model: sets of mixed modes at few locks, sessions that overtake them, holds
//! that keep their locks closed or are handed over, and commands and expiries that free several locks at once. No
//! request has an owner, so nothing is refused as a deadlock.

use super::cycles::{open, set_limit, waits};
use super::mirror::{Watched, entry};
use super::naive::Naive;
use super::random::Random;
use crate::machine::Machine;
use crate::model::*;
use crate::state::ClaimState;

const SCENARIOS: u64 = 400;
const COMMANDS_A_SCENARIO: u64 = 60;
const SESSIONS: u64 = 5;
/// A session with this number of claims makes no new ones.
const CLAIMS_MAX: usize = 4;
const LOCKS: [&str; 4] = ["a", "b", "c", "pool"];

fn scenarios() -> u64 {
    let wanted = std::env::var("LOCKKEEPER_FREED_TOGETHER").ok().and_then(|text| text.parse().ok());
    wanted.unwrap_or(SCENARIOS)
}

struct Scenario {
    random: Random,
    /// The open sessions, and the number of sessions that were opened.
    sessions: Vec<u64>,
    opened: u64,
    numbers: u64,
    stamp: u64,
}

impl Scenario {
    fn new(seed: u64) -> Self {
        let sessions = (1..=SESSIONS).collect();
        Self { random: Random(seed), sessions, opened: SESSIONS, numbers: 0, stamp: 0 }
    }

    fn member(&mut self) -> (LockName, Access) {
        let name = LOCKS[self.random.below(4) as usize];
        let access = match name {
            "pool" => Access::permits(1 + self.random.below(3) as u32, Some(3)),
            _ if self.random.below(5) < 2 => Mode::Exclusive.into(),
            _ => Mode::Shared.into(),
        };
        (LockName::parse(name).expect("legal"), access)
    }

    /// The next commands, of one entry. Two of them follow each other when a session is closed and opened again.
    fn commands(&mut self, machine: &Machine) -> Vec<Command> {
        let at = self.random.below(SESSIONS) as usize;
        let session = SessionId::new(0, self.sessions[at]);
        self.numbers += 1;
        let (request, answered_below) = (RequestId { session, number: self.numbers }, 0);
        let claims: Vec<_> = machine.state.claims(session).map(|(_, key, claim)| (key.name.clone(), claim)).collect();
        let held = claims.iter().filter_map(|(name, claim)| match claim {
            ClaimState::Holding(token) => Some((name.clone(), *token)),
            ClaimState::Waiting(_) => None,
        });
        let held: Vec<_> = held.collect();
        let which = self.random.below(held.len().max(1) as u64);
        let held = held.get(which as usize).cloned();
        let roll = self.random.below(20);
        match (roll, held) {
            (0, _) => {
                self.opened += 1;
                self.sessions[at] = self.opened;
                vec![Command::CloseSession { session, end: SessionClose::Done }, open(self.opened)]
            }
            (1..3, Some((name, token))) => {
                let what = Alteration::Upgrade { token, patience: Patience::Session };
                vec![Command::Alter(Alter { request, answered_below, name, what })]
            }
            (3, Some((name, token))) => {
                let what = Alteration::Downgrade { token };
                vec![Command::Alter(Alter { request, answered_below, name, what })]
            }
            (4..7, Some((name, token))) => {
                vec![Command::Release(Release { request, answered_below, name, token, acquire: 0 })]
            }
            (7, _) => vec![set_limit(3 - self.random.below(2) as u32)],
            (8, Some((name, token))) => {
                let to = SessionId::new(0, self.sessions[self.random.below(SESSIONS) as usize]);
                let lock = LockKey { namespace: Namespace::default(), name };
                vec![Command::Manage(Manage { lock, what: Managing::HandOver { token, to } })]
            }
            _ if CLAIMS_MAX <= claims.len() => vec![Command::Tick],
            (8..13, _) => vec![self.acquire(request, 2)],
            _ => vec![self.acquire(request, 1)],
        }
    }

    /// An acquire of this number of locks, or of fewer if a lock was drawn twice. Many leases end at the same time.
    /// Some requests without a shared lock keep their locks closed for a while.
    fn acquire(&mut self, request: RequestId, locks: u64) -> Command {
        let locks: SmallMap<LockName, Access> = (0..locks + self.random.below(locks)).map(|_| self.member()).collect();
        let lease_ms = (self.random.below(4) == 0).then(|| 100 - self.stamp % 100);
        let closes = self.random.below(6) == 0 && locks.values().all(|access| access.mode != Mode::Shared);
        let at_least_ms = closes.then(|| 1 + self.random.below(60));
        let extras = closes.then(|| Box::new(Extras { at_least_ms, ..Extras::default() }));
        let (owner, patience, metadata) = (None, Patience::Session, Metadata::default());
        Command::Acquire(Acquire { request, answered_below: 0, locks, owner, patience, metadata, lease_ms, extras })
    }
}

/// Every outcome, every grant, and which requests wait after each entry equal the naive model's. No waiter is left that
/// could be granted. `LOCKKEEPER_FREED_TOGETHER` sets another number of scenarios.
#[test]
fn queues_of_locks_freed_together_agree_with_the_naive_model() {
    for seed in 0..scenarios() {
        let (mut watched, mut naive) = (Watched::default(), Naive::default());
        let opens = entry(0, vec![], (1..=SESSIONS).map(open).chain([set_limit(3)]).collect());
        watched.apply(&opens);
        naive.apply(&opens);
        let mut scenario = Scenario::new(seed);
        for at in 0..COMMANDS_A_SCENARIO {
            scenario.stamp += 1 + scenario.random.below(8);
            let one = entry(scenario.stamp, vec![], scenario.commands(&watched.machine));
            let applied = watched.apply(&one);
            let outcomes: Vec<_> = applied.commands.iter().map(|reply| reply.outcome.clone()).collect();
            assert_eq!(outcomes, naive.apply(&one).1, "scenario {seed}, {at}: {one:#?}");
            assert_eq!(waits(&watched.machine), naive.waiting(), "scenario {seed}, {at}: who waits after {one:#?}");
        }
    }
}
