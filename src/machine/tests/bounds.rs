//! Bounds: the sweep of one entry, and the quotas that can be reached in a test.

use super::mirror::{Watched, entry};
use crate::limits;
use crate::model::*;
use crate::state::RecordKey;

fn name(text: &str) -> LockName {
    LockName::parse(text).expect("legal")
}

fn key(text: &str) -> LockKey {
    LockKey { namespace: Namespace::default(), name: name(text) }
}

fn open(number: u64, ttl_ms: u64) -> Command {
    Command::OpenSession(OpenSession {
        namespace: Namespace::default(),
        handle: Handle::from_random(number.into()),
        instance: Instance(1),
        ttl_ms,
        disconnect_grace_ms: None,
        metadata: Metadata::default(),
        accepts_hand_over: false,
    })
}

fn acquire(session: u64, number: u64, lock: &str, patience: Patience) -> Command {
    Command::Acquire(Acquire {
        request: RequestId { session: SessionId::new(0, session), number },
        answered_below: 0,
        locks: (name(lock), Mode::Exclusive.into()).into(),
        owner: None,
        patience,
        metadata: Metadata::default(),
        lease_ms: None,
        extras: None,
    })
}

fn take(number: u128, lock: &str, patience: Patience) -> TakeLease {
    TakeLease {
        lock: key(lock),
        take: LeaseRequestId(number),
        handle: Handle::from_random(number),
        access: Mode::Exclusive.into(),
        lease_ms: 1000,
        patience,
        metadata: Metadata::default(),
        claim_ms: None,
    }
}

fn outcome(watched: &mut Watched, stamp: u64, command: Command) -> Outcome {
    watched.apply(&entry(stamp, vec![], vec![command])).commands.remove(0).outcome
}

/// The number of sessions: more than one sweep ends. All but the last, the survivor, have the same deadline.
const MANY: u64 = limits::SWEEP_AN_ENTRY_MAX as u64 + 1_000;
const SURVIVOR: u64 = MANY + 1;

/// All sessions are open, and the last of those that end hold locks. The survivor waits for one of these locks. Leases
/// and waits end at the same time as the sessions.
fn with_many_sessions() -> Watched {
    let mut watched = Watched::default();
    watched.apply(&entry(0, vec![], (1..=MANY).map(|number| open(number, 1000)).collect()));
    let mut commands = vec![open(SURVIVOR, 60_000)];
    for back in 0..4 {
        commands.push(acquire(MANY - back, 1, &format!("lock-{back}"), Patience::Session));
    }
    commands.push(Command::TakeLease(take(1, "leased", Patience::Session)));
    commands.push(acquire(SURVIVOR, 1, "lock-0", Patience::Session));
    commands.push(acquire(SURVIVOR, 2, "lock-1", Patience::For { ms: 1000 }));
    commands.push(acquire(SURVIVOR, 3, "lock-2", Patience::For { ms: 1000 }));
    watched.apply(&entry(0, vec![], commands));
    watched
}

/// If more is due than one sweep ends, later entries end the rest. The survivor is granted what becomes free.
#[test]
fn mass_expiry_is_finished_by_later_entries() {
    let mut watched = with_many_sessions();
    watched.apply(&entry(1001, vec![], vec![Command::Tick]));
    assert!(watched.machine.is_due(), "one sweep ended everything");
    assert_eq!(watched.machine.totals().sessions, SURVIVOR - limits::SWEEP_AN_ENTRY_MAX as u64);
    let applied = watched.apply(&entry(1001, vec![], vec![Command::Tick]));
    assert!(!watched.machine.is_due());
    assert_eq!(watched.machine.totals().sessions, 1);
    let granted = applied.events.iter().filter(|event| event.kind.word() == "granted");
    assert_eq!(granted.count(), 1, "the survivor's bounded waits were over, its patient one was granted");
    watched.compare_mirror();
}

