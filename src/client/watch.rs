//! Follows events without loss or repetition, through errors and changes of leader.

use std::pin::pin;
use std::time::Duration;

use super::client::Client;
use super::error::ClientError;
use super::history::within;
use super::retry::Retry;
use super::wait::wait_until;
use crate::model::{Event, LockName, Position};
use crate::service::{Events, LockService, Scope, ServiceError, Subscription};

/// A subscription to events that recovers automatically from errors. Dropping it ends it.
///
/// - Every event of its scope is returned once, in order, after the position where it began.
/// - If events are no longer kept, it returns one error and continues from the position that the error names.
#[derive(Debug)]
pub struct Watch<S: LockService> {
    service: S,
    scope: Scope,
    after: Position,
    cluster_id: u128,
    events: Option<Events>,
    retry: Retry,
}

impl<S: LockService> Watch<S> {
    /// Returns the next event. An error other than [`EventsMissed`](ServiceError::EventsMissed) means that the service
    /// did not answer within the client's request wait; a further call retries. Dropping the future loses no event.
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
                    if self.skips(&error) {
                        return Err(error.into());
                    }
                    self.retry.broke_off(error).await?;
                }
            }
        }
    }

    /// Returns the position of the last returned event; the next event comes after it.
    #[must_use]
    pub fn position(&self) -> Position {
        self.after
    }

    /// Returns the id of the cluster that the position belongs to. To continue later, pass both to
    /// [`watch_of`](Client::watch_of).
    #[must_use]
    pub fn cluster_id(&self) -> u128 {
        self.cluster_id
    }

    /// Subscribes after the position. A successful subscription ends an outage, even if no event follows for a long
    /// time.
    async fn subscribe(&mut self) -> Result<Events, ServiceError> {
        let subscription =
            Subscription { scope: self.scope.clone(), after: Some(self.after), cluster_id: Some(self.cluster_id) };
        let subscribed = self.retry.until_read(|| self.service.subscribe(subscription.clone())).await;
        subscribed.inspect_err(|error| {
            self.skips(error);
        })
    }

    /// Moves the position to the end of the missed events. Returns whether the error reports any.
    fn skips(&mut self, error: &ServiceError) -> bool {
        let ServiceError::EventsMissed { resume, .. } = error else { return false };
        self.after = *resume;
        true
    }
}

impl<S: LockService> Client<S> {
    /// Follows the locks whose names have this prefix, the namespace's sessions and the whole cluster: events after
    /// `from`, or from now on. The starting position is fixed before this returns, so no later event is missed.
    ///
    /// # Errors
    /// Returns [`EventsMissed`](ServiceError::EventsMissed) if the log does not reach `from`.
    pub async fn watch(&self, prefix: &str, from: Option<Position>) -> Result<Watch<S>, ClientError> {
        let cluster_id = self.cluster_id().await?;
        let last = self.totals().await?.index;
        let end = Position { index: last, n: u32::MAX };
        let after = from.unwrap_or(end);
        within(after, last, end)?;
        Ok(self.watch_of(cluster_id, prefix, after))
    }

    /// Follows events like [`watch`](Self::watch), after a position of this cluster. Another cluster, even one restored
    /// from its backup, refuses it, because the position may name another event there, and events could be missed
    /// without an error.
    pub fn watch_of(&self, cluster_id: u128, prefix: &str, after: Position) -> Watch<S> {
        let scope = Scope::Namespace { namespace: self.settings.namespace.clone(), prefix: prefix.to_owned() };
        let (service, retry) = (self.service.clone(), self.retry());
        Watch { service, scope, after, cluster_id, events: None, retry }
    }

    /// Waits until the name is free; see [`LockView::free`](crate::model::LockView::free). It does not return while the
    /// lock passes from its holder to the next waiter. The lock may be taken right afterwards: to be certain of a lock,
    /// acquire it. The lock is read again only after one of its events, so a long wait causes no further requests.
    pub async fn wait_free(&self, name: &str) -> Result<(), ClientError> {
        let lock = self.key(LockName::parse(name)?);
        let mut watch = self.watch(name, None).await?;
        while !self.is_free(name).await? {
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

    /// Waits like [`wait_free`](Self::wait_free) for at most this duration. Returns whether the name is free. Reads the
    /// lock at least once even if the duration is short, and exactly once if it is zero.
    pub async fn wait_free_within(&self, name: &str, longest: Duration) -> Result<bool, ClientError> {
        let clock = &*self.settings.clock;
        let mut over = pin!(wait_until(clock, Some(clock.now().after(longest))));
        if self.is_free(name).await? {
            return Ok(true);
        }
        if longest.is_zero() {
            return Ok(false);
        }
        // If the time ends while the service is unreachable, the last read decides.
        tokio::select! {
            biased;
            () = &mut over => Ok(false),
            free = self.wait_free(name) => free.map(|()| true),
        }
    }

    async fn is_free(&self, name: &str) -> Result<bool, ClientError> {
        Ok(self.holders(name).await?.value.free)
    }
}
