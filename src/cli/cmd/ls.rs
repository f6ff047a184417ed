//! `ls`: lists locks in use.

use std::time::Duration;

use clap::Args;

use crate::cli::args::duration;
use crate::cli::connect::Client;
use crate::cli::error::{Failure, YES};
use crate::cli::output::Output;
use crate::cli::text::{ago, called};
use crate::client::ReadAt;
use crate::model::ListShow;
use crate::shapes::LockRow;

#[derive(Debug, Args)]
pub(in crate::cli) struct ListOptions {
    /// Only names with this prefix
    #[arg(default_value = "")]
    prefix: String,
    /// Only locks that are held
    #[arg(long, conflicts_with = "waiting")]
    held: bool,
    /// Only locks with waiters
    #[arg(long)]
    waiting: bool,
    /// Only locks held for at least this long [default: 0s]
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    older_than: Option<Duration>,
}

/// Lists the locks in use.
pub(in crate::cli) async fn run(client: &Client, options: ListOptions, output: &Output) -> Result<u8, Failure> {
    let show = match (options.held, options.waiting) {
        (true, _) => ListShow::Held,
        (false, true) => ListShow::Waiting,
        (false, false) => ListShow::All,
    };
    let mut request = client.list(&options.prefix).show(show);
    if let Some(age) = options.older_than {
        request = request.older_than(age);
    }
    let ReadAt { now, value: rows, .. } = request.all().await?;
    if output.json {
        for row in &rows {
            output.object(&LockRow::new(row, now))?;
        }
        return Ok(YES);
    }
    let rows: Vec<_> =
        rows.iter()
            .map(|row| {
                let (by, held) = row.oldest.as_ref().map_or((String::new(), String::new()), |holder| {
                    (called(&holder.metadata), ago(now, holder.since))
                });
                let kind = row.limit.map_or(row.kind.to_string(), |limit| format!("{} of {limit}", row.kind));
                vec![row.lock.name.to_string(), kind, row.holders.to_string(), row.waiters.to_string(), by, held]
            })
            .collect();
    output.table(&["NAME", "KIND", "HOLDERS", "WAITERS", "HELD BY", "FOR"], &rows)?;
    Ok(YES)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::{Kind, LockSummary, LogTime};
    use crate::shapes::tests::{holder, lock, value};

    /// A row of a listing has counts instead of the lists of `show`.
    #[test]
    fn ls_has_counts() {
        let row = LockSummary {
            lock: lock(),
            kind: Kind::Lock,
            limit: None,
            holders: 1,
            waiters: 2,
            oldest: Some(holder()),
            delay_ms: None,
            value: None,
        };
        let expected = json!({
            "namespace": "default", "lock": "nightly", "kind": "lock", "limit": null, "holders": 1, "waiters": 2,
            "value": null, "delay_ms": null, "held_ms": 1000,
        });
        assert_eq!(value(&LockRow::new(&row, LogTime(2_000))), expected);
    }
}