/// A command first ends, completely, everything due that it concerns and that the sweep has not reached.
#[test]
fn commands_end_what_is_due_before_they_look_at_it() {
    let mut watched = with_many_sessions();
    let (due, survivor) = (SessionId::new(0, MANY - 3), SessionId::new(0, SURVIVOR));
    let commands = vec![
        Command::CloseSession { session: due, end: SessionClose::Done },
        acquire(SURVIVOR, 2, "lock-1", Patience::Session),
        Command::Cancel { request: RequestId { session: survivor, number: 3 } },
        acquire(SURVIVOR, 3, "lock-2", Patience::Session),
        Command::CancelTake { lock: key("leased"), take: LeaseRequestId(1), handle: Handle::from_random(1) },
        Command::TakeLease(take(1, "leased", Patience::Try)),
        acquire(SURVIVOR, 4, "lock-3", Patience::Try),
        acquire(MANY - 5, 1, "elsewhere", Patience::Try),
    ];
    let applied = watched.apply(&entry(1001, vec![], commands));
    assert!(watched.machine.is_due(), "one sweep ended everything");
    let expired = EventKind::SessionEnded { reason: EndReason::Expired, why: None };
    let ended = |event: &Event| event.subject == Subject::Session(due) && event.kind == expired;
    assert!(applied.events.iter().any(ended), "it was due before it was closed");
    let outcomes: Vec<_> = applied.commands.into_iter().map(|reply| reply.outcome).collect();
    assert_eq!(outcomes[1], Outcome::TimedOut);
    assert_eq!(outcomes[3], Outcome::TimedOut, "a cancel does not overtake the end of the wait");
    assert_eq!(outcomes[5], Outcome::HoldEnded { reason: EndReason::Expired });
    assert!(matches!(outcomes[6], Outcome::Granted(_)), "{:?}", outcomes[6]);
    assert!(matches!(outcomes[7], Outcome::Refused(Refusal::SessionEnded { .. })), "{:?}", outcomes[7]);
}

/// A lock-delay that is over, but that the sweep has not reached, keeps nothing closed, because a command on its lock
/// ends it first. The hold can then not be resumed, and its reserved permits are free, also for a set.
#[test]
fn a_command_ends_a_lock_delay_that_is_over() {
    let mut watched = Watched::default();
    watched.apply(&entry(0, vec![], (1..=MANY).map(|number| open(number, 1000)).collect()));
    let (loser, survivor) = (MANY + 1, MANY + 2);
    let delayed = |number: u64, lock: &str, access: Access| {
        let Command::Acquire(mut acquire) = acquire(loser, number, lock, Patience::Try) else { panic!("an acquire") };
        acquire.locks.values_mut().for_each(|of| *of = access);
        acquire.extras.get_or_insert_default().delay_ms = 1000;
        Command::Acquire(acquire)
    };
    let permits = |count| Access::permits(count, 2);
    let mut commands = vec![open(loser, 60_000), open(survivor, 60_000)];
    let locks = ["taken", "resumed", "in-a-set", "broken"];
    commands.extend((1..).zip(locks).map(|(number, lock)| delayed(number, lock, Mode::Exclusive.into())));
    commands.push(delayed(9, "pool", permits(2)));
    let granted = watched.apply(&entry(0, vec![], commands));
    let tokens: Vec<FencingToken> = granted.commands[2..]
        .iter()
        .map(|reply| {
            let Outcome::Granted(grant) = &reply.outcome else { panic!("not granted: {reply:?}") };
            grant.token
        })
        .collect();
    let lost = Command::CloseSession { session: SessionId::new(0, loser), end: SessionClose::Lost };
    watched.apply(&entry(10, vec![], vec![lost]));
    let asks = |number| RequestId { session: SessionId::new(0, survivor), number };
    let what = Alteration::Resume { token: tokens[1], handle: Handle::from_random(loser.into()), lease_ms: None };
    let locks = ["free", "in-a-set"].map(|lock| (name(lock), Mode::Exclusive.into())).into_iter().collect();
    let Command::Acquire(pool) = acquire(survivor, 4, "pool", Patience::Try) else { panic!("an acquire") };
    let why = Reason::parse("stuck").expect("legal");
    let commands = vec![
        acquire(survivor, 1, "taken", Patience::Try),
        Command::Alter(Alter { request: asks(2), answered_below: 0, name: name("resumed"), what }),
        Command::Acquire(Acquire {
            request: asks(3),
            answered_below: 0,
            locks,
            owner: None,
            patience: Patience::Try,
            metadata: Metadata::default(),
            lease_ms: None,
            extras: None,
        }),
        Command::Acquire(Acquire { locks: (name("pool"), permits(1)).into(), ..pool }),
        Command::Manage(Manage { lock: key("broken"), what: Managing::BreakHold { token: tokens[3], why } }),
    ];
    let applied = watched.apply(&entry(1011, vec![], commands));
    assert!(watched.machine.is_due(), "one sweep ended everything");
    let outcomes: Vec<_> = applied.commands.into_iter().map(|reply| reply.outcome).collect();
    assert!(matches!(outcomes[0], Outcome::Granted(_)), "{:?}", outcomes[0]);
    assert_eq!(outcomes[1], Outcome::Refused(Refusal::NotHeld { lock: key("resumed") }));
    assert!(matches!(outcomes[2], Outcome::GrantedSet(_)), "{:?}", outcomes[2]);
    assert!(matches!(outcomes[3], Outcome::Granted(_)), "{:?}", outcomes[3]);
    assert_eq!(outcomes[4], Outcome::Refused(Refusal::NotHeld { lock: key("broken") }));
    let opened = applied.events.iter().filter(|event| matches!(event.kind, EventKind::Reopened)).count();
    assert_eq!(opened, tokens.len(), "each delay ended with its event");
}

