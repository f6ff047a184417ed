//! The acts that an audit log records, and its files: the current one, to which lines are added, and the full ones
//! before it.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::chain::{CONTINUE, Last, hash, last_of};
use crate::limits::{AUDIT_FILE_BYTES_MAX, AUDIT_FILES_KEPT};

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
    /// The act was executed. If a caller asked for it, the facts have its result: `ok`.
    Done,
    /// The act was refused, or its result is an error.
    Refused,
}

impl AuditRecord {
    pub(crate) fn new(act: &'static str, phase: Phase, principal: impl Into<String>) -> Self {
        Self { act, phase, principal: principal.into(), from: None, facts: BTreeMap::new() }
    }
}

/// A line of the file.
#[derive(Serialize)]
struct Line<'a> {
    /// Number of the line in the log, from 1.
    seq: String,
    /// Time of the node's wall clock.
    at: &'a str,
    node: u64,
    #[serde(flatten)]
    record: &'a AuditRecord,
    /// Hash of the previous line without its line feed. In the first line, the hash of an empty text.
    prev: &'a str,
}

/// The current file, and the end of the chain.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    node: u64,
    file: File,
    /// Size of the file.
    pub(super) bytes: u64,
    /// Number of the last line: the number of lines in all files, with those that were removed.
    pub(super) lines: u64,
    /// Hash of the last line.
    pub(super) hash: String,
}

impl LogFile {
    /// Opens the file to add lines at its end, or creates it for this user alone. If the file continues a full one and
    /// has no first line yet, `at` is the time in that line.
    pub(super) fn open(path: &Path, node: u64, at: &str) -> io::Result<Self> {
        let file = append_to(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "it is no regular file"));
        }
        let Last { lines, hash, bytes, is_log } = last_of(&file)?;
        if bytes < metadata.len() {
            // The last line is incomplete: the node ended while it wrote the line. Each act that it executed has a
            // whole line before that one. A file that is no audit log, which the configuration may name by mistake,
            // loses nothing.
            if !is_log {
                return Err(io::Error::new(ErrorKind::InvalidInput, "it is no audit log"));
            }
            file.set_len(bytes)?;
            let removed = metadata.len() - bytes;
            tracing::warn!(node, removed, "the incomplete last line of the audit log was removed");
        }
        let mut log = Self { path: path.to_owned(), node, file, bytes, lines, hash };
        if lines == 0 {
            // The node may have ended after the last file was full, and before this one had its whole first line.
            match File::open(log.older(1)) {
                Ok(before) => {
                    let Last { lines, hash, .. } = last_of(before)?;
                    (log.lines, log.hash) = (lines, hash);
                    log.begin(at)?;
                }
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                Err(_) => {}
            }
        }
        Ok(log)
    }

    /// Adds a line, in a new file if the current one is full.
    pub(super) fn append(&mut self, record: &AuditRecord, at: &str) -> io::Result<()> {
        if AUDIT_FILE_BYTES_MAX <= self.bytes {
            self.rotate()?;
        }
        self.begin(at)?;
        self.append_here(record, at)
    }

    fn append_here(&mut self, record: &AuditRecord, at: &str) -> io::Result<()> {
        let line = Line { seq: (self.lines + 1).to_string(), at, node: self.node, record, prev: &self.hash };
        let mut text = serde_json::to_string(&line)?;
        let hash = hash(text.as_bytes());
        text.push('\n');
        if let Err(error) = self.file.write_all(text.as_bytes()) {
            // The disk may be full, and the file may have a part of the line, which the next line must not continue.
            self.file.set_len(self.bytes)?;
            return Err(error);
        }
        self.bytes += text.len() as u64;
        (self.lines, self.hash) = (self.lines + 1, hash);
        Ok(())
    }

    /// Creates a new file, and gives each full file the next number, which replaces the oldest one if all numbers are
    /// in use. Nothing changes if the new file cannot be created: each try would otherwise remove the oldest file.
    fn rotate(&mut self) -> io::Result<()> {
        let next = self.with_suffix("next");
        let file = append_to(&next)?;
        for number in (1..AUDIT_FILES_KEPT).rev() {
            rename(&self.older(number), &self.older(number + 1))?;
        }
        rename(&self.path, &self.older(1))?;
        fs::rename(&next, &self.path)?;
        (self.file, self.bytes) = (file, 0);
        Ok(())
    }

    /// Writes the first line of a file that continues another one, unless the file has it.
    fn begin(&mut self, at: &str) -> io::Result<()> {
        if self.bytes != 0 || self.lines == 0 {
            return Ok(());
        }
        self.append_here(&AuditRecord::new(CONTINUE, Phase::Done, "local"), at)
    }

    /// Returns the path of a full file. The newest full file has the number 1.
    fn older(&self, number: usize) -> PathBuf {
        self.with_suffix(&number.to_string())
    }

    /// Returns the path of the file with a further extension after the one that it has.
    fn with_suffix(&self, extension: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{extension}"));
        name.into()
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(path)
}

