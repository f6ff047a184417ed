//! A command that is interrupted, or cannot print its result, leaves nothing behind in the cluster. The file also tests
//! how `lock` and `acquire` read handles and command lines.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use rustix::io::ioctl_fionread;
use rustix::process::{Pid, Signal, test_kill_process};
use serde_json::Value;

use crate::lock_command::{
    cluster_tests, code, count, holder, lockkeeper, object, output, release_holder, shown, signal,
};
use crate::wait::block_until;

cluster_tests! {
    a_handle_is_not_lost
    signals_withdraw_a_lease
    unprinted_grants_are_released
    a_full_standard_error_delays_no_loss
    requests_reach_the_holder
    nothing_runs_with_the_next_holder
    a_background_job_holds
    command_lines_are_read_as_written
    handles_come_from_outside_the_command_line
}

/// Without standard output, no process would learn a handle that `acquire` draws, so it requests nothing. A handle that
/// the caller chose is enough.
fn a_handle_is_not_lost(endpoints: &str) {
    let closed = |more: &str| {
        let line = format!("exec \"$0\" acquire cl/closed --for 10m {more} 1>&-");
        let program = env!("CARGO_BIN_EXE_lockkeeper");
        let run = Command::new("sh").args(["-c", &line, program]).env("LOCKKEEPER_ENDPOINTS", endpoints).output();
        let run = run.unwrap();
        (run.status.code(), String::from_utf8_lossy(&run.stderr).into_owned())
    };
    let (code, printed) = closed("");
    assert_eq!((code, count(endpoints, "cl/closed", "holders")), (Some(64), 0), "{printed}");
    assert!(printed.contains("standard output is closed") && printed.contains("--handle"), "{printed}");
    let (code, printed) = closed("--handle mine");
    assert_eq!((code, count(endpoints, "cl/closed", "holders")), (Some(0), 1), "{printed}");
}

/// Starts a command that waits behind a holder, closes its standard output, and releases the lock.
fn without_a_reader(endpoints: &str, arguments: &[&str], name: &str) -> Child {
    let holder = holder(endpoints, name);
    let mut child = lockkeeper(endpoints, arguments).stdin(Stdio::piped()).spawn().unwrap();
    block_until("a waiter", || count(endpoints, name, "waiters") == 1);
    drop(child.stdout.take());
    release_holder(holder);
    child
}

/// If `acquire` receives INT, TERM or HUP while it waits, it leaves no waiter and exits with 128 and the number of the
/// signal.
fn signals_withdraw_a_lease(endpoints: &str) {
    let holder = holder(endpoints, "cl/signal");
    for (sent, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let mut waiting = lockkeeper(endpoints, &["acquire", "cl/signal", "--for", "10m"]).spawn().unwrap();
        block_until("a waiter", || count(endpoints, "cl/signal", "waiters") == 1);
        signal(&waiting, sent);
        assert_eq!(waiting.wait().unwrap().code(), Some(code));
        assert_eq!(count(endpoints, "cl/signal", "waiters"), 0, "after {sent:?}");
    }
    release_holder(holder);
    assert_eq!(count(endpoints, "cl/signal", "holders"), 0);
}

/// Checks that a child whose grant cannot be printed exits with an error and holds nothing.
fn releases_its_grant(endpoints: &str, mut child: Child, name: &str) {
    // Standard input stays open, so the child does not end because of its end.
    let input = child.stdin.take();
    let ended = child.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(70), "{printed}");
    assert!(printed.contains("could not be printed, so it was released"), "{printed}");
    assert_eq!(count(endpoints, name, "holders"), 0, "{printed}");
    drop(input);
}

/// A grant that cannot be printed, because the disk is full or the pipe is closed, is released, and the exit code is an
/// error.
fn unprinted_grants_are_released(endpoints: &str) {
    let name = "cl/print";
    let lines: [&[&str]; 3] =
        [&["acquire", name, "--for", "10m"], &["acquire", name, "--for", "10m", "--json"], &["lock", "--hold", name]];
    for line in lines {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let full = lockkeeper(endpoints, line).stdin(Stdio::piped()).stdout(full).spawn().unwrap();
        // The first child must end before the second starts, or both would wait.
        releases_its_grant(endpoints, full, name);
        releases_its_grant(endpoints, without_a_reader(endpoints, line, name), name);
    }
}

/// Reads the next line that a child prints.
fn line(reader: &mut impl BufRead) -> String {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    line
}

/// What a pipe holds on Linux.
const PIPE_BYTES: u64 = 65_536;

/// A command fills a standard error that nothing reads. A notice of another client waits for the reader, but not the
/// end of the command after a loss.
fn a_full_standard_error_delays_no_loss(endpoints: &str) {
    let (name, folder) = ("cl/full", tempfile::tempdir().expect("a folder"));
    let path = folder.path().join("pid");
    let script = format!("echo $$ > {0}.new; mv {0}.new {0}; exec yes >&2", path.display());
    let mut child = lockkeeper(endpoints, &["lock", name, "-c", &script]).stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = child.stderr.take().unwrap();
    block_until("the command", || path.exists());
    let pid = fs::read_to_string(&path).unwrap().trim().parse().unwrap();
    let runs = || test_kill_process(Pid::from_raw(pid).unwrap()).is_ok();
    block_until("a full pipe", || PIPE_BYTES - 4_096 < ioctl_fionread(&errors).unwrap());
    let token = shown(endpoints, name)["holders"][0]["token"].as_str().unwrap().to_owned();
    assert_eq!(code(endpoints, &["ask", name, &token, "please finish"]), Some(0));
    assert!(runs());
    assert_eq!(code(endpoints, &["break", name, &token, "--why", "it hangs"]), Some(0));
    block_until("the end of the command", || !runs());
    errors.read_to_end(&mut Vec::new()).unwrap();
    assert!(!child.wait().unwrap().success());
}

