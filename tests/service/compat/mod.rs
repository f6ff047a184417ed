//! The systems whose locks lockkeeper reproduces, a file each: what they do right, and what they do wrong and lockkeeper
//! does not. A wrong way is shown twice: in a model of the original, where it happens, and against lockkeeper, where it
//! cannot.
//!
//! Each file ends with its list of `behaviours!`: functions over a service, run against a leader, a follower and gRPC.

mod all;
mod config_legacy;
mod config_locks;
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

use std::time::Duration;

use lockkeeper::client::Client;
use lockkeeper::service::LockService;

use crate::suite::{LOOK, PATIENT, in_use};

/// Awaits that nobody holds the lock.
async fn ended<S: LockService>(client: &Client<S>, name: &str) {
    in_use(client, name, 0, 0).await;
}

/// Awaits that the cluster's time has moved on by at least so much.
async fn passes<S: LockService>(client: &Client<S>, time: Duration) {
    let now = async || client.status().await.expect("a status").log_time;
    let until = now().await.after_ms(u64::try_from(time.as_millis()).expect("a short time"));
    let passed = async {
        while now().await < until {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENT, passed).await.expect("the cluster's time moves on");
}
