//! Locks of other systems, with the names and results that their users know, a file each, thin over the client.
//!
//! Knows: limits, model, clock, service, client. Never: nodes, wire formats, consensus.
//!
//! - None of them reads and then writes: what must be decided at once is a command of the lock machine.
//! - Every hold has a fencing token, ends with whoever held it, and excludes native holds of the same name.
//! - An unreachable cluster, a refusal, an end and somebody else's hold are four answers, never folded into each other.

pub mod curator;
pub mod etcd;
mod participant;
pub mod zookeeper;

pub use participant::Participant;
