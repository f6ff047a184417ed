//! Connections to the other nodes: how they are opened, kept and dropped.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::runtime::Handle;
use tokio::time::{Instant as TokioInstant, sleep};
use tonic::codegen::Service;
use tonic::transport::{Channel, Endpoint};

use super::messages::peer_client::PeerClient;
use crate::limits::{
    ANSWER_BYTES_MAX, DIAL_MS_MAX, DIAL_PAUSE_MS_MAX, DIAL_PAUSE_MS_MIN, OPEN_LINKS_MS, PEER_MESSAGE_BYTES_MAX,
    PEER_PING_MS, PEER_PING_WAIT_MS,
};
use crate::mutex::Mutex;
use crate::net::{Connector, causes, with_causes};

/// The use of a connection. Each use has a separate connection, so that bulk data never delays a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    /// Votes and transfers of leadership.
    Vote,
    /// Log entries and heartbeats.
    Entries,
    /// Transfers of snapshot files.
    Snapshot,
    /// Calls that are forwarded between nodes, outside Raft.
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
    /// Held by the caller that opens the connection. Other callers of the same connection wait for its result.
    dialling: Arc<tokio::sync::Mutex<()>>,
}

/// All connections of this node to other nodes. A failed call drops its connection, and the next call opens a new one.
/// Between two attempts to connect there is a pause, which doubles while the node stays unreachable.
///
/// All connections run on the runtime that created this table, no matter which runtime a caller runs on. An application
/// may call a node from several runtimes, and the end of one of them must not close a connection.
pub(super) struct Connections {
    runtime: Handle,
    pub(super) connector: Connector,
    links: Mutex<BTreeMap<(u64, Purpose), Link>>,
}

/// A borrowed connection. It is dropped unless the caller reports that its call succeeded, because a call that was
/// dropped before its end may have failed. Calls that are forwarded are also dropped because their clients disconnect:
/// only a failure drops their connection, and pings find a connection that is dead.
pub(super) struct Borrowed {
    links: Arc<Connections>,
    key: (u64, Purpose),
    generation: u64,
    pub(super) client: PeerClient<Channel>,
    keep: bool,
}

impl Borrowed {
    /// Reports that the call was answered. A refusal is an answer, too.
    pub(super) fn succeeded(mut self) {
        self.keep = true;
    }

    /// Reports that the call failed for a reason that may lie in the connection.
    pub(super) fn failed(mut self) {
        self.keep = false;
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if !self.keep {
            self.links.forget(self.key, self.generation);
        }
    }
}

impl Connections {
    /// Creates the table for connections on the current runtime.
    pub(super) fn new(connector: Connector) -> Self {
        Self { runtime: Handle::current(), connector, links: Mutex::default() }
    }

    fn forget(&self, key: (u64, Purpose), generation: u64) {
        if let Some(link) = self.links.lock().get_mut(&key)
            && link.generation == generation
        {
            link.channel = None;
        }
    }

    /// Returns a connection to this node for this purpose. Opens one if there is none.
    pub(super) async fn borrow(self: &Arc<Self>, node: u64, address: &str, purpose: Purpose) -> io::Result<Borrowed> {
        let key = (node, purpose);
        if let Some(borrowed) = self.there(key, address).await {
            return Ok(borrowed);
        }
        let dialling = Arc::clone(&self.links.lock().entry(key).or_default().dialling);
        let alone = dialling.lock_owned().await;
        if let Some(borrowed) = self.there(key, address).await {
            return Ok(borrowed);
        }
        self.may_dial(key, address)?;
        // A separate task continues if the caller is dropped, because other callers wait for its result.
        let (links, address) = (Arc::clone(self), address.to_owned());
        let dialled = self.runtime.spawn(async move {
            let _alone = alone;
            let channel = dial(&links.connector, (key.0, &address)).await?;
            Ok::<_, io::Error>((links.dialled(key, channel.clone()), channel))
        });
        let (generation, channel) = dialled.await.map_err(io::Error::other)??;
        Ok(self.borrowed(key, generation, channel))
    }

