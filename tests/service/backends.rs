//! The three backends of the suite, which must behave alike.

use std::time::Duration;

use lockkeeper::model::{Query, QueryReply, Reply, SessionId};
use lockkeeper::node::Node;
use lockkeeper::rpc::RemoteService;
use lockkeeper::service::{
    Call, ClaimRef, Download, Events, Freshness, LockService, Operation, RenewalCall, ServiceError, Status,
    Subscription,
};
use tokio::sync::watch;

/// One of the backends. The suite and the client are compiled once for this type, instead of once for each backend.
#[derive(Debug, Clone)]
pub(crate) enum Backend {
    Embedded(Node),
    Remote(RemoteService),
}

impl Backend {
    pub(crate) async fn leader() -> Self {
        Self::Embedded(crate::leader().await)
    }

    pub(crate) async fn follower() -> Self {
        Self::Embedded(crate::follower().await)
    }

    pub(crate) async fn remote() -> Self {
        Self::Remote(crate::remote().await)
    }
}

/// Calls the method of the backend.
macro_rules! of {
    ($backend:expr, $service:ident => $call:expr) => {
        match $backend {
            Backend::Embedded($service) => $call,
            Backend::Remote($service) => $call,
        }
    };
}

impl LockService for Backend {
    async fn submit(&self, call: Call) -> Result<Reply, ServiceError> {
        of!(self, service => service.submit(call).await)
    }

    fn answers_within(&self) -> Option<Duration> {
        of!(self, service => service.answers_within())
    }

    fn attachment(&self, session: SessionId) -> watch::Receiver<bool> {
        of!(self, service => service.attachment(session))
    }

    async fn renew(&self, renewals: Vec<RenewalCall>) -> Result<Vec<Reply>, ServiceError> {
        of!(self, service => service.renew(renewals).await)
    }

    async fn wait_outcome(&self, claim: ClaimRef) -> Result<Reply, ServiceError> {
        of!(self, service => service.wait_outcome(claim).await)
    }

    async fn query(&self, query: Query, freshness: Freshness) -> Result<QueryReply, ServiceError> {
        of!(self, service => service.query(query, freshness).await)
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Events, ServiceError> {
        of!(self, service => service.subscribe(subscription).await)
    }

    fn hold_events(&self, session: SessionId) -> Result<Events, ServiceError> {
        of!(self, service => service.hold_events(session))
    }

    async fn status(&self) -> Result<Status, ServiceError> {
        of!(self, service => service.status().await)
    }

    async fn operate(&self, operation: Operation) -> Result<(), ServiceError> {
        of!(self, service => service.operate(operation).await)
    }

    async fn backup(&self) -> Result<Download, ServiceError> {
        of!(self, service => service.backup().await)
    }
}

/// Generates a test for each function and each backend: an embedded leader, an embedded follower, and a gRPC client.
macro_rules! backend_tests {
    (@ $backend:ident: $($name:ident)*) => { mod $backend { $(
        /// Runs the function of this name.
        #[tokio::test]
        async fn $name() {
            let service = crate::backends::Backend::$backend().await;
            crate::suite::BACKEND.scope(stringify!($backend), super::$name(service)).await;
        }
    )* } };
    ($($name:ident)*) => {
        backend_tests! { @ leader: $($name)* }
        backend_tests! { @ follower: $($name)* }
        backend_tests! { @ remote: $($name)* }
    };
}

// Tests of the recipes that reproduce other systems: over the leader and over gRPC. The recipes run in the client, so
// a follower adds only its forwarding, which the tests of the service cover.
macro_rules! recipe_tests {
    ($($name:ident)*) => {
        backend_tests! { @ leader: $($name)* }
        backend_tests! { @ remote: $($name)* }
    };
}
