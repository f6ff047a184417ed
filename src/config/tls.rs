//! `[tls]`: how each listener protects its connections, and the refusal of a listener that every machine could use.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::draft::{Draft, DraftFile, DraftListener, DraftTls, SCALARS, Slot};
use super::place::{ConfigError, Place, Placed, Refused, Source};
use crate::net::TlsFiles;

/// How a listener protects its connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Protection {
    /// Plain text. A listener that other machines can reach must say that this is intended.
    Plain {
        /// Whether the operator accepts that every machine that reaches the listener may use it.
        insecure: bool,
    },
    /// TLS with these files.
    Tls {
        /// Which connections are encrypted.
        mode: TlsMode,
        /// Certificates and key of this node.
        files: TlsFiles,
        /// Whether each client needs a certificate. Other nodes always need one.
        client_cert_required: bool,
    },
}

/// Which connections of a listener are encrypted. All but `Require` protect nothing: they exist for moving a running
/// cluster to TLS by rolling restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsMode {
    /// Accepts TLS and plain text, and dials plain text.
    Allow,
    /// Accepts TLS and plain text, and dials TLS.
    Prefer,
    /// Accepts and dials TLS.
    Require,
}

impl Protection {
    /// Refuses an address that other machines can reach, if nothing protects it and the operator does not accept that.
    pub(crate) fn check(&self, name: &str, address: SocketAddr, place: &str) -> Result<(), ConfigError> {
        let Some((problem, fix)) = self.exposure(name, address) else { return Ok(()) };
        Err(ConfigError { place: place.to_owned(), problem, fix })
    }

    /// Returns the problem of an unprotected address, and the fix.
    fn exposure(&self, name: &str, address: SocketAddr) -> Option<(String, String)> {
        let unprotected = matches!(self, Self::Plain { insecure: false });
        if !unprotected || !is_exposed(address) {
            return None;
        }
        let problem = format!(
            "listen.{name} is {address}, which other machines can reach, and it has no TLS: each of them could break \
             every lock"
        );
        let fix = format!(
            "set ca, cert and key under [tls], or listen on 127.0.0.1, or set insecure = true under [tls.{name}] to \
             serve it without protection"
        );
        Some((problem, fix))
    }

    /// Returns a warning if the listener is open to every machine that reaches it. `has_auth` is whether the node has
    /// rules for its callers.
    #[must_use]
    pub fn warning(&self, name: &str, address: SocketAddr, has_auth: bool) -> Option<String> {
        match self {
            Self::Tls { mode: TlsMode::Require, client_cert_required: false, .. }
                if name != "peer" && !has_auth && is_exposed(address) =>
            {
                Some(format!(
                    "listen.{name} {address} serves every machine that reaches it, also without a certificate, and there \
                     is no [auth] (tls.{name}.client_cert)"
                ))
            }
            Self::Plain { insecure: true } if is_exposed(address) => {
                Some(format!("listen.{name} {address} is open to every machine that reaches it (tls.{name}.insecure)"))
            }
            Self::Tls { mode: TlsMode::Allow | TlsMode::Prefer, .. } => Some(format!(
                "listen.{name} {address} accepts plain text, too, so TLS protects nothing yet (tls.{name}.mode)"
            )),
            Self::Plain { .. } | Self::Tls { mode: TlsMode::Require, .. } => None,
        }
    }
}

impl TlsMode {
    /// Whether the listener accepts plain text, too.
    #[must_use]
    pub fn accepts_plain(self) -> bool {
        self != Self::Require
    }
}

impl Default for Protection {
    fn default() -> Self {
        Self::Plain { insecure: false }
    }
}

/// The protection of each listener.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// Protection of the listener for clients.
    pub client: Protection,
    /// Protection of the listener for the other nodes, and of the connections to them.
    pub peer: Protection,
    /// Protection of the HTTP listener.
    pub http: Protection,
}

