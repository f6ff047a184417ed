//! Asking a holder to give up its lock. The holder decides.

use std::sync::Arc;

use super::{CuratorError, CuratorFramework, Task};
use crate::client::HoldWatch;
use crate::compat::Participant;
use crate::model::{Principal, Reason};
use crate::service::LockService;

/// Asks holders, of locks of every kind.
#[derive(Debug)]
pub struct Revoker;

impl Revoker {
    /// Asks this holder of the lock under `path`, as [`participant_nodes`](super::InterProcessMutex::participant_nodes)
    /// showed it. Who does not hold it, or does so no longer, is not asked: that is an error.
    pub async fn attempt_revoke<S: LockService>(
        curator: &CuratorFramework<S>,
        path: &str,
        participant: &Participant,
        why: &str,
    ) -> Result<(), CuratorError> {
        let Some(token) = participant.token else {
            return Err(CuratorError::IllegalState { path: path.to_owned(), why: "it waits, and holds nothing yet" });
        };
        Ok(curator.client().ask(path, token, why).await?)
    }
}

/// Somebody asks for a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    /// Which task holds it.
    pub task: Task,
    /// Who asks, as the cluster checked it.
    pub by: Principal,
    /// What for.
    pub why: Reason,
}

/// What a holder does when it is asked.
pub(super) type Listener = Arc<dyn Fn(Revocation) + Send + Sync>;

/// Tells a listener each request for a hold, until the hold is over.
pub(super) async fn listen(watch: HoldWatch, task: Task, listener: Listener) {
    while let Some(asked) = watch.revoke_requested().await {
        listener(Revocation { task: task.clone(), by: asked.by, why: asked.why });
    }
}
