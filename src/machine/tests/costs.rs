//! Prints the cost of deadlock detection and waiting sets (`--nocapture`). Asserts only decisions and no times, because
//! a busy machine may be slow. An optimized build gives meaningful figures.

use std::time::{Duration, Instant};

use super::cycles::{open, set_limit};
use super::mirror::entry;
use crate::limits::WAITERS_A_LOCK_MAX;
use crate::machine::Machine;
use crate::model::*;

const REPEATED: u32 = 20;
const OPERATIONS: u32 = 200;
const ROUNDS: usize = 5;
const QUEUE: u64 = 50;
const SETS: [u64; 4] = [0, 1, 10, 100];
const WAITERS: u64 = 1_000;

pub(super) fn acquire(session: u64, number: u64, lock: &str, owner: Option<&str>) -> Command {
    Command::Acquire(Acquire {
        request: RequestId { session: SessionId::new(0, session), number },
        answered_below: 0,
        locks: (LockName::parse(lock).expect("legal"), Mode::Exclusive.into()).into(),
        owner: owner.map(|owner| Owner::parse(owner).expect("legal")),
        patience: Patience::Session,
        metadata: Metadata::default(),
        lease_ms: None,
        extras: None,
    })
}

pub(super) fn set(session: u64, number: u64, locks: &[String]) -> Command {
    let member = |name: &String| (LockName::parse(name).expect("legal"), Mode::Exclusive.into());
    Command::Acquire(Acquire {
        request: RequestId { session: SessionId::new(0, session), number },
        answered_below: 0,
        locks: locks.iter().map(member).collect(),
        owner: None,
        patience: Patience::Session,
        metadata: Metadata::default(),
        lease_ms: None,
        extras: None,
    })
}

pub(super) fn release(session: u64, number: u64, lock: &str, token: FencingToken) -> Command {
    let request = RequestId { session: SessionId::new(0, session), number };
    Command::Release(Release {
        request,
        answered_below: number,
        name: LockName::parse(lock).expect("legal"),
        token,
        acquire: 0,
    })
}

pub(super) fn apply(machine: &mut Machine, command: Command) -> Outcome {
    let index = machine.applied() + 1;
    let outcome = machine.apply(index, &entry(0, vec![], vec![command])).commands.remove(0).outcome;
    machine.take_dirty(|_, _| ());
    outcome
}

/// The number of waiters in the queue: few, or the value of `LOCKKEEPER_COSTS_WAITERS`.
fn waiters() -> u64 {
    let wanted = std::env::var("LOCKKEEPER_COSTS_WAITERS").ok().and_then(|text| text.parse().ok());
    wanted.unwrap_or(WAITERS).min(WAITERS_A_LOCK_MAX as u64 - 10)
}

/// The shortest time that one command takes on copies of this machine.
fn fastest(machine: &Machine, command: &Command, decided: impl Fn(&Outcome) -> bool) -> Duration {
    let times = (0..REPEATED).map(|_| {
        let (mut machine, command) = (machine.clone(), command.clone());
        let began = Instant::now();
        let outcome = apply(&mut machine, command);
        let took = began.elapsed();
        assert!(decided(&outcome), "{outcome:?}");
        took
    });
    times.min().unwrap_or_default()
}

/// One more wait behind a full queue costs nearly the same with a named owner as without, even if a request waits for
/// what that owner holds. A cycle over the whole queue is found too.
#[test]
fn a_wait_behind_many_is_cheap() {
    let mut machine = Machine::new();
    for session in 1..=4 {
        apply(&mut machine, open(session));
    }
    apply(&mut machine, acquire(1, 1, "hot", Some("holder")));
    let waiters = waiters();
    for number in 1..=waiters {
        apply(&mut machine, acquire(2 + number % 2, number, "hot", Some(&format!("waiter-{number}"))));
    }
    apply(&mut machine, acquire(4, 1, "own", Some("owner")));
    let queued = |outcome: &Outcome| matches!(outcome, Outcome::Queued(_));
    let asks = acquire(4, 2, "hot", Some("owner"));
    let unnamed = fastest(&machine, &acquire(4, 2, "hot", None), queued);
    let alone = fastest(&machine, &asks, queued);
    apply(&mut machine, acquire(1, 9, "own", Some("other")));
    let awaited = fastest(&machine, &asks, queued);
    let first = apply(&mut machine, acquire(3, waiters + 9, "own", Some("waiter-1")));
    assert!(queued(&first), "{first:?}");
    let cycle = fastest(&machine, &asks, |outcome| matches!(outcome, Outcome::Refused(Refusal::Deadlock { .. })));
    let ratio = |time: Duration| time.as_secs_f64() / unnamed.as_secs_f64();
    eprintln!(
        "a wait behind {waiters}: unnamed {unnamed:?}; named {alone:?} ({:.1}x); awaited itself {awaited:?} ({:.1}x); closing a cycle {cycle:?} ({:.1}x)",
        ratio(alone),
        ratio(awaited),
        ratio(cycle)
    );
}

