//! The health service of gRPC: each service of a node serves until the node stops.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, StreamExt, stream};
use tokio::sync::{Semaphore, watch};
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse, health_server};

use crate::limits::HEALTH_WATCHES_MAX;
use crate::rpc::background::stopped;
use crate::rpc::pb;

/// The names of the services, and the empty name of the whole node.
const SERVICES: [&str; 3] = ["", pb::locks_server::SERVICE_NAME, pb::admin_server::SERVICE_NAME];

/// Answers callers without any proof, so it bounds what they can leave open.
pub(super) struct Health {
    stop: watch::Receiver<bool>,
    watches: Arc<Semaphore>,
}

impl Health {
    pub(super) fn new(stop: watch::Receiver<bool>) -> Self {
        Self { stop, watches: Arc::new(Semaphore::new(HEALTH_WATCHES_MAX)) }
    }

    fn status(&self, service: &str) -> ServingStatus {
        match (SERVICES.contains(&service), *self.stop.borrow()) {
            (false, _) => ServingStatus::ServiceUnknown,
            (true, false) => ServingStatus::Serving,
            (true, true) => ServingStatus::NotServing,
        }
    }
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl health_server::Health for Health {
    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let HealthCheckRequest { service } = request.into_inner();
        let status = self.status(&service);
        if status == ServingStatus::ServiceUnknown {
            return Err(Status::not_found("a node has no service of this name"));
        }
        Ok(Response::new(answer(status)))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    /// Sends the current status, and the one after the stop signal.
    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let HealthCheckRequest { service } = request.into_inner();
        let Ok(place) = Arc::clone(&self.watches).try_acquire_owned() else {
            let full =
                format!("{HEALTH_WATCHES_MAX} callers watch the health of this node, which is the most; use Check");
            return Err(Status::resource_exhausted(full));
        };
        let (first, stop) = (self.status(&service), self.stop.clone());
        let last = async move {
            stopped(stop).await;
            drop(place);
            if first == ServingStatus::ServiceUnknown { first } else { ServingStatus::NotServing }
        };
        let statuses = stream::iter([first]).chain(stream::once(last));
        Ok(Response::new(Box::pin(statuses.map(|status| Ok(answer(status))))))
    }
}

#[cfg(test)]
mod tests {
    use tonic_health::pb::health_server::Health as _;

    use super::*;

    fn asked(service: &str) -> Request<HealthCheckRequest> {
        Request::new(HealthCheckRequest { service: service.to_owned() })
    }

    /// A watch gets the status at once, and another one when the node stops.
    #[tokio::test]
    async fn a_watch_ends_with_the_node() {
        let (stop, stopping) = watch::channel(false);
        let health = Health::new(stopping);
        for (service, statuses) in
            [("", [ServingStatus::Serving, ServingStatus::NotServing]), ("other", [ServingStatus::ServiceUnknown; 2])]
        {
            stop.send_replace(false);
            let mut watched = health.watch(asked(service)).await.expect("watched").into_inner();
            for status in statuses {
                assert_eq!(watched.next().await.expect("a status").expect("an answer"), answer(status));
                stop.send_replace(true);
            }
            assert!(watched.next().await.is_none());
        }
    }

    /// Callers without any proof can open a bounded number of watches. The place of one that leaves is free again.
    #[tokio::test]
    async fn watches_are_bounded() {
        let (_stop, stopping) = watch::channel(false);
        let health = Health::new(stopping);
        let mut open = Vec::new();
        for _ in 0..HEALTH_WATCHES_MAX {
            open.push(health.watch(asked("")).await.expect("a place"));
        }
        let full = health.watch(asked("")).await.map(drop).expect_err("no place");
        assert_eq!(full.code(), tonic::Code::ResourceExhausted);
        open.pop();
        health.watch(asked("")).await.expect("a place");
    }
}
