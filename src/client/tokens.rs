//! Checking tokens where they are used: a resource follows one lock and judges tokens without asking.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::look::misplaced;
use super::{Client, ClientError, Watch};
use crate::model::{Answer, FencingToken, LockKey, LockName, Position, Query, TokenState, TokenVerdict, ValidTokens};
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
        // The events come from before the state is asked for: what is in both is seen by its position.
        let watch = client.watch(name, None).await?;
        let (sender, valid) = watch::channel(client.valid_tokens(client.key(lock.clone())).await?);
        let mut follower = JoinSet::new();
        follower.spawn(follow(client.clone(), client.key(lock.clone()), watch, sender));
        Ok(TokenFilter { client, lock, valid, follower: Mutex::new(follower) })
    }

    /// The valid tokens of a lock, as true as a read can be.
    async fn valid_tokens(&self, lock: LockKey) -> Result<ValidTokens, ClientError> {
        let answered = self.question(Query::Tokens { lock }).await?;
        let Answer::Tokens(valid) = answered.answer else { return Err(misplaced(&answered)) };
        Ok(valid)
    }
}

/// Takes up every event; asks anew where some were missed.
async fn follow<S: LockService>(
    client: Client<S>,
    lock: LockKey,
    mut watch: Watch<S>,
    valid: watch::Sender<ValidTokens>,
) {
    let mut missed = false;
    loop {
        if missed && let Ok(now) = client.valid_tokens(lock.clone()).await {
            valid.send_replace(now);
            missed = false;
        }
        match watch.next().await {
            Ok(event) => {
                // Who waits for a change is woken by changes only; the position is followed all the same.
                valid.send_if_modified(|valid| valid.follow(&event).is_some());
            }
            Err(ClientError::Service(ServiceError::EventsMissed { .. })) => missed = true,
            // It has tried for as long as a request waits: it goes on trying.
            Err(_) => {}
        }
    }
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
