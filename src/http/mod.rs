//! The HTTP port: health, readiness and metrics.
//!
//! Knows: limits, model, service. Never: the machine, storage, consensus.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;

use crate::limits;
use crate::model::Query;
use crate::service::{Freshness, LockService, ServiceError};

/// Writes all metrics in Prometheus' text format.
pub type Render = Arc<dyn Fn() -> String + Send + Sync>;

#[derive(Clone)]
struct Port<S> {
    service: S,
    render: Render,
}

/// Serves until `stop` resolves:
///
/// - `/healthz`: 200 while the process answers at all;
/// - `/readyz`: 200 while a linearizable read through this node succeeds, else 503 with the reason;
/// - `/metrics`: Prometheus' text format.
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
    axum::serve(listener, routes).with_graceful_shutdown(stop).await
}

async fn healthz<S: LockService>(State(port): State<Port<S>>) -> Response {
    // A stale read needs nobody else: a node without a quorum is well, too.
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