/// The sweep has reached neither the end of what returned permits keep closed, nor the later end of their session. A
/// command on the lock ends both, and the lock-delay that begins with the session's end stays. Permits that were
/// reserved until after that end are reserved longer.
#[test]
fn a_lock_delay_that_has_just_begun_lasts() {
    for (at_least_ms, one_is_free) in [(1_000, true), (1_250, false)] {
        let mut watched = Watched::default();
        watched.apply(&entry(0, vec![], (1..=MANY).map(|number| open(number, 900)).collect()));
        let (loser, other) = (MANY + 1, MANY + 2);
        let permits = |session, number, count, extras| {
            let Command::Acquire(asks) = acquire(session, number, "pool", Patience::Try) else { panic!("an acquire") };
            Command::Acquire(Acquire { locks: (name("pool"), Access::permits(count, 3)).into(), extras, ..asks })
        };
        let extras = Extras { at_least_ms: Some(at_least_ms), delay_ms: 30_000, ..Extras::default() };
        let held = permits(loser, 1, 3, Some(Box::new(extras)));
        let granted = watched.apply(&entry(0, vec![], vec![open(loser, 1_200), open(other, 60_000), held]));
        let Outcome::Granted(grant) = &granted.commands[2].outcome else { panic!("not granted: {granted:?}") };
        let request = RequestId { session: SessionId::new(0, loser), number: 2 };
        let what = Alteration::ReturnPermits { token: grant.token, count: 1 };
        let returned = Command::Alter(Alter { request, answered_below: 0, name: name("pool"), what });
        assert_eq!(outcome(&mut watched, 0, returned), Outcome::Released { left: 2 });
        let commands = vec![permits(other, 1, 3, None), permits(other, 2, 1, None)];
        let applied = watched.apply(&entry(1_300, vec![], commands));
        assert!(watched.machine.is_due(), "one sweep ended everything");
        let [all, one] = &applied.commands[..] else { panic!("two commands") };
        let Outcome::Refused(Refusal::Held { holder: None, closed: Some(closed), .. }) = &all.outcome else {
            panic!("not closed: {all:?}")
        };
        assert_eq!(closed.until, LogTime(31_300));
        assert_eq!(matches!(one.outcome, Outcome::Granted(_)), one_is_free, "{one:?}");
    }
}

