//! Who holds a lock and who waits for it, in order: what ZooKeeper and Curator read off the children of a node.

use crate::client::{Client, ClientError};
use crate::model::{FencingToken, Metadata, Mode, Owner, SessionId};
use crate::service::LockService;

/// One who holds a lock or waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Participant {
    /// Whose session; `None` for a token lease.
    pub session: Option<SessionId>,
    /// Which line of execution.
    pub owner: Option<Owner>,
    /// How it holds or wants the lock.
    pub mode: Mode,
    /// What it says of itself.
    pub metadata: Metadata,
    /// The grant's public number; `None` while it waits.
    pub token: Option<FencingToken>,
}

impl Participant {
    /// Whether it holds the lock.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.token.is_some()
    }
}

/// Everybody, as one true read shows it: holders by their tokens, then the queue in its order.
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
