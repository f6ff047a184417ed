//! Connections that a port accepts with TLS.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{BoxStream, Stream};
use rustls::pki_types::CertificateDer;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{CertificateError, Error, ServerConfig};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{Instant as TokioInstant, sleep_until};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::files::{TlsError, TlsFiles, day, presented, provider};
use super::name::CertificateName;
use super::verify::{Admitted, NamedClients, REFUSED};
use crate::limits::{HANDSHAKES_AT_ONCE_MAX, PEER_HANDSHAKE_APART_MS, TLS_LOG_MS};
use crate::net::prefixed::Prefixed;
use crate::net::{Accepted, Connection, Port};

/// First byte of a TLS connection: the type of a handshake record.
const HANDSHAKE_RECORD: u8 = 22;

/// The TLS of one port.
#[derive(Clone)]
pub struct PortTls(Arc<Shared>);

struct Shared {
    port: Port,
    source: ServerFiles,
    /// The settings of new connections.
    config: RwLock<Arc<ServerConfig>>,
    /// Whether connections in plain text are accepted, too.
    allows_plain: bool,
    /// Earliest time of the next handshake, on the port for the other nodes.
    next: Mutex<Option<TokioInstant>>,
    log: Mutex<RefusalLog>,
}

/// The result of a handshake that was not refused.
enum Shaken {
    Tls(Option<CertificateName>, Box<TlsStream<Prefixed<TcpStream>>>),
    Plain(Prefixed<TcpStream>),
    /// The other side ended the connection.
    Ended,
}

/// At most one log line in an interval. The next line contains the number of refusals without a line.
#[derive(Default)]
struct RefusalLog {
    last: Option<TokioInstant>,
    skipped: u64,
}

/// The files of a port, and the clients that it accepts.
pub(super) struct ServerFiles {
    pub(super) files: TlsFiles,
    pub(super) wanted: ClientCertificates,
    pub(super) admitted: Admitted,
}

/// The certificates that a port asks its clients for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientCertificates {
    None,
    Optional,
    Required,
}

impl ServerFiles {
    /// Reads the files, and returns the settings of new connections to a port.
    fn config(&self, port: Port) -> Result<Arc<ServerConfig>, TlsError> {
        let Self { files, wanted, admitted } = self;
        let Some(identity) = files.identity()? else {
            return Err(TlsError("a port with TLS needs a certificate; set cert and key".to_owned()));
        };
        let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
        let builder = builder.map_err(|error| TlsError(error.to_string()))?;
        let builder = match (files.roots()?, wanted) {
            (_, ClientCertificates::None) => builder.with_no_client_auth(),
            (None, ClientCertificates::Optional | ClientCertificates::Required) => {
                return Err(TlsError("a port that checks certificates needs their authority; set ca".to_owned()));
            }
            (Some(roots), ClientCertificates::Optional | ClientCertificates::Required) => {
                let trusted = WebPkiClientVerifier::builder_with_provider(roots, provider());
                let trusted = match wanted {
                    ClientCertificates::Required => trusted,
                    ClientCertificates::None | ClientCertificates::Optional => trusted.allow_unauthenticated(),
                };
                let trusted = trusted.build().map_err(|error| TlsError(error.to_string()))?;
                builder.with_client_cert_verifier(Arc::new(NamedClients { trusted, admitted: admitted.clone() }))
            }
        };
        let mut config = builder.with_cert_resolver(presented(&identity));
        config.alpn_protocols = match port {
            Port::Client | Port::Peer => vec![b"h2".to_vec()],
            Port::Http => vec![b"http/1.1".to_vec()],
        };
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }
}

impl PortTls {
    /// Reads the files of a port for clients. With authorities, a client may present a certificate of theirs, and must
    /// if `required`.
    ///
    /// # Errors
    /// The error names the file and the fix.
    pub fn for_clients(
        port: Port,
        files: &TlsFiles,
        cluster: &str,
        required: bool,
        allows_plain: bool,
    ) -> Result<Self, TlsError> {
        let wanted = match (&files.ca, required) {
            (_, true) => ClientCertificates::Required,
            (Some(_), false) => ClientCertificates::Optional,
            (None, false) => ClientCertificates::None,
        };
        let admitted = Admitted::Clients(cluster.to_owned());
        Self::new(port, ServerFiles { files: files.clone(), wanted, admitted }, allows_plain)
    }

    pub(super) fn new(port: Port, source: ServerFiles, allows_plain: bool) -> Result<Self, TlsError> {
        let config = RwLock::new(source.config(port)?);
        let (next, log) = (Mutex::default(), Mutex::default());
        Ok(Self(Arc::new(Shared { port, source, config, allows_plain, next, log })))
    }

