//! Connections that a port accepts with TLS.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::Stream;
use metrics::Counter;
use rustls::pki_types::CertificateDer;
use rustls::{CertificateError, Error};
use sha2::{Digest, Sha256};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant as TokioInstant, sleep_until};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::files::{CertificateEnd, TlsError, TlsFiles, day, path_text};
use super::name::{CertificateName, shown};
use super::recheck::not_accepted;
use super::server_files::{ClientCertificates, ServerFiles, ServerSettings};
use super::verify::{Admitted, REFUSED};
use crate::limits::{PEER_HANDSHAKE_APART_MS, TLS_LOG_MS};
use crate::mutex::Mutex;
use crate::net::first_request::Admission;
use crate::net::{Connection, ConnectionInfo, ConnectionsMax, Port};

/// First byte of a TLS connection: the type of a handshake record.
const HANDSHAKE_RECORD: u8 = 22;

/// The TLS of one port.
#[derive(Clone)]
pub struct PortTls(pub(super) Arc<Shared>);

pub(super) struct Shared {
    pub(super) source: ServerFiles,
    /// What new connections use.
    pub(super) settings: watch::Sender<Arc<ServerSettings>>,
    /// Whether connections in plain text are accepted, too.
    allows_plain: bool,
    /// Earliest time of the next handshake, on the port for the other nodes.
    next: Mutex<Option<TokioInstant>>,
    log: Mutex<RefusalLog>,
    on_refusal: OnceLock<OnRefusal>,
}

