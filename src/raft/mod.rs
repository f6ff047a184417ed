//! Agreement: one log, the same on every node, and the lock machine that it drives.
//!
//! Knows: limits, model, machine, codec, storage, and Raft. Never: clients, servers for them, the node's duties.
//!
//! This is the only room that says "openraft": nothing of it stands in the public words below, in a file or on the wire.

mod consensus;
mod disks;
mod keeper;
mod ledger;
mod link;
mod log_store;
mod members;
mod network;
mod payload;
mod pipeline;
mod restore;
mod ring;
mod runtime;
mod server;
mod settings;
mod state_machine;
mod store;
mod tails;
#[cfg(test)]
mod tests;
mod types;
mod view;
mod wire;

pub use consensus::{Consensus, Hooks, ProposeError, StartError, Submitted};
pub use members::{Reshape, ReshapeError};
pub use restore::{Backup, RestoredState};
pub use settings::{RaftSettings, Timing};
pub use types::{Listener, Member};
pub use view::{MemberView, Role, View};
