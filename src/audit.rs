//! The audit log: what operators did, and which callers were refused. One JSON line for each act, in a file of the
//! node. Each line has the hash of the line before it, so that a changed or missing line shows.
//!
//! A full file gets the extension `.1`, and those before it the next numbers; a few are kept. The chain continues in
//! the new file, whose first line is the act `continue`.
//!
//! Knows: clock, limits. Never: the rights of callers, sockets.

mod chain;
mod file;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use self::chain::{AuditFlaw, AuditProof, first_of, verify};
use self::file::LogFile;
pub use self::file::{AuditRecord, Phase};
use crate::clock::{Clock, Instant, date_of};
use crate::limits::{AUDIT_REFUSALS_A_SECOND, AUDIT_SECOND_MS};
use crate::mutex::Mutex;

/// The act of a request that a web page sent.
pub(crate) const CALL_FROM_PAGE: &str = "call-from-page";
/// The fact with the number of refusals that were left out.
const LEFT_OUT: &str = "refusals_left_out";

/// The audit log of one node.
#[derive(Debug)]
pub struct AuditLog {
    path: PathBuf,
    clock: Arc<dyn Clock>,
    file: Mutex<LogFile>,
    refusals: Mutex<Refusals>,
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
        let file = Mutex::new(LogFile::open(path, node, &at(&*clock))?);
        Ok(Self { path: path.to_owned(), clock, file, refusals: Mutex::default() })
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of lines and the hash of the last one. A reader who keeps both elsewhere finds out whether
    /// the end of the log was removed.
    #[must_use]
    pub fn end(&self) -> (u64, String) {
        let file = self.file.lock();
        (file.lines, file.hash.clone())
    }

    /// Adds a line. It survives the end of the process.
    ///
    /// # Errors
    /// The line cannot be written. Then the act must not be executed.
    pub fn write(&self, record: &AuditRecord) -> io::Result<()> {
        self.file.lock().append(record, &at(&*self.clock))
    }

    /// Adds a line about a refusal: at most one a second for each source, and few in all. Web pages are a separate
    /// source. The next line contains the number of those that were left out.
    ///
    /// # Errors
    /// The line cannot be written. Then a later one counts it.
    pub fn write_refusal(&self, mut record: AuditRecord) -> io::Result<()> {
        let from = record.from.as_deref().unwrap_or_default();
        // Each connection of a host has another port.
        let host = from.rsplit_once(':').map_or(from, |(host, _)| host);
        // Pages must not hide what other programs of the same host do.
        let of_page = if record.act == CALL_FROM_PAGE { CALL_FROM_PAGE } else { "" };
        let source = format!("{of_page} {} {host}", record.principal);
        let Some(unwritten) = self.admit(source) else { return Ok(()) };
        if unwritten != 0 {
            record.facts.insert(LEFT_OUT, unwritten.to_string());
        }
        self.write(&record).inspect_err(|_| self.refusals.lock().unwritten += unwritten + 1)
    }

    /// Adds a line with the number of refusals that were left out since the last line, if there were any.
    ///
    /// # Errors
    /// The line cannot be written. Then a later one counts them.
    pub fn write_left_out(&self) -> io::Result<()> {
        let left_out = std::mem::take(&mut self.refusals.lock().unwritten);
        if left_out == 0 {
            return Ok(());
        }
        let mut record = AuditRecord::new("refusals", Phase::Refused, "local");
        record.facts.insert(LEFT_OUT, left_out.to_string());
        self.write(&record).inspect_err(|_| self.refusals.lock().unwritten += left_out)
    }

    /// Returns the number of refusals that were left out before this one; `None` if this one is left out, too.
    fn admit(&self, source: String) -> Option<u64> {
        let mut refusals = self.refusals.lock();
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

/// Returns the wall clock's time as a line has it.
fn at(clock: &dyn Clock) -> String {
    humantime::format_rfc3339_millis(date_of(clock.wall())).to_string()
}