/// Holds and waits have ended before their session, and the sweep has not reached them. A command that ends the session
/// ends them first, each for its own reason. After an at-most time the lock is free; after a lease the lock-delay keeps
/// it closed.
#[test]
fn what_ended_before_its_session_ends_for_its_own_reason() {
    let mut watched = Watched::default();
    watched.apply(&entry(0, vec![], (1..=MANY).map(|number| open(number, 900)).collect()));
    let (expires, closes, other, waits) = (MANY + 1, MANY + 2, MANY + 3, MANY + 4);
    let holds = |session, lock, lease_ms, at_most_ms| {
        let Command::Acquire(asks) = acquire(session, 1, lock, Patience::Try) else { panic!("an acquire") };
        let extras = Some(Box::new(Extras { at_most_ms, delay_ms: 30_000, ..Extras::default() }));
        Command::Acquire(Acquire { lease_ms, extras, ..asks })
    };
    let commands = vec![
        open(expires, 1_200),
        open(closes, 60_000),
        open(other, 60_000),
        open(waits, 60_000),
        holds(expires, "brief", None, Some(1_000)),
        holds(closes, "leased", Some(1_000), None),
        acquire(other, 1, "busy", Patience::Try),
        acquire(waits, 1, "busy", Patience::For { ms: 1_000 }),
    ];
    let granted = watched.apply(&entry(0, vec![], commands));
    assert!(granted.commands[4..7].iter().all(|reply| matches!(reply.outcome, Outcome::Granted(_))), "{granted:?}");
    let commands = vec![
        acquire(expires, 2, "elsewhere", Patience::Try),
        acquire(other, 2, "brief", Patience::Try),
        Command::CloseSession { session: SessionId::new(0, closes), end: SessionClose::Done },
        acquire(other, 3, "leased", Patience::Try),
        Command::CloseSession { session: SessionId::new(0, waits), end: SessionClose::Done },
    ];
    let applied = watched.apply(&entry(1_300, vec![], commands));
    assert!(watched.machine.is_due(), "one sweep ended everything");
    let reasons = applied.events.iter().filter_map(|event| {
        let EventKind::Expired { reason, .. } = event.kind else { return None };
        Some(reason)
    });
    assert_eq!(reasons.collect::<Vec<_>>(), [EndReason::TimeOver, EndReason::Expired]);
    let timed_out = |event: &Event| matches!(event.kind, EventKind::WaitEnded { why: WaitEndReason::TimedOut, .. });
    assert!(applied.events.iter().any(timed_out), "{:?}", applied.events);
    assert!(matches!(applied.commands[1].outcome, Outcome::Granted(_)), "{:?}", applied.commands[1]);
    let Outcome::Refused(Refusal::Held { closed: Some(closed), .. }) = &applied.commands[3].outcome else {
        panic!("not closed: {:?}", applied.commands[3])
    };
    assert_eq!(closed.until, LogTime(31_300));
}

/// A machine that is restored during an unfinished sweep is complete, and continues like the original.
#[test]
fn an_unfinished_sweep_survives_a_restore() {
    let mut watched = with_many_sessions();
    watched.apply(&entry(1001, vec![], vec![Command::Tick]));
    let mut restored = watched.compare_mirror();
    let next = entry(1001, vec![], vec![acquire(SURVIVOR, 9, "lock-3", Patience::Try)]);
    let index = watched.machine.applied() + 1;
    assert_eq!(watched.apply(&next), restored.apply(index, &next));
}

/// Between two sweeps, nothing that is due is granted or renewed, although its record still exists.
#[test]
fn nothing_due_is_granted_or_renewed_between_two_sweeps() {
    let mut watched = with_many_sessions();
    let (dead, survivor) = (MANY - 10, SessionId::new(0, SURVIVOR));
    let queue = vec![
        acquire(1, 1, "head", Patience::Session),
        acquire(dead, 1, "head", Patience::Session),
        acquire(SURVIVOR, 7, "head", Patience::Session),
    ];
    watched.apply(&entry(0, vec![], queue));
    let applied = watched.apply(&entry(1001, vec![], vec![Command::Tick]));
    assert!(watched.machine.is_due(), "one sweep ended everything");
    let granted: Vec<_> = applied.events.iter().filter(|event| event.kind.word() == "granted").collect();
    assert!(matches!(granted[..], [event] if event.subject.session() == Some(survivor)), "{granted:?}");

    let target = RenewalTarget::Session(SessionId::new(0, MANY - 3));
    let renewal = Renewal { target, attempt: 1, receipt: LogTime(1000) };
    let applied = watched.apply(&entry(1001, vec![renewal], vec![]));
    assert!(
        matches!(applied.renewals[0].outcome, Outcome::Refused(Refusal::SessionEnded { .. })),
        "renewed after the end"
    );
}

