//! Following what happens, without loss or repetition, through errors and changes of leader.

use std::fmt;
use std::pin::pin;
use std::time::Duration;

use tokio::time::sleep;

use super::client::Client;
use super::error::ClientError;
use super::retry::Retry;
use crate::model::{Event, LockName, Position};
use crate::service::{Events, LockService, Scope, ServiceError, Subscription};

/// A subscription that goes on by itself after errors. Dropping it ends it.
///
/// - Every event of its scope comes once, in order, from the position where it began.
/// - Where events are no longer kept it says so, once, and goes on from the position that the error names.
pub struct Watch<S: LockService> {
    service: S,
    scope: Scope,
    after: Position,
    cluster_id: u128,
    events: Option<Events>,
    retry: Retry,
}

impl<S: LockService> Watch<S> {
    /// The next event. An error other than [`EventsMissed`](ServiceError::EventsMissed) means that the service did
    /// not answer for the client's request wait; calling it again tries again. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Event, ClientError> {
        loop {
            let Some(events) = &mut self.events else {
                self.events = Some(self.subscribe().await?);
                continue;
            };
            match events.next().await {
                Ok(event) if event.position <= self.after => {}
                Ok(event) => {
                    self.after = event.position;
                    return Ok(event);
                }
                Err(error) => {
                    self.events = None;
                    let error = self.missed(error)?;
                    self.retry.broke_off(error).await?;
                }
            }
        }
    }

    /// The position after which the next event comes.
    #[must_use]
    pub fn position(&self) -> Position {
        self.after
    }

    /// The cluster whose position that is: to go on later, give both to [`watch_of`](Client::watch_of).
    #[must_use]
    pub fn cluster_id(&self) -> u128 {
        self.cluster_id
    }

    /// Subscribes after its position. A subscription that begins ends an outage, even if no event follows for long.
    async fn subscribe(&mut self) -> Result<Events, ServiceError> {
        let subscription =
            Subscription { scope: self.scope.clone(), after: Some(self.after), cluster_id: Some(self.cluster_id) };
        let subscribed = self.retry.until_answered(|| self.service.subscribe(subscription.clone())).await;
        match subscribed {
            Ok(events) => Ok(events),
            Err(error) => Err(self.missed(error)?),
        }
    }

    /// Goes on from where missed events end, and returns their error; passes any other error on as the answer.
    fn missed(&mut self, error: ServiceError) -> Result<ServiceError, ServiceError> {
        if let ServiceError::EventsMissed { resume, .. } = error {
            self.after = self.after.max(resume);
            return Err(error);
        }
        Ok(error)
    }
}

impl<S: LockService> Client<S> {
    /// Follows the locks whose names begin so, and what concerns the namespace's sessions and the whole cluster: after
    /// `from`, or from now on. Its beginning is fixed before it returns, so nothing that happens after is missed.
    pub async fn watch(&self, prefix: &str, from: Option<Position>) -> Result<Watch<S>, ClientError> {
        let cluster_id = self.cluster_id().await?;
        let after = match from {
            Some(position) => position,
            None => Position { index: self.totals().await?.index, n: u32::MAX },
        };
        Ok(self.watch_of(cluster_id, prefix, after))
    }

    /// The same after a position of this cluster. Another one, a restored one too, refuses it: there the position may stand
    /// for something else, and what came before it would be missed in silence.
    pub fn watch_of(&self, cluster_id: u128, prefix: &str, after: Position) -> Watch<S> {
        let scope = Scope::Namespace { namespace: self.settings.namespace.clone(), prefix: prefix.to_owned() };
        let (service, retry) = (self.service.clone(), self.retry());
        Watch { service, scope, after, cluster_id, events: None, retry }
    }

    /// Waits until the name is free, see [`LockView::free`](crate::model::LockView::free). It does not return while the lock
    /// passes from its holder to the next waiter. It says nothing of the moment after: to be sure of a lock, acquire it. Asks
    /// again only after something happened to the lock, so it costs nothing while it waits.
    pub async fn wait_free(&self, name: &str) -> Result<(), ClientError> {
        let lock = self.key(LockName::parse(name)?);
        let mut watch = self.watch(name, None).await?;
        while !self.inspect(name).await?.value.free {
            loop {
                match watch.next().await {
                    Ok(event) if event.may_free(&lock) => break,
                    Ok(_) => {}
                    Err(ClientError::Service(ServiceError::EventsMissed { .. })) => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// The same for at most so long: whether the name is free. It looks at least once, however short that is, and once only
    /// where it is nothing.
    pub async fn wait_free_within(&self, name: &str, longest: Duration) -> Result<bool, ClientError> {
        let mut over = pin!(sleep(longest));
        if self.inspect(name).await?.value.free {
            return Ok(true);
        }
        if longest.is_zero() {
            return Ok(false);
        }
        // Where the time is over while the service cannot be reached, the last look is the answer.
        tokio::select! {
            biased;
            () = &mut over => Ok(false),
            free = self.wait_free(name) => free.map(|()| true),
        }
    }
}

impl<S: LockService> fmt::Debug for Watch<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("scope", &self.scope).field("after", &self.after).finish_non_exhaustive()
    }
}
