//! Job control: the wrapper in a shell on a pseudo-terminal.

use std::time::Duration;

use super::screen::Screen;
use super::{ended, role};

/// Runs a shell, which leads the session of a new terminal.
fn shell(script: &str) -> Screen {
    let mut leader = role("role_of_the_session_leader");
    leader.env("SCRIPT", script).env("ROLE", std::env::current_exe().unwrap());
    Screen::run(leader)
}

/// The shell command that starts the wrapper. The wrapped command is in single quotes.
fn in_shell(command: &str) -> String {
    format!("WRAPPED='{command}' \"$ROLE\" --exact role_of_the_wrapper --nocapture --quiet")
}

/// On a terminal the command is in the foreground and reads what is typed; afterwards the shell has the terminal.
#[test]
fn the_command_reads_the_terminal() {
    let line = in_shell("echo ready; read line; echo \"got $line\"");
    let mut screen = shell(&format!("set -m; {line}; read after; echo \"then $after\""));
    screen.shows("ready");
    screen.press("first\n");
    screen.shows("got first");
    screen.press("second\n");
    screen.shows("then second");
    assert_eq!(ended(&mut screen.program).code(), Some(0));
}

/// Ctrl-C reaches the command and not the wrapper, which reports how the command ended.
#[test]
fn interrupts_reach_the_command() {
    let line = in_shell("trap \"echo caught; exit 21\" INT; echo ready; while :; do sleep 0.01; done");
    let mut screen = shell(&format!("set -m; {line}; echo \"code $?\""));
    screen.shows("ready");
    screen.press("\x03");
    screen.shows("caught");
    screen.shows("code 21");
    assert_eq!(ended(&mut screen.program).code(), Some(0));
}

/// Ctrl-Z stops the command and the wrapper, and the shell has the terminal; `fg` continues both in the foreground.
#[test]
fn stopping_and_continuing_works_both_ways() {
    let line = in_shell("echo ready; read line; echo \"got $line\"; exit 6");
    let mut screen =
        shell(&format!("set -m; {line}; echo \"stopped $?\"; read typed; echo \"shell $typed\"; fg; echo \"code $?\""));
    screen.shows("ready");
    screen.press("\x1a");
    screen.shows("stopped 148");
    screen.press("hello\n");
    screen.shows("shell hello");
    screen.press("again\n");
    screen.shows("got again");
    screen.shows("code 6");
    assert_eq!(ended(&mut screen.program).code(), Some(0));
}

/// If it is continued after the hold has ended, the command does not run another instruction, and the loss is reported.
#[test]
fn continuing_too_late_is_loss() {
    // The shell prints the text of the job, so that text must not contain what the trap prints.
    let command = "trap \"echo cont$((1+1))\" CONT; echo ready; while :; do sleep 0.01; done";
    let line = format!("LASTS_MS=4000 {}", in_shell(command));
    let mut screen = shell(&format!("set -m; {line}; echo \"stopped $?\"; read typed; fg; echo \"code $?\""));
    screen.shows("ready");
    screen.press("\x1a");
    screen.shows("stopped 148");
    // The end of the hold depends on time alone.
    std::thread::sleep(Duration::from_millis(4100));
    screen.press("go\n");
    screen.shows("code 76");
    assert!(!screen.text().contains("cont2"), "the command continued");
}

/// A wrapper that is started in the background does not take the terminal from the shell.
#[test]
fn a_background_wrapper_leaves_the_terminal_alone() {
    let line = in_shell("echo ready; exit 4");
    let mut screen = shell(&format!("set -m; {line} & read typed; echo \"shell $typed\"; wait %1; echo \"code $?\""));
    screen.shows("ready");
    screen.press("mine\n");
    screen.shows("shell mine");
    screen.shows("code 4");
}
