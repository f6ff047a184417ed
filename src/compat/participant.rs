//! The holders and waiters of a lock, in order. ZooKeeper and Curator get them from the children of a node.

use crate::client::{Client, ClientError};
use crate::model::{FencingToken, Metadata, Mode, Owner, SessionId};
use crate::service::LockService;

/// A holder or waiter of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Participant {
    /// Session of the participant; `None` for a token lease.
    pub session: Option<SessionId>,
    /// Owner name of the participant, if it has one.
    pub owner: Option<Owner>,
    /// The mode in which the participant holds or requests the lock.
    pub mode: Mode,
    /// Metadata of its request.
    pub metadata: Metadata,
    /// The fencing token of the grant; `None` while the participant waits.
    pub token: Option<FencingToken>,
}

impl Participant {
    /// Whether this participant holds the lock.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.token.is_some()
    }
}

/// Returns all participants, by one linearizable read: the holders in the order of their tokens, then the queue.
pub(super) async fn participants<S: LockService>(
    client: &Client<S>,
    name: &str,
) -> Result<Vec<Participant>, ClientError> {
    let view = client.inspect(name).await?.value;
    let holders = view.holders.into_iter().map(|holder| Participant {
        session: holder.session,
        owner: holder.owner,
        mode: holder.mode,
        metadata: holder.metadata,
        token: Some(holder.token),
    });
    let waiters = view.waiters.into_iter().map(|waiter| Participant {
        session: waiter.session,
        owner: waiter.owner,
        mode: waiter.mode,
        metadata: waiter.metadata,
        token: None,
    });
    Ok(holders.chain(waiters).collect())
}
