//! Counts the items that commands and queries look at. The count grows no faster than what they change or show.

use super::costs::{acquire, apply, release, set};
use super::cycles::{open, set_limit};
use super::mirror::{Watched, entry};
use crate::limits;
use crate::machine::Machine;
use crate::model::*;
use crate::state::count_of;

const FEW: u64 = 200;
pub(super) const MANY: u64 = 400;

pub(super) fn name(text: &str) -> LockName {
    LockName::parse(text).expect("legal")
}

fn key(text: &str) -> LockKey {
    LockKey { namespace: Namespace::default(), name: name(text) }
}

fn owner(text: &str) -> Option<Owner> {
    Some(Owner::parse(text).expect("legal"))
}

fn in_mode(command: Command, mode: Mode) -> Command {
    let Command::Acquire(mut acquire) = command else { panic!("an acquire") };
    acquire.locks.values_mut().for_each(|of| *of = mode.into());
    Command::Acquire(acquire)
}

fn permits(session: u64, number: u64, count: u32) -> Command {
    in_mode(acquire(session, number, "pool", None), Mode::Permits(count))
}

fn barging(command: Command) -> Command {
    let Command::Acquire(mut acquire) = command else { panic!("an acquire") };
    acquire.extras.get_or_insert_default().fairness = Fairness::Barging;
    Command::Acquire(acquire)
}

/// An acquire of these locks as a set. Locks whose names begin with `hot` are shared.
fn set_of(session: u64, number: u64, locks: &[&str]) -> Command {
    let locks: Vec<String> = locks.iter().map(|lock| (*lock).to_owned()).collect();
    let Command::Acquire(mut set) = set(session, number, &locks) else { panic!("a set") };
    let names: Vec<LockName> = set.locks.keys().filter(|name| name.as_str().starts_with("hot")).cloned().collect();
    for name in names {
        set.locks.insert(name, Mode::Shared.into());
    }
    Command::Acquire(set)
}

pub(super) fn opened(sessions: u64) -> Machine {
    let mut machine = Machine::new();
    (1..=sessions).for_each(|session| drop(apply(&mut machine, open(session))));
    machine
}

fn token(outcome: &Outcome) -> FencingToken {
    let Outcome::Granted(grant) = outcome else { panic!("not granted: {outcome:?}") };
    grant.token
}

fn queued(machine: &mut Machine, command: Command) {
    let outcome = apply(machine, command);
    assert!(matches!(outcome, Outcome::Queued(_)), "{outcome:?}");
}

