//! The HTTP port: health, readiness, metrics, the calls under `/v1`, and the web page.
//!
//! Knows: limits, model, auth, net, telemetry, service, client's retries, rpc's claims, shapes. Never: the machine,
//! storage, consensus.

mod api;
mod measured;
mod node_headers;
mod origin;
mod page;
mod request_header;
mod scrape;
mod urlencoded;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::{FutureExt, Stream, StreamExt};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, watch};
use tokio::time::{Instant as TokioInstant, timeout};
use tonic::transport::server::Connected;

use self::api::Failed;
pub use self::origin::Hosts;
pub(crate) use self::page::shell;
pub use self::scrape::Render;
pub(crate) use self::scrape::{Scrape, Scraper};
use crate::auth::ClusterRight;
use crate::limits;
use crate::model::Query;
use crate::net::{self, Connection, ConnectionInfo, PortTls};
use crate::rpc::{Tasks, stopped};
use crate::service::{Freshness, LockService, ServerInfo, ServiceError};

#[derive(Clone)]
struct Port<S> {
    service: S,
    render: Render,
    /// The last answer on readiness, and its time. Each answer needs a quorum, so requests of a short time share it.
    readiness: Arc<Mutex<Option<(TokioInstant, Readiness)>>>,
}

/// The status and the text of an answer.
type Readiness = (StatusCode, String);

/// Serves until `stop` completes:
///
/// - `/healthz`: 200 while the process answers;
/// - `/readyz`: 200 while a linearizable read through this node succeeds, otherwise 503 with the reason;
/// - `/metrics`: all metrics in the text format of Prometheus;
/// - `/v1/...`: the calls of clients, in JSON;
/// - `/` and below: the web page.
///
/// Requests must name one of the hosts, `localhost` or an IP address, and must not come from a page of another site.
///
/// If the service knows its callers, the first two answer one word, and `/metrics` needs the right to read metrics.
pub async fn serve<S: LockService>(
    listener: TcpListener,
    tls: Option<PortTls>,
    service: S,
    info: ServerInfo,
    render: Render,
    hosts: Hosts,
    stop: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let (tasks, measures) = (Tasks::default(), Arc::new(measured::Measures::new(info.node)));
    let calls = api::routes(service.clone(), info.clone(), tasks.clone(), stop.clone());
    let (most, headers_state) = (info.connections, (service.clone(), info.clone()));
    let protected = (service.clone(), hosts);
    let screens = page::routes(service.clone(), info, tls.is_some(), Arc::clone(&render), stop.clone());
    let routes = Router::new()
        .route("/healthz", get(healthz::<S>))
        .route("/readyz", get(readyz::<S>))
        .route("/metrics", get(metrics::<S>))
        .with_state(Port { service, render, readiness: Arc::default() })
        .merge(calls)
        .merge(screens)
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .layer(from_fn(request_header::bounded))
        .layer(from_fn_with_state(protected, origin::protect::<S>))
        .layer(from_fn_with_state(headers_state, node_headers::add::<S>))
        .layer(from_fn_with_state(measures, measured::measured));
    serve_routes(net::connections(listener, net::Port::Http, most, tls), routes, stopped(stop)).await?;
    // The server does not wait for withdrawals that the service refuses or does not answer.
    drop(timeout(Duration::from_millis(limits::DRAIN_MS_MAX / 4), tasks.ended()).await);
    Ok(())
}

/// Answers a request for a path that does not exist.
async fn no_such_path(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let status = StatusCode::NOT_FOUND;
    let screen = page::missing(status, &method, uri.path(), &headers).await;
    let bound = "a path that /v1/openapi.json lists";
    screen.unwrap_or_else(|| Failed::malformed(status, "path", bound, uri.path()).into_response())
}

/// Answers a request with a method that its path does not have.
async fn no_such_method(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let status = StatusCode::METHOD_NOT_ALLOWED;
    let screen = page::missing(status, &method, uri.path(), &headers).await;
    let bound = "one that the path has, see /v1/openapi.json";
    screen.unwrap_or_else(|| Failed::malformed(status, "method", bound, method.as_str()).into_response())
}

