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

/// The methods with the kinds of their durations. One without a kind is a stream, which lasts as long as its caller
/// wants.
const METHODS: [(&str, Option<CallKind>); 26] = [
    ("Locks/Session", None),
    ("Locks/Watch", None),
    ("Locks/WatchTokens", None),
    ("Admin/Backup", None),
    ("Health/Watch", None),
    ("Locks/Acquire", Some(CallKind::Wait)),
    ("Locks/Wait", Some(CallKind::Wait)),
    ("Locks/WaitOutcome", Some(CallKind::Wait)),
    ("Locks/OpenSession", Some(CallKind::Command)),
    ("Locks/KeepAlive", Some(CallKind::Command)),
    ("Locks/Refresh", Some(CallKind::Command)),
    ("Locks/Release", Some(CallKind::Command)),
    ("Locks/CloseSession", Some(CallKind::Command)),
    ("Locks/Submit", Some(CallKind::Command)),
    ("Locks/Renew", Some(CallKind::Command)),
    ("Admin/Transfer", Some(CallKind::Command)),
    ("Admin/RaiseFeatures", Some(CallKind::Command)),
    ("Admin/ChangeMembers", Some(CallKind::Command)),
    ("Locks/Check", Some(CallKind::Read)),
    ("Locks/Inspect", Some(CallKind::Read)),
    ("Locks/List", Some(CallKind::Read)),
    ("Locks/Explain", Some(CallKind::Read)),
    ("Locks/Query", Some(CallKind::Read)),
    ("Admin/Status", Some(CallKind::Read)),
    ("Admin/WhoAmI", Some(CallKind::Read)),
    ("Health/Check", Some(CallKind::Read)),
];

/// Measures the calls of a service.
#[derive(Clone)]
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

/// Returns the method of a path, without the package of its service, and its kind. Callers may send any path, also
/// before the port knows them, so every other path is one method.
fn method(path: &str) -> (&'static str, Option<CallKind>) {
    let asked = path.rsplit_once('.').map_or(path, |(_, method)| method);
    let known = METHODS.iter().find(|(method, _)| *method == asked);
    known.copied().unwrap_or((OTHER, Some(CallKind::Command)))
}

/// A call that has not ended. Dropping it means that its caller has left.
struct OpenCall {
    calls: Arc<CallMetrics>,
    method: &'static str,
    kind: Option<CallKind>,
    begun: TokioInstant,
    /// Counts the call as open if it is a stream.
    _stream: Option<OpenStream>,
    ended: bool,
}

impl OpenCall {
    fn new(calls: Arc<CallMetrics>, path: &str) -> Self {
        let (method, kind) = method(path);
        let stream = kind.is_none().then(|| calls.stream());
        Self { calls, method, kind, begun: TokioInstant::now(), _stream: stream, ended: false }
    }

    fn end(&mut self, code: Code) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        // A stranger must not fill the series of the callers that the cluster knows.
        let is_stranger = code == Code::Unauthenticated;
        self.calls.answered(if is_stranger { OTHER } else { self.method }, code as u16);
        if let Some(kind) = self.kind {
            self.calls.took(if is_stranger { CallKind::Command } else { kind }, self.begun.elapsed());
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

    /// Each listed method exists, and exactly the methods that stream are listed as streams.
    #[test]
    fn the_methods_are_those_of_the_services() {
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
        for (listed, _) in METHODS.iter().filter(|(method, _)| !method.starts_with("Health/")) {
            assert!(methods.iter().any(|(method, _)| method == listed), "{listed} does not exist");
        }
        for (listed, streams) in &methods {
            let (found, kind) = method(&format!("/lockkeeper.v1.{listed}"));
            assert_eq!((found, kind.is_none()), (listed.as_str(), *streams));
        }
        let unknown = format!("/lockkeeper.v1.Locks/{}", "x".repeat(30_000));
        assert_eq!(method(&unknown), (OTHER, Some(CallKind::Command)));
        assert_eq!(method("/lockkeeper.v1.Locks/Acquire"), ("Locks/Acquire", Some(CallKind::Wait)));
        assert_eq!(method("/grpc.health.v1.Health/Check"), ("Health/Check", Some(CallKind::Read)));
    }
}