/// Applies a command that must succeed. Returns how many items it looked at, and how many claims it granted.
fn counted(machine: &mut Machine, command: Command) -> (usize, usize) {
    let index = machine.applied() + 1;
    let (applied, count) = count_of(|| machine.apply(index, &entry(0, vec![], vec![command])));
    let outcome = &applied.commands[0].outcome;
    assert!(!matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
    machine.check().expect("whole");
    (count, applied.events.iter().filter(|event| event.kind.word() == "granted").count())
}

/// Permits never stay free while a barging waiter could have them, even if many other waiters want more, in many
/// different amounts.
#[test]
fn no_permit_stays_free_while_one_that_barges_wants_it() {
    for different in [false, true] {
        let mut watched = Watched::default();
        let mut outcome_of = |command| watched.apply(&entry(0, vec![], vec![command])).commands.remove(0).outcome;
        (1..=3).for_each(|session| drop(outcome_of(open(session))));
        outcome_of(set_limit(300));
        token(&outcome_of(permits(1, 1, 100)));
        let given_back = token(&outcome_of(permits(2, 1, 200)));
        for number in 1..=150 {
            let wide = if different { 200 + u32::try_from(number).expect("small") % 100 } else { 300 };
            outcome_of(barging(permits(3, number, wide + 1 - u32::from(!different))));
        }
        outcome_of(barging(permits(3, 999, 150)));
        let release = release(2, 2, "pool", given_back);
        let applied = watched.apply(&entry(0, vec![], vec![release]));
        let granted = applied.events.iter().filter(|event| event.kind.word() == "granted").count();
        assert_eq!(granted, 1, "200 of 300 permits are free, and one waiter wants 150");
        watched.compare_mirror();
    }
}

/// A release after which none of many barging waiters can be granted looks at a bounded number of them.
#[test]
fn a_release_over_the_heads_of_many_that_barge_is_bounded() {
    let mut machine = opened(3);
    apply(&mut machine, set_limit(10_000));
    let given_back = token(&apply(&mut machine, permits(1, 1, 1)));
    token(&apply(&mut machine, permits(2, 1, 9_999)));
    for number in 1..=MANY {
        queued(&mut machine, barging(permits(3, number, 2 + u32::try_from(number).expect("small"))));
    }
    let (count, granted) = counted(&mut machine, release(1, 2, "pool", given_back));
    assert!(granted == 0 && count <= limits::BARGING_WANTS_LOOKED_AT_MAX + 2, "{count} were looked at");
}

/// Barging waiters behind a fair waiter may be granted once the fair one has left, and not before.
#[test]
fn one_that_barges_behind_a_fair_waiter_is_found_when_that_leaves() {
    let mut machine = opened(3);
    apply(&mut machine, set_limit(3));
    token(&apply(&mut machine, permits(1, 1, 2)));
    queued(&mut machine, barging(permits(2, 1, 3)));
    queued(&mut machine, permits(2, 2, 2));
    queued(&mut machine, barging(permits(3, 1, 2)));
    queued(&mut machine, barging(permits(3, 2, 1)));
    let request = RequestId { session: SessionId::new(0, 2), number: 2 };
    let (_, granted) = counted(&mut machine, Command::Cancel { request });
    assert_eq!(granted, 1, "one permit is free, and a waiter that barges wants it");
}

/// Opens a session in another namespace.
pub(super) fn open_elsewhere(number: u64) -> Command {
    let Command::OpenSession(open) = open(number) else { panic!("an open") };
    Command::OpenSession(OpenSession { namespace: Namespace::parse("elsewhere").expect("legal"), ..open })
}

/// A semaphore with a waiter for many permits at the head of its queue, and many waiters for few permits behind it.
/// With `elsewhere`, a set waits in another namespace.
fn behind_a_wide_one(elsewhere: bool) -> (Machine, Command) {
    let mut machine = opened(3);
    (4..=5).for_each(|session| drop(apply(&mut machine, open_elsewhere(session))));
    if elsewhere {
        token(&apply(&mut machine, acquire(4, 1, "b", None)));
        queued(&mut machine, set(5, 1, &["a".to_owned(), "b".to_owned()]));
    }
    apply(&mut machine, set_limit(3));
    let given_back = token(&apply(&mut machine, permits(1, 1, 1)));
    token(&apply(&mut machine, permits(1, 2, 2)));
    queued(&mut machine, permits(2, 1, 3));
    (1..=MANY).for_each(|number| queued(&mut machine, permits(3, number, 1)));
    (machine, release(1, 3, "pool", given_back))
}

/// A set that waits in one namespace adds no cost to locks of another.
#[test]
fn a_waiting_set_slows_no_other_namespace() {
    let counts = [false, true].map(|elsewhere| {
        let (mut machine, given_back) = behind_a_wide_one(elsewhere);
        counted(&mut machine, given_back).0
    });
    assert_eq!(counts[0], counts[1], "looked at without and with a set that waits elsewhere");
    assert!(counts[0] < 10, "{} were looked at, where the first is in the way of all", counts[0]);
}

/// History excuses a grant out of order because of a waiting set only if a set waits in the same queue.
#[test]
fn a_set_that_waits_elsewhere_excuses_no_grant() {
    let mut machine = opened(3);
    let held = token(&apply(&mut machine, acquire(1, 1, "b", None)));
    queued(&mut machine, set(2, 1, &["a".to_owned(), "b".to_owned()]));
    apply(&mut machine, acquire(3, 1, "c", None));
    apply(&mut machine, acquire(1, 2, "a", None));
    apply(&mut machine, release(1, 3, "b", held));
    let query =
        Query::History { namespace: Namespace::default(), lock: None, after: Some(Position::default()), rows: 100 };
    let QueryResult::History(page) = machine.query(&query).answer else { panic!("another answer") };
    let passing = |lock: &str| -> Vec<bool> {
        let of =
            page.records.iter().filter(|record| record.event.subject.lock().is_some_and(|key| key.name == name(lock)));
        of.filter_map(|record| record.grant.as_ref()).map(|facts| facts.passing).collect()
    };
    assert_eq!(passing("b"), [false], "no set waited yet");
    assert_eq!(passing("c"), [false], "a set waits, but for other locks");
    assert_eq!(passing("a"), [true], "its session holds what the waiting set lacks, and passes it");
}

/// Many sets share a name, and a release lets the first of them be granted. Each of the others is looked at once there,
/// not together with all sets before it.
#[test]
fn a_release_looks_once_at_sets_that_share_a_name() {
    let counts = [FEW, MANY].map(|sets| {
        let mut machine = opened(2);
        let lacked = token(&apply(&mut machine, acquire(1, 1, "lacked", None)));
        (1..=sets).for_each(|number| queued(&mut machine, set_of(2, number, &["hot", "lacked"])));
        let (count, granted) = counted(&mut machine, release(1, 2, "lacked", lacked));
        assert_eq!(granted, 2, "one set of two locks");
        count
    });
    assert!(counts[1] <= 5 * usize::try_from(MANY).expect("small"), "{counts:?} for {FEW} and {MANY} sets");
}

/// Many waiters are granted together behind as many sets that must continue to wait. The queue is not walked from its
/// head for each grant.
#[test]
fn many_grants_behind_sets_that_wait_on_are_one_walk() {
    let mut machine = opened(3);
    let hot = token(&apply(&mut machine, in_mode(acquire(1, 1, "hot", None), Mode::Exclusive)));
    apply(&mut machine, acquire(1, 2, "lacked", None));
    (1..=MANY).for_each(|number| queued(&mut machine, set_of(2, number, &["hot", "lacked"])));
    for number in 1..=MANY {
        let reads = in_mode(acquire(3, number, "hot", None), Mode::Shared);
        queued(&mut machine, if number % 2 == 0 { barging(reads) } else { reads });
    }
    let (count, granted) = counted(&mut machine, release(1, 3, "hot", hot));
    let many = usize::try_from(MANY).expect("small");
    assert_eq!(granted, many, "all readers");
    assert!(count <= 10 * many, "{count} were looked at for {many} sets and {many} readers");
}

/// A set that wants more permits than are returned lacks them before and after each grant of one permit. So such a
/// grant lets no session overtake the set that could not before, and the queues of the other holders are not checked.
#[test]
fn a_grant_of_a_permit_checks_no_queue_of_other_holders() {
    let mut machine = opened(MANY + 3);
    let (reader, waiter, waits_in_set) = (MANY + 1, MANY + 2, MANY + 3);
    apply(&mut machine, set_limit(u32::try_from(MANY).expect("small")));
    let holds = (1..=MANY).map(|holder| token(&apply(&mut machine, permits(holder, 1, 1)))).collect::<Vec<_>>();
    for holder in 1..=MANY {
        let own = format!("own-{holder}");
        token(&apply(&mut machine, in_mode(acquire(reader, holder, &own, None), Mode::Shared)));
        queued(&mut machine, acquire(holder, 2, &own, None));
    }
    (1..=2).for_each(|number| queued(&mut machine, permits(waiter, number, 1)));
    let Command::Acquire(mut asks) = set(waits_in_set, 1, &["other".to_owned(), "pool".to_owned()]) else { panic!() };
    asks.locks.insert(name("pool"), Mode::Permits(5).into());
    queued(&mut machine, Command::Acquire(asks));
    let (count, granted) = counted(&mut machine, release(1, 3, "pool", holds[0]));
    assert_eq!(granted, 1, "the first waiter for a permit");
    assert!(count < 20, "{count} were looked at for {MANY} holders");
}

/// A set whose locks are all held is searched for deadlocks once, because its waits have one owner.
#[test]
fn a_set_is_searched_for_deadlocks_once() {
    let mut machine = opened(2);
    let locks: Vec<String> = (0..limits::LOCKS_A_SET_MAX).map(|number| format!("lock-{number}")).collect();
    for (number, lock) in (1..).zip(&locks) {
        token(&apply(&mut machine, acquire(1, number, lock, Some("holder"))));
    }
    let Command::Acquire(asks) = set(2, 1, &locks) else { panic!("a set") };
    let asks = Command::Acquire(Acquire { owner: owner("waiter"), ..asks });
    let (count, _) = counted(&mut machine, asks);
    assert_eq!(count, 1, "searches for {} locks", locks.len());
}

/// A break reports the first waiter without a view of all of them.
#[test]
fn a_break_shows_one_waiter() {
    let mut machine = opened(2);
    let token = token(&apply(&mut machine, acquire(1, 1, "hot", None)));
    (1..=MANY).for_each(|number| queued(&mut machine, acquire(2, number, "hot", None)));
    let what = Managing::BreakHold { token, why: Reason::parse("stuck").expect("legal") };
    let (count, granted) = counted(&mut machine, Command::Manage(Manage { lock: key("hot"), what }));
    assert_eq!(granted, 1, "the first waiter");
    assert!(count < 10, "{count} were looked at, {MANY} wait");
}

/// Reentry finds an owner's claims for one lock without a walk over the other claims of its session, also if claims
/// have deadlines.
#[test]
fn reentry_does_not_walk_a_sessions_claims() {
    let mut machine = opened(2);
    for number in 1..=MANY {
        let Command::Acquire(mut asks) = acquire(1, number, &format!("lock-{number}"), Some("job")) else { panic!() };
        if number % 2 == 0 {
            asks.lease_ms = Some(60_000);
        }
        token(&apply(&mut machine, Command::Acquire(asks)));
    }
    for (number, lock) in (MANY + 1..).zip(["lock-1", "lock-2"]) {
        let asks = acquire(1, number, lock, Some("job"));
        let index = machine.applied() + 1;
        let (applied, count) = count_of(|| machine.apply(index, &entry(0, vec![], vec![asks])));
        let outcome = &applied.commands[0].outcome;
        assert!(matches!(outcome, Outcome::Refused(Refusal::AlreadyHeld { .. })), "{lock}: {outcome:?}");
        assert!(count < 5, "{count} were looked at for {lock}");
    }
}

/// A hand-over finds the wait of its session in the shorter of two lists: the queue, or the session's claims.
#[test]
fn a_hand_over_does_not_walk_a_sessions_claims() {
    let mut machine = opened(2);
    let token = token(&apply(&mut machine, acquire(1, 1, "hot", None)));
    (1..=MANY).for_each(|number| drop(apply(&mut machine, acquire(2, number, &format!("lock-{number}"), None))));
    queued(&mut machine, acquire(2, MANY + 1, "hot", None));
    let what = Managing::HandOver { token, to: SessionId::new(0, 2) };
    let (count, _) = counted(&mut machine, Command::Manage(Manage { lock: key("hot"), what }));
    assert!(count < 10, "{count} were looked at, the session has {MANY} other claims");
}

pub(super) fn take(number: u64, lock: &str, lease_ms: u64) -> Command {
    Command::TakeLease(TakeLease {
        lock: key(lock),
        take: LeaseRequestId(number.into()),
        handle: Handle::from_random(number.into()),
        access: Mode::Shared.into(),
        lease_ms,
        patience: Patience::Try,
        metadata: Metadata::default(),
        claim_ms: None,
    })
}

/// A machine with more sessions than one sweep ends. All end together, at 1,001 ms.
fn with_ending_sessions() -> Machine {
    let count = limits::SWEEP_AN_ENTRY_MAX as u64 + 1;
    let mut machine = Machine::new();
    let sessions = (1..=count).map(|number| {
        let Command::OpenSession(open) = open(number) else { panic!("an open") };
        Command::OpenSession(OpenSession { ttl_ms: 1_000, ..open })
    });
    machine.apply(1, &entry(0, vec![], sessions.collect()));
    machine
}

/// All commands of an entry together look once for what the sweep has left at a lock, at each holder and waiter.
#[test]
fn what_a_sweep_leaves_at_a_lock_is_looked_for_once() {
    const COMMANDS: u64 = 100;
    let mut machine = with_ending_sessions();
    let of = |number, access: Access, patience| {
        let Command::TakeLease(take) = take(number, "hot", 60_000) else { panic!("a take") };
        Command::TakeLease(TakeLease { access, patience, ..take })
    };
    let holds = (1..=MANY).map(|number| take(number, "hot", 60_000));
    let waits = (MANY + 1..=2 * MANY).map(|number| of(number, Mode::Exclusive.into(), Patience::For { ms: 60_000 }));
    machine.apply(2, &entry(0, vec![], holds.chain(waits).collect()));
    let tries = (1..=COMMANDS).map(|number| of(2 * MANY + number, Mode::Shared.into(), Patience::Try));
    let (applied, count) = count_of(|| machine.apply(3, &entry(1_001, vec![], tries.collect())));
    assert!(machine.is_due(), "one sweep ended everything");
    let refused = |reply: &Reply| matches!(reply.outcome, Outcome::Refused(Refusal::Held { .. }));
    assert!(applied.commands.iter().all(refused), "{applied:?}");
    let most = usize::try_from(3 * MANY + 10 * COMMANDS).expect("small");
    assert!(count <= most, "{COMMANDS} commands looked at {count} of {MANY} holders and {MANY} waiters");
}

/// While documents are still to be freed, but nothing is due, commands do not look at the holders of their lock.
#[test]
fn an_unfinished_unlock_slows_no_other_lock() {
    let mut machine = opened(2);
    (1..=MANY).for_each(|number| drop(apply(&mut machine, take(number, "hot", 60_000))));
    let process = ProcessId::parse("host:27017:1").expect("legal");
    for number in 0..=limits::DOCUMENTS_UNLOCKED_AT_ONCE_MAX {
        let mut ts = [0; 12];
        ts[8..].copy_from_slice(&u32::try_from(number).expect("small").to_be_bytes());
        let metadata = Metadata { process: process.as_str().into(), ..Metadata::default() };
        let (lock, ts) = (key(&format!("document-{number}")), DocumentId(ts));
        let grab = Grab { lock, ts, term: None, prepare: false, seen: None, metadata };
        apply(&mut machine, Command::Document(DocumentCommand::Grab(grab)));
    }
    let unlock = DocumentCommand::UnlockAll { namespace: Namespace::default(), process, term: None };
    apply(&mut machine, Command::Document(unlock));
    assert_eq!(machine.state.globals.unlocking.len(), 1);
    let (count, granted) = counted(&mut machine, take(MANY + 1, "hot", 60_000));
    assert!(granted == 1 && count < 10, "{count} were looked at, {MANY} hold the lock");
}

/// A command that finds many ended leases of one lock, which the sweep has not reached, walks over the holders once.
#[test]
fn many_ends_at_one_lock_are_one_walk() {
    let mut machine = with_ending_sessions();
    let lasting = (1..=MANY).map(|number| take(number, "hot", 60_000));
    let ending = (MANY + 1..=2 * MANY).map(|number| take(number, "hot", 1_001));
    machine.apply(2, &entry(0, vec![], lasting.chain(ending).collect()));
    let (applied, count) = count_of(|| machine.apply(3, &entry(1_002, vec![], vec![take(9_999, "hot", 60_000)])));
    assert!(machine.is_due(), "one sweep ended everything");
    assert!(matches!(applied.commands[0].outcome, Outcome::Granted(_)), "{applied:?}");
    let many = usize::try_from(MANY).expect("small");
    assert_eq!(machine.totals().holders, MANY + 1, "the others have ended");
    assert!(count <= 5 * many, "{count} were looked at for {many} leases that last and {many} that ended");
}
