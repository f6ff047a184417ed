//! The chain of hashes over the lines of an audit log.

use std::io::{self, BufRead, BufReader, Read};

use serde::Deserialize;
use sha2::{Digest, Sha256};

/// What the chain needs of a line.
#[derive(Deserialize)]
struct Link {
    seq: String,
    prev: String,
}

/// The last line of a file.
pub(super) struct Last {
    pub(super) lines: u64,
    pub(super) hash: String,
    /// Whether the line is complete.
    pub(super) ended: bool,
}

/// A log whose lines are all there and unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditProof {
    /// Number of lines.
    pub lines: u64,
    /// Hash of the last line. If it is the one that the node's log names for this number, the end is complete, too.
    pub hash: String,
    /// Numbers of lines that were cut because the node ended while it wrote them.
    pub cut: Vec<u64>,
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
    let mut last = Last { lines: 0, hash: hash(b""), ended: true };
    for_each_line(file, |number, line, ended| {
        last = Last { lines: number, hash: hash(line), ended };
        Ok(())
    })?;
    Ok(last)
}

/// Checks the chain of a file.
///
/// # Errors
/// The file cannot be read, or [`AuditFlaw`] as the inner error.
pub fn verify(file: impl Read) -> io::Result<Result<AuditProof, AuditFlaw>> {
    let mut proof = AuditProof { lines: 0, hash: hash(b""), cut: Vec::new() };
    let mut found = None;
    for_each_line(file, |number, line, _| {
        if found.is_none() {
            found = flaw(number, line, &mut proof).map(|what| AuditFlaw { line: number, what });
        }
        Ok(())
    })?;
    Ok(found.map_or(Ok(proof), Err))
}

/// Returns what is wrong with the next line.
fn flaw(number: u64, line: &[u8], proof: &mut AuditProof) -> Option<String> {
    match serde_json::from_slice::<Link>(line) {
        Ok(link) if link.seq != number.to_string() => {
            return Some(format!("its number is {}: lines before it are missing, or were added", link.seq));
        }
        Ok(link) if link.prev != proof.hash => return Some("the line before it was changed".to_owned()),
        Ok(_) => {}
        // The next line has the hash of this one.
        Err(_) => proof.cut.push(number),
    }
    (proof.lines, proof.hash) = (number, hash(line));
    None
}

fn for_each_line(file: impl Read, mut each: impl FnMut(u64, &[u8], bool) -> io::Result<()>) -> io::Result<()> {
    let (mut file, mut line) = (BufReader::new(file), Vec::new());
    for number in 1.. {
        line.clear();
        if file.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let ended = line.pop_if(|last| *last == b'\n').is_some();
        each(number, &line, ended)?;
    }
    Ok(())
}
