//! History: every random scenario verifies, rings drop their oldest segments, pages lose nothing, and verification
//! finds planted bugs of the machine.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks at one answer among many")]

use std::process::Command as Process;
use std::time::{Duration, Instant};

use super::mirror::{Watched, entry};
use super::random::{Random, Scenario};
use crate::faults;
use crate::history::verify;
use crate::machine::Machine;
use crate::model::*;

const SCENARIOS: u64 = 60;
const ENTRIES: u64 = 400;

/// Reads the history after a position, page by page. Panics if records were dropped in between.
fn read(machine: &Machine, lock: Option<&str>, after: &mut Position, rows: u32) -> Vec<HistoryRecord> {
    let mut records = Vec::new();
    loop {
        let query = Query::History {
            namespace: Namespace::default(),
            lock: lock.map(|lock| LockName::parse(lock).expect("legal")),
            after: Some(*after),
            rows,
        };
        let QueryResult::History(page) = machine.query(&query).answer else { panic!("another answer") };
        assert!(page.floor <= *after, "history up to {} was forgotten, read up to {after}", page.floor);
        let last = page.records.last().map(|record| record.event.position);
        records.extend(page.records);
        let Some(next) = page.next else {
            *after = last.unwrap_or(*after);
            return records;
        };
        *after = next;
    }
}

fn proven(records: &[HistoryRecord], what: &str) {
    if let Err(flaw) = verify(records) {
        let at = (flaw.record as usize).saturating_sub(1);
        panic!("{what}: {flaw}\n{:#?}", &records[at.saturating_sub(3)..=at]);
    }
}

/// The history of every random scenario verifies: as a whole, from its middle, and for each lock alone.
#[test]
fn every_random_scenario_verifies() {
    let (mut count, mut kinds) = (0, std::collections::BTreeSet::new());
    for seed in 0..SCENARIOS {
        let (mut scenario, mut watched) = (Scenario::new(seed), Watched::default());
        let (mut records, mut after) = (Vec::new(), Position::default());
        for _ in 0..ENTRIES {
            let entry = scenario.entry(watched.machine.next_deadline());
            let applied = watched.apply(&entry);
            scenario.learn(&entry, &applied);
            records.extend(read(&watched.machine, None, &mut after, 7));
        }
        watched.compare_mirror();
        proven(&records, &format!("scenario {seed}"));
        proven(&records[records.len() / 2..], &format!("the second half of scenario {seed}"));
        for lock in ["a", "b", "c", "d", "pool-a", "pool-b", "pool-c"] {
            let of = |record: &&HistoryRecord| record.event.subject.lock().is_some_and(|key| key.name.as_str() == lock);
            let alone: Vec<_> = records.iter().filter(of).cloned().collect();
            if !alone.is_empty() {
                proven(&alone, &format!("{lock} of scenario {seed}"));
            }
        }
        count += records.len();
        kinds.extend(records.iter().map(|record| record.event.kind.word()));
    }
    assert!(10_000 < count, "only {count} records");
    let all = [
        "broken",
        "downgraded",
        "expired",
        "granted",
        "handed-over",
        "limit-changed",
        "permits-returned",
        "released",
        "resumed",
        "upgraded",
    ];
    assert!(kinds.iter().eq(&all), "{kinds:?}");
}

/// Pages of one lock contain the same records as filtered pages of all locks, however small the pages are.
#[test]
fn pages_of_one_lock_are_complete() {
    let (mut scenario, mut watched) = (Scenario::new(77), Watched::default());
    for _ in 0..4 * ENTRIES {
        let entry = scenario.entry(watched.machine.next_deadline());
        let applied = watched.apply(&entry);
        scenario.learn(&entry, &applied);
    }
    let query = Query::History { namespace: Namespace::default(), lock: None, after: None, rows: 1 };
    let QueryResult::History(page) = watched.machine.query(&query).answer else { panic!("another answer") };
    assert!(Position::default() < page.floor, "the scenario is too short: the ring forgot nothing");
    let all = read(&watched.machine, None, &mut page.floor.clone(), 1_000);
    for lock in ["a", "pool-a", "nobody"] {
        let sifted =
            all.iter().filter(|record| record.event.subject.lock().is_some_and(|key| key.name.as_str() == lock));
        for rows in [1, 3, 1_000] {
            let read = read(&watched.machine, Some(lock), &mut page.floor.clone(), rows);
            assert!(read.iter().eq(sifted.clone()), "{lock} by {rows}");
        }
    }
}

fn open(namespace: &str, number: u128) -> Command {
    Command::OpenSession(OpenSession {
        namespace: Namespace::parse(namespace).expect("legal"),
        handle: Handle::from_random(number),
        instance: Instance(1),
        ttl_ms: 600_000,
        disconnect_grace_ms: None,
        metadata: Metadata::default(),
        accepts_hand_over: false,
    })
}

