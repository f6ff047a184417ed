//! A command under the wrapper: exit codes, signals, the end of the hold, and job control on a pseudo-terminal.
//! No cluster is needed: the hold is made up.
//!
//! Two tests are also roles that this program plays as a process of its own, told by its environment: the wrapper
//! with its made-up hold, and the leader of a terminal's session.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic, and says what it saw")]

mod ends;
mod killed;
mod terminal;

use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use lockkeeper::cli::lock::child::{self, Hold, OnLost, Orders};
use lockkeeper::cli::lock::signals::Signals;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// Longer than any of these tests takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A hold that is valid for so long from its making.
struct Made {
    began: Instant,
    lasts: Duration,
    /// Another client asks for it then, once.
    asked_at: Option<Duration>,
}

impl Hold for Made {
    fn valid_for(&self) -> Duration {
        self.lasts.saturating_sub(self.began.elapsed())
    }

    async fn lost(&self) {
        tokio::time::sleep(self.valid_for()).await;
    }

    async fn asked(&self) {
        match self.asked_at {
            Some(at) if at > self.began.elapsed() => tokio::time::sleep(at - self.began.elapsed()).await,
            Some(_) | None => std::future::pending().await,
        }
    }

    fn waits_for(&self, processes: &[(u32, String)]) {
        let Some(slate) = std::env::var_os("NOTICES") else { return };
        let lines: String = processes.iter().map(|(pid, name)| format!("waits for {name} {pid}\n")).collect();
        std::fs::write(slate, lines).unwrap();
    }
}

/// Plays the wrapper when asked to by the environment: runs the command in `WRAPPED` and ends with its exit code, 76
/// when the hold was lost.
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
        on_ask: std::env::var_os("ASKED_MS").map(|_| Signal::USR2),
        whole_group: std::env::var_os("RELEASE_EARLY").is_none(),
        guardian: vec![env!("CARGO_BIN_EXE_lockkeeper").into(), "__guardian".into()],
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let report = runtime.block_on(async {
        let asked_at = std::env::var_os("ASKED_MS").map(|_| milliseconds("ASKED_MS", 0));
        let hold = Made { began: Instant::now(), lasts: milliseconds("LASTS_MS", 3_600_000), asked_at };
        let mut signals = Signals::listen().unwrap();
        child::run(&orders, &hold, &mut signals).await
    });
    let Ok(report) = report else { std::process::exit(70) };
    std::process::exit(if report.lost && on_lost != OnLost::Ignore { 76 } else { i32::from(report.ended.code()) });
}

/// Plays the leader of a terminal's session when asked to by the environment: makes the terminal on its standard
/// input its own and becomes a shell.
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

/// Polls with a pause until the condition holds.
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "in vain: {what}");
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

/// A file in a directory of its own, for commands to tell what they did.
struct Slate {
    directory: tempfile::TempDir,
}

impl Slate {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("slate")
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.path()).unwrap_or_default()
    }

    fn says(&self, word: &str) {
        until(&format!("{word} on the slate"), || self.text().contains(word));
    }

    fn number_after(&self, word: &str) -> Pid {
        self.says(word);
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
    Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap()
}

fn is_gone(process: Pid) -> bool {
    test_kill_process(process).is_err()
        || std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()))
            .is_ok_and(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z')))
}

/// The command's exit code is the wrapper's, and a signal that ended it is 128 and its number.
#[test]
fn exit_codes_are_the_commands() {
    assert_eq!(code_of(&mut wrapper("exit 0")), Some(0));
    assert_eq!(code_of(&mut wrapper("exit 42")), Some(42));
    assert_eq!(code_of(&mut wrapper("kill -KILL $$")), Some(137));
}

/// A command that does not exist is 127, one that may not be executed is 126.
#[test]
fn commands_that_cannot_run_are_told_apart() {
    assert_eq!(code_of(&mut wrapper("exec /nonexistent/command")), Some(127));
    assert_eq!(code_of(&mut wrapper("exec /etc/passwd")), Some(126));
}