/// Refuses a file of `[tls]` or `[auth]` that does not exist.
pub(super) fn check_files(draft: &mut Draft) -> Result<(), Refused> {
    let check = |key: &str, Placed { value, place }: &Placed<String>| {
        let refused = |error| Refused::new(place, format!("{key} {value} cannot be read: {error}"), "check the path");
        fs::metadata(value).map(drop).map_err(refused)
    };
    if let Some(auth) = &draft.auth {
        check("auth.file", &auth.file)?;
    }
    for (key, slot) in SCALARS {
        if let Slot::Path(slot) = slot
            && let Some(at) = slot(draft)
        {
            check(key, at)?;
        }
    }
    Ok(())
}

/// Returns the protection of each listener. Refuses settings that contradict each other, and a listener that other
/// machines could use without protection.
pub(super) fn check(draft: &Draft, listen: &super::Listen, source: Source<'_>) -> Result<Tls, Refused> {
    let DraftTls { ca, cert, refuse, client, peer, http, .. } = &draft.tls;
    let no_cert = [cert, &client.cert, &peer.cert, &http.cert].into_iter().all(Option::is_none);
    if no_cert && let Some((key, Some(at))) = [("ca", ca), ("refuse", refuse)].into_iter().find(|(_, at)| at.is_some())
    {
        let problem = format!("tls.{key} is set, and there is no certificate");
        return Err(Refused::new(&at.place, problem, "set ca, cert and key under [tls]"));
    }
    let listener = |name, of, address: Option<SocketAddr>, written: Option<&Placed<String>>| {
        let protection = Listener { draft, name, of }.protection()?;
        if let Some((problem, fix)) = address.and_then(|address| protection.exposure(name, address)) {
            let place = written.map_or(&Place::File, |at| &at.place);
            let fix = format!("make certificates with \"lockkeeper certs certs --config {}\" and {fix}", source.name);
            return Err(Refused::new(place, problem, fix));
        }
        Ok(protection)
    };
    Ok(Tls {
        client: listener("client", &draft.tls.client, Some(listen.client), draft.listen.client.as_ref())?,
        peer: listener("peer", &draft.tls.peer, Some(listen.peer), draft.listen.peer.as_ref())?,
        http: listener("http", &draft.tls.http, listen.http, draft.listen.http.as_ref())?,
    })
}

/// Returns the file of `[auth]`. Refuses it if `[audit]` is missing. Also refuses it if clients would send tokens, or
/// nodes the names of principals, over a network in plain text.
pub(super) fn auth_file(draft: &Draft, listen: &super::Listen, tls: &Tls) -> Result<Option<PathBuf>, Refused> {
    let Some(DraftFile { file }) = &draft.auth else { return Ok(None) };
    if matches!(tls.client, Protection::Plain { .. }) && is_exposed(listen.client) {
        let problem = "[auth] is set and listen.client is reachable in plain text: tokens would be read on the way";
        return Err(Refused::new(&file.place, problem, "set ca, cert and key under [tls]"));
    }
    let plain_peers = match tls.peer {
        Protection::Plain { .. } => {
            Some(("listen.peer is reachable in plain text", "set ca, cert and key under [tls]"))
        }
        Protection::Tls { mode: TlsMode::Allow, .. } => Some((
            "tls.peer.mode is \"allow\", with which nodes dial each other in plain text",
            "set it to \"prefer\" or \"require\"; add [auth] after all nodes have it",
        )),
        Protection::Tls { mode: TlsMode::Prefer | TlsMode::Require, .. } => None,
    };
    if let Some((what, fix)) = plain_peers.filter(|_| is_exposed(listen.peer)) {
        let problem = format!("[auth] is set and {what}: other machines could send calls under any principal");
        return Err(Refused::new(&file.place, problem, fix));
    }
    if draft.audit.is_none() {
        let problem = "[auth] is set and [audit] is not: no file would show what operators did, and who was refused";
        return Err(Refused::new(&file.place, problem, "add [audit] with file = \"audit.jsonl\""));
    }
    Ok(Some(PathBuf::from(&file.value)))
}

/// Whether other machines can reach this address.
fn is_exposed(address: SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

struct Listener<'a> {
    draft: &'a Draft,
    name: &'static str,
    of: &'a DraftListener,
}

