//! TLS over loopback: which certificates each port accepts, and what both sides report about the others.

mod ends;

use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use rcgen::{ExtendedKeyUsagePurpose, SanType};
use rustls::pki_types::UnixTime;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tonic::codegen::Service;
use tonic::transport::server::Connected;

use super::*;
use crate::certs::{Authority, Issued};
use crate::net::{CoalescingConnector, Connection, ConnectionsMax, Port, Protocol, Target, connections};

/// The name that a connection has proven.
type Proof = Option<Arc<CertificateName>>;

/// Certificates in a directory.
pub(crate) struct Certs {
    dir: TempDir,
    authority: Authority,
}

impl Certs {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let (authority, own) = authority("harbour");
        fs::write(dir.path().join("ca.pem"), &own.cert).expect("written");
        fs::write(dir.path().join("ca.key"), &own.key).expect("written");
        Self { dir, authority }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, issued: &Issued) -> TlsFiles {
        let (cert, key) = (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
        fs::write(&cert, &issued.cert).expect("written");
        fs::write(&key, &issued.key).expect("written");
        private(&key);
        let refuse = self.path("refused.txt");
        if !refuse.exists() {
            fs::write(&refuse, "").expect("written");
        }
        TlsFiles { ca: Some(self.path("ca.pem")), cert: Some(cert), key: Some(key), refuse: Some(refuse) }
    }

    pub(crate) fn node(&self, id: u64) -> TlsFiles {
        let hosts = ["127.0.0.1".to_owned()];
        self.write(&format!("node-{id}"), &self.authority.issue(Role::Node(id), &hosts, 10).expect("issued"))
    }

    pub(crate) fn client(&self, name: &str) -> TlsFiles {
        self.write(name, &self.authority.issue(Role::Client(name.to_owned()), &[], 10).expect("issued"))
    }

    /// A node of another cluster, from the same authority.
    pub(crate) fn node_of(&self, cluster: &str, id: u64) -> TlsFiles {
        let key = fs::read_to_string(self.path("ca.key")).expect("read");
        let authority = Authority::from_key("harbour", &key).expect("a key").for_cluster(cluster);
        self.write("elsewhere", &authority.issue(Role::Node(id), &[], 10).expect("issued"))
    }

    /// Dials a port as a client does. Returns the text of the refusal.
    pub(crate) async fn dial_as(&self, files: &TlsFiles, address: &str) -> Result<Connection, String> {
        dialled(address, files).await
    }

    fn nameless(&self) -> TlsFiles {
        TlsFiles { ca: Some(self.path("ca.pem")), ..TlsFiles::default() }
    }
}

fn authority(cluster: &str) -> (Authority, Issued) {
    let own = Authority::issue_own(cluster, 10).expect("an authority");
    (Authority::from_key(cluster, &own.key).expect("a key"), own)
}

fn private(key: &Path) {
    fs::set_permissions(key, fs::Permissions::from_mode(0o600)).expect("changed");
}

/// A port that sends one byte to each connection, and returns the proven names.
async fn port(kind: Port, tls: PortTls) -> (String, tokio::sync::mpsc::UnboundedReceiver<Proof>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let (names, seen) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut connections = connections(listener, kind, ConnectionsMax::default(), Some(tls));
        while let Some(mut connection) = connections.next().await {
            names.send(connection.info.proven.clone()).ok();
            tokio::spawn(async move {
                connection.write_all(b"s").await.ok();
                connection.flush().await.ok();
                // Until the client ends the connection.
                connection.read_u8().await.ok();
            });
        }
    });
    (address, seen)
}

async fn clients(certs: &Certs, required: bool, plain: bool) -> (String, tokio::sync::mpsc::UnboundedReceiver<Proof>) {
    let tls = PortTls::for_clients(Port::Client, &certs.node(1), "harbour", 1, required, plain).expect("files");
    port(Port::Client, tls).await
}

/// Dials as a client does. Returns the text of the refusal.
async fn dialled(address: &str, files: &TlsFiles) -> Result<Connection, String> {
    dialled_with(Protocol::Http2, address, files).await
}

