//! Connections whose certificate is refused, expires or changes while they are open.

use super::*;
use crate::limits::CERTIFICATE_BACKDATED_MS;

/// Adds the certificate in this file to the list of refused ones.
fn refuse(certs: &Certs, files: &TlsFiles) {
    let identity = files.read().expect("files").identity().expect("read").expect("a certificate");
    fs::write(certs.path("refused.txt"), format!("sha256:{} lost\n", digest(&identity.cert[0]))).expect("written");
}

/// Waits until the node ends a connection, after the byte that it sent at first.
async fn ended(connection: &mut Connection) {
    let mut read = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(10), connection.read_to_end(&mut read)).await;
    // A reset is an end, too.
    let _ = read.expect("the connection ends");
}

/// a refused certificate opens no connection to a port, and open ones end. Other clients stay connected.
#[tokio::test]
async fn a_refused_certificate_ends_its_connections() {
    let certs = Certs::new();
    let tls = PortTls::for_clients(Port::Client, &certs.node(1), "harbour", 1, true, false).expect("files");
    let (address, _names) = port(Port::Client, tls.clone()).await;
    let (lost, kept) = (certs.client("lost"), certs.client("kept"));
    let mut open = dialled(&address, &lost).await.expect("accepted");
    let mut other = dialled(&address, &kept).await.expect("accepted");
    assert_eq!(other.read_u8().await.expect("the port's byte"), b's');
    refuse(&certs, &lost);
    tls.reload().expect("files");
    ended(&mut open).await;
    let again = text(dialled(&address, &lost).await);
    assert!(again.ends_with("it was revoked"), "{again}");
    let nothing = tokio::time::timeout(Duration::from_millis(50), other.read_u8()).await;
    assert!(nothing.is_err(), "the other client lost its connection: {nothing:?}");
}

/// a client keeps no connection with a refused certificate by bytes behind its request. The server does not read
/// them while it works on the request, and it works on this one forever.
#[tokio::test]
async fn a_refused_certificate_ends_a_request_that_waits() {
    let certs = Certs::new();
    let tls = PortTls::for_clients(Port::Http, &certs.node(1), "harbour", 1, true, false).expect("files");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let mut connections = connections(listener, Port::Http, ConnectionsMax::default(), Some(tls.clone()));
    let (asked, mut requests) = tokio::sync::mpsc::unbounded_channel();
    let serving = tokio::spawn(async move {
        let connection = connections.next().await.expect("a connection");
        let info = connection.connect_info();
        let answer = service_fn(move |_: Request<Incoming>| {
            asked.send(()).expect("counted");
            std::future::pending::<Result<Response<String>, Infallible>>()
        });
        let server = Builder::new(TokioExecutor::new());
        let served = server.http1_only().serve_connection(TokioIo::new(connection), answer).await;
        (served.is_err(), info.certificate.is_refused())
    });
    let lost = certs.client("lost");
    let mut open = dialled_with(Protocol::Http1, &address, &lost).await.expect("accepted");
    open.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\nG").await.expect("sent");
    open.flush().await.expect("sent");
    requests.recv().await.expect("a request");
    refuse(&certs, &lost);
    tls.reload().expect("files");
    ended(&mut open).await;
    assert_eq!(serving.await.expect("a task"), (true, true));
}

/// A connection ends when its certificate expires, and when its authority is dropped.
#[tokio::test]
async fn a_connection_ends_with_its_certificate() {
    let certs = Certs::new();
    let tls = PortTls::for_clients(Port::Client, &certs.node(1), "harbour", 1, true, false).expect("files");
    let (address, _names) = port(Port::Client, tls.clone()).await;
    let lifetime = Duration::from_millis(CERTIFICATE_BACKDATED_MS) + Duration::from_secs(2);
    let short = certs.authority.lasting(Role::Client("short".to_owned()), &[], lifetime);
    let mut expiring = dialled(&address, &certs.write("short", &short)).await.expect("accepted");
    let mut staying = dialled(&address, &certs.client("ci")).await.expect("accepted");
    ended(&mut expiring).await;
    assert_eq!(staying.read_u8().await.expect("the port's byte"), b's');
    let (_, other) = authority("harbour");
    fs::write(certs.path("ca.pem"), &other.cert).expect("written");
    tls.reload().expect("files");
    ended(&mut staying).await;
}

/// A list of refused certificates takes effect although the port's own certificate has expired in the meantime.
#[tokio::test]
async fn a_list_outlives_the_own_certificate() {
    let certs = Certs::new();
    let lifetime = Duration::from_millis(CERTIFICATE_BACKDATED_MS) + Duration::from_secs(2);
    let own = certs.authority.lasting(Role::Node(1), &["127.0.0.1".to_owned()], lifetime);
    let tls = PortTls::for_clients(Port::Client, &certs.write("own", &own), "harbour", 1, true, false).expect("files");
    let (address, _names) = port(Port::Client, tls.clone()).await;
    let lost = certs.client("lost");
    let mut open = dialled(&address, &lost).await.expect("accepted");
    let end = tls.own().seconds.expect("an end");
    while rustls::pki_types::UnixTime::now().as_secs() <= end {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    refuse(&certs, &lost);
    assert_eq!(tls.reload(), Ok(true));
    ended(&mut open).await;
}

/// A node ends the connections that it has dialled to a node whose certificate is refused, and those that it has
/// accepted from it.
#[tokio::test]
async fn a_refused_node_loses_its_connections() {
    let certs = Certs::new();
    let (first, second) = (certs.node(1), certs.node(2));
    let (one, two) = [(&first, 1), (&second, 2)]
        .map(|(files, id)| PortTls::for_nodes(files, "harbour", id, false).expect("files"))
        .into();
    let (at_one, _names) = port(Port::Peer, one.clone()).await;
    let (at_two, _other_names) = port(Port::Peer, two.clone()).await;
    let mut dialled = dialled_node(&one, &at_two, 2).await.expect("accepted");
    let mut accepted = dialled_node(&two, &at_one, 1).await.expect("accepted");
    refuse(&certs, &second);
    one.reload().expect("files");
    ended(&mut dialled).await;
    ended(&mut accepted).await;
    let again = text(dialled_node(&one, &at_two, 2).await);
    assert_eq!(again, "the certificate of node 2 is on the refuse list");
}

/// Files that cannot be used change nothing; unchanged files change nothing either.
#[tokio::test]
async fn unusable_files_stay_unused() {
    let certs = Certs::new();
    let files = certs.node(1);
    let tls = PortTls::for_clients(Port::Client, &files, "harbour", 1, true, false).expect("files");
    let (address, _names) = port(Port::Client, tls.clone()).await;
    fs::write(certs.path("refused.txt"), "sha256:12\n").expect("written");
    let refused = tls.reload().expect_err("no digest").to_string();
    assert!(refused.contains("refused.txt:1 names no certificate; write sha256: and 64"), "{refused}");
    dialled(&address, &certs.client("ci")).await.expect("accepted as before");
    fs::remove_file(certs.path("refused.txt")).expect("removed");
    let refused = tls.reload().expect_err("no list").to_string();
    assert!(refused.contains("refused.txt cannot be read: ") && refused.contains("create it, or"), "{refused}");
    let other = certs.node(2);
    for (from, to) in [(other.cert, files.cert), (other.key, files.key)] {
        fs::copy(from.expect("a path"), to.expect("a path")).expect("copied");
    }
    let refused = tls.reload().expect_err("the files of another node").to_string();
    assert!(refused.ends_with("give node 1's file"), "{refused}");
    dialled(&address, &certs.client("ci")).await.expect("accepted as before");
}
