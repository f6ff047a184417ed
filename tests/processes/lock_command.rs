//! The `lock` command and related commands against a running cluster. Every function takes the endpoints.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::wait::block_until;

/// Makes a test of each function of these names, which takes the endpoints of a cluster and blocks its thread.
macro_rules! cluster_tests {
    ($($name:ident)*) => { mod against_three_processes { $(
        /// Runs the function of this name against its own cluster.
        #[tokio::test]
        async fn $name() {
            let cluster = crate::cluster::Cluster::start().await;
            let endpoints = cluster.endpoints().join(",");
            let outcome = tokio::task::spawn_blocking(move || super::$name(&endpoints)).await;
            outcome.expect("the test passes");
        }
    )* } };
}
pub(crate) use cluster_tests;

cluster_tests! {
    exit_codes_are_the_commands
    the_command_sees_what_it_holds
    a_try_is_refused_while_the_lock_is_held
    at_most_stops_the_command_in_time
    at_least_refuses_a_second_start
    a_wait_ends_in_time
    a_signal_withdraws_from_the_queue
    a_killed_wrapper_frees_the_lock_within_its_ttl
    without_a_command_it_holds_until_input_closes
    a_holder_that_was_stopped_too_long_reports_the_loss
    the_result_file_distinguishes_equal_exit_codes
    several_names_are_one_set
    a_nested_run_is_refused_as_a_deadlock
    opposite_orders_are_refused_as_a_deadlock
    leases_need_only_their_handle
}

pub(crate) fn lockkeeper(endpoints: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper"));
    command
        .args(arguments)
        .env("LOCKKEEPER_ENDPOINTS", endpoints)
        .env_remove("LOCKKEEPER_OWNER")
        .env_remove("LOCKKEEPER_SESSION");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn output(endpoints: &str, arguments: &[&str]) -> Output {
    lockkeeper(endpoints, arguments).output().unwrap()
}

pub(crate) fn code(endpoints: &str, arguments: &[&str]) -> Option<i32> {
    let output = output(endpoints, arguments);
    eprintln!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.status.code()
}

pub(crate) fn object(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(bytes)))
}

pub(crate) fn shown(endpoints: &str, name: &str) -> Value {
    object(&output(endpoints, &["show", name, "--json"]).stdout)
}

pub(crate) fn count(endpoints: &str, name: &str, list: &str) -> usize {
    shown(endpoints, name)[list].as_array().map_or(0, Vec::len)
}

pub(crate) fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Starts a process that holds the lock until its standard input is closed.
pub(crate) fn holder(endpoints: &str, name: &str) -> Child {
    let child = lockkeeper(endpoints, &["lock", "--hold", name]).stdin(Stdio::piped()).spawn().unwrap();
    block_until("a holder", || count(endpoints, name, "holders") == 1);
    child
}

pub(crate) fn release_holder(mut holder: Child) {
    drop(holder.stdin.take());
    assert_eq!(holder.wait().unwrap().code(), Some(0));
}

/// The run exits with the exit code of its command, or with 126 or 127 if the command cannot be started. The lock is
/// free afterwards.
fn exit_codes_are_the_commands(endpoints: &str) {
    assert_eq!(code(endpoints, &["lock", "lc/codes", "--", "true"]), Some(0));
    assert_eq!(code(endpoints, &["lock", "lc/codes", "-c", "exit 42"]), Some(42));
    assert_eq!(code(endpoints, &["lock", "lc/codes", "-c", "kill -KILL $$"]), Some(137));
    assert_eq!(code(endpoints, &["lock", "lc/codes", "--", "/nonexistent/command"]), Some(127));
    assert_eq!(code(endpoints, &["lock", "lc/codes", "--", "/etc/passwd"]), Some(126));
    assert_eq!(shown(endpoints, "lc/codes")["kind"], Value::Null);
}

/// The environment of the command contains the lock, the token and the session. On success nothing else is printed.
fn the_command_sees_what_it_holds(endpoints: &str) {
    let script = "echo $LOCKKEEPER_LOCK $LOCKKEEPER_LOCKS $LOCKKEEPER_NAMESPACE; lockkeeper_token=$LOCKKEEPER_TOKEN; \
                  test \"$lockkeeper_token\" -gt 0 && test -n \"$LOCKKEEPER_SESSION$LOCKKEEPER_OWNER\"";
    let output = output(endpoints, &["lock", "lc/sees", "-c", script]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "lc/sees lc/sees default\n");
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
}

