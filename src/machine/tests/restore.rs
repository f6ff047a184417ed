//! Restores: which parts of a backup's state continue, and when the first grant is possible.

use super::mirror::entry;
use crate::limits;
use crate::machine::Machine;
use crate::model::*;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// Day 326 of the epoch count, at noon.
const NOON: u64 = (20_454 + 326) * DAY_MS + DAY_MS / 2;

fn key(text: &str) -> LockKey {
    LockKey { namespace: Namespace::default(), name: LockName::parse(text).expect("legal") }
}

fn open(number: u64) -> Command {
    Command::OpenSession(OpenSession {
        namespace: Namespace::default(),
        handle: Handle::from_random(number.into()),
        instance: Instance(1),
        ttl_ms: 10_000,
        disconnect_grace_ms: None,
        metadata: Metadata::default(),
        accepts_hand_over: false,
    })
}

fn acquire(session: SessionId, number: u64, lock: &str, patience: Patience) -> Command {
    Command::Acquire(Acquire {
        request: RequestId { session, number },
        answered_below: 0,
        locks: (key(lock).name, Mode::Exclusive.into()).into(),
        owner: None,
        patience,
        metadata: Metadata::default(),
        lease_ms: None,
        extras: None,
    })
}

fn take(number: u128, lock: &str) -> Command {
    Command::TakeLease(TakeLease {
        lock: key(lock),
        take: LeaseRequestId(number),
        handle: Handle::from_random(number),
        access: Mode::Exclusive.into(),
        lease_ms: limits::TTL_MS_MAX_DEFAULT,
        patience: Patience::For { ms: 60 * 60 * 1000 },
        metadata: Metadata::default(),
        claim_ms: None,
    })
}

/// A machine to which entries are applied in sequence.
struct Driven(Machine);

impl Driven {
    fn apply(&mut self, stamp: u64, command: Command) -> Outcome {
        let index = self.0.applied() + 1;
        let outcome = self.0.apply(index, &entry(stamp, vec![], vec![command])).commands.remove(0).outcome;
        self.0.check().expect("sound");
        outcome
    }

    fn opened(&mut self, stamp: u64, number: u64) -> SessionId {
        let Outcome::Opened { session, .. } = self.apply(stamp, open(number)) else { panic!("not opened") };
        session
    }

    fn holders(&self, lock: &str) -> Vec<FencingToken> {
        let QueryResult::Lock(view) = self.0.query(&Query::Inspect { lock: key(lock) }).answer else {
            panic!("a view")
        };
        view.holders.iter().map(|holder| holder.token).collect()
    }

    /// The machine of the new cluster, made from the records.
    fn restored(&self, wall: u64, at_once: bool) -> Self {
        self.restored_as(Restoring { wall: WallTime(wall), cluster_id: 7, epoch_min: 0, at_once, ttl_ms_max: 0 })
    }

    fn restored_as(&self, restoring: Restoring) -> Self {
        let mut machine = self.0.clone();
        machine.restore(restoring).expect("a larger epoch");
        machine.check().expect("sound");
        let again = Machine::from_records(machine.state().records().collect::<Vec<_>>()).expect("records");
        again.check().expect("sound from its records");
        Self(again)
    }
}

/// One session holds a lock, and another waits for it. A lease holds another lock, and a second lease waits for the
/// first lock.
fn backed_up() -> Driven {
    let mut driven = Driven(Machine::new());
    let (first, second) = (driven.opened(0, 1), driven.opened(0, 2));
    driven.apply(1, acquire(first, 1, "held", Patience::Session));
    driven.apply(2, acquire(second, 1, "held", Patience::Session));
    driven.apply(3, take(1, "leased"));
    driven.apply(4, take(2, "held"));
    driven
}

