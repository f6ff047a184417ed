//! `ls`: lists locks in use.

use std::time::Duration;

use clap::Args;

use crate::cli::args::duration;
use crate::cli::connect::Client;
use crate::cli::error::Failure;
use crate::cli::output::Output;
use crate::cli::text::{ago, called};
use crate::client::ReadAt;
use crate::model::{ListShow, LockSummary};
use crate::shapes::LockRow;

#[derive(Debug, Args)]
pub(in crate::cli) struct ListOptions {
    /// Only names with this prefix
    #[arg(default_value = "")]
    prefix: String,
    /// Only locks that are held
    #[arg(long, group = "show")]
    held: bool,
    /// Only locks with waiters
    #[arg(long, group = "show")]
    waiting: bool,
    /// Only locks whose oldest holder may be gone: disconnected, or not renewed for half its TTL
    #[arg(long, group = "show")]
    overdue: bool,
    /// Only locks held for at least this long [default: 0s]
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    older_than: Option<Duration>,
}

/// Lists the locks in use.
pub(in crate::cli) async fn run(client: &Client, options: ListOptions, output: &Output) -> Result<u8, Failure> {
    let show = match (options.held, options.waiting, options.overdue) {
        (true, ..) => ListShow::Held,
        (_, true, _) => ListShow::Waiting,
        (_, _, true) => ListShow::Overdue,
        (false, false, false) => ListShow::All,
    };
    let request = client.list(&options.prefix).show(show).older_than(options.older_than);
    let ReadAt { now, value: locks, .. } = request.all().await?;
    let row = |row: &LockSummary| {
        let oldest = row.oldest.as_ref();
        let (by, held) = oldest.map(|holder| (called(&holder.metadata), ago(now, holder.since))).unwrap_or_default();
        let kind = row.limit.map_or(row.kind.to_string(), |limit| format!("{} of {limit}", row.kind));
        vec![row.lock.name.to_string(), kind, row.holders.to_string(), row.waiters.to_string(), by, held]
    };
    let objects = locks.iter().map(|row| LockRow::new(row, now));
    output.list(objects, &["NAME", "KIND", "HOLDERS", "WAITERS", "HELD BY", "FOR"], locks.iter().map(row))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::{Kind, LogTime};
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
