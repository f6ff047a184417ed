//! Tests of altered exports: runs every script of `tests/golden/verify` with one small history.

#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks at one answer among many")]

use std::error::Error;
use std::path::Path;

use goldenscript::{ArgumentConsumer, Context};

use super::*;
use crate::cli::cmd::history::{gone, row};
use crate::machine::Machine;
use crate::model::*;

fn key(name: &str) -> LockKey {
    LockKey { namespace: Namespace::default(), name: LockName::parse(name).expect("legal") }
}

fn acquire(session: u64, number: u64, lock: &str, access: impl Into<Access>) -> Command {
    Command::Acquire(Acquire {
        request: RequestId { session: SessionId::new(0, session), number },
        answered_below: 0,
        locks: (key(lock).name, access.into()).into(),
        owner: None,
        patience: Patience::Session,
        metadata: Metadata { who: format!("s{session}").into(), why: "a build".into(), ..Metadata::default() },
        lease_ms: None,
        extras: None,
    })
}

fn release(session: u64, number: u64, lock: &str, token: u64) -> Command {
    let request = RequestId { session: SessionId::new(0, session), number };
    let token = FencingToken::new(0, token);
    Command::Release(Release { request, answered_below: 0, name: key(lock).name, token, acquire: 0 })
}

fn open(number: u128) -> Command {
    Command::OpenSession(OpenSession {
        namespace: Namespace::default(),
        handle: Handle::from_random(number),
        instance: Instance(1),
        ttl_ms: 600_000,
        disconnect_grace_ms: None,
        metadata: Metadata::default(),
        accepts_hand_over: true,
    })
}

fn manage(lock: &str, what: Managing) -> Command {
    Command::Manage(Manage { lock: key(lock), what })
}

/// Commands for two locks and a semaphore: queues, a break, a hand-over and a change of the limit.
fn commands() -> Vec<Command> {
    let why = Reason::parse("stuck").expect("legal");
    let permits = |count| Access::permits(count, 3);
    vec![
        open(1),
        open(2),
        open(3),
        acquire(1, 1, "dam", Mode::Exclusive),
        acquire(2, 1, "dam", Mode::Exclusive),
        acquire(3, 1, "dam", Mode::Exclusive),
        acquire(1, 2, "pool", permits(2)),
        acquire(2, 2, "pool", permits(1)),
        release(1, 3, "dam", 1),
        manage("dam", Managing::BreakHold { token: FencingToken::new(0, 4), why }),
        manage("dam", Managing::HandOver { token: FencingToken::new(0, 5), to: SessionId::new(0, 1) }),
        manage("pool", Managing::SetLimit { limit: 4 }),
        acquire(3, 4, "pool", permits(1)),
        release(1, 5, "pool", 2),
        release(1, 6, "dam", 6),
    ]
}

fn kept() -> Vec<HistoryRecord> {
    let mut machine = Machine::new();
    for (command, index) in commands().into_iter().zip(1..) {
        let commands = vec![Submission { principal: Principal::default(), since: None, command }];
        let wall = WallTime(1_795_000_000_000 + index);
        machine.apply(index, &Entry { stamp: LogTime(index), wall, renewals: vec![], commands, digest: None });
    }
    let query = Query::History { namespace: Namespace::default(), lock: None, after: None, rows: 1_000 };
    let QueryResult::History(page) = machine.query(&query).answer else { panic!("another answer") };
    page.records
}

fn export() -> Vec<HistoryLine> {
    kept().iter().map(|record| HistoryLine::new(record).of(0xabc)).collect()
}

/// A count of one has the singular of the noun, and other counts the plural.
#[test]
fn what_is_verified_is_counted_in_words() {
    let text = |records: &[HistoryRecord]| summary(&crate::history::verify(records).expect("whole"));
    let all = kept();
    assert!(text(&all[..1]).starts_with("1 record of 1 lock in default, "), "{}", text(&all[..1]));
    assert!(text(&all[..1]).contains(" is whole: "), "{}", text(&all[..1]));
    let more = format!("{} records of 2 locks in default, ", all.len());
    assert!(text(&all).starts_with(&more) && text(&all).contains(" are whole: "), "{}", text(&all));
}

/// The lines of the export, with all changes so far.
struct Tampering(Vec<HistoryLine>);

impl goldenscript::Runner for Tampering {
    type Command = goldenscript::Command;

    fn run(&mut self, command: &Self::Command, _: &Context) -> Result<String, Box<dyn Error>> {
        let mut args = command.consume_args();
        let output = self.step(&command.name, &mut args)?;
        args.reject_next()?;
        Ok(output)
    }
}

