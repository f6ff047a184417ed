//! The holders and waiters of a lock, in order, which ZooKeeper and Curator get from the children of a node.

use crate::client::{Client, ClientError};
use crate::model::{FencingToken, Metadata, Mode, Owner, SessionId};
use crate::service::LockService;

/// A holder or waiter of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Participant {
    /// Its session; `None` for a token lease.
    pub session: Option<SessionId>,
    /// Its line of execution, if it named one.
    pub owner: Option<Owner>,
    /// The mode in which it holds or requests the lock.
    pub mode: Mode,
    /// Metadata of its request.
    pub metadata: Metadata,
    /// The fencing token of the grant; `None` while it waits.
    pub token: Option<FencingToken>,
}

impl Participant {
    /// Whether this participant holds the lock.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.token.is_some()
    }
}

/// All participants, by one linearizable read: the holders by their tokens, then the queue in its order.
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