fn acquire(session: u64, number: u64, lock: &str) -> Command {
    Command::Acquire(Acquire {
        request: RequestId { session: SessionId::new(0, session), number },
        answered_below: number,
        locks: (LockName::parse(lock).expect("legal"), Mode::Exclusive.into()).into(),
        owner: None,
        patience: Patience::Session,
        metadata: Metadata { who: "ida".into(), why: "nightly rebuild".into(), ..Metadata::default() },
        lease_ms: None,
        extras: None,
    })
}

fn release(session: u64, number: u64, lock: &str, token: u64) -> Command {
    Command::Release(Release {
        request: RequestId { session: SessionId::new(0, session), number },
        answered_below: number,
        name: LockName::parse(lock).expect("legal"),
        token: FencingToken::new(0, token),
        acquire: 0,
    })
}

/// Many namespaces share one bound: the oldest history of all namespaces is dropped first, and a namespace whose
/// history was dropped completely reports where its history begins.
#[test]
fn all_namespaces_together_are_bounded() {
    let mut watched = Watched::default();
    let lost = Namespace::parse("n1").expect("legal");
    for namespace in 1..=200_u64 {
        let acquire = acquire(namespace, 1, "a");
        watched.apply(&entry(namespace, vec![], vec![open(&format!("n{namespace}"), namespace.into()), acquire]));
    }
    let query = |namespace: &Namespace| {
        let query = Query::History { namespace: namespace.clone(), lock: None, after: None, rows: 10 };
        let QueryResult::History(page) = watched.machine.query(&query).answer else { panic!("another answer") };
        page
    };
    assert_eq!(query(&lost).records, vec![]);
    assert!(Position { index: 1, n: 1 } <= query(&lost).floor, "{:?}", query(&lost).floor);
    assert_eq!(query(&Namespace::parse("n200").expect("legal")).records.len(), 1);
    watched.compare_mirror();
}

/// If all records of a namespace were dropped, its next records verify: alone, and after the dropped ones if none
/// between them is missing. A release of a lock that was granted in a dropped record is no flaw.
#[test]
fn a_history_verifies_after_all_its_records_were_dropped() {
    let (mut watched, mut dropped) = (Watched::default(), Position::default());
    watched.apply(&entry(1, vec![], vec![open("default", 1), acquire(1, 1, "a")]));
    let before = read(&watched.machine, None, &mut dropped, 10);
    for namespace in 2..1_000 {
        let acquire = acquire(namespace, 1, "a");
        watched.apply(&entry(namespace, vec![], vec![open(&format!("n{namespace}"), namespace.into()), acquire]));
        if watched.machine.state.globals.history_floor != Position::default() {
            break;
        }
    }
    assert_eq!(watched.machine.state.globals.history_floor, dropped, "none or other records were dropped");
    let later = watched.machine.now().0 + 1;
    watched.apply(&entry(later, vec![], vec![release(1, 2, "a", 1), acquire(1, 3, "a")]));
    watched.compare_mirror();
    let after = read(&watched.machine, None, &mut dropped, 10);
    assert_eq!([before.len(), after.len()], [1, 2]);
    proven(&after, "the records after the dropped ones");
    proven(&[before.clone(), after.clone()].concat(), "all records");
    let flaw = verify(&[&before[..], &after[1..]].concat()).map_err(|flaw| flaw.record);
    assert_eq!(flaw, Err(2), "a missing record went unseen");
}

/// The history of one exclusive lock. The machine is restarted whenever the lock is held and has no waiter, so that
/// each planted bug takes effect.
fn plain_history(seed: u64) -> Vec<HistoryRecord> {
    let (mut random, mut machine) = (Random(seed), Machine::new());
    let (mut records, mut after, mut number) = (Vec::new(), Position::default(), 0);
    let (mut asked, mut granted, mut restarts) = (0, 0, 0);
    let mut held: Vec<(u64, FencingToken)> = Vec::new();
    let apply = |machine: &mut Machine, commands: Vec<Command>| {
        let index = machine.applied() + 1;
        let applied = machine.apply(index, &entry(index, vec![], commands));
        let granted = applied.events.iter().filter(|event| matches!(event.kind, EventKind::Granted { .. }));
        let granted = granted.map(|event| (event.subject.session().unwrap().counter(), event.subject.token().unwrap()));
        granted.collect::<Vec<_>>()
    };
    apply(&mut machine, (1..=6).map(|session| open("default", session)).collect());
    for _ in 0..200 {
        number += 1;
        let session = 1 + random.below(6);
        let give_back = (random.below(2) == 0).then(|| held.pop()).flatten();
        let command = match give_back {
            Some((session, token)) => release(session, number, "a", token.counter()),
            None => {
                asked += 1;
                acquire(session, number, "a")
            }
        };
        let new = apply(&mut machine, vec![command]);
        granted += new.len();
        held.extend(new);
        records.extend(read(&machine, None, &mut after, 100));
        if asked == granted && !held.is_empty() {
            restarts += 1;
            let dump: Vec<_> = machine.state().records().collect();
            machine = Machine::from_records(dump).expect("a machine");
        }
    }
    assert!(0 < restarts, "nothing was restarted");
    records
}