impl Tampering {
    fn step(&mut self, word: &str, args: &mut ArgumentConsumer<'_>) -> Result<String, Box<dyn Error>> {
        let at = |args: &mut ArgumentConsumer<'_>| -> Result<usize, Box<dyn Error>> {
            Ok(args.next_pos().ok_or("which line?")?.parse::<usize>()? - 1)
        };
        match word {
            "export" => self.0 = export(),
            "only" => {
                let lock = args.next_pos().ok_or("which lock?")?;
                self.0.retain(|line| line.lock == lock);
            }
            "show" => return Ok(self.0.iter().map(shown).collect::<Vec<_>>().join("\n")),
            "remove" => drop(self.0.remove(at(args)?)),
            "swap" => {
                let (one, other) = (at(args)?, at(args)?);
                self.0.swap(one, other);
            }
            "double" => {
                let at = at(args)?;
                self.0.insert(at, self.0[at].clone());
            }
            "change" => {
                let at = at(args)?;
                while let Some((field, value)) = args.next_key() {
                    change(&mut self.0[at], field, value);
                }
            }
            "rehash" => {
                let at = at(args)?;
                rehash(&mut self.0[at])?;
            }
            "rehash-from" => {
                let first = at(args)?;
                for at in first..self.0.len() {
                    let before = at.checked_sub(1).map(|before| self.0[before].clone());
                    let of_lock = self.0[..at].iter().rev().find(|line| line.lock == self.0[at].lock).cloned();
                    if let Some(before) = before {
                        self.0[at].before = before.hash;
                    }
                    if let Some(of_lock) = of_lock {
                        self.0[at].previous = of_lock.hash;
                    }
                    rehash(&mut self.0[at])?;
                }
            }
            "verify" => return Ok(self.verdict()),
            other => return Err(format!("there is no command {other}").into()),
        }
        Ok(String::new())
    }

    /// Returns what `verify` prints about the file.
    fn verdict(&self) -> String {
        let text: Vec<String> = self.0.iter().map(|line| serde_json::to_string(line).expect("JSON")).collect();
        let outcome = records(text.join("\n").as_bytes()).expect("read");
        match outcome.and_then(|records| history::verify(&records)) {
            Ok(proof) => summary(&proof),
            Err(Flaw { record, what }) => format!("line {record}: {what}"),
        }
    }
}

fn shown(line: &HistoryLine) -> String {
    row(line.clone()).into_iter().filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join("  ")
}

fn change(line: &mut HistoryLine, field: &str, value: &str) {
    let mut object = serde_json::to_value(&*line).expect("JSON");
    let number = value.parse::<u64>().ok().filter(|_| object[field].is_number());
    let truth = value.parse::<bool>().ok().filter(|_| object[field].is_boolean());
    let literal = number.map(serde_json::Value::from).or(truth.map(Into::into));
    object[field] = literal.unwrap_or_else(|| value.into());
    *line = serde_json::from_value(object).expect("a line");
}

/// Computes the hash of the line again, as a forger would.
fn rehash(line: &mut HistoryLine) -> Result<(), Box<dyn Error>> {
    let record = line.record()?;
    let draft = history::Draft::of(&record).ok_or("it is about no lock")?;
    let mut bytes = Vec::new();
    history::bytes::write(&mut bytes, &draft);
    line.hash = history::link(&Namespace::parse(&line.namespace)?, record.before, &bytes).to_string();
    Ok(())
}

/// Every line of an export reads back as the original record.
#[test]
fn lines_read_back() {
    for line in export() {
        let record = line.record().expect("a record");
        assert_eq!(HistoryLine::new(&record).of(0xabc), line);
    }
}

/// A grant without a reason has null in its place. The empty text of an older version reads as the same record.
#[test]
fn a_grant_without_a_reason_has_null() {
    let mut record = kept().into_iter().find(|record| record.grant.is_some()).expect("a grant");
    record.grant.as_mut().expect("its facts").why = "".into();
    let line = HistoryLine::new(&record);
    assert_eq!(line.why, None);
    for why in [None, Some(String::new())] {
        assert_eq!(HistoryLine { why, ..line.clone() }.record().as_ref(), Ok(&record));
    }
}

/// A line with any reason reads back. The match names the next reason of each, so that none can be left out.
#[test]
fn every_reason_reads_back() {
    let next = |reason: &EndReason| match reason {
        EndReason::Released => Some(EndReason::Expired),
        EndReason::Expired => Some(EndReason::Lost),
        EndReason::Lost => Some(EndReason::Cancelled),
        EndReason::Cancelled => Some(EndReason::Broken),
        EndReason::Broken => Some(EndReason::HandedOver),
        EndReason::HandedOver => Some(EndReason::Overtaken),
        EndReason::Overtaken => Some(EndReason::TimeOver),
        EndReason::TimeOver => None,
    };
    let mut line = export().into_iter().find(|line| line.event == "released").expect("a release");
    line.event = "expired".to_owned();
    for reason in std::iter::successors(Some(EndReason::Released), next) {
        line.reason = Some(reason.to_string());
        let record = line.record().unwrap_or_else(|error| panic!("{reason}: {error}"));
        assert_eq!(HistoryLine::new(&record).of(0xabc), line);
    }
}

/// Each kind of tampering in the scripts is detected and named.
#[test]
fn tampering_is_found() {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/verify");
    let mut run = 0;
    for entry in std::fs::read_dir(scripts).expect("scripts") {
        let path = entry.expect("an entry").path();
        goldenscript::run(&mut Tampering(Vec::new()), &path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        run += 1;
    }
    assert!(3 <= run, "only {run} scripts");
}

/// If older records are no longer kept, the output of a history from the beginning says so. The output of a history
/// after a position, or with all records, does not.
#[test]
fn a_history_without_its_beginning_says_so() {
    let floor = Position { index: 7, n: 1 };
    assert!(gone(None, floor).is_some_and(|text| text.contains("up to position 7.1 are no longer kept")));
    assert_eq!(gone(Some(floor), floor), None);
    assert_eq!(gone(None, Position::default()), None);
}