/// Sessions end with their holds and waits, and a lease stays. Nothing is granted until the longest unknown grant has
/// expired. Then the order is first come, first served.
#[test]
fn nothing_is_granted_until_unknown_grants_have_ended() {
    let before = backed_up();
    let lease = before.holders("leased");
    let mut after = before.restored(NOON, false);
    assert_eq!((after.holders("held"), after.holders("leased")), (vec![], lease));
    let session = after.opened(5, 3);
    assert_eq!((session.epoch(), session.counter()), (326, (DAY_MS / 2000) * (1 << 31) + 1));
    let Outcome::Refused(Refusal::Closed { left_ms }) = after.apply(5, acquire(session, 1, "new", Patience::Try))
    else {
        panic!("granted")
    };
    assert_eq!(left_ms, limits::TTL_MS_MAX_DEFAULT - 1);
    let Outcome::Queued(_) = after.apply(6, acquire(session, 2, "new", Patience::Session)) else { panic!("granted") };
    let last = 4 + limits::TTL_MS_MAX_DEFAULT;
    for stamp in (10_000..=last).step_by(5_000).chain([last]) {
        let renewal = Renewal { target: RenewalTarget::Session(session), attempt: 0, receipt: LogTime(stamp) };
        let index = after.0.applied() + 1;
        after.0.apply(index, &entry(stamp, vec![renewal], vec![]));
        after.0.check().expect("sound");
        assert_eq!((after.holders("held"), after.holders("new")), (vec![], vec![]), "at {stamp}");
    }
    assert_eq!(after.0.next_deadline().map(|at| at.0 <= last + 5_000), Some(true), "the opening has no deadline");
    after.apply(last + 1, Command::Tick);
    let tokens = [after.holders("held"), after.holders("new")].concat();
    assert_eq!(tokens.len(), 2, "{tokens:?}");
    assert!(tokens.iter().all(|token| token.epoch() == 326), "{tokens:?}");
}

/// While nothing is granted after a restore, the quota of waiters also bounds the requests for free names.
#[test]
fn waiters_for_free_names_are_bounded_in_the_closed_time() {
    let mut after = backed_up().restored(NOON, false);
    let session = after.opened(5, 3);
    // The take of the backup waits, too.
    after.0.quotas.waiters = 2;
    let Outcome::Queued(_) = after.apply(5, acquire(session, 1, "new", Patience::Session)) else { panic!("granted") };
    let refused = Outcome::Refused(Refusal::Quota { what: QuotaKind::Waiters, limit: 2 });
    assert_eq!(after.apply(5, acquire(session, 2, "newer", Patience::Session)), refused);
}

/// A break has no next holder while nothing is granted after a restore. If grants are possible at once, the first
/// waiter is next.
#[test]
fn a_break_in_the_closed_time_names_no_next_holder() {
    for at_once in [false, true] {
        let mut after = backed_up().restored(NOON, at_once);
        let (session, token) = (after.opened(5, 3), after.holders("leased")[0]);
        let Outcome::Queued(_) = after.apply(5, acquire(session, 1, "leased", Patience::Session)) else {
            panic!("not queued")
        };
        let query = Query::WouldBreak { lock: key("leased"), token };
        let QueryResult::WouldBreak(Outcome::Broken(would)) = after.0.query(&query).answer else { panic!("not held") };
        let what = Managing::BreakHold { token, why: Reason::parse("stuck").expect("legal") };
        let Outcome::Broken(done) = after.apply(6, Command::Manage(Manage { lock: key("leased"), what })) else {
            panic!("not broken")
        };
        let next = [would.next.is_some(), done.next.is_some(), !after.holders("leased").is_empty()];
        assert_eq!(next, [at_once; 3]);
    }
}

/// If the operator wants it, grants are possible at once: the waiting lease is granted what the ended session held.
#[test]
fn at_once_grants_what_is_free() {
    let after = backed_up().restored(NOON, true);
    assert_eq!(after.holders("held").iter().map(|token| token.epoch()).collect::<Vec<_>>(), [326]);
}

