//! Compares the machine with the naive model, for every outcome and every grant of more than a hundred thousand random
//! commands.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks at one answer among many")]

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::mirror::Watched;
use super::naive::Shown;
use super::random::Scenario;
use super::refused::Remembering;
use crate::machine::Machine;
use crate::model::*;

const SCENARIOS: u64 = 450;
const COMMANDS_A_SCENARIO: usize = 2_000;
const TIMES_EACH_MIN: u64 = 100;

/// The first word of the `Debug` output: a variant's name.
fn variant(value: &impl std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}

/// The name of the command. For a change of a hold, the name of the change.
fn command_word(command: &Command) -> String {
    match command {
        Command::Acquire(acquire) if acquire.is_set() => "AcquireSet".to_owned(),
        Command::Alter(alter) => variant(&alter.what),
        Command::Manage(manage) => variant(&manage.what),
        Command::Document(command) => variant(command),
        other => variant(other),
    }
}

/// Removes the reported cycle: it is one of several, and the naive model reports none.
fn without_cycle(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Refused(Refusal::Deadlock { cycle }) => {
            assert!(!cycle.is_empty(), "a cycle without owners");
            Outcome::Refused(Refusal::Deadlock { cycle: vec![] })
        }
        other => other,
    }
}

fn answer(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Refused(Refusal::OutOfBounds { field, .. }) => format!("OutOfBounds {field}"),
        Outcome::Refused(refusal) => variant(refusal),
        other => variant(other),
    }
}

/// All answers, except the quota refusals, which other tests cover.
const POSSIBLE: [(&str, &str); 41] = [
    ("OpenSession", "Opened AlreadyOpen Tombstoned OutOfBounds_ttl OutOfBounds_disconnect_grace"),
    ("Attach", "Attached WrongHandle OtherNamespace StaleAttempt SessionEnded"),
    ("Disconnected", "Done"),
    ("CloseSession", "Closed"),
    ("EndSession", "Closed SessionEnded"),
    (
        "Acquire",
        "Granted Queued TimedOut Withdrawn HoldEnded Held AlreadyHeld KindMismatch LimitMismatch LimitExceeded \
         LimitUnknown SessionEnded TooOld RequestReused OutOfBounds_lease Deadlock",
    ),
    (
        "AcquireSet",
        "GrantedSet Queued TimedOut Withdrawn HoldEnded Held AlreadyHeld KindMismatch LimitMismatch LimitExceeded \
         LimitUnknown SessionEnded TooOld RequestReused OutOfBounds_lease Deadlock",
    ),
    ("Cancel", "Withdrawn SessionEnded Granted"),
    ("Downgrade", "Downgraded NotHeld HeldByOther Reentered KindMismatch SessionEnded TooOld RequestReused Withdrawn"),
    (
        "Upgrade",
        "Granted Queued TimedOut Withdrawn HoldEnded Held AlreadyHeld NotHeld HeldByOther Reentered KindMismatch \
         SessionEnded TooOld RequestReused Deadlock",
    ),
    (
        "ReturnPermits",
        "Released NotHeld HeldByOther Reentered KindMismatch PermitsNotHeld SessionEnded TooOld RequestReused Withdrawn",
    ),
    ("SetValue", "Done NotHeld HeldByOther SessionEnded TooOld RequestReused Withdrawn"),
    ("SetLimit", "Done KindMismatch"),
    ("RemoveLimit", "Done KindMismatch"),
    ("BreakHold", "Broken NotHeld HeldByOther"),
    ("Ask", "Done NotHeld HeldByOther"),
    ("HandOver", "HandedOver Held NotAccepted NotHeld HeldByOther SessionEnded"),
    (
        "Resume",
        "Granted HoldEnded NotHeld HeldByOther WrongHandle OutOfBounds_lease SessionEnded TooOld RequestReused \
         Withdrawn",
    ),
    ("Release", "Released NotHeld HeldByOther SessionEnded TooOld RequestReused Withdrawn"),
    (
        "TakeLease",
        "Granted Queued TimedOut Withdrawn HoldEnded Held KindMismatch LimitMismatch LimitExceeded LimitUnknown \
         WrongHandle RequestReused OutOfBounds_lease",
    ),
    ("CancelTake", "Withdrawn WrongHandle"),
    ("DropLease", "Released NotHeld HeldByOther"),
    ("Confirm", "Granted HeldByOther HoldEnded NotHeld Withdrawn"),
    ("Grab", "Granted Held NotHeld KindMismatch HoldEnded Withdrawn RequestReused"),
    ("Unlock", "Freed"),
    ("UnlockAll", "Freed"),
    ("Ping", "Done"),
    ("StopPing", "Done"),
    ("RemoveExpired", "Done Held Changed"),
    ("SwapValue", "Done Changed NotHeld HeldByOther"),
    ("ChangeSetting", "Done OutOfBounds_ttl_max"),
    ("Tick", "Done"),
    ("LeaderlessGap", "Done"),
    ("Configure", "Done"),
    ("Announce", "Done OtherDisk"),
    ("RaiseFeatures", "Done FeaturesUnsupported"),
    ("cached hold", "Recalled Named"),
    ("unknown renewal", "SessionEnded NotHeld HeldByOther OutOfBounds_lease"),
    ("renew session", "Renewed SessionEnded"),
    ("renew hold", "Renewed SessionEnded NotHeld HeldByOther OutOfBounds_lease"),
    ("renew lease", "Renewed NotHeld HeldByOther OutOfBounds_lease"),
];

