//! A command under the wrapper: exit codes, signals, the end of the hold, and job control on a pseudo-terminal. The
//! hold is simulated, so that no cluster is needed.
//!
//! Two tests are also the entry points of child processes, selected by environment variables: the wrapper with its
//! simulated hold, and the leader of a terminal's session.

#![allow(clippy::unwrap_used, reason = "a test fails with a panic that shows what it measured")]

mod ends;
mod killed;
mod screen;
mod terminal;

use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use lockkeeper::cli::lock::child::{self, Hold, OnLost, Orders};
use lockkeeper::cli::lock::signals::Signals;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// Longer than any of these tests takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A hold that is valid for a fixed time after its creation.
struct SimulatedHold {
    began: Instant,
    lasts: Duration,
    /// The hold has ended when this file exists. No timer counts that time, as if the machine had been suspended.
    ends_with: Option<PathBuf>,
    /// Another client requests the lock when this file exists. The request removes it.
    asked_with: Option<PathBuf>,
}

impl Hold for SimulatedHold {
    fn valid_for(&self) -> Duration {
        if self.ends_with.as_ref().is_some_and(|file| file.exists()) {
            return Duration::ZERO;
        }
        self.lasts.saturating_sub(self.began.elapsed())
    }

    async fn lost(&self) {
        tokio::time::sleep(self.valid_for()).await;
    }

