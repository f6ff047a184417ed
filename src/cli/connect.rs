//! From endpoints to a client. The only place of the command line that knows which service it talks to.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use super::failure::Failure;
use super::options::Common;
use super::output::Output;
use crate::client::Client;
use crate::limits;
use crate::model::{Metadata, parse_cluster_id};
use crate::rpc::{RemoteService, RemoteSettings, TlsSettings};

/// Names the only cluster to believe, as `--cluster` does.
pub(super) const CLUSTER_VARIABLE: &str = "LOCKKEEPER_CLUSTER";

/// A client of the named cluster, which says who and where it is. Nothing is sent yet.
pub(super) fn connect(common: &Common) -> Result<Client<RemoteService>, Failure> {
    let mut settings = RemoteSettings::new(common.endpoints.clone());
    settings.cluster = cluster(common)?;
    settings.on_left_out = Some(warn_of_left_out);
    (settings.tls, settings.request_wait) = (tls(common)?, common.timeout);
    let service = RemoteService::new(settings)?;
    Ok(Client::new(service)
        .namespace(common.namespace.clone())
        .request_wait(common.timeout)
        .metadata(metadata("lockkeeper")?))
}

/// The id of the only cluster to believe, where the command line or the environment names one.
pub(super) fn cluster(common: &Common) -> Result<Option<u128>, Failure> {
    let named = common.cluster.clone().or_else(|| std::env::var(CLUSTER_VARIABLE).ok());
    let Some(named) = named.filter(|named| !named.is_empty()) else { return Ok(None) };
    let refused = |invalid| Failure::usage(format!("--cluster ({CLUSTER_VARIABLE}): {invalid}"));
    parse_cluster_id(&named).map(Some).map_err(refused)
}

/// Warns of an endpoint once, however many clients the command has.
fn warn_of_left_out(sentence: &str) {
    static WARNED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if WARNED.lock().unwrap_or_else(PoisonError::into_inner).insert(sentence.to_owned()) {
        Output::new(false).warn(&format!("lockkeeper: {sentence}"));
    }
}

/// An option that would be ignored is refused: somebody relies on it.
pub(super) fn refuse_what_is_not_there(common: &Common) -> Result<(), Failure> {
    if common.auth_token_file.is_none() {
        return Ok(());
    }
    Err(Failure::usage(
        "--auth-token-file (LOCKKEEPER_AUTH_TOKEN_FILE) is not supported yet: this version knows no principals and would \
         send the token nowhere; leave it out, and keep strangers away from the cluster's ports",
    ))
}

/// Who asks: user, host and command as one name, and the process.
pub(super) fn metadata(command: &str) -> Result<Metadata, Failure> {
    let user =
        ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok().filter(|user| !user.is_empty()));
    let user = user.unwrap_or_else(|| format!("uid{}", rustix::process::getuid().as_raw()));
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::env::var("HOSTNAME"));
    let host = shortened(host.unwrap_or_default().trim());
    let metadata = Metadata {
        who: format!("{}@{host} {}", shortened(&user), shortened(command)).into(),
        host: host.into(),
        pid: std::process::id(),
        ..Metadata::default()
    };
    Ok(metadata.checked()?)
}

/// Names from the environment are shown, not trusted: cut, and without control characters.
fn shortened(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(limits::METADATA_BYTES_MAX / 16).collect()
}

/// Encryption, where an authority or a certificate was named.
fn tls(common: &Common) -> Result<Option<TlsSettings>, Failure> {
    let read = |path: &Option<PathBuf>| {
        let Some(path) = path else { return Ok(None) };
        let text = std::fs::read(path);
        text.map(Some).map_err(|error| Failure::usage(format!("{} cannot be read: {error}", path.display())))
    };
    if common.ca.is_none() && common.cert.is_none() {
        return Ok(None);
    }
    Ok(Some(TlsSettings { ca: read(&common.ca)?, cert: read(&common.cert)?, key: read(&common.key)? }))
}
