//! Measures the gRPC calls of the port for clients.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use metrics::Counter;
use tokio::time::Instant as TokioInstant;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Request};
use tonic::{Code, Status};

use crate::limits;
use crate::rpc::middleware::{Answer, Answering, Middleware};
use crate::service::{ErrorCode, REFUSALS};
use crate::telemetry::{CallKind, CallMetrics, CallNames, OTHER, OpenStream, Series};

/// The metrics of the port.
pub(super) static NAMES: CallNames = CallNames {
    requests: ["lockkeeper_grpc_requests_total", "Ended gRPC calls, by method and number of their status"],
    call: "method",
    duration: [
        "lockkeeper_grpc_request_duration_seconds",
        "Time from the arrival of a gRPC call that is no stream until its answer was complete, by kind",
    ],
    streams: ["lockkeeper_grpc_streams", "Open streams of gRPC"],
    most: limits::METRICS_GRPC_REQUESTS_MAX,
};

/// Returns the counter of what the port of this node refuses because there is no place for it. The service does not see
/// that, so it counts only its own refusals.
pub(super) fn overloaded(node: u64) -> Counter {
    let [name, help] = REFUSALS;
    Series::new(node).counter(name, help, &[("word", ErrorCode::Overloaded.row().text)])
}

/// Methods that last as long as their callers want.
const STREAMS: [&str; 5] = ["Locks/Session", "Locks/Watch", "Locks/WatchTokens", "Admin/Backup", "Health/Watch"];
/// Methods that may wait for a lock.
const WAITS: [&str; 3] = ["Locks/Acquire", "Locks/Wait", "Locks/WaitOutcome"];
/// Methods that are commands, or requests of operators.
const COMMANDS: [&str; 10] = [
    "Locks/OpenSession",
    "Locks/KeepAlive",
    "Locks/Refresh",
    "Locks/Release",
    "Locks/CloseSession",
    "Locks/Submit",
    "Locks/Renew",
    "Admin/Transfer",
    "Admin/RaiseFeatures",
    "Admin/ChangeMembers",
];
/// Methods that change nothing.
const READS: [&str; 8] = [
    "Locks/Check",
    "Locks/Inspect",
    "Locks/List",
    "Locks/Explain",
    "Locks/Query",
    "Admin/Status",
    "Admin/WhoAmI",
    "Health/Check",
];

/// Measures the calls of a service.
#[derive(Debug, Clone)]
pub(super) struct Measured(pub(super) Arc<CallMetrics>);

impl Middleware for Measured {
    fn call<F>(&self, request: Request<Body>, next: impl FnOnce(Request<Body>) -> F) -> Answering
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let mut open = OpenCall::new(Arc::clone(&self.0), request.uri().path());
        let answering = next(request);
        Box::pin(async move {
            let response = answering.await?;
            // An answer without messages may have its status here.
            if let Some(code) = code(response.headers()) {
                open.end(code);
                return Ok(response);
            }
            Ok(response.map(|body| Body::new(MeasuredBody { body, open })))
        })
    }
}

/// Returns the status in the header or trailer of an answer.
fn code(headers: &HeaderMap) -> Option<Code> {
    Some(Code::from_bytes(headers.get(Status::GRPC_STATUS)?.as_bytes()))
}

/// Returns the method of a path, without the package of its service. Callers may send any path, also before the port
/// knows them, so every other path is one method.
fn method(path: &str) -> &'static str {
    let asked = path.rsplit_once('.').map_or(path, |(_, method)| method);
    let mut methods = STREAMS.iter().chain(&WAITS).chain(&COMMANDS).chain(&READS);
    methods.find(|method| **method == asked).copied().unwrap_or(OTHER)
}

/// A call that has not ended. Dropping it means that its caller has left.
struct OpenCall {
    calls: Arc<CallMetrics>,
    method: &'static str,
    begun: TokioInstant,
    stream: Option<OpenStream>,
    ended: bool,
}

impl OpenCall {
    fn new(calls: Arc<CallMetrics>, path: &str) -> Self {
        let method = method(path);
        let stream = STREAMS.contains(&method).then(|| calls.stream());
        Self { calls, method, begun: TokioInstant::now(), stream, ended: false }
    }

    fn end(&mut self, code: Code) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        // A stranger must not fill the series of the callers that the cluster knows.
        let method = if code == Code::Unauthenticated { OTHER } else { self.method };
        self.calls.answered(method, code as u16);
        if self.stream.is_none() {
            let kind = if WAITS.contains(&method) {
                CallKind::Wait
            } else if READS.contains(&method) {
                CallKind::Read
            } else {
                CallKind::Command
            };
            self.calls.took(kind, self.begun.elapsed());
        }
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.end(Code::Cancelled);
    }
}

/// The body of an answer, whose trailer has the status.
struct MeasuredBody {
    body: Body,
    open: OpenCall,
}

impl http_body::Body for MeasuredBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(code) = frame.trailers_ref().and_then(code)
        {
            self.open.end(code);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::pb;

    /// Each listed method exists, and every method that streams is listed as a stream.
    #[test]
    fn the_lists_are_those_of_the_services() {
        let pool = prost_reflect::DescriptorPool::decode(pb::DESCRIPTORS).expect("descriptors");
        let methods: Vec<_> = pool
            .services()
            .filter(|service| ["Locks", "Admin"].contains(&service.name()))
            .flat_map(|service| service.methods().collect::<Vec<_>>())
            .map(|method| {
                (format!("{}/{}", method.parent_service().name(), method.name()), method.is_server_streaming())
            })
            .collect();
        assert!(methods.len() > 20, "{methods:?}");
        for (method, streams) in &methods {
            assert_eq!(STREAMS.contains(&method.as_str()), *streams, "{method}");
        }
        let listed =
            STREAMS.iter().chain(&WAITS).chain(&COMMANDS).chain(&READS).filter(|method| !method.starts_with("Health/"));
        for listed in listed {
            assert!(methods.iter().any(|(method, _)| method == listed), "{listed} does not exist");
        }
        for (listed, _) in &methods {
            assert_eq!(method(&format!("/lockkeeper.v1.{listed}")), listed);
        }
        assert_eq!(method(&format!("/lockkeeper.v1.Locks/{}", "x".repeat(30_000))), OTHER);
        assert_eq!(method("/lockkeeper.v1.Locks/Acquire"), "Locks/Acquire");
        assert_eq!(method("/grpc.health.v1.Health/Check"), "Health/Check");
    }
}
