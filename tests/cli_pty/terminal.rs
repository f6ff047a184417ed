//! Job control: the wrapper in a shell on a pseudo-terminal.

use std::time::Duration;

use super::screen::Screen;
use super::{Journal, ended, role, shown};

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
    screen.shows("stopped 147");
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
    // Without a child: some shells wait for a child that was stopped between its fork and its exec, and do not stop.
    let command = "trap \"echo cont$((1+1))\" CONT; echo ready; while :; do :; done";
    let line = format!("LASTS_MS=4000 {}", in_shell(command));
    let mut screen = shell(&format!("set -m; {line}; echo \"stopped $?\"; read typed; fg; echo \"code $?\""));
    screen.shows("ready");
    screen.press("\x1a");
    screen.shows("stopped 147");
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

/// Returns a field of the state of a process, counted from the one after its name.
#[cfg(target_os = "linux")]
fn state(process: impl std::fmt::Display, field: usize) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').nth(field).unwrap().to_owned()
}

/// In a pipeline the command leaves the foreground to the program that reads its output, so that neither is stopped.
#[test]
fn a_pager_keeps_the_terminal() {
    let journal = Journal::new();
    let command = format!("echo ready >&2; while [ ! -e {} ]; do sleep 0.01; done; exit 3", shown(&journal.path()));
    let pager = "(read typed < /dev/tty; echo \"pager $typed\" > /dev/tty; cat > /dev/null)";
    let line = in_shell(&command);
    let mut screen = shell(&format!("set -m; {line} | {pager}; echo \"code ${{PIPESTATUS[0]}}\""));
    screen.shows("ready");
    screen.press("first\n");
    screen.shows("pager first");
    std::fs::write(journal.path(), "").unwrap();
    screen.shows("code 3");
}

/// A command outside a terminal's input and output that reads from the terminal gets the foreground when it does.
#[test]
fn a_command_in_a_pipeline_reads_the_terminal() {
    let line = in_shell("echo ready >&2; read typed < /dev/tty; echo \"got $typed\" >&2; exit 5");
    let mut screen = shell(&format!("set -m; {line} | cat > /dev/null; echo \"code ${{PIPESTATUS[0]}}\""));
    screen.shows("ready");
    screen.press("first\n");
    screen.shows("got first");
    screen.shows("code 5");
}

/// Ctrl-Z in a job that began in the background stops the command and not only the wrapper, because a stopped wrapper
/// cannot keep the hold. `fg` continues both.
#[test]
#[cfg(target_os = "linux")]
fn a_stopped_wrapper_stops_its_command() {
    let journal = Journal::new();
    let file = shown(&journal.path());
    // Without a child, as in `continuing_too_late_is_loss`.
    let line = in_shell(&format!("echo pid $$ > {file}; while [ ! -e {file}.go ]; do :; done; exit 6"));
    let script = format!("{line} & read typed; fg; echo \"stopped $?\"; read typed; fg; echo \"code $?\"");
    let mut screen = shell(&format!("set -m; {script}"));
    let command = journal.number_after("pid ").as_raw_nonzero();
    screen.press("go\n");
    let leader = screen.program.id();
    // The foreground of its terminal.
    super::until("the job is in the foreground", || state(leader, 5) != leader.to_string());
    screen.press("\x1a");
    screen.shows("stopped 147");
    assert_eq!(state(command, 0), "T", "the command runs without its wrapper");
    std::fs::write(format!("{file}.go"), "").unwrap();
    screen.press("go\n");
    screen.shows("code 6");
}

/// A report of a stop can arrive after the command was continued. The wrapper then does not stop itself, because it
/// could not keep the hold.
#[test]
#[cfg(target_os = "linux")]
fn an_outdated_stop_stops_nothing() {
    // The guardian reports a stop of a process that runs, and then its end.
    let guardian = r#"read streams; sleep 1000 & echo "{\"Started\":$!}" >&0; echo '{"Stopped":19}' >&0;
        echo '{"Ended":{"Code":6}}' >&0; read goodbye; kill $!"#;
    let mut leader = role("role_of_the_session_leader");
    leader.env("SCRIPT", format!("set -m; {}; echo \"code $?\"", in_shell("true")));
    leader.env("ROLE", std::env::current_exe().unwrap()).env("GUARDIAN", guardian).env("RELEASE_EARLY", "1");
    let mut screen = Screen::run(leader);
    screen.shows("code 6");
    assert_eq!(ended(&mut screen.program).code(), Some(0));
}

/// Writes a script that starts a wrapper, whose command reads from the terminal. Returns the shell command that starts
/// another wrapper, whose command is that script.
fn nested(script: &Journal) -> String {
    let inner = in_shell("echo ready > /dev/tty; read typed < /dev/tty; echo \"got $typed\" > /dev/tty; exit 5");
    std::fs::write(script.path(), inner).unwrap();
    in_shell(&format!("bash {}; exit $?", shown(&script.path())))
}

/// If a run with its output in a file starts another run, the command of the second one gets the foreground.
#[test]
fn a_nested_run_reads_the_terminal() {
    let script = Journal::new();
    let line = nested(&script);
    let mut screen = shell(&format!("set -m; {line} > /dev/null; echo \"code $?\""));
    screen.shows("ready");
    screen.press("first\n");
    screen.shows("got first");
    screen.shows("code 5");
}

/// In a pipeline, a nested run that needs the terminal stops the whole job. `fg` gives it the foreground.
#[test]
#[cfg(target_os = "linux")]
fn a_nested_run_in_a_pipeline_needs_one_fg() {
    let script = Journal::new();
    let line = nested(&script);
    let rest = "echo \"shell is back\"; read typed; echo \"shell $typed\"; fg; echo \"over\"";
    let mut screen = shell(&format!("set -m; {line} | cat > /dev/null; {rest}"));
    screen.shows("shell is back");
    screen.press("mine\n");
    screen.shows("shell mine");
    screen.press("first\n");
    screen.shows("got first");
    screen.shows("over");
}