/// A refused try exits with 75, or with the code of `-E`. The JSON error has the name from the error table.
fn a_try_is_refused_while_the_lock_is_held(endpoints: &str) {
    let holder = holder(endpoints, "lc/try");
    assert_eq!(code(endpoints, &["lock", "lc/try", "-n", "-E", "9", "--", "true"]), Some(9));
    let refused = output(endpoints, &["lock", "lc/try", "-n", "--json", "--", "true"]);
    assert_eq!(refused.status.code(), Some(75));
    let error = object(&refused.stderr);
    assert_eq!((&error["error"], &error["exit"]), (&Value::from("not-acquired"), &Value::from(75)));
    release_holder(holder);
}

/// A wait that times out exits with 75 and leaves no waiter.
fn a_wait_ends_in_time(endpoints: &str) {
    let holder = holder(endpoints, "lc/wait");
    assert_eq!(code(endpoints, &["lock", "lc/wait", "-w", "300ms", "--", "true"]), Some(75));
    assert_eq!(count(endpoints, "lc/wait", "waiters"), 0);
    release_holder(holder);
}

/// A signal during the wait exits with 128 and the number of the signal, and removes the waiter.
fn a_signal_withdraws_from_the_queue(endpoints: &str) {
    let holder = holder(endpoints, "lc/withdraw");
    let mut waiting = lockkeeper(endpoints, &["lock", "lc/withdraw", "--", "true"]).spawn().unwrap();
    block_until("a waiter", || count(endpoints, "lc/withdraw", "waiters") == 1);
    signal(&waiting, Signal::TERM);
    assert_eq!(waiting.wait().unwrap().code(), Some(143));
    assert_eq!(count(endpoints, "lc/withdraw", "waiters"), 0);
    release_holder(holder);
}

/// If the `lock` process is killed, its command is killed with it, and the next waiter gets a larger token.
fn a_killed_wrapper_frees_the_lock_within_its_ttl(endpoints: &str) {
    let mut first =
        lockkeeper(endpoints, &["lock", "lc/killed", "--ttl", "3s", "--", "sleep", "1000"]).spawn().unwrap();
    block_until("a holder", || count(endpoints, "lc/killed", "holders") == 1);
    let before = shown(endpoints, "lc/killed")["holders"][0]["token"].as_str().unwrap().parse::<u64>().unwrap();
    signal(&first, Signal::KILL);
    first.wait().unwrap();
    let next = output(endpoints, &["lock", "lc/killed", "-w", "30s", "-c", "echo $LOCKKEEPER_TOKEN"]);
    let after = String::from_utf8_lossy(&next.stdout).trim().parse::<u64>().unwrap();
    assert!(after > before, "{after} after {before}");
}

