//! Callbacks of consensus: an entry was applied, a snapshot installed, a call forwarded, or consensus stopped.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;

use super::auth::Caller;
use super::core::Shared;
use super::forward::{Forward, Forwarded};
use super::{Node, Tasks};
use crate::auth::Who;
use crate::machine::Applied;
use crate::model::{Position, Principal};
use crate::raft::{Hooks, Sender};
use crate::service::{ServiceError, Source};

/// The node's implementation of the Raft callbacks.
pub(super) struct RaftCallbacks {
    pub(super) shared: Arc<Shared>,
    pub(super) tasks: Weak<Tasks>,
}

impl Hooks for RaftCallbacks {
    fn applied(&self, applied: &Applied) {
        self.shared.applied(applied);
    }

    fn installed(&self, newest: Position) {
        // At a start the state is this node's own, and the node does not exist yet.
        if self.shared.core.get().is_some() {
            self.shared.metrics.snapshots_installed.increment(1);
        }
        self.shared.hub.skip_to(newest);
        self.shared.claim_waiters.wake_all();
    }

    fn checkpointed(&self, took: Duration) {
        self.shared.metrics.checkpoint_seconds.record(took.as_secs_f64());
    }

    fn stopped(&self, why: &str) {
        tracing::error!(why, "consensus stopped");
        self.shared.fatal.send_replace(Some(why.to_owned()));
    }

    fn forwarded(&self, sender: Sender, payload: Bytes) -> Pin<Box<dyn Future<Output = Result<Bytes, String>> + Send>> {
        let core = self.shared.core.get().and_then(Weak::upgrade);
        // Without another proof, a call of another node is one that it serves for a caller that proves nothing.
        let caller = Caller { source: Source::Node(sender.node), who: Who::Anonymous, from: None };
        let node = core.zip(self.tasks.upgrade()).map(|(core, tasks)| Node { core, tasks, caller });
        Box::pin(async move {
            let forward = believed(Forward::decode(&payload)?, sender);
            let answer = match node {
                Some(node) => node.serve_forwarded(forward).await,
                None => Forwarded::Error(ServiceError::Stopping),
            };
            Ok(answer.encode())
        })
    }
}

/// Returns a forwarded call without the principal that it names, unless the connection shows that a node has sent it.
fn believed(mut forward: Forward, sender: Sender) -> Forward {
    if let (Forward::As { principal, .. }, true) = (&mut forward, sender.exposed) {
        *principal = Principal::default();
    }
    forward
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that reaches the port for nodes in plain text, where such calls are read, gets no principal's rights.
    #[test]
    fn plain_text_from_another_machine_names_no_principal() {
        let named = || Forward::As { principal: Principal::local(), call: Forward::Status.encode().to_vec() };
        for (exposed, expected) in [(false, Principal::local()), (true, Principal::default())] {
            let Forward::As { principal, call } = believed(named(), Sender { node: 2, exposed }) else {
                panic!("another call")
            };
            assert_eq!((principal, Forward::decode(&call)), (expected, Ok(Forward::Status)));
        }
    }
}