async fn serve_routes(
    mut connections: impl Stream<Item = Connection> + Unpin,
    routes: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let open = GracefulShutdown::new();
    let mut stop = pin!(stop);
    let http1 = bounded_http1();
    loop {
        tokio::select! {
            Some(stream) = connections.next() => {
                let routes = routes.clone().layer(Extension(stream.connect_info()));
                let connection = http1.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
                // A connection ends with an error if its client breaks a limit or disconnects.
                tokio::spawn(open.watch(connection.into_owned()).map(drop));
            }
            () = &mut stop => break,
        }
    }
    open.shutdown().await;
    Ok(())
}

/// Returns a server of HTTP/1 connections with a limit on the header of each request, and on the time in which it must
/// arrive. Its answer to a larger header has no text, so the limit is twice that of [`request_header::bounded`].
fn bounded_http1() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(limits::HTTP_IDLE_MS_MAX))
        .max_buf_size(2 * limits::HTTP_HEADER_BYTES_MAX)
        .max_headers(2 * limits::HTTP_HEADERS_MAX);
    builder
}

async fn healthz<S: LockService>(State(port): State<Port<S>>) -> Response {
    // A stale read needs no other node, so a node without a quorum is healthy, too.
    let answer = match port.service.query(Query::Totals, Freshness::Stale).await {
        Ok(answered) => (StatusCode::OK, format!("ok: applied {}\n", answered.index)),
        Err(error) => unavailable(&error),
    };
    probed(&port.service, answer)
}

async fn readyz<S: LockService>(State(port): State<Port<S>>) -> Response {
    probed(&port.service, shared(&port.readiness, readiness(&port.service)).await)
}

/// Answers a probe. A node that knows its callers answers one word, because a probe shows no caller.
fn probed<S: LockService>(service: &S, (status, text): Readiness) -> Response {
    if !service.knows_callers() {
        return (status, text).into_response();
    }
    let word = if status == StatusCode::OK { text.split(':').next().unwrap_or_default() } else { "unready" };
    (status, format!("{word}\n")).into_response()
}

/// Returns the last answer if it is new enough, or else the answer of `asking`.
async fn shared(last: &Mutex<Option<(TokioInstant, Readiness)>>, asking: impl Future<Output = Readiness>) -> Readiness {
    let mut last = last.lock().await;
    let newest = Duration::from_millis(limits::READY_SHARED_MS);
    if let Some((_, answer)) = last.as_ref().filter(|(at, _)| at.elapsed() < newest) {
        return answer.clone();
    }
    let answer = asking.await;
    *last = Some((TokioInstant::now(), answer.clone()));
    answer
}

async fn readiness<S: LockService>(service: &S) -> Readiness {
    let wait = Duration::from_millis(limits::READY_WAIT_MS);
    match timeout(wait, service.query(Query::Totals, Freshness::Linearizable)).await {
        Ok(Ok(answered)) => (StatusCode::OK, format!("ready: applied {}\n", answered.index)),
        Ok(Err(error)) => unavailable(&error),
        Err(_) => {
            let text = format!("not ready: no quorum answered within {} ms\n", limits::READY_WAIT_MS);
            (StatusCode::SERVICE_UNAVAILABLE, text)
        }
    }
}

async fn metrics<S: LockService>(
    State(port): State<Port<S>>,
    Extension(connection): Extension<ConnectionInfo>,
    headers: HeaderMap,
) -> Response {
    let caller = api::for_caller(&port.service, &connection, &headers);
    if let Err(error) = caller.and_then(|caller| caller.permits(ClusterRight::Metrics)) {
        let status = StatusCode::from_u16(error.code().row().http).unwrap_or(StatusCode::FORBIDDEN);
        let demand = [(header::WWW_AUTHENTICATE, "Bearer")];
        return match status {
            StatusCode::UNAUTHORIZED => (status, demand, format!("{error}\n")).into_response(),
            _ => (status, format!("{error}\n")).into_response(),
        };
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], (port.render)()).into_response()
}