/// With `--hold` the grant is printed at once, and the lock is held until standard input closes.
fn without_a_command_it_holds_until_input_closes(endpoints: &str) {
    let mut holder =
        lockkeeper(endpoints, &["lock", "lc/input", "--hold", "--json"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = holder.stdin.take().unwrap();
    block_until("a holder", || count(endpoints, "lc/input", "holders") == 1);
    input.write_all(b"not the end\n").unwrap();
    assert_eq!(count(endpoints, "lc/input", "holders"), 1);
    drop(input);
    assert_eq!(holder.wait().unwrap().code(), Some(0));
    let mut printed = Vec::new();
    holder.stdout.take().unwrap().read_to_end(&mut printed).unwrap();
    let grant = object(&printed);
    assert_eq!((&grant["event"], &grant["lock"]), (&Value::from("held"), &Value::from("lc/input")));
    assert_eq!(count(endpoints, "lc/input", "holders"), 0);
}

/// A holder is stopped until its session has expired. Then its input is closed, or it gets a signal, before it
/// continues. It reports the loss, and no success.
fn a_holder_that_was_stopped_too_long_reports_the_loss(endpoints: &str) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("result.json");
    let hold = ["lock", "lc/stopped", "--hold", "--ttl", "3s", "--result", path.to_str().unwrap()];
    for by_signal in [false, true] {
        let mut holder = lockkeeper(endpoints, &hold).stdin(Stdio::piped()).spawn().unwrap();
        let mut printed = BufReader::new(holder.stdout.take().unwrap());
        let mut text = String::new();
        printed.read_line(&mut text).unwrap();
        signal(&holder, Signal::STOP);
        block_until("the end of its session", || count(endpoints, "lc/stopped", "holders") == 0);
        let input = holder.stdin.take();
        if by_signal {
            signal(&holder, Signal::TERM);
        } else {
            drop(input);
        }
        signal(&holder, Signal::CONT);
        printed.read_to_string(&mut text).unwrap();
        assert_eq!(holder.wait().unwrap().code(), Some(76), "{text}");
        assert!(text.contains("\nlost lc/stopped "), "{text}");
        assert_eq!(object(&std::fs::read(&path).unwrap())["lost"], true);
    }
}

/// The result file distinguishes a command that exits with 75 from a lock that was not acquired.
fn the_result_file_distinguishes_equal_exit_codes(endpoints: &str) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("result.json");
    let file = path.to_str().unwrap();
    let read = || object(&std::fs::read(&path).unwrap());
    assert_eq!(code(endpoints, &["lock", "lc/result", "--result", file, "-c", "exit 75"]), Some(75));
    assert_eq!((&read()["acquired"], &read()["child_exit"]), (&Value::from(true), &Value::from(75)));
    let holder = holder(endpoints, "lc/result");
    assert_eq!(code(endpoints, &["lock", "lc/result", "--result", file, "-n", "--", "true"]), Some(75));
    assert_eq!((&read()["acquired"], &read()["child_exit"]), (&Value::from(false), &Value::Null));
    release_holder(holder);
    assert_eq!(code(endpoints, &["lock", "lc/result", "--result", file, "-c", "exit 0"]), Some(0));
    let refused = ["lock", "lc/result", "--result", file, "--shared", "--at-least", "1s", "--", "true"];
    assert_eq!(code(endpoints, &refused), Some(64));
    assert_eq!((&read()["acquired"], &read()["code"]), (&Value::from(false), &Value::from(64)), "not the run before");
    assert_eq!(code(endpoints, &["lock", "lc/result", "--result", file, "-c", "exit 0"]), Some(0));
    assert_eq!(code(endpoints, &["lock", "lc/result", "--result", file, "--permits", "x", "true"]), Some(64));
    assert_eq!((&read()["acquired"], &read()["code"]), (&Value::from(false), &Value::from(64)), "not the run before");
    assert_eq!(code(endpoints, &["lock", "lc/result", "--result", "/dev/full", "--", "true"]), Some(70));
}

/// Without an answer of a node, a release waits for up to `--timeout`. A signal ends the wait, and the exit code stays
/// the command's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_ends_the_wait_for_a_release() {
    let cluster = Cluster::start().await;
    let command = "trap '' TERM; echo ready; read line; exit 5";
    let run = ["lock", "--ttl", "5m", "--timeout", "10m", "lc/release", "-c", command];
    let mut run = lockkeeper(&cluster.endpoints().join(","), &run).stdin(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(run.stdout.take().unwrap()).read_line(&mut line).unwrap();
    for node in 1..=3 {
        cluster.halt(node);
    }
    drop(run.stdin.take());
    let mut status = None;
    block_until("the end of the run", || {
        // The first signals may arrive before the end of the command, which ignores them.
        signal(&run, Signal::TERM);
        status = run.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(5), "{line}");
}

/// Several names are acquired together or not at all. The command gets all names in their order, each with its token,
/// and no variable of a single lock that it might have inherited.
fn several_names_are_one_set(endpoints: &str) {
    let script = "echo \"$LOCKKEEPER_LOCKS\"; echo \"$LOCKKEEPER_TOKENS\"; echo ${LOCKKEEPER_LOCK-none} ${LOCKKEEPER_TOKEN-none}";
    let set = ["lock", "lc/two", "--and", "lc/one", "-c", script];
    let seen = lockkeeper(endpoints, &set).env("LOCKKEEPER_LOCK", "x").env("LOCKKEEPER_TOKEN", "1").output().unwrap();
    let printed = String::from_utf8_lossy(&seen.stdout).into_owned();
    let lines: Vec<&str> = printed.lines().collect();
    let ["lc/two", "lc/one", two, one, "none none"] = lines[..] else { panic!("{printed}") };
    let number = |token: &str| token.parse::<u64>().unwrap();
    assert_eq!((seen.status.code(), number(one) + 1), (Some(0), number(two)), "granted in the order of their names");

    let holder = holder(endpoints, "lc/two");
    let refused = output(endpoints, &["lock", "lc/one", "--and", "lc/two", "-n", "--", "true"]);
    assert_eq!(refused.status.code(), Some(75));
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("lc/two was not acquired"),
        "the message names the missing lock"
    );
    let mut waits = lockkeeper(endpoints, &["lock", "--hold", "lc/one", "--and", "lc/two"]);
    let mut waits = waits.stdin(Stdio::piped()).spawn().unwrap();
    block_until("a waiter", || count(endpoints, "lc/one", "waiters") == 1);
    assert_eq!(count(endpoints, "lc/one", "holders"), 0, "the waiting set holds no lock");
    release_holder(holder);
    block_until("a holder", || {
        count(endpoints, "lc/one", "holders") == 1 && count(endpoints, "lc/two", "holders") == 1
    });
    drop(waits.stdin.take());
    let printed = waits.wait_with_output().unwrap();
    assert_eq!(printed.status.code(), Some(0));
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    assert!(printed.starts_with("held lc/one ") && printed.contains("\nheld lc/two "), "{printed}");

    assert_eq!(code(endpoints, &["lock", "lc/one", "--and", "lc/one", "--", "true"]), Some(64));
    assert_eq!(code(endpoints, &["lock", "lc/one", "--and", "lc/two", "--unfair", "--", "true"]), Some(64));
    assert_eq!(code(endpoints, &["elect", "lc/one", "--and", "lc/two", "--value", "x", "--", "true"]), Some(64));
}

