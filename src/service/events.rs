//! Events from a service to one subscriber.

use tokio::sync::mpsc;

use super::ServiceError;
use crate::model::Event;

/// Boxed: a channel allocates space for 32 values at its creation, with any capacity, and most channels carry few.
type Sent = Box<Result<Event, ServiceError>>;

/// A running subscription. Dropping it ends the subscription.
#[derive(Debug)]
pub struct Events {
    receiver: mpsc::Receiver<Sent>,
}

/// The sending side of a subscription. Dropping it without an error reports that the service stopped.
#[derive(Debug, Clone)]
pub struct EventSender {
    sender: mpsc::Sender<Sent>,
}

impl Events {
    /// Creates a subscription that buffers up to `capacity` unread events, and the error that ends it.
    #[must_use]
    pub fn channel(capacity: usize) -> (EventSender, Self) {
        let (sender, receiver) = mpsc::channel(capacity + 1);
        (EventSender { sender }, Self { receiver })
    }

    /// Returns the next event, or the error that ended the subscription. The error names the position to continue from.
    pub async fn next(&mut self) -> Result<Event, ServiceError> {
        self.receiver.recv().await.map_or(Err(ServiceError::Stopping), |sent| *sent)
    }
}

impl EventSender {
    /// Waits until the buffer has space, and sends. Returns false if the subscriber is gone.
    pub async fn send(&self, event: Result<Event, ServiceError>) -> bool {
        self.sender.send(Box::new(event)).await.is_ok()
    }

    /// Sends an event if the buffer has space. Returns false if it is full or the subscriber is gone.
    pub fn try_send(&self, event: Event) -> bool {
        1 < self.sender.capacity() && self.sender.try_send(Box::new(Ok(event))).is_ok()
    }

    /// Ends the subscription with this error, behind the unread events. A buffer that [`try_send`](Self::try_send)
    /// filled has space for it.
    pub fn end(self, error: ServiceError) {
        // The subscriber may be gone.
        self.sender.try_send(Box::new(Err(error))).ok();
    }

    /// Whether the subscriber is gone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Waits until the subscriber is gone.
    pub async fn closed(&self) {
        self.sender.closed().await;
    }
}
