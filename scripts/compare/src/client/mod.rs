//! One client of each product, with a connection and a session of its own, as a process of its own would have them.

mod etcd;
mod lockkeeper;
mod redis;
mod zookeeper;

use std::time::Duration;

use anyhow::Result;

use crate::product::{Address, Product};

pub(crate) use etcd::leader as etcd_leader;
pub(crate) use lockkeeper::leader as lockkeeper_leader;
pub(crate) use zookeeper::leader as zookeeper_leader;

/// How long a session or a key lives without being renewed. All renew at a third of it.
pub(crate) const TTL: Duration = Duration::from_secs(10);

/// A client of one of the products.
pub(crate) enum Client {
    Etcd(etcd::Client),
    Zookeeper(zookeeper::Client),
    Redis(redis::Client),
    Lockkeeper(lockkeeper::Client),
}

/// A lock that a client holds, with what its release needs.
pub(crate) enum Held {
    Etcd(Vec<u8>),
    Zookeeper(String),
    Redis { name: String, secret: String },
    Lockkeeper(::lockkeeper::client::LockGuard),
}

impl Client {
    /// Connects client `number` and opens its session. Where a product answers from every node, the clients are spread over
    /// them by their numbers.
    pub(crate) async fn connect(product: Product, nodes: &[Address], number: usize) -> Result<Self> {
        Ok(match product {
            Product::Etcd => Client::Etcd(etcd::Client::connect(nodes, number).await?),
            Product::Zookeeper => Client::Zookeeper(zookeeper::Client::connect(nodes, number).await?),
            Product::Redis => Client::Redis(redis::Client::connect(nodes).await?),
            Product::Lockkeeper => Client::Lockkeeper(lockkeeper::Client::connect(nodes, number).await?),
        })
    }

    /// Waits until the lock is this client's. May be cut off and called again.
    pub(crate) async fn acquire(&mut self, name: &str) -> Result<Held> {
        match self {
            Client::Etcd(client) => client.acquire(name).await,
            Client::Zookeeper(client) => client.acquire(name).await,
            Client::Redis(client) => client.acquire(name).await,
            Client::Lockkeeper(client) => client.acquire(name).await,
        }
    }

    /// Gives a lock back. It is given back when this returns.
    pub(crate) async fn release(&mut self, held: Held) -> Result<()> {
        match (self, held) {
            (Client::Etcd(client), Held::Etcd(key)) => client.release(key).await,
            (Client::Zookeeper(client), Held::Zookeeper(path)) => client.release(&path).await,
            (Client::Redis(client), Held::Redis { name, secret }) => client.release(&name, &secret).await,
            (Client::Lockkeeper(_), Held::Lockkeeper(guard)) => Ok(guard.release().await.map(|_| ())?),
            _ => anyhow::bail!("a lock of another product"),
        }
    }

    /// After an error or a time-out: goes to another node, where the product's library does not do that by itself.
    pub(crate) async fn go_on(&mut self) {
        if let Client::Etcd(client) = self {
            client.go_on().await;
        }
    }

    /// Ends the session; what it holds is free at once, where the product can do that.
    pub(crate) async fn close(self) {
        // The servers of a measurement are thrown away after it: an error here means nothing.
        match self {
            Client::Etcd(client) => client.close().await,
            Client::Lockkeeper(client) => client.close().await,
            Client::Zookeeper(_) | Client::Redis(_) => {}
        }
    }
}