async fn dialled_with(protocol: Protocol, address: &str, files: &TlsFiles) -> Result<Connection, String> {
    let below: HttpConnector = CoalescingConnector::tcp().0;
    let mut connector = TlsConnector { files: Arc::new(files.clone()), protocol, below };
    let uri = format!("http://{address}").parse().expect("a URI");
    let dialled = connector.call(uri).await.map(|connection| connection.into_inner());
    dialled.map_err(|error| TlsRefusal::of(&*error).map_or_else(|| error.to_string(), ToString::to_string))
}

fn text(dialled: Result<Connection, String>) -> String {
    dialled.err().unwrap_or_else(|| "accepted".to_owned())
}

/// the port for clients accepts clients of its authority and its cluster. To every other client it says why.
#[tokio::test]
async fn the_client_port_accepts_only_clients_of_its_cluster() {
    let certs = Certs::new();
    let (address, mut names) = clients(&certs, true, false).await;
    let files = certs.client("ci");
    let accepted = dialled(&address, &files).await.expect("accepted");
    let name = names.recv().await.expect("a connection").expect("a name");
    assert_eq!(name.to_string(), "spiffe://harbour/client/ci");
    let own = fs::read_to_string(files.cert.expect("a certificate")).expect("read");
    assert_eq!(name.digest.as_deref(), Some(&*crate::certs::describe(&own)[0].digest));
    drop(accepted);

    let none = text(dialled(&address, &certs.nameless()).await);
    assert_eq!(none, format!("{address} demands a certificate: give --cert and --key"));
    let node = text(dialled(&address, &certs.node(2)).await);
    assert!(node.starts_with(&format!("{address} refused the name in ")), "{node}");
    let (elsewhere, _) = authority("harbour");
    let foreign = elsewhere.issue(Role::Client("ci".to_owned()), &[], 10).expect("issued");
    let unknown = text(dialled(&address, &certs.write("foreign", &foreign)).await);
    assert!(unknown.starts_with(&format!("{address} does not know the authority of ")), "{unknown}");
    let expired = certs.authority.expired(Role::Client("old".to_owned()), &[]);
    let old = text(dialled(&address, &certs.write("old", &expired)).await);
    assert!(old.ends_with("it has expired or is not valid yet"), "{old}");
    let (other, own) = authority("quay");
    let mut both = fs::read_to_string(certs.path("ca.pem")).expect("read");
    both.push_str(&own.cert);
    fs::write(certs.path("ca.pem"), both).expect("written");
    let (address, _) = clients(&certs, true, false).await;
    let quay = other.issue(Role::Client("ci".to_owned()), &[], 10).expect("issued");
    let named = text(dialled(&address, &certs.write("quay", &quay)).await);
    assert!(named.starts_with(&format!("{address} refused the name in ")), "{named}");
}

/// A certificate with two names has none, so no port accepts it as one of the two.
#[tokio::test]
async fn a_certificate_with_two_names_is_refused() {
    let certs = Certs::new();
    let (address, _names) = clients(&certs, true, false).await;
    let second = SanType::URI("spiffe://harbour/client/other".try_into().expect("a URI"));
    let role = Role::Client("ci".to_owned());
    let both = certs.authority.changed(role, &[], |params| params.subject_alt_names.push(second));
    let refused = text(dialled(&address, &certs.write("both", &both)).await);
    assert!(refused.starts_with(&format!("{address} refused the name in ")), "{refused}");
}