/// The command sees the environment that was ordered.
#[test]
fn the_environment_reaches_the_command() {
    assert_eq!(code_of(&mut wrapper("exit $LOCKKEEPER_TOKEN")), Some(17));
}

/// The command leads a group of its own, apart from the wrapper's.
#[test]
fn the_command_leads_its_own_group() {
    assert_eq!(code_of(&mut wrapper("test \"$(ps -o pgid= -p $$ | tr -d ' ')\" = $$ || test ! -x /bin/ps")), Some(0));
}

/// Signals to the wrapper reach the command, which decides what they mean.
#[test]
fn signals_are_passed_on() {
    for (signal, name) in [(Signal::USR1, "USR1"), (Signal::INT, "INT"), (Signal::HUP, "HUP"), (Signal::TERM, "TERM")] {
        let slate = Slate::new();
        let script =
            format!("trap 'exit 33' {name}; echo ready > {}; while :; do sleep 0.01; done", shown(&slate.path()));
        let mut child = wrapper(script).spawn().unwrap();
        slate.says("ready");
        kill_process(pid(&child), signal).unwrap();
        assert_eq!(ended(&mut child).code(), Some(33), "{name}");
    }
}

/// The hold is in use until the whole group is gone: what the command left behind is waited for.
#[test]
fn processes_left_behind_are_waited_for() {
    let slate = Slate::new();
    let path = shown(&slate.path());
    let script = format!("(while test ! -e {path}.go; do sleep 0.01; done; echo over > {path}) & exit 5");
    let mut child = wrapper(script).stdout(Stdio::null()).spawn().unwrap();
    assert!(child.try_wait().unwrap().is_none());
    std::fs::write(format!("{path}.go"), "").unwrap();
    assert_eq!(ended(&mut child).code(), Some(5));
    assert_eq!(slate.text(), "over\n");
}

/// When the hold runs out the command is asked to end before that, and the exit code says so whatever it returned.
#[test]
fn loss_asks_the_command_to_end() {
    let slate = Slate::new();
    let script = format!("trap 'echo asked > {}; exit 0' TERM; while :; do sleep 0.01; done", shown(&slate.path()));
    assert_eq!(code_of(wrapper(script).env("LASTS_MS", "1500")), Some(76));
    assert_eq!(slate.text(), "asked\n");
}

/// A command that does not hear is dead by the time that another may hold the lock.
#[test]
fn loss_kills_in_time() {
    let began = Instant::now();
    let mut child = wrapper("trap '' TERM; while :; do sleep 0.01; done").env("LASTS_MS", "2000").spawn().unwrap();
    let status = ended(&mut child);
    assert_eq!(status.code(), Some(76));
    // The hold began after the process did, so that this bound is later than the end of the hold, by a start.
    assert!(began.elapsed() < Duration::from_millis(3_500), "{:?}", began.elapsed());
}

/// `--on-lost kill` does not ask, `--on-lost ignore` does nothing.
#[test]
fn loss_can_kill_at_once_or_be_ignored() {
    let slate = Slate::new();
    let script = format!("trap 'echo asked > {}' TERM; while :; do sleep 0.01; done", shown(&slate.path()));
    assert_eq!(code_of(wrapper(script).env("LASTS_MS", "500").env("ON_LOST", "kill")), Some(76));
    assert_eq!(slate.text(), "");
    assert_eq!(code_of(wrapper("sleep 0.6; exit 9").env("LASTS_MS", "100").env("ON_LOST", "ignore")), Some(9));
}

/// A wrapper that is killed takes the command along.
#[test]
#[cfg(target_os = "linux")]
fn a_killed_wrapper_takes_the_command_along() {
    let slate = Slate::new();
    let script = format!("echo pid $$ > {}; while :; do sleep 0.01; done", shown(&slate.path()));
    let mut child = wrapper(script).spawn().unwrap();
    let command = slate.number_after("pid ");
    kill_process(pid(&child), Signal::KILL).unwrap();
    assert_eq!(ended(&mut child).signal(), Some(9));
    until("the command's end", || is_gone(command));
}
