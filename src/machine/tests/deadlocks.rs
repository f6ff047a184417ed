//! Cases of deadlocks: claims with a deadline, nested runs, and the bound on the steps of one entry.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks at one event among many")]

use super::costs::{acquire, apply, set};
use super::cycles::{open, set_limit};
use super::mirror::entry;
use crate::limits;
use crate::machine::Machine;
use crate::model::*;

/// More readers than a search could look at in earlier builds.
const READERS: u64 = 800;
const LEASE_MS: u64 = 1_000;

fn opened(sessions: u64) -> Machine {
    let mut machine = Machine::new();
    (1..=sessions).for_each(|session| drop(apply(&mut machine, open(session))));
    machine
}

/// An acquire with these choices and this mode.
fn with(command: Command, mode: Mode, extras: Extras) -> Command {
    let Command::Acquire(mut asks) = command else { panic!("an acquire") };
    asks.locks.values_mut().for_each(|of| *of = mode.into());
    Command::Acquire(Acquire { extras: Some(Box::new(extras)), ..asks })
}

fn leased(command: Command) -> Command {
    let Command::Acquire(asks) = command else { panic!("an acquire") };
    Command::Acquire(Acquire { lease_ms: Some(LEASE_MS), ..asks })
}

fn shared(command: Command) -> Command {
    with(command, Mode::Shared, Extras::default())
}

fn permit(session: u64, number: u64, owner: &str) -> Command {
    with(acquire(session, number, "pool", Some(owner)), Mode::Permits(1), Extras::default())
}

fn upgrade(session: u64, number: u64, lock: &str, token: FencingToken) -> Command {
    let request = RequestId { session: SessionId::new(0, session), number };
    let what = Alteration::Upgrade { token, patience: Patience::Session };
    Command::Alter(Alter { request, answered_below: 0, name: LockName::parse(lock).expect("legal"), what })
}

fn granted(machine: &mut Machine, command: Command) -> FencingToken {
    let outcome = apply(machine, command);
    let Outcome::Granted(grant) = outcome else { panic!("not granted: {outcome:?}") };
    grant.token
}

fn queued(machine: &mut Machine, command: Command) {
    let outcome = apply(machine, command);
    assert!(matches!(outcome, Outcome::Queued(_)), "{outcome:?}");
}

fn refused(machine: &mut Machine, command: Command) -> Vec<DeadlockLink> {
    match apply(machine, command) {
        Outcome::Refused(Refusal::Deadlock { cycle }) => cycle,
        other => panic!("no deadlock: {other:?}"),
    }
}

/// A deadlock is found behind 800 readers, each with an owner. One of them waits for a permit that is never returned.
#[test]
fn a_deadlock_behind_many_readers_is_found() {
    let mut machine = opened(5);
    apply(&mut machine, set_limit(2));
    granted(&mut machine, permit(1, 1, "p"));
    granted(&mut machine, permit(2, 1, "q"));
    granted(&mut machine, acquire(1, 2, "n", Some("p")));
    queued(&mut machine, acquire(2, 2, "n", Some("q")));
    granted(&mut machine, acquire(3, 1, "l", Some("holder")));
    for number in 1..=READERS {
        queued(&mut machine, shared(acquire(4, number, "l", Some(&format!("reader-{number}")))));
    }
    queued(&mut machine, permit(4, READERS + 1, &format!("reader-{}", READERS / 2)));
    let cycle = refused(&mut machine, acquire(1, 3, "l", Some("p")));
    let owners: Vec<_> = cycle.iter().map(|link| link.owner.as_str()).collect();
    assert_eq!(owners, ["p", "reader-400"], "the shortest way round: {cycle:#?}");
    assert_eq!(machine.deadlock_checks_skipped(), 0);
}