/// a certificate for servers only and one that is not valid yet are refused. The log line and the client's error
/// say why.
#[tokio::test]
async fn a_refusal_names_the_use_and_the_time() {
    let certs = Certs::new();
    let tls = PortTls::for_clients(Port::Client, &certs.node(1), "harbour", 1, true, false).expect("files");
    let (reasons, mut reported) = tokio::sync::mpsc::unbounded_channel();
    tls.on_refusal(move |_, _, reason| {
        reasons.send(reason.to_owned()).ok();
    });
    let (address, _names) = port(Port::Client, tls).await;
    let role = || Role::Client("ci".to_owned());
    let server =
        certs.authority.changed(role(), &[], |of| of.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
    let refused = text(dialled(&address, &certs.write("server", &server)).await);
    assert!(refused.ends_with("server.pem: it is not a client certificate"), "{refused}");
    let reason = reported.recv().await.expect("a reason");
    assert_eq!(reason, "showed spiffe://harbour/client/ci, which is not for clients");
    let early = certs.authority.changed(role(), &[], |of| of.not_before = of.not_after - Duration::from_secs(1));
    let refused = text(dialled(&address, &certs.write("early", &early)).await);
    assert!(refused.ends_with("early.pem: it has expired or is not valid yet"), "{refused}");
    let reason = reported.recv().await.expect("a reason");
    assert!(reason.starts_with("showed spiffe://harbour/client/ci, which is not valid before 20"), "{reason}");
}

/// H-18 `handles_never_cross_in_clear`: a port that requires TLS reads no plain text, and a client with an authority
/// sends none.
#[tokio::test]
async fn handles_never_cross_in_clear() {
    let certs = Certs::new();
    let (address, mut names) = clients(&certs, false, false).await;
    let mut plain = TcpStream::connect(&address).await.expect("connected");
    plain.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("sent");
    let mut answer = Vec::new();
    // The read ends with the end of the stream or with a reset.
    let _ = plain.read_to_end(&mut answer).await;
    assert!(answer.is_empty() && names.try_recv().is_err(), "{answer:?}");

    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let reading = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a connection");
        let first = stream.read_u8().await.expect("a byte");
        // An HTTP/2 server begins with its settings.
        stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.expect("sent");
        first
    });
    let refused = text(dialled(&address, &certs.nameless()).await);
    assert_eq!(reading.await.expect("read"), 22, "the first byte of TLS");
    assert_eq!(refused, format!("{address} does not speak TLS; leave --ca out"));
}

/// silent connections and handshakes that stop in the middle delay no other client.
#[tokio::test]
async fn silent_connections_delay_no_handshake() {
    let certs = Certs::new();
    let (address, _names) = clients(&certs, true, false).await;
    let mut silent = Vec::new();
    for number in 0..300 {
        let mut stream = TcpStream::connect(&address).await.expect("connected");
        if number % 2 == 0 {
            stream.write_all(&[22, 3, 1, 2, 0]).await.expect("sent");
        }
        silent.push(stream);
    }
    dialled(&address, &certs.client("ci")).await.expect("accepted");
    let waits =
        |stream: &TcpStream| stream.try_read(&mut [0]).is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock);
    assert!(silent.iter().all(waits), "the client was accepted only after the port gave up the others");
}

/// While a cluster moves to TLS, a port in mode `allow` accepts both, and knows the name only of a client with TLS.
#[tokio::test]
async fn a_port_may_allow_both() {
    let certs = Certs::new();
    let (address, mut names) = clients(&certs, false, true).await;
    let mut plain = TcpStream::connect(&address).await.expect("connected");
    plain.write_all(b"P").await.expect("sent");
    assert_eq!(plain.read_u8().await.expect("the port's byte"), b's');
    assert_eq!(names.recv().await, Some(None));
    let mut without = dialled(&address, &certs.nameless()).await.expect("accepted");
    assert_eq!(without.read_u8().await.expect("the port's byte"), b's');
    assert_eq!(names.recv().await, Some(None));
    let _with = dialled(&address, &certs.client("ci")).await.expect("accepted");
    assert!(names.recv().await.expect("a connection").is_some());
}

/// A server that shows a certificate with which no port starts, to one client. Returns its address.
async fn unchecked(files: &TlsFiles) -> String {
    let identity = files.read().expect("files").identity().expect("read").expect("a certificate");
    let config = rustls::ServerConfig::builder_with_provider(files::provider())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_cert_resolver(files::presented(&identity));
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("a connection");
        acceptor.accept(stream).await.err()
    });
    address
}

