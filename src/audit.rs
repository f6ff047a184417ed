//! The audit log: what operators did, and which callers were refused. One JSON line for each act, in a file of the node.
//! Each line has the hash of the line before it, so that a changed or missing line shows.
//!
//! Knows: clock, limits. Never: the rights of callers, sockets.

mod chain;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use serde::Serialize;

pub use self::chain::{AuditFlaw, AuditProof, verify};
use self::chain::{hash, last_of};
use crate::clock::{Clock, Instant};
use crate::limits::{AUDIT_REFUSALS_A_SECOND, AUDIT_SECOND_MS};

/// One act of a caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditRecord {
    /// What the caller does, such as `break`.
    pub act: &'static str,
    /// How far the act is.
    pub phase: Phase,
    /// Principal of the caller.
    pub principal: String,
    /// Address of the caller; `None` for the application that embeds the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// What the act is about, such as the lock, and its result. Contains no secrets.
    #[serde(flatten)]
    pub facts: BTreeMap<&'static str, String>,
}

/// How far an act is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The caller asked, and the node executes the act only after this line is written.
    Asked,
    /// The act was executed. Its result is among the facts.
    Done,
    /// The act was refused, or its result is an error.
    Refused,
}

/// A line of the file.
#[derive(Serialize)]
struct Line<'a> {
    /// Number of the line in the file, from 1.
    seq: String,
    /// Time of the node's wall clock.
    at: String,
    node: u64,
    #[serde(flatten)]
    record: &'a AuditRecord,
    /// Hash of the line before, without its end; of nothing in the first line.
    prev: &'a str,
}

/// The audit log of one node.
#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
    node: u64,
    clock: Arc<dyn Clock>,
    end: Mutex<End>,
    refusals: Mutex<Refusals>,
}

/// The end of the file.
#[derive(Debug)]
struct End {
    file: File,
    /// Number of lines.
    lines: u64,
    /// Hash of the last line.
    hash: String,
}

/// The refusals of the current second. A flood of them must not fill the disk.
#[derive(Debug, Default)]
struct Refusals {
    since: Option<Instant>,
    sources: BTreeSet<String>,
    /// Number of refusals since the last line that were not written.
    unwritten: u64,
}

impl AuditLog {
    /// Opens the file to add lines at its end, or creates it for this user alone.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn open(path: &Path, node: u64, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let mut file = OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
        }
        let last = last_of(&file)?;
        if !last.ended {
            // The node ended while it wrote this line.
            file.write_all(b"\n")?;
        }
        let end = Mutex::new(End { file, lines: last.lines, hash: last.hash });
        Ok(Self { path: path.to_owned(), node, clock, end, refusals: Mutex::default() })
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of lines and the hash of the last one. A reader who keeps both elsewhere finds out whether
    /// the end of the file was removed.
    #[must_use]
    pub fn end(&self) -> (u64, String) {
        let end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        (end.lines, end.hash.clone())
    }

    /// Adds a line. It survives the end of the process.
    ///
    /// # Errors
    /// The line cannot be written. Then the act must not be executed.
    pub fn write(&self, record: &AuditRecord) -> io::Result<()> {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        let at = UNIX_EPOCH + Duration::from_millis(self.clock.wall().0);
        let line = Line {
            seq: (end.lines + 1).to_string(),
            at: humantime::format_rfc3339_millis(at).to_string(),
            node: self.node,
            record,
            prev: &end.hash,
        };
        let mut text = serde_json::to_string(&line)?;
        let hash = hash(text.as_bytes());
        text.push('\n');
        end.file.write_all(text.as_bytes())?;
        (end.lines, end.hash) = (end.lines + 1, hash);
        Ok(())
    }

    /// Adds a line about a refusal: at most one a second for each source, and few in all. The next line contains the
    /// number of those that were left out.
    ///
    /// # Errors
    /// The line cannot be written.
    pub fn write_refusal(&self, mut record: AuditRecord) -> io::Result<()> {
        let source = format!("{} {}", record.principal, record.from.as_deref().unwrap_or_default());
        let Some(unwritten) = self.admit(source) else { return Ok(()) };
        if unwritten != 0 {
            record.facts.insert("refusals_left_out", unwritten.to_string());
        }
        self.write(&record)
    }

    /// Returns the number of refusals that were left out before this one; `None` if this one is left out, too.
    fn admit(&self, source: String) -> Option<u64> {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        let second = Duration::from_millis(AUDIT_SECOND_MS);
        if refusals.since.is_none_or(|since| second <= now.since(since)) {
            (refusals.since, refusals.sources) = (Some(now), BTreeSet::new());
        }
        if AUDIT_REFUSALS_A_SECOND <= refusals.sources.len() || !refusals.sources.insert(source) {
            refusals.unwritten += 1;
            return None;
        }
        Some(std::mem::take(&mut refusals.unwritten))
    }
}
