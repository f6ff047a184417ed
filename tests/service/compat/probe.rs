//! A lock service that counts what passes through it, and that can hold waits and looks up, around any other.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use lockkeeper::model::{Command, DocumentCommand, LogTime, Query, QueryReply, Reply, SessionId};
use lockkeeper::service::{
    Call, ClaimRef, Events, Freshness, LockService, RenewalCall, ServiceError, Status, Subscription,
};
use tokio::sync::{Notify, watch};

/// See the module. Clones share their counts.
#[derive(Clone)]
pub(crate) struct Probe<S> {
    inner: S,
    seen: Arc<Seen>,
}

/// What has passed.
#[derive(Default)]
pub(crate) struct Seen {
    /// Commands and questions.
    pub(crate) requests: AtomicU64,
    /// Renewals, and attaches, which renew.
    pub(crate) renewals: AtomicU64,
    /// Waiters that were told something.
    pub(crate) wake_ups: AtomicU64,
    /// Nobody begins to wait for a grant before `wait_on`.
    pub(crate) waits_held_up: AtomicBool,
    /// No look at a lock is passed on before `wait_on`.
    pub(crate) looks_held_up: AtomicBool,
    /// No confirmation of a prepared document is passed on before `wait_on`.
    pub(crate) confirms_held_up: AtomicBool,
    /// By how much the service's time seems to leap with every look at it, and by how much it did.
    pub(crate) leaps_ms: AtomicU64,
    ahead_ms: AtomicU64,
    /// Log time of each sign of life of a process that was applied.
    pub(crate) pings: Mutex<Vec<LogTime>>,
    /// Somebody is held up.
    pub(crate) held_up: Notify,
    /// Lets those that are held up go on.
    pub(crate) wait_on: Notify,
}

impl Seen {
    /// Goes on at once, or with `wait_on` while it is held up.
    async fn pass(&self, held_up: &AtomicBool) {
        if held_up.load(SeqCst) {
            let wait_on = self.wait_on.notified();
            self.held_up.notify_one();
            wait_on.await;
        }
    }
}

impl<S> Probe<S> {
    pub(crate) fn new(inner: S) -> (Self, Arc<Seen>) {
        let seen = Arc::new(Seen::default());
        (Self { inner, seen: seen.clone() }, seen)
    }
}

impl<S: LockService> LockService for Probe<S> {
    async fn submit(&self, call: Call) -> Result<Reply, ServiceError> {
        let renews = matches!(call.command, Command::Attach(_));
        let count = if renews { &self.seen.renewals } else { &self.seen.requests };
        count.fetch_add(1, SeqCst);
        if matches!(call.command, Command::Document(DocumentCommand::Confirm { .. })) {
            self.seen.pass(&self.seen.confirms_held_up).await;
        }
        let pings = matches!(call.command, Command::Document(DocumentCommand::Ping { .. }));
        let reply = self.inner.submit(call).await;
        if let Some(reply) = reply.as_ref().ok().filter(|_| pings) {
            self.seen.pings.lock().expect("nobody panics with it").push(reply.stamp);
        }
        reply
    }

    fn attachment(&self, session: SessionId) -> watch::Receiver<bool> {
        self.inner.attachment(session)
    }

    async fn renew(&self, renewals: Vec<RenewalCall>) -> Result<Vec<Reply>, ServiceError> {
        self.seen.renewals.fetch_add(1, SeqCst);
        self.inner.renew(renewals).await
    }

    async fn wait_outcome(&self, claim: ClaimRef) -> Result<Reply, ServiceError> {
        self.seen.pass(&self.seen.waits_held_up).await;
        let reply = self.inner.wait_outcome(claim).await;
        self.seen.wake_ups.fetch_add(1, SeqCst);
        reply
    }

    async fn query(&self, query: Query, freshness: Freshness) -> Result<QueryReply, ServiceError> {
        self.seen.requests.fetch_add(1, SeqCst);
        if matches!(query, Query::Inspect { .. }) {
            self.seen.pass(&self.seen.looks_held_up).await;
        }
        self.inner.query(query, freshness).await
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Events, ServiceError> {
        self.inner.subscribe(subscription).await
    }

    fn hold_events(&self, session: SessionId) -> Result<Events, ServiceError> {
        self.inner.hold_events(session)
    }

    async fn status(&self) -> Result<Status, ServiceError> {
        let ahead_ms = self.seen.ahead_ms.fetch_add(self.seen.leaps_ms.load(SeqCst), SeqCst);
        let status = self.inner.status().await?;
        Ok(Status { log_time: LogTime(status.log_time.0 + ahead_ms), ..status })
    }

    async fn transfer(&self, to: u64) -> Result<(), ServiceError> {
        self.inner.transfer(to).await
    }

    async fn raise_features(&self, to: u32) -> Result<(), ServiceError> {
        self.inner.raise_features(to).await
    }
}
