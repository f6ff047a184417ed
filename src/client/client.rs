//! The client, which consists of a lock service, a namespace and a clock.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, ready};
use tokio::runtime::Handle as Runtime;
use tokio::task::JoinSet;

use super::error::ClientError;
use super::hold::HoldState;
use super::retry::Retry;
use super::session::{LastError, Session, SessionBuilder};
use super::settings::Settings;
use super::wait::no_answer;
use crate::clock::Clock;
use crate::model::{LockKey, LockName, LogTime, Metadata, Namespace, Query, QueryReply};
use crate::mutex::Mutex;
use crate::service::{Advice, Freshness, LockService};

/// An answer and the log time at which it was true. Ages and remaining times in it are relative to `now`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadAt<T> {
    /// Log index up to which the answering node had applied the log.
    pub index: u64,
    /// Log time of that node's state.
    pub now: LogTime,
    /// The value that was read.
    pub value: T,
}

/// A session that was opened, or that a task is opening. The task makes progress even if none of those that wait for
/// the session is polled.
type Opening<S> = Shared<BoxFuture<'static, Result<Session<S>, ClientError>>>;

/// The shared session, and the last error of its opening.
type SharedSession<S> = (Opening<S>, LastError);

/// A client of a lock service in one namespace. Clones share the session that [`lock`](Self::lock) opens.
#[derive(Debug, Clone)]
pub struct Client<S: LockService> {
    pub(crate) service: S,
    pub(crate) settings: Settings,
    /// The shared session. The first request without a session opens it; it is replaced after it was lost.
    shared: Arc<Mutex<Option<SharedSession<S>>>>,
    /// Cancels of lease requests whose callers dropped them. Each ends with its first answer or after the request wait;
    /// those that are still under way when the last clone is dropped are aborted.
    cancels: Arc<Mutex<JoinSet<()>>>,
}

impl<S: LockService> Client<S> {
    /// Creates a client in the namespace `default` that uses the system's clock. Sends nothing.
    pub fn new(service: S) -> Self {
        Self { service, settings: Settings::default(), shared: Arc::default(), cancels: Arc::default() }
    }

    /// Uses another namespace.
    #[must_use]
    pub fn namespace(self, namespace: Namespace) -> Self {
        self.with(|settings| settings.namespace = namespace)
    }

    /// Uses another clock. It must include the time that the machine is suspended, or a lease may expire during a
    /// suspend without the client's knowledge. Pauses between attempts are measured on it, too.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        self.with(|settings| (settings.begun, settings.clock) = (clock.now(), clock))
    }

    /// Sets the default metadata of sessions, locks and leases.
    #[must_use]
    pub fn metadata(self, metadata: Metadata) -> Self {
        self.with(|settings| settings.metadata = metadata)
    }

    /// Sets how long a request is retried while the service does not answer, before its error is returned; 5 s by
    /// default. It bounds an outage, never a wait in a queue.
    #[must_use]
    pub fn request_wait(self, wait: Duration) -> Self {
        self.with(|settings| settings.request_wait = wait)
    }

    /// Sets the TTL of the shared session, and of other sessions whose builder sets none.
    #[must_use]
    pub(crate) fn session_ttl(self, ttl: Duration) -> Self {
        self.with(|settings| settings.ttl = Some(ttl))
    }

    pub(crate) fn time(&self) -> &Arc<dyn Clock> {
        &self.settings.clock
    }

    /// Returns the lock service that this client calls.
    pub fn service(&self) -> &S {
        &self.service
    }

    /// Returns the builder of a separate session, which is not the shared one.
    pub fn session(&self) -> SessionBuilder<S> {
        SessionBuilder::new(self.service.clone(), self.settings.clone())
    }

    /// Returns the shared session. Opens one if there is none or the last one was lost.
    pub(crate) async fn shared_session(&self) -> Result<Session<S>, ClientError> {
        loop {
            let (opening, begun) = self.opening();
            match opening.await {
                // The patience of this opening began before this call.
                Err(error) if !begun && error.advice() != Advice::GiveUp => {}
                opened => return opened,
            }
        }
    }

    /// Returns the error of a request that was not sent, because the shared session was not opened in time. It is the
    /// last error of the opening, if there was one.
    pub(crate) fn not_opened(&self) -> ClientError {
        let last = self.shared.lock().as_ref().and_then(|(_, last)| last.lock().clone());
        last.map_or_else(|| no_answer("opening a session"), |error| error.of_read().into())
    }

    /// Returns the shared session or its opening, and whether the opening has begun with this call.
    fn opening(&self) -> (Opening<S>, bool) {
        let mut shared = self.shared.lock();
        let lasts = |(opening, _): &&SharedSession<S>| {
            if opening.peek().is_none() {
                // Polled, because a result that no caller waited for is not known yet.
                drop(opening.clone().now_or_never());
            }
            match opening.peek() {
                Some(Ok(session)) => session.state() != HoldState::Lost,
                Some(Err(_)) => false,
                None => true,
            }
        };
        if let Some((opening, _)) = shared.as_ref().filter(lasts) {
            return (opening.clone(), false);
        }
        let builder = self.session();
        let last = builder.last_error.clone();
        let task = tokio::spawn(builder.open());
        let opened = async { task.await.unwrap_or_else(|_| Err(no_answer("opening a session"))) };
        let (opening, _) = shared.insert((opened.boxed().shared(), last));
        (opening.clone(), true)
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self.shared = Arc::default();
        self
    }

    /// Returns the same client for work that needs no session and must not keep the shared one alive.
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
        Ok(self.retry().until_read(attempt).await?)
    }

    /// Reads the current log time, with a read that proves that the answering node leads.
    pub(crate) async fn log_time(&self) -> Result<LogTime, ClientError> {
        Ok(self.query(Query::Totals).await?.now)
    }

    /// Waits for the cancels of lease requests. Each ends when it is answered or its request wait is over.
    #[cfg(feature = "cli")]
    pub(crate) async fn cancelled(&self) {
        let under_way = || std::mem::take(&mut *self.cancels.lock());
        let mut cancels = under_way();
        while cancels.join_next().await.is_some() {}
    }

    /// Runs a cancel in a task of this client.
    pub(crate) fn run_in_background(&self, runtime: &Runtime, cancel: impl Future<Output = ()> + Send + 'static) {
        let mut cancels = self.cancels.lock();
        while cancels.try_join_next().is_some() {}
        cancels.spawn_on(cancel, runtime);
    }
}

/// Sends a query and returns its answer as a [`ReadAt`](crate::client::ReadAt). If the answer has another kind, the
/// surrounding function returns an error.
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
    /// Returns a client of the same service and namespace, for queries and for operations on other sessions' locks. Its
    /// requests use this session, and it keeps the session open like a clone, until the session is lost.
    #[must_use]
    pub fn client(&self) -> Client<S> {
        let (service, settings) = (self.service.clone(), self.settings.clone());
        let opened = ready(Ok(self.clone())).boxed().shared();
        let shared = Arc::new(Mutex::new(Some((opened, LastError::default()))));
        Client { service, settings, shared, cancels: Arc::default() }
    }
}
