//! What a command on a shell leaves behind in the cluster when it is interrupted, or cannot print: nothing.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::acting::against_a_cluster;
use crate::lock_command::{code, count, holder, let_go, lockkeeper, object, output, shown, signal, until};

/// Starts a command whose standard output is closed before it prints: it waits behind a holder first.
fn without_a_reader(endpoints: &str, arguments: &[&str], name: &str) -> Child {
    let holder = holder(endpoints, name);
    let mut child = lockkeeper(endpoints, arguments).stdin(Stdio::piped()).spawn().unwrap();
    until("a waiter", || count(endpoints, name, "waiters") == 1);
    drop(child.stdout.take());
    let_go(holder);
    child
}

fn signals_withdraw_a_lease(endpoints: &str) {
    let holder = holder(endpoints, "cl/signal");
    for (sent, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let mut waiting = lockkeeper(endpoints, &["acquire", "cl/signal", "--for", "10m"]).spawn().unwrap();
        until("a waiter", || count(endpoints, "cl/signal", "waiters") == 1);
        signal(&waiting, sent);
        assert_eq!(waiting.wait().unwrap().code(), Some(code));
        assert_eq!(count(endpoints, "cl/signal", "waiters"), 0, "after {sent:?}");
    }
    let_go(holder);
    assert_eq!(count(endpoints, "cl/signal", "holders"), 0);
}

/// A child whose grant cannot be printed ends with an error and holds nothing.
fn gives_back(endpoints: &str, mut child: Child, name: &str) {
    // Its standard input stays open: that is not what ends it.
    let input = child.stdin.take();
    let ended = child.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(70), "{printed}");
    assert!(printed.contains("could not be printed, so it was given back"), "{printed}");
    assert_eq!(count(endpoints, name, "holders"), 0, "{printed}");
    drop(input);
}

fn unprinted_grants_are_given_back(endpoints: &str) {
    let name = "cl/print";
    let lines: [&[&str]; 3] =
        [&["acquire", name, "--for", "10m"], &["acquire", name, "--for", "10m", "--json"], &["lock", "--hold", name]];
    for line in lines {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let full = lockkeeper(endpoints, line).stdin(Stdio::piped()).stdout(full).spawn().unwrap();
        // It ends before the next child starts, or it would be a second waiter there.
        gives_back(endpoints, full, name);
        gives_back(endpoints, without_a_reader(endpoints, line, name), name);
    }
}

/// The next line that a child prints.
fn line(reader: &mut impl BufRead) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    line
}

fn requests_reach_the_holder(endpoints: &str) {
    let token = || shown(endpoints, "cl/ask")["holders"][0]["token"].as_str().unwrap().to_owned();
    let ask = || {
        let ask = ["ask", "cl/ask", &token(), "please finish"];
        let mut ask = lockkeeper(endpoints, &ask);
        assert_eq!(ask.env("USER", "ana").status().unwrap().code(), Some(0));
    };

    let script = "trap 'exit 7' USR1; while :; do sleep 0.05; done";
    let command = ["lock", "cl/ask", "--on-ask", "USR1", "-c", script];
    let mut child = lockkeeper(endpoints, &command).spawn().unwrap();
    until("a holder", || count(endpoints, "cl/ask", "holders") == 1);
    ask();
    let mut printed = String::new();
    child.stderr.take().unwrap().read_to_string(&mut printed).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(7));
    assert!(printed.contains("asks for cl/ask: ana") && printed.contains("please finish"), "{printed}");

    for json in [false, true] {
        let mut command = lockkeeper(endpoints, &["lock", "cl/ask", "--hold"]);
        if json {
            command.arg("--json");
        }
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        assert!(line(&mut lines).contains("held"));
        ask();
        let asked = line(&mut lines);
        if json {
            let asked = object(asked.as_bytes());
            assert_eq!((&asked["event"], &asked["lock"]), (&Value::from("asked"), &Value::from("cl/ask")));
            assert_eq!(asked["token"].as_str().unwrap(), token());
            assert!(asked["why"].as_str().unwrap().starts_with("ana"), "{asked}");
        } else {
            assert!(asked.starts_with("asked cl/ask ") && asked.contains("ana"), "{asked}");
        }
        drop(child.stdin.take());
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}

