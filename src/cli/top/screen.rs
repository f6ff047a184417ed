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

/// Returns the keys behind the bytes of one read. A terminal writes the bytes of one key together; a key that repeats,
/// or text that is pasted, has several keys in one read.
fn parsed(bytes: &[u8]) -> Vec<Key> {
    let text = String::from_utf8_lossy(bytes);
    let (mut keys, mut rest) = (Vec::new(), &*text);
    while let Some(char) = rest.chars().next() {
        rest = &rest[char.len_utf8()..];
        if char == '\u{1b}' {
            let (key, after) = sequence(rest);
            keys.extend(key);
            rest = after;
        } else {
            keys.extend(plain_key(char));
        }
    }
    keys
}

fn plain_key(char: char) -> Option<Key> {
    match char {
        '\r' | '\n' => Some(Key::Enter),
        '\u{7f}' | '\u{8}' => Some(Key::Backspace),
        char if char.is_control() => None,
        char => Some(Key::Char(char)),
    }
}

/// Returns the key of the sequence that follows an escape character, and the text after it. Other sequences than those
/// of the arrows are no keys.
fn sequence(text: &str) -> (Option<Key>, &str) {
    let Some(body) = text.strip_prefix(['[', 'O']) else {
        // A character right after the escape is that of another key, with Alt.
        let alt = text.chars().next().filter(|char| *char != '\u{1b}');
        return alt.map_or((Some(Key::Escape), text), |char| (None, &text[char.len_utf8()..]));
    };
    let Some(end) = body.find(|char| matches!(char, '@'..='~')) else { return (None, "") };
    let key = match &body[..=end] {
        "A" => Some(Key::Up),
        "B" => Some(Key::Down),
        _ => None,
    };
    (key, &body[end + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arrows, line ends and characters of every language are keys, also several in one read. Unknown sequences are
    /// none.
    #[test]
    fn keys_are_parsed() {
        assert_eq!(parsed(b"\x1b[A"), [Key::Up]);
        assert_eq!(parsed(b"\x1bOB"), [Key::Down]);
        assert_eq!(parsed(b"\x1b"), [Key::Escape]);
        assert_eq!(parsed(b"\x1b[15~"), []);
        assert_eq!(parsed(b"\x1b[B\x1b[Ba"), [Key::Down, Key::Down, Key::Char('a')]);
        assert_eq!(parsed(b"\x1b[1;5Cq\x1bx\x1b\x1b[A\x1b[3"), [Key::Char('q'), Key::Escape, Key::Up]);
        assert_eq!(parsed("qé\r\u{7f}".as_bytes()), [Key::Char('q'), Key::Char('é'), Key::Enter, Key::Backspace]);
        assert_eq!(parsed(b"\x03"), []);
    }
}
