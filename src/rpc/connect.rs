//! `Client::connect`, the shortest way to use a cluster.

use std::sync::Arc;

use super::{RemoteService, RemoteSettings};
use crate::client::{Client, ClientError, Retry};
use crate::clock::SystemClock;
use crate::model::Query;
use crate::service::{Freshness, LockService, NotSent, ServiceError};

impl Client<RemoteService> {
    /// Returns a client of the cluster at these endpoints, `HOST:PORT` each; one that answers is enough. It contacts
    /// them now: the error names every endpoint and why it did not answer. Endpoints of two clusters are an error, too.
    /// If the cluster is not founded yet, waits for that, for at most the time of one request.
    pub async fn connect(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Result<Self, ClientError> {
        Self::connect_with(RemoteSettings::new(endpoints)).await
    }

    /// Returns a client with encryption, another time limit for connecting and one request, or the id of the only
    /// cluster to accept.
    pub async fn connect_with(settings: RemoteSettings) -> Result<Self, ClientError> {
        let wait = settings.request_wait;
        let service = RemoteService::new(settings).map_err(ServiceError::Invalid)?;
        // Any running node of a founded cluster answers a stale read, with or without a leader.
        let founded = || async {
            match service.query(Query::Totals, Freshness::Stale).await {
                Err(error @ ServiceError::NotSent { why: NotSent::NoLeader, .. }) => Err(error),
                answered => Ok(answered),
            }
        };
        // The service itself ends each attempt in time, with an error that names every endpoint.
        let retry = Retry::new(Arc::new(SystemClock::monotonic()), wait);
        retry.of_attempts_within(service.answers_within()).until_read(founded).await??;
        Ok(Client::new(service).request_wait(wait))
    }
}