/// One more than a quota allows is refused with the quota's name, and one less is accepted.
#[test]
fn quotas_are_refused_by_name() {
    let mut watched = Watched::default();
    watched.apply(&entry(0, vec![], vec![open(1, 60_000), open(2, 60_000)]));
    let max = limits::LOCKS_A_SESSION_MAX as u64;
    let commands = (1..max).map(|number| acquire(1, number, &format!("lock-{number}"), Patience::Session));
    watched.apply(&entry(0, vec![], commands.collect()));
    assert!(matches!(outcome(&mut watched, 0, acquire(1, max, "last", Patience::Try)), Outcome::Granted(_)));
    let refused = Outcome::Refused(Refusal::Quota { what: QuotaKind::LocksOfSession, limit: max });
    assert_eq!(outcome(&mut watched, 0, acquire(1, max + 1, "beyond", Patience::Try)), refused);

    let max = limits::WAITERS_A_LOCK_MAX as u128;
    let takes = (0..max).map(|number| Command::TakeLease(take(number, "last", Patience::Session)));
    watched.apply(&entry(0, vec![], takes.collect()));
    let refused = Outcome::Refused(Refusal::Quota { what: QuotaKind::WaitersOfLock, limit: max as u64 });
    assert_eq!(outcome(&mut watched, 0, acquire(2, 1, "last", Patience::Session)), refused);
}

/// Only a semaphore has a limit. A limit in a request with another mode is ignored, and the state can be loaded again.
#[test]
fn a_lock_keeps_no_limit() {
    let mut watched = Watched::default();
    let Command::Acquire(mut asks) = acquire(1, 1, "dam", Patience::Try) else { panic!("an acquire") };
    asks.locks.values_mut().for_each(|access| access.limit = Some(3));
    let taken = take(1, "weir", Patience::Try);
    let taken = TakeLease { access: Access { limit: Some(3), ..taken.access }, ..taken };
    let applied =
        watched.apply(&entry(0, vec![], vec![open(1, 60_000), Command::Acquire(asks), Command::TakeLease(taken)]));
    assert!(applied.commands[1..].iter().all(|reply| matches!(reply.outcome, Outcome::Granted(_))), "{applied:?}");
    let semaphores = watched.machine.state().record_keys().filter(|key| matches!(key, RecordKey::Semaphore(_)));
    assert_eq!(semaphores.count(), 0);
    watched.compare_mirror();
}

/// A namespace that uses nothing any more has no record left.
#[test]
fn a_namespace_that_uses_nothing_is_forgotten() {
    let mut watched = Watched::default();
    for number in 1..=50 {
        let Command::OpenSession(open) = open(number, 60_000) else { panic!("an open") };
        let namespace = Namespace::parse(&format!("tenant-{number}")).expect("legal");
        watched.apply(&entry(0, vec![], vec![Command::OpenSession(OpenSession { namespace, ..open })]));
        let commands = (1..=2).map(|request| acquire(number, request, "lock", Patience::Session)).collect();
        watched.apply(&entry(0, vec![], commands));
    }
    assert_eq!(watched.machine.state.index.usage.len(), 50);
    let close = |number| Command::CloseSession { session: SessionId::new(0, number), end: SessionClose::Done };
    watched.apply(&entry(0, vec![], (1..=50).map(close).collect()));
    watched.apply(&entry(limits::TOMBSTONE_MS + 1, vec![], vec![]));
    assert_eq!(
        watched.machine.state.index.usage.len(),
        0,
        "all sessions have ended, and their tombstones are forgotten"
    );
}