    async fn asked(&self) {
        let Some(file) = &self.asked_with else { return std::future::pending().await };
        while std::fs::remove_file(file).is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn waits_for(&self, processes: &[(u32, String)]) {
        let Some(journal) = std::env::var_os("NOTICES") else { return };
        let lines: String = processes.iter().map(|(pid, name)| format!("waits for {name} {pid}\n")).collect();
        std::fs::write(journal, lines).unwrap();
    }
}

/// The entry point of the wrapper process: runs the command in `WRAPPED` and exits with its code, or with 76 if the
/// hold was lost. Does nothing without that variable.
#[test]
fn role_of_the_wrapper() {
    let Some(command) = std::env::var_os("WRAPPED") else { return };
    let milliseconds = |name: &str, default: u64| {
        Duration::from_millis(std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default))
    };
    let on_lost = match std::env::var("ON_LOST").as_deref() {
        Ok("kill") => OnLost::Kill,
        Ok("ignore") => OnLost::Ignore,
        Ok(_) | Err(_) => OnLost::Term,
    };
    // A script in place of the guardian reports what a test needs.
    let guardian = match std::env::var_os("GUARDIAN") {
        Some(script) => vec!["sh".into(), "-c".into(), script],
        None => vec![env!("CARGO_BIN_EXE_lockkeeper").into(), "__guardian".into()],
    };
    let whole = command.to_string_lossy();
    let command = match whole.strip_prefix("exec ") {
        Some(program) => vec![program.into()],
        None => vec!["sh".into(), "-c".into(), command.clone()],
    };
    let orders = Orders {
        command,
        environment: vec![("LOCKKEEPER_TOKEN".into(), Some("17".into()))],
        on_lost,
        kill_after: milliseconds("KILL_AFTER_MS", 300),
        stop_after: std::env::var_os("STOP_AFTER_MS").map(|_| milliseconds("STOP_AFTER_MS", 0)),
        on_ask: std::env::var_os("ASKED_WITH").map(|_| Signal::USR2),
        whole_group: std::env::var_os("RELEASE_EARLY").is_none(),
        guardian,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let report = runtime.block_on(async {
        let file = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let lasts = milliseconds("LASTS_MS", 3_600_000);
        let (ends_with, asked_with) = (file("ENDS_WITH"), file("ASKED_WITH"));
        let hold = SimulatedHold { began: Instant::now(), lasts, ends_with, asked_with };
        let mut signals = Signals::listen().unwrap();
        child::run(&orders, &hold, &mut signals).await
    });
    let Ok(report) = report else { std::process::exit(70) };
    let Some(report) = report else { std::process::exit(76) };
    std::process::exit(if report.lost && on_lost != OnLost::Ignore { 76 } else { i32::from(report.ended.code()) });
}

/// The entry point of the session leader: makes the terminal on its standard input its controlling terminal and becomes
/// a shell. Does nothing without the variable `SCRIPT`.
#[test]
fn role_of_the_session_leader() {
    let Some(script) = std::env::var_os("SCRIPT") else { return };
    rustix::process::setsid().unwrap();
    rustix::process::ioctl_tiocsctty(std::io::stdin()).unwrap();
    let error = Command::new("bash").args(["--norc", "--noprofile", "-c"]).arg(script).env_remove("SCRIPT").exec();
    panic!("no shell: {error}");
}

fn role(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--quiet"]);
    command
}

fn wrapper(command: impl Into<OsString>) -> Command {
    let mut wrapper = role("role_of_the_wrapper");
    wrapper.env("WRAPPED", command.into()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    wrapper
}

/// Waits until the condition is true.
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn ended(child: &mut Child) -> ExitStatus {
    let mut status = None;
    until("the end of the wrapper", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

fn code_of(command: &mut Command) -> Option<i32> {
    ended(&mut command.spawn().unwrap()).code()
}

/// A temporary file to which commands write what they did.
struct Journal {
    directory: tempfile::TempDir,
}

impl Journal {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("journal")
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.path()).unwrap_or_default()
    }

    fn wait_for(&self, word: &str) {
        until(&format!("{word} in the file"), || self.text().contains(word));
    }

    fn number_after(&self, word: &str) -> Pid {
        self.wait_for(word);
        until("a whole line", || self.text().ends_with('\n'));
        let text = self.text();
        let line = text.lines().find_map(|line| line.strip_prefix(word)).unwrap();
        Pid::from_raw(line.trim().parse().unwrap()).unwrap()
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

fn is_gone(process: Pid) -> bool {
    test_kill_process(process).is_err()
        || std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()))
            .is_ok_and(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z')))
}

/// The wrapper exits with the code of its command, or with 128 and the number of the signal that ended it.
#[test]
fn exit_codes_are_the_commands() {
    assert_eq!(code_of(&mut wrapper("exit 0")), Some(0));
    assert_eq!(code_of(&mut wrapper("exit 42")), Some(42));
    assert_eq!(code_of(&mut wrapper("kill -KILL $$")), Some(137));
}

/// A command that does not exist exits with 127, and one that may not be executed with 126.
#[test]
fn commands_that_cannot_run_have_their_own_codes() {
    assert_eq!(code_of(&mut wrapper("exec /nonexistent/command")), Some(127));
    assert_eq!(code_of(&mut wrapper("exec /etc/passwd")), Some(126));
}

/// The command gets the configured environment.
#[test]
fn the_environment_reaches_the_command() {
    assert_eq!(code_of(&mut wrapper("exit $LOCKKEEPER_TOKEN")), Some(17));
}

/// The command leads a separate process group.
#[test]
fn the_command_leads_its_own_group() {
    assert_eq!(code_of(&mut wrapper("test \"$(ps -o pgid= -p $$ | tr -d ' ')\" = $$ || test ! -x /bin/ps")), Some(0));
}

/// Signals to the wrapper are forwarded to the command, which handles them.
#[test]
fn signals_are_forwarded() {
    for (signal, name) in [(Signal::USR1, "USR1"), (Signal::INT, "INT"), (Signal::HUP, "HUP"), (Signal::TERM, "TERM")] {
        let journal = Journal::new();
        let script =
            format!("trap 'exit 33' {name}; echo ready > {}; while :; do sleep 0.01; done", shown(&journal.path()));
        let mut child = wrapper(script).spawn().unwrap();
        journal.wait_for("ready");
        kill_process(pid(&child), signal).unwrap();
        assert_eq!(ended(&mut child).code(), Some(33), "{name}");
    }
}

/// The wrapper waits until all processes of the command's group have ended.
#[test]
fn processes_left_behind_are_waited_for() {
    let journal = Journal::new();
    let path = shown(&journal.path());
    let script = format!("(while test ! -e {path}.go; do sleep 0.01; done; echo over > {path}) & exit 5");
    let mut child = wrapper(script).stdout(Stdio::null()).spawn().unwrap();
    assert!(child.try_wait().unwrap().is_none());
    std::fs::write(format!("{path}.go"), "").unwrap();
    assert_eq!(ended(&mut child).code(), Some(5));
    assert_eq!(journal.text(), "over\n");
}

/// Before the hold ends the command gets SIGTERM, and the wrapper exits with 76 even if the command returned 0.
#[test]
fn loss_asks_the_command_to_end() {
    let journal = Journal::new();
    let script = format!("trap 'echo asked > {}; exit 0' TERM; while :; do sleep 0.01; done", shown(&journal.path()));
    // The command has two seconds to set its trap, and four to run it.
    assert_eq!(code_of(wrapper(script).env("LASTS_MS", "6000").env("KILL_AFTER_MS", "4000")), Some(76));
    assert_eq!(journal.text(), "asked\n");
}

/// A command that ignores SIGTERM is killed before another client can hold the lock.
#[test]
fn loss_kills_in_time() {
    let began = Instant::now();
    let mut child = wrapper("trap '' TERM; while :; do sleep 0.01; done").env("LASTS_MS", "2000").spawn().unwrap();
    let status = ended(&mut child);
    assert_eq!(status.code(), Some(76));
    // The hold begins after the process does, so this bound is later than the end of the hold by the time of a start on
    // a busy machine.
    assert!(began.elapsed() < Duration::from_secs(2) + PATIENCE / 4, "{:?}", began.elapsed());
}

/// `--on-lost kill` sends no SIGTERM, and `--on-lost ignore` does nothing.
#[test]
fn loss_can_kill_at_once_or_be_ignored() {
    let journal = Journal::new();
    let script = format!("trap 'echo asked > {}' TERM; while :; do sleep 0.01; done", shown(&journal.path()));
    assert_eq!(code_of(wrapper(script).env("LASTS_MS", "500").env("ON_LOST", "kill")), Some(76));
    assert_eq!(journal.text(), "");
    assert_eq!(code_of(wrapper("sleep 0.6; exit 9").env("LASTS_MS", "100").env("ON_LOST", "ignore")), Some(9));
}

/// If the wrapper is killed, its command is killed as well.
#[test]
#[cfg(target_os = "linux")]
fn a_killed_wrapper_ends_its_command() {
    let journal = Journal::new();
    let script = format!("echo pid $$ > {}; while :; do sleep 0.01; done", shown(&journal.path()));
    let mut child = wrapper(script).spawn().unwrap();
    let command = journal.number_after("pid ");
    kill_process(pid(&child), Signal::KILL).unwrap();
    assert_eq!(ended(&mut child).signal(), Some(9));
    until("the command's end", || is_gone(command));
}
