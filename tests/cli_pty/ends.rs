//! What ends a command under the wrapper, and what the wrapper waits for at the end.

use std::process::Stdio;

use rustix::process::{Signal, kill_process};

use super::{Journal, code_of, ended, is_gone, pid, shown, until, wrapper};

/// A script that writes a line to the file on SIGTERM and keeps running.
fn stubborn(journal: &Journal) -> String {
    format!(
        "trap 'echo asked >> {0}' TERM; trap 'echo again >> {0}' USR1; echo ready > {0}; while :; do sleep 0.01; done",
        shown(&journal.path())
    )
}

/// SIGTERM only asks the command to end. While the hold is valid the command is not killed, no matter how long it takes
/// or how short the time for an end after a loss is.
#[test]
fn term_alone_kills_nothing() {
    let journal = Journal::new();
    let mut child = wrapper(stubborn(&journal)).env("KILL_AFTER_MS", "1").spawn().unwrap();
    journal.wait_for("ready");
    for count in 1..=2 {
        kill_process(pid(&child), Signal::TERM).unwrap();
        until("TERM in the file", || journal.text().matches("asked").count() == count);
    }
    // A kill that is due after 1 ms would come before the answer to a later signal.
    kill_process(pid(&child), Signal::USR1).unwrap();
    journal.wait_for("again");
    assert!(child.try_wait().unwrap().is_none());
    kill_process(pid(&child), Signal::KILL).unwrap();
    ended(&mut child);
}

/// A command that does not end after SIGTERM is killed after the configured time.
#[test]
fn term_is_followed_by_kill_if_configured() {
    let journal = Journal::new();
    let mut child = wrapper(stubborn(&journal)).env("STOP_AFTER_MS", "300").spawn().unwrap();
    journal.wait_for("ready");
    kill_process(pid(&child), Signal::TERM).unwrap();
    assert_eq!(ended(&mut child).code(), Some(137));
}

/// A second SIGTERM shortens the time until the kill, which would otherwise exceed the limit of this test.
#[test]
fn a_second_term_hurries_the_kill() {
    let journal = Journal::new();
    // A quarter of this time is longer than the command needs to write its line, and shorter than the limit of the
    // test.
    let mut child = wrapper(stubborn(&journal)).env("STOP_AFTER_MS", "24000").spawn().unwrap();
    journal.wait_for("ready");
    kill_process(pid(&child), Signal::TERM).unwrap();
    journal.wait_for("asked");
    kill_process(pid(&child), Signal::TERM).unwrap();
    assert_eq!(ended(&mut child).code(), Some(137));
}

/// A loss leaves the command its time until the kill, and a SIGTERM from outside does not extend that time.
#[test]
fn term_does_not_delay_the_kill_after_a_loss() {
    let journal = Journal::new();
    let mut command = wrapper(stubborn(&journal));
    let mut child =
        command.env("LASTS_MS", "6000").env("KILL_AFTER_MS", "4000").env("STOP_AFTER_MS", "120000").spawn().unwrap();
    journal.wait_for("asked");
    kill_process(pid(&child), Signal::TERM).unwrap();
    assert_eq!(ended(&mut child).code(), Some(76));
}

/// The hold can expire while the wrapper is stopped. If the command also ends before the wrapper continues, the wrapper
/// reports the loss.
#[test]
fn a_loss_is_reported_although_the_command_has_ended() {
    for (on_lost, code) in [("term", 76), ("kill", 76), ("ignore", 9)] {
        let journal = Journal::new();
        let script = format!("echo expired > {}; exit 9", shown(&journal.path()));
        let mut command = wrapper(script);
        assert_eq!(code_of(command.env("ENDS_WITH", journal.path()).env("ON_LOST", on_lost)), Some(code), "{on_lost}");
    }
}

/// The hold can expire while the wrapper is stopped in the queue. Then the command is not started, unless it may run
/// without the hold.
#[test]
fn an_expired_hold_starts_no_command() {
    for (on_lost, code, text) in [("term", 76, ""), ("kill", 76, ""), ("ignore", 9, "ran\n")] {
        let (journal, expired) = (Journal::new(), Journal::new());
        std::fs::write(expired.path(), "").unwrap();
        let mut command = wrapper(format!("echo ran > {}; exit 9", shown(&journal.path())));
        assert_eq!(code_of(command.env("ENDS_WITH", expired.path()).env("ON_LOST", on_lost)), Some(code), "{on_lost}");
        assert_eq!(journal.text(), text, "{on_lost}");
    }
}

/// Timers do not count a suspend. After a suspend the wrapper reads the clock again, and does not wait until the hold
/// would have expired without the suspend.
#[test]
fn a_suspend_counts_for_the_loss() {
    let (journal, suspended) = (Journal::new(), Journal::new());
    let (file, suspend) = (shown(&journal.path()), shown(&suspended.path()));
    let script =
        format!("trap 'echo asked > {file}; exit 0' TERM; echo over > {suspend}; while :; do sleep 0.01; done");
    let mut command = wrapper(script);
    let late = command.env("KILL_AFTER_MS", "10000").env("ENDS_WITH", suspended.path());
    assert_eq!(code_of(late), Some(76));
    assert_eq!(journal.text(), "asked\n");
}

/// A request of another client sends the configured signal to the group of the command.
#[test]
fn a_request_sends_its_signal() {
    let journal = Journal::new();
    let script = format!("trap 'exit 12' USR2; echo ready > {0}; while :; do sleep 0.01; done", shown(&journal.path()));
    assert_eq!(code_of(wrapper(script).env("ASKED_WITH", journal.path())), Some(12));
}

/// If the hold ends with the command itself, processes left in its group are neither awaited nor killed.
#[test]
fn processes_left_behind_need_not_be_waited_for() {
    let journal = Journal::new();
    let script = format!("sleep 1000 > /dev/null & echo pid $! > {}; exit 5", shown(&journal.path()));
    let mut child = wrapper(script).env("RELEASE_EARLY", "1").spawn().unwrap();
    assert_eq!(ended(&mut child).code(), Some(5));
    let left = journal.number_after("pid ");
    assert!(!is_gone(left));
    kill_process(left, Signal::KILL).unwrap();
}

/// After some time the user is notified of the processes that the wrapper waits for, with their names and ids.
#[test]
#[cfg(target_os = "linux")]
fn the_user_is_notified_of_processes_left_behind() {
    let (journal, notices) = (Journal::new(), Journal::new());
    let script = format!("sleep 1000 & echo pid $! > {}; exit 5", shown(&journal.path()));
    let mut child = wrapper(script).stdout(Stdio::null()).env("NOTICES", notices.path()).spawn().unwrap();
    let left = journal.number_after("pid ");
    assert_eq!(notices.number_after("waits for sleep "), left);
    assert!(child.try_wait().unwrap().is_none());
    kill_process(left, Signal::KILL).unwrap();
    assert_eq!(ended(&mut child).code(), Some(5));
}
