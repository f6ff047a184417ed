//! A program on a pseudo-terminal, and everything that is printed there.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Longer than any text needs to appear on a slow machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// The terminal, which has 24 lines of 80 columns. Dropping it kills the program.
pub(crate) struct Screen {
    keyboard: File,
    printed: Arc<Mutex<String>>,
    pub(crate) program: Child,
}

impl Screen {
    /// Starts a program on a new terminal.
    pub(crate) fn run(mut command: Command) -> Self {
        let controller: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        tcsetwinsize(&controller, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap().into_string().unwrap();
        let user = File::options().read(true).write(true).open(name).unwrap();
        let program = command.stdin(user.try_clone().unwrap()).stdout(user.try_clone().unwrap()).stderr(user).spawn();
        let keyboard = File::from(controller);
        let printed = Arc::<Mutex<String>>::default();
        let (mut screen, seen) = (keyboard.try_clone().unwrap(), Arc::clone(&printed));
        // The thread ends with the terminal, when the last process of the session has ended.
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                seen.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Self { keyboard, printed, program: program.unwrap() }
    }

    /// Sends keys to the program.
    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Forgets what was printed so far.
    #[allow(dead_code, reason = "some programs only add lines")]
    pub(crate) fn forget(&self) {
        self.printed.lock().unwrap().clear();
    }

    /// What was printed so far.
    pub(crate) fn text(&self) -> String {
        self.printed.lock().unwrap().clone()
    }

    /// Waits until this text is printed.
    pub(crate) fn shows(&self, text: &str) {
        let began = Instant::now();
        while !self.text().contains(text) {
            assert!(began.elapsed() < PATIENCE, "no {text:?} on the screen: {}", self.text());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nothing of a failed test keeps running: the end of a session hangs up its terminal.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}