/// A client checks the authority, the host and the time of a node's certificate.
#[tokio::test]
async fn a_client_checks_the_node() {
    let certs = Certs::new();
    let (address, _names) = clients(&certs, false, false).await;
    let stranger = Certs::new();
    let unknown = text(dialled(&address, &stranger.nameless()).await);
    assert!(unknown.starts_with(&format!("{address}: its certificate is not from ")), "{unknown}");
    let port_number = address.rsplit(':').next().expect("a port");
    let other_name = text(dialled(&format!("localhost:{port_number}"), &certs.nameless()).await);
    assert!(other_name.contains("its certificate is for 127.0.0.1, not localhost; make another one"), "{other_name}");
    let expired = certs.authority.expired(Role::Node(1), &["127.0.0.1".to_owned()]);
    let address = unchecked(&certs.write("old", &expired)).await;
    let old = text(dialled(&address, &certs.nameless()).await);
    assert!(old.starts_with(&format!("{address}: its certificate expired on 20")), "{old}");
}

async fn peers(certs: &Certs, id: u64) -> (String, tokio::sync::mpsc::UnboundedReceiver<Proof>) {
    let tls = PortTls::for_nodes(&certs.node(id), "harbour", id, false).expect("files");
    port(Port::Peer, tls.clone()).await
}

async fn dialled_node(from: &PortTls, address: &str, node: u64) -> Result<Connection, String> {
    from.connector().dialled(Target { address: address.to_owned(), node: Some(node) }).await.map_err(|e| e.to_string())
}

/// nodes accept only nodes, and a node that dials another one accepts only the certificate of that node.
#[tokio::test]
async fn nodes_accept_only_each_other() {
    let certs = Certs::new();
    let (address, mut names) = peers(&certs, 1).await;
    let second = PortTls::for_nodes(&certs.node(2), "harbour", 2, false).expect("files");
    let _link = dialled_node(&second, &address, 1).await.expect("accepted");
    let name = names.recv().await.expect("a connection").expect("a name");
    assert_eq!(name.role, Role::Node(2));
    let other = text(dialled_node(&second, &address, 3).await);
    assert_eq!(other, "its certificate is not that of node 3 of harbour");
    let client = text(dialled(&address, &certs.client("ci")).await);
    assert!(client.starts_with(&format!("{address} refused the name in ")), "{client}");
    let none = text(dialled(&address, &certs.nameless()).await);
    assert_eq!(none, format!("{address} demands a certificate: give --cert and --key"));
    assert!(names.try_recv().is_err(), "a refused connection reached the port");
}

