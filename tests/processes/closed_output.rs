//! Commands whose output is not read: a reader that has closed the pipe, and one that stopped reading.

use std::fs;
use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lockkeeper::client::Client;
use lockkeeper::limits::REASON_BYTES_MAX;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::Signal;
use tokio::time::timeout;

use crate::cluster::PATIENCE;
use crate::lock_command::{cluster_tests, count, lockkeeper, object, output, signal};
use crate::single_node::program_after;
use crate::wait::block_until;

/// How long one acquire may take before the test checks whether the node has ended.
const POLL: Duration = Duration::from_secs(1);
/// After this number of tries that fail, the node should have ended.
const TRIES_MAX: usize = 60;
/// The reasons of these locks are several times as large as the largest file of the node.
const HELD_MAX: usize = 10_000;

cluster_tests! {
    a_closed_pipe_does_not_change_the_answer
    a_hold_ends_although_its_output_is_not_read
    a_lease_is_given_back_although_its_line_is_not_read
    a_run_ends_although_its_errors_are_not_read
    a_run_starts_although_a_replaced_variable_is_wrong
}

/// The exit code, and what is on standard error, if the reader of standard output has closed it.
fn unread(command: &mut Command) -> (Option<i32>, String) {
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let output = command.stdout(writer).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A pipe that has no space left. Its reader does not read.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, writer) = io::pipe().unwrap();
    let flags = fcntl_getfl(&writer).unwrap();
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).unwrap();
    while rustix::io::write(&writer, b"x").is_ok() {}
    fcntl_setfl(&writer, flags).unwrap();
    (reader, writer)
}

fn ended(child: &mut Child) -> Option<i32> {
    let mut status = None;
    block_until("the end of the command", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap().code()
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

/// The answer "no" of a command without a cluster stays the exit code 1.
#[test]
fn a_closed_pipe_does_not_turn_no_into_a_success() {
    let folder = tempfile::tempdir().unwrap();
    let (text, rules) = (path(folder.path(), "text"), path(folder.path(), "auth.toml"));
    fs::write(&text, "nonsense\n").unwrap();
    let alone = |arguments: &[&str]| lockkeeper("127.0.0.1:1", arguments);
    assert_eq!(alone(&["auth", "init", &rules, "--admin", "ops"]).status().unwrap().code(), Some(0));
    fs::write(&rules, fs::read_to_string(&rules).unwrap() + "[[principal]]\nname = \"ci\"\nroles = []\n").unwrap();
    for arguments in [
        &["verify", &text][..],
        &["audit", "verify", &text],
        &["auth", "check", &rules, "--can", "ci", "read", "prod/a"],
        &["doctor", "--timeout", "100ms"],
    ] {
        for json in [&[][..], &["--json"]] {
            let (code, stderr) = unread(&mut alone(&[arguments, json].concat()));
            assert_eq!(code, Some(1), "{arguments:?}: {stderr}");
        }
    }
}

/// A token whose secret was not printed is an error that names the token to remove.
#[test]
fn an_unprinted_secret_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let rules = path(folder.path(), "auth.toml");
    let alone = |arguments: &[&str]| lockkeeper("127.0.0.1:1", arguments);
    assert_eq!(alone(&["auth", "init", &rules, "--admin", "ops"]).status().unwrap().code(), Some(0));
    for json in [&[][..], &["--json"]] {
        let (code, stderr) = unread(&mut alone(&[&["auth", "token", &rules, "ops"][..], json].concat()));
        assert_eq!(code, Some(70), "{stderr}");
        assert!(stderr.contains("was not shown") && stderr.contains("lockkeeper auth revoke"), "{stderr}");
    }
}

/// An option on the command line replaces a variable with a wrong value, before and after the command. A certificate
/// and its key may come from both.
#[test]
fn an_option_replaces_a_wrong_variable() {
    let run = |arguments: &[&str]| {
        let mut command = lockkeeper("127.0.0.1:1", arguments);
        let output = command.env("LOCKKEEPER_TIMEOUT", "10").env("LOCKKEEPER_CERT", "a.pem").output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for arguments in [["--timeout", "1s", "version"], ["version", "--timeout", "1s"]] {
        assert_eq!(run(&arguments), (Some(0), String::new()), "{arguments:?}");
    }
    assert_eq!(run(&["version", "-t1s", "--key", "a.key"]), (Some(0), String::new()));
    let (code, stderr) = run(&["version"]);
    assert_eq!(code, Some(64));
    assert!(stderr.contains("it comes from LOCKKEEPER_TIMEOUT"), "{stderr}");
}

/// A result that goes to the same file as the errors is not overwritten by them.
#[test]
#[cfg(target_os = "linux")]
fn the_result_and_an_error_share_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let run = ["lock", "--result", "/dev/stderr", "--timeout", "100ms", "a", "--", "true"];
    let status = lockkeeper("127.0.0.1:1", &run).stderr(fs::File::create(&log).unwrap()).status().unwrap();
    assert_eq!(status.code(), Some(69));
    let text = fs::read_to_string(&log).unwrap();
    let (result, error) = text.split_once('\n').unwrap();
    assert_eq!(object(result.as_bytes())["code"], 69, "{text}");
    assert!(!error.is_empty(), "{text}");
}

/// A failed node of `dev` is an error, even if no process reads the output.
#[tokio::test]
async fn a_failed_node_of_dev_is_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let base = 20_005 + 64 * u16::try_from(std::process::id() % 190).expect("small");
    // A limit on the size of files simulates a full disk. With its signal ignored the write itself fails.
    let mut command = program_after("trap '' XFSZ; ulimit -f 1600");
    command.args(["dev", "--nodes", "1", "--json", "--port-base", &base.to_string(), "--dir"]).arg(folder.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut dev = command.spawn().unwrap();
    let mut lines = BufReader::new(dev.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| object(line.as_bytes())["leader"] == 1), "it did not start");
    drop(lines);
    let client = Client::connect([&format!("127.0.0.1:{}", base + 1)]).await.expect("connected");
    let session = client.session().ttl(PATIENCE * 3).open().await.expect("a session");
    let (why, mut held) = ("x".repeat(REASON_BYTES_MAX), Vec::new());
    let mut failed = 0;
    let status = loop {
        if let Some(status) = dev.try_wait().unwrap() {
            break status;
        }
        assert!(failed < TRIES_MAX && held.len() < HELD_MAX, "the node still runs");
        let name = format!("n{}", held.len());
        if let Ok(Ok(guard)) = timeout(POLL, session.lock(&name).why(&why).acquire()).await {
            held.push(guard);
        } else {
            failed += 1;
        }
    };
    assert_eq!(status.code(), Some(70));
}

