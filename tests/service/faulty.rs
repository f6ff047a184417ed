//! A wrapper around a lock service with faults that a test switches on and off.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use lockkeeper::model::{Command, LogTime, Outcome, Position, Query, QueryReply, Refusal, Reply, SessionId};
use lockkeeper::service::{
    Call, ClaimRef, Download, Events, Freshness, LockService, NotSent, Operation, RenewalCall, ServiceError, Status,
    Subscription,
};
use tokio::sync::{Notify, watch};

/// A lock service with faults. Clones share their faults.
#[derive(Debug, Clone)]
pub(crate) struct Faulty<S> {
    inner: S,
    faults: Arc<Faults>,
}

/// The faults of a [`Faulty`] service.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// Whether renewals and attaches are neither forwarded nor answered.
    pub(crate) ignores_renewals: AtomicBool,
    /// The number of answers to commands that are lost, after the commands were applied.
    pub(crate) answers_lost: AtomicU32,
    /// Whether commands are refused for want of a right, except attaches.
    pub(crate) forbidden: AtomicBool,
    /// The number of renewals that are refused for want of a right.
    pub(crate) renewals_forbidden: AtomicU32,
    /// The number of commands that were submitted, without attaches.
    pub(crate) commands: AtomicU32,
    /// The number of acquires that were submitted.
    pub(crate) acquires: AtomicU32,
    /// The answer to all acquires, if they are not forwarded.
    answer: Mutex<Option<Outcome>>,
    /// The number of waits for a grant that fail.
    pub(crate) waits_broken: AtomicU32,
    /// Fails all current waits for a grant.
    pub(crate) waits_cut: Notify,
    /// The number of events after which a subscription ends; 0 for never.
    pub(crate) events_before_cut: AtomicU32,
    /// Whether only an attach is forwarded.
    pub(crate) detached: AtomicBool,
    /// Whether the session has a stream.
    stream: watch::Sender<bool>,
    /// The number of attaches that were answered.
    pub(crate) attaches: AtomicU32,
    /// The next subscription reports that events up to this position are no longer kept.
    pub(crate) missed: Mutex<Option<Position>>,
}

impl Faults {
    /// Refuses all acquires from now on; `None` forwards them again.
    pub(crate) fn refuse(&self, refusal: Option<Refusal>) {
        self.answer(refusal.map(Outcome::Refused));
    }

    /// Gives all acquires this answer from now on; `None` forwards them again.
    pub(crate) fn answer(&self, outcome: Option<Outcome>) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = outcome;
    }

    /// Ends the session's stream until the next attach. Its commands are still forwarded.
    pub(crate) fn cut_stream(&self) {
        self.stream.send_replace(false);
    }

    /// Ends the session's stream. Nothing is forwarded before an attach.
    pub(crate) fn detach(&self) {
        self.detached.store(true, SeqCst);
        self.cut_stream();
    }

    pub(crate) fn has_stream(&self) -> bool {
        *self.stream.borrow()
    }
}

impl<S> Faulty<S> {
    /// Wraps a service. There are no faults at first.
    pub(crate) fn new(inner: S) -> (Self, Arc<Faults>) {
        let faults = Arc::new(Faults { stream: watch::Sender::new(true), ..Faults::default() });
        (Self { inner, faults: faults.clone() }, faults)
    }

    /// Ends the events after `events_before_cut`, if that is set.
    fn cut_in_time(&self, mut inner: Events) -> Events {
        let before_cut = self.faults.events_before_cut.load(SeqCst);
        if before_cut == 0 {
            return inner;
        }
        let (sender, events) = Events::channel(1);
        // The task ends after its last event, or when the reader is dropped.
        tokio::spawn(async move {
            for _ in 0..before_cut {
                tokio::select! {
                    event = inner.next() => if !sender.send(event).await { return },
                    () = sender.closed() => return,
                }
            }
        });
        events
    }

    fn is_detached(&self) -> Result<(), ServiceError> {
        if self.faults.detached.load(SeqCst) { Err(ServiceError::not_sent(NotSent::Detached)) } else { Ok(()) }
    }
}

/// The answer to a client without the right, which no retry changes.
fn forbidden() -> ServiceError {
    ServiceError::Forbidden { why: "the right is missing".to_owned() }
}

fn decrement(count: &AtomicU32) -> bool {
    count.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok()
}

impl<S: LockService> LockService for Faulty<S> {
    async fn submit(&self, call: Call) -> Result<Reply, ServiceError> {
        if matches!(call.command, Command::Attach(_)) {
            if self.faults.ignores_renewals.load(SeqCst) {
                return std::future::pending().await;
            }
            self.faults.detached.store(false, SeqCst);
            let reply = self.inner.submit(call).await;
            self.faults.attaches.fetch_add(1, SeqCst);
            self.faults.stream.send_replace(true);
            return reply;
        }
        self.is_detached()?;
        if self.faults.forbidden.load(SeqCst) {
            return Err(forbidden());
        }
        self.faults.commands.fetch_add(1, SeqCst);
        if matches!(call.command, Command::Acquire(_)) {
            self.faults.acquires.fetch_add(1, SeqCst);
            let answer = self.faults.answer.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(outcome) = answer {
                // A caller that repeats its acquire at once lets the other tasks run, as with a real service.
                tokio::task::yield_now().await;
                return Ok(Reply::new(1, LogTime(1), outcome));
            }
        }
        let reply = self.inner.submit(call).await?;
        if decrement(&self.faults.answers_lost) { Err(ServiceError::unknown("the answer was lost")) } else { Ok(reply) }
    }

    fn attachment(&self, _: SessionId) -> watch::Receiver<bool> {
        self.faults.stream.subscribe()
    }

    async fn renew(&self, renewals: Vec<RenewalCall>) -> Result<Vec<Reply>, ServiceError> {
        if self.faults.ignores_renewals.load(SeqCst) {
            return std::future::pending().await;
        }
        self.is_detached()?;
        if decrement(&self.faults.renewals_forbidden) {
            return Err(forbidden());
        }
        self.inner.renew(renewals).await
    }

    async fn wait_outcome(&self, claim: ClaimRef) -> Result<Reply, ServiceError> {
        if decrement(&self.faults.waits_broken) {
            return Err(ServiceError::unknown("the wait failed"));
        }
        tokio::select! {
            reply = self.inner.wait_outcome(claim) => reply,
            () = self.faults.waits_cut.notified() => Err(ServiceError::unknown("the wait was interrupted")),
        }
    }

    async fn query(&self, query: Query, freshness: Freshness) -> Result<QueryReply, ServiceError> {
        self.inner.query(query, freshness).await
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Events, ServiceError> {
        let missed = self.faults.missed.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(resume) = missed {
            let (sender, events) = Events::channel(1);
            let why = "they were not kept".to_owned();
            sender.send(Err(ServiceError::EventsMissed { why, resume })).await;
            return Ok(events);
        }
        Ok(self.cut_in_time(self.inner.subscribe(subscription).await?))
    }

    fn hold_events(&self, session: SessionId) -> Result<Events, ServiceError> {
        Ok(self.cut_in_time(self.inner.hold_events(session)?))
    }

    async fn status(&self) -> Result<Status, ServiceError> {
        self.inner.status().await
    }

    async fn operate(&self, operation: Operation) -> Result<(), ServiceError> {
        self.inner.operate(operation).await
    }

    async fn backup(&self) -> Result<Download, ServiceError> {
        self.inner.backup().await
    }
}
