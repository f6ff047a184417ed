//! Prints answers to standard output, and errors, notes and progress to standard error.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, Stat, fcntl_getfl, fstat, stat};
use rustix::io::Errno;
use serde::Serialize;

use super::error::{Failure, YES};
use crate::limits::{NOTICES_MS_MAX, NOTICES_WAITING_MAX};
use crate::model::{DeadlockLink, HolderView};
use crate::mutex::Mutex;
use crate::shapes::{CycleLink, LeaderNode, Who};

/// The thread that prints notices, from the first notice on.
static NOTICES: Mutex<Option<Notices>> = Mutex::new(None);

/// Where the thread that prints notices gets them, and how it shows that it has ended.
struct Notices {
    lines: SyncSender<String>,
    ended: Receiver<()>,
}

impl Notices {
    fn start(output: Output) -> Self {
        let (lines, printed) = sync_channel::<String>(NOTICES_WAITING_MAX);
        let (ending, ended) = sync_channel(0);
        let print = move || {
            printed.iter().for_each(|line| output.complain(&line));
            drop(ending);
        };
        // Without the thread, the notices are lost; the command matters more.
        std::thread::Builder::new().spawn(print).ok();
        Self { lines, ended }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    /// Whether to print one JSON object a line instead of text.
    pub(crate) json: bool,
    /// Whether notes and progress are shown: the output is text, and standard error a terminal.
    has_notes: bool,
    bold: bool,
}

#[derive(Serialize)]
struct ErrorLine<'a> {
    error: &'a str,
    exit: u8,
    detail: &'a str,
    advice: &'a str,
    leader: Option<LeaderNode>,
    /// The waiters of a deadlock: each waits for the next, and the last for the first.
    cycle: Option<Vec<CycleLink>>,
    /// Time to wait before a retry.
    pause_ms: Option<u64>,
    /// The position to continue from.
    resume: Option<String>,
    holder: Option<HolderName>,
    /// The option or value that was refused, and what it may be.
    field: Option<&'a str>,
    bound: Option<&'a str>,
}

/// One of the holders of a lock that was not acquired.
#[derive(Serialize)]
struct HolderName {
    session: Option<String>,
    token: String,
    #[serde(flatten)]
    who: Who,
}

impl HolderName {
    fn new(holder: &HolderView) -> Self {
        let session = holder.session.map(|session| session.to_string());
        Self { session, token: holder.token.to_string(), who: Who::new(&holder.metadata) }
    }
}

impl Output {
    /// Creates an output with the colours that the streams and `NO_COLOR` allow.
    #[must_use]
    pub(crate) fn new(json: bool) -> Self {
        let colour = may_colour(std::env::var_os("NO_COLOR"));
        Self { json, has_notes: !json && io::stderr().is_terminal(), bold: colour && io::stdout().is_terminal() }
    }

    /// Prints one line of an answer. Control characters in names, reasons and values are escaped.
    pub(crate) fn line(&self, text: impl AsRef<str>) -> Result<(), Failure> {
        self.as_it_is(&plain(text.as_ref()))
    }

