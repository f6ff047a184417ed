//! A wrapper around a lock service that counts requests and can pause waits and queries.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use lockkeeper::model::{Command, DocumentCommand, LogTime, Query, QueryReply, Reply, SessionId};
use lockkeeper::service::{
    Call, ClaimRef, Download, Events, Freshness, LockService, Operation, RenewalCall, ServiceError, Status,
    Subscription,
};
use tokio::sync::{Notify, watch};

/// A lock service that counts and pauses. Clones share their state.
#[derive(Debug, Clone)]
pub(crate) struct Probe<S> {
    inner: S,
    seen: Arc<Seen>,
}

/// The counts and switches of a [`Probe`].
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The number of commands and queries.
    pub(crate) requests: AtomicU64,
    /// The number of renewals and of attaches, which also renew.
    pub(crate) renewals: AtomicU64,
    /// The number of waits that returned.
    pub(crate) wake_ups: AtomicU64,
    /// Whether waits for a grant start only after `resume`.
    pub(crate) waits_paused: AtomicBool,
    /// Whether queries of a lock are forwarded only after `resume`.
    pub(crate) queries_paused: AtomicBool,
    /// Whether renewals are forwarded only after `resume`.
    pub(crate) renewals_paused: AtomicBool,
    /// Whether confirmations of prepared documents are forwarded only after `resume`.
    pub(crate) confirms_paused: AtomicBool,
    /// Whether unlocks of documents are forwarded only after `resume`.
    pub(crate) unlocks_paused: AtomicBool,
    /// Whether the next status is the own view of a node that was partitioned from its leader long ago.
    pub(crate) cut_off: AtomicBool,
    /// The milliseconds by which the service's time seems to advance with each read of a ping or of the totals, and the
    /// sum so far.
    pub(crate) clock_jump_ms: AtomicU64,
    ahead_ms: AtomicU64,
    /// The log time of each ping that was applied.
    pub(crate) pings: Mutex<Vec<LogTime>>,
    /// Notified when a call is paused.
    pub(crate) paused: Notify,
    /// Resumes the paused calls.
    pub(crate) resume: Notify,
}

impl Seen {
    /// Returns at once, or after `resume` if `paused` is set.
    async fn pass(&self, paused: &AtomicBool) {
        if paused.load(SeqCst) {
            let resume = self.resume.notified();
            self.paused.notify_one();
            resume.await;
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
    async fn submit(&self, mut call: Call) -> Result<Reply, ServiceError> {
        // A command contains the time that its caller read. The service refuses a time that is ahead of its log time.
        let ahead_ms = self.seen.ahead_ms.load(SeqCst);
        call.since = call.since.map(|since| LogTime(since.0.saturating_sub(ahead_ms)));
        let renews = matches!(call.command, Command::Attach(_));
        let count = if renews { &self.seen.renewals } else { &self.seen.requests };
        count.fetch_add(1, SeqCst);
        if matches!(call.command, Command::Document(DocumentCommand::Confirm { .. })) {
            self.seen.pass(&self.seen.confirms_paused).await;
        }
        if matches!(call.command, Command::Document(DocumentCommand::Unlock { .. })) {
            self.seen.pass(&self.seen.unlocks_paused).await;
        }
        let pings = matches!(call.command, Command::Document(DocumentCommand::Ping { .. }));
        let reply = self.inner.submit(call).await;
        if let Some(reply) = reply.as_ref().ok().filter(|_| pings) {
            self.seen.pings.lock().expect("not poisoned").push(reply.stamp);
        }
        reply
    }

    fn attachment(&self, session: SessionId) -> watch::Receiver<bool> {
        self.inner.attachment(session)
    }

    async fn renew(&self, renewals: Vec<RenewalCall>) -> Result<Vec<Reply>, ServiceError> {
        self.seen.renewals.fetch_add(1, SeqCst);
        self.seen.pass(&self.seen.renewals_paused).await;
        self.inner.renew(renewals).await
    }

    async fn wait_outcome(&self, claim: ClaimRef) -> Result<Reply, ServiceError> {
        self.seen.pass(&self.seen.waits_paused).await;
        let reply = self.inner.wait_outcome(claim).await;
        self.seen.wake_ups.fetch_add(1, SeqCst);
        reply
    }

    async fn query(&self, query: Query, freshness: Freshness) -> Result<QueryReply, ServiceError> {
        self.seen.requests.fetch_add(1, SeqCst);
        if matches!(query, Query::Inspect { .. } | Query::Holders { .. }) {
            self.seen.pass(&self.seen.queries_paused).await;
        }
        let jumps = matches!(query, Query::Pings { .. } | Query::Totals);
        let mut reply = self.inner.query(query, freshness).await?;
        if jumps {
            let jump_ms = self.seen.clock_jump_ms.load(SeqCst);
            reply.now.0 += self.seen.ahead_ms.fetch_add(jump_ms, SeqCst) + jump_ms;
        }
        Ok(reply)
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Events, ServiceError> {
        self.inner.subscribe(subscription).await
    }

    fn hold_events(&self, session: SessionId) -> Result<Events, ServiceError> {
        self.inner.hold_events(session)
    }

    async fn status(&self) -> Result<Status, ServiceError> {
        let status = self.inner.status().await?;
        if self.seen.cut_off.swap(false, SeqCst) {
            return Ok(Status { leader: None, log_time: LogTime(0), ..status });
        }
        Ok(status)
    }

    async fn operate(&self, operation: Operation) -> Result<(), ServiceError> {
        self.inner.operate(operation).await
    }

    async fn backup(&self) -> Result<Download, ServiceError> {
        self.inner.backup().await
    }
}
