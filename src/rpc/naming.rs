//! The headers that name a cluster. Every call, every answer and every error contains them, so that the receiver knows
//! whether it came from the right cluster before it decodes any other part.
//!
//! A call of a web page is refused here, too, and the service records it: a browser adds the header `origin`, and a
//! client does not. A request that is no call of gRPC is refused as well: a link can send one without that header, and
//! tonic would execute it.
//!
//! A call that names another cluster is refused here, before the service sees it. A call that names none is served:
//! programs other than this crate's client may omit the header.
//!
//! A node whose cluster is being founded has no id for a moment. Its answers name only the group, and a call that names
//! a cluster gets the error that no node leads yet.

use futures_util::future::{Either, ready};
use tokio::sync::watch;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::header::{ALLOW, CONTENT_TYPE, ORIGIN};
use tonic::codegen::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};

use super::middleware::{Answer, Answering, Middleware};
use crate::model::{Invalid, parse_cluster_id};
use crate::net::ConnectionInfo;
use crate::service::{LockService, NotSent, ServiceError, Source};

/// Header of a call: its target cluster. Header of an answer: the cluster of the answering node.
pub(super) const CLUSTER: HeaderName = HeaderName::from_static("lockkeeper-cluster");
/// Header of an answer: the Raft group that answers.
pub(super) const GROUP: HeaderName = HeaderName::from_static("lockkeeper-group");
/// How the content type of every call begins; an encoding may follow.
const GRPC: &[u8] = b"application/grpc";
/// The only Raft group.
const GROUP_ID: HeaderValue = HeaderValue::from_static("0");

/// Returns a cluster's id as a header: 32 hexadecimal digits.
pub(super) fn header_of(cluster_id: u128) -> HeaderValue {
    HeaderValue::try_from(format!("{cluster_id:032x}")).expect("hexadecimal digits are a valid header")
}

/// Returns the cluster that the headers name; `None` if they name none.
pub(super) fn named(headers: &HeaderMap) -> Option<u128> {
    parse_cluster_id(headers.get(CLUSTER)?.to_str().ok()?).ok()
}

/// Whether these are the headers of an answer from a node whose cluster has no id yet.
pub(super) fn is_unfounded(headers: &HeaderMap) -> bool {
    headers.contains_key(GROUP) && !headers.contains_key(CLUSTER)
}

/// Adds and checks these headers.
#[derive(Clone)]
pub(super) struct ClusterHeaders<S> {
    /// Records the requests of web pages.
    pub(super) service: S,
    /// Id of the node's cluster, see [`ServerInfo::cluster_id`](crate::service::ServerInfo::cluster_id).
    pub(super) cluster_id: watch::Receiver<Option<u128>>,
}

impl<S: LockService> ClusterHeaders<S> {
    /// Returns the refusal of a request that a web page sent, after the service has recorded it.
    fn refused_page(&self, request: &Request<Body>) -> Option<Status> {
        if !request.headers().contains_key(ORIGIN) {
            return None;
        }
        let refusal = ServiceError::Forbidden { why: "a web page may not call this port".to_owned() };
        let connection: Option<&ConnectionInfo> = request.extensions().get();
        if let Some(connection) = connection {
            self.service.page_refused(Source::Connection(connection.id()), connection.from, &refusal);
        }
        Some(refusal.into())
    }
}

/// Returns the refusal of a call for another cluster than this node's, or for a cluster while this node has no id yet.
fn refused(headers: &HeaderMap, own: Option<&HeaderValue>) -> Option<Status> {
    let meant = headers.get(CLUSTER).filter(|meant| Some(*meant) != own)?;
    let Some(own) = own else { return Some(ServiceError::not_sent(NotSent::NoLeader).into()) };
    let bound = format!("{}, which this node belongs to", String::from_utf8_lossy(own.as_bytes()));
    Some(Invalid::new("cluster_id", bound, String::from_utf8_lossy(meant.as_bytes())).into())
}

