//! The terminal: keys are read one by one, and a frame replaces the previous one.

use std::io::{self, IsTerminal, Read, Write};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::frame::Size;
use crate::limits;

/// Shows the alternate screen without a cursor.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l";
/// Shows the usual screen with its cursor.
const LEAVE: &str = "\u{1b}[?25h\u{1b}[?1049l";
const HOME: &str = "\u{1b}[H";
const CLEAR_LINE: &str = "\u{1b}[K";
const CLEAR_BELOW: &str = "\u{1b}[J";

/// A key that has been pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Up,
    Down,
}

impl Key {
    /// By how many rows or lines the key moves, if it does.
    pub(super) fn step(self) -> Option<isize> {
        match self {
            Self::Up | Self::Char('k') => Some(-1),
            Self::Down | Self::Char('j') => Some(1),
            Self::Char(_) | Self::Enter | Self::Escape | Self::Backspace => None,
        }
    }
}

/// A terminal in which single keys are read. It is left as it was when this is dropped.
pub(super) struct Screen {
    terminal: Terminal,
    keys: mpsc::UnboundedReceiver<Key>,
}

/// How the terminal was, so that it can be left and entered again.
#[derive(Clone)]
pub(super) struct Terminal {
    modes: Termios,
}

impl Terminal {
    fn enter(&self) -> io::Result<()> {
        let mut single = self.modes.clone();
        // Signals stay as they are, so that Ctrl-C ends the program and Ctrl-Z stops it.
        single.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Now, &single)?;
        write(ENTER)
    }

    fn leave(&self) -> io::Result<()> {
        let left = write(LEAVE);
        tcsetattr(io::stdin(), OptionalActions::Now, &self.modes)?;
        left
    }

    /// Leaves the terminal, stops this process, and enters the terminal again once the process is continued.
    pub(super) async fn stop(&self) -> io::Result<()> {
        self.leave()?;
        let mut continued = signal(SignalKind::from_raw(Signal::CONT.as_raw()))?;
        // TSTP is caught, so another stop signal is needed. Unlike STOP, the system ignores it if no shell could
        // continue this process.
        kill_process(getpid(), Signal::TTIN)?;
        tokio::select! {
            _ = continued.recv() => {}
            () = sleep(Duration::from_millis(limits::STOP_SETTLES_MS)) => {}
        }
        self.enter()
    }
}

impl Screen {
    /// Opens the terminal of standard input and output. Returns `None` if one of them is none.
    pub(super) fn open() -> io::Result<Option<Self>> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Ok(None);
        }
        let (sender, keys) = mpsc::unbounded_channel();
        let screen = Self { terminal: Terminal { modes: tcgetattr(io::stdin())? }, keys };
        screen.terminal.enter()?;
        // The read of a terminal cannot be cancelled. The thread ends with the process.
        std::thread::spawn(move || read_keys(&sender));
        Ok(Some(screen))
    }

    pub(super) fn terminal(&self) -> Terminal {
        self.terminal.clone()
    }

    pub(super) fn size(&self) -> Size {
        match tcgetwinsize(io::stdout()) {
            Ok(size) if 0 < size.ws_col && 0 < size.ws_row => {
                Size { columns: size.ws_col.into(), lines: size.ws_row.into() }
            }
            Ok(_) | Err(_) => Size { columns: 80, lines: 24 },
        }
    }

    /// Replaces what is shown. Each line must fit.
    pub(super) fn show(&self, lines: &[String]) -> io::Result<()> {
        let text = lines.join(&format!("{CLEAR_LINE}\r\n"));
        write(&format!("{HOME}{text}{CLEAR_LINE}{CLEAR_BELOW}"))
    }

    /// Waits for the next key. `None` once standard input is closed.
    pub(super) async fn key(&mut self) -> Option<Key> {
        self.keys.recv().await
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing to restore.
        drop(self.terminal.leave());
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn read_keys(keys: &mpsc::UnboundedSender<Key>) {
    let (mut stdin, mut bytes) = (io::stdin().lock(), [0; 64]);
    loop {
        match stdin.read(&mut bytes) {
            Ok(0) | Err(_) => return,
            Ok(read) => {
                if parsed(&bytes[..read]).into_iter().any(|key| keys.send(key).is_err()) {
                    return;
                }
            }
        }
    }
}

/// Returns the keys behind the bytes of one read. A terminal writes the bytes of one key together.
fn parsed(bytes: &[u8]) -> Vec<Key> {
    match bytes {
        b"\x1b" => return vec![Key::Escape],
        b"\x1b[A" | b"\x1bOA" => return vec![Key::Up],
        b"\x1b[B" | b"\x1bOB" => return vec![Key::Down],
        [b'\x1b', ..] => return Vec::new(),
        _ => {}
    }
    let text = String::from_utf8_lossy(bytes);
    let key = |char| match char {
        '\r' | '\n' => Some(Key::Enter),
        '\u{7f}' | '\u{8}' => Some(Key::Backspace),
        char if char.is_control() => None,
        char => Some(Key::Char(char)),
    };
    text.chars().filter_map(key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arrows, line ends and characters of every language are keys. Unknown sequences are none.
    #[test]
    fn keys_are_parsed() {
        assert_eq!(parsed(b"\x1b[A"), [Key::Up]);
        assert_eq!(parsed(b"\x1bOB"), [Key::Down]);
        assert_eq!(parsed(b"\x1b"), [Key::Escape]);
        assert_eq!(parsed(b"\x1b[15~"), []);
        assert_eq!(parsed("qé\r\u{7f}".as_bytes()), [Key::Char('q'), Key::Char('é'), Key::Enter, Key::Backspace]);
        assert_eq!(parsed(b"\x03"), []);
    }
}
