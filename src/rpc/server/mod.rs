//! The gRPC server: all services with the limits of the transport, until the node stops.

pub(in crate::rpc) mod admin;
pub(in crate::rpc) mod caller;
mod calls;
mod health;
pub(in crate::rpc) mod locks;
mod measured;
mod stream;
mod token_watch;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tonic::transport::Server;
use tonic::transport::server::Router;
use tonic_health::pb::health_server::HealthServer;

use self::admin::Admin;
use self::caller::OfCallers;
use self::health::Health;
use self::locks::Locks;
use self::measured::Measured;
use super::background::{Tasks, stopped};
use super::middleware::Within;
use super::naming::ClusterHeaders;
use super::pb;
use super::pb::admin_server::AdminServer;
use super::pb::locks_server::LocksServer;
use crate::limits;
use crate::net::{CoalescedWrites, ConnectionsMax, Incoming, Port, PortTls, connections, with_causes};
use crate::protobuf::HalfMessages;
use crate::service::{LockService, ServerInfo};
use crate::telemetry::CallMetrics;

/// Why a server did not start, or ended for another reason than the stop signal.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The transport failed.
    #[error("the client port cannot be served: {}", with_causes(.0))]
    Transport(#[from] tonic::transport::Error),
    /// The reflection service refused the protobuf descriptors.
    #[error("the reflection service cannot be built: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// The services of one node, ready to serve, and the tasks of their streams.
pub struct Routes {
    router: Router,
    streams: Tasks,
    connections: ConnectionsMax,
}

/// Returns the services on top of a lock service: `Locks`, `Admin`, health and reflection, with all limits set.
///
/// When `stop` becomes true, streams end with `move_to` and waiting calls with an error; then the connections close.
pub fn routes<S: LockService>(service: S, info: ServerInfo, stop: watch::Receiver<bool>) -> Result<Routes, ServeError> {
    let (streams, connections) = (Tasks::default(), info.connections);
    let layers = Layers {
        measured: Measured(Arc::new(CallMetrics::new(info.node, &measured::NAMES))),
        callers: OfCallers::new(service.clone()),
        headers: ClusterHeaders { cluster_id: info.cluster_id.clone(), service },
        half_received: Arc::default(),
    };
    let health = HealthServer::new(Health::new(stop.clone())).max_decoding_message_size(limits::FRAME_BYTES_MAX);
    let locks = LocksServer::new(Locks::new(layers.callers.clone(), info, stop, streams.clone()))
        .max_decoding_message_size(limits::FRAME_BYTES_MAX)
        .max_encoding_message_size(limits::ANSWER_BYTES_MAX);
    let admin = AdminServer::new(Admin { service: layers.callers.clone() })
        .max_decoding_message_size(limits::FRAME_BYTES_MAX)
        .max_encoding_message_size(limits::ANSWER_BYTES_MAX);
    // Clients of some languages use only the older name of this service.
    let reflection = reflected().build_v1()?.max_decoding_message_size(limits::FRAME_BYTES_MAX);
    let older_reflection = reflected().build_v1alpha()?.max_decoding_message_size(limits::FRAME_BYTES_MAX);
    let router = bounded_server()
        .add_service(layers.measured(layers.for_callers(locks)))
        .add_service(layers.measured(layers.for_callers(admin)))
        .add_service(layers.measured(layers.for_all(health)))
        .add_service(layers.for_callers(reflection))
        .add_service(layers.for_callers(older_reflection));
    Ok(Routes { router, streams, connections })
}

/// What is around the services of a port.
struct Layers<S> {
    measured: Measured,
    callers: OfCallers<S>,
    headers: ClusterHeaders<S>,
    half_received: Arc<AtomicUsize>,
}

impl<S: LockService> Layers<S> {
    /// Returns a service whose calls are measured.
    fn measured<T>(&self, service: T) -> Within<Measured, T> {
        Within { middleware: self.measured.clone(), service }
    }

    /// Returns a service that limits messages that have arrived in part, and names the cluster in its headers.
    fn for_all<T>(&self, service: T) -> Within<ClusterHeaders<S>, HalfMessages<T>> {
        let service = HalfMessages::new(service, limits::FRAME_BYTES_MAX, &self.half_received);
        Within { middleware: self.headers.clone(), service }
    }

    /// Returns a service like that of [`for_all`](Self::for_all), which answers only callers that are recognized.
    fn for_callers<T>(&self, service: T) -> Within<ClusterHeaders<S>, HalfMessages<Within<OfCallers<S>, T>>> {
        self.for_all(Within { middleware: self.callers.clone(), service })
    }
}

/// Returns the reflection service: it describes all that clients may call, and none of the calls between nodes.
fn reflected() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(pb::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .with_service_name(pb::locks_server::SERVICE_NAME)
        .with_service_name(pb::admin_server::SERVICE_NAME)
        .with_service_name(tonic_health::pb::health_server::SERVICE_NAME)
}

/// Returns a transport with a limit on every resource. There is no time limit for a call and no age limit for a
/// connection: streams and waits may last, and keepalive detects peers that are gone.
fn bounded_server() -> Server {
    Server::builder()
        .max_concurrent_streams(limits::STREAMS_A_CONNECTION_MAX)
        .http2_max_header_list_size(limits::HEADER_LIST_BYTES_MAX)
        .http2_max_pending_accept_reset_streams(Some(limits::PENDING_RESETS_MAX))
        .http2_max_local_error_reset_streams(Some(limits::ERROR_RESETS_MAX))
        .initial_stream_window_size(limits::STREAM_WINDOW_BYTES)
        .initial_connection_window_size(limits::CONNECTION_WINDOW_BYTES)
        .http2_keepalive_interval(Some(Duration::from_millis(limits::KEEPALIVE_MS)))
        .http2_keepalive_timeout(Some(Duration::from_millis(limits::KEEPALIVE_WAIT_MS)))
        .tcp_nodelay(true)
}

/// Serves a TCP listener until the stop signal, with TLS if `tls` is set.
pub async fn serve(
    routes: Routes,
    listener: TcpListener,
    tls: Option<PortTls>,
    stop: watch::Receiver<bool>,
) -> Result<(), ServeError> {
    let incoming = connections(listener, Port::Client, routes.connections, tls);
    serve_incoming(routes, Box::pin(incoming.map(Ok)), stop).await
}

/// Serves connections of any transport until the stop signal. Then it sends the streams to other nodes and ends the
/// connections within [`limits::DRAIN_MS_MAX`].
pub async fn serve_incoming(routes: Routes, incoming: Incoming, stop: watch::Receiver<bool>) -> Result<(), ServeError> {
    let Routes { router, streams, connections: _ } = routes;
    let incoming = incoming.map(|accepted| accepted.map(CoalescedWrites::new));
    let serving = router.serve_with_incoming_shutdown(incoming, stopped(stop.clone()));
    let bounded = async {
        stopped(stop).await;
        tokio::time::sleep(Duration::from_millis(limits::DRAIN_MS_MAX)).await;
    };
    let served = tokio::select! {
        served = serving => served.map_err(ServeError::from),
        () = bounded => Ok(()),
    };
    // Streams that break at the end still report that to the service. The server does not wait for a service that does
    // not answer.
    let _ = timeout(Duration::from_millis(limits::DRAIN_MS_MAX), streams.ended()).await;
    served
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;
    use crate::rpc::fake::Node;

    /// The client port closes a connection on which the client sends nothing.
    #[tokio::test(start_paused = true)]
    async fn a_silent_connection_is_closed() {
        let node = Node::start(1).await;
        let mut silent = TcpStream::connect(&node.address).await.expect("connected");
        let longest = Duration::from_millis(2 * limits::CLIENT_FIRST_REQUEST_MS_MAX);
        let mut greeting = Vec::new();
        // The read ends with the end of the stream or with a reset.
        let _ = timeout(longest, silent.read_to_end(&mut greeting)).await.expect("closed in time");
    }

    /// A connection that has as many calls as it may have is refused one more: it ends before it reaches the service.
    #[tokio::test]
    async fn the_calls_of_a_connection_are_bounded() {
        const HEADERS: u8 = 1;
        const RST_STREAM: u8 = 3;
        const REFUSED_STREAM: u32 = 7;
        let node = Node::start(1).await;
        let mut connection = TcpStream::connect(&node.address).await.expect("connected");
        // POST, http, a path and a content type. The stream of the call gets a hello, and stays open.
        let (path, kind) = (b"/lockkeeper.v1.Locks/Session", b"application/grpc");
        let header =
            [&[0x83, 0x86, 0x04, path.len() as u8], &path[..], &[0x0f, 0x10, kind.len() as u8], &kind[..]].concat();
        let hello = pb::ClientHello { protocol_min: 1, protocol_max: 1, ..Default::default() };
        let hello = pb::ClientFrame { number: 0, body: Some(pb::client_frame::Body::Hello(hello)) }.encode_to_vec();
        let message = [&[0, 0, 0, 0, hello.len() as u8], &hello[..]].concat();
        let begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        connection.write_all(begin).await.expect("sent");
        let refused = async {
            for stream in (1..).step_by(2) {
                let frame = |kind, flags, payload: &[u8]| {
                    let head = [0, 0, payload.len() as u8, kind, flags];
                    [&head, &u32::to_be_bytes(stream)[..], payload].concat()
                };
                // In one write: the kernel would delay a second one.
                let sent = [frame(HEADERS, 4, &header), frame(0, 0, &message)].concat();
                connection.write_all(&sent).await.expect("sent");
                // The port answers the call, or refuses it.
                loop {
                    let mut head = [0; 9];
                    connection.read_exact(&mut head).await.expect("a frame");
                    let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
                    connection.read_exact(&mut payload).await.expect("a payload");
                    let word = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().expect("four bytes"));
                    match head[3] {
                        RST_STREAM => return (word(&head[5..]), word(&payload)),
                        HEADERS if word(&head[5..]) == stream => break,
                        _ => {}
                    }
                }
            }
            unreachable!("there is a limit")
        };
        let longest = Duration::from_millis(2 * (limits::KEEPALIVE_MS + limits::KEEPALIVE_WAIT_MS));
        let refused = timeout(longest, refused).await.expect("one is refused");
        assert_eq!(refused, (2 * limits::STREAMS_A_CONNECTION_MAX + 1, REFUSED_STREAM));
    }
}
