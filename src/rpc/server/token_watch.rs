//! `WatchTokens`: the stream of a lock's valid tokens, for resources in any language. The first reply has all tokens,
//! each later reply a change.

use std::pin::Pin;

use futures_util::{Stream, stream};
use tokio::sync::watch;
use tonic::Status;

use crate::model::{FencingToken, LockKey, Query, QueryResult, TokenChange, ValidTokens};
use crate::rpc::convert::Wire;
use crate::rpc::pb;
use crate::service::{Events, Freshness, LockService, Scope, ServiceError, Subscription};

/// The answer to `WatchTokens`.
pub(super) type TokenStream = Pin<Box<dyn Stream<Item = Result<pb::TokensReply, Status>> + Send>>;

/// Returns one reply of the stream: all valid tokens, or those that changed.
fn reply(follower: &ValidTokens, all: bool, valid: &[FencingToken], ended: &[FencingToken]) -> pb::TokensReply {
    let numbers = |tokens: &[FencingToken]| tokens.iter().map(|token| token.as_u64()).collect();
    pb::TokensReply {
        seen: follower.seen.to_wire(),
        all,
        valid: numbers(valid),
        ended: numbers(ended),
        floor: follower.floor().as_u64(),
        next: follower.next.as_u64(),
    }
}

/// One running `WatchTokens` stream.
struct Following<S> {
    service: S,
    lock: LockKey,
    /// The tokens that the caller knows, and the events that follow; `None` if the next reply must have all tokens.
    known: Option<(ValidTokens, Events)>,
}

/// Streams the valid tokens of a lock until the caller disconnects or the node stops.
pub(super) fn token_stream<S: LockService>(service: S, lock: LockKey, stop: watch::Receiver<bool>) -> TokenStream {
    let following = Following { service, lock, known: None };
    Box::pin(stream::unfold(Some((following, stop)), |running| async move {
        let (mut following, mut stop) = running?;
        let next = tokio::select! {
            next = following.next() => next,
            _ = stop.wait_for(|stopped| *stopped) => Err(ServiceError::Stopping),
        };
        Some(match next {
            Ok(reply) => (Ok(reply), Some((following, stop))),
            Err(error) => (Err(error.into()), None),
        })
    }))
}

impl<S: LockService> Following<S> {
    async fn next(&mut self) -> Result<pb::TokensReply, ServiceError> {
        loop {
            let Some((valid, events)) = &mut self.known else { return self.all().await };
            match events.next().await {
                Ok(event) => {
                    if let Some(change) = valid.follow(&event) {
                        let TokenChange { granted, ended } = change;
                        return Ok(reply(valid, false, granted.as_slice(), ended.as_slice()));
                    }
                }
                Err(ServiceError::EventsMissed { .. }) => self.known = None,
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads all valid tokens. The subscription starts before the read, so no event is missed in between.
    async fn all(&mut self) -> Result<pb::TokensReply, ServiceError> {
        let scope = Scope::Namespace { namespace: self.lock.namespace.clone(), prefix: self.lock.name.to_string() };
        let events = self.service.subscribe(Subscription { scope, after: None, cluster_id: None }).await?;
        let query = Query::Tokens { lock: self.lock.clone() };
        let QueryResult::Tokens(valid) = self.service.query(query, Freshness::Linearizable).await?.answer else {
            return Err(ServiceError::Internal("the service answered another query".into()));
        };
        let all: Vec<_> = valid.tokens.iter().copied().collect();
        let reply = reply(&valid, true, &all, &[]);
        self.known = Some((valid, events));
        Ok(reply)
    }
}