/// The answers "no" about a token, a leader and a lease stay exit codes other than 0.
fn a_closed_pipe_does_not_change_the_answer(endpoints: &str) {
    for (arguments, expected) in [
        (&["check", "co/none", "1"][..], 1),
        (&["leader", "co/none", "--json"], 1),
        (&["release", "co/none", "handle", "--json"], 65),
        (&["ls"], 0),
    ] {
        let (code, stderr) = unread(&mut lockkeeper(endpoints, arguments));
        assert_eq!(code, Some(expected), "{arguments:?}: {stderr}");
    }
}

/// If the output of `lock --hold` is not read, both the end of its input and TERM end the hold.
fn a_hold_ends_although_its_output_is_not_read(endpoints: &str) {
    for by_signal in [false, true] {
        let (_reader, writer) = full_pipe();
        let mut command = lockkeeper(endpoints, &["lock", "--hold", "co/hold"]);
        let mut hold = command.stdin(Stdio::piped()).stdout(writer).spawn().unwrap();
        let input = hold.stdin.take();
        block_until("a holder", || count(endpoints, "co/hold", "holders") == 1);
        if by_signal {
            signal(&hold, Signal::TERM);
        } else {
            drop(input);
        }
        assert_eq!(ended(&mut hold), Some(0));
        assert_eq!(count(endpoints, "co/hold", "holders"), 0);
    }
}

/// A signal ends `acquire` while its line cannot be printed, and no lease remains.
fn a_lease_is_given_back_although_its_line_is_not_read(endpoints: &str) {
    let (_reader, writer) = full_pipe();
    let mut acquire = lockkeeper(endpoints, &["acquire", "co/lease", "--for", "5m"]).stdout(writer).spawn().unwrap();
    block_until("a holder", || count(endpoints, "co/lease", "holders") == 1);
    signal(&acquire, Signal::TERM);
    assert_eq!(ended(&mut acquire), Some(143));
    assert_eq!(count(endpoints, "co/lease", "holders"), 0);
}

/// A run whose lock was lost ends although its error cannot be printed.
fn a_run_ends_although_its_errors_are_not_read(endpoints: &str) {
    let (_reader, writer) = full_pipe();
    let mut command = lockkeeper(endpoints, &["lock", "--at-most", "2s", "co/lost", "--", "sleep", "1000"]);
    let mut run = command.stderr(writer).spawn().unwrap();
    assert_eq!(ended(&mut run), Some(76));
    assert_eq!(output(endpoints, &["lock", "--try", "co/lost", "--", "true"]).status.code(), Some(0));
}

/// The processes of a run ignore a variable that an option of the run replaces.
fn a_run_starts_although_a_replaced_variable_is_wrong(endpoints: &str) {
    let mut run = lockkeeper(endpoints, &["-t10s", "lock", "co/variable", "-c", "exit 5"]);
    let output = run.env("LOCKKEEPER_TIMEOUT", "10").output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A signal ends a backup, and no part of it remains.
#[test]
fn an_interrupted_backup_leaves_no_part() {
    let folder = tempfile::tempdir().unwrap();
    // A node that accepts connections and never answers.
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let file = path(folder.path(), "harbour.backup");
    let endpoint = silent.local_addr().unwrap().to_string();
    let mut backup = lockkeeper(&endpoint, &["backup", &file, "--timeout", "10m"]).spawn().unwrap();
    let files = || fs::read_dir(folder.path()).unwrap().count();
    block_until("the part of a backup", || files() == 1);
    signal(&backup, Signal::INT);
    assert_eq!((ended(&mut backup), files()), (Some(130), 0));
}