/// The history verifies without a planted bug.
#[test]
fn a_plain_history_verifies() {
    for seed in 0..20 {
        proven(&plain_history(seed), &format!("history {seed}"));
    }
}

/// Verification finds and names each kind of planted bug: last come first served, two holders at a time, tokens that
/// begin again.
#[test]
fn planted_bugs_are_found_by_verify() {
    let found = [
        (faults::Fault::LifoQueue, "not first come, first served"),
        (faults::Fault::ForgottenHolders, "two at a time"),
        (faults::Fault::TokensOfThisProcess, "does not grow"),
    ];
    for (fault, sentence) in found {
        let mut process = Process::new(std::env::current_exe().expect("this test"));
        process.args(["--exact", "machine::tests::history::a_plain_history_verifies", "--nocapture"]);
        let output = process.env(faults::VARIABLE, fault.word()).output().expect("started");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(sentence), "{fault:?} went unseen: {text}");
    }
}

/// Prints what history costs a lock that is acquired and released, as a ratio. Asserts only that history changes
/// nothing else.
#[test]
fn history_costs_little() {
    const PAIRS: u64 = 20_000;
    let run = |off: bool| {
        let mut machine = Machine::new();
        machine.state.history.off = off;
        machine.apply(1, &entry(1, vec![], vec![open("default", 1)]));
        let entries: Vec<_> = (1..=PAIRS).map(pair).collect();
        let began = Instant::now();
        let mut bytes = 0;
        for (one, index) in entries.iter().zip(2..) {
            machine.apply(index, one);
            if index % 64 == 0 {
                machine.take_dirty(|_, _| bytes += 1);
            }
        }
        (began.elapsed(), machine.totals(), bytes)
    };
    let mut best = [Duration::MAX; 2];
    for _ in 0..5 {
        let (with, without) = (run(false), run(true));
        assert_eq!(with.1, without.1, "history changes nothing else");
        best = [best[0].min(with.0), best[1].min(without.0)];
    }
    let [with, without] = best.map(|time| time.as_secs_f64() * 1e9 / PAIRS as f64);
    println!("a pair with history {with:.0} ns, without {without:.0} ns: {:.2} times", with / without);
}

fn pair(n: u64) -> Entry {
    entry(1, vec![], vec![acquire(1, 2 * n, "job"), release(1, 2 * n + 1, "job", n)])
}

/// A filter that follows the events has the same valid and stale tokens as the machine. A stale token never becomes
/// valid later.
#[test]
fn followed_tokens_are_the_machines() {
    let names = ["a", "b", "pool-a", "pool-b"].map(|name| LockName::parse(name).expect("legal"));
    let key = |name: &LockName| LockKey { namespace: Namespace::default(), name: name.clone() };
    for seed in 300..320 {
        let (mut scenario, mut watched) = (Scenario::new(seed), Watched::default());
        let now = |machine: &Machine, name: &LockName| {
            let QueryResult::Tokens(valid) = machine.query(&Query::Tokens { lock: key(name) }).answer else {
                panic!("another")
            };
            valid
        };
        let mut followed = names.clone().map(|name| now(&watched.machine, &name));
        let mut stale = std::collections::BTreeSet::new();
        for _ in 0..ENTRIES {
            let entry = scenario.entry(watched.machine.next_deadline());
            let applied = watched.apply(&entry);
            scenario.learn(&entry, &applied);
            for valid in &mut followed {
                for event in &*applied.events {
                    let ended = valid.follow(event).and_then(|change| change.ended);
                    stale.extend(ended.map(|token| (valid.lock.clone(), token)));
                }
                let asked = now(&watched.machine, &valid.lock.name);
                assert_eq!(valid.tokens, asked.tokens, "scenario {seed}, {:?}", valid.lock);
                assert!(valid.next <= asked.next && valid.floor() <= asked.floor());
            }
            for (lock, token) in &stale {
                let of = followed.iter().find(|valid| valid.lock == *lock).expect("followed");
                assert_eq!(of.judge(*token), TokenVerdict::Stale, "scenario {seed}, {lock:?}, {token}");
            }
        }
        assert!(20 < stale.len(), "only {} tokens ended in scenario {seed}", stale.len());
    }
}
