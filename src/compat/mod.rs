//! Locks with the names and results of other systems. Each one has its own file and is a thin layer over the client.
//!
//! Knows: limits, model, clock, service, client. Never: nodes, wire formats, consensus.
//!
//! - No function reads and then writes. What must be decided atomically is one command of the lock machine.
//! - Every hold has a fencing token, ends with its holder, and excludes native holds of the same name.
//! - An unreachable cluster, a refusal, an ended hold and another caller's hold are four different results.

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

/// Turns the error that another caller holds the lock into `None`.
fn held_is_none<T>(asked: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match asked {
        Ok(got) => Ok(Some(got)),
        Err(ClientError::NotAcquired { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Turns the errors that the hold has ended or belongs to another caller into `false`.
fn gone_is_false<T>(asked: Result<T, ClientError>) -> Result<bool, ClientError> {
    match asked {
        Ok(_) => Ok(true),
        Err(ClientError::Refused(Refusal::NotHeld { .. } | Refusal::HeldByOther { .. })) => Ok(false),
        Err(error) => Err(error),
    }
}
