//! The callbacks from Raft to the node that it runs in.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;

use crate::machine::Applied;
use crate::model::Position;

/// The node that a forwarded call names as its sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sender {
    /// Id of the node.
    pub node: u64,
    /// Whether the call came in plain text from another machine, so that any process there may have sent it.
    pub exposed: bool,
}

/// Notifications from Raft to its node. They are called on Raft's own tasks, so each must be short and must not block.
pub trait Hooks: Send + Sync + 'static {
    /// An entry with commands was applied. Called once for each, in log order, after its proposer received the answer.
    fn applied(&self, applied: &Applied);
    /// The whole state was replaced, at a start or by a snapshot. The events up to `newest` were not reported on this
    /// node; later ones will be.
    fn installed(&self, newest: Position);
    /// The changes of the state were written to the mirror, in this time.
    fn checkpointed(&self, took: Duration);
    /// This node must stop, for this reason. Called at most once.
    fn stopped(&self, why: &str);
    /// Handles a call from another node. The result is sent back to it.
    fn forwarded(&self, sender: Sender, payload: Bytes) -> Pin<Box<dyn Future<Output = Result<Bytes, String>> + Send>>;
}
