//! The chain of hashes over the lines of an audit log.

use std::io::{self, BufRead, BufReader, Read};

use serde::Deserialize;
use sha2::{Digest, Sha256};

/// The act in the first line of a file that continues a full one.
pub(super) const CONTINUE: &str = "continue";

/// How each line begins, and so each file.
const BEGIN: &[u8] = b"{\"seq\":\"";

/// What the chain needs of a line.
#[derive(Deserialize)]
struct Link {
    seq: String,
    node: u64,
    act: String,
    prev: String,
}

/// The last whole line of a file.
pub(super) struct Last {
    /// Number of the line in the log.
    pub(super) lines: u64,
    pub(super) hash: String,
    /// Bytes of the file up to the end of the line.
    pub(super) bytes: u64,
    /// Whether the file begins as an audit log does.
    pub(super) is_log: bool,
}

/// A log whose lines are all there and unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditProof {
    /// Number of the first line. The lines before it are in files that were not checked.
    pub first: u64,
    /// Number of the last line.
    pub lines: u64,
    /// Hash of the last line. If it is the one that the node's log names for this number, the end is complete, too.
    pub hash: String,
    /// Whether a part of another line follows. The next start of the node removes it.
    pub cut: bool,
}

/// The first line that was changed, or after which lines are missing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct AuditFlaw {
    /// Number of the line, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub what: String,
}

/// Returns the SHA-256 of a line in hexadecimal digits.
pub(super) fn hash(line: &[u8]) -> String {
    Sha256::digest(line).iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn last_of(file: impl Read) -> io::Result<Last> {
    let mut last = Last { lines: 0, hash: hash(b""), bytes: 0, is_log: true };
    for_each_line(file, |line, ended| {
        if last.bytes == 0 {
            // After a power failure, a file may have its length and no contents.
            last.is_log = line.starts_with(BEGIN) || BEGIN.starts_with(line) || line.iter().all(|byte| *byte == 0);
        }
        if ended {
            let number = serde_json::from_slice::<Link>(line).ok().and_then(|link| link.seq.parse().ok());
            last.lines = number.unwrap_or(last.lines + 1);
            last.hash = hash(line);
            last.bytes += line.len() as u64 + 1;
        }
    })?;
    Ok(last)
}

/// Returns the number of the first line in a file; 1 if it has none.
///
/// # Errors
/// The file cannot be read.
pub fn first_of(file: impl Read) -> io::Result<u64> {
    let mut line = Vec::new();
    BufReader::new(file).read_until(b'\n', &mut line)?;
    Ok(serde_json::from_slice::<Link>(&line).ok().and_then(|link| link.seq.parse().ok()).unwrap_or(1))
}

/// Checks the chain of one or more files, one after another.
///
/// # Errors
/// The file cannot be read, or [`AuditFlaw`] as the inner error.
pub fn verify(file: impl Read) -> io::Result<Result<AuditProof, AuditFlaw>> {
    let mut proof = AuditProof { first: 1, lines: 0, hash: hash(b""), cut: false };
    let (mut found, mut node) = (None, None);
    for_each_line(file, |line, ended| {
        proof.cut = !ended;
        if ended && found.is_none() {
            found = flaw(line, &mut proof, &mut node);
        }
    })?;
    if found.is_none() && proof.lines == 0 {
        found = Some(AuditFlaw { line: 1, what: "it is missing: each node writes one when it starts".to_owned() });
    }
    Ok(found.map_or(Ok(proof), Err))
}

/// Returns what is wrong with the next line, or with the one before it.
fn flaw(line: &[u8], proof: &mut AuditProof, node: &mut Option<u64>) -> Option<AuditFlaw> {
    let mut number = proof.lines + 1;
    let flaw = |line, what: String| Some(AuditFlaw { line, what });
    match serde_json::from_slice::<Link>(line) {
        Ok(link) if link.node != *node.get_or_insert(link.node) => {
            return flaw(number, format!("it is of node {}: name the files of one node", link.node));
        }
        Ok(link) if proof.lines == 0 && link.act == CONTINUE => {
            number = link.seq.parse().unwrap_or(number);
            proof.first = number;
        }
        Ok(link) if link.seq != number.to_string() => {
            return flaw(number, format!("its number is {}: lines before it are missing, or were added", link.seq));
        }
        Ok(link) if link.prev != proof.hash && proof.lines == 0 => {
            return flaw(number, "lines before it are missing".to_owned());
        }
        Ok(link) if link.prev != proof.hash => {
            return flaw(proof.lines, "it was changed: the next line has another hash of it".to_owned());
        }
        Ok(_) => {}
        Err(_) => return flaw(number, "it is not a line of an audit log".to_owned()),
    }
    (proof.lines, proof.hash) = (number, hash(line));
    None
}

fn for_each_line(file: impl Read, mut each: impl FnMut(&[u8], bool)) -> io::Result<()> {
    let (mut file, mut line) = (BufReader::new(file), Vec::new());
    loop {
        line.clear();
        if file.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let ended = line.pop_if(|last| *last == b'\n').is_some();
        each(&line, ended);
    }
}