/// Renames a file if there is one.
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        renamed => renamed,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::super::chain::verify;
    use super::*;

    fn record() -> AuditRecord {
        AuditRecord::new("break", Phase::Asked, "ops")
    }

    /// If no new file can be created, no file changes its name, however often the log is written. The log
    /// continues as soon as one can.
    #[test]
    fn a_file_that_cannot_be_replaced_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.jsonl");
        let mut log = LogFile::open(&path, 1, "at").expect("a file");
        log.append(&record(), "at").expect("written");
        log.bytes = AUDIT_FILE_BYTES_MAX;
        log.append(&record(), "at").expect("written");
        log.bytes = AUDIT_FILE_BYTES_MAX;
        let oldest = fs::read(log.older(1)).expect("read");
        fs::create_dir(log.with_suffix("next")).expect("a directory in place of the file");
        for _ in 0..2 * AUDIT_FILES_KEPT {
            log.append(&record(), "at").expect_err("no new file");
        }
        assert_eq!(fs::read(log.older(1)).expect("read"), oldest);
        assert!(!log.older(2).exists() && path.exists());
        fs::remove_dir(log.with_suffix("next")).expect("removed");
        log.append(&record(), "at").expect("written");
        assert!(log.older(2).exists() && !log.with_suffix("next").exists());
    }

    /// A new file whose first line could not be written, because the disk was full, gets it before the next line.
    #[test]
    fn each_file_begins_with_its_first_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.jsonl");
        let mut log = LogFile::open(&path, 1, "at").expect("a file");
        log.append(&record(), "at").expect("written");
        log.rotate().expect("a new file");
        assert_eq!(fs::metadata(&path).expect("a file").len(), 0);
        log.append(&record(), "at").expect("written");
        let proof = verify(File::open(&path).expect("a file")).expect("read").expect("it continues another file");
        assert_eq!((proof.first, proof.lines), (2, 3));
    }

    /// A node that ends while it writes the first line of a new file leaves a part of it. The next start writes the
    /// whole line, and each file alone and both together prove to be complete.
    #[test]
    fn a_first_line_that_was_cut_is_written_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.jsonl");
        let mut log = LogFile::open(&path, 1, "at").expect("a file");
        log.append(&record(), "at").expect("written");
        log.rotate().expect("a new file");
        log.begin("at").expect("its first line");
        let whole = fs::read(&path).expect("read");
        let cuts = (0..=whole.len()).map(|cut| whole[..cut].to_vec());
        // After a power failure, a file may have its length and no contents.
        for start in cuts.chain([vec![0; whole.len()]]) {
            let cut = start.len();
            fs::write(&path, start).expect("cut");
            let mut again = LogFile::open(&path, 1, "at").expect("a file");
            again.append(&record(), "at").expect("written");
            assert_eq!(again.bytes, fs::metadata(&path).expect("a file").len(), "after {cut} bytes");
            let both = File::open(again.older(1)).expect("a file").chain(File::open(&path).expect("a file"));
            for (proof, first) in [(verify(both), 1), (verify(File::open(&path).expect("a file")), 2)] {
                let proof = proof.expect("read").unwrap_or_else(|flaw| panic!("after {cut} bytes: {flaw}"));
                assert_eq!((proof.first, proof.lines, proof.cut), (first, 3, false), "after {cut} bytes");
            }
        }
    }
}
