//! The shortest way to a cluster: `Client::connect`.

use super::{RemoteService, RemoteSettings};
use crate::client::{Client, ClientError};
use crate::model::Query;
use crate::service::{Freshness, LockService, ServiceError};

impl Client<RemoteService> {
    /// A client of the cluster at these endpoints, `HOST:PORT` each; one that answers is enough. It looks now whether
    /// one does: an error says for every endpoint why not. Endpoints of two clusters are an error, too.
    pub async fn connect(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Result<Self, ClientError> {
        Self::connect_with(RemoteSettings::new(endpoints)).await
    }

    /// The same with encryption, another bound for connecting and one request, or the id of the only cluster to believe.
    pub async fn connect_with(settings: RemoteSettings) -> Result<Self, ClientError> {
        let wait = settings.request_wait;
        let service = RemoteService::new(settings).map_err(ServiceError::Invalid)?;
        // A stale read is answered by any node that serves, with or without a leader.
        service.query(Query::Totals, Freshness::Stale).await?;
        Ok(Client::new(service).request_wait(wait))
    }
}
