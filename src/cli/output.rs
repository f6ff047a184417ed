//! Where answers, errors and progress go: answers to standard output, everything else to standard error.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use super::failure::Failure;
use crate::model::{CircleLink, WaitsBecause};

/// How this run talks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    /// One object a line instead of texts.
    pub(crate) json: bool,
    /// Somebody watches standard error.
    pub(crate) watched: bool,
    bold: bool,
}

#[derive(Serialize)]
struct ErrorLine<'a> {
    error: &'a str,
    exit: u8,
    detail: &'a str,
    advice: &'a str,
    leader: Option<Leader<'a>>,
    /// Each waits for the next, and the last for the first: of a deadlock.
    circle: Option<Vec<Link<'a>>>,
}

#[derive(Serialize)]
struct Link<'a> {
    session: String,
    owner: &'a str,
    who: &'a str,
    why: Option<&'a str>,
    lock: &'a str,
    /// How the next one is in its way.
    because: &'static str,
}

impl<'a> Link<'a> {
    fn new(link: &'a CircleLink) -> Self {
        Self {
            session: link.session.to_string(),
            owner: link.owner.as_str(),
            who: &link.who,
            why: Some(&*link.what_for).filter(|text| !text.is_empty()),
            lock: link.lock.name.as_str(),
            because: because(link.why),
        }
    }
}

#[derive(Serialize)]
struct Leader<'a> {
    node: u64,
    client: &'a str,
}

/// How one is in another's way, in one word.
pub(crate) fn because(why: WaitsBecause) -> &'static str {
    match why {
        WaitsBecause::Holds => "held",
        WaitsBecause::StandsAhead => "ahead",
        WaitsBecause::Nested => "nested",
        WaitsBecause::Closed => "closed",
    }
}

impl Output {
    /// As the streams and `NO_COLOR` allow.
    #[must_use]
    pub(crate) fn new(json: bool) -> Self {
        let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { json, watched: io::stderr().is_terminal(), bold: colour && io::stdout().is_terminal() }
    }

    /// A line of answer for people or scripts.
    pub(crate) fn line(&self, text: impl AsRef<str>) -> Result<(), Failure> {
        let mut out = io::stdout().lock();
        writeln!(out, "{}", text.as_ref())?;
        Ok(out.flush()?)
    }

    /// An object of answer.
    pub(crate) fn object(&self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value).map_err(io::Error::from)?;
        self.line(text)
    }

    /// The object where JSON was asked for, else the text.
    pub(crate) fn answer(&self, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), Failure> {
        if self.json { self.object(value) } else { self.line(text()) }
    }

    /// Aligned columns under a heading.
    pub(crate) fn table(&self, heading: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
        for (number, line) in aligned(heading, rows).into_iter().enumerate() {
            if number == 0 && self.bold {
                self.line(format!("\u{1b}[1m{line}\u{1b}[0m"))?;
            } else {
                self.line(line)?;
            }
        }
        Ok(())
    }

    /// A remark for whoever watches; nobody sees it elsewhere.
    pub(crate) fn remark(&self, text: &str) {
        if self.watched && !self.json {
            self.complain(text);
        }
    }

    /// Something that must be seen, on standard error: the object where JSON was asked for, else the text.
    pub(crate) fn notice(&self, value: &impl Serialize, text: impl FnOnce() -> String) {
        let json = self.json.then(|| serde_json::to_string(value).ok()).flatten();
        self.complain(&json.unwrap_or_else(|| format!("lockkeeper: {}", text())));
    }

    /// Something that must be seen, wherever it goes.
    pub(crate) fn warn(&self, text: &str) {
        self.complain(text);
    }

    /// An error: as JSON, or a sentence with the next step.
    pub(crate) fn failure(&self, failure: &Failure) {
        if failure.silent {
            return;
        }
        if !self.json {
            let told = told(failure);
            let next = if failure.says_next { String::new() } else { format!("\n  {}", failure.next_step()) };
            self.complain(&format!("lockkeeper: {told}{next}"));
            return;
        }
        let leader = failure.leader.as_ref().map(|leader| Leader { node: leader.node, client: &leader.client });
        let line = ErrorLine {
            error: failure.word.row().text,
            exit: failure.exit(),
            detail: &failure.detail,
            advice: failure.advice(),
            leader,
            circle: (!failure.circle.is_empty()).then(|| failure.circle.iter().map(Link::new).collect()),
        };
        self.complain(&serde_json::to_string(&line).unwrap_or_else(|_| failure.detail.clone()));
    }

    fn complain(&self, text: &str) {
        // Where standard error is closed, the exit code has to say it all.
        let _ = writeln!(io::stderr(), "{text}");
    }
}

/// What happened; of a deadlock who waits for whom, a line each.
fn told(failure: &Failure) -> String {
    let Some(first) = failure.circle.first() else { return failure.detail.clone() };
    let sentences = CircleLink::sentences(&failure.circle).join("\n    ");
    format!("waiting for {} would never end:\n    {sentences}", first.lock.name)
}

/// Lines with every column as wide as its widest cell, and no blanks at their ends.
fn aligned(heading: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let heading: Vec<String> = heading.iter().map(|cell| (*cell).to_owned()).collect();
    let all = || std::iter::once(&heading).chain(rows);
    let widths: Vec<usize> = (0..heading.len())
        .map(|column| all().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0))
        .collect();
    all()
        .map(|row| {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Columns stand under each other, whatever they hold, and no line ends in blanks.
    #[test]
    fn tables_are_aligned() {
        let lines = aligned(&["NAME", "BY"], &[vec!["nightly".into(), "zoë".into()], vec!["a".into(), String::new()]]);
        assert_eq!(lines, ["NAME     BY", "nightly  zoë", "a"]);
    }
}
