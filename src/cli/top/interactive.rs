//! The run on a terminal: what the keys do.

use std::io;
use std::pin::pin;
use std::time::Duration;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep_until};

use super::cells::{cut, typed};
use super::frame::{Chosen, Reading, frame, keys};
use super::reader::Reader;
use super::screen::{Key, Screen};
use super::view::View;
use crate::cli::cmd::explain;
use crate::cli::connect::Client;
use crate::cli::error::{Failure, YES};
use crate::cli::lock::signals::{Signals, exit_code};
use crate::cli::output::plain;
use crate::client::ReadAt;
use crate::model::FencingToken;

/// What the last line is used for.
enum Mode {
    /// Keys are commands.
    Frames,
    /// A text is typed.
    Typing(Field, String),
    /// This text is shown until a key that does not move it.
    Reading(Reading),
}

/// What a typed text is.
enum Field {
    Prefix,
    /// The reason with which the holder of this grant is asked for the lock. Other rows may be chosen meanwhile.
    Ask {
        lock: String,
        token: FencingToken,
    },
}

/// A run of `top` on a terminal.
pub(super) struct Interactive<'a> {
    client: &'a Client,
    reader: Reader<'a>,
    screen: Screen,
    chosen: Chosen,
    view: View,
    mode: Mode,
    /// The result of the last act, or what went wrong.
    note: Option<String>,
}

impl<'a> Interactive<'a> {
    pub(super) fn new(client: &'a Client, reader: Reader<'a>, screen: Screen, chosen: Chosen) -> Self {
        Self { client, reader, screen, chosen, view: View::default(), mode: Mode::Frames, note: None }
    }

    /// Shows a frame each `delay`, and does what the keys ask for, until the user or a signal ends it. Returns the exit
    /// code. Ctrl-Z stops it.
    ///
    /// # Errors
    /// The terminal is gone. An outage is shown, and the next frames try again.
    pub(super) async fn run(mut self, delay: Duration) -> Result<u8, Failure> {
        let mut signals = Signals::listen()?;
        let mut stops = signal(SignalKind::from_raw(Signal::TSTP.as_raw()))?;
        let terminal = self.screen.terminal();
        let mut frames = pin!(self.frames(delay));
        loop {
            tokio::select! {
                biased;
                signal = signals.next_ending() => return Ok(exit_code(signal)),
                Some(()) = stops.recv() => terminal.stop().await?,
                shown = &mut frames => return shown.map(|()| YES),
            }
        }
    }

    async fn frames(&mut self, delay: Duration) -> Result<(), Failure> {
        let mut next = Instant::now();
        loop {
            tokio::select! {
                biased;
                key = self.screen.key() => match key {
                    None | Some(Key::Char('q')) if !matches!(self.mode, Mode::Typing(..)) => return Ok(()),
                    None => return Ok(()),
                    Some(key) => self.pressed(key).await,
                },
                () = sleep_until(next) => {
                    let height = self.screen.size().lines;
                    match self.reader.read(&self.chosen.prefix, height).await {
                        Ok(view) => self.view = view,
                        Err(failure) => self.note = Some(failure.detail),
                    }
                    next = Instant::now() + delay;
                }
            }
            self.draw()?;
        }
    }

    fn draw(&mut self) -> io::Result<()> {
        let size = self.screen.size();
        if let Mode::Reading(text) = &mut self.mode {
            return self.screen.show(&text.part(size));
        }
        self.chosen.order.sort(&mut self.view.locks);
        if !self.view.locks.iter().any(|row| Some(&row.lock) == self.chosen.lock.as_ref()) {
            self.chosen.lock = self.view.locks.first().map(|row| row.lock.clone());
        }
        let mut lines = frame(&self.view, &self.chosen, size);
        lines.truncate(size.lines.saturating_sub(1));
        lines.push(self.last_line(size.columns));
        self.screen.show(&lines)
    }

    fn last_line(&self, columns: usize) -> String {
        match (&self.mode, &self.note) {
            (Mode::Typing(Field::Prefix, text), _) => typed("prefix: ", text, columns),
            (Mode::Typing(Field::Ask { lock, .. }, text), _) => {
                typed(&format!("ask the holder of {}, with this reason: ", plain(lock)), text, columns)
            }
            (_, Some(note)) => cut(&plain(note), columns),
            (_, None) => cut(&keys(&self.chosen), columns),
        }
    }

    async fn pressed(&mut self, key: Key) {
        self.note = None;
        match (std::mem::replace(&mut self.mode, Mode::Frames), key) {
            (Mode::Typing(field, text), key) => self.typed(field, text, key).await,
            (Mode::Reading(mut text), key) => {
                if key.step().is_some_and(|by| text.step(by)) {
                    self.mode = Mode::Reading(text);
                }
            }
            (Mode::Frames, Key::Char('f')) => self.mode = Mode::Typing(Field::Prefix, self.chosen.prefix.clone()),
            (Mode::Frames, Key::Char('s')) => self.chosen.order = self.chosen.order.next(),
            (Mode::Frames, Key::Char('a')) => match self.asked() {
                Some(field) => self.mode = Mode::Typing(field, String::new()),
                None => self.note = Some("no client holds it".to_owned()),
            },
            (Mode::Frames, Key::Enter) => self.explain().await,
            (Mode::Frames, key) => {
                if let Some(by) = key.step() {
                    self.step(by);
                }
            }
        }
    }

    async fn typed(&mut self, field: Field, mut text: String, key: Key) {
        match (key, &field) {
            (Key::Char(char), _) => text.push(char),
            (Key::Backspace, _) => drop(text.pop()),
            (Key::Enter, Field::Prefix) => {
                self.chosen.prefix = text;
                return;
            }
            (Key::Enter, Field::Ask { lock, token }) => return self.ask(lock, *token, &text).await,
            (Key::Escape, _) => return,
            (Key::Up | Key::Down, _) => {}
        }
        self.mode = Mode::Typing(field, text);
    }

    /// Chooses another lock.
    fn step(&mut self, by: isize) {
        let at = self.view.locks.iter().position(|row| Some(&row.lock) == self.chosen.lock.as_ref());
        let next = at.unwrap_or_default().saturating_add_signed(by).min(self.view.locks.len().saturating_sub(1));
        self.chosen.lock = self.view.locks.get(next).map(|row| row.lock.clone());
    }

    /// Shows what the waiters of the chosen lock wait for.
    async fn explain(&mut self) {
        let Some(lock) = self.chosen.lock.clone() else { return };
        let explained = async {
            let ReadAt { now, value, .. } = self.client.explain(self.client.about(&lock)?).await?;
            explain::lines(self.client, &lock, &value, now).await
        };
        match explained.await {
            Ok(lines) => {
                let lines = lines.iter().map(|line| plain(line).into_owned());
                self.mode = Mode::Reading(Reading::new(lines.collect()));
            }
            Err(error) => self.note = Some(error.to_string()),
        }
    }

    /// Names the oldest holder of the chosen lock, if any.
    fn asked(&self) -> Option<Field> {
        let row = self.view.locks.iter().find(|row| Some(&row.lock) == self.chosen.lock.as_ref())?;
        Some(Field::Ask { lock: row.lock.clone(), token: row.token.as_ref()?.parse().ok()? })
    }

    /// Asks the holder of a grant to release it.
    async fn ask(&mut self, lock: &str, token: FencingToken, why: &str) {
        self.note = Some(match self.client.ask(lock, token, why).await {
            Ok(()) => format!("asked the holder of {lock} (token {token})"),
            Err(error) => error.to_string(),
        });
    }
}
