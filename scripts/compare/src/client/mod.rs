//! A client of each product with its own connection and session, as in a separate process.

mod etcd;
mod lockkeeper;
mod redis;
mod zookeeper;

use anyhow::Result;

use crate::product::{Address, Product};

pub(crate) use etcd::leader as etcd_leader;
pub(crate) use lockkeeper::leader as lockkeeper_leader;
pub(crate) use zookeeper::leader as zookeeper_leader;

/// A client of one of the products.
pub(crate) enum Client {
    Etcd(etcd::Client),
    Zookeeper(zookeeper::Client),
    Redis(redis::Client),
    Lockkeeper(lockkeeper::Client),
}

/// A held lock, with what its release needs.
pub(crate) enum Held {
    Etcd(Vec<u8>),
    Zookeeper(String),
    Redis { name: String, secret: String },
    Lockkeeper(::lockkeeper::client::LockGuard),
}

impl Client {
    /// Connects client `number` and opens its session. If every node of a product serves clients, the clients are
    /// spread over the nodes by their numbers.
    pub(crate) async fn connect(product: Product, nodes: &[Address], number: usize) -> Result<Self> {
        Ok(match product {
            Product::Etcd => Client::Etcd(etcd::Client::connect(nodes, number).await?),
            Product::Zookeeper => Client::Zookeeper(zookeeper::Client::connect(nodes, number).await?),
            Product::Redis => Client::Redis(redis::Client::connect(nodes).await?),
            Product::Lockkeeper | Product::LockkeeperCached => {
                Client::Lockkeeper(lockkeeper::Client::connect(product, nodes, number).await?)
            }
        })
    }

    /// Waits until this client holds the lock. The future may be dropped and the call repeated.
    pub(crate) async fn acquire(&mut self, name: &str) -> Result<Held> {
        Ok(match self {
            Client::Etcd(client) => Held::Etcd(client.acquire(name).await?),
            Client::Zookeeper(client) => Held::Zookeeper(client.acquire(name).await?),
            Client::Redis(client) => Held::Redis { name: name.to_owned(), secret: client.acquire(name).await? },
            Client::Lockkeeper(client) => Held::Lockkeeper(client.acquire(name).await?),
        })
    }

    /// Acquires a lock that mostly this client uses. Like [`acquire`](Self::acquire), except for a product that can
    /// keep such a lock between uses.
    pub(crate) async fn acquire_own(&mut self, name: &str) -> Result<Held> {
        match self {
            Client::Lockkeeper(client) => Ok(Held::Lockkeeper(client.acquire_own(name).await?)),
            Client::Etcd(_) | Client::Zookeeper(_) | Client::Redis(_) => self.acquire(name).await,
        }
    }

    /// Releases a lock. It is released when this returns, or kept for this client until another one requests it.
    pub(crate) async fn release(&mut self, held: Held) -> Result<()> {
        match (self, held) {
            (Client::Etcd(client), Held::Etcd(key)) => client.release(key).await,
            (Client::Zookeeper(client), Held::Zookeeper(path)) => client.release(&path).await,
            (Client::Redis(client), Held::Redis { name, secret }) => client.release(&name, &secret).await,
            (Client::Lockkeeper(_), Held::Lockkeeper(guard)) => Ok(guard.release().await.map(|_| ())?),
            _ => anyhow::bail!("a lock of another product"),
        }
    }

    /// Changes to another node after an error or a timeout, unless the product's library does that automatically.
    pub(crate) async fn change_node(&mut self) {
        if let Client::Etcd(client) = self {
            client.change_node().await;
        }
    }

    /// Closes the session and frees its locks at once, if the product supports that.
    pub(crate) async fn close(self) {
        // The servers are discarded after a measurement, so errors do not matter.
        match self {
            Client::Etcd(client) => client.close().await,
            Client::Lockkeeper(client) => client.close().await,
            Client::Zookeeper(_) | Client::Redis(_) => {}
        }
    }
}
