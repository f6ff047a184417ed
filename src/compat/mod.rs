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

/// Returns `None` if the error is that another client holds the lock.
fn none_if_held<T>(result: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match result {
        Ok(got) => Ok(Some(got)),
        Err(ClientError::NotAcquired { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns `false` if the error is that the hold has ended or belongs to another client.
fn false_if_gone<T>(result: Result<T, ClientError>) -> Result<bool, ClientError> {
    match result {
        Ok(_) => Ok(true),
        Err(ClientError::Refused(Refusal::NotHeld { .. } | Refusal::HeldByOther { .. })) => Ok(false),
        Err(error) => Err(error),
    }
}
