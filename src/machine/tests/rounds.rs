//! Work that is too much for one entry is done in rounds. Each round is bounded, and commands between two rounds see
//! all of the work as done.

use super::costs::acquire;
use super::cycles::open;
use super::mirror::entry;
use crate::limits;
use crate::machine::{Applied, Machine};
use crate::model::*;
use crate::state::count_of;

const DOCUMENTS: u64 = 100_000;
/// The number of queues of a restored state: more than one sweep checks.
const QUEUES: u64 = limits::SWEEP_AN_ENTRY_MAX as u64 + 2_000;
const BATCH: u64 = 1_000;

fn name(number: u64) -> LockName {
    LockName::parse(&format!("lock-{number:06}")).expect("legal")
}

fn key(number: u64) -> LockKey {
    LockKey { namespace: Namespace::default(), name: name(number) }
}

fn process() -> ProcessId {
    ProcessId::parse("host:27017:1").expect("legal")
}

fn grab(number: u64, ts: u64) -> Command {
    grab_in_term(number, ts, Some(number % 2))
}

fn grab_in_term(number: u64, ts: u64, term: Option<u64>) -> Command {
    let metadata = Metadata { process: process().as_str().into(), ..Metadata::default() };
    let mut stamp = [0; 12];
    stamp[4..].copy_from_slice(&ts.to_be_bytes());
    let ts = DocumentId(stamp);
    Command::Document(DocumentCommand::Grab(Grab { lock: key(number), ts, term, prepare: false, seen: None, metadata }))
}

fn unlock_all(term: Option<u64>) -> Command {
    let (namespace, process) = (Namespace::default(), process());
    Command::Document(DocumentCommand::UnlockAll { namespace, process, term })
}

/// A machine to which entries are applied in sequence.
struct Driven(Machine);

impl Driven {
    fn apply(&mut self, stamp: u64, commands: Vec<Command>) -> Applied {
        self.0.apply(self.0.applied() + 1, &entry(stamp, vec![], commands))
    }

    fn outcome(&mut self, stamp: u64, command: Command) -> Outcome {
        self.apply(stamp, vec![command]).commands.remove(0).outcome
    }
}

fn count(applied: &Applied, word: &str) -> usize {
    applied.events.iter().filter(|event| event.kind.word() == word).count()
}

/// A process that holds this number of documents, each under a different `ts`.
fn with_documents(documents: u64) -> Driven {
    let mut driven = Driven(Machine::new());
    driven.apply(0, vec![open(1), open(2)]);
    for first in (1..=documents).step_by(BATCH as usize) {
        let granted =
            driven.apply(0, (first..(first + BATCH).min(documents + 1)).map(|number| grab(number, number)).collect());
        assert!(granted.commands.iter().all(|reply| matches!(reply.outcome, Outcome::Granted(_))), "{granted:?}");
    }
    driven.0.take_dirty(|_, _| ());
    driven
}

/// One command frees a hundred thousand documents of a process. It returns the total number. The command and each of
/// the following entries change only a bounded number of documents. In the end all are free.
#[test]
fn a_hundred_thousand_documents_are_freed_in_rounds() {
    let mut driven = with_documents(DOCUMENTS);
    let applied = driven.apply(1, vec![unlock_all(None)]);
    assert_eq!(applied.commands[0].outcome, Outcome::Freed { locks: DOCUMENTS });
    let mut released = count(&applied, "released");
    assert!(released <= limits::DOCUMENTS_UNLOCKED_AT_ONCE_MAX, "{released} in the entry of the command");
    let again = driven.apply(1, vec![unlock_all(None)]);
    assert_eq!(again.commands[0].outcome, Outcome::Freed { locks: 0 }, "they are freed already");
    released += count(&again, "released");
    assert_eq!(driven.0.state.globals.unlocking.len(), 1, "the second command is the first again");
    driven.0.check().expect("whole");
    let mut stamp = 2;
    while 0 < driven.0.totals().holders {
        let applied = driven.apply(stamp, vec![]);
        let in_one = count(&applied, "released");
        assert!(0 < in_one, "{} documents are still held, and none is freed any more", driven.0.totals().holders);
        let most = limits::SWEEP_AN_ENTRY_MAX + limits::DOCUMENTS_UNLOCKED_AT_ONCE_MAX;
        assert!(in_one <= most, "{in_one} in one entry");
        released += in_one;
        stamp += 1;
    }
    assert_eq!(released as u64, DOCUMENTS);
    driven.apply(stamp, vec![]);
    assert!(!driven.0.is_due());
    driven.0.check().expect("whole");
}

