//! The texts for clients and for times.

use std::time::Duration;

use crate::model::{LogTime, Metadata};

/// Returns the name of a holder or waiter, from its metadata.
pub(super) fn called(metadata: &Metadata) -> String {
    let (who, host) = (&metadata.who, &metadata.host);
    if who.is_empty() {
        return metadata.name().into_owned();
    }
    // Commands of this program already name their host in `who`.
    let place = if host.is_empty() || who.contains(&**host) { String::new() } else { format!("@{host}") };
    let process = if metadata.pid == 0 { String::new() } else { format!(" ({})", metadata.pid) };
    format!("{who}{place}{process}")
}

pub(super) fn ago(now: LogTime, since: LogTime) -> String {
    short(now.ms_since(since))
}

/// Returns the text of a duration, rounded to seconds from 10 s on.
pub(super) fn short(ms: u64) -> String {
    let whole = if ms < 10_000 { Duration::from_millis(ms) } else { Duration::from_secs(ms / 1000) };
    humantime::format_duration(whole).to_string()
}

/// Returns the sentence about a cluster that was restored from a backup and grants nothing for this time.
pub(super) fn closed_for(ms: u64) -> String {
    format!("restored from a backup: nothing is granted for another {}", short(ms))
}

/// Returns a count with the singular or plural of the noun.
pub(super) fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Returns microseconds as a text in milliseconds, with two digits after the point.
pub(super) fn ms(us: u64) -> String {
    format!("{}.{:02}", us / 1000, us % 1000 / 10)
}
