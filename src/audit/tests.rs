//! Tests of the audit log: what a changed file shows, and what a flood of refusals writes.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;

use super::*;
use crate::clock::ManualClock;
use crate::limits::{AUDIT_FILE_BYTES_MAX, AUDIT_FILES_KEPT};

fn record(act: &'static str) -> AuditRecord {
    let facts = BTreeMap::from([("lock", "a \"b\"\n".to_owned())]);
    AuditRecord { act, phase: Phase::Asked, principal: "ops".to_owned(), from: Some("10.0.0.9:1".to_owned()), facts }
}

fn log(folder: &tempfile::TempDir) -> (AuditLog, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(1));
    (AuditLog::open(&folder.path().join("audit.jsonl"), 1, clock.clone()).expect("a file"), clock)
}

fn proof(text: &str) -> Result<AuditProof, AuditFlaw> {
    verify(text.as_bytes()).expect("read")
}

/// A log continues after a restart. A line that a crash has cut is none, and is removed. A name with quotes and line
/// ends stays in one line.
#[test]
fn a_log_continues_after_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    log(&folder).0.write(&record("break")).expect("written");
    let path = folder.path().join("audit.jsonl");
    let whole = fs::read(&path).expect("read");
    for cut in ["{", "{\"seq\":\"2\",", "\0\0"] {
        fs::OpenOptions::new().append(true).open(&path).expect("opened").write_all(cut.as_bytes()).expect("written");
        let before = proof(&fs::read_to_string(&path).expect("read")).expect("the rest is whole");
        assert_eq!((before.lines, before.cut), (1, true), "{cut}");
        drop(log(&folder));
        assert_eq!(fs::read(&path).expect("read"), whole, "{cut}");
    }
    let (again, _) = log(&folder);
    again.write(&record("transfer")).expect("written");
    let text = fs::read_to_string(&path).expect("read");
    let (lines, hash) = again.end();
    assert_eq!(proof(&text), Ok(AuditProof { first: 1, lines, hash, cut: false }));
    assert_eq!((lines, text.lines().count()), (2, 2));
    let last: serde_json::Value = serde_json::from_str(text.lines().last().expect("a line")).expect("JSON");
    assert_eq!((&last["act"], &last["lock"], &last["seq"]), (&"transfer".into(), &"a \"b\"\n".into(), &"2".into()));
}

/// Nothing is removed from a file that is no audit log, even if its last line has no end.
#[test]
fn another_file_stays_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    for other in ["version = 1", "{\"a\":1}\n# the end"] {
        fs::write(&path, other).expect("written");
        let refused = AuditLog::open(&path, 1, Arc::new(ManualClock::new(1))).expect_err(other).to_string();
        assert_eq!(
            (refused.as_str(), fs::read_to_string(&path).expect("read").as_str()),
            ("it is no audit log", other)
        );
    }
}

/// A full file gets a number, few are kept, and the chain continues in the new one, also after a crash between the two.
/// A file whose first lines were removed is not confused with one that continues another.
#[test]
fn a_full_file_is_followed_by_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.jsonl");
    let text = |number: usize| fs::read_to_string(folder.path().join(format!("audit.jsonl.{number}"))).expect("read");
    let (full, _) = log(&folder);
    for _ in 0..AUDIT_FILES_KEPT + 2 {
        full.write(&record("break")).expect("written");
        full.file.lock().bytes = AUDIT_FILE_BYTES_MAX;
    }
    full.write(&record("break")).expect("written");
    let files: Vec<_> = (1..=AUDIT_FILES_KEPT).rev().map(text).chain(fs::read_to_string(&path)).collect();
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), AUDIT_FILES_KEPT + 1);
    let (lines, hash) = full.end();
    assert_eq!(proof(&files.concat()), Ok(AuditProof { first: 4, lines, hash, cut: false }));
    assert_eq!(first_of(files[1].as_bytes()).expect("read"), 6);
    assert_eq!(proof(&files[2..].concat()).expect("whole").first, 8);
    let missing = proof(&[&*files[2], &files[4]].concat()).expect_err("a file is missing").to_string();
    assert_eq!(missing, "line 10: its number is 12: lines before it are missing, or were added");
    let later = files[2].split_once('\n').expect("lines").1;
    assert_eq!(proof(later).expect_err("no begin").line, 1);
    fs::rename(&path, folder.path().join("audit.jsonl.1")).expect("renamed");
    let (again, _) = log(&folder);
    assert_eq!(again.end().0, lines + 1);
    let all = text(1) + &fs::read_to_string(&path).expect("read");
    assert_eq!(proof(&all).expect("whole").lines, lines + 1);
}