    /// Opens the connections that an election and the next leader need, and opens them again when they have ended. So
    /// an election never waits for a new connection to a node that runs.
    pub(super) async fn keep_open(self: Arc<Self>, others: impl Fn() -> Vec<(u64, String)>) {
        loop {
            let opened = others().into_iter().map(|(node, address)| {
                let links = Arc::clone(&self);
                async move {
                    for purpose in [Purpose::Vote, Purpose::Entries, Purpose::Forward] {
                        match links.borrow(node, &address, purpose).await {
                            Ok(borrowed) => borrowed.succeeded(),
                            Err(_) => return,
                        }
                    }
                }
            });
            join_all(opened).await;
            sleep(Duration::from_millis(OPEN_LINKS_MS)).await;
        }
    }

    /// Stores a new connection and returns its generation.
    fn dialled(&self, key: (u64, Purpose), channel: Channel) -> u64 {
        let mut table = self.links.lock();
        let link = table.entry(key).or_default();
        link.generation += 1;
        link.channel = Some(channel);
        link.failures = 0;
        link.not_before = None;
        link.generation
    }

    /// Returns the existing connection, if there is one. Removes a connection that has ended, before anything is sent
    /// on it.
    async fn there(self: &Arc<Self>, key: (u64, Purpose), address: &str) -> Option<Borrowed> {
        let (generation, channel) = {
            let mut table = self.links.lock();
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

    /// Returns an error during the pause after a failed attempt. Otherwise records an attempt, which counts as failed
    /// until it succeeds.
    fn may_dial(&self, key: (u64, Purpose), address: &str) -> io::Result<()> {
        let mut table = self.links.lock();
        let link = table.entry(key).or_default();
        if link.not_before.is_some_and(|not_before| TokioInstant::now() < not_before) {
            return Err(io::Error::other(format!("node {} at {address} did not answer recently", key.0)));
        }
        link.not_before = Some(TokioInstant::now() + pause(link.failures));
        link.failures = link.failures.saturating_add(1);
        Ok(())
    }

    fn borrowed(self: &Arc<Self>, key: (u64, Purpose), generation: u64, channel: Channel) -> Borrowed {
        // The answer to a client's call may be larger than any other message between nodes.
        let answer = if key.1 == Purpose::Forward { ANSWER_BYTES_MAX } else { PEER_MESSAGE_BYTES_MAX };
        let client = PeerClient::new(channel)
            .max_decoding_message_size(answer)
            .max_encoding_message_size(PEER_MESSAGE_BYTES_MAX);
        Borrowed { links: Arc::clone(self), key, generation, client, keep: key.1 == Purpose::Forward }
    }
}

/// Opens a new connection. The error has the kind of its innermost I/O error.
pub(super) async fn dial(connector: &Connector, (node, address): (u64, &str)) -> io::Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(io::Error::other)?;
    // These pings let a long call detect that the other node is gone or the connection is dead.
    let (interval, patience) = (Duration::from_millis(PEER_PING_MS), Duration::from_millis(PEER_PING_WAIT_MS));
    let endpoint = endpoint.tcp_nodelay(true).http2_keep_alive_interval(interval).keep_alive_timeout(patience);
    let dialling = endpoint.connect_with_connector(connector.to_node(node));
    match tokio::time::timeout(Duration::from_millis(DIAL_MS_MAX), dialling).await {
        Ok(result) => result.map_err(|error| {
            let kinds = causes(&error).filter_map(|cause| cause.downcast_ref().map(io::Error::kind));
            io::Error::new(kinds.last().unwrap_or(io::ErrorKind::Other), format!("{address}: {}", with_causes(&error)))
        }),
        Err(_) => {
            let why = format!("{address}: no answer in {DIAL_MS_MAX} ms");
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        }
    }
}

/// The pause before the next attempt to connect after this number of failures in a row.
pub(super) fn pause(failures: u32) -> Duration {
    let doubled = DIAL_PAUSE_MS_MIN.saturating_mul(1 << failures.min(16));
    Duration::from_millis(doubled.min(DIAL_PAUSE_MS_MAX))
}
