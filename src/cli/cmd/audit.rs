//! `audit`: checks the audit log of a node.

use std::fs::File;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::audit;
use crate::cli::error::{Failure, NO, YES};
use crate::cli::output::Output;

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum AuditCommand {
    /// Check that no line was changed, removed or added
    Verify(AuditFile),
}

#[derive(Debug, Args)]
pub(in crate::cli) struct AuditFile {
    /// The file under [audit] of the node's configuration
    file: PathBuf,
}

/// The JSON line.
#[derive(Debug, Default, Serialize)]
struct Verified {
    verified: bool,
    lines: Option<u64>,
    /// Hash of the last line.
    hash: Option<String>,
    /// Lines that were cut because the node ended.
    cut: Vec<u64>,
    /// The first wrong line.
    line: Option<u64>,
    flaw: Option<String>,
}

/// Checks the chain of a file. Returns exit code 1 if it is broken.
pub(in crate::cli) fn verify(options: &AuditFile, output: &Output) -> Result<u8, Failure> {
    let unread = |error: std::io::Error| Failure::usage(format!("{}: {error}", options.file.display()));
    match File::open(&options.file).and_then(audit::verify).map_err(unread)? {
        Ok(proof) => {
            let (lines, hash, cut) = (Some(proof.lines), Some(proof.hash.clone()), proof.cut.clone());
            let found = Verified { verified: true, lines, hash, cut, ..Verified::default() };
            output.answer(&found, || praise(&proof))?;
            Ok(YES)
        }
        Err(flaw) => {
            let found = Verified { line: Some(flaw.line), flaw: Some(flaw.what.clone()), ..Verified::default() };
            output.answer(&found, || flaw.to_string())?;
            Ok(NO)
        }
    }
}

fn praise(proof: &audit::AuditProof) -> String {
    let cut = match proof.cut.len() {
        0 => String::new(),
        cut => format!(" {cut} of them were cut because the node ended."),
    };
    format!(
        "{} lines are whole.{cut} The last hash is {}. The end is complete if the node's log names the same.",
        proof.lines, proof.hash
    )
}
