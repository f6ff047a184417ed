//! `verify`: proves an export of history, or names what is wrong with it.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use crate::cli::error::{Failure, NO};
use crate::cli::output::Output;
use crate::cli::text::counted;
use crate::history::{self, Flaw, Proof};
use crate::model::HistoryRecord;
use crate::shapes::history::HistoryLine;

#[derive(Debug, Args)]
pub(in crate::cli) struct VerifyOptions {
    /// Output of `history --json`; - for standard input
    file: PathBuf,
}

/// The JSON line.
#[derive(Debug, Default, Serialize)]
struct Verified {
    verified: bool,
    records: u64,
    locks: u64,
    grants: u64,
    namespace: Option<String>,
    from: Option<String>,
    to: Option<String>,
    hash: Option<String>,
    line: Option<u64>,
    flaw: Option<String>,
}

/// Checks that an export is complete and obeys the rules. Returns exit code 1 if it is not or does not.
pub(in crate::cli) fn run(options: &VerifyOptions, output: &Output) -> Result<u8, Failure> {
    let unread =
        |error: io::Error| Failure::usage("<FILE>", format!("{}: {error}; check the path", options.file.display()));
    let reader = opened(&options.file).map_err(unread)?;
    let outcome = records(reader).map_err(unread)?.and_then(|records| history::verify(&records));
    match outcome {
        Ok(proof) => output.answer(&verified(&proof), || summary(&proof)),
        Err(flaw) => {
            let Flaw { record, what } = flaw;
            // Record 0 means the whole file.
            let line = Some(record).filter(|record| *record != 0);
            let found = Verified { line, flaw: Some(what.clone()), ..Verified::default() };
            let text = || line.map_or(what.clone(), |line| format!("line {line}: {what}"));
            Failure::unless_closed(output.answer(&found, text))?;
            Ok(NO)
        }
    }
}

fn opened(path: &Path) -> io::Result<BufReader<Box<dyn Read>>> {
    let from: Box<dyn Read> =
        if path == Path::new("-") { Box::new(io::stdin()) } else { Box::new(std::fs::File::open(path)?) };
    Ok(BufReader::new(from))
}

/// Reads the records of all lines. A line that is not a record is a flaw.
fn records(reader: impl BufRead) -> io::Result<Result<Vec<HistoryRecord>, Flaw>> {
    let mut records = Vec::new();
    let mut cluster: Option<String> = None;
    for (line, number) in reader.lines().zip(1..) {
        let line = match line {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Ok(Err(Flaw { record: number, what: "it is not UTF-8".into() }));
            }
            line => line?,
        };
        let parsed = serde_json::from_str::<HistoryLine>(&line).map_err(|error| error.to_string());
        if let Ok(HistoryLine { cluster_id: Some(named), .. }) = &parsed
            && cluster.get_or_insert_with(|| named.clone()) != named
        {
            return Ok(Err(Flaw { record: number, what: "it names another cluster than the lines before it".into() }));
        }
        match parsed.and_then(|line| line.record().map_err(|invalid| invalid.to_string())) {
            Ok(record) => records.push(record),
            Err(why) => {
                return Ok(Err(Flaw { record: number, what: format!("it is not a line of `history --json`: {why}") }));
            }
        }
    }
    Ok(Ok(records))
}

fn verified(proof: &Proof) -> Verified {
    Verified {
        verified: true,
        records: proof.records,
        locks: proof.locks,
        grants: proof.grants,
        namespace: Some(proof.namespace.to_string()),
        from: Some(proof.from.to_string()),
        to: Some(proof.to.to_string()),
        hash: Some(proof.hash.to_string()),
        ..Verified::default()
    }
}

fn summary(proof: &Proof) -> String {
    format!(
        "{} of {} in {}, {} to {}, {} whole: one holder at a time, first come first served, tokens that only grow. The \
         last hash is {}.",
        counted(proof.records, "record"),
        counted(proof.locks, "lock"),
        proof.namespace,
        proof.from,
        proof.to,
        if proof.records == 1 { "is" } else { "are" },
        proof.hash
    )
}

#[cfg(test)]
mod tests;