/// a changed, removed, repeated or swapped line is found and named. A removed end does not have the number and
/// the hash that the node's log has.
#[test]
fn a_changed_log_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let (log, _) = log(&folder);
    for _ in 0..5 {
        log.write(&record("break")).expect("written");
    }
    let text = fs::read_to_string(log.path()).expect("read");
    let lines: Vec<_> = text.lines().collect();
    let flaw = |lines: &[&str]| proof(&(lines.join("\n") + "\n")).expect_err("a flaw").to_string();
    let changed = lines[1].replace("ops", "dev");
    assert_eq!(flaw(&[lines[0], &changed, lines[2]]), "line 2: it was changed: the next line has another hash of it");
    assert_eq!(
        flaw(&[lines[0], lines[2], lines[3]]),
        "line 2: its number is 3: lines before it are missing, or were added"
    );
    assert_eq!(flaw(&lines[1..]), "line 1: its number is 2: lines before it are missing, or were added");
    assert_eq!(flaw(&[lines[0], lines[0]]), "line 2: its number is 1: lines before it are missing, or were added");
    assert_eq!(flaw(&["nothing", lines[1]]), "line 1: it is not a line of an audit log");
    assert_eq!(flaw(&[lines[0], &lines[1][..20], lines[2]]), "line 2: it is not a line of an audit log");
    let of_another = lines[1].replace("\"node\":1", "\"node\":2");
    assert_eq!(flaw(&[lines[0], &of_another]), "line 2: it is of node 2: name the files of one node");
    let cut = proof(&(lines[..4].join("\n") + "\n")).expect("the rest is whole");
    assert_ne!((cut.lines, cut.hash), log.end());
}

/// A file that is no audit log is refused, and so is an empty one. Only the last line can have no end.
#[test]
fn another_file_is_no_audit_log() {
    let flaw = |text: &str| proof(text).expect_err("a flaw").to_string();
    assert_eq!(flaw("root:x:0:0:root:/root:/bin/sh\n"), "line 1: it is not a line of an audit log");
    assert_eq!(flaw(""), "line 1: it is missing: each node writes one when it starts");
    let folder = tempfile::tempdir().expect("a folder");
    let (log, _) = log(&folder);
    log.write(&record("start")).expect("written");
    let whole = fs::read_to_string(log.path()).expect("read");
    for cut in ["{", "{\"seq\":\"2\",\"at"] {
        assert!(proof(&format!("{whole}{cut}")).expect("a cut end").cut);
        assert_eq!(flaw(&format!("{whole}{cut}\n{cut}")), "line 2: it is not a line of an audit log");
    }
    assert_eq!(flaw(&format!("{whole}\n")), "line 2: it is not a line of an audit log");
    assert_eq!(flaw(&format!("{whole}x\n")), "line 2: it is not a line of an audit log");
}

/// one source writes one refusal a second, all sources few, and the next line counts the others.
#[test]
fn a_flood_of_refusals_writes_few_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    let (log, clock) = log(&folder);
    let refuse = |principal: &str| {
        let refused = AuditRecord { principal: principal.to_owned(), phase: Phase::Refused, ..record("acquire") };
        log.write_refusal(refused).expect("written");
    };
    (0..100).for_each(|_| refuse("one"));
    assert_eq!(log.end().0, 1);
    (0..100).for_each(|source| refuse(&source.to_string()));
    assert_eq!(log.end().0, AUDIT_REFUSALS_A_SECOND as u64);
    clock.advance(Duration::from_millis(AUDIT_SECOND_MS));
    refuse("one");
    let text = fs::read_to_string(log.path()).expect("read");
    let left_out = text.lines().filter_map(|line| line.split("refusals_left_out\":\"").nth(1)?.split('"').next());
    let left_out = left_out.map(|count| count.parse::<usize>().expect("a number"));
    assert_eq!(left_out.sum::<usize>(), 200 - AUDIT_REFUSALS_A_SECOND);
}

/// Requests that a web page sends take no line from the other refusals of their host.
#[test]
fn pages_are_a_separate_source() {
    let folder = tempfile::tempdir().expect("a folder");
    let (log, _) = log(&folder);
    for act in [CALL_FROM_PAGE, CALL_FROM_PAGE, "login", "login"] {
        log.write_refusal(record(act)).expect("written");
    }
    assert_eq!(log.end().0, 2);
}

/// what a flood left out is counted also if no refusal follows it, once.
#[test]
fn the_end_of_a_flood_is_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let (log, _) = log(&folder);
    (0..100).for_each(|_| log.write_refusal(record("acquire")).expect("written"));
    (0..3).for_each(|_| log.write_left_out().expect("written"));
    let text = fs::read_to_string(log.path()).expect("read");
    assert!(proof(&text).is_ok() && text.lines().count() == 2, "{text}");
    let last: serde_json::Value = serde_json::from_str(text.lines().last().expect("a line")).expect("JSON");
    assert_eq!((&last["act"], &last["refusals_left_out"]), (&"refusals".into(), &"99".into()));
}

/// a refusal whose line cannot be written is counted in the next line, with those that were left out before it.
#[test]
fn a_refusal_that_cannot_be_written_is_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let (log, clock) = log(&folder);
    let refuse = || log.write_refusal(record("acquire"));
    refuse().expect("written");
    refuse().expect("left out");
    // The file is full, and none can take its place.
    log.file.lock().bytes = AUDIT_FILE_BYTES_MAX;
    let next = folder.path().join("audit.jsonl.next");
    fs::create_dir(&next).expect("a directory in place of the file");
    clock.advance(Duration::from_millis(AUDIT_SECOND_MS));
    refuse().expect_err("no new file");
    fs::remove_dir(&next).expect("removed");
    clock.advance(Duration::from_millis(AUDIT_SECOND_MS));
    refuse().expect("written");
    let text = fs::read_to_string(log.path()).expect("read");
    let last: serde_json::Value = serde_json::from_str(text.lines().last().expect("a line")).expect("JSON");
    assert_eq!((&last["act"], &last["refusals_left_out"]), (&"acquire".into(), &"2".into()));
}