/// Gets the name of the port, the address of the other side, and the reason.
type OnRefusal = Box<dyn Fn(&'static str, Option<SocketAddr>, &str) + Send + Sync>;

/// The result of a handshake that was not refused.
enum Handshake {
    /// With the settings that were used.
    Tls(watch::Receiver<Arc<ServerSettings>>, Box<TlsStream<TcpStream>>),
    Plain(TcpStream),
    /// The other side ended the connection.
    Ended,
}

/// At most one log line in an interval. The next line contains the number of refusals without a line.
#[derive(Default)]
struct RefusalLog {
    last: Option<TokioInstant>,
    skipped: u64,
}

impl PortTls {
    /// Reads the files of a port of this node for clients. With authorities, a client may present a certificate of
    /// theirs, and must if `required`.
    ///
    /// # Errors
    /// The files cannot be used, or no client would accept the certificate: it has expired, is not for servers, or
    /// belongs to another node or a client. The error names the file and the fix.
    pub fn for_clients(
        port: Port,
        files: &TlsFiles,
        cluster: &str,
        node: u64,
        required: bool,
        allows_plain: bool,
    ) -> Result<Self, TlsError> {
        let wanted = match (&files.ca, required) {
            (_, true) => ClientCertificates::Required,
            (Some(_), false) => ClientCertificates::Optional,
            (None, false) => ClientCertificates::None,
        };
        let admitted = Admitted::Clients(cluster.to_owned());
        Self::new(ServerFiles { port, node, files: files.clone(), wanted, admitted }, allows_plain)
    }

    pub(super) fn new(source: ServerFiles, allows_plain: bool) -> Result<Self, TlsError> {
        let settings = source.settings(source.files.read()?)?;
        source.check_own(&settings)?;
        let settings = watch::Sender::new(Arc::new(settings));
        let (next, log, on_refusal) = (Mutex::default(), Mutex::default(), OnceLock::new());
        Ok(Self(Arc::new(Shared { source, settings, allows_plain, next, log, on_refusal })))
    }

    /// Calls `notify` with each connection that the port refuses from now on. Only the first call has an effect.
    pub fn on_refusal(&self, notify: impl Fn(&'static str, Option<SocketAddr>, &str) + Send + Sync + 'static) {
        self.0.on_refusal.set(Box::new(notify)).ok();
    }

    /// Reads the files again. If they have changed, new connections use them, and an open connection whose certificate
    /// they do not accept ends within a few seconds. Returns whether they have changed.
    ///
    /// The own certificate is checked if it has changed: with one that has expired, the list of refused ones can still
    /// grow.
    ///
    /// # Errors
    /// The files cannot be used. Then the port continues with those that it has.
    pub fn reload(&self) -> Result<bool, TlsError> {
        let Shared { source, settings, .. } = &*self.0;
        let contents = source.files.read()?;
        if settings.borrow().contents == contents {
            return Ok(false);
        }
        let is_checked = settings.borrow().contents.has_same_identity(&contents);
        let changed = source.settings(contents)?;
        if !is_checked {
            source.check_own(&changed)?;
        }
        settings.send_replace(Arc::new(changed));
        Ok(true)
    }

    /// Returns the certificate that the port shows, and its end.
    #[must_use]
    pub fn own(&self) -> CertificateEnd {
        let end = self.0.settings.borrow().own_end();
        CertificateEnd { file: self.0.source.files.own(), seconds: end.map(|end| end.as_secs()) }
    }

    /// Returns the first 12 digits of the SHA-256 of the certificate chain that the port shows. For a chain of one
    /// certificate, the digest that names it in a refuse list begins with them.
    #[must_use]
    pub fn digest(&self) -> String {
        let settings = Arc::clone(&self.0.settings.borrow());
        let chain = settings.identity.cert.iter();
        let hash = chain.fold(Sha256::new(), |hash, certificate| hash.chain_update(certificate));
        hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the connections whose handshakes succeeded. Slow handshakes do not delay others: as many as the port may
    /// have are performed at the same time.
    pub(in crate::net) fn secured(
        self,
        arrivals: impl Stream<Item = (TcpStream, Admission)>,
    ) -> impl Stream<Item = Connection> {
        let port = self.0.source.port;
        // The metric exists before the first refusal.
        refusals(port).increment(0);
        // With space for one more, the port continues to accept connections, and closes those beyond its limit.
        let at_once = port.limits(ConnectionsMax::default()).unproven + 1;
        let accepting = arrivals.map(move |arrival| self.clone().accept(arrival));
        accepting.buffer_unordered(at_once).filter_map(std::future::ready)
    }

    /// Returns the connection after its handshake; `None` if the port refuses it or the other side ends it. The
    /// handshake and the start of the first request have one deadline.
    async fn accept(self, (stream, mut admission): (TcpStream, Admission)) -> Option<Connection> {
        let from = stream.peer_addr().ok();
        let handshake = tokio::select! {
            handshake = self.handshake(stream) => handshake,
            () = admission.late() => return None,
        };
        match handshake {
            Ok(Handshake::Tls(settings, stream)) => Some(self.protected(settings, *stream, admission, from)),
            Ok(Handshake::Plain(stream)) => Some(Connection::plain(stream, admission, from)),
            Ok(Handshake::Ended) => None,
            Err(refused) => {
                self.report(from, &refused);
                None
            }
        }
    }

    /// Returns a connection with the name that it has proven. It ends when its certificate is not accepted any more.
    fn protected(
        self,
        settings: watch::Receiver<Arc<ServerSettings>>,
        stream: TlsStream<TcpStream>,
        admission: Admission,
        from: Option<SocketAddr>,
    ) -> Connection {
        let chain = stream.get_ref().1.peer_certificates().map(<[CertificateDer<'static>]>::to_vec);
        let own = chain.as_ref().and_then(|chain| chain.first());
        let (proven, shown) = (own.and_then(CertificateName::of).map(Arc::new), own.map(shown));
        let connection = Connection::accepted(stream, admission, ConnectionInfo::new(proven, false, from));
        let (Some(chain), Some(shown)) = (chain, shown) else { return connection };
        connection.until(async move {
            let error = not_accepted(settings, move |settings, now| settings.check(&chain, now)).await;
            self.report(from, &format!("lost its connection: {}", self.certificate_problem(&error, &shown)));
            io::Error::new(io::ErrorKind::PermissionDenied, error)
        })
    }

    async fn handshake(&self, stream: TcpStream) -> Result<Handshake, String> {
        let mut first = [0];
        // A connection that ends before its first byte is no attempt to use the port.
        let Ok(1) = stream.peek(&mut first).await else { return Ok(Handshake::Ended) };
        if first != [HANDSHAKE_RECORD] {
            let refused = || "sent plain text; this port requires TLS".to_owned();
            return self.0.allows_plain.then(|| Handshake::Plain(stream)).ok_or_else(refused);
        }
        self.turn().await;
        let settings = self.0.settings.subscribe();
        let config = Arc::clone(&settings.borrow().config);
        let accepting = TlsAcceptor::from(config).accept(stream);
        let handshake = REFUSED.scope(RefCell::default(), async {
            match accepting.await {
                Ok(stream) => Ok(Handshake::Tls(settings, Box::new(stream))),
                Err(error) => Err(self.why(&error, REFUSED.with(RefCell::take))),
            }
        });
        handshake.await
    }

    /// Waits until the next handshake may begin. Raft's thread serves the port for the other nodes, and many handshakes
    /// at once would delay its heartbeats.
    async fn turn(&self) {
        if self.0.source.port != Port::Peer {
            return;
        }
        let turn = {
            let mut next = self.0.next.lock();
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
            Error::InvalidCertificate(_) => format!("showed {}", self.certificate_problem(error, &name)),
            Error::AlertReceived(alert) => format!("refused this node's certificate: {alert:?}"),
            other => format!("failed the handshake: {other}"),
        }
    }

    /// Returns the name of a refused certificate and the reason, for a log line.
    fn certificate_problem(&self, error: &Error, name: &str) -> String {
        match error {
            Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
                let file = path_text(&self.0.source.files.ca);
                format!("{name}, which is not from an authority in {file}")
            }
            Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. }) => {
                format!("{name}, which expired on {}", day(*not_after))
            }
            Error::InvalidCertificate(CertificateError::NotValidYetContext { not_before, .. }) => {
                format!("{name}, which is not valid before {}", day(*not_before))
            }
            Error::InvalidCertificate(CertificateError::InvalidPurposeContext { .. }) => {
                format!("{name}, which is not for clients")
            }
            Error::InvalidCertificate(CertificateError::Revoked) => format!("{name}, which is on the refuse list"),
            Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => {
                format!("{name}, which may not use this port")
            }
            other => format!("{name}: {other}"),
        }
    }

    fn report(&self, from: Option<SocketAddr>, refused: &str) {
        refusals(self.0.source.port).increment(1);
        let port = self.0.source.port.name();
        if let Some(notify) = self.0.on_refusal.get() {
            notify(port, from, refused);
        }
        let skipped = {
            let mut log = self.0.log.lock();
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

/// Returns the counter of the connections that a port refused because of TLS.
fn refusals(port: Port) -> Counter {
    let help = "Connections that a port refused: plain text, or a certificate that it does not accept";
    port.counter("lockkeeper_tls_refused_total", help)
}
