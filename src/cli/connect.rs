//! Connects to a cluster. Only this file names the service behind the client.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use clap::Args;

use super::args::{Common, duration};
use super::error::Failure;
use super::output::Output;
use super::who::{self, OWN_PROGRAM};
use crate::client;
use crate::http::Scraper;
use crate::limits::TLS_FILES_AGAIN_MS;
use crate::model::{Invalid, Position, parse_cluster_id};
use crate::mutex::Mutex;
use crate::net::TlsFiles;
use crate::rpc::{RemoteService, RemoteSettings};
use crate::service::{ErrorCode, ServiceError, Status};
use crate::shapes::{ResumePosition, cluster_id_text};

/// A client of a cluster.
pub(super) type Client = client::Client<RemoteService>;

/// A lease that such a client took.
pub(super) type Lease = client::Lease<RemoteService>;

/// The environment variable for `--cluster`.
pub(super) const CLUSTER_VARIABLE: &str = "LOCKKEEPER_CLUSTER";

/// Creates a client of the chosen cluster, with the metadata of this process. Sends no request yet.
pub(super) fn connect(common: &Common) -> Result<Client, Failure> {
    let mut settings = RemoteSettings::new(common.endpoints.clone());
    settings.cluster = cluster(common)?;
    let warn: fn(&str) = if common.json {
        |sentence| warn_of_left_out(sentence, true)
    } else {
        |sentence| warn_of_left_out(sentence, false)
    };
    settings.on_left_out = Some(warn);
    settings.tls = tls(common)?;
    settings.auth_token_file.clone_from(&common.auth_token_file);
    must_be_readable("--auth-token-file", settings.auth_token_file.as_deref())?;
    settings.request_wait = common.timeout;
    let client = client_with(settings).map_err(|failure| with_variable(failure, common))?;
    Ok(client.namespace(common.namespace.clone()))
}

/// Creates a client of the nodes at these addresses in the namespace `default`. Its requests are retried for `wait`.
/// Sends no request yet.
pub(super) fn connect_to(endpoints: &[String], wait: Duration) -> Result<Client, Failure> {
    client_with(RemoteSettings { request_wait: wait, ..RemoteSettings::new(endpoints) })
}

fn client_with(settings: RemoteSettings) -> Result<Client, Failure> {
    let wait = settings.request_wait;
    let client = client::Client::new(RemoteService::new(settings)?);
    Ok(client.request_wait(wait).metadata(who::metadata(OWN_PROGRAM)?))
}

/// Returns the cluster id from the command line or the environment, if there is one.
pub(super) fn cluster(common: &Common) -> Result<Option<u128>, Failure> {
    let named = common.cluster.clone().or_else(|| std::env::var(CLUSTER_VARIABLE).ok());
    let Some(named) = named.filter(|named| !named.is_empty()) else { return Ok(None) };
    let refused = |invalid| {
        let detail = format!("--cluster ({CLUSTER_VARIABLE}): {invalid}; `lockkeeper status` shows it");
        Failure::usage("--cluster", detail)
    };
    parse_cluster_id(&named).map(Some).map_err(refused)
}

/// Adds the variable of the endpoints to a failure about them, if they come from it.
fn with_variable(failure: Failure, common: &Common) -> Failure {
    let is_field = failure.more.invalid.as_ref().is_some_and(|invalid| invalid.field == "--endpoints");
    let given = std::env::var("LOCKKEEPER_ENDPOINTS").is_ok_and(|value| value.split(',').eq(&common.endpoints));
    if !is_field || !given {
        return failure;
    }
    Failure { detail: format!("{}; it comes from LOCKKEEPER_ENDPOINTS", failure.detail), ..failure }
}

/// Prints each warning about an endpoint once, even if the command has several clients.
fn warn_of_left_out(sentence: &str, json: bool) {
    static WARNED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if WARNED.lock().insert(sentence.to_owned()) {
        let text = if json { sentence.to_owned() } else { format!("lockkeeper: {sentence}") };
        Output::new(json).warn(&text);
    }
}

/// Returns what reads the metrics of the nodes, with the certificates and the token of this client.
pub(super) fn scraper(common: &Common) -> Result<Scraper, Failure> {
    Scraper::new(tls(common)?, common.auth_token_file.as_deref())
        .map_err(|why| Failure::usage("--auth-token-file", why))
}