/// The tokens of two restores of one backup differ, whether the restores are a millisecond apart or a day. All are
/// larger than every token that was granted before.
#[test]
fn tokens_of_two_restores_never_meet() {
    let before = backed_up();
    let newest = before.holders("leased")[0];
    let tokens = |wall: u64| -> Vec<FencingToken> {
        let mut after = before.restored(wall, true);
        let session = after.opened(5, 9);
        for number in 1..=50 {
            after.apply(6, acquire(session, number, &format!("n{number}"), Patience::Try));
        }
        (1..=50).flat_map(|number| after.holders(&format!("n{number}"))).collect()
    };
    let all: Vec<_> = [NOON, NOON + 1, NOON + 1000, NOON + DAY_MS].into_iter().flat_map(tokens).collect();
    assert_eq!(all.len(), 200);
    assert!(all.iter().all(|token| newest < *token));
    assert!(all.is_sorted_by(|one, other| one < other), "tokens met");
}

/// N-ATL: a name that is kept closed, and a name whose hold has an at-least time, stay closed over a restore until the
/// same log time, even if the operator wants grants at once. Then a waiter is granted.
#[test]
fn n_atl_13_a_restore_keeps_what_stays_closed_for_at_least() {
    let hour_ms = 60 * 60 * 1000;
    let least = |session, number, lock| {
        let Command::Acquire(mut acquire) = acquire(session, number, lock, Patience::Try) else { panic!("an acquire") };
        acquire.extras = Some(Box::new(Extras { at_least_ms: Some(hour_ms), ..Extras::default() }));
        Command::Acquire(acquire)
    };
    let mut before = Driven(Machine::new());
    let session = before.opened(0, 1);
    before.apply(1, least(session, 1, "held"));
    let Outcome::Granted(grant) = before.apply(1, least(session, 2, "released")) else { panic!("not granted") };
    let request = RequestId { session, number: 3 };
    let release = Release { request, answered_below: 0, name: key("released").name, token: grant.token, acquire: 0 };
    before.apply(2, Command::Release(release));
    let mut after = before.restored(NOON, true);
    let lease = |number, lock| {
        let Command::TakeLease(take) = take(number, lock) else { panic!("a take") };
        Command::TakeLease(TakeLease { patience: Patience::For { ms: 2 * hour_ms }, ..take })
    };
    for (number, lock) in [(1, "held"), (2, "released")] {
        let Outcome::Queued(_) = after.apply(3, lease(number, lock)) else { panic!("{lock} is open") };
    }
    after.apply(1 + hour_ms, Command::Tick);
    assert_eq!((after.holders("held"), after.holders("released")), (vec![], vec![]));
    after.apply(2 + hour_ms, Command::Tick);
    assert_eq!([after.holders("held").len(), after.holders("released").len()], [1, 1]);
}

/// A restore of a backup that was made while a restored cluster granted nothing waits for the longer of both times. It
/// knows the longest TTL that the first restore named.
#[test]
fn a_second_restore_shortens_no_wait() {
    let (hour_ms, ttl_ms_max) = (60 * 60 * 1000, limits::TTL_MS_MAX_DEFAULT);
    let restoring = Restoring { wall: WallTime(NOON), cluster_id: 7, epoch_min: 0, at_once: false, ttl_ms_max: 0 };
    let mut closed = backed_up().restored_as(Restoring { ttl_ms_max: 3 * hour_ms, ..restoring });
    closed.apply(4 + hour_ms, Command::Tick);
    let again = closed.restored_as(restoring);
    assert_eq!(again.0.closed_ms(), 3 * hour_ms, "the longest TTL was forgotten");
    closed.0.state.globals.ttl_ms_max_ever = 0;
    let again = closed.restored_as(restoring);
    assert_eq!(again.0.closed_ms(), 2 * hour_ms, "the first wait was forgotten");
    let brief = closed.restored_as(Restoring { ttl_ms_max: 4 * hour_ms, ..restoring });
    assert_eq!(brief.0.closed_ms(), 4 * hour_ms);
    let open = closed.restored_as(Restoring { at_once: true, ..restoring });
    assert_eq!((open.0.closed_ms(), open.holders("held").len()), (0, 1), "the lease that waits was not granted");
    closed.apply(3 * hour_ms, Command::Tick);
    assert!(closed.0.closed_ms() < ttl_ms_max);
    assert_eq!(closed.restored_as(restoring).0.closed_ms(), ttl_ms_max);
}

