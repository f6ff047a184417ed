//! The cluster that a client accepts: the one from its settings, or the first one that its endpoints named. It never
//! changes.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::codegen::http::header::AUTHORIZATION;
use tonic::codegen::http::{HeaderMap, HeaderValue, Request, Response};
use tonic::codegen::{BoxFuture, Service, StdError};
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::model::Invalid;
use crate::mutex::Mutex;
use crate::net::{TlsRefusal, causes};
use crate::rpc::naming::{CLUSTER, header_of, is_unfounded, named};
use crate::service::{NotSent, ServiceError};

/// The cluster of one client, and the endpoints that do not belong to it.
pub(super) struct ClusterPin {
    /// Cluster from the settings.
    expected: Option<u128>,
    /// Accepted cluster with its header, once an endpoint was found that belongs to it.
    pinned: OnceLock<(u128, HeaderValue)>,
    /// Held by the caller that asks the endpoints, while other callers wait for its result.
    pub(super) looking: tokio::sync::Mutex<()>,
    /// Endpoints that cannot be used, with the reason.
    unfit: Mutex<BTreeMap<String, Unfit>>,
    /// Called with a sentence about each such endpoint.
    on_left_out: Option<fn(&str)>,
}

/// Why an endpoint cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unfit {
    /// A node of another cluster answers.
    Foreign(u128),
    /// A node answers whose cluster has no id yet.
    Unfounded,
    /// Another service than a node's client port answers.
    NoClientPort(String),
    /// The endpoint does not answer at the moment.
    Unreached(String),
    /// The node or this client refused the other's certificate.
    TlsRefused(TlsRefusal),
}

impl Unfit {
    /// Returns a sentence about the endpoint at this address.
    pub(super) fn about(&self, address: &str) -> String {
        match self {
            Unfit::Foreign(cluster_id) => format!("{address} belongs to cluster {cluster_id:032x}"),
            Unfit::Unfounded => format!("{address}: its cluster is not founded yet"),
            Unfit::NoClientPort(why) => format!("{address} is not a lockkeeper client port ({why})"),
            Unfit::Unreached(why) => format!("{address}: {why}"),
            Unfit::TlsRefused(refusal) => refusal.to_string(),
        }
    }

    /// Returns the error of a call if the node refused this client's certificate: another attempt is refused, too.
    pub(super) fn refused(&self, address: &str) -> Option<ServiceError> {
        let by_node = matches!(self, Unfit::TlsRefused(refusal) if refusal.by_node);
        by_node.then(|| ServiceError::Forbidden { why: self.about(address) })
    }
}

/// The cluster of an endpoint, or why the endpoint cannot be used.
pub(super) type Found = Result<u128, Unfit>;

impl ClusterPin {
    pub(super) fn new(expected: Option<u128>, on_left_out: Option<fn(&str)>) -> Self {
        let (pinned, looking, unfit) = (OnceLock::new(), tokio::sync::Mutex::default(), Mutex::default());
        Self { expected, pinned, looking, unfit, on_left_out }
    }

    /// Returns the accepted cluster, once it is known.
    pub(super) fn pinned(&self) -> Option<u128> {
        self.pinned.get().map(|(cluster_id, _)| *cluster_id)
    }

    /// Whether the client may accept this cluster.
    pub(super) fn accepts(&self, cluster_id: u128) -> bool {
        self.pinned().or(self.expected).is_none_or(|known| known == cluster_id)
    }

    /// Chooses the cluster by what the endpoints answered, in the order of the settings.
    pub(super) fn decide(&self, found: &[(&str, Found)]) -> Result<u128, ServiceError> {
        let mut clusters: Vec<u128> = found.iter().filter_map(|(_, found)| found.clone().ok()).collect();
        clusters.sort_unstable();
        clusters.dedup();
        let about = |(address, found): &(&str, Found)| match found {
            Ok(cluster_id) => Unfit::Foreign(*cluster_id).about(address),
            Err(unfit) => unfit.about(address),
        };
        let all = || found.iter().map(about).collect::<Vec<_>>().join("; ");
        let foreign = || found.iter().filter(|(_, found)| found.is_ok()).map(about).collect::<Vec<_>>().join("; ");
        let cluster_id = match (self.expected, clusters.as_slice()) {
            (Some(expected), clusters) if clusters.contains(&expected) => expected,
            (Some(expected), [_, ..]) if found.iter().all(|(_, found)| found.is_ok()) => {
                let bound = format!("a cluster of the endpoints ({})", all());
                return Err(Invalid::new("cluster", bound, format!("{expected:032x}")).into());
            }
            (_, []) if found.iter().any(|(_, found)| *found == Err(Unfit::Unfounded)) => {
                return Err(ServiceError::not_sent(NotSent::NoLeader));
            }
            _ if found.iter().any(|(_, found)| matches!(found, Err(Unfit::TlsRefused(refusal)) if refusal.by_node)) => {
                return Err(ServiceError::Forbidden { why: all() });
            }
            (Some(expected), _) => {
                return Err(unreachable(format!("no endpoint of cluster {expected:032x} answers: {}", all())));
            }
            (None, [only]) => *only,
            (None, []) => return Err(unreachable(all())),
            (None, [_, _, ..]) => {
                let bound = format!("nodes of one cluster; name the one to believe with --cluster ID ({})", foreign());
                return Err(Invalid::new("endpoints", bound, format!("{} clusters", clusters.len())).into());
            }
        };
        let (cluster_id, _) = self.pinned.get_or_init(|| (cluster_id, header_of(cluster_id)));
        for (address, found) in found {
            self.note(address, found);
        }
        Ok(*cluster_id)
    }