/// Returns the files for TLS from the command line or the environment; `None` for plain text.
fn tls(common: &Common) -> Result<Option<TlsFiles>, Failure> {
    let files = TlsFiles { ca: common.ca.clone(), cert: common.cert.clone(), key: common.key.clone(), refuse: None };
    match &files {
        TlsFiles { ca: Some(_), .. } => {}
        TlsFiles { ca: None, cert: None, key: None, .. } => return Ok(None),
        TlsFiles { ca: None, .. } => {
            return Err(Failure::usage("--ca", "--cert needs TLS: give --ca with the authority of the nodes"));
        }
    }
    if files.cert.is_some() != files.key.is_some() {
        let (given, missing) = if files.cert.is_some() { ("--cert", "--key") } else { ("--key", "--cert") };
        return Err(Failure::usage(given, format!("{given} needs {missing}: give a certificate and its private key")));
    }
    let options = [("--ca", &files.ca), ("--cert", &files.cert), ("--key", &files.key)];
    for (option, path) in options {
        must_be_readable(option, path.as_deref())?;
    }
    // No retry would make a wrong file a good one. A renewal replaces two files, one after the other.
    let again = |_| {
        std::thread::sleep(Duration::from_millis(TLS_FILES_AGAIN_MS));
        files.check()
    };
    files.check().or_else(again).map_err(|error| {
        let why = error.to_string();
        let names = |path: &Path| why.starts_with(&format!("{} ", path.display()));
        let named = options.iter().find(|(_, path)| path.as_deref().is_some_and(names));
        let option = named.map_or("--ca", |(option, _)| option);
        Failure::usage(option, format!("{option}: {why}"))
    })?;
    Ok(Some(files))
}

fn must_be_readable(option: &str, path: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let refused = |error| format!("{option}: {} cannot be read: {error}; check the path", path.display());
    std::fs::File::open(path).map(drop).map_err(|error| Failure::usage(option, refused(error)))
}

/// How long to retry through an outage.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct RetryOption {
    /// Retry through an outage of at most this duration, such as 30s, or `forever` [default: as --timeout]
    #[arg(long, value_parser = outage, value_name = "DURATION")]
    retry: Option<Duration>,
}

impl RetryOption {
    /// Returns the client with this retry time. A single request still takes at most `--timeout`.
    pub(super) fn of(self, client: &Client) -> Client {
        match self.retry {
            Some(retry) => client.clone().request_wait(retry),
            None => client.clone(),
        }
    }
}

fn outage(text: &str) -> Result<Duration, String> {
    if text == "forever" { Ok(Duration::MAX) } else { duration(text) }
}

/// Returns the id of the leader. Fails without a leader, because then no node knows the current state of the cluster.
pub(super) fn led(status: &Status) -> Result<u64, Failure> {
    status.leader.ok_or_else(|| {
        let detail = format!(
            "node {} reaches no leader with a quorum, so its status is its own view; try again, or ask the other nodes",
            status.node
        );
        Failure::with_next_step(ErrorCode::NoLeader, detail)
    })
}

/// Returns the id of the cluster, and the position after which to continue. Refuses a position of another cluster: in
/// this one it names another event, so events would be missed without notice. A position that the log has not reached,
/// such as one from before a restore, would also miss events.
pub(super) async fn of_this_cluster(
    client: &Client,
    from: Option<&ResumePosition>,
) -> Result<(u128, Option<Position>), Failure> {
    let cluster_id = client.cluster_id().await?;
    let here = cluster_id_text(cluster_id);
    if let Some(foreign) = from.and_then(|from| from.other_cluster(&here)) {
        let bound = format!("of this cluster, {here}");
        return Err(ServiceError::from(Invalid::new("position", bound, format!("one of {foreign}"))).into());
    }
    let Some(from) = from else { return Ok((cluster_id, None)) };
    let newest = client.totals().await?.index;
    if newest < from.position.index {
        let bound = format!("at most {newest}, the newest entry");
        return Err(ServiceError::from(Invalid::new("position", bound, from.position)).into());
    }
    Ok((cluster_id, Some(from.position)))
}