/// A nested run that asks for a lock of an outer run would wait for itself, so it is refused at once. The same applies
/// to a set that contains the lock, and to a run nested more deeply. A shared lock and another lock are granted.
fn a_nested_run_is_refused_as_a_deadlock(endpoints: &str) {
    let program = env!("CARGO_BIN_EXE_lockkeeper");
    let nested = |inner: &str| output(endpoints, &["lock", "lc/outer", "-c", &format!("{program} {inner}")]);
    let refused = nested("lock lc/outer -- true");
    let printed = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(65), "{printed}");
    for part in ["waiting for lc/outer would never end:", "waits for lc/outer, held by run-", ", until the end of run-"]
    {
        assert!(printed.contains(part), "{part:?} is not in {printed}");
    }
    let set = nested("lock lc/other --and lc/outer --why 'both of them' --json -- true");
    let error = object(&set.stderr);
    assert_eq!((set.status.code(), &error["error"]), (Some(65), &Value::from("deadlock")));
    let cycle = error["cycle"].as_array().expect("the cycle of waiters");
    assert_eq!((cycle.len(), &cycle[0]["lock"], &cycle[0]["because"]), (2, &"lc/outer".into(), &"held".into()));
    assert_eq!((&cycle[0]["why"], &cycle[1]["because"]), (&"both of them".into(), &"nested".into()));
    let deep = nested(&format!("lock lc/middle -- {program} lock lc/outer -- true"));
    assert_eq!(deep.status.code(), Some(65), "its grandparent holds it");
    assert_eq!(nested("lock lc/other -- true").status.code(), Some(0));
    assert_eq!(nested("lock lc/outer -n -- true").status.code(), Some(75), "a try does not wait");
    let reader = format!("{program} lock lc/outer -s -- true");
    assert_eq!(code(endpoints, &["lock", "lc/outer", "-s", "-c", &reader]), Some(0));
}

/// Two runs acquire two locks in opposite order. The second request gets the cycle of waiters and exits with 65; the
/// first run continues.
fn opposite_orders_are_refused_as_a_deadlock(endpoints: &str) {
    let program = env!("CARGO_BIN_EXE_lockkeeper");
    let run = |first: &str, second: &str| {
        let inner = format!("read go; {program} lock {second} -- true");
        let mut run = lockkeeper(endpoints, &["lock", first, "--owner", &format!("run-of-{first}"), "-c", &inner])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        block_until("a holder", || count(endpoints, first, "holders") == 1);
        let input = run.stdin.take().unwrap();
        (run, input)
    };
    let (mut one, mut go_one) = run("lc/a", "lc/b");
    let (two, mut go_two) = run("lc/b", "lc/a");
    go_one.write_all(b"go\n").unwrap();
    block_until("a waiter", || count(endpoints, "lc/b", "waiters") == 1);
    go_two.write_all(b"go\n").unwrap();
    let refused = two.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(65), "{printed}");
    for part in ["run-of-lc/a", "run-of-lc/b", "waits for lc/a, held by", "waits for lc/b, held by"] {
        assert!(printed.contains(part), "{part:?} is not in {printed}");
    }
    assert_eq!(one.wait().unwrap().code(), Some(0));
}

