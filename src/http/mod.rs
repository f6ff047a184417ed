//! The HTTP port: health, readiness and metrics.
//!
//! Knows: limits, model, net, service. Never: the machine, storage, consensus.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::{Stream, StreamExt};
use tokio::net::{TcpListener, TcpStream};

use crate::limits;
use crate::model::Query;
use crate::net::{self, Greeted, arrivals};
use crate::service::{Freshness, LockService, ServiceError};

/// Returns all metrics in the text format of Prometheus.
pub type Render = Arc<dyn Fn() -> String + Send + Sync>;

#[derive(Clone)]
struct Port<S> {
    service: S,
    render: Render,
}

/// Serves until `stop` completes:
///
/// - `/healthz`: 200 while the process answers;
/// - `/readyz`: 200 while a linearizable read through this node succeeds, otherwise 503 with the reason;
/// - `/metrics`: all metrics in the text format of Prometheus.
pub async fn serve<S: LockService>(
    listener: TcpListener,
    service: S,
    render: Render,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let routes = Router::new()
        .route("/healthz", get(healthz::<S>))
        .route("/readyz", get(readyz::<S>))
        .route("/metrics", get(metrics::<S>))
        .with_state(Port { service, render });
    serve_routes(listener, routes, stop).await
}

async fn serve_routes(
    listener: TcpListener,
    routes: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let arrivals = Arrivals(Box::pin(arrivals(listener, net::Port::Http)));
    axum::serve(arrivals, routes).with_graceful_shutdown(stop).await
}

/// The accepted connections of the port, in the form that axum takes.
struct Arrivals(Pin<Box<dyn Stream<Item = Greeted<TcpStream>> + Send>>);

impl axum::serve::Listener for Arrivals {
    type Io = Greeted<TcpStream>;
    type Addr = ();

    async fn accept(&mut self) -> (Self::Io, ()) {
        match self.0.next().await {
            Some(stream) => (stream, ()),
            // The stream of connections never ends.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn healthz<S: LockService>(State(port): State<Port<S>>) -> Response {
    // A stale read needs no other node, so a node without a quorum is healthy, too.
    match port.service.query(Query::Totals, Freshness::Stale).await {
        Ok(answered) => format!("ok: applied {}\n", answered.index).into_response(),
        Err(error) => unavailable(&error),
    }
}

async fn readyz<S: LockService>(State(port): State<Port<S>>) -> Response {
    let wait = Duration::from_millis(limits::READY_WAIT_MS);
    match tokio::time::timeout(wait, port.service.query(Query::Totals, Freshness::Linearizable)).await {
        Ok(Ok(answered)) => format!("ready: applied {}\n", answered.index).into_response(),
        Ok(Err(error)) => unavailable(&error),
        Err(_) => {
            let text = format!("not ready: no quorum answered within {} ms\n", limits::READY_WAIT_MS);
            (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
        }
    }
}

async fn metrics<S: LockService>(State(port): State<Port<S>>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], (port.render)()).into_response()
}

fn unavailable(error: &ServiceError) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {error}\n")).into_response()
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::time::timeout;

    use super::*;

    /// The HTTP port closes a connection without requests.
    #[tokio::test(start_paused = true)]
    async fn a_silent_connection_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(serve_routes(listener, Router::new(), std::future::pending()));
        let mut silent = TcpStream::connect(address).await.expect("connected");
        let longest = Duration::from_millis(2 * limits::FIRST_BYTES_MS_MAX);
        let read = timeout(longest, silent.read_u8()).await.expect("closed in time");
        assert!(read.is_err(), "the port answered: {read:?}");
    }
}