/// `ask` reaches the holder: with a command as a line on standard error and a signal, without one as a line on standard
/// output. The line names the user that asks.
fn requests_reach_the_holder(endpoints: &str) {
    let token = || shown(endpoints, "cl/ask")["holders"][0]["token"].as_str().unwrap().to_owned();
    let ask = || {
        let ask = ["ask", "cl/ask", &token(), "please finish"];
        let mut ask = lockkeeper(endpoints, &ask);
        assert_eq!(ask.env("USER", "ana").status().unwrap().code(), Some(0));
    };

    let folder = tempfile::tempdir().unwrap();
    let ready = folder.path().join("ready");
    let script = format!("trap 'exit 7' USR1; echo > {}; while :; do sleep 0.05; done", ready.display());
    let command = ["lock", "cl/ask", "--on-ask", "USR1", "-c", &script];
    let mut child = lockkeeper(endpoints, &command).spawn().unwrap();
    block_until("the trap of the command", || ready.exists());
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

/// If the `lock` process is killed, no process that its command started is running when the next holder starts: no
/// background process, no part of a pipeline, and no process in another session.
fn nothing_runs_with_the_next_holder(endpoints: &str) {
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    let note = format!("echo $$ >> {}", pids.display());
    let script = format!(
        "sh -c '{note}; exec sleep 1000' & (sh -c '{note}; exec sleep 1000' | cat) & \
         setsid sh -c '{note}; exec sleep 1000' & {note}; sleep 1000"
    );
    let mut first = lockkeeper(endpoints, &["lock", "cl/killed", "--ttl", "3s", "-c", &script]).spawn().unwrap();
    block_until("four processes", || fs::read_to_string(&pids).unwrap_or_default().lines().count() == 4);
    signal(&first, Signal::KILL);
    first.wait().unwrap();
    let look = format!("for pid in $(cat {}); do kill -0 $pid 2> /dev/null && echo $pid; done; true", pids.display());
    let next = output(endpoints, &["lock", "cl/killed", "-w", "30s", "-c", &look]);
    assert_eq!((next.status.code(), String::from_utf8_lossy(&next.stdout).as_ref()), (Some(0), ""));
}

/// The state of the thread that reads standard input: `S` if it sleeps, `T` if the process was stopped.
fn state_of_reader(process: &str) -> Option<char> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten();
    let stats = threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
    let reader = stats.filter(|stat| stat.contains(" (input) ")).last()?;
    reader.rsplit_once(") ")?.1.chars().next()
}

/// `lock NAME &` in a shell holds its lock: it does not read the terminal in the background, because that would stop
/// the process.
fn a_background_job_holds(endpoints: &str) {
    let program = env!("CARGO_BIN_EXE_lockkeeper");
    let script = format!("set -m; {program} lock cl/job & read line; kill %1; wait %1; echo code $?");
    let mut shell = Command::new("script");
    shell.args(["-qec", &format!("bash --norc -c '{script}'"), "/dev/null"]).env("LOCKKEEPER_ENDPOINTS", endpoints);
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    block_until("a holder", || count(endpoints, "cl/job", "holders") == 1);
    let who = shown(endpoints, "cl/job")["holders"][0]["who"].as_str().unwrap().to_owned();
    assert!(who.contains('@') && who.ends_with(" lockkeeper"), "user, host and command: {who}");
    let process = shown(endpoints, "cl/job")["holders"][0]["pid"].to_string();
    let mut state = None;
    block_until("the reader to sleep", || {
        state = state_of_reader(&process);
        matches!(state, Some('S' | 'T'))
    });
    assert_eq!(state, Some('S'), "reading the terminal must not stop it");
    let mut input = shell.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, b"go\n").unwrap();
    let mut printed = String::new();
    shell.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    assert!(printed.contains("code 0"), "{printed}");
    shell.wait().unwrap();
    assert_eq!(count(endpoints, "cl/job", "holders"), 0);
}

/// The first word after the lock's name starts the command. A command line without a command, or with an invalid
/// option, is refused before any request is sent.
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
    release_holder(holder);
    assert_eq!(code(endpoints, &["lock", "cl/line", "-w", "0s", "true"]), Some(0), "a try acquires a free lock");
    let unwritten = output(endpoints, &["lock", "cl/line", "--result", "/dev/full", "true"]);
    let printed = String::from_utf8_lossy(&unwritten.stderr);
    assert_eq!(unwritten.status.code(), Some(70), "its caller relies on the file: {printed}");
    assert!(printed.contains("the result with the exit code 0 could not be written"), "{printed}");
}

/// A handle can be read from the environment or from standard input, which other users of the machine cannot see.
fn handles_come_from_outside_the_command_line(endpoints: &str) {
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
    assert_eq!(code(endpoints, &["refresh", "cl/proof", "--for", "1m"]), Some(64), "no handle at all");
    assert_eq!(with_variable(&["refresh", "cl/proof", "--for", "1m"]), Some(0));
    assert_eq!(from_input(&["refresh", "cl/proof", "-", "--for", "1m"]), Some(0));
    assert_eq!(with_variable(&["release", "cl/proof", "another"]), Some(65), "the argument takes precedence");
    assert_eq!(with_variable(&["release", "cl/proof"]), Some(0));
    assert_eq!(with_variable(&["acquire", "cl/proof", "--for", "1m"]), Some(0));
    assert_eq!(from_input(&["release", "cl/proof", "-"]), Some(0));
}
