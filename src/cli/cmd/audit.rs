//! `audit`: checks the audit log of a node.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use clap::Subcommand;
use serde::Serialize;

use crate::audit;
use crate::cli::error::{Failure, NO};
use crate::cli::output::Output;

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum AuditCommand {
    /// Check that no line was changed, removed or added
    Verify {
        /// The file under [audit] of the node's configuration, and full files before it, in any order
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

/// The JSON line.
#[derive(Debug, Default, Serialize)]
struct Verified {
    verified: bool,
    /// Number of the first line.
    first: Option<u64>,
    /// Number of the last line.
    lines: Option<u64>,
    /// Hash of the last line.
    hash: Option<String>,
    /// Whether a part of another line follows.
    cut: bool,
    /// The first wrong line.
    line: Option<u64>,
    flaw: Option<String>,
}

/// Checks the chain of the files. Returns exit code 1 if it is broken.
pub(in crate::cli) fn verify(paths: &[PathBuf], output: &Output) -> Result<u8, Failure> {
    let unread = |path: &PathBuf, error: io::Error| {
        Failure::usage("<FILES>", format!("{}: {error}; check the path", path.display()))
    };
    let mut files = Vec::new();
    for path in paths {
        let first = File::open(path).and_then(audit::first_of).map_err(|error| unread(path, error))?;
        files.push((first, File::open(path).map_err(|error| unread(path, error))?));
    }
    files.sort_by_key(|(first, _)| *first);
    let all =
        files.into_iter().fold(Box::new(io::empty()) as Box<dyn Read>, |all, (_, file)| Box::new(all.chain(file)));
    let unreadable =
        |error: io::Error| Failure::usage("<FILES>", format!("the files cannot be read: {error}; check the paths"));
    match audit::verify(all).map_err(unreadable)? {
        Ok(proof) => {
            let (first, lines) = (Some(proof.first), Some(proof.lines));
            let (hash, cut) = (Some(proof.hash.clone()), proof.cut);
            let found = Verified { verified: true, first, lines, hash, cut, ..Verified::default() };
            output.answer(&found, || summary(&proof))
        }
        Err(flaw) => {
            let found = Verified { line: Some(flaw.line), flaw: Some(flaw.what.clone()), ..Verified::default() };
            Failure::unless_closed(output.answer(&found, || flaw.to_string()))?;
            Ok(NO)
        }
    }
}

fn summary(proof: &audit::AuditProof) -> String {
    let cut = if proof.cut { " A part of another line follows, which the next start of the node removes." } else { "" };
    let before = match proof.first {
        1 => String::new(),
        first => format!(" Those before line {first} are in files that were not named."),
    };
    let lines = proof.lines + 1 - proof.first;
    let hash = &proof.hash;
    format!(
        "{lines} lines are whole.{before}{cut} The last hash is {hash}. The end is complete if the node's log names the \
         same."
    )
}