type Table = BTreeMap<(String, String), u64>;

fn count(table: &mut Table, what: String, outcome: &Outcome) {
    *table.entry((what, answer(outcome))).or_default() += 1;
}

/// Every document, in the form of the naive model.
fn shown(machine: &Machine) -> Vec<Shown> {
    let mut shown = Vec::new();
    for namespace in ["batch", "default"] {
        let (namespace, which) = (Namespace::parse(namespace).expect("legal"), WhichDocuments::After(None));
        let QueryResult::Documents(Part { rows, .. }) =
            machine.query(&Query::Documents { namespace, which, rows: 1000 }).answer
        else {
            panic!("another answer")
        };
        shown.extend(rows.into_iter().map(|row| {
            let process = if row.native { String::new() } else { row.process.to_string() };
            let ts = Some(row.ts).filter(|_| !row.native);
            (row.lock, row.state.number(), ts, process, row.term, row.token)
        }));
    }
    shown
}

/// Runs a random scenario on both. Panics if they differ.
fn compare(seed: u64, table: &mut Table) {
    let (mut scenario, mut watched, mut naive) = (Scenario::new(seed), Watched::default(), Remembering::default());
    let mut submitted = 0;
    while submitted < COMMANDS_A_SCENARIO {
        let entry = scenario.entry(watched.machine.next_deadline());
        let refuses = |renewal: &Renewal| watched.machine.refuses_renewal(&renewal.target);
        let refused: Vec<_> = entry.renewals.iter().map(refuses).collect();
        let applied = watched.apply(&entry);
        let (renewals, commands) = naive.apply(&entry);
        let index = watched.machine.applied();
        for (refusal, reply) in refused.into_iter().zip(&applied.renewals) {
            // What exists may have ended in time, and earlier renewals move the deadlines in a refusal.
            let Some(refusal) = refusal else { continue };
            let (answered, expected) = (answer(&reply.outcome), answer(&Outcome::Refused(refusal)));
            let ended = "SessionEnded";
            assert!(answered == expected || answered == ended, "{answered} for {expected} in scenario {seed}");
            *table.entry(("unknown renewal".to_owned(), expected)).or_default() += 1;
        }
        for ((renewal, reply), expected) in entry.renewals.iter().zip(&applied.renewals).zip(&renewals) {
            assert_eq!(reply.outcome, *expected, "scenario {seed}, entry {index}: {renewal:#?}");
            let what = match renewal.target {
                RenewalTarget::Session(_) => "renew session",
                RenewalTarget::Lease { .. } => "renew lease",
                RenewalTarget::Hold { .. } => "renew hold",
            };
            count(table, what.into(), &reply.outcome);
        }
        for ((submission, reply), expected) in entry.commands.iter().zip(&applied.commands).zip(&commands) {
            let decided = without_cycle(reply.outcome.clone());
            assert_eq!(decided, *expected, "scenario {seed}, entry {index}: {:#?}", submission.command);
            count(table, command_word(&submission.command), &reply.outcome);
        }
        let granted = applied.events.iter().filter_map(|event| match &event.kind {
            EventKind::Granted { .. }
            | EventKind::Upgraded { .. }
            | EventKind::HandedOver { .. }
            | EventKind::Resumed { .. } => {
                Some((event.subject.lock()?.clone(), event.subject.claim()?, event.subject.token()?))
            }
            _ => None,
        });
        assert_eq!(granted.collect::<Vec<_>>(), naive.granted, "grants of scenario {seed}, entry {index}");
        let recalls = applied.events.iter().filter(|event| event.kind == EventKind::Recalled);
        let recalls: Vec<_> = recalls.filter_map(|event| event.subject.token()).collect();
        assert_eq!(recalls, naive.recalls, "recalls of scenario {seed}, entry {index}");
        let named: Vec<_> =
            applied.renewals.iter().chain(&applied.commands).map(|reply| reply.recalled.clone()).collect();
        assert_eq!(named, naive.named, "recalled holds in the answers of scenario {seed}, entry {index}");
        let of_cached = |what: &str| ("cached hold".to_owned(), what.to_owned());
        *table.entry(of_cached("Recalled")).or_default() += recalls.len() as u64;
        *table.entry(of_cached("Named")).or_default() +=
            named.iter().filter(|tokens| !tokens.is_empty()).count() as u64;
        assert_eq!(shown(&watched.machine), naive.naive.documents(), "documents of scenario {seed}, entry {index}");
        let pings = watched.machine.state.processes.keys();
        let pings: Vec<_> = pings.map(|(of, process)| (of.clone(), process.to_string())).collect();
        assert_eq!(pings, naive.naive.processes(), "processes of scenario {seed}, entry {index}");
        if index % 16 == 0 {
            watched.compare_mirror();
        }
        submitted += entry.commands.len();
        scenario.learn(&entry, &applied);
    }
}