impl Listener<'_> {
    fn protection(&self) -> Result<Protection, Refused> {
        let Self { draft, name, of } = self;
        // The files for each listener that has none under its own name.
        let files = &draft.tls;
        let or_shared =
            |own: &Option<Placed<String>>, shared: &Option<Placed<String>>| own.clone().or_else(|| shared.clone());
        let (cert, key) = (or_shared(&of.cert, &files.cert), or_shared(&of.key, &files.key));
        let (ca, refuse) = (or_shared(&of.ca, &files.ca), or_shared(&of.refuse, &files.refuse));
        let insecure = of.insecure.as_ref().filter(|insecure| insecure.value);
        let (cert, key) = match (cert, key) {
            (Some(cert), Some(key)) => (cert, key),
            (None, None) => {
                let set =
                    [("mode", &of.mode), ("client_cert", &of.client_cert), ("ca", &of.ca), ("refuse", &of.refuse)];
                if let Some((key, Some(at))) = set.into_iter().find(|(_, at)| at.is_some()) {
                    let problem = format!("tls.{name}.{key} is set, and there is no certificate");
                    return Err(Refused::new(&at.place, problem, "set ca, cert and key under [tls]"));
                }
                return Ok(Protection::Plain { insecure: insecure.is_some() });
            }
            (Some(cert), None) => {
                return Err(Refused::new(&cert.place, "[tls] names cert and no key", "name both"));
            }
            (None, Some(key)) => {
                return Err(Refused::new(&key.place, "[tls] names key and no cert", "name both"));
            }
        };
        let mode = self.mode()?;
        if let (Some(insecure), TlsMode::Require) = (insecure, mode) {
            let problem = format!("tls.{name} has insecure = true and mode = \"require\"");
            return Err(Refused::new(&insecure.place, problem, "remove one"));
        }
        let client_cert_required = self.client_cert()?;
        if ca.is_none() && (*name == "peer" || client_cert_required) {
            let problem = match &of.mode {
                Some(mode) if *name == "peer" => format!("tls.peer.mode is {:?} and there is no ca", mode.value),
                Some(_) | None => format!("tls.{name} checks certificates, and there is no ca"),
            };
            let place = of.mode.as_ref().map_or(&Place::File, |mode| &mode.place);
            let fix = "set ca, cert and key under [tls]";
            let optional = format!("{fix}, or set client_cert = \"optional\" under [tls.{name}]");
            return Err(Refused::new(place, problem, if *name == "peer" { fix } else { optional.as_str() }));
        }
        let path = |at: Placed<String>| Some(PathBuf::from(at.value));
        let files = TlsFiles { ca: ca.and_then(path), cert: path(cert), key: path(key), refuse: refuse.and_then(path) };
        Ok(Protection::Tls { mode, files, client_cert_required })
    }

    fn mode(&self) -> Result<TlsMode, Refused> {
        let Self { name, of, .. } = self;
        let Some(mode) = &of.mode else { return Ok(TlsMode::Require) };
        match (mode.value.as_str(), *name) {
            ("allow", _) => Ok(TlsMode::Allow),
            ("prefer", "peer") => Ok(TlsMode::Prefer),
            ("require", _) => Ok(TlsMode::Require),
            (other, _) => {
                let known = if *name == "peer" { "allow, prefer or require" } else { "allow or require" };
                let problem = format!("there is no tls.{name}.mode {other:?}");
                Err(Refused::new(&mode.place, problem, format!("use {known}")))
            }
        }
    }

    /// Whether each client needs a certificate. Without `[auth]`, only a certificate proves that a client belongs to
    /// the cluster, so it is required by default.
    fn client_cert(&self) -> Result<bool, Refused> {
        let Self { draft, name, of, .. } = self;
        let Some(at) = &of.client_cert else { return Ok(*name != "peer" && draft.auth.is_none()) };
        if *name == "peer" {
            let problem = "there is no tls.peer.client_cert, because nodes always check each other's certificates";
            return Err(Refused::new(&at.place, problem, "remove it"));
        }
        match at.value.as_str() {
            "optional" => Ok(false),
            "required" => Ok(true),
            other => {
                let problem = format!("there is no tls.{name}.client_cert {other:?}");
                Err(Refused::new(&at.place, problem, "use optional or required"))
            }
        }
    }
}
