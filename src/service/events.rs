//! Events on their way from a service to whoever subscribed.

use tokio::sync::mpsc;

use super::ServiceError;
use crate::model::Event;

/// Boxed: a channel has room for 32 of them from its first on, whatever its bound, and most channels carry few.
type Told = Box<Result<Event, ServiceError>>;

/// A running subscription. Dropping it ends it.
#[derive(Debug)]
pub struct Events {
    receiver: mpsc::Receiver<Told>,
}

/// Feeds one subscription. Dropping it without an error means that the service stopped.
#[derive(Debug, Clone)]
pub struct EventSender {
    sender: mpsc::Sender<Told>,
}

impl Events {
    /// A subscription and its feed, with room for so many events that were not read yet; 1 at least.
    #[must_use]
    pub fn channel(room: usize) -> (EventSender, Self) {
        let (sender, receiver) = mpsc::channel(room);
        (EventSender { sender }, Self { receiver })
    }

    /// The next event, or why there are no more: the error names the position from which to go on.
    pub async fn next(&mut self) -> Result<Event, ServiceError> {
        self.receiver.recv().await.map_or(Err(ServiceError::Stopping), |told| *told)
    }
}

impl EventSender {
    /// Waits for room. Whether somebody still listens.
    pub async fn send(&self, told: Result<Event, ServiceError>) -> bool {
        self.sender.send(Box::new(told)).await.is_ok()
    }

    /// Whether there was room, and somebody listens.
    pub fn try_send(&self, told: Result<Event, ServiceError>) -> bool {
        self.sender.try_send(Box::new(told)).is_ok()
    }

    /// Whether nobody listens any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Waits until nobody listens any more.
    pub async fn closed(&self) {
        self.sender.closed().await;
    }
}
