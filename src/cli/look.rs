//! Looking without touching: `ls show sessions watch`.

use std::time::Duration;

use super::YES;
use super::failure::Failure;
use super::options::{ListOptions, ShowFormat, ShowOptions, WatchOptions};
use super::output::{self, Output};
use super::position;
use super::shapes::{self, mode_word};
use crate::client::{Client, ReadAt};
use crate::compat::config_locks::locks_json;
use crate::model::{Closing, HolderView, ListShow, LockView, LogTime, Metadata, SessionView};
use crate::service::LockService;

/// Locks in use.
pub(super) async fn list<S: LockService>(
    client: &Client<S>,
    options: ListOptions,
    output: &Output,
) -> Result<u8, Failure> {
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
            output.object(&shapes::LockRow::new(row, now))?;
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

/// One lock as a document.
async fn show_document<S: LockService>(
    client: &Client<S>,
    options: &ShowOptions,
    output: &Output,
) -> Result<u8, Failure> {
    let document = client.document(options.name.as_str()).await?.value;
    let json = document.map(|document| locks_json(&document));
    output.object(&json)?;
    Ok(YES)
}

/// One lock.
pub(super) async fn show<S: LockService>(
    client: &Client<S>,
    options: ShowOptions,
    output: &Output,
) -> Result<u8, Failure> {
    if options.format == ShowFormat::Config {
        return show_document(client, &options, output).await;
    }
    let ReadAt { now, value: view, .. } = client.inspect(options.name.as_str()).await?;
    if output.json || options.format == ShowFormat::Json {
        output.object(&shapes::Lock::new(&view, now))?;
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
        output.line(format!("closed by {} (token {token}) for another {}", output::plain(who), short(*left_ms)))?;
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

/// Sessions of the namespace.
pub(super) async fn sessions<S: LockService>(client: &Client<S>, output: &Output) -> Result<u8, Failure> {
    let ReadAt { now, value: sessions, .. } = client.all_sessions().await?;
    if output.json {
        for session in &sessions {
            output.object(&shapes::Session::new(session, now))?;
        }
        return Ok(YES);
    }
    let rows: Vec<_> = sessions
        .iter()
        .map(|session| {
            vec![
                session.session.to_string(),
                called(&session.metadata),
                session.holds.to_string(),
                session.waits.to_string(),
                short(session.ttl_ms),
                short(session.deadline.ms_since(now)),
                ago(now, session.opened),
                remarks(session),
            ]
        })
        .collect();
    output.table(&["SESSION", "WHO", "HOLDS", "WAITS", "TTL", "LEFT", "AGE", ""], &rows)?;
    Ok(YES)
}

/// What there is to say of a session: that it lost its stream, and that it lives longer for want of a leader.
fn remarks(session: &SessionView) -> String {
    let gone = session.disconnected.then(|| "disconnected".to_owned());
    let longer = (session.leaderless_ms != 0).then(|| format!("no leader for {}", short(session.leaderless_ms)));
    gone.into_iter().chain(longer).collect::<Vec<_>>().join(", ")
}

/// Prints what happens, line by line, until it is interrupted or its reader has gone. An outage in between costs nothing
/// but time: it goes on after the last event that it printed.
pub(super) async fn watch<S: LockService>(
    client: &Client<S>,
    options: WatchOptions,
    output: &Output,
) -> Result<u8, Failure> {
    let client = options.retry.of(client);
    let mut watch = match position::of_this_cluster(&client, options.from.as_ref()).await? {
        (cluster_id, Some(from)) => client.watch_of(cluster_id, &options.prefix, from),
        (_, None) => client.watch(&options.prefix, None).await?,
    };
    let mut gone = std::pin::pin!(output::reader_gone());
    loop {
        let event = tokio::select! {
            event = watch.next() => event?,
            () = &mut gone => return Ok(YES),
        };
        let happened = shapes::Happened::new(&event, watch.cluster_id());
        output.answer(&happened, || happened.text())?;
    }
}

/// How a holder or waiter is called, by what it says of itself.
pub(super) fn called(metadata: &Metadata) -> String {
    let (who, host) = (&metadata.who, &metadata.host);
    if who.is_empty() {
        return metadata.name().into_owned();
    }
    // Commands of this program name their host in who.
    let place = if host.is_empty() || who.contains(&**host) { String::new() } else { format!("@{host}") };
    let process = if metadata.pid == 0 { String::new() } else { format!(" ({})", metadata.pid) };
    format!("{who}{place}{process}")
}

pub(super) fn ago(now: LogTime, since: LogTime) -> String {
    short(now.ms_since(since))
}

/// A duration without digits that nobody reads.
pub(super) fn short(ms: u64) -> String {
    let whole = if ms < 10_000 { Duration::from_millis(ms) } else { Duration::from_secs(ms / 1000) };
    humantime::format_duration(whole).to_string()
}
