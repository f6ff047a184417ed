//! What Raft calls on the node that it runs in.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;

use crate::machine::Applied;
use crate::model::Position;

/// What the node is told by its Raft. Called on Raft's own tasks: each must be short and must not block.
pub trait Hooks: Send + Sync + 'static {
    /// An entry was applied: in log order, each once, after its proposer was answered.
    fn applied(&self, index: u64, term: u64, applied: &Applied);
    /// The whole state was loaded, by a start or as a snapshot: events up to its newest are not known here, and none came after.
    fn installed(&self, newest: Position);
    /// This node must stop, and why. Called at most once.
    fn stopped(&self, why: &str);
    /// A call from another node; the answer goes back to it.
    fn forwarded(&self, payload: Bytes) -> Pin<Box<dyn Future<Output = Result<Bytes, String>> + Send>>;
}