    /// Reads the files again, for new connections.
    ///
    /// # Errors
    /// The files cannot be used. Then the port continues with those that it has.
    pub fn reload(&self) -> Result<(), TlsError> {
        let config = self.0.source.config(self.0.port)?;
        *self.0.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the connection after its handshake; `None` if the port refuses it or the other side ends it. The
    /// handshake and the begin of the first request have one deadline.
    async fn accept(self, accepted: Accepted<TcpStream>) -> Option<Connection> {
        let (stream, mut admission) = accepted.into_parts();
        let from = stream.peer_addr().ok();
        let shaken = tokio::select! {
            shaken = self.handshake(stream) => shaken,
            () = admission.late() => return None,
        };
        match shaken {
            Ok(Shaken::Tls(name, stream)) => Some(Connection::proven(name, Accepted::resume(*stream, admission))),
            Ok(Shaken::Plain(stream)) => Some(Connection::new(Accepted::resume(stream, admission))),
            Ok(Shaken::Ended) => None,
            Err(refused) => {
                self.report(from, &refused);
                None
            }
        }
    }

    async fn handshake(&self, mut stream: TcpStream) -> Result<Shaken, String> {
        // A connection that ends before its first byte is no attempt to use the port.
        let Ok(first) = stream.read_u8().await else { return Ok(Shaken::Ended) };
        let stream = Prefixed::new(vec![first], stream);
        if first != HANDSHAKE_RECORD {
            let refused = || "sent plain text; this port requires TLS".to_owned();
            return self.0.allows_plain.then(|| Shaken::Plain(stream)).ok_or_else(refused);
        }
        self.turn().await;
        let accepting = TlsAcceptor::from(self.config()).accept(stream);
        let shaken = REFUSED.scope(RefCell::default(), async {
            match accepting.await {
                Ok(stream) => {
                    let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
                    let name = shown.and_then(|certificate: &CertificateDer<'_>| CertificateName::of(certificate));
                    Ok(Shaken::Tls(name, Box::new(stream)))
                }
                Err(error) => Err(self.why(&error, REFUSED.with(RefCell::take))),
            }
        });
        shaken.await
    }

    /// Waits until the next handshake may begin. Raft's thread serves the port for the other nodes, and many handshakes
    /// at once would delay its heartbeats.
    async fn turn(&self) {
        if self.0.port != Port::Peer {
            return;
        }
        let turn = {
            let mut next = self.0.next.lock().unwrap_or_else(PoisonError::into_inner);
            let turn = next.unwrap_or_else(TokioInstant::now).max(TokioInstant::now());
            *next = Some(turn + Duration::from_millis(PEER_HANDSHAKE_APART_MS));
            turn
        };
        sleep_until(turn).await;
    }

    /// Returns the reason of a failed handshake, for a log line behind the address.
    fn why(&self, error: &io::Error, name: Option<String>) -> String {
        let name = name.unwrap_or_else(|| "its certificate".to_owned());
        let Some(error) = error.get_ref().and_then(|cause| cause.downcast_ref::<Error>()) else {
            return format!("ended the handshake: {error}");
        };
        match error {
            Error::NoCertificatesPresented => "showed no certificate".to_owned(),
            Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
                let file = self.0.source.files.ca.as_ref().map_or_else(String::new, |path| path.display().to_string());
                format!("showed {name}, which is not from an authority in {file}")
            }
            Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. }) => {
                format!("showed {name}, which expired on {}", day(*not_after))
            }
            Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => {
                format!("showed {name}, which may not use this port")
            }
            Error::InvalidCertificate(problem) => format!("showed {name}: {problem}"),
            Error::AlertReceived(alert) => format!("refused this node's certificate: {alert:?}"),
            other => format!("failed the handshake: {other}"),
        }
    }

    fn report(&self, from: Option<SocketAddr>, refused: &str) {
        let port = self.0.port.name();
        super::refusals(port).increment(1);
        let skipped = {
            let mut log = self.0.log.lock().unwrap_or_else(PoisonError::into_inner);
            let now = TokioInstant::now();
            if log.last.is_some_and(|last| now - last < Duration::from_millis(TLS_LOG_MS)) {
                log.skipped += 1;
                return;
            }
            log.last = Some(now);
            std::mem::take(&mut log.skipped)
        };
        let from = from.map_or_else(|| "a client".to_owned(), |from| from.to_string());
        let others = if skipped == 0 { String::new() } else { format!(" ({skipped} more before it)") };
        tracing::warn!(port, "{from} {refused}{others}");
    }
}

/// Returns the connections of a port. With TLS these are the ones whose handshakes succeeded. Slow handshakes do not
/// delay others, up to [`HANDSHAKES_AT_ONCE_MAX`] at a time.
pub fn secured(
    arrivals: impl Stream<Item = Accepted<TcpStream>> + Send + 'static,
    tls: Option<PortTls>,
) -> BoxStream<'static, Connection> {
    match tls {
        None => arrivals.map(Connection::new).boxed(),
        Some(tls) => arrivals
            .map(move |stream| tls.clone().accept(stream))
            .buffer_unordered(HANDSHAKES_AT_ONCE_MAX)
            .filter_map(std::future::ready)
            .boxed(),
    }
}