/// Between two rounds, commands find the freed documents free. Documents that were grabbed again or acquired by a
/// session after the command stay held, and so do documents of a later term.
#[test]
fn what_was_freed_is_free_between_two_rounds() {
    let documents = 8 * limits::DOCUMENTS_UNLOCKED_AT_ONCE_MAX as u64;
    let mut driven = with_documents(documents);
    let freed = driven.outcome(1, unlock_all(Some(0)));
    assert_eq!(freed, Outcome::Freed { locks: documents / 2 }, "those of the other term stay");
    let (last, other_term) = (documents, documents - 1);
    let taken = driven.outcome(1, acquire(1, 1, name(last).as_str(), None));
    assert!(matches!(taken, Outcome::Granted(_)), "{taken:?}");
    let held = driven.outcome(1, acquire(1, 2, name(other_term).as_str(), None));
    assert!(matches!(held, Outcome::Queued(_)), "{held:?}");
    let again = driven.outcome(1, grab(last - 2, documents + 1));
    assert!(matches!(again, Outcome::Granted(_)), "{again:?}");
    driven.0.check().expect("whole");
    let mut restored = Driven(Machine::from_records(driven.0.state().records()).expect("records make a machine"));
    for stamp in 2..8 {
        assert_eq!(driven.apply(stamp, vec![]), restored.apply(stamp, vec![]), "restored between two rounds");
    }
    assert_eq!(driven.0.totals().holders, documents / 2 + 2, "the other term's, and the two that came later");
    driven.0.check().expect("whole");
}

/// A process that holds one document more than one command frees, in no term, so that no command for a term frees any.
fn with_documents_in_no_term() -> (Driven, u64) {
    let documents = limits::DOCUMENTS_UNLOCKED_AT_ONCE_MAX as u64 + 1;
    let mut driven = with_documents(0);
    let granted = driven.apply(0, (1..=documents).map(|number| grab_in_term(number, number, None)).collect());
    assert!(granted.commands.iter().all(|reply| matches!(reply.outcome, Outcome::Granted(_))), "{granted:?}");
    (driven, documents)
}

fn too_many() -> Outcome {
    let limit = limits::UNLOCKS_OF_MANY_MAX as u64;
    Outcome::Refused(Refusal::Quota { what: QuotaKind::UnlocksOfMany, limit })
}

/// The documents that a command would free are found one by one with their principals, so that a refusal because of the
/// first one does not look at all others.
#[test]
fn the_first_owner_of_many_documents_is_found_without_the_others() {
    let (driven, documents) = with_documents_in_no_term();
    let Command::Document(command) = unlock_all(None) else { panic!("an unlock") };
    let (first, count) = count_of(|| driven.0.principals_of_documents(&command).next());
    assert_eq!((first, count), (Some((key(1), &Principal::default())), 1));
    assert_eq!(driven.0.principals_of_documents(&command).count() as u64, documents);
}

/// A command leaves a rest to the sweep only if the rest has a document that it frees.
#[test]
fn an_unlock_leaves_no_empty_rest() {
    let (mut driven, documents) = with_documents_in_no_term();
    for term in 1..=1_000 {
        assert_eq!(driven.outcome(0, unlock_all(Some(term))), Outcome::Freed { locks: 0 });
    }
    assert_eq!(driven.0.state.globals.unlocking, []);
    assert_eq!(driven.0.totals().holders, documents);
}

/// The number of unfinished commands is bounded, because they are in one record. One more is refused and frees nothing.
/// A command that includes an unfinished one takes its place.
#[test]
fn unfinished_unlocks_are_bounded() {
    let (mut driven, documents) = with_documents_in_no_term();
    let most = limits::UNLOCKS_OF_MANY_MAX as u64;
    for (number, term) in (documents + 1..).zip((1..=most).rev()) {
        driven.apply(0, vec![grab_in_term(number, number, Some(0))]);
        assert_eq!(driven.outcome(0, unlock_all(Some(term))), Outcome::Freed { locks: 1 });
    }
    let last = documents + most + 1;
    driven.apply(0, vec![grab_in_term(last, last, Some(0))]);
    assert_eq!(driven.outcome(0, unlock_all(Some(0))), too_many());
    let mut full = Driven(driven.0.clone());
    full.apply(1, vec![]);
    assert_eq!(full.0.totals().holders, documents + 1, "the refused one freed nothing");
    assert_eq!(full.outcome(1, unlock_all(Some(0))), Outcome::Freed { locks: 1 }, "the others are finished");
    full.0.check().expect("whole");
    assert_eq!(driven.outcome(0, unlock_all(None)), Outcome::Freed { locks: documents + 1 });
    assert_eq!(driven.0.state.globals.unlocking.len(), 1, "the last includes all others");
    let mut restored = Driven(Machine::from_records(driven.0.state().records()).expect("records make a machine"));
    assert_eq!(driven.apply(1, vec![]), restored.apply(1, vec![]));
    assert_eq!(driven.0.totals().holders, 0);
    driven.0.check().expect("whole");
}

