//! Agreement: one log that is the same on every node, and the lock machine that applies it.
//!
//! Knows: limits, model, machine, codec, storage, and Raft. Never: clients, servers for them, the node's tasks.
//!
//! This is the only module that uses openraft: none of its types is part of the public API below, of a file or of a
//! message.

mod append_stream;
mod blocking;
mod checkpoints;
mod connections;
mod consensus;
mod core;
mod dirty_records;
mod disk_ids;
mod entry_cache;
mod error;
mod failure_detector;
mod hooks;
mod install;
mod log_store;
mod lost_tail;
mod membership;
mod messages;
mod network;
mod payload;
mod peer;
mod peer_server;
mod restore;
mod runtime;
mod settings;
mod state_machine;
#[cfg(test)]
mod tests;
mod types;
mod view;

pub use consensus::{Consensus, Submitted};
pub use error::{ProposeError, StartError};
pub use hooks::{Hooks, Sender};
pub use membership::{MembershipChange, MembershipError};
pub use restore::{Backup, RestoredState};
pub use settings::{RaftSettings, Timing};
pub use types::Listener;
pub use view::{MemberView, Role, View};