/// A state with the largest epoch is not restored, because its new tokens could be smaller than earlier ones.
#[test]
fn a_state_with_the_largest_epoch_is_not_restored() {
    let restoring =
        Restoring { wall: WallTime(NOON), cluster_id: 7, epoch_min: limits::EPOCH_MAX, at_once: true, ttl_ms_max: 0 };
    let last = backed_up().restored_as(restoring);
    assert_eq!(last.holders("held").iter().map(|token| token.epoch()).collect::<Vec<_>>(), [limits::EPOCH_MAX]);
    let mut machine = last.0.clone();
    let refused = machine.restore(restoring).expect_err("the epoch is used up");
    assert_eq!(refused.to_string(), "epoch: above 32767, the epoch of the backup, got 32767");
    let records = |machine: &Machine| machine.state().records().collect::<Vec<_>>();
    assert_eq!(records(&machine), records(&last.0), "the refused restore changed something");
}

/// The new cluster knows neither the nodes of the old cluster nor its settings.
#[test]
fn no_node_of_the_old_cluster_is_known() {
    let mut before = backed_up();
    let announced = Announcement { node: 2, disk: 22, features: 1, version: "1".to_owned(), http: None, rules: None };
    before.apply(5, Command::Announce(announced));
    let settings = ClusterSettings { timing_ms: [50, 150, 300], ttl_ms_min: 3000, ttl_ms_max: 60_000 };
    before.apply(5, Command::Configure { settings, cluster_id: 5 });
    let after = before.restored(NOON, false);
    assert_eq!((after.0.announcements().len(), after.0.settings()), (0, None));
    assert_eq!(after.0.applied(), before.0.applied() + 1);
}

/// The first entry that configures the cluster sets its id. A later one with another id changes nothing, whichever
/// leader wrote it. A restored cluster has the new random id of the restore, before and after its first leader
/// configures it.
#[test]
fn the_first_cluster_id_stays() {
    let settings = ClusterSettings { timing_ms: [50, 150, 300], ttl_ms_min: 3000, ttl_ms_max: 60_000 };
    let configured = |driven: &mut Driven, cluster_id: u128| {
        driven.apply(driven.0.now().0, Command::Configure { settings, cluster_id });
        driven.0.cluster_id()
    };
    let mut before = backed_up();
    assert_eq!(before.0.cluster_id(), None);
    assert_eq!([5, 6].map(|cluster_id| configured(&mut before, cluster_id)), [Some(5); 2]);
    let records: Vec<_> = before.0.state().records().collect();
    assert_eq!(Machine::from_records(records).expect("a state").cluster_id(), Some(5));
    let mut after = before.restored(NOON, false);
    assert_eq!((after.0.cluster_id(), after.0.settings()), (Some(7), None));
    assert_eq!(configured(&mut after, 8), Some(7));
}

/// A restored cluster waits for the largest value that the longest TTL ever had, even if it was lowered before the
/// backup. The value that an operator set stays in effect.
#[test]
fn a_restore_waits_for_the_largest_ttl_that_ever_was() {
    let (hour_ms, mut before) = (60 * 60 * 1000, backed_up());
    let settings = ClusterSettings { timing_ms: [50, 150, 300], ttl_ms_min: 3000, ttl_ms_max: 60_000 };
    before.apply(5, Command::Configure { settings, cluster_id: 5 });
    for ttl_ms_max in [2 * hour_ms, 30_000] {
        assert_eq!(before.apply(5, Command::ChangeSetting(Setting::TtlMax(ttl_ms_max))), Outcome::Done);
    }
    let mut after = before.restored(NOON, false);
    assert_eq!(after.0.closed_ms(), 2 * hour_ms);
    let raised =
        Restoring { wall: WallTime(NOON), cluster_id: 7, epoch_min: 0, at_once: false, ttl_ms_max: 3 * hour_ms };
    assert_eq!(before.restored_as(raised).0.closed_ms(), 3 * hour_ms, "it was raised after the backup");
    after.apply(after.0.now().0, Command::Configure { settings, cluster_id: 5 });
    assert_eq!(after.0.ttl_ms_bounds(), (3_000, 30_000));
}
