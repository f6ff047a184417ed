//! Everything pleasant, written once above any [`LockService`]: sessions that renew themselves, guards that know when
//! they are lost, leases, and questions.
//!
//! Knows: limits, model, clock, service. Never: wire formats, node internals.
//!
//! - A [`Client`] is a service, a namespace and a clock. `client.lock("nightly").acquire().await?` is the shortest way.
//! - A [`Session`] is kept alive by one task of its own, its keeper, which ends when the last handle on the session (a
//!   `Session` or a [`LockGuard`]) is dropped, or when the session is lost.
//! - What is dropped is cleaned up: an acquire leaves no waiter, a guard leaves no lock. The keeper repeats that work
//!   until it is answered or the session ends, and with the session everything ends.
//! - Validity is counted on the client's own clock from before each request was sent, so that the client knows of a
//!   loss before another can be granted.

#[path = "request/acquire.rs"]
mod acquire;
mod attempts;
#[path = "retry.rs"]
mod backoff;
mod documents;
mod election;
#[path = "session/commands.rs"]
mod errands;
mod error;
mod guard;
mod history;
mod hold;
#[path = "guard/watch.rs"]
mod hold_watch;
#[path = "session/keep_alive.rs"]
mod keeper;
mod lease;
#[path = "query.rs"]
mod look;
#[path = "admin.rs"]
mod manage;
mod numbers;
#[path = "guard/permit.rs"]
mod permit;
#[path = "session/state.rs"]
mod presence;
#[path = "request/pending.rs"]
mod pursuit;
mod session;
#[path = "guard/set.rs"]
mod sets;
#[path = "lease/request.rs"]
mod take;
#[cfg(test)]
mod tests;
#[path = "token_filter.rs"]
mod tokens;
mod validity;
#[path = "wait.rs"]
mod waiting;
#[path = "options.rs"]
mod wanted;
mod watch;
#[path = "session/hold_events.rs"]
mod witness;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::clock::{Clock, Instant, SystemClock};
use crate::model::{LockKey, LockName, Metadata, Namespace};
use crate::service::{LockService, REQUEST_WAIT};

pub use acquire::LockRequest;
pub use documents::{Grabbed, NewDocument};
pub use election::{Campaign, Election, Leader, Leadership, Observer};
pub use error::{ClientError, Lost};
pub use guard::{LockGuard, Released};
pub use history::HistoryReader;
pub use hold::Asked;
pub use hold_watch::HoldWatch;
pub use lease::{Lease, Refreshed};
pub use look::{ListRequest, Seen};
pub use permit::Permit;
pub use presence::HoldState;
pub use session::{Session, SessionBuilder};
pub use sets::{SetGuard, SetMember, SetRequest};
pub use take::LeaseRequest;
pub use tokens::TokenFilter;
pub use watch::Watch;

pub(crate) use backoff::Retry;
pub(crate) use session::default_ttl_ms;
pub(crate) use waiting::settled;

/// A client of a lock service, in one namespace. Clones share the session that [`lock`](Self::lock) opens.
#[derive(Clone)]
pub struct Client<S: LockService> {
    service: S,
    settings: Settings,
    /// Opened by the first lock that is asked for without a session; replaced once it was lost.
    shared: Arc<tokio::sync::Mutex<Option<Session<S>>>>,
    /// Withdrawals of takes whose callers went away. Each ends with its first answer or after the request wait; those
    /// that are still under way when the last clone is dropped are aborted.
    withdrawals: Arc<Mutex<JoinSet<()>>>,
}

/// What a client hands on to its sessions.
#[derive(Debug, Clone)]
struct Settings {
    namespace: Namespace,
    clock: Arc<dyn Clock>,
    /// Where the beat begins on which its sessions are renewed.
    begun: Instant,
    metadata: Metadata,
    request_wait: Duration,
}

impl<S: LockService> Client<S> {
    /// A client in the namespace `default`, on the system's clock. Nothing is sent yet.
    pub fn new(service: S) -> Self {
        let metadata = Metadata { pid: std::process::id(), ..Metadata::default() };
        let clock = SystemClock::new();
        let settings = Settings {
            namespace: Namespace::default(),
            begun: clock.now(),
            clock: Arc::new(clock),
            metadata,
            request_wait: REQUEST_WAIT,
        };
        Self { service, settings, shared: Arc::default(), withdrawals: Arc::default() }
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

    /// What its sessions, locks and leases say of themselves unless told otherwise.
    #[must_use]
    pub fn metadata(self, metadata: Metadata) -> Self {
        self.with(|settings| settings.metadata = metadata)
    }

    /// How long a service that does not answer is asked again before its error is given back, 5 s by default. It
    /// bounds an outage, never a wait in a queue.
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

    /// A session of one's own.
    pub fn session(&self) -> SessionBuilder<S> {
        SessionBuilder::new(self.clone())
    }

    /// Asks for a lock, in a session that this client opens when it is first needed and keeps for its own life.
    pub fn lock(&self, name: &str) -> LockRequest<S> {
        LockRequest::in_shared_session(self.clone(), name)
    }

    /// Asks for a lease: a lock without a session, proven by a handle.
    pub fn lease(&self, name: &str) -> LeaseRequest<S> {
        LeaseRequest::new(self.clone(), name)
    }

    /// The shared session, opened anew where there is none or it was lost.
    async fn shared_session(&self) -> Result<Session<S>, ClientError> {
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
    fn without_session(&self) -> Self {
        Self { shared: Arc::default(), withdrawals: Arc::default(), ..self.clone() }
    }

    fn retry(&self) -> Retry {
        Retry::new(self.settings.clock.clone(), self.settings.request_wait)
    }

    fn key(&self, name: LockName) -> LockKey {
        LockKey { namespace: self.settings.namespace.clone(), name }
    }

    /// Waits until each take whose caller went away is withdrawn, or was asked for in vain for the request wait.
    #[cfg(feature = "cli")]
    pub(crate) async fn withdrawn(&self) {
        let under_way = || std::mem::take(&mut *self.withdrawals.lock().unwrap_or_else(PoisonError::into_inner));
        let mut withdrawals = under_way();
        while withdrawals.join_next().await.is_some() {}
    }

    fn withdraw_later(&self, work: impl Future<Output = ()> + Send + 'static) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mut withdrawals = self.withdrawals.lock().unwrap_or_else(PoisonError::into_inner);
        while withdrawals.try_join_next().is_some() {}
        withdrawals.spawn_on(work, &runtime);
    }
}

impl<S: LockService> fmt::Debug for Client<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("namespace", &self.settings.namespace).finish_non_exhaustive()
    }
}