    /// Prints a text without escapes. It must not contain text of other clients, and may have several lines.
    pub(crate) fn as_it_is(&self, text: &str) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        writeln!(out, "{text}").and_then(|()| out.flush()).map_err(Failure::unwritten)
    }

    /// Returns the line that [`Output::answer`] prints. A caller on another thread prints it itself.
    pub(crate) fn one_line(&self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<String, Failure> {
        if self.json {
            Ok(serde_json::to_string(value).map_err(io::Error::from)?)
        } else {
            Ok(plain(&text()).into_owned())
        }
    }

    /// Prints an answer as a JSON object.
    pub(crate) fn object(&self, value: &impl Serialize) -> Result<(), Failure> {
        self.as_it_is(&serde_json::to_string(value).map_err(io::Error::from)?)
    }

    /// Prints the object with `--json`, and nothing without it. Returns the exit code for success.
    pub(crate) fn object_only(&self, value: &impl Serialize) -> Result<u8, Failure> {
        if self.json { self.object(value).map(|()| YES) } else { Ok(YES) }
    }

    /// Prints the object with `--json`, or else the text, which is one line. Returns the exit code for success.
    pub(crate) fn answer(&self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<u8, Failure> {
        self.as_it_is(&self.one_line(value, text)?).map(|()| YES)
    }

    /// Prints the object with `--json`, or else the text without escapes. Returns the exit code for success.
    pub(crate) fn document(&self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<u8, Failure> {
        if self.json { self.object(value) } else { self.as_it_is(&text()) }.map(|()| YES)
    }

    /// Prints a list: an object for each element with `--json`, or else a table. Returns the exit code for success.
    pub(crate) fn list<T: Serialize>(
        &self,
        mut objects: impl Iterator<Item = T>,
        heading: &[&str],
        rows: impl Iterator<Item = Vec<String>>,
    ) -> Result<u8, Failure> {
        if self.json {
            objects.try_for_each(|object| self.object(&object))?;
        } else {
            self.table(heading, &rows.collect::<Vec<_>>())?;
        }
        Ok(YES)
    }

    /// Prints aligned columns under a heading.
    pub(crate) fn table(&self, heading: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
        self.rows(heading, rows, &mut Columns::default())
    }

    /// Prints rows of a table, the first ones under its heading. Later rows may make columns wider, never narrower.
    pub(crate) fn rows(&self, heading: &[&str], rows: &[Vec<String>], columns: &mut Columns) -> Result<(), Failure> {
        if columns.widths.is_empty() {
            rows.iter().for_each(|row| columns.widen(&cells(row)));
            let line = columns.aligned(&cells(heading));
            self.as_it_is(&if self.bold { format!("\u{1b}[1m{line}\u{1b}[0m") } else { line })?;
        }
        rows.iter().try_for_each(|row| self.as_it_is(&columns.aligned(&cells(row))))
    }

    /// Prints a note if standard error is a terminal.
    pub(crate) fn remark(&self, text: &str) {
        if self.has_notes {
            self.complain(&plain(text));
        }
    }

    /// Returns a progress line on standard error. It is hidden with `--json` and without a terminal.
    pub(crate) fn progress(&self, template: &str) -> ProgressBar {
        let bar = if self.has_notes { ProgressBar::no_length() } else { ProgressBar::hidden() };
        // A template that cannot be parsed leaves the usual style.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar
    }

    /// Prints an important event on standard error: the object with `--json`, or else the text.
    /// Never waits for the reader of standard error, because the caller has a command to end in time: a thread prints
    /// the notices. If the reader stops, notices are lost.
    pub(crate) fn notice(self, value: &impl Serialize, text: impl FnOnce() -> String) {
        let json = self.json.then(|| serde_json::to_string(value).ok()).flatten();
        self.print_notice(json.unwrap_or_else(|| format!("lockkeeper: {}", plain(&text()))));
    }

    fn print_notice(self, line: String) {
        let mut notices = NOTICES.lock();
        notices.get_or_insert_with(|| Notices::start(self)).lines.try_send(line).ok();
    }

    /// Waits until the notices are printed, but not for a reader that stopped.
    pub(crate) fn finish_notices() {
        let notices = NOTICES.lock().take();
        if let Some(Notices { lines, ended }) = notices {
            drop(lines);
            // The thread sends nothing. The wait ends with the thread, or after this time.
            ended.recv_timeout(Duration::from_millis(NOTICES_MS_MAX)).ok();
        }
    }

    /// Prints a warning on standard error, as an object with `--json`.
    pub(crate) fn warn(&self, text: &str) {
        if self.json {
            self.complain(&serde_json::json!({ "warning": text }).to_string());
        } else {
            self.complain(&plain(text));
        }
    }

    /// Prints an error: as JSON, or as a sentence with the next step.
    pub(crate) fn failure(&self, failure: &Failure) {
        if !failure.silent {
            self.complain(&self.failure_text(failure));
        }
    }

    /// Prints an error like [`Output::failure`], but does not wait for a reader that stopped.
    pub(crate) fn failure_in_time(self, failure: &Failure) {
        if !failure.silent {
            self.print_notice(self.failure_text(failure));
            Self::finish_notices();
        }
    }

    fn failure_text(&self, failure: &Failure) -> String {
        if !self.json {
            let mut lines = sentences(failure);
            let next = failure.next_step().filter(|_| !failure.names_next_step);
            lines.extend(next.map(|next| format!("  {}", plain(&next))));
            return format!("lockkeeper: {}", lines.join("\n"));
        }
        let more = &failure.more;
        let line = ErrorLine {
            error: failure.code.row().text,
            exit: failure.exit(),
            detail: &failure.detail,
            advice: failure.code.row().advice.word(),
            leader: more.leader.as_ref().map(LeaderNode::new),
            cycle: (!more.cycle.is_empty()).then(|| more.cycle.iter().map(CycleLink::new).collect()),
            pause_ms: more.pause_ms,
            resume: more.resume.map(|resume| resume.to_string()),
            holder: more.holder.as_deref().map(HolderName::new),
            field: more.invalid.as_ref().map(|invalid| &*invalid.field),
            bound: more.invalid.as_ref().map(|invalid| &*invalid.bound).filter(|bound| !bound.is_empty()),
        };
        serde_json::to_string(&line).unwrap_or_else(|_| plain(&failure.detail).into_owned())
    }

    fn complain(&self, text: &str) {
        // If standard error is closed, only the exit code remains.
        let _ = writeln!(io::stderr(), "{text}");
    }
}

/// The lines of an error. A deadlock has one line for each waiter.
fn sentences(failure: &Failure) -> Vec<String> {
    let cycle = &failure.more.cycle;
    let Some(first) = cycle.first() else { return vec![plain(&failure.detail).into_owned()] };
    let first = format!("waiting for {} would never end:", plain(first.lock.name.as_str()));
    let links = DeadlockLink::sentences(cycle).into_iter().map(|link| format!("    {}", plain(&link)));
    std::iter::once(first).chain(links).collect()
}

/// Whether this value of `NO_COLOR` allows colours.
pub(super) fn may_colour(no_color: Option<OsString>) -> bool {
    no_color.is_none_or(|value| value.is_empty())
}

/// Returns the text as one line, with escapes for characters that have an effect on a terminal: control characters,
/// line ends, and marks that change the direction of writing.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    let acts = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if acts(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

fn cells(row: &[impl AsRef<str>]) -> Vec<Cow<'_, str>> {
    row.iter().map(|cell| plain(cell.as_ref())).collect()
}

/// The width of each column of a table so far.
#[derive(Debug, Default)]
pub(crate) struct Columns {
    widths: Vec<usize>,
}

impl Columns {
    fn widen(&mut self, row: &[Cow<'_, str>]) {
        self.widths.resize(self.widths.len().max(row.len()), 0);
        for (width, cell) in self.widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }

    /// Returns a line with every column as wide as its widest cell, and no blanks at its end.
    fn aligned(&mut self, row: &[Cow<'_, str>]) -> String {
        self.widen(row);
        let cells = row.iter().zip(&self.widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    }
}

/// Whether standard output was closed when the process started. Rust then opens `/dev/null` in its place, for reading
/// and writing, while a shell opens it for writing only. A caller that opens it as Rust does counts, too.
pub(crate) fn is_closed() -> bool {
    let out = io::stdout();
    let read_and_write = fcntl_getfl(&out).is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDWR);
    let device = |stat: rustix::io::Result<Stat>| stat.ok().map(|stat| stat.st_rdev).filter(|device| *device != 0);
    read_and_write && device(fstat(&out)).is_some_and(|out| Some(out) == device(stat("/dev/null")))
}

/// Waits until the reader of standard output has closed it (`watch | head`). Never returns if standard output is a
/// file.
pub(crate) async fn reader_gone() {
    let gone = tokio::task::spawn_blocking(|| {
        let out = io::stdout();
        // Errors and the end of the reader are reported even if no event is requested.
        let mut looked = [PollFd::new(&out, PollFlags::empty())];
        loop {
            match poll(&mut looked, None) {
                Ok(_) if looked[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) => return true,
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    });
    if !gone.await.is_ok_and(|gone| gone) {
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `NO_COLOR` with any text turns colours off. Unset or empty, it allows them.
    #[test]
    fn no_color_turns_colours_off() {
        for (value, allowed) in [(None, true), (Some(""), true), (Some("1"), false), (Some("0"), false)] {
            assert_eq!(may_colour(value.map(OsString::from)), allowed, "{value:?}");
        }
    }

    /// Columns are aligned for any content, and no line ends in blanks.
    #[test]
    fn tables_are_aligned() {
        let mut columns = Columns::default();
        let rows = [["nightly", "zoë"], ["a", ""]].map(|row| cells(&row).into_iter().map(Cow::into_owned).collect());
        let rows: Vec<Vec<String>> = rows.to_vec();
        rows.iter().for_each(|row| columns.widen(&cells(row)));
        let lines = [columns.aligned(&cells(&["NAME", "BY"])), columns.aligned(&cells(&rows[0]))];
        assert_eq!(lines, ["NAME     BY", "nightly  zoë"]);
        assert_eq!(columns.aligned(&cells(&rows[1])), "a");
        assert_eq!(columns.aligned(&cells(&["a-longer-name", "x"])), "a-longer-name  x", "wider for later rows");
        assert_eq!(columns.aligned(&cells(&rows[0])), "nightly        zoë");
    }

    /// Names, reasons and values cannot add escape sequences, lines or reversed text. Text in any language stays
    /// unchanged.
    #[test]
    fn what_would_act_on_a_terminal_is_escaped() {
        for (text, shown) in [
            ("zoë 锁 a\\b", "zoë 锁 a\\b"),
            ("a\u{1b}[2Jb", "a\\u{1b}[2Jb"),
            ("one\ntwo\tthree\r", "one\\ntwo\\tthree\\r"),
            ("c1 \u{9b}2J del \u{7f}", "c1 \\u{9b}2J del \\u{7f}"),
            ("\u{202e}gnirts\u{2066}\u{200f}\u{61c}\u{2028}", "\\u{202e}gnirts\\u{2066}\\u{200f}\\u{61c}\\u{2028}"),
        ] {
            assert_eq!(plain(text), shown);
        }
        assert_eq!(cells(&["a\nb"]), ["a\\nb"]);
        let failure = Failure::usage("<NAME>", "bad \u{1b}[31mname\n");
        assert_eq!(sentences(&failure), ["bad \\u{1b}[31mname\\n"]);
    }
}
