//! Job control: the wrapper in a shell on a pseudo-terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::Child;
use std::time::{Duration, Instant};

use super::{PATIENCE, ended, role};

/// A pseudo-terminal with a shell, and everything that was printed on it.
struct Screen {
    keyboard: File,
    printed: std::sync::Arc<std::sync::Mutex<String>>,
    leader: Child,
}

impl Screen {
    fn run(script: &str) -> Self {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let controller: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap().into_string().unwrap();
        let user = File::options().read(true).write(true).open(name).unwrap();
        let mut leader = role("role_of_the_session_leader");
        leader.env("SCRIPT", script).env("ROLE", std::env::current_exe().unwrap());
        leader.stdin(user.try_clone().unwrap()).stdout(user.try_clone().unwrap()).stderr(user);
        let leader = leader.spawn().unwrap();
        let keyboard = File::from(controller);
        let printed = std::sync::Arc::<std::sync::Mutex<String>>::default();
        let (mut screen, seen) = (keyboard.try_clone().unwrap(), std::sync::Arc::clone(&printed));
        // The thread ends with the terminal, when the last process of the session has ended.
        std::thread::spawn(move || {
            let mut bytes = [0; 1024];
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                seen.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Self { keyboard, printed, leader }
    }

    fn press(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).unwrap();
    }

    fn shows(&self, text: &str) {
        let began = Instant::now();
        while !self.printed.lock().unwrap().contains(text) {
            assert!(began.elapsed() < PATIENCE, "no {text:?} on the screen: {}", self.printed.lock().unwrap());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn code(&mut self) -> Option<i32> {
        ended(&mut self.leader).code()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nothing of a failed test keeps running: the end of the session hangs up the terminal.
        let _ = self.leader.kill();
        let _ = self.leader.wait();
    }
}

/// The shell command that starts the wrapper. The wrapped command is in single quotes.
fn in_shell(command: &str) -> String {
    format!("WRAPPED='{command}' \"$ROLE\" --exact role_of_the_wrapper --nocapture --quiet")
}

/// On a terminal the command is in the foreground and reads what is typed; afterwards the shell has the terminal.
#[test]
fn the_command_reads_the_terminal() {
    let line = in_shell("echo ready; read line; echo \"got $line\"");
    let mut screen = Screen::run(&format!("set -m; {line}; read after; echo \"then $after\""));
    screen.shows("ready");
    screen.press(b"first\n");
    screen.shows("got first");
    screen.press(b"second\n");
    screen.shows("then second");
    assert_eq!(screen.code(), Some(0));
}

/// Ctrl-C reaches the command and not the wrapper, which reports how the command ended.
#[test]
fn interrupts_reach_the_command() {
    let line = in_shell("trap \"echo caught; exit 21\" INT; echo ready; while :; do sleep 0.01; done");
    let mut screen = Screen::run(&format!("set -m; {line}; echo \"code $?\""));
    screen.shows("ready");
    screen.press(b"\x03");
    screen.shows("caught");
    screen.shows("code 21");
    assert_eq!(screen.code(), Some(0));
}

/// Ctrl-Z stops the command and the wrapper, and the shell has the terminal; `fg` continues both in the foreground.
#[test]
fn stopping_and_continuing_works_both_ways() {
    let line = in_shell("echo ready; read line; echo \"got $line\"; exit 6");
    let mut screen = Screen::run(&format!(
        "set -m; {line}; echo \"stopped $?\"; read typed; echo \"shell $typed\"; fg; echo \"code $?\""
    ));
    screen.shows("ready");
    screen.press(b"\x1a");
    screen.shows("stopped 148");
    screen.press(b"hello\n");
    screen.shows("shell hello");
    screen.press(b"again\n");
    screen.shows("got again");
    screen.shows("code 6");
    assert_eq!(screen.code(), Some(0));
}

/// If it is continued after the hold has ended, the command does not run another instruction, and the loss is reported.
#[test]
fn continuing_too_late_is_loss() {
    // The shell prints the text of the job, so that text must not contain what the trap prints.
    let command = "trap \"echo cont$((1+1))\" CONT; echo ready; while :; do sleep 0.01; done";
    let line = format!("LASTS_MS=4000 {}", in_shell(command));
    let mut screen = Screen::run(&format!("set -m; {line}; echo \"stopped $?\"; read typed; fg; echo \"code $?\""));
    screen.shows("ready");
    screen.press(b"\x1a");
    screen.shows("stopped 148");
    // The end of the hold depends on time alone.
    std::thread::sleep(Duration::from_millis(4100));
    screen.press(b"go\n");
    screen.shows("code 76");
    assert!(!screen.printed.lock().unwrap().contains("cont2"), "the command continued");
}

/// A wrapper that is started in the background does not take the terminal from the shell.
#[test]
fn a_background_wrapper_leaves_the_terminal_alone() {
    let line = in_shell("echo ready; exit 4");
    let mut screen =
        Screen::run(&format!("set -m; {line} & read typed; echo \"shell $typed\"; wait %1; echo \"code $?\""));
    screen.shows("ready");
    screen.press(b"mine\n");
    screen.shows("shell mine");
    screen.shows("code 4");
}