/// A deadlock is found although one of its sessions overtakes what waits for its hold: many readers, alone or in sets,
/// with many writers behind each of them.
#[test]
fn a_deadlock_of_a_session_that_overtakes_many_is_found() {
    const WAITERS: u64 = 1_100;
    let reads = |command| {
        let Command::Acquire(mut asks) = command else { panic!("an acquire") };
        asks.locks.insert(LockName::parse("k").expect("legal"), Mode::Shared.into());
        asks
    };
    for in_sets in [false, true] {
        let mut machine = opened(4);
        granted(&mut machine, acquire(1, 1, "k", Some("o")));
        for number in 1..=WAITERS {
            let own = format!("own-{number}");
            let asks = if in_sets { set(2, number, &["k".into(), own]) } else { acquire(2, number, "k", None) };
            queued(&mut machine, Command::Acquire(reads(asks)));
        }
        (1..=WAITERS).for_each(|number| queued(&mut machine, acquire(2, WAITERS + number, "k", None)));
        granted(&mut machine, acquire(3, 1, "m", Some("z")));
        let asks = reads(set(4, 1, &["k".into(), "m".into()]));
        let owner = Some(Owner::parse("t").expect("legal"));
        queued(&mut machine, Command::Acquire(Acquire { owner, ..asks }));
        queued(&mut machine, acquire(3, 2, "k", Some("z")));
        let cycle = refused(&mut machine, acquire(1, 2, "m", Some("o")));
        let owners: Vec<_> = cycle.iter().map(|link| link.owner.as_str()).collect();
        assert_eq!(owners, ["o", "z"], "o passes the set, which waits behind what o holds: {cycle:#?}");
        assert_eq!(machine.deadlock_checks_skipped(), 0);
    }
}

/// An upgrade of a hold with a lease ends with that hold, so it closes no cycle, even though readers wait for its
/// owner.
#[test]
fn an_upgrade_of_a_leased_hold_ends_with_it() {
    for is_leased in [false, true] {
        let mut machine = opened(2);
        let asks = shared(acquire(1, 1, "l", Some("job")));
        let token = granted(&mut machine, if is_leased { leased(asks) } else { asks });
        granted(&mut machine, acquire(1, 2, "k", Some("job")));
        for (number, reader) in [(1, "one"), (2, "two")] {
            granted(&mut machine, shared(acquire(2, number, "l", Some(reader))));
            queued(&mut machine, acquire(2, number + 2, "k", Some(reader)));
        }
        let asks = upgrade(1, 3, "l", token);
        if is_leased {
            queued(&mut machine, asks);
        } else {
            refused(&mut machine, asks);
        }
    }
}

/// A hold with a lease ends automatically once it is granted. So a wait behind a request for such a hold needs that
/// request to be granted, and nothing more.
#[test]
fn a_wait_for_a_leased_hold_has_to_be_granted() {
    let mut machine = opened(3);
    granted(&mut machine, acquire(3, 1, "l", Some("other")));
    granted(&mut machine, acquire(1, 1, "m", Some("a")));
    queued(&mut machine, leased(acquire(2, 1, "l", Some("b"))));
    queued(&mut machine, acquire(2, 2, "m", Some("b")));
    queued(&mut machine, acquire(1, 2, "l", Some("a")));
    let mut machine = opened(2);
    granted(&mut machine, acquire(1, 1, "m", Some("a")));
    granted(&mut machine, acquire(2, 1, "l", Some("b")));
    queued(&mut machine, leased(acquire(1, 2, "l", Some("a"))));
    refused(&mut machine, acquire(2, 2, "m", Some("b")));
}

/// A parent waits for a nested run only if the run has a claim without a deadline that names the parent.
#[test]
fn a_leased_claim_ties_no_parent() {
    for is_leased in [false, true] {
        let mut machine = opened(2);
        granted(&mut machine, acquire(1, 1, "k", Some("parent")));
        let parent = Parent { session: SessionId::new(0, 1), owner: Owner::parse("parent").expect("legal") };
        let extras = Extras { parent: Some(parent), ..Extras::default() };
        let asks = with(acquire(2, 1, "j", Some("child")), Mode::Exclusive, extras);
        granted(&mut machine, if is_leased { leased(asks) } else { asks });
        let asks = acquire(2, 2, "k", Some("child"));
        if is_leased {
            queued(&mut machine, asks);
        } else {
            refused(&mut machine, asks);
        }
    }
}

