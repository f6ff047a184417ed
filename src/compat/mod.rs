//! Locks with the names and results of other systems. Each one has its own file and is a thin layer over the client.
//!
//! Knows: limits, model, clock, service, client. Never: nodes, wire formats, consensus.
//!
//! - No function reads and then writes. What must be decided atomically is one command of the lock machine.
//! - Every hold has a fencing token, ends with its holder, and excludes native holds of the same name.
//! - An unreachable cluster, a refusal, an ended hold and another caller's hold are four different results.

pub mod config_locks;
pub mod curator;
pub mod etcd;
mod participant;
mod recipes;
pub mod zookeeper;

pub use participant::Participant;
pub use recipes::{
    counter_lock, flag_lock, get_set_lock, incr_lock, lease_lock, redis_lock, token_lock, unique_index_lock,
};

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
