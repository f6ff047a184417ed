//! Checking tokens where they are used: a resource follows one lock and judges tokens without asking.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::client::{Client, ReadAt, read};
use super::error::ClientError;
use super::retry::Backoff;
use super::watch::Watch;
use crate::model::{FencingToken, LockKey, LockName, Position, Query, TokenState, TokenVerdict, ValidTokens};
use crate::service::{LockService, ServiceError};

/// The valid tokens of one lock, followed for as long as this lives.
///
/// What it can know: a token that it calls stale is stale, certainly and for ever. A token that it calls valid was valid
/// at the position that it has [`seen`](Self::seen), and may have become stale since: news take time, and none come while
/// the cluster cannot be reached. A resource that must not let a stale holder in compares each token with the largest
/// that it has accepted, in the same step as its own change; this filter then only spares it those that are known to be
/// stale. Who has no place to keep that largest token asks with [`check`](Self::check), which is true at the moment of
/// the question.
pub struct TokenFilter<S: LockService> {
    client: Client<S>,
    lock: LockName,
    valid: watch::Receiver<ValidTokens>,
    /// The one task that follows; it ends with this.
    follower: Mutex<JoinSet<()>>,
}

impl<S: LockService> Client<S> {
    /// Follows the valid tokens of a lock. What it says is true from its beginning on.
    pub async fn tokens(&self, name: &str) -> Result<TokenFilter<S>, ClientError> {
        let lock = LockName::parse(name)?;
        let client = self.without_session();
        let (watch, valid) = client.begin_tokens(&lock).await?;
        let (sender, valid) = watch::channel(valid);
        let mut follower = JoinSet::new();
        follower.spawn(follow(client.clone(), lock.clone(), watch, sender));
        Ok(TokenFilter { client, lock, valid, follower: Mutex::new(follower) })
    }

    /// The valid tokens of a lock, and what happens after. The events come from before the state is asked for: what is in
    /// both is seen by its position.
    async fn begin_tokens(&self, lock: &LockName) -> Result<(Watch<S>, ValidTokens), ClientError> {
        let watch = self.watch(lock.as_str(), None).await?;
        Ok((watch, self.valid_tokens(self.key(lock.clone())).await?))
    }

    /// The valid tokens of a lock, as true as a read can be.
    async fn valid_tokens(&self, lock: LockKey) -> Result<ValidTokens, ClientError> {
        Ok(read!(self, Query::Tokens { lock }, Tokens).value)
    }
}

/// Takes up every event. Where the events end it starts over, from what is valid then: some were missed, the service did not
/// answer, or the cluster is another one, restored from a backup. Until then no event is taken up: after a gap it would say
/// that nothing older is valid, although that may have been granted in the gap.
async fn follow<S: LockService>(
    client: Client<S>,
    lock: LockName,
    mut watch: Watch<S>,
    valid: watch::Sender<ValidTokens>,
) {
    let mut backoff = Backoff::new();
    loop {
        let mut error = match watch.next().await {
            Ok(event) => {
                // Waiters for a change are notified of changes only; the position is followed all the same.
                valid.send_if_modified(|valid| valid.follow(&event).is_some());
                continue;
            }
            Err(error) => error,
        };
        loop {
            tracing::debug!(%lock, %error, "the valid tokens are read again");
            tokio::time::sleep(backoff.pause(&in_service(error), &**client.time())).await;
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
    /// What is known of this token, without asking.
    #[must_use]
    pub fn judge(&self, token: FencingToken) -> TokenVerdict {
        self.valid.borrow().judge(token)
    }

    /// Whether this token is valid now. One that is known to be stale is refused without asking; any other costs a
    /// question to the leader.
    pub async fn check(&self, token: FencingToken) -> Result<bool, ClientError> {
        match self.judge(token) {
            TokenVerdict::Stale => Ok(false),
            TokenVerdict::Valid | TokenVerdict::Ahead => {
                let checked = self.client.check(self.lock.as_str(), token).await?;
                Ok(checked.state == TokenState::Valid)
            }
        }
    }

    /// Up to where the log was seen.
    #[must_use]
    pub fn seen(&self) -> Position {
        self.valid.borrow().seen
    }

    /// The valid tokens, as they were seen last.
    #[must_use]
    pub fn valid(&self) -> ValidTokens {
        self.valid.borrow().clone()
    }

    /// Waits until what is seen meets the condition, and answers it.
    pub async fn wait_for(&mut self, condition: impl FnMut(&ValidTokens) -> bool) -> Result<ValidTokens, ClientError> {
        let met = self.valid.wait_for(condition).await;
        met.map(|valid| valid.clone()).map_err(|_| ServiceError::Stopping.into())
    }
}

impl<S: LockService> fmt::Debug for TokenFilter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let running = self.follower.lock().unwrap_or_else(PoisonError::into_inner).len();
        f.debug_struct("TokenFilter").field("valid", &*self.valid.borrow()).field("running", &running).finish()
    }
}