/// A lowered limit closes a cycle at the head of a long queue. The cycle is found within the steps of one entry, in
/// whichever order the owners wait behind it.
#[test]
fn a_cycle_at_the_head_of_a_long_queue_is_found() {
    const WAITERS: u64 = 2_000;
    let mut machine = opened(4);
    apply(&mut machine, set_limit(4));
    let two = |command| with(command, Mode::Permits(2), Extras::default());
    granted(&mut machine, permit(3, 1, "a"));
    granted(&mut machine, permit(3, 2, "b"));
    granted(&mut machine, two(acquire(1, 1, "pool", None)));
    granted(&mut machine, acquire(4, 1, "k", Some("c")));
    (3..).zip(["a", "b"]).for_each(|(number, owner)| queued(&mut machine, acquire(3, number, "k", Some(owner))));
    queued(&mut machine, two(acquire(4, 2, "pool", Some("c"))));
    for number in 1..=WAITERS {
        queued(&mut machine, permit(2, number, &format!("waiter-{:04}", WAITERS - number)));
    }
    let index = machine.applied() + 1;
    let applied = machine.apply(index, &entry(0, vec![], vec![set_limit(3)]));
    let refused = applied.events.iter().filter_map(|event| match &event.kind {
        EventKind::WaitEnded { why: WaitEndReason::Deadlock, .. } => event.subject.claim(),
        _ => None,
    });
    let expected = Claim::Request(RequestId { session: SessionId::new(0, 4), number: 2 });
    assert_eq!(refused.collect::<Vec<_>>(), [expected]);
    assert_eq!(machine.deadlock_checks_skipped(), 0);
}

/// The results of an entry have each deadlock that it refused: in an older wait, and in a new one. The repetition of a
/// refused request is no other deadlock.
#[test]
fn the_results_have_each_refused_deadlock() {
    let mut machine = opened(3);
    apply(&mut machine, set_limit(3));
    granted(&mut machine, permit(2, 1, "b"));
    granted(&mut machine, permit(3, 1, "c"));
    granted(&mut machine, acquire(1, 1, "k", Some("a")));
    queued(&mut machine, acquire(2, 2, "k", Some("b")));
    let two = |number| with(acquire(1, number, "pool", Some("a")), Mode::Permits(2), Extras::default());
    queued(&mut machine, two(2));
    for (stamp, command, expected) in [(7, set_limit(2), 1), (8, two(3), 1), (9, two(3), 0)] {
        let index = machine.applied() + 1;
        let applied = machine.apply(index, &entry(stamp, vec![], vec![command]));
        assert_eq!(applied.deadlocks.len(), expected, "{applied:?}");
        for RefusedDeadlock { at, wall, locks } in applied.deadlocks {
            let names: Vec<_> = locks.iter().map(|lock| lock.name.as_str()).collect();
            assert_eq!((at.0, wall.0, &names[..]), (stamp, 1_795_000_000_000 + stamp, &["k", "pool"][..]));
        }
    }
}

/// All checks of one entry take a bounded number of steps. Further checks are skipped and counted. The next entry has
/// all its steps again.
#[test]
fn checks_beyond_the_steps_of_an_entry_are_counted() {
    const WAITERS: u64 = 3_000;
    // Each check looks at each waiter and its owner.
    let checks = (limits::DEADLOCK_STEPS_AN_ENTRY_MAX as u64).div_ceil(2 * WAITERS);
    let mut machine = opened(4);
    apply(&mut machine, set_limit(2));
    for number in 1..=2 {
        granted(&mut machine, permit(1, number, &format!("holder-{number}")));
    }
    (1..=WAITERS).for_each(|number| queued(&mut machine, permit(2, number, &format!("waiter-{number}"))));
    for number in 1..=checks + 1 {
        let own = format!("own-{number}");
        granted(&mut machine, acquire(3, number, &own, Some(&format!("owner-{number}"))));
        // The other holder can finish.
        queued(&mut machine, acquire(1, 2 + number, &own, Some("holder-1")));
    }
    assert_eq!(machine.deadlock_checks_skipped(), 0);
    let ask = |number| permit(3, checks + 1 + number, &format!("owner-{number}"));
    let index = machine.applied() + 1;
    let applied = machine.apply(index, &entry(0, vec![], (1..=checks).map(ask).collect()));
    assert!(applied.commands.iter().all(|reply| matches!(reply.outcome, Outcome::Queued(_))), "{applied:?}");
    let skipped = machine.deadlock_checks_skipped();
    assert!(0 < skipped && skipped < checks, "{skipped} of {checks} were skipped");
    queued(&mut machine, ask(checks + 1));
    assert_eq!(machine.deadlock_checks_skipped(), skipped, "this entry has steps for one");
}