/// A family of processes that a killed wrapper leaves, and that the next holder looks for.
fn nothing_runs_beside_the_next_holder(endpoints: &str) {
    let folder = tempfile::tempdir().unwrap();
    let slate = folder.path().join("pids");
    let note = format!("echo $$ >> {}", slate.display());
    let script = format!(
        "sh -c '{note}; exec sleep 1000' & (sh -c '{note}; exec sleep 1000' | cat) & \
         setsid sh -c '{note}; exec sleep 1000' & {note}; sleep 1000"
    );
    let mut first = lockkeeper(endpoints, &["lock", "cl/killed", "--ttl", "3s", "-c", &script]).spawn().unwrap();
    until("four processes", || fs::read_to_string(&slate).unwrap_or_default().lines().count() == 4);
    signal(&first, Signal::KILL);
    first.wait().unwrap();
    let look = format!("for pid in $(cat {}); do kill -0 $pid 2> /dev/null && echo $pid; done; true", slate.display());
    let next = output(endpoints, &["lock", "cl/killed", "-w", "30s", "-c", &look]);
    assert_eq!((next.status.code(), String::from_utf8_lossy(&next.stdout).as_ref()), (Some(0), ""));
}

/// Whether the thread that reads standard input sleeps, or everything of the process was stopped.
fn state_of_reader(process: &str) -> Option<char> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten();
    let stats = threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
    let reader = stats.filter(|stat| stat.contains(" (input) ")).last()?;
    reader.rsplit_once(") ")?.1.chars().next()
}

fn a_background_job_holds(endpoints: &str) {
    let program = env!("CARGO_BIN_EXE_lockkeeper");
    let script = format!("set -m; {program} lock cl/job & read line; kill %1; wait %1; echo code $?");
    let mut shell = Command::new("script");
    shell.args(["-qec", &format!("bash --norc -c '{script}'"), "/dev/null"]).env("LOCKKEEPER_ENDPOINTS", endpoints);
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    until("a holder", || count(endpoints, "cl/job", "holders") == 1);
    let who = shown(endpoints, "cl/job")["holders"][0]["who"].as_str().unwrap().to_owned();
    assert!(who.contains('@') && who.ends_with(" lockkeeper"), "user, host and command: {who}");
    let process = shown(endpoints, "cl/job")["holders"][0]["pid"].to_string();
    let mut state = None;
    until("a reader at rest", || {
        state = state_of_reader(&process);
        matches!(state, Some('S' | 'T'))
    });
    assert_eq!(state, Some('S'), "it was not stopped for reading the terminal");
    let mut input = shell.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, b"go\n").unwrap();
    let mut printed = String::new();
    shell.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    assert!(printed.contains("code 0"), "{printed}");
    shell.wait().unwrap();
    assert_eq!(count(endpoints, "cl/job", "holders"), 0);
}