/// Compares all scenarios, some in each of several threads. Returns how often each answer occurred.
fn compare_all() -> Table {
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
    let tables = std::thread::scope(|scope| {
        let run = |first| {
            let mut table = Table::new();
            (first..SCENARIOS).step_by(threads as usize).for_each(|seed| compare(seed, &mut table));
            table
        };
        let runs: Vec<_> = (0..threads).map(|first| scope.spawn(move || run(first))).collect();
        runs.into_iter().map(|run| run.join().expect("no scenario differs")).collect::<Vec<_>>()
    });
    tables.into_iter().flatten().fold(Table::new(), |mut all, (what, times)| {
        *all.entry(what).or_default() += times;
        all
    })
}

/// Every outcome and every grant equals the naive model's, and every possible answer occurs.
#[test]
fn the_machine_agrees_with_the_naive_model() {
    let table = compare_all();
    let mut text = String::new();
    for ((command, answer), times) in &table {
        writeln!(text, "{command:14} {answer:28} {times:7}").expect("text");
    }
    println!("{text}");
    let times = |command: &str, answer: &str| table.get(&(command.to_owned(), answer.to_owned())).copied().unwrap_or(0);
    let possible =
        POSSIBLE.iter().flat_map(|(command, answers)| answers.split(' ').map(move |answer| (*command, answer)));
    let possible: Vec<_> = possible.map(|(command, answer)| (command, answer.replacen('_', " ", 1))).collect();
    // Cycles are rare here. Another test has many.
    let frequent = possible.iter().filter(|(_, answer)| answer != "Deadlock");
    let rare = frequent.filter(|(command, answer)| times(command, answer) < TIMES_EACH_MIN);
    let rare: Vec<_> = rare.collect();
    assert!(rare.is_empty(), "too rare: {rare:?}\n{text}");
    let unknown = table.keys().filter(|(c, a)| !possible.iter().any(|(command, answer)| c == command && a == answer));
    let unknown: Vec<_> = unknown.collect();
    assert!(unknown.is_empty(), "thought impossible: {unknown:?}");
    let acquires: u64 = table.iter().filter(|((command, _), _)| command == "Acquire").map(|(_, times)| times).sum();
    let granted = times("Acquire", "Granted");
    assert!(acquires * 30 <= granted * 100, "only {granted} of {acquires} acquires were granted");
}
