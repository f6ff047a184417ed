//! `show`: one lock, its holders and its waiters.

use clap::{Args, ValueEnum};

use crate::cli::connect::Client;
use crate::cli::error::{Failure, YES};
use crate::cli::output::{Output, plain};
use crate::cli::text::{ago, called, short};
use crate::client::ReadAt;
use crate::compat::config_locks::locks_json;
use crate::model::{Closing, HolderView, LockName, LockView, LogTime};
use crate::shapes::{Lock, mode_word};

#[derive(Debug, Args)]
pub(in crate::cli) struct ShowOptions {
    /// Name of the lock
    #[arg(value_parser = LockName::parse)]
    name: LockName,
    /// Format of the output
    #[arg(long, value_enum, default_value = "text")]
    format: ShowFormat,
}

/// Ways to show a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ShowFormat {
    /// Text for display.
    Text,
    /// The same as --json.
    Json,
    /// As a document of config.locks: one line of extended JSON, or null for no document.
    Config,
}

/// Shows one lock.
pub(in crate::cli) async fn run(client: &Client, options: ShowOptions, output: &Output) -> Result<u8, Failure> {
    if options.format == ShowFormat::Config {
        let document = client.document(options.name.as_str()).await?.value;
        output.object(&document.map(|document| locks_json(&document)))?;
        return Ok(YES);
    }
    let ReadAt { now, value: view, .. } = client.inspect(options.name.as_str()).await?;
    if output.json || options.format == ShowFormat::Json {
        output.object(&Lock::new(&view, now))?;
        return Ok(YES);
    }
    let Some(kind) = view.kind else {
        output.line(format!("{} is free", view.lock.name))?;
        return Ok(YES);
    };
    let limit = view.limit.map_or(String::new(), |limit| format!(" of {limit} permits"));
    output.line(format!(
        "{}: a {kind}{limit}, {} holding, {} waiting",
        view.lock.name,
        view.holders.len(),
        view.waiters.len()
    ))?;
    if let Some(value) = &view.value {
        output.line(format!("value: {value}"))?;
    }
    for Closing { token, who, left_ms, .. } in &view.closed {
        output.line(format!("closed by {} (token {token}) for another {}", plain(who), short(*left_ms)))?;
    }
    output.table(&["PLACE", "TOKEN", "SESSION", "MODE", "WHO", "WHY", "FOR"], &lock_rows(&view, now))?;
    Ok(YES)
}

fn lock_rows(view: &LockView, now: LogTime) -> Vec<Vec<String>> {
    let holder = |holder: &HolderView| {
        vec![
            "holder".to_owned(),
            holder.token.to_string(),
            holder.session.map_or("lease".to_owned(), |session| session.to_string()),
            held_how(holder),
            called(&holder.metadata),
            holder.metadata.why.to_string(),
            ago(now, holder.since),
        ]
    };
    let holders = view.holders.iter().map(holder);
    let waiters = view.waiters.iter().map(|waiter| {
        vec![
            format!("waiter {}", waiter.place),
            String::new(),
            waiter.session.map_or("lease".to_owned(), |session| session.to_string()),
            mode_word(waiter.mode).to_owned(),
            called(&waiter.metadata),
            waiter.metadata.why.to_string(),
            ago(now, waiter.since),
        ]
    });
    holders.chain(waiters).collect()
}

/// The mode of a hold, and whether its session keeps it between uses.
fn held_how(holder: &HolderView) -> String {
    let mode = mode_word(holder.mode);
    match (holder.cached, holder.recalled) {
        (_, true) => format!("{mode}, recalled"),
        (true, false) => format!("{mode}, cached"),
        (false, false) => mode.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::{FencingToken, Kind, Metadata, Mode, SessionId, WaiterView};
    use crate::shapes::tests::{holder, lock, value};

    /// A held lock shows its holders and waiters with every promised field.
    #[test]
    fn show_has_every_field() {
        let waiter = WaiterView {
            place: 1,
            sequence: 4,
            session: Some(SessionId::new(0, 5)),
            owner: None,
            mode: Mode::Shared,
            metadata: Metadata::default(),
            since: LogTime(1_500),
        };
        let closing =
            Closing { token: FencingToken::new(0, 16), who: "ida".into(), until: LogTime(9_000), left_ms: 7_000 };
        let (holders, waiters, closed) = (vec![holder()], vec![waiter], vec![closing]);
        let view = LockView { kind: Some(Kind::Lock), holders, waiters, closed, ..LockView::free(lock()) };
        let expected = json!({
            "namespace": "default", "lock": "nightly", "kind": "lock", "limit": null, "value": null, "delay_ms": null,
            "holders": [{
                "session": "3", "owner": null, "token": "17", "mode": "exclusive", "permits": null, "who": "ann",
                "why": null, "host": "h1", "pid": 9, "held_ms": 1000, "remaining_ms": 9000,
                "cached": true, "recalled": true,
            }],
            "waiters": [{
                "place": 1, "sequence": "4", "session": "5", "owner": null, "mode": "shared", "permits": null,
                "who": "unnamed client", "waiting_ms": 500,
            }],
            "closed": [{"token": "16", "who": "ida", "until_ms": 9000}],
        });
        assert_eq!(value(&Lock::new(&view, LogTime(2_000))), expected);
    }

    /// A free name has no kind and no holders.
    #[test]
    fn a_free_name_has_no_kind() {
        let view = LockView::free(lock());
        let shown = value(&Lock::new(&view, LogTime(0)));
        assert_eq!((&shown["kind"], &shown["holders"]), (&Value::Null, &json!([])));
    }
}
