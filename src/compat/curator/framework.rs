//! One connection with its namespace and its session.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::client::{Client, ClientError, HoldState, Session};
use crate::model::{Invalid, Metadata, Namespace, Owner};
use crate::service::LockService;

/// A connection in one namespace, with one session for all locks that are made from it. Clones are the same connection.
///
/// A session that was lost is replaced by the next call; what the lost one held stays lost.
pub struct CuratorFramework<S: LockService> {
    connection: Arc<Connection<S>>,
}

struct Connection<S: LockService> {
    client: Client<S>,
    session_timeout: Option<Duration>,
    session: tokio::sync::Mutex<Session<S>>,
    /// Names that were drawn.
    drawn: AtomicU64,
}

/// How a connection is to be. [`start`](Self::start) opens it.
#[derive(Debug)]
#[must_use = "the connection that it was made from stays in its own namespace"]
pub struct FrameworkBuilder<S: LockService> {
    client: Client<S>,
    session_timeout: Option<Duration>,
}

impl<S: LockService> FrameworkBuilder<S> {
    /// The session ends so long after its last renewal.
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = Some(timeout);
        self
    }

    /// A cluster that does not answer is asked again for so long before a call fails. It never bounds a wait for a lock.
    pub fn connection_timeout(mut self, timeout: Duration) -> Self {
        self.client = self.client.request_wait(timeout);
        self
    }

    /// What its locks say of themselves.
    pub fn metadata(mut self, metadata: Metadata) -> Self {
        self.client = self.client.metadata(metadata);
        self
    }

    /// Opens the session.
    pub async fn start(self) -> Result<CuratorFramework<S>, ClientError> {
        let session = open(&self.client, self.session_timeout).await?;
        let connection = Connection {
            client: self.client,
            session_timeout: self.session_timeout,
            session: tokio::sync::Mutex::new(session),
            drawn: AtomicU64::new(0),
        };
        Ok(CuratorFramework { connection: Arc::new(connection) })
    }
}

async fn open<S: LockService>(client: &Client<S>, timeout: Option<Duration>) -> Result<Session<S>, ClientError> {
    let builder = client.session();
    let builder = match timeout {
        Some(timeout) => builder.ttl(timeout),
        None => builder,
    };
    builder.open().await
}

impl<S: LockService> CuratorFramework<S> {
    /// A connection in this namespace. The same path in two namespaces is two locks.
    pub fn builder(service: S, namespace: Namespace) -> FrameworkBuilder<S> {
        FrameworkBuilder { client: Client::new(service).namespace(namespace), session_timeout: None }
    }

    /// Another connection, in another namespace. This one stays where it is.
    pub fn using_namespace(&self, namespace: Namespace) -> FrameworkBuilder<S> {
        let client = self.connection.client.clone().namespace(namespace);
        FrameworkBuilder { client, session_timeout: self.connection.session_timeout }
    }

    /// The client below, in the same namespace.
    #[must_use]
    pub fn client(&self) -> &Client<S> {
        &self.connection.client
    }

    /// The session, opened anew where the last one was lost.
    pub async fn session(&self) -> Result<Session<S>, ClientError> {
        let mut session = self.connection.session.lock().await;
        if session.state() == HoldState::Lost {
            *session = open(&self.connection.client, self.connection.session_timeout).await?;
        }
        Ok(session.clone())
    }

    /// A line of execution with a name that no other of this connection has.
    #[must_use]
    pub fn task(&self) -> Task {
        Task(Owner::parse(&self.draw("task")).expect("a short name"))
    }

    /// A name that no other of this connection has.
    pub(super) fn draw(&self, kind: &str) -> String {
        format!("{kind}-{}", self.connection.drawn.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

impl<S: LockService> Clone for CuratorFramework<S> {
    fn clone(&self) -> Self {
        Self { connection: self.connection.clone() }
    }
}

impl<S: LockService> fmt::Debug for CuratorFramework<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CuratorFramework").field("client", &self.connection.client).finish_non_exhaustive()
    }
}

/// A line of execution: what a thread is to Curator. Locks are entered again, and given back, by the same one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Task(Owner);

impl Task {
    /// One with a name that others see while it holds or waits. Two with the same name are the same to one connection.
    pub fn named(name: &str) -> Result<Self, Invalid> {
        Owner::parse(name).map(Self)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.as_str()
    }
}
