//! The stream of a lock's valid tokens, for resources in any language: all of them first, then what changes.

use std::pin::Pin;

use futures_util::{Stream, stream};
use tokio::sync::watch;
use tonic::Status;

use crate::model::{LockKey, Query, QueryResult, ValidTokens};
use crate::rpc::convert::error_to_status;
use crate::rpc::pb;
use crate::service::{Events, Freshness, LockService, Scope, ServiceError, Subscription};

/// What a call of `WatchTokens` answers.
pub(super) type TokenStream = Pin<Box<dyn Stream<Item = Result<pb::TokensReply, Status>> + Send>>;

/// One running stream.
struct Following<S> {
    service: S,
    lock: LockKey,
    stop: watch::Receiver<bool>,
    /// What was told, and the events that follow it; `None` where everything is to be told.
    told: Option<(ValidTokens, Events)>,
}

/// Tells the valid tokens of a lock until the caller goes or the node stops.
pub(super) fn token_stream<S: LockService>(service: S, lock: LockKey, stop: watch::Receiver<bool>) -> TokenStream {
    let following = Following { service, lock, stop, told: None };
    Box::pin(stream::unfold(Some(following), |following| async move {
        let mut following = following?;
        let mut stop = following.stop.clone();
        let next = tokio::select! {
            next = following.next() => next,
            _ = stop.wait_for(|stopped| *stopped) => Err(ServiceError::Stopping),
        };
        Some(match next {
            Ok(reply) => (Ok(reply), Some(following)),
            Err(error) => (Err(error_to_status(&error)), None),
        })
    }))
}

impl<S: LockService> Following<S> {
    async fn next(&mut self) -> Result<pb::TokensReply, ServiceError> {
        loop {
            let Some((valid, events)) = &mut self.told else { return self.all().await };
            match events.next().await {
                Ok(event) => {
                    if let Some(change) = valid.follow(&event) {
                        return Ok(pb::TokensReply::of_change(valid, change));
                    }
                }
                Err(ServiceError::EventsMissed { .. }) => self.told = None,
                Err(error) => return Err(error),
            }
        }
    }

    /// All valid tokens. The events come from before they are asked for, so nothing lies between.
    async fn all(&mut self) -> Result<pb::TokensReply, ServiceError> {
        let scope = Scope::Namespace { namespace: self.lock.namespace.clone(), prefix: self.lock.name.to_string() };
        let events = self.service.subscribe(Subscription { scope, after: None, cluster_id: None }).await?;
        let query = Query::Tokens { lock: self.lock.clone() };
        let QueryResult::Tokens(valid) = self.service.query(query, Freshness::Linearizable).await?.answer else {
            return Err(ServiceError::Internal("the service answered another question".into()));
        };
        let reply = pb::TokensReply::of_all(&valid);
        self.told = Some((valid, events));
        Ok(reply)
    }
}
