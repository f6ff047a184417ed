//! Measures the requests of the HTTP port.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::StreamExt;
use tokio::time::Instant as TokioInstant;

use super::api::RefusedByPort;
use crate::limits;
use crate::service::REFUSALS;
use crate::telemetry::{CallKind, CallMetrics, CallNames, OTHER, Series};

/// The metrics of the port.
static NAMES: CallNames = CallNames {
    requests: ["lockkeeper_http_requests_total", "Answered HTTP requests, by route and status"],
    call: "route",
    duration: [
        "lockkeeper_http_request_duration_seconds",
        "Time from the arrival of an HTTP request until its answer began, by kind",
    ],
    streams: ["lockkeeper_http_streams", "Open answers of HTTP requests that send events"],
    most: limits::METRICS_HTTP_REQUESTS_MAX,
};

/// Routes whose requests may wait for a lock, by their ends.
const WAITS: [&str; 4] = ["/acquire", "/wait", "/hold", "/upgrade"];
/// Routes of `POST` whose requests change nothing, by their ends.
const READS: [&str; 1] = ["/check"];

/// The metrics of the port of one node.
pub(super) struct Measures {
    calls: CallMetrics,
    series: Series,
}

impl Measures {
    /// Creates the metrics of the port of this node.
    pub(super) fn new(node: u64) -> Self {
        Self { calls: CallMetrics::new(node, &NAMES), series: Series::new(node) }
    }
}

/// Counts a request and its time, and the code with which the port itself refused it.
pub(super) async fn measured(State(measures): State<Arc<Measures>>, request: Request, next: Next) -> Response {
    let Measures { calls, series } = &*measures;
    let begun = TokioInstant::now();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or(OTHER, |path| path.as_str());
    let kind = kind(request.method(), route);
    let answer = next.run(request).await;
    calls.answered(route, answer.status().as_u16());
    calls.took(kind, begun.elapsed());
    if let Some(RefusedByPort(code)) = answer.extensions().get() {
        let [name, help] = REFUSALS;
        series.counter(name, help, &[("word", code.row().text)]).increment(1);
    }
    if !sends_events(answer.headers()) {
        return answer;
    }
    let open = calls.stream();
    // The stream counts as open until its body is dropped.
    answer.map(|body| {
        Body::from_stream(body.into_data_stream().inspect(move |_| {
            let _counted = &open;
        }))
    })
}

fn kind(method: &Method, route: &str) -> CallKind {
    let ends = |with: &[&str]| with.iter().any(|end| route.ends_with(end));
    match *method {
        Method::POST if ends(&WAITS) => CallKind::Wait,
        Method::POST if !ends(&READS) => CallKind::Command,
        _ => CallKind::Read,
    }
}

fn sends_events(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.as_bytes());
    kind.is_some_and(|kind| [&b"text/event-stream"[..], b"application/x-ndjson"].iter().any(|of| kind.starts_with(of)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request that may wait for a lock is not measured together with those that are answered at once.
    #[test]
    fn waits_are_measured_apart() {
        let of = |method, route| kind(&method, route);
        assert_eq!(of(Method::POST, "/v1/ns/{namespace}/acquire"), CallKind::Wait);
        assert_eq!(of(Method::POST, "/v1/ns/{namespace}/upgrade"), CallKind::Wait);
        assert_eq!(of(Method::POST, "/v1/ns/{namespace}/release"), CallKind::Command);
        assert_eq!(of(Method::POST, "/v1/ns/{namespace}/check"), CallKind::Read);
        assert_eq!(of(Method::GET, "/v1/ns/{namespace}/sessions"), CallKind::Read);
        assert_eq!(of(Method::POST, "/v1/ns/{namespace}/sessions"), CallKind::Command);
    }
}