/// Commands of one entry look at a bounded number of documents.
#[test]
fn unlocks_of_many_in_one_entry_are_bounded() {
    let (mut driven, documents) = with_documents_in_no_term();
    let many = limits::UNLOCKS_OF_MANY_MAX;
    let commands = (0..100).map(|term| unlock_all(Some(term))).collect();
    let (applied, count) = count_of(|| driven.apply(0, commands));
    let outcomes: Vec<_> = applied.commands.into_iter().map(|reply| reply.outcome).collect();
    assert_eq!(outcomes[..many], vec![Outcome::Freed { locks: 0 }; many]);
    assert_eq!(outcomes[many..], vec![too_many(); 100 - many]);
    let documents = usize::try_from(documents).expect("small");
    assert!(count <= 2 * many * documents, "{count} were looked at for {documents} documents");
    assert_eq!(driven.outcome(0, unlock_all(Some(0))), Outcome::Freed { locks: 0 }, "the next entry has its own bound");
}

fn tenant(number: u64) -> Namespace {
    Namespace::parse(&format!("tenant-{number}")).expect("legal")
}

fn grab_of(of: u64, number: u64, term: Option<u64>) -> Command {
    let Command::Document(DocumentCommand::Grab(grab)) = grab_in_term(number, number, term) else { panic!("a grab") };
    let lock = LockKey { namespace: tenant(of), name: name(number) };
    Command::Document(DocumentCommand::Grab(Grab { lock, ..grab }))
}

fn unlock_all_of(of: u64, term: u64) -> Command {
    Command::Document(DocumentCommand::UnlockAll { namespace: tenant(of), process: process(), term: Some(term) })
}

/// The unlocks of one namespace leave room for those of others, in an entry and among those that are unfinished. All
/// together are bounded too.
#[test]
fn unlocks_of_many_of_one_namespace_leave_room_for_others() {
    let (own, all) = (limits::UNLOCKS_OF_MANY_MAX as u64, limits::UNLOCKS_OF_MANY_ALL_MAX as u64);
    let (tenants, documents) = (all / own + 1, limits::DOCUMENTS_UNLOCKED_AT_ONCE_MAX as u64 + 1);
    let mut driven = Driven(Machine::new());
    for of in 1..=tenants {
        driven.apply(0, (1..=documents).map(|number| grab_of(of, number, None)).collect());
    }
    let mut outcomes_of = |commands: Vec<Command>| -> Vec<Outcome> {
        driven.apply(0, commands).commands.into_iter().map(|reply| reply.outcome).collect()
    };
    let none = Outcome::Freed { locks: 0 };
    let outcomes = outcomes_of((0..=own).map(|term| unlock_all_of(1, term)).chain([unlock_all_of(2, 0)]).collect());
    assert_eq!(outcomes[own as usize..], [too_many(), none.clone()], "the second namespace waits for the first");
    let commands = (1..=tenants).flat_map(|of| (0..own).map(move |term| unlock_all_of(of, term)));
    let outcomes = outcomes_of(commands.collect());
    let refused = Outcome::Refused(Refusal::Quota { what: QuotaKind::UnlocksOfMany, limit: all });
    assert_eq!(outcomes[..all as usize], vec![none; all as usize]);
    assert_eq!(outcomes[all as usize..], vec![refused; own as usize]);
    for (number, term) in (documents + 1..).zip((1..=own).rev()) {
        let outcomes = outcomes_of(vec![grab_of(1, number, Some(0)), unlock_all_of(1, term)]);
        assert_eq!(outcomes[1], Outcome::Freed { locks: 1 });
    }
    let last = documents + own + 1;
    for (of, expected) in [(1, too_many()), (2, Outcome::Freed { locks: 1 })] {
        let outcomes = outcomes_of(vec![grab_of(of, last, Some(0)), unlock_all_of(of, 0)]);
        assert_eq!(outcomes[1], expected, "of namespace {of}");
    }
    driven.0.check().expect("whole");
}

