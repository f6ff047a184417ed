//! How a client reaches its cluster, and the file with its token.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tonic::codegen::http::HeaderValue;

use crate::auth::TokenHash;
use crate::net::{Connector, TlsFiles};

/// How to reach a cluster.
#[derive(Debug, Clone)]
pub struct RemoteSettings {
    /// Addresses of its nodes, `HOST:PORT` each; one that answers is enough.
    pub endpoints: Vec<String>,
    /// Id of the only cluster to accept; endpoints of other clusters are left out. `None` accepts the cluster that the
    /// endpoints name first, and endpoints of two clusters are an error. A client never changes its cluster.
    pub cluster: Option<u128>,
    /// Called with a sentence about each endpoint that is left out because another cluster or another service answers
    /// there.
    pub on_left_out: Option<fn(&str)>,
    /// Files for TLS: the authority of the nodes, and the client's certificate if the nodes demand one. `None` for
    /// plain text. The files are read for each connection.
    pub tls: Option<TlsFiles>,
    /// File with a token that proves the client's principal; `None` to show no token. It is read for each connection
    /// and again when a node refuses it, and the token is sent only with TLS or to this machine.
    pub auth_token_file: Option<PathBuf>,
    /// Time limit for connecting and one request. It does not limit waits for locks.
    pub request_wait: Duration,
    /// Connector for another transport than TCP; `None` for TCP.
    pub connector: Option<Connector>,
}

impl RemoteSettings {
    /// Returns settings for plain text with the default time limit.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            cluster: None,
            on_left_out: None,
            tls: None,
            auth_token_file: None,
            request_wait: crate::service::REQUEST_WAIT,
            connector: None,
        }
    }
}

/// Bits of a file's mode that let every user read it.
const READ_BY_ALL: u32 = 0o004;

/// Reads a token, and returns it as a header that proves the client.
///
/// # Errors
/// The file cannot be read, every user can read it, or it has no token. The text names the file and the fix.
pub(crate) fn token_header(path: &Path) -> Result<HeaderValue, String> {
    let name = path.display();
    let unread = |error| format!("{name} cannot be read: {error}; check the path");
    let mode = fs::metadata(path).map_err(unread)?.permissions().mode() & 0o777;
    if mode & READ_BY_ALL != 0 {
        return Err(format!("{name} can be read by every user (mode {mode:04o}); run chmod 600 {name}"));
    }
    let text = fs::read_to_string(path).map_err(unread)?;
    let token = text.trim();
    let unfit = || format!("{name} has no token; make one with `lockkeeper auth token`");
    TokenHash::of(token).map_err(|_| unfit())?;
    let mut header = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| unfit())?;
    header.set_sensitive(true);
    Ok(header)
}

/// Whether a token may be sent to this address in plain text: only this machine can read it on the way.
pub(crate) fn stays_here(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::new_token;

    /// A token is read with or without a line end, and its header does not show it. A file that every user can read is
    /// refused, and so is one without a token.
    #[test]
    fn a_token_is_read_from_its_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        let token = new_token([1, 2]);
        let read = |text: &str, mode: u32| {
            fs::write(&path, text).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
            token_header(&path)
        };
        let header = read(&format!("{token}\n"), 0o600).expect("a token");
        assert_eq!(header.to_str().expect("a text"), format!("Bearer {token}"));
        assert!(!format!("{header:?}").contains(&token));
        assert!(read(&token, 0o640).is_ok());
        let refused = read(&token, 0o644).expect_err("refused");
        assert!(refused.contains("can be read by every user (mode 0644); run chmod 600"), "{refused}");
        assert!(read("", 0o600).expect_err("refused").contains("has no token"));
        assert!(read(&token[1..], 0o600).expect_err("refused").contains("has no token"));
    }

    /// Only addresses of this machine get a token in plain text.
    #[test]
    fn a_token_in_plain_text_stays_here() {
        for here in ["127.0.0.1:7601", "127.1.2.3:1", "[::1]:7601", "localhost:7601", "[::ffff:127.0.0.1]:7601"] {
            assert!(stays_here(here), "{here}");
        }
        for there in ["10.0.0.1:7601", "db1.example:7601", "[::]:7601", "localhost.example:7601"] {
            assert!(!stays_here(there), "{there}");
        }
    }
}
