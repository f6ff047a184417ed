//! The client: a lock service, a namespace and a clock.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;

use super::error::ClientError;
use super::hold::HoldState;
use super::retry::Retry;
use super::session::{Session, SessionBuilder};
use super::settings::Settings;
use crate::clock::Clock;
use crate::model::{LockKey, LockName, LogTime, Metadata, Namespace, Query, QueryReply};
use crate::service::{Freshness, LockService};

/// An answer, and when it was true. Ages and remaining times in it are relative to `now`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadAt<T> {
    /// Log index up to which the answering node had applied.
    pub index: u64,
    /// Log time there.
    pub now: LogTime,
    /// The answer.
    pub value: T,
}

/// A client of a lock service, in one namespace. Clones share the session that [`lock`](Self::lock) opens.
#[derive(Clone)]
pub struct Client<S: LockService> {
    pub(crate) service: S,
    pub(crate) settings: Settings,
    /// Opened by the first lock that is requested without a session; replaced once it was lost.
    shared: Arc<tokio::sync::Mutex<Option<Session<S>>>>,
    /// Cancels of lease requests whose callers went away. Each ends with its first answer or after the request wait; those
    /// that are still under way when the last clone is dropped are aborted.
    cancels: Arc<Mutex<JoinSet<()>>>,
}

impl<S: LockService> Client<S> {
    /// A client in the namespace `default`, on the system's clock. Nothing is sent yet.
    pub fn new(service: S) -> Self {
        Self { service, settings: Settings::default(), shared: Arc::default(), cancels: Arc::default() }
    }

    /// Another namespace.
    #[must_use]
    pub fn namespace(self, namespace: Namespace) -> Self {
        self.with(|settings| settings.namespace = namespace)
    }

    /// Another clock. It must count suspend, or a lease may run out during sleep without the client's knowledge.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        self.with(|settings| (settings.begun, settings.clock) = (clock.now(), clock))
    }

    /// Metadata of its sessions, locks and leases, unless they have their own.
    #[must_use]
    pub fn metadata(self, metadata: Metadata) -> Self {
        self.with(|settings| settings.metadata = metadata)
    }

    /// How long a service that does not answer is asked again before its error is returned, 5 s by default. It bounds an
    /// outage, never a wait in a queue.
    #[must_use]
    pub fn request_wait(self, wait: Duration) -> Self {
        self.with(|settings| settings.request_wait = wait)
    }

    /// The clock that it goes by.
    pub(crate) fn time(&self) -> &Arc<dyn Clock> {
        &self.settings.clock
    }

    /// The service below.
    pub fn service(&self) -> &S {
        &self.service
    }

    /// A session of its own for the caller.
    pub fn session(&self) -> SessionBuilder<S> {
        SessionBuilder::new(self.service.clone(), self.settings.clone())
    }

    /// The shared session, opened anew where there is none or it was lost.
    pub(crate) async fn shared_session(&self) -> Result<Session<S>, ClientError> {
        let mut shared = self.shared.lock().await;
        if let Some(session) = shared.as_ref().filter(|session| session.state() != HoldState::Lost) {
            return Ok(session.clone());
        }
        let session = self.session().open().await?;
        *shared = Some(session.clone());
        Ok(session)
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self.shared = Arc::default();
        self
    }

    /// The same client for work that needs no session and must not keep one alive.
    pub(crate) fn without_session(&self) -> Self {
        Self { shared: Arc::default(), cancels: Arc::default(), ..self.clone() }
    }

    pub(crate) fn retry(&self) -> Retry {
        self.settings.retry()
    }

    pub(crate) fn key(&self, name: LockName) -> LockKey {
        self.settings.key(name)
    }

    /// Answers a query with a linearizable read.
    pub(crate) async fn query(&self, query: Query) -> Result<QueryReply, ClientError> {
        let attempt = || self.service.query(query.clone(), Freshness::Linearizable);
        Ok(self.retry().until_answered(attempt).await?)
    }

    /// Log time now, by a read that proves the leader.
    pub(crate) async fn log_time(&self) -> Result<LogTime, ClientError> {
        Ok(self.query(Query::Totals).await?.now)
    }

    /// Waits until each cancel of a lease request is answered, or was not for the request wait.
    #[cfg(feature = "cli")]
    pub(crate) async fn cancelled(&self) {
        let under_way = || std::mem::take(&mut *self.cancels.lock().unwrap_or_else(PoisonError::into_inner));
        let mut cancels = under_way();
        while cancels.join_next().await.is_some() {}
    }

    /// Runs a cancel in a task of this client.
    pub(crate) fn run_in_background(&self, cancel: impl Future<Output = ()> + Send + 'static) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mut cancels = self.cancels.lock().unwrap_or_else(PoisonError::into_inner);
        while cancels.try_join_next().is_some() {}
        cancels.spawn_on(cancel, &runtime);
    }
}

/// Sends a query and returns its answer as a [`ReadAt`](crate::client::ReadAt). An answer of another kind is an error of the
/// function around it.
macro_rules! read {
    ($client:expr, $query:expr, $kind:ident) => {{
        let answered = $client.query($query).await?;
        let $crate::model::QueryReply { index, now, answer: $crate::model::QueryResult::$kind(value) } = answered
        else {
            return Err(ClientError::unexpected_answer(&answered));
        };
        ReadAt { index, now, value }
    }};
}

pub(crate) use read;

impl<S: LockService> Session<S> {
    /// A client of the same service and namespace, for queries and for changes of others' locks. Locks that are requested
    /// without a session are requested in this one: the client is a reference to it, as a clone is, until it is lost.
    #[must_use]
    pub fn client(&self) -> Client<S> {
        let (service, settings) = (self.service.clone(), self.settings.clone());
        let shared = Arc::new(tokio::sync::Mutex::new(Some(self.clone())));
        Client { service, settings, shared, cancels: Arc::default() }
    }
}

impl<S: LockService> fmt::Debug for Client<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("namespace", &self.settings.namespace).finish_non_exhaustive()
    }
}