/// A lease is refreshed and released with its handle alone. Its token can be checked, and a wrong handle is refused.
fn leases_need_only_their_handle(endpoints: &str) {
    let taken = output(endpoints, &["acquire", "lc/lease", "--for", "1m", "-n"]);
    let line = String::from_utf8(taken.stdout).unwrap();
    let (token, handle) = line.trim().split_once(' ').unwrap();
    assert_eq!(code(endpoints, &["check", "lc/lease", token]), Some(0));
    let refreshed = object(&output(endpoints, &["refresh", "lc/lease", handle, "--for", "2m", "--json"]).stdout);
    assert_eq!(refreshed["token"].as_str(), Some(token));
    assert_eq!(code(endpoints, &["release", "lc/lease", "not the handle"]), Some(65));
    let released = object(&output(endpoints, &["release", "lc/lease", handle, "--json"]).stdout);
    assert_eq!(released["released"], true, "{released}");
    assert_eq!(code(endpoints, &["check", "lc/lease", token]), Some(1));
    assert_eq!(code(endpoints, &["wait", "lc/lease"]), Some(0));
}

/// `--at-most` ends the hold although the session lives: the command is stopped in time, the exit code is 76, and the
/// next client gets the lock.
fn at_most_stops_the_command_in_time(endpoints: &str) {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let script = format!("echo $$ > {}; exec sleep 100", pid.display());
    let run = output(endpoints, &["lock", "--at-most", "2s", "a", "-c", &script]);
    let stderr = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.status.code(), Some(76), "{stderr}");
    let pid: i32 = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    let gone = rustix::process::test_kill_process(Pid::from_raw(pid).unwrap());
    assert_eq!(gone, Err(rustix::io::Errno::SRCH), "the command still runs");
    assert_eq!(code(endpoints, &["lock", "--try", "a", "--", "true"]), Some(0));
}

/// A second start within `--at-least` of the first is refused. The refusal names the last holder and the time left, and
/// so do `show` and every wait that times out. `explain` says when the lock opens.
fn at_least_refuses_a_second_start(endpoints: &str) {
    let nightly = ["lock", "--try", "--at-least", "1h", "nightly", "--", "true"];
    assert_eq!(code(endpoints, &nightly), Some(0));
    let refused = output(endpoints, &nightly);
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(75), "{stderr}");
    assert!(stderr.contains("kept closed by") && stderr.contains("for another"), "{stderr}");
    let shown = shown(endpoints, "nightly");
    let closed = shown["closed"].as_array().unwrap();
    assert_eq!((closed.len(), &shown["holders"]), (1, &serde_json::json!([])), "{shown}");
    let (token, who) = (closed[0]["token"].as_str().unwrap(), closed[0]["who"].as_str().unwrap());
    assert!(stderr.contains(who) && stderr.contains(token), "{stderr}: {shown}");
    assert!(closed[0]["until_ms"].is_u64(), "{shown}");
    for waits in [
        &["wait", "nightly", "-w", "200ms"][..],
        &["lock", "-w", "200ms", "nightly", "--", "true"],
        &["acquire", "nightly", "--for", "10s", "-w", "200ms"],
    ] {
        let waited = output(endpoints, waits);
        let stderr = String::from_utf8_lossy(&waited.stderr).into_owned();
        assert_eq!(waited.status.code(), Some(75), "{stderr}");
        assert!(stderr.contains("kept closed by") && stderr.contains(token), "{stderr}");
    }
    let explained = output(endpoints, &["explain", "nightly"]);
    let stderr = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(stderr.contains("nightly opens ") && !stderr.contains("releases"), "{stderr}");
    assert_eq!(code(endpoints, &["break", "nightly", token, "--why", "once more"]), Some(0));
    assert_eq!(code(endpoints, &nightly), Some(0));
}
