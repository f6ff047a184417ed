//! Connections to the other nodes: how one is dialled, which are kept, and when one is given up.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant as TokioInstant;
use tonic::codegen::Service;
use tonic::transport::{Channel, Endpoint};

use super::messages::peer_client::PeerClient;
use crate::limits::{
    DIAL_MS_MAX, DIAL_PAUSE_MS_MAX, DIAL_PAUSE_MS_MIN, PEER_MESSAGE_BYTES_MAX, PEER_PING_MS, PEER_PING_WAIT_MS,
};
use crate::net::Connector;

/// What a connection is for: each purpose has its own, so that bulk never delays a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    /// Votes, and leadership that is handed over.
    Pulse,
    /// Log entries and heartbeats, which are entries' own proof of life.
    Entries,
    /// Snapshot files.
    Snapshot,
    /// Calls that Raft has nothing to do with.
    Forward,
}

#[derive(Default)]
struct Link {
    address: String,
    channel: Option<Channel>,
    /// Counts channels, so that a late failure does not drop its successor.
    generation: u64,
    failures: u32,
    not_before: Option<TokioInstant>,
    /// One dials; whoever else wants the connection waits for what comes of it.
    dialling: Arc<tokio::sync::Mutex<()>>,
}

/// All connections of this node to others. A failed call drops its connection; the next one dials again, after a
/// pause that doubles while the node stays unreachable.
///
/// They live on the runtime that these were made on, whoever asks for them first: an application may call a node from
/// several runtimes, and a connection must not end with one of them.
pub(super) struct Connections {
    runtime: Handle,
    connector: Connector,
    links: Mutex<BTreeMap<(u64, Purpose), Link>>,
}

/// A borrowed connection. Unless the call on it is said to have gone well, it is dropped: a call that was abandoned
/// half-way says nothing good about it.
pub(super) struct Borrowed {
    links: Arc<Connections>,
    key: (u64, Purpose),
    generation: u64,
    pub(super) client: PeerClient<Channel>,
    well: bool,
}

impl Borrowed {
    /// The call was answered, be it with a refusal.
    pub(super) fn went_well(mut self) {
        self.well = true;
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if !self.well {
            self.links.forget(self.key, self.generation);
        }
    }
}

impl Connections {
    /// On the present runtime.
    pub(super) fn new(connector: Connector) -> Self {
        Self { runtime: Handle::current(), connector, links: Mutex::default() }
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<(u64, Purpose), Link>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget(&self, key: (u64, Purpose), generation: u64) {
        if let Some(link) = self.table().get_mut(&key)
            && link.generation == generation
        {
            link.channel = None;
        }
    }

    /// A connection to that node for that purpose, dialled if need be.
    pub(super) async fn borrow(self: &Arc<Self>, node: u64, address: &str, purpose: Purpose) -> io::Result<Borrowed> {
        let key = (node, purpose);
        if let Some(borrowed) = self.there(key, address).await {
            return Ok(borrowed);
        }
        let dialling = Arc::clone(&self.table().entry(key).or_default().dialling);
        let alone = dialling.lock_owned().await;
        if let Some(borrowed) = self.there(key, address).await {
            return Ok(borrowed);
        }
        self.may_dial(key, address)?;
        // A task of its own goes on where its caller goes away: others wait for what comes of it.
        let (links, address) = (Arc::clone(self), address.to_owned());
        let dialled = self.runtime.spawn(async move {
            let _alone = alone;
            let channel = dial(&links.connector, &address).await?;
            Ok::<_, io::Error>((links.dialled(key, channel.clone()), channel))
        });
        let (generation, channel) = dialled.await.map_err(io::Error::other)??;
        Ok(self.borrowed(key, generation, channel))
    }

    /// Keeps a connection that was just made. Answers its generation.
    fn dialled(&self, key: (u64, Purpose), channel: Channel) -> u64 {
        let mut table = self.table();
        let link = table.entry(key).or_default();
        link.generation += 1;
        link.channel = Some(channel);
        link.failures = 0;
        link.not_before = None;
        link.generation
    }

    /// The connection that is there already. One that has ended since is forgotten here, before anything is sent on it.
    async fn there(self: &Arc<Self>, key: (u64, Purpose), address: &str) -> Option<Borrowed> {
        let (generation, channel) = {
            let mut table = self.table();
            let link = table.entry(key).or_default();
            if link.address != address {
                *link = Link { address: address.to_owned(), generation: link.generation, ..Link::default() };
            }
            (link.generation, link.channel.clone()?)
        };
        let mut probe = channel.clone();
        if poll_fn(|cx| probe.poll_ready(cx)).await.is_err() {
            self.forget(key, generation);
            return None;
        }
        Some(self.borrowed(key, generation, channel))
    }

    /// Refuses during the pause after a failed dial, and otherwise notes that one begins: until it succeeds it counts as
    /// failed.
    fn may_dial(&self, key: (u64, Purpose), address: &str) -> io::Result<()> {
        let mut table = self.table();
        let link = table.entry(key).or_default();
        if link.not_before.is_some_and(|not_before| TokioInstant::now() < not_before) {
            return Err(io::Error::other(format!("node {} at {address} did not answer a moment ago", key.0)));
        }
        link.not_before = Some(TokioInstant::now() + pause(link.failures));
        link.failures = link.failures.saturating_add(1);
        Ok(())
    }

    fn borrowed(self: &Arc<Self>, key: (u64, Purpose), generation: u64, channel: Channel) -> Borrowed {
        let client = PeerClient::new(channel)
            .max_decoding_message_size(PEER_MESSAGE_BYTES_MAX)
            .max_encoding_message_size(PEER_MESSAGE_BYTES_MAX);
        Borrowed { links: Arc::clone(self), key, generation, client, well: false }
    }
}

async fn dial(connector: &Connector, address: &str) -> io::Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(io::Error::other)?;
    // A call that waits for long notices by this that the other node is gone, or that the connection is dead.
    let (interval, patience) = (Duration::from_millis(PEER_PING_MS), Duration::from_millis(PEER_PING_WAIT_MS));
    let endpoint = endpoint.tcp_nodelay(true).http2_keep_alive_interval(interval).keep_alive_timeout(patience);
    let dialling = endpoint.connect_with_connector(connector.clone());
    match tokio::time::timeout(Duration::from_millis(DIAL_MS_MAX), dialling).await {
        Ok(result) => result.map_err(|error| io::Error::other(format!("{address}: {}", chain(&error)))),
        Err(_) => {
            let why = format!("{address}: no answer in {DIAL_MS_MAX} ms");
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        }
    }
}

/// How long nobody dials after so many failures in a row.
pub(super) fn pause(failures: u32) -> Duration {
    let doubled = DIAL_PAUSE_MS_MIN.saturating_mul(1 << failures.min(16));
    Duration::from_millis(doubled.min(DIAL_PAUSE_MS_MAX))
}

/// An error with its causes: tonic's own text says only "transport error".
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
