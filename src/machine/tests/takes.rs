//! A take is stored once: in its hold or wait while it is active, in a separate record once it has finished.

use super::mirror::{Watched, entry};
use crate::machine::Machine;
use crate::model::{
    Command, EndReason, Handle, LeaseRequestId, LockKey, LockName, LogTime, Metadata, Mode, Namespace, Outcome,
    Patience, Renewal, RenewalTarget, TakeLease,
};
use crate::state::{Record, RecordKey};

fn key() -> LockKey {
    LockKey { namespace: Namespace::default(), name: LockName::parse("dam").expect("legal") }
}

fn take(number: u128) -> Command {
    Command::TakeLease(TakeLease {
        lock: key(),
        take: LeaseRequestId(number),
        handle: Handle::from_random(number),
        access: Mode::Exclusive.into(),
        lease_ms: 60_000,
        patience: Patience::For { ms: 60_000 },
        metadata: Metadata::default(),
        claim_ms: None,
    })
}

fn drop_of(number: u128) -> Command {
    Command::DropLease { lock: key(), handle: Handle::from_random(number) }
}

fn outcome_of(watched: &mut Watched, command: Command) -> Outcome {
    watched.apply(&entry(0, vec![], vec![command])).commands.remove(0).outcome
}

fn refreshed(watched: &mut Watched, number: u128) -> Outcome {
    let target = RenewalTarget::Lease { lock: key(), handle: Handle::from_random(number), lease_ms: 60_000 };
    let renewal = Renewal { target, attempt: 1, receipt: LogTime(0) };
    watched.apply(&entry(0, vec![renewal], vec![])).renewals.remove(0).outcome
}

/// Builds the machine from its records, as after a start or a snapshot.
fn restart(watched: &mut Watched) {
    watched.machine = watched.compare_mirror();
}

fn records_of_takes(machine: &Machine) -> usize {
    machine.state().records().filter(|(_, record)| matches!(record, Record::FinishedLease(_))).count()
}

/// The records that a command writes, except the counters and the history.
fn written(watched: &mut Watched, command: Command) -> Vec<RecordKey> {
    watched.machine.apply(watched.machine.applied() + 1, &entry(0, vec![], vec![command]));
    let mut keys = Vec::new();
    watched.machine.take_dirty(|_, key| keys.push(key));
    keys.retain(|key| !matches!(key, RecordKey::Globals | RecordKey::History(..)));
    keys
}

/// A take that holds or waits has no separate record. It gets one when it has finished.
#[test]
fn only_a_finished_take_has_a_record() {
    let mut watched = Watched::default();
    assert!(matches!(written(&mut watched, take(1))[..], [RecordKey::Holder(..)]));
    assert!(matches!(written(&mut watched, take(2))[..], [RecordKey::Waiter(..)]));
    assert_eq!(records_of_takes(&watched.machine), 0);
    let wrote = written(&mut watched, drop_of(1));
    assert!(wrote.contains(&RecordKey::FinishedLease(key(), LeaseRequestId(1))), "{wrote:?}");
    assert!(
        !wrote.contains(&RecordKey::FinishedLease(key(), LeaseRequestId(2))),
        "the waiter has become a holder: {wrote:?}"
    );
    assert_eq!(records_of_takes(&watched.machine), 1);
}

/// A repeated take gets the result of the first one, also in a machine that was made from records: it still waits, or
/// holds under the same token, or is finished and not granted again.
#[test]
fn a_repeated_take_is_the_first_after_a_restart() {
    let mut watched = Watched::default();
    let first = outcome_of(&mut watched, take(1));
    let waits = outcome_of(&mut watched, take(2));
    assert!(matches!((&first, &waits), (Outcome::Granted(_), Outcome::Queued(_))), "{first:?} {waits:?}");
    restart(&mut watched);
    assert_eq!(outcome_of(&mut watched, take(1)), first);
    assert_eq!(outcome_of(&mut watched, take(2)), waits);
    assert_eq!(outcome_of(&mut watched, drop_of(1)), Outcome::Released { left: 0 });
    restart(&mut watched);
    assert!(matches!(outcome_of(&mut watched, take(2)), Outcome::Granted(_)), "it was next");
    let over = Outcome::HoldEnded { reason: EndReason::Released };
    assert_eq!(outcome_of(&mut watched, take(1)), over);
    assert_eq!(outcome_of(&mut watched, drop_of(2)), Outcome::Released { left: 0 });
    assert_eq!([take(1), take(2)].map(|late| outcome_of(&mut watched, late)), [over.clone(), over]);
    assert_eq!(watched.machine.totals().holders, 0, "a late duplicate took the lock");
}

/// A take that waits keeps its handle, which proves the hold that is granted later. The handle proves nothing before
/// the grant.
#[test]
fn the_handle_of_a_waiting_take_proves_its_later_hold() {
    let mut watched = Watched::default();
    outcome_of(&mut watched, take(1));
    outcome_of(&mut watched, take(2));
    assert!(matches!(refreshed(&mut watched, 2), Outcome::Refused(_)), "it only waits");
    restart(&mut watched);
    outcome_of(&mut watched, drop_of(1));
    restart(&mut watched);
    assert!(matches!(refreshed(&mut watched, 1), Outcome::Refused(_)), "its hold has ended");
    assert!(matches!(refreshed(&mut watched, 2), Outcome::Renewed { token: Some(_), .. }));
    assert_eq!(outcome_of(&mut watched, drop_of(2)), Outcome::Released { left: 0 });
}

/// Records in which a take is both active and finished are refused.
#[test]
fn a_take_is_live_or_finished() {
    let mut watched = Watched::default();
    outcome_of(&mut watched, take(1));
    let live: Vec<_> = watched.machine.state().records().collect();
    outcome_of(&mut watched, drop_of(1));
    let over = watched
        .machine
        .state()
        .records()
        .find(|(key, _)| matches!(key, RecordKey::FinishedLease(..)))
        .expect("it is remembered");
    let refused = Machine::from_records(live.into_iter().chain([over])).expect_err("a contradiction");
    assert!(refused.0.ends_with("is live and finished"), "{refused}");
}