/// When the time without grants after a restore is over, many queues are checked in rounds. A command first checks its
/// own queue if no round has checked it yet.
#[test]
fn queues_open_in_rounds_after_a_restore() {
    let mut driven = Driven(Machine::new());
    driven.apply(0, vec![open(1)]);
    let take = |number: u64, take: u64| {
        Command::TakeLease(TakeLease {
            lock: key(number),
            take: LeaseRequestId(take.into()),
            handle: Handle::from_random(take.into()),
            access: Mode::Exclusive.into(),
            lease_ms: limits::TTL_MS_MAX_DEFAULT,
            patience: Patience::For { ms: limits::PATIENCE_MS_MAX },
            metadata: Metadata::default(),
            claim_ms: None,
        })
    };
    for first in (1..=QUEUES).step_by(BATCH as usize) {
        let numbers = first..(first + BATCH).min(QUEUES + 1);
        let holds = numbers.clone().map(|number| acquire(1, number, name(number).as_str(), None));
        driven.apply(0, holds.chain(numbers.map(|number| take(number, number))).collect());
    }
    let wall = WallTime(1_796_000_000_000);
    let restoring = Restoring { wall, cluster_id: 7, epoch_min: 0, at_once: false, ttl_ms_max: 0 };
    driven.0.restore(restoring).expect("a larger epoch");
    assert_eq!(driven.0.totals().holders, 0, "all sessions have ended");
    let over = limits::TTL_MS_MAX_DEFAULT + 1;
    let applied = driven.apply(over, vec![take(QUEUES, QUEUES + 1)]);
    assert!(matches!(applied.commands[0].outcome, Outcome::Queued(_)), "behind the one that came first: {applied:?}");
    let mut granted = count(&applied, "granted");
    let most = limits::SWEEP_AN_ENTRY_MAX + limits::QUEUES_OPENED_AT_ONCE_MAX;
    assert!(granted <= most, "{granted} in one entry");
    assert!((granted as u64) < QUEUES, "one entry opened all queues");
    assert_eq!(
        driven.0.state.locks[&key(QUEUES)].holders.len(),
        1,
        "its queue was served before the command came to it"
    );
    driven.0.check().expect("whole");
    let restored = Machine::from_records(driven.0.state().records()).expect("records make a machine");
    let mut restored = Driven(restored);
    let applied = driven.apply(over + 1, vec![]);
    assert_eq!(applied, restored.apply(over + 1, vec![]), "restored between two rounds");
    granted += count(&applied, "granted");
    assert_eq!(granted as u64, QUEUES, "every queue");
    assert!(!driven.0.is_due());
    driven.0.check().expect("whole");
}

/// The unlocks of one entry look at a bounded number of documents, of all namespaces together. The next entry has its
/// own bound.
#[test]
fn unlocks_of_many_in_one_entry_look_at_a_bounded_number() {
    let (many, documents) = (limits::UNLOCKS_OF_MANY_MAX as u64, limits::UNLOCKS_LOOKED_MAX as u64 / 8);
    let mut driven = with_documents(0);
    let fill = |driven: &mut Driven, of, documents| {
        let numbers: Vec<u64> = (1..=documents).collect();
        for batch in numbers.chunks(1_000) {
            driven.apply(0, batch.iter().map(|number| grab_of(of, *number, None)).collect());
        }
    };
    fill(&mut driven, 1, documents);
    fill(&mut driven, 2, limits::DOCUMENTS_UNLOCKED_AT_ONCE_MAX as u64 + 1);
    let commands = (0..many).map(|term| unlock_all_of(1, term)).chain([unlock_all_of(2, 0)]).collect();
    let mut outcomes: Vec<_> = driven.apply(0, commands).commands.into_iter().map(|reply| reply.outcome).collect();
    assert_eq!(outcomes.pop(), Some(too_many()));
    assert_eq!(outcomes, vec![Outcome::Freed { locks: 0 }; outcomes.len()]);
    assert_eq!(driven.outcome(0, unlock_all_of(2, 0)), Outcome::Freed { locks: 0 });
}
