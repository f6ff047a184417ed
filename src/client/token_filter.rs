//! Checks fencing tokens at the resource: a filter follows one lock and judges tokens without a request for each.

use std::sync::{Arc, OnceLock};

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::client::{Client, ReadAt, read};
use super::error::ClientError;
use super::retry::Backoff;
use super::watch::Watch;
use crate::model::{FencingToken, LockName, Position, Query, TokenState, TokenVerdict, ValidTokens};
use crate::service::{LockService, ServiceError};

/// The valid tokens of one lock, which a task keeps up to date until the filter is dropped.
///
/// A token that it calls stale is stale, permanently. A token that it calls valid was valid at the position that the
/// filter has [`seen`](Self::seen), and may have become stale since, because events take time and none arrive while the
/// cluster is unreachable. A resource that must never accept a stale holder therefore compares each token with the
/// largest one that it has accepted, in the same step as its own change. The filter only saves this comparison for
/// tokens that are known to be stale. A resource that cannot store that largest token calls [`check`](Self::check),
/// whose answer is true at the moment of the call.
#[derive(Debug)]
pub struct TokenFilter<S: LockService> {
    client: Client<S>,
    lock: LockName,
    valid: watch::Receiver<ValidTokens>,
    /// Why the client may no longer read the tokens; set before the task ends.
    refused: Arc<OnceLock<ServiceError>>,
    /// The task that follows the events. It is aborted when the filter is dropped.
    _follower: JoinSet<()>,
}

impl<S: LockService> Client<S> {
    /// Follows the valid tokens of a lock. The filter is up to date when this returns.
    pub async fn tokens(&self, name: &str) -> Result<TokenFilter<S>, ClientError> {
        let lock = LockName::parse(name)?;
        let client = self.without_session();
        let (watch, valid) = client.begin_tokens(&lock).await?;
        let (sender, valid) = watch::channel(valid);
        let (refused, mut follower) = (Arc::default(), JoinSet::new());
        follower.spawn(follow(client.clone(), lock.clone(), watch, sender, Arc::clone(&refused)));
        Ok(TokenFilter { client, lock, valid, refused, _follower: follower })
    }

    /// Reads the valid tokens of a lock and subscribes to its events. The subscription starts first, so an event may be
    /// in both; its position shows that.
    async fn begin_tokens(&self, lock: &LockName) -> Result<(Watch<S>, ValidTokens), ClientError> {
        let watch = self.watch(lock.as_str(), None).await?;
        let lock = self.key(lock.clone());
        Ok((watch, read!(self, Query::Tokens { lock }, Tokens).value))
    }
}

/// Applies every event. When the events end, because some were missed, the service did not answer, or the cluster was
/// restored from a backup, it reads the valid tokens again. Until then it applies no event: after a gap an event would
/// declare all older tokens invalid, although one of them may have been granted in the gap. It ends if the client may
/// no longer read them, and leaves the reason in `refused`.
async fn follow<S: LockService>(
    client: Client<S>,
    lock: LockName,
    mut watch: Watch<S>,
    valid: watch::Sender<ValidTokens>,
    refused: Arc<OnceLock<ServiceError>>,
) {
    let mut backoff = Backoff::new();
    loop {
        let mut error = match watch.next().await {
            Ok(event) => {
                // The position changes with every event. Tasks that wait for a change are notified only when a token
                // changes.
                valid.send_if_modified(|valid| valid.follow(&event).is_some());
                continue;
            }
            Err(error) => error,
        };
        loop {
            let why = in_service(error);
            if matches!(why, ServiceError::Unauthenticated { .. } | ServiceError::Forbidden { .. }) {
                tracing::debug!(%lock, %why, "the valid tokens are no longer followed");
                // Only this task sets it, and only here.
                refused.set(why).ok();
                return;
            }
            tracing::debug!(%lock, %why, "the valid tokens are read again");
            tokio::time::sleep(backoff.pause(&why, &**client.time())).await;
            match client.begin_tokens(&lock).await {
                Ok((begun, now)) => {
                    watch = begun;
                    valid.send_replace(now);
                    break;
                }
                Err(again) => error = again,
            }
        }
    }
}

fn in_service(error: ClientError) -> ServiceError {
    if let ClientError::Service(error) = error { error } else { ServiceError::Internal(error.to_string()) }
}

impl<S: LockService> TokenFilter<S> {
    /// Returns the verdict on this token from what the filter has seen, without a request.
    #[must_use]
    pub fn judge(&self, token: FencingToken) -> TokenVerdict {
        self.valid.borrow().judge(token)
    }

    /// Whether this token is valid now. A token that is known to be stale is refused without a request; any other costs
    /// one request to the leader.
    pub async fn check(&self, token: FencingToken) -> Result<bool, ClientError> {
        match self.judge(token) {
            TokenVerdict::Stale => Ok(false),
            TokenVerdict::Valid | TokenVerdict::Ahead => {
                let checked = self.client.check(self.lock.as_str(), token).await?;
                Ok(checked.state == TokenState::Valid)
            }
        }
    }

    /// Returns the position in the log up to which the filter has seen the events.
    #[must_use]
    pub fn seen(&self) -> Position {
        self.valid.borrow().seen
    }

    /// Returns the valid tokens at the position that the filter has seen.
    #[must_use]
    pub fn valid(&self) -> ValidTokens {
        self.valid.borrow().clone()
    }

    /// Waits until the valid tokens meet the condition, and returns them.
    ///
    /// # Errors
    /// The client may no longer read the tokens: its right was withdrawn, or its access token was revoked or has
    /// expired. [`ServiceError::Stopping`] if the runtime of the filter stops. Every later wait returns the same error,
    /// unless the condition is met already.
    pub async fn wait_for(&mut self, condition: impl FnMut(&ValidTokens) -> bool) -> Result<ValidTokens, ClientError> {
        let met = self.valid.wait_for(condition).await;
        met.map(|valid| valid.clone()).map_err(|_| {
            // Without a reason, the runtime of the task stops.
            self.refused.get().cloned().unwrap_or(ServiceError::Stopping).into()
        })
    }
}