fn unavailable(error: &ServiceError) -> Readiness {
    (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {error}\n"))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;
    use crate::net::ConnectionsMax;

    const REQUEST: &str = "GET /a HTTP/1.1\r\nhost: a\r\n\r\n";

    fn routes() -> Router {
        Router::new().route("/a", get(async || "answer"))
    }

    /// The HTTP port closes a connection without requests.
    #[tokio::test(start_paused = true)]
    async fn a_silent_connection_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let connections = net::connections(listener, net::Port::Http, ConnectionsMax::default(), None);
        tokio::spawn(serve_routes(connections, routes(), std::future::pending()));
        let mut silent = TcpStream::connect(address).await.expect("connected");
        let longest = Duration::from_millis(2 * limits::HTTP_FIRST_REQUEST_MS_MAX);
        let read = timeout(longest, silent.read_u8()).await.expect("closed in time");
        assert!(read.is_err(), "the port answered: {read:?}");
    }

    /// Sends bytes on a connection, and returns the answer until the connection is closed and the time of that.
    async fn answer_to(sent: &str) -> (String, Duration) {
        let (mut client, server) = tokio::io::duplex(1 << 16);
        let routes = TowerToHyperService::new(routes());
        tokio::spawn(async move { bounded_http1().serve_connection(TokioIo::new(server), routes).await.map(drop) });
        client.write_all(sent.as_bytes()).await.expect("sent");
        let (mut answer, begun) = (String::new(), TokioInstant::now());
        let longest = Duration::from_millis(2 * limits::HTTP_IDLE_MS_MAX);
        timeout(longest, client.read_to_string(&mut answer)).await.expect("closed in time").expect("text");
        (answer, begun.elapsed())
    }

    /// H-20: probes of a short time share one question to the quorum, also those that arrive while it is asked.
    #[tokio::test(start_paused = true)]
    async fn probes_share_an_answer() {
        let (last, asked) = (Mutex::default(), std::cell::Cell::new(0));
        let probe = || {
            shared(&last, async {
                asked.set(asked.get() + 1);
                tokio::time::sleep(Duration::from_millis(10)).await;
                (StatusCode::OK, asked.get().to_string())
            })
        };
        let answers = futures_util::future::join_all((0..100).map(|_| probe())).await;
        assert!(answers.iter().all(|(_, text)| text == "1"), "{answers:?}");
        tokio::time::sleep(Duration::from_millis(limits::READY_SHARED_MS)).await;
        assert_eq!((probe().await.1, probe().await.1), ("2".to_owned(), "2".to_owned()));
    }

    /// A connection is closed if its next request does not arrive in time, and at once if a header is too large.
    #[tokio::test(start_paused = true)]
    async fn requests_are_bounded() {
        let idle = Duration::from_millis(limits::HTTP_IDLE_MS_MAX);
        for half in ["", "GET /a HT", "GET /a HTTP/1.1\r\nhost: a\r\n"] {
            let (answer, after) = answer_to(&format!("{REQUEST}{half}")).await;
            assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("answer"), "{answer}");
            assert_eq!(after.as_secs(), idle.as_secs(), "{half:?}");
        }
        let header = |lines: usize, bytes: usize| {
            let lines: String = (0..lines).map(|number| format!("x-{number}: {}\r\n", "x".repeat(bytes))).collect();
            REQUEST.replace("\r\n\r\n", &format!("\r\n{lines}\r\n"))
        };
        let (most, longest) = (2 * limits::HTTP_HEADERS_MAX, 2 * limits::HTTP_HEADER_BYTES_MAX);
        assert!(answer_to(&header(most - 1, 1)).await.0.starts_with("HTTP/1.1 200"));
        for large in [header(most, 1), header(1, longest)] {
            let (answer, after) = answer_to(&large).await;
            assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
            assert_eq!(after, Duration::ZERO);
        }
    }
}