/// Returns the answer to a request that is no call of gRPC.
fn no_call(method: &Method, headers: &HeaderMap) -> Option<Response<Body>> {
    let after = headers.get(CONTENT_TYPE).and_then(|kind| kind.as_bytes().strip_prefix(GRPC));
    let is_grpc = after.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')));
    let (status, why) = if method != Method::POST {
        (StatusCode::METHOD_NOT_ALLOWED, "a call has the method POST")
    } else if !is_grpc {
        (StatusCode::UNSUPPORTED_MEDIA_TYPE, "a call has the content type application/grpc")
    } else {
        return None;
    };
    let mut answer: Response<Body> = Status::invalid_argument(why).into_http();
    *answer.status_mut() = status;
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    Some(answer)
}

impl<S: LockService> Middleware for ClusterHeaders<S> {
    fn call<F>(&self, request: Request<Body>, next: impl FnOnce(Request<Body>) -> F) -> Answering
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        // Read once: a call that was refused because the cluster had no id must not be answered with its id.
        let own = self.cluster_id.borrow().map(header_of);
        // Recorded also if it is no call: before a page may make one, its browser asks for it with another method.
        let of_page = self.refused_page(&request).map(Status::into_http);
        let refusal = no_call(request.method(), request.headers())
            .or(of_page)
            .or_else(|| refused(request.headers(), own.as_ref()).map(Status::into_http));
        let answering = match refusal {
            Some(answer) => Either::Left(ready(Ok(answer))),
            None => Either::Right(next(request)),
        };
        Box::pin(async move {
            let mut response = answering.await?;
            if let Some(own) = own {
                response.headers_mut().insert(CLUSTER, own);
            }
            response.headers_mut().insert(GROUP, GROUP_ID);
            Ok(response)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::fake::Fake;

    fn of_cluster(id: u128) -> ClusterHeaders<Fake> {
        ClusterHeaders { service: Fake::new().0, cluster_id: watch::channel(Some(id)).1 }
    }

    /// A browser adds the origin of its page to a request, also of a page from this port. The service records each such
    /// request, also one that is no call.
    #[tokio::test]
    async fn requests_of_web_pages_are_refused_and_recorded() {
        let headers = of_cluster(7);
        let requests = [
            (Method::POST, "application/grpc", 200, "7"),
            (Method::OPTIONS, "application/grpc", 405, "3"),
            (Method::POST, "text/plain", 415, "3"),
        ];
        for (recorded, (method, kind, status, code)) in (1..).zip(requests) {
            let mut request = Request::new(Body::empty());
            *request.method_mut() = method;
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            request.headers_mut().insert(ORIGIN, HeaderValue::from_static("https://127.0.0.1:7601"));
            request.extensions_mut().insert(ConnectionInfo::new(None, false, None));
            let answered = headers.call(request, |_| ready(Ok(Response::new(Body::empty())))).await.expect("an answer");
            let refused = answered.headers().get(Status::GRPC_STATUS).expect("a refusal");
            assert_eq!((answered.status().as_u16(), refused.as_bytes()), (status, code.as_bytes()), "{kind}");
            assert_eq!(headers.service.pages(), recorded, "{kind}");
        }
    }

    /// Only a POST of gRPC reaches the service. The status of any other request says what is wrong, for gRPC, too.
    #[tokio::test]
    async fn only_calls_of_grpc_are_served() {
        let headers = of_cluster(7);
        for (method, kind, status) in [
            (Method::GET, Some("application/grpc"), 405),
            (Method::PUT, Some("application/grpc"), 405),
            (Method::OPTIONS, None, 405),
            (Method::POST, None, 415),
            (Method::POST, Some("text/plain"), 415),
            (Method::POST, Some("application/x-www-form-urlencoded"), 415),
            (Method::POST, Some("application/grpc-web"), 415),
            (Method::POST, Some("application/grpc"), 200),
            (Method::POST, Some("application/grpc+proto"), 200),
        ] {
            let mut request = Request::new(Body::empty());
            *request.method_mut() = method;
            if let Some(kind) = kind {
                request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            }
            let mut served = false;
            let answering = headers.call(request, |_| {
                served = true;
                ready(Ok(Response::new(Body::empty())))
            });
            let answered = answering.await.expect("an answer");
            assert_eq!((answered.status().as_u16(), served), (status, status == 200), "{kind:?}");
            let refused = answered.headers().get(Status::GRPC_STATUS).is_some_and(|status| status == "3");
            assert_eq!((refused, named(answered.headers())), (status != 200, Some(7)), "{kind:?}");
        }
    }
}
