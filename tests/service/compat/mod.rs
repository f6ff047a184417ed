//! Tests of the compatibility layers, one file for each system: correct behaviour of the original, and faults of the
//! original that lockkeeper does not have. A fault is shown twice: in a model of the original, where it occurs, and
//! against lockkeeper, where it cannot occur.
//!
//! Each file has a list `recipe_tests!` of functions over a service, which run against a leader and over gRPC.

mod all;
mod config_legacy;
mod config_locks;
mod config_takeover;
mod counter_lock;
mod curator;
mod edges;
mod etcd;
mod four_answers;
mod get_set_lock;
mod probe;
mod redis_lock;
mod simple_locks;
mod token_lock;
mod zookeeper;

use lockkeeper::client::Client;
use lockkeeper::service::LockService;

use crate::suite::{in_use, passes};

/// Waits until the lock has no holder and no waiter.
async fn ended<S: LockService>(client: &Client<S>, name: &str) {
    in_use(client, name, 0, 0).await;
}
