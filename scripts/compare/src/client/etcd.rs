//! etcd through its lock service (`v3lock`): one lease for each client, and a queue on the server.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use etcd_client::{Client as Library, ConnectOptions, LockOptions};
use tokio::task::JoinHandle;

use crate::product::{Address, TTL};

const DIAL: Duration = Duration::from_millis(500);

pub(crate) struct Client {
    nodes: Vec<Address>,
    at: usize,
    /// Shared with the task that renews the lease, so that it uses the same node as the client.
    library: Arc<Mutex<Library>>,
    lease: i64,
    renewing: JoinHandle<()>,
}

async fn dial(node: &Address) -> Result<Library> {
    let options = ConnectOptions::new().with_connect_timeout(DIAL);
    Ok(Library::connect([format!("http://{}", node.client)], Some(options)).await?)
}

impl Client {
    pub(super) async fn connect(nodes: &[Address], number: usize) -> Result<Self> {
        let at = number % nodes.len();
        let mut library = dial(&nodes[at]).await?;
        let lease = library.lease_grant(TTL.as_secs().cast_signed(), None).await?.id();
        let library = Arc::new(Mutex::new(library));
        let renewing = tokio::spawn(renew(Arc::clone(&library), lease));
        Ok(Self { nodes: nodes.to_vec(), at, library, lease, renewing })
    }

    fn library(&self) -> Library {
        self.library.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the key of the lock.
    pub(super) async fn acquire(&mut self, name: &str) -> Result<Vec<u8>> {
        let options = LockOptions::new().with_lease(self.lease);
        match self.library().lock(name, Some(options)).await {
            Ok(locked) => Ok(locked.key().to_vec()),
            Err(error) if error.to_string().contains("lease not found") => {
                self.renewing.abort();
                *self = Self::connect(&self.nodes, self.at).await?;
                Err(error.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) async fn release(&self, key: Vec<u8>) -> Result<()> {
        self.library().unlock(key).await?;
        Ok(())
    }

    pub(super) async fn change_node(&mut self) {
        self.at = (self.at + 1) % self.nodes.len();
        if let Ok(library) = dial(&self.nodes[self.at]).await {
            *self.library.lock().unwrap_or_else(PoisonError::into_inner) = library;
        }
    }

    pub(super) async fn close(self) {
        let _ = self.library().lease_revoke(self.lease).await;
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

/// Renews the lease at a third of its TTL, and opens a new stream when one ends.
async fn renew(library: Arc<Mutex<Library>>, lease: i64) {
    loop {
        let mut at = library.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Ok(Ok((mut renewal, mut answers))) = tokio::time::timeout(DIAL, at.lease_keep_alive(lease)).await {
            while renewal.keep_alive().await.is_ok()
                && matches!(tokio::time::timeout(TTL / 3, answers.message()).await, Ok(Ok(Some(alive))) if 0 < alive.ttl())
            {
                tokio::time::sleep(TTL / 3).await;
            }
        }
        tokio::time::sleep(DIAL).await;
    }
}

/// The index of the leader in the list of nodes.
pub(crate) async fn leader(nodes: &[Address]) -> Result<usize> {
    for (position, node) in nodes.iter().enumerate() {
        let status = dial(node).await?.status().await?;
        if status.header().is_some_and(|header| header.member_id() == status.leader()) {
            return Ok(position);
        }
    }
    bail!("there is no leader")
}