fn command_lines_are_read_as_written(endpoints: &str) {
    let plain = output(endpoints, &["lock", "cl/line", "echo", "only", "-n", "--json"]);
    assert_eq!((plain.status.code(), String::from_utf8_lossy(&plain.stdout).as_ref()), (Some(0), "only -n --json\n"));
    assert_eq!(code(endpoints, &["lock", "--name=-x", "-w", "5s", "true"]), Some(0));
    assert_eq!(code(endpoints, &["lock", "cl/line"]), Some(64), "standard input is no terminal");
    assert_eq!(code(endpoints, &["lock", "cl/line", "--"]), Some(64));
    assert_eq!(code(endpoints, &["lock", "cl/line", "--result", "/nonexistent/x", "true"]), Some(64));
    let missing = output(endpoints, &["lock", "cl/line", "--json", "/nonexistent/command"]);
    assert_eq!((missing.status.code(), &object(&missing.stderr)["exit"]), (Some(127), &Value::from(127)));
    let holder = holder(endpoints, "cl/line");
    assert_eq!(code(endpoints, &["lock", "cl/line", "-w", "0s", "true"]), Some(75));
    assert_eq!(code(endpoints, &["acquire", "cl/line", "--for", "1m", "-w", "0s"]), Some(75));
    let_go(holder);
    assert_eq!(code(endpoints, &["lock", "cl/line", "-w", "0s", "true"]), Some(0), "a try takes what is free");
    let unwritten = output(endpoints, &["lock", "cl/line", "--result", "/dev/full", "true"]);
    assert_eq!((unwritten.status.code(), unwritten.stderr.is_empty()), (Some(0), false), "the code is the command's");
}

fn handles_come_from_elsewhere(endpoints: &str) {
    let with_variable = |arguments: &[&str]| {
        let mut command = lockkeeper(endpoints, arguments);
        command.env("LOCKKEEPER_HANDLE", "a secret").status().unwrap().code()
    };
    let from_input = |arguments: &[&str]| {
        let mut child = lockkeeper(endpoints, arguments).stdin(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"a secret\n").unwrap();
        child.wait().unwrap().code()
    };
    assert_eq!(from_input(&["acquire", "cl/proof", "--for", "1m", "--handle", "-"]), Some(0));
    assert_eq!(with_variable(&["refresh", "cl/proof", "--for", "1m"]), Some(0));
    assert_eq!(from_input(&["refresh", "cl/proof", "-", "--for", "1m"]), Some(0));
    assert_eq!(with_variable(&["release", "cl/proof", "another"]), Some(65), "what is written counts");
    assert_eq!(with_variable(&["release", "cl/proof"]), Some(0));
    assert_eq!(with_variable(&["acquire", "cl/proof", "--for", "1m"]), Some(0));
    assert_eq!(from_input(&["release", "cl/proof", "-"]), Some(0));
}

/// A handle may come from the environment or from standard input, where no other user of the machine can read it.
#[tokio::test]
async fn a_handle_need_not_be_on_the_command_line() {
    against_a_cluster(handles_come_from_elsewhere).await;
}

/// `acquire` that is stopped by INT, TERM or HUP while it waits leaves no waiter, and exits with 128 and the signal's number.
#[tokio::test]
async fn a_signal_withdraws_a_lease() {
    against_a_cluster(signals_withdraw_a_lease).await;
}

/// A grant that cannot be printed, on a full disk or a closed pipe, is given back, and the exit code is an error.
#[tokio::test]
async fn a_grant_that_cannot_be_printed_is_given_back() {
    against_a_cluster(unprinted_grants_are_given_back).await;
}

/// `ask` reaches the holder: as a line on standard error and a signal under a command, as a line of output without one. The
/// line says who asks.
#[tokio::test]
async fn a_request_reaches_the_holder() {
    against_a_cluster(requests_reach_the_holder).await;
}

/// A wrapper that is killed leaves nothing of its command beside the next holder: no background process, no part of a
/// pipeline, and nothing in a session of its own.
#[tokio::test]
async fn a_killed_wrapper_leaves_nothing_beside_the_next_holder() {
    against_a_cluster(nothing_runs_beside_the_next_holder).await;
}

/// `lock NAME &` in a shell holds: it does not read the terminal while it is in the background, which would stop it.
#[tokio::test]
async fn a_hold_in_the_background_is_not_stopped() {
    against_a_cluster(a_background_job_holds).await;
}

/// The word behind the lock begins the command; what has no command, or cannot be done, is refused before anything is asked.
#[tokio::test]
async fn the_command_line_is_read_as_it_is_written() {
    against_a_cluster(command_lines_are_read_as_written).await;
}
