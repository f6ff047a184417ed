//! `drill` with real nodes: its promises are kept, each kind of planted bug is found, and no node outlives it.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use lockkeeper::faults::{self, Fault};
use rustix::process::Signal;
use serde_json::Value;

use crate::cluster::TURN;
use crate::lock_command::signal;
use crate::wait::block_until;

/// A drill whose nodes have their directory in `folder`.
fn drill(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    command.arg("drill").args(arguments).env("TMPDIR", folder).env_remove(faults::VARIABLE).stdin(Stdio::null());
    command
}

fn report(output: &Output, exit: i32) -> Value {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(exit), "{}\n{error}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).expect("one object")
}

/// How often a promise was broken.
fn broken(report: &Value, promise: &str) -> u64 {
    let all = report["promises"].as_array().expect("promises");
    let of = all.iter().find(|of| of["promise"] == promise).expect("the promise");
    of["broken"].as_u64().expect("a count")
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).expect("a folder").next().is_none()
}

/// The processes whose command line names this folder.
fn processes_in(folder: &Path) -> usize {
    let named = folder.to_str().expect("a path").as_bytes();
    let lines = fs::read_dir("/proc").expect("processes").flatten().map(|entry| fs::read(entry.path().join("cmdline")));
    lines.flatten().filter(|line| line.windows(named.len()).any(|part| part == named)).count()
}

/// One round of each kind of fault: all promises are kept, the gaps are reported, and nothing remains on the disk.
#[test]
fn every_kind_of_fault_keeps_the_promises() {
    let _turn = TURN.blocking_lock();
    let kinds: [(&[&str], &str); 4] = [
        (&["--kill", "leader"], "kill"),
        (&["--kill", "follower", "--pause"], "pause"),
        (&["--kill", "random", "--all"], "all"),
        (&["--pause", "--all"], "all"),
    ];
    for (arguments, kind) in kinds {
        let folder = tempfile::tempdir().unwrap();
        let page = tempfile::NamedTempFile::new().unwrap();
        let file = page.path().to_str().unwrap();
        let arguments = [arguments, &["--rounds", "1", "--json", "--report", file]].concat();
        let report = report(&drill(folder.path(), &arguments).output().unwrap(), 0);
        assert_eq!((&report["kept"], &report["broken"]), (&Value::Bool(true), &Value::Array(Vec::new())));
        let kinds: Vec<_> = report["gaps"].as_array().unwrap().iter().map(|gaps| gaps["kind"].clone()).collect();
        assert_eq!(kinds, [kind, "stop", "transfer"], "{report}");
        for fault in report["faults"].as_array().unwrap() {
            let [next, last] = ["next_grant_us", "last_client_us"].map(|field| fault[field].as_u64().unwrap());
            assert!(0 < next && next <= last, "{fault}");
        }
        assert!(100 < report["grants"].as_u64().unwrap() && 13 <= report["sessions"].as_u64().unwrap(), "{report}");
        assert!(is_empty(folder.path()), "the directory remains");
        assert!(fs::read_to_string(file).unwrap().contains("</svg>"), "no picture");
    }
}

/// Without a terminal, a drill prints its report and no progress.
#[test]
fn progress_is_only_for_a_terminal() {
    let _turn = TURN.blocking_lock();
    let folder = tempfile::tempdir().unwrap();
    let output = drill(folder.path(), &["--rounds", "1"]).output().unwrap();
    let [text, progress] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(text.starts_with("Every promise was kept in 3 faults: "), "{text}\n{progress}");
    assert_eq!(progress, "");
}

/// Each planted bug breaks its promise, and the report says where. The files of the nodes are kept.
#[test]
fn each_planted_bug_is_found() {
    let _turn = TURN.blocking_lock();
    let bugs = [
        (Fault::TwoHolders, "overlap"),
        (Fault::AttachDropsHolds, "grant"),
        (Fault::EarlyExpiry, "session"),
        (Fault::LateExpiry, "expiry"),
    ];
    for (bug, promise) in bugs {
        let folder = tempfile::tempdir().unwrap();
        // A report that cannot be written does not hide the broken promise.
        let mut command = drill(folder.path(), &["--rounds", "1", "--json", "--report", "/dev/full"]);
        let report = report(&command.env(faults::VARIABLE, bug.word()).output().unwrap(), 1);
        assert!(0 < broken(&report, promise), "{bug:?}: {report}");
        let places = report["broken"].as_array().unwrap();
        assert!(places.iter().any(|place| place["promise"] == promise || places.len() == 20), "{bug:?}: {report}");
        assert!(Path::new(report["dir"].as_str().unwrap()).join("n1.log").exists());
    }
}

fn begun(folder: &Path, report: &Path) -> Child {
    let arguments = ["--rounds", "100", "--report", report.to_str().expect("a path")];
    let child = drill(folder, &arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    block_until("three nodes", || processes_in(folder) == 3);
    child
}

/// Ctrl-C ends the nodes and removes their directory, and an earlier report remains. After a kill of the drill, the
/// nodes end too.
#[test]
fn no_node_outlives_its_drill() {
    let folder = tempfile::tempdir().unwrap();
    let reports = tempfile::tempdir().unwrap();
    let report = reports.path().join("report.html");
    fs::write(&report, "earlier").unwrap();
    let mut interrupted = begun(folder.path(), &report);
    signal(&interrupted, Signal::INT);
    assert_eq!(interrupted.wait().unwrap().code(), Some(130));
    assert!(processes_in(folder.path()) == 0 && is_empty(folder.path()), "nodes or files remain");
    assert_eq!(fs::read_to_string(&report).unwrap(), "earlier");
    assert_eq!(fs::read_dir(reports.path()).unwrap().count(), 1);
    let mut killed = begun(folder.path(), &report);
    killed.kill().unwrap();
    killed.wait().unwrap();
    block_until("the nodes end", || processes_in(folder.path()) == 0);
}