/// A cycle that exists only because every holder of a permit waits is found behind the longest possible queue, also of
/// sets, within the steps of one search. A permit that is returned there takes bounded work, even if every session
/// behind has another request and may have become able to overtake others.
#[test]
fn a_cycle_over_permits_is_found_behind_many() {
    for (sets, aside) in [(false, false), (true, false), (true, true)] {
        cycle_over_permits(sets, aside);
    }
}

fn cycle_over_permits(sets: bool, aside: bool) {
    let mut machine = Machine::new();
    for session in 1..=3 {
        apply(&mut machine, open(session));
    }
    let holders = ["one", "two", "three"];
    let tokens: Vec<_> =
        (1..).zip(holders).map(|(number, holder)| apply(&mut machine, permit(1, number, holder))).collect();
    let many = WAITERS_A_LOCK_MAX as u64 - 10;
    for number in 1..=many {
        let waits = if sets { with_a_permit(3 + number) } else { permit(2, number, &format!("waiter-{number}")) };
        apply(&mut machine, open(3 + number));
        apply(&mut machine, waits);
        if aside {
            apply(&mut machine, acquire(3 + number, 2, &format!("aside-{number}"), Some("waiter")));
        }
    }
    apply(&mut machine, acquire(3, 1, "own", Some("owner")));
    for (number, holder) in (4..).zip(holders) {
        let waits = apply(&mut machine, acquire(1, number, "own", Some(holder)));
        assert!(matches!(waits, Outcome::Queued(_)), "{waits:?}");
    }
    let asks = permit(3, 2, "owner");
    let closing = fastest(&machine, &asks, |outcome| {
        matches!(outcome, Outcome::Refused(Refusal::Deadlock { cycle })
            if cycle.iter().any(|link| link.why == WaitReason::Holds))
    });
    let gone = Command::Cancel { request: RequestId { session: SessionId::new(0, 1), number: 4 } };
    apply(&mut machine, gone);
    let queued = |outcome: &Outcome| matches!(outcome, Outcome::Queued(_));
    let waiting = fastest(&machine, &asks, queued);
    let waits = apply(&mut machine, asks);
    assert!(queued(&waits), "one holder can finish: {waits:?}");
    let Outcome::Granted(held) = &tokens[0] else { panic!("free: {tokens:?}") };
    let gives_back = release(1, 7, "pool", held.token);
    let giving_back = fastest(&machine, &gives_back, |outcome| matches!(outcome, Outcome::Released { left: 0 }));
    let what = ["waiters", "sets", "sets whose sessions hold something aside"][usize::from(sets) + usize::from(aside)];
    eprintln!("behind {many} {what}: a cycle {closing:?}, none {waiting:?}; a permit given back {giving_back:?}");
}

pub(super) fn permit(session: u64, number: u64, owner: &str) -> Command {
    let Command::Acquire(asks) = acquire(session, number, "pool", Some(owner)) else { panic!("an acquire") };
    let locks = (LockName::parse("pool").expect("legal"), Access::permits(1, 3)).into();
    Command::Acquire(Acquire { locks, ..asks })
}

/// A set of a permit and another lock.
fn with_a_permit(session: u64) -> Command {
    let idle = format!("idle-{session}");
    let Command::Acquire(asks) = set(session, 1, std::slice::from_ref(&idle)) else { panic!("a set") };
    let name = |name: &str| LockName::parse(name).expect("legal");
    let members = [(name("pool"), Access::permits(1, 3)), (name(&idle), Mode::Exclusive.into())];
    let owner = Some(Owner::parse("waiter").expect("legal"));
    Command::Acquire(Acquire { locks: members.into_iter().collect(), owner, ..asks })
}

/// The release of a lock is bounded work, however many requests wait: the same few records change, and one waiter is
/// granted.
#[test]
fn a_release_is_bounded_work() {
    let steps = [10, waiters()].map(|waiters| {
        let mut machine = Machine::new();
        apply(&mut machine, open(1));
        apply(&mut machine, open(2));
        let Outcome::Granted(grant) = apply(&mut machine, acquire(1, 1, "hot", None)) else { panic!("free") };
        for number in 1..=waiters {
            apply(&mut machine, acquire(2, number, "hot", None));
        }
        let freed = release(1, 2, "hot", grant.token);
        let took = fastest(&machine, &freed, |outcome| matches!(outcome, Outcome::Released { left: 0 }));
        let index = machine.applied() + 1;
        let events = machine.apply(index, &entry(0, vec![], vec![freed])).events.len();
        let mut changed = 0;
        machine.take_dirty(|_, _| changed += 1);
        eprintln!("a release with {waiters} waiting: {took:?}, {changed} records changed, {events} events");
        (changed, events)
    });
    assert_eq!(steps[0], steps[1], "as many for few as for many");
    assert_eq!(steps[1].1, 2, "released, granted");
}

