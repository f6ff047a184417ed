//! ZooKeeper with the lock recipe of its manual and of Curator: an ephemeral sequential node, and a watch on the node
//! before it.

use std::collections::HashMap;

use ::lockkeeper::clock::{Clock, SystemClock};
use anyhow::{Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use zookeeper_client::{Acls, Client as Library, CreateMode, Error};

use crate::product::{Address, TTL};

/// The number of digits that the server appends to a sequential node.
const DIGITS: usize = 10;

pub(crate) struct Client {
    cluster: String,
    library: Library,
    /// Prefixes of nodes that may exist. An acquire that failed or was dropped must reuse its node: a second one would
    /// wait behind the first.
    pending: HashMap<String, String>,
}

impl Client {
    pub(super) async fn connect(nodes: &[Address], number: usize) -> Result<Self> {
        let first = number % nodes.len();
        let in_turn: Vec<_> = nodes[first..].iter().chain(&nodes[..first]).map(|node| node.client.as_str()).collect();
        let cluster = in_turn.join(",");
        let library = session(&cluster).await?;
        Ok(Self { cluster, library, pending: HashMap::new() })
    }

    /// Returns the path of this client's node.
    pub(super) async fn acquire(&mut self, name: &str) -> Result<String> {
        match self.wait(name).await {
            Ok(path) => Ok(path),
            Err(error) => {
                if error == Error::SessionExpired {
                    self.pending.clear();
                    self.library = session(&self.cluster).await?;
                }
                bail!("{error}")
            }
        }
    }

    async fn wait(&mut self, name: &str) -> Result<String, Error> {
        let folder = format!("/locks/{}", name.replace('/', "."));
        let own = self.enqueue(&folder).await?;
        loop {
            let mut queue = self.library.list_children(&folder).await?;
            queue.sort_unstable_by(|one, other| sequence(one).cmp(sequence(other)));
            let Some(place) = queue.iter().position(|node| node.starts_with(&own)) else {
                self.pending.remove(&folder);
                return Err(Error::NoNode);
            };
            let Some(before) = place.checked_sub(1) else { return Ok(format!("{folder}/{}", queue[0])) };
            match self.library.get_and_watch_data(&format!("{folder}/{}", queue[before])).await {
                Ok((_, _, watcher)) => drop(watcher.changed().await),
                Err(Error::NoNode) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Creates this client's node in the folder of the lock, unless it exists. Returns its prefix.
    async fn enqueue(&mut self, folder: &str) -> Result<String, Error> {
        let random = || format!("client-{:032x}-", SystemClock::new().random_u128());
        let known = self.pending.get(folder).cloned();
        let own = known.clone().unwrap_or_else(random);
        if known.is_some() {
            let queue = self.library.list_children(folder).await?;
            if queue.iter().any(|node| node.starts_with(&own)) {
                return Ok(own);
            }
        }
        self.pending.insert(folder.to_owned(), own.clone());
        let ephemeral = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        loop {
            match self.library.create(&format!("{folder}/{own}"), b"", &ephemeral).await {
                Ok(_) => return Ok(own),
                Err(Error::NoNode) => self.make(folder).await?,
                Err(error) => return Err(error),
            }
        }
    }

    /// Creates the folder, which the server removes automatically once it has been empty for some time.
    async fn make(&self, folder: &str) -> Result<(), Error> {
        let container = CreateMode::Container.with_acls(Acls::anyone_all());
        match self.library.mkdir(folder, &container).await {
            Ok(()) | Err(Error::NodeExists) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn release(&mut self, path: &str) -> Result<()> {
        match self.library.delete(path, None).await {
            Ok(()) | Err(Error::NoNode) => {
                let folder = path.rsplit_once('/').map_or(path, |(folder, _)| folder);
                self.pending.remove(folder);
                Ok(())
            }
            Err(error) => bail!("{error}"),
        }
    }
}

async fn session(cluster: &str) -> Result<Library> {
    Ok(Library::connector().with_session_timeout(TTL).connect(cluster).await?)
}

fn sequence(node: &str) -> &str {
    node.get(node.len().saturating_sub(DIGITS)..).unwrap_or_default()
}

/// The index of the leader in the list of nodes.
pub(crate) async fn leader(nodes: &[Address]) -> Result<usize> {
    for (position, node) in nodes.iter().enumerate() {
        let mut status = String::new();
        let mut stream = TcpStream::connect(&node.client).await?;
        stream.write_all(b"srvr").await?;
        stream.read_to_string(&mut status).await?;
        if status.contains("Mode: leader") {
            return Ok(position);
        }
    }
    bail!("there is no leader")
}
