//! Asks a holder to release its lock. The holder decides.

use std::sync::Arc;

use super::{CuratorError, CuratorFramework, Task};
use crate::client::HoldWatch;
use crate::compat::Participant;
use crate::model::{Principal, Reason};
use crate::service::LockService;

/// Asks the holders of all kinds of locks to release.
#[derive(Debug)]
pub struct Revoker;

impl Revoker {
    /// Asks this holder of the lock under `path`, as returned by
    /// [`participant_nodes`](super::InterProcessMutex::participant_nodes). Returns an error if the participant does not
    /// hold the lock, or no longer holds it.
    pub async fn attempt_revoke<S: LockService>(
        curator: &CuratorFramework<S>,
        path: &str,
        participant: &Participant,
        why: &str,
    ) -> Result<(), CuratorError> {
        let Some(token) = participant.token else {
            return Err(CuratorError::IllegalState {
                path: path.to_owned(),
                why: "it waits and does not hold the lock",
            });
        };
        Ok(curator.client().ask(path, token, why).await?)
    }
}

/// The request of another client to release a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    /// The task that holds the lock.
    pub task: Task,
    /// Identity of the client that asks, as the cluster verified it.
    pub by: Principal,
    /// The reason that this client gives.
    pub why: Reason,
}

/// The function that is called for a request to release.
pub(super) type Listener = Arc<dyn Fn(Revocation) + Send + Sync>;

/// Calls the listener for each request to release a hold, until the hold has ended.
pub(super) async fn listen(watch: HoldWatch, task: Task, listener: Listener) {
    while let Some(asked) = watch.revoke_requested().await {
        listener(Revocation { task: task.clone(), by: asked.by, why: asked.why });
    }
}
