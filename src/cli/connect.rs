//! From endpoints to a client. The only place of the command line that knows which service it talks to.

use std::path::PathBuf;

use super::failure::Failure;
use super::options::Common;
use crate::client::Client;
use crate::limits;
use crate::model::Metadata;
use crate::rpc::{RemoteService, RemoteSettings, TlsSettings};

/// A client of the named cluster, who says who and where it is. Nothing is sent yet.
pub(super) fn connect(common: &Common) -> Result<Client<RemoteService>, Failure> {
    let mut settings = RemoteSettings::new(common.endpoints.clone());
    (settings.tls, settings.request_wait) = (tls(common)?, common.timeout);
    let service = RemoteService::new(settings)?;
    Ok(Client::new(service).namespace(common.namespace.clone()).request_wait(common.timeout).metadata(metadata()?))
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

/// Who asks: user, host and process, as far as they are known.
pub(super) fn metadata() -> Result<Metadata, Failure> {
    let user = ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok()).unwrap_or_default();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::env::var("HOSTNAME"));
    let metadata = Metadata {
        who: shortened(&user).into(),
        host: shortened(host.unwrap_or_default().trim()).into(),
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
