//! Locks of other systems, with the names and results that their users know, a file each, thin over the client.
//!
//! Knows: limits, model, clock, service, client. Never: nodes, wire formats, consensus.
//!
//! - None of them reads and then writes: what must be decided at once is a command of the lock machine.
//! - Every hold has a fencing token, ends with whoever held it, and excludes native holds of the same name.
//! - An unreachable cluster, a refusal, an end and somebody else's hold are four answers, never folded into each other.

pub mod config_locks;
pub mod counter_lock;
pub mod curator;
pub mod etcd;
pub mod flag_lock;
pub mod get_set_lock;
pub mod incr_lock;
pub mod lease_lock;
mod participant;
pub mod redis_lock;
pub mod token_lock;
pub mod unique_index_lock;
pub mod zookeeper;

pub use participant::Participant;

use crate::client::ClientError;
use crate::model::Refusal;

/// Somebody else's hold is an answer; every other error stays one.
fn held_is_none<T>(asked: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match asked {
        Ok(got) => Ok(Some(got)),
        Err(ClientError::NotAcquired { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A hold that is gone, or another's, is an answer; every other error stays one.
fn gone_is_false<T>(asked: Result<T, ClientError>) -> Result<bool, ClientError> {
    match asked {
        Ok(_) => Ok(true),
        Err(ClientError::Refused(Refusal::NotHeld { .. } | Refusal::HeldByOther { .. })) => Ok(false),
        Err(error) => Err(error),
    }
}