    /// Records the answer of an endpoint.
    pub(super) fn note(&self, address: &str, found: &Found) {
        let unfit = match found {
            Ok(cluster_id) if self.accepts(*cluster_id) => None,
            Ok(cluster_id) => Some(Unfit::Foreign(*cluster_id)),
            Err(Unfit::Unreached(_) | Unfit::Unfounded | Unfit::TlsRefused(_)) => return,
            Err(unfit) => Some(unfit.clone()),
        };
        let before = match &unfit {
            Some(unfit) => self.unfit.lock().insert(address.to_owned(), unfit.clone()),
            None => self.unfit.lock().remove(address),
        };
        let Some(unfit) = unfit.filter(|unfit| before.as_ref() != Some(unfit)) else { return };
        let sentence = format!("{} and is left out", unfit.about(address));
        tracing::warn!("{sentence}");
        if let Some(on_left_out) = self.on_left_out {
            on_left_out(&sentence);
        }
    }

    /// Returns the error of a call that no endpoint served.
    pub(super) fn unserved(&self, mut failures: String) -> ServiceError {
        let foreign = self.unfit.lock().values().any(|unfit| matches!(unfit, Unfit::Foreign(_)));
        if let Some(cluster_id) = self.pinned().filter(|_| foreign) {
            failures += &format!(
                "; this client stays with cluster {cluster_id:032x}: if that was restored from a backup, start again \
                 with a new process or a new Client"
            );
        }
        unreachable(failures)
    }

    /// Returns why an answer with these headers must not be used; `None` if it comes from the right cluster.
    fn check_answer(&self, address: &str, headers: &HeaderMap) -> Option<ServiceError> {
        let Some((pinned, header)) = self.pinned.get() else {
            return Some(ServiceError::unknown(format!("{address} was asked before a cluster was found")));
        };
        if headers.get(CLUSTER) == Some(header) {
            return None;
        }
        if is_unfounded(headers) {
            // The call named a cluster, so the node refused it.
            return Some(ServiceError::not_sent(NotSent::NoLeader));
        }
        let Some(cluster_id) = named(headers) else {
            let message = headers.get("grpc-message").and_then(|text| text.to_str().ok()).unwrap_or("nothing more");
            return Some(ServiceError::unknown(format!("the answer of {address} names no cluster: {message}")));
        };
        self.note(address, &Ok(cluster_id));
        Some(unreachable(format!("{address} belongs to cluster {cluster_id:032x}, not to {pinned:032x}")))
    }
}

fn unreachable(why: String) -> ServiceError {
    ServiceError::not_sent(NotSent::Unreachable(why))
}

/// Asks for the cluster of the node at the other end of a new connection; `None` if the cluster has no id yet. Changes
/// nothing on the node. The error is for display.
pub(super) async fn cluster_of(channel: Channel) -> Result<Option<u128>, String> {
    let asked = HealthCheckRequest { service: String::new() };
    let answered = HealthClient::new(channel).check(asked).await;
    let metadata = answered.as_ref().map_or_else(|status| status.metadata(), |answer| answer.metadata());
    let headers = metadata.clone().into_headers();
    match named(&headers) {
        None if is_unfounded(&headers) => Ok(None),
        None => Err(answered.map_or_else(|status| cause(&status), |_| "it names no cluster".to_owned())),
        named => Ok(named),
    }
}

/// Returns the innermost cause of an error: "connection refused" instead of "transport error".
pub(super) fn cause(error: &(dyn Error + 'static)) -> String {
    causes(error).last().unwrap_or(error).to_string()
}

/// A new connection, and the header that proves the client on it.
#[derive(Clone)]
pub(super) struct Dialled {
    pub(super) channel: Channel,
    pub(super) token: Option<HeaderValue>,
}

/// A connection for calls to the accepted cluster. Each call names the cluster, and each answer is checked before any
/// other part of it is decoded. An answer of another cluster counts as no answer: nothing was sent to the right one.
#[derive(Clone)]
pub(super) struct PinnedChannel {
    dialled: Dialled,
    address: Arc<str>,
    pin: Arc<ClusterPin>,
}

impl PinnedChannel {
    pub(super) fn new(dialled: Dialled, address: &str, pin: Arc<ClusterPin>) -> Self {
        Self { dialled, address: address.into(), pin }
    }

    /// Returns the header that proves the client in its calls.
    pub(super) fn token(&self) -> Option<HeaderValue> {
        self.dialled.token.clone()
    }

    /// Returns the cluster of its calls.
    pub(super) fn cluster_id(&self) -> Option<u128> {
        self.pin.pinned()
    }
}

impl Service<Request<Body>> for PinnedChannel {
    type Response = Response<Body>;
    type Error = StdError;
    type Future = BoxFuture<Response<Body>, StdError>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StdError>> {
        self.dialled.channel.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let Self { address, pin, .. } = self.clone();
        if let Some((_, header)) = pin.pinned.get() {
            request.headers_mut().insert(CLUSTER, header.clone());
        }
        if let Some(token) = &self.dialled.token {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        let answering = self.dialled.channel.call(request);
        Box::pin(async move {
            let response = answering.await?;
            match pin.check_answer(&address, response.headers()) {
                None => Ok(response),
                Some(error) => Err(tonic::Status::from(error).into()),
            }
        })
    }
}
