//! The past and its proof: `history` and `verify`.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::failure::Failure;
use super::output::{Columns, Output};
use super::parse::lock_name;
use super::position;
use super::shapes::HistoryLine;
use super::{NO, YES};
use crate::client::Client;
use crate::history::{self, Flaw, Proof};
use crate::model::{HistoryRecord, LockName, Position};
use crate::service::LockService;

#[derive(Debug, Args)]
pub(super) struct HistoryOptions {
    /// Which lock [default: all of the namespace]
    #[arg(value_parser = lock_name)]
    pub(super) name: Option<LockName>,
    /// Go on after this position; with the first digits of a cluster_id, only in that cluster [default: all that is kept]
    #[arg(long, value_parser = position::from, value_name = "INDEX.N[@CLUSTER]")]
    pub(super) from: Option<position::After>,
}

#[derive(Debug, Args)]
pub(super) struct VerifyOptions {
    /// What `history --json` printed; - for standard input
    pub(super) file: PathBuf,
}

/// `verify`.
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

/// What happened to the holders of a lock, or of all.
pub(super) async fn history<S: LockService>(
    client: &Client<S>,
    options: HistoryOptions,
    output: &Output,
) -> Result<u8, Failure> {
    let (cluster_id, from) = position::of_this_cluster(client, options.from.as_ref()).await?;
    let mut reader = client.history(options.name.as_ref().map(|name| name.as_str()), from)?;
    let mut columns = None;
    while let Some(page) = reader.next_page().await? {
        let lines = page.iter().map(|record| HistoryLine::new(record).of(cluster_id));
        let first = columns.is_none();
        let columns = columns.get_or_insert_with(Columns::default);
        if let Some(gone) = gone(from, reader.floor()).filter(|_| first) {
            output.warn(&gone);
        }
        if output.json {
            lines.into_iter().try_for_each(|line| output.object(&line))?;
            continue;
        }
        let rows: Vec<_> = lines.map(row).collect();
        if first {
            output.heading(&HEADING, &rows, columns)?;
        }
        output.rows(&rows, columns)?;
    }
    Ok(YES)
}

const HEADING: [&str; 9] = ["POSITION", "AT", "EVENT", "LOCK", "TOKEN", "SESSION", "MODE", "WHO", "WHY"];

/// What is said of a history that was asked for from its beginning and does not have it any more.
fn gone(from: Option<Position>, floor: Position) -> Option<String> {
    let begins_late = from.is_none() && floor != Position::default();
    begins_late.then(|| format!("records up to position {floor} are no longer kept: this history begins after it"))
}

fn row(line: HistoryLine) -> Vec<String> {
    let mode = match (line.permits, line.limit) {
        (Some(count), Some(limit)) => format!("{count} of {limit} permits"),
        _ => line.mode.unwrap_or_default(),
    };
    let session = if line.take.is_some() { Some("lease".to_owned()) } else { line.session };
    let by = line.by.map(|by| format!("by {by}"));
    vec![
        line.position,
        line.at,
        line.event,
        line.lock,
        line.token.unwrap_or_default(),
        session.unwrap_or_default(),
        mode,
        line.who.into_iter().chain(by).collect::<Vec<_>>().join(", "),
        line.reason.or(line.why).unwrap_or_default(),
    ]
}

/// Whether an export is whole and keeps the rules; exit code 1 where it is not.
pub(super) fn verify(options: &VerifyOptions, output: &Output) -> Result<u8, Failure> {
    let unread = |error: io::Error| Failure::usage(format!("{}: {error}", options.file.display()));
    let reader = opened(&options.file).map_err(unread)?;
    let outcome = records(reader).map_err(unread)?.and_then(|records| history::verify(&records));
    match outcome {
        Ok(proof) => {
            output.answer(&verified(&proof), || praise(&proof))?;
            Ok(YES)
        }
        Err(flaw) => {
            let Flaw { record, what } = flaw;
            // A flaw of no record is one of the whole file.
            let line = Some(record).filter(|record| *record != 0);
            let found = Verified { line, flaw: Some(what.clone()), ..Verified::default() };
            output.answer(&found, || line.map_or(what.clone(), |line| format!("line {line}: {what}")))?;
            Ok(NO)
        }
    }
}

fn opened(path: &Path) -> io::Result<BufReader<Box<dyn Read>>> {
    let from: Box<dyn Read> =
        if path == Path::new("-") { Box::new(io::stdin()) } else { Box::new(std::fs::File::open(path)?) };
    Ok(BufReader::new(from))
}

/// The records of all lines. A line that is none was changed: that is a flaw, too.
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
        line: None,
        flaw: None,
    }
}

fn praise(proof: &Proof) -> String {
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

/// So many of a thing, in words.
fn counted(count: u64, thing: &str) -> String {
    if count == 1 { format!("1 {thing}") } else { format!("{count} {thing}s") }
}

#[cfg(test)]
mod tests;
