//! The headers that name the node and its cluster.

use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;

use crate::service::{LockService, ServerInfo};
use crate::shapes::cluster_id_text;

const NODE: HeaderName = HeaderName::from_static("lockkeeper-node");
const CLUSTER: HeaderName = HeaderName::from_static("lockkeeper-cluster");

/// Adds the headers to an answer.
pub(super) fn with_node_headers(info: &ServerInfo, mut answer: Response) -> Response {
    let headers = answer.headers_mut();
    headers.insert(NODE, info.node.into());
    let cluster_id = info.cluster_id.borrow().map(cluster_id_text);
    if let Some(value) = cluster_id.and_then(|text| HeaderValue::try_from(text).ok()) {
        headers.insert(CLUSTER, value);
    }
    answer
}

/// Adds the headers to every answer of a node that does not know its callers, also to refusals of the port. Otherwise
/// only a call whose caller is recognized gets them.
pub(super) async fn add<S: LockService>(
    State((service, info)): State<(S, ServerInfo)>,
    request: Request,
    next: Next,
) -> Response {
    let answer = next.run(request).await;
    if service.knows_callers() { answer } else { with_node_headers(&info, answer) }
}
