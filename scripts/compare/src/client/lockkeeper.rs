//! lockkeeper through its own client: a session on a stream to the leader, which the client finds automatically.

use ::lockkeeper::client::{Client as Library, LockGuard, Session};
use ::lockkeeper::rpc::{RemoteService, RemoteSettings};
use anyhow::Result;

use crate::product::{Address, Product, TTL};

pub(crate) struct Client {
    product: Product,
    session: Session<RemoteService>,
}

impl Client {
    pub(super) async fn connect(product: Product, nodes: &[Address], number: usize) -> Result<Self> {
        let first = number % nodes.len();
        let endpoints = nodes[first..].iter().chain(&nodes[..first]).map(|node| node.client.clone());
        let service = RemoteService::new(RemoteSettings::new(endpoints))?;
        Ok(Self { product, session: Library::new(service).session().ttl(TTL).open().await? })
    }

    pub(super) async fn acquire(&self, name: &str) -> Result<LockGuard> {
        Ok(self.session.lock(name).acquire().await?)
    }

    /// Acquires a lock that the session may keep between uses, if the product says so.
    pub(super) async fn acquire_own(&self, name: &str) -> Result<LockGuard> {
        let request = self.session.lock(name);
        let request = if self.product == Product::LockkeeperCached { request.cached() } else { request };
        Ok(request.acquire().await?)
    }

    pub(super) async fn close(self) {
        let _ = self.session.close().await;
    }
}

/// The index of the leader in the list of nodes.
pub(crate) async fn leader(nodes: &[Address]) -> Result<usize> {
    let library = Library::connect(nodes.iter().map(|node| node.client.clone())).await?;
    let leader = library.status().await?.leader.ok_or_else(|| anyhow::anyhow!("there is no leader"))?;
    Ok(usize::try_from(leader)?.saturating_sub(1))
}