/// no session is resumed, so that each connection checks the certificates.
#[tokio::test]
async fn sessions_are_never_resumed() {
    let certs = Certs::new();
    let (address, _names) = clients(&certs, true, false).await;
    let contents = certs.client("ci").read().expect("files");
    let roots = contents.roots().expect("read").expect("authorities");
    let identity = contents.identity().expect("read").expect("a certificate");
    let config = rustls::ClientConfig::builder_with_provider(files::provider())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_client_cert_resolver(files::presented(&identity));
    let config = Arc::new(config);
    for _ in 0..3 {
        let stream = TcpStream::connect(&address).await.expect("connected");
        let name = "127.0.0.1".try_into().expect("a name");
        let connector = tokio_rustls::TlsConnector::from(Arc::clone(&config));
        let mut stream = connector.connect(name, stream).await.expect("accepted");
        stream.read_u8().await.expect("the port's byte");
        let session = stream.get_ref().1;
        assert_eq!(session.handshake_kind(), Some(rustls::HandshakeKind::Full));
        assert_eq!(session.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
        assert_eq!(session.tls13_tickets_received(), 0);
    }
}

/// Files that cannot be used are refused before a node starts. The error names the file and the fix.
#[test]
fn unusable_files_are_refused_by_name() {
    let certs = Certs::new();
    let refused =
        |files: &TlsFiles, node| PortTls::for_nodes(files, "harbour", node, false).err().expect("refused").to_string();
    let good = certs.node(1);
    assert!(PortTls::for_nodes(&good, "harbour", 1, false).is_ok());
    let other = refused(&good, 2);
    assert!(
        other.ends_with("node-1.pem is spiffe://harbour/node/1, and this is node 2 of harbour; give node 2's file")
    );
    let key = good.key.clone().expect("a key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("changed");
    let open = refused(&good, 1);
    assert!(open.contains("can be read by every user (mode 0644); run chmod 600 "), "{open}");
    private(&key);
    let mixed = TlsFiles { key: certs.node(2).key, ..good.clone() };
    let mixed = refused(&mixed, 1);
    assert!(mixed.contains("node-2.key does not belong to ") && mixed.ends_with("copy or renew both"), "{mixed}");
    let missing = TlsFiles { cert: Some(certs.path("none.pem")), ..good.clone() };
    assert!(refused(&missing, 1).contains("none.pem cannot be read"));
    let old = certs.write("old", &certs.authority.expired(Role::Node(1), &[]));
    for old in [refused(&old, 1), served(&old)] {
        assert!(old.contains("old.pem expired on 20") && old.ends_with("; run lockkeeper certs DIR --renew"), "{old}");
    }
}

/// Returns why the HTTP port of node 1 does not start with these files; an empty text if it starts.
fn served(files: &TlsFiles) -> String {
    let port = PortTls::for_clients(Port::Http, files, "harbour", 1, false, false);
    port.err().map_or_else(String::new, |refused| refused.to_string())
}

/// A port for clients shows the certificate of its node, or one of a public authority, which has no name in a cluster.
/// Either is valid now and for servers.
#[test]
fn a_port_for_clients_shows_a_certificate_of_a_server() {
    let certs = Certs::new();
    assert_eq!(served(&certs.node(1)), "");
    for (files, name) in [(certs.node(2), "node/2"), (certs.client("ci"), "client/ci")] {
        let refused = served(&files);
        let expected = format!("is spiffe://harbour/{name}, and this is node 1 of harbour; give node 1's file");
        assert!(refused.ends_with(&expected), "{refused}");
    }
    let changed = |change: fn(&mut rcgen::CertificateParams)| {
        certs.write("web", &certs.authority.changed(Role::Node(1), &[], change))
    };
    let public = changed(|of| of.subject_alt_names.clear());
    assert_eq!(served(&public), "");
    let refused = served(&changed(|of| {
        of.subject_alt_names.clear();
        of.not_after = of.not_before + Duration::from_secs(1);
    }));
    assert!(refused.contains("web.pem expired on 20") && refused.ends_with("; renew it"), "{refused}");
    let refused = served(&changed(|of| of.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]));
    assert!(refused.ends_with("web.pem is not for servers; give a certificate of a server"), "{refused}");
    let refused = served(&changed(|of| of.not_before = of.not_after - Duration::from_secs(1)));
    assert!(refused.contains("web.pem is not valid before 20"), "{refused}");
}

/// A certificate warns when it has less than 30 days, less than 7, and none.
#[test]
fn a_certificate_warns_before_its_end() {
    let certs = Certs::new();
    let own = PortTls::for_nodes(&certs.node(1), "harbour", 1, false).expect("files").own();
    let end = own.seconds.expect("an end");
    let warning = |days: u64| own.warning(end + 1 - days * 24 * 60 * 60).map(|text| text.replace(&own.file, "n1.pem"));
    assert_eq!(warning(31), None);
    let on = files::day(UnixTime::since_unix_epoch(Duration::from_secs(end)));
    assert_eq!(warning(30), Some(format!("n1.pem expires on {on}, in less than 30 days; renew it")));
    assert_eq!(warning(7), Some(format!("n1.pem expires on {on}, in less than 7 days; renew it")));
    assert_eq!(warning(0), Some(format!("n1.pem expired on {on}; renew it")));
}