/// A raised limit grants all waiters in one command, including sets.
#[test]
fn a_limit_over_all_grants_all() {
    for sets in [false, true] {
        let mut machine = Machine::new();
        (1..=3).for_each(|session| drop(apply(&mut machine, open(session))));
        for (number, holder) in (1..).zip(["one", "two", "three"]) {
            apply(&mut machine, permit(1, number, holder));
        }
        let waiters = waiters();
        for number in 1..=waiters {
            apply(&mut machine, open(3 + number));
            let waits = if sets { with_a_permit(3 + number) } else { permit(2, number, &format!("waiter-{number}")) };
            assert!(matches!(apply(&mut machine, waits), Outcome::Queued(_)));
        }
        let (namespace, name) = (Namespace::default(), LockName::parse("pool").expect("legal"));
        let lock = LockKey { namespace, name };
        let began = Instant::now();
        apply(&mut machine, set_limit(WAITERS_A_LOCK_MAX as u32));
        eprintln!("{waiters} granted at once, sets {sets}: {:?}", began.elapsed());
        assert!(machine.state.locks[&lock].queue.is_empty());
    }
}

/// When a lock becomes free, the waiters behind a set that lacks another lock are looked at, whether they belong to one
/// session or to many.
#[test]
fn a_release_behind_a_set_that_lacks_something() {
    let sets = waiters() / 2;
    for sessions in [1, sets] {
        let mut machine = Machine::new();
        (1..=2 + sessions).for_each(|session| drop(apply(&mut machine, open(session))));
        let Outcome::Granted(hot) = apply(&mut machine, acquire(1, 1, "hot", None)) else { panic!("free") };
        apply(&mut machine, acquire(1, 2, "lacked", None));
        apply(&mut machine, set(2, 1, &["hot".to_owned(), "lacked".to_owned()]));
        for number in 1..=sets {
            apply(&mut machine, set(3 + number % sessions, number, &["hot".to_owned(), format!("idle-{number}")]));
        }
        let freed = release(1, 3, "hot", hot.token);
        let took = fastest(&machine, &freed, |outcome| matches!(outcome, Outcome::Released { left: 0 }));
        eprintln!("a release with {sets} sets of {sessions} sessions behind one that lacks a lock: {took:?}");
    }
}

/// A machine in which this number of sets wait, each for one lock that is held and one that is free.
fn with_waiting_sets(sets: u64) -> Machine {
    let mut machine = Machine::new();
    for session in 1..=3 {
        apply(&mut machine, open(session));
    }
    for number in 1..=sets {
        apply(&mut machine, acquire(1, number, &format!("held-{number}"), None));
        let wanted = [format!("held-{number}"), format!("idle-{number}")];
        let outcome = apply(&mut machine, set(2, number, &wanted));
        assert!(matches!(outcome, Outcome::Queued(_)), "{outcome:?}");
    }
    machine
}

/// Acquires and releases locks that no set wants. Returns the time of one pair.
fn pairs(machine: &mut Machine, numbers: &mut u64) -> Duration {
    let began = Instant::now();
    for _ in 0..OPERATIONS {
        *numbers += 2;
        let lock = format!("free-{}", *numbers % 64);
        let Outcome::Granted(grant) = apply(machine, acquire(3, *numbers, &lock, None)) else {
            panic!("{lock} is free")
        };
        apply(machine, release(3, *numbers + 1, &lock, grant.token));
    }
    began.elapsed() / OPERATIONS
}

/// Passes a lock that no set wants along its queue. Returns the time of one grant with a new wait at the end.
fn hand_overs(machine: &mut Machine, numbers: &mut u64) -> Duration {
    let lock = "queued";
    for _ in 0..QUEUE {
        *numbers += 2;
        apply(machine, acquire(3, *numbers, lock, None));
    }
    let began = Instant::now();
    let key = LockKey { namespace: Namespace::default(), name: LockName::parse(lock).expect("legal") };
    for _ in 0..OPERATIONS {
        let token = *machine.state.locks[&key].holders.keys().next().expect("held");
        *numbers += 2;
        apply(machine, acquire(3, *numbers, lock, None));
        apply(machine, release(3, *numbers + 1, lock, token));
    }
    began.elapsed() / OPERATIONS
}

/// Locks that no set wants are passed on nearly as fast while sets wait as without sets.
#[test]
fn waiting_sets_slow_others_little() {
    let mut machines: Vec<_> = SETS.map(|sets| (sets, with_waiting_sets(sets), 0_u64, [Duration::MAX; 2])).into();
    // The rounds alternate, and the best time of each counts, so that other load on the machine affects all of them.
    for _ in 0..ROUNDS {
        for (_, machine, numbers, best) in &mut machines {
            best[0] = best[0].min(pairs(machine, numbers));
            let mut queued = machine.clone();
            best[1] = best[1].min(hand_overs(&mut queued, &mut numbers.clone()));
        }
    }
    let without = machines[0].3.map(|time| time.as_secs_f64());
    for (sets, _, _, best) in machines {
        let ratios = [0, 1].map(|at| best[at].as_secs_f64() / without[at]);
        eprintln!(
            "{sets:>5} waiting sets: a pair of a disjoint lock {:?} ({:.2}x), a hand-over with {QUEUE} in its queue {:?} ({:.2}x)",
            best[0], ratios[0], best[1], ratios[1]
        );
    }
}
