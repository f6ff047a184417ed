//! What ends a command that runs while something is held, and what is waited for at its end.

use std::process::Stdio;

use rustix::process::{Signal, kill_process};

use super::{Slate, code_of, ended, is_gone, pid, shown, until, wrapper};

/// A script that notes TERM on the slate, and runs on.
fn stubborn(slate: &Slate) -> String {
    format!(
        "trap 'echo asked >> {0}' TERM; trap 'echo again >> {0}' USR1; echo ready > {0}; while :; do sleep 0.01; done",
        shown(&slate.path())
    )
}

/// TERM asks the command to end. While the hold is valid nothing more happens, however long the command takes, and however
/// short the time for an end after a loss is.
#[test]
fn term_alone_kills_nothing() {
    let slate = Slate::new();
    let mut child = wrapper(stubborn(&slate)).env("KILL_AFTER_MS", "1").spawn().unwrap();
    slate.says("ready");
    for count in 1..=2 {
        kill_process(pid(&child), Signal::TERM).unwrap();
        until("TERM on the slate", || slate.text().matches("asked").count() == count);
    }
    // A kill that was due after 1 ms would come before the answer to a later signal.
    kill_process(pid(&child), Signal::USR1).unwrap();
    slate.says("again");
    assert!(child.try_wait().unwrap().is_none());
    kill_process(pid(&child), Signal::KILL).unwrap();
    ended(&mut child);
}

/// A command that does not end at TERM is killed after the time that was set for that.
#[test]
fn term_is_followed_by_kill_where_that_was_ordered() {
    let slate = Slate::new();
    let mut child = wrapper(stubborn(&slate)).env("STOP_AFTER_MS", "300").spawn().unwrap();
    slate.says("ready");
    kill_process(pid(&child), Signal::TERM).unwrap();
    assert_eq!(ended(&mut child).code(), Some(137));
}

/// A second TERM shortens the time to the kill, which would otherwise be longer than this test waits.
#[test]
fn a_second_term_hurries_the_kill() {
    let slate = Slate::new();
    // A quarter of it is more than the command needs to note the first TERM, and less than the test's patience.
    let mut child = wrapper(stubborn(&slate)).env("STOP_AFTER_MS", "24000").spawn().unwrap();
    slate.says("ready");
    kill_process(pid(&child), Signal::TERM).unwrap();
    slate.says("asked");
    kill_process(pid(&child), Signal::TERM).unwrap();
    assert_eq!(ended(&mut child).code(), Some(137));
}

/// A loss leaves the command its time to the kill and no more: TERM from outside does not prolong it.
#[test]
fn term_does_not_put_off_the_kill_after_a_loss() {
    let slate = Slate::new();
    let mut command = wrapper(stubborn(&slate));
    let mut child = command.env("LASTS_MS", "2000").env("STOP_AFTER_MS", "120000").spawn().unwrap();
    slate.says("asked");
    kill_process(pid(&child), Signal::TERM).unwrap();
    assert_eq!(ended(&mut child).code(), Some(76));
}

/// Another client's request sends the signal that was ordered to the command's group.
#[test]
fn a_request_sends_its_signal() {
    let slate = Slate::new();
    let script = format!("trap 'exit 12' USR2; echo ready > {0}; while :; do sleep 0.01; done", shown(&slate.path()));
    assert_eq!(code_of(wrapper(script).env("ASKED_MS", "1000")), Some(12));
}

/// Where the hold is to end with the command itself, nothing that it left in its group is waited for or killed.
#[test]
fn processes_left_behind_need_not_be_waited_for() {
    let slate = Slate::new();
    let script = format!("sleep 1000 > /dev/null & echo pid $! > {}; exit 5", shown(&slate.path()));
    let mut child = wrapper(script).env("RELEASE_EARLY", "1").spawn().unwrap();
    assert_eq!(ended(&mut child).code(), Some(5));
    let left = slate.number_after("pid ");
    assert!(!is_gone(left));
    kill_process(left, Signal::KILL).unwrap();
}

/// After a while the user is notified of the processes that are waited for, by their names and ids.
#[test]
#[cfg(target_os = "linux")]
fn the_user_is_notified_of_processes_left_behind() {
    let (slate, notices) = (Slate::new(), Slate::new());
    let script = format!("sleep 1000 & echo pid $! > {}; exit 5", shown(&slate.path()));
    let mut child = wrapper(script).stdout(Stdio::null()).env("NOTICES", notices.path()).spawn().unwrap();
    let left = slate.number_after("pid ");
    assert_eq!(notices.number_after("waits for sleep "), left);
    assert!(child.try_wait().unwrap().is_none());
    kill_process(left, Signal::KILL).unwrap();
    assert_eq!(ended(&mut child).code(), Some(5));
}
