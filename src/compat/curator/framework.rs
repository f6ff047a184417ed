//! A connection to one namespace with one session.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::client::{Client, ClientError, Session};
use crate::model::{Invalid, Metadata, Namespace, Owner};
use crate::service::LockService;

/// A connection to one namespace, with one session for all its locks. Clones are the same connection.
///
/// The next call replaces a session that was lost; the holds of the lost session stay lost.
#[derive(Debug, Clone)]
pub struct CuratorFramework<S: LockService> {
    /// Its shared session is the session of the connection.
    client: Client<S>,
    /// Number of names that were allocated.
    drawn: Arc<AtomicU64>,
}

/// Options of a connection. [`start`](Self::start) opens it.
#[derive(Debug)]
#[must_use = "nothing is opened before start()"]
pub struct FrameworkBuilder<S: LockService> {
    client: Client<S>,
}

impl<S: LockService> FrameworkBuilder<S> {
    /// Sets the time after the last renewal at which the session ends.
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.client = self.client.session_ttl(timeout);
        self
    }

    /// Sets how long requests are retried while the cluster does not answer. It never bounds a wait for a lock.
    pub fn connection_timeout(mut self, timeout: Duration) -> Self {
        self.client = self.client.request_wait(timeout);
        self
    }

    /// Sets the metadata of the connection's locks.
    pub fn metadata(mut self, metadata: Metadata) -> Self {
        self.client = self.client.metadata(metadata);
        self
    }

    /// Opens the connection with its session.
    pub async fn start(self) -> Result<CuratorFramework<S>, ClientError> {
        self.client.shared_session().await?;
        Ok(CuratorFramework { client: self.client, drawn: Arc::default() })
    }
}

impl<S: LockService> CuratorFramework<S> {
    /// Options of a connection to this namespace. The same path in two namespaces is two locks.
    pub fn builder(service: S, namespace: Namespace) -> FrameworkBuilder<S> {
        FrameworkBuilder { client: Client::new(service).namespace(namespace) }
    }

    /// Returns options of another connection, to another namespace. This connection keeps its own namespace.
    pub fn using_namespace(&self, namespace: Namespace) -> FrameworkBuilder<S> {
        FrameworkBuilder { client: self.client.clone().namespace(namespace) }
    }

    /// Returns the client that the connection uses, in the same namespace. Locks that are requested from it are in the
    /// connection's session.
    #[must_use]
    pub fn client(&self) -> &Client<S> {
        &self.client
    }

    /// Returns the connection's session. Opens a new one if the last one was lost.
    pub async fn session(&self) -> Result<Session<S>, ClientError> {
        self.client.shared_session().await
    }

    /// Returns a task with a name that is unique in this connection.
    #[must_use]
    pub fn task(&self) -> Task {
        Task(Owner::parse(&self.draw("task")).expect("a short name"))
    }

    /// Returns a name that is unique in this connection.
    pub(super) fn draw(&self, kind: &str) -> String {
        format!("{kind}-{}", self.drawn.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// A line of execution, like a thread in Curator. Only the task that acquired a lock may release it or acquire it
/// again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Task(Owner);

impl Task {
    /// Creates a task with a name that other clients see while it holds or waits. Two tasks of one connection with the
    /// same name are the same task.
    pub fn named(name: &str) -> Result<Self, Invalid> {
        Owner::parse(name).map(Self)
    }

    /// The name of the task.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.as_str()
    }
}
