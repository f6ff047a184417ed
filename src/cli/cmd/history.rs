//! `history`: the holders of a lock, from the past to now.

use clap::Args;

use crate::cli::connect::{Client, of_this_cluster};
use crate::cli::error::{Failure, YES};
use crate::cli::output::{Columns, Output};
use crate::model::{LockName, Position};
use crate::shapes::ResumePosition;
use crate::shapes::history::HistoryLine;

#[derive(Debug, Args)]
pub(in crate::cli) struct HistoryOptions {
    /// Name of the lock [default: all of the namespace]
    #[arg(value_parser = LockName::parse)]
    name: Option<LockName>,
    /// Continue after this position; with the first digits of a cluster_id, only in that cluster [default: all that is
    /// kept]
    #[arg(long, value_name = "INDEX.N[@CLUSTER]")]
    from: Option<ResumePosition>,
}

/// Prints the history of a lock, or of all locks.
pub(in crate::cli) async fn run(client: &Client, options: HistoryOptions, output: &Output) -> Result<u8, Failure> {
    let (cluster_id, from) = of_this_cluster(client, options.from.as_ref()).await?;
    let mut reader = client.history(options.name.as_ref().map(|name| name.as_str()), from)?;
    let (mut columns, mut is_first) = (Columns::default(), true);
    while let Some(page) = reader.next_page().await? {
        let lines = page.iter().map(|record| HistoryLine::new(record).of(cluster_id));
        if let Some(gone) = gone(from, reader.floor()).filter(|_| is_first) {
            output.warn(&gone);
        }
        is_first = false;
        if output.json {
            lines.into_iter().try_for_each(|line| output.object(&line))?;
        } else {
            output.rows(&HEADING, &lines.map(row).collect::<Vec<_>>(), &mut columns)?;
        }
    }
    Ok(YES)
}

const HEADING: [&str; 9] = ["POSITION", "AT", "EVENT", "LOCK", "TOKEN", "SESSION", "MODE", "WHO", "WHY"];

/// The warning for a history whose beginning is no longer kept.
pub(super) fn gone(from: Option<Position>, floor: Position) -> Option<String> {
    let begins_late = from.is_none() && floor != Position::default();
    begins_late.then(|| format!("records up to position {floor} are no longer kept: this history begins after it"))
}

pub(super) fn row(line: HistoryLine) -> Vec<String> {
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
