//! A lock service for the tests of the calls, and a clock that follows tokio's, which a test may pause.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant as TokioInstant, sleep};

use super::super::call::{Api, RequestContext};
use crate::clock::{Clock, Instant};
use crate::limits;
use crate::model::{
    Acquire, Attachment, Checked, Command, FencingToken, Grant, HolderView, LockName, LogTime, Namespace, Outcome,
    Part, Place, Query, QueryReply, QueryResult, Refusal, RenewalTarget, Reply, SessionId, TokenState, Totals,
    WallTime,
};
use crate::net::{CertificateState, ConnectionsMax};
use crate::rpc::Tasks;
use crate::service::{
    Call, ClaimRef, Download, EventSender, Events, Freshness, LockService, Operation, RenewalCall, ServerInfo,
    ServiceError, Status, Subscription,
};
use crate::shapes::tests::holder;

/// TTL of each session.
pub(in crate::http::api) const TTL: Duration = Duration::from_secs(10);
/// Number of parts of a listing.
const PARTS: u64 = 3;
/// Length of each lease, as a check shows it: another copy of its request has lengthened it.
pub(in crate::http::api) const LENGTHENED_MS: u64 = 60_000;

/// The time of tokio's clock.
#[derive(Debug)]
pub(in crate::http::api) struct TokioClock(TokioInstant);

impl Clock for TokioClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(0).after(TTL * 100 + self.0.elapsed())
    }

    fn wall(&self) -> WallTime {
        WallTime(0)
    }

    fn random_u128(&self) -> u128 {
        7
    }
}

/// Returns what a call gets at a node that runs, as long as the sender exists.
pub(in crate::http::api) fn context(fake: &Fake) -> (RequestContext<Fake>, watch::Sender<bool>) {
    let (mut context, stop) = context_of(fake.clone());
    Arc::get_mut(&mut context.api).expect("no other owner").clock = fake.clock.clone();
    (context, stop)
}

/// Like [`context`], for any service, by the clock of the system.
pub(super) fn context_of<S: LockService>(service: S) -> (RequestContext<S>, watch::Sender<bool>) {
    let info = ServerInfo {
        cluster: "harbour".to_owned(),
        cluster_id: watch::channel(Some(1)).1,
        node: 1,
        leaderless_max: std::time::Duration::MAX,
        leader: watch::channel(None).1,
        endpoints: watch::channel(Vec::new()).1,
        connections: ConnectionsMax::default(),
        deadlocks: watch::channel(Default::default()).1,
    };
    let (stop, stopped) = watch::channel(false);
    let api = Api::new(service.clone(), info, Tasks::default(), stopped, Value::Null);
    let (namespace, certificate) = (Namespace::default(), CertificateState::default());
    (RequestContext { api, service, namespace, session: None, last_event: None, certificate }, stop)
}

/// A service that grants every lock at once, unless a test gives its acquires a place. Leases are granted as after a
/// wait. Clones are the same service.
#[derive(Debug, Clone)]
pub(in crate::http::api) struct Fake {
    pub(in crate::http::api) clock: Arc<TokioClock>,
    inner: Arc<Mutex<Inner>>,
    /// Number of acquires and of disconnects that were received.
    received: Arc<watch::Sender<(usize, usize)>>,
}

#[derive(Debug, Default)]
struct Inner {
    index: u64,
    acquire_takes: Duration,
    renewal_takes: Duration,
    /// Whether renewals are lost from now on.
    silent: bool,
    /// The place that acquires get; they are granted if there is none.
    place: Option<u64>,
    /// Whether a cached hold is before that place.
    behind_cached: bool,
    /// Whether the waits of all acquires are over.
    waits_are_over: bool,
    /// When the last grant or its lease ends.
    ends: Option<LogTime>,
    /// Whether queries are refused, as after the end of the caller's token.
    refuses_queries: bool,
    /// Whether leases are refused, because the lock is held.
    refuses_leases: bool,
    /// Answers to the next requests for leases and their withdrawals, before the usual ones.
    lease_answers: VecDeque<Result<Outcome, ServiceError>>,
    /// Number of leases that were withdrawn.
    withdrawals: usize,
    /// Number of parts of the listing that were read.
    parts: u64,
    /// Keep the subscriptions.
    subscribers: Vec<EventSender>,
}

impl Fake {
    pub(in crate::http::api) fn new() -> Self {
        Self { clock: Arc::new(TokioClock(TokioInstant::now())), inner: Arc::default(), received: Arc::default() }
    }

    /// Waits until an acquire was received.
    pub(in crate::http::api) async fn acquire_begins(&self) {
        self.received.subscribe().wait_for(|(acquires, _)| *acquires != 0).await.expect("it lives");
    }

    /// Waits until a session was reported as disconnected.
    pub(in crate::http::api) async fn disconnect(&self) {
        self.received.subscribe().wait_for(|(_, disconnects)| *disconnects != 0).await.expect("it lives");
    }

    /// Sets how long the answer to an acquire takes from now on.
    pub(in crate::http::api) fn acquire_takes(&self, takes: Duration) {
        self.with(|inner| inner.acquire_takes = takes);
    }

    /// Sets how long the answer to a renewal takes from now on.
    pub(in crate::http::api) fn renewal_takes(&self, takes: Duration) {
        self.with(|inner| inner.renewal_takes = takes);
    }

    /// Gives each acquire from now on this place in the queue, and the same place to acquires that wait already.
    pub(in crate::http::api) fn queue_acquires(&self, place: u64) {
        self.with(|inner| inner.place = Some(place));
    }

    /// Gives each acquire from now on the first place behind a cached hold.
    pub(in crate::http::api) fn queue_behind_cached(&self) {
        self.with(|inner| (inner.place, inner.behind_cached) = (Some(1), true));
    }

    /// Answers each acquire from now on that its wait is over.
    pub(in crate::http::api) fn end_waits(&self) {
        self.with(|inner| inner.waits_are_over = true);
    }

    /// Loses all renewals from now on.
    pub(in crate::http::api) fn lose_renewals(&self) {
        self.with(|inner| inner.silent = true);
    }

    /// Refuses all queries from now on.
    pub(in crate::http::api) fn refuse_queries(&self) {
        self.with(|inner| inner.refuses_queries = true);
    }

    /// Refuses all leases from now on.
    pub(in crate::http::api) fn refuse_leases(&self) {
        self.with(|inner| inner.refuses_leases = true);
    }

    /// Sets the answers to the next requests for leases and their withdrawals. Later ones get the usual answers.
    pub(in crate::http::api) fn answer_leases(&self, answers: impl IntoIterator<Item = Result<Outcome, ServiceError>>) {
        self.with(|inner| inner.lease_answers.extend(answers));
    }

    /// Returns how many leases were withdrawn.
    pub(in crate::http::api) fn withdrawals(&self) -> usize {
        self.with(|inner| inner.withdrawals)
    }

    /// Returns the next part of a listing without rows. Each part is read one index later.
    fn part(&self) -> QueryReply {
        let index = self.with(|inner| {
            inner.parts += 1;
            inner.parts
        });
        let next = (index < PARTS).then(|| LockName::parse("a").expect("legal"));
        QueryReply { index, now: self.stamp(), answer: QueryResult::Locks(Part { rows: vec![], next }) }
    }

    /// Returns how often a session was reported as disconnected.
    pub(in crate::http::api) fn disconnects(&self) -> usize {
        self.received.borrow().1
    }

    /// Returns the time until another client could be granted the lock.
    pub(in crate::http::api) fn left(&self) -> Duration {
        let ends = self.with(|inner| inner.ends).expect("the grant has an end");
        Duration::from_millis(ends.ms_since(self.stamp()))
    }

    /// Returns the grant of an acquire.
    fn grant(&self, acquire: &Acquire) -> Grant {
        let after = |ms| self.stamp().after_ms(ms);
        let deadline = acquire.lease_ms.map(after);
        let ends = acquire.extras.as_ref().and_then(|extras| extras.at_most_ms).map(after);
        self.with(|inner| inner.ends = deadline.into_iter().chain(ends).min());
        Grant { token: FencingToken::new(0, 31), deadline, ends, waited_ms: 0 }
    }

    /// Returns the place of an acquire that waits.
    fn queued(&self) -> Option<Place> {
        let lock = LockName::parse("a").expect("legal");
        let (place, behind_cached) = self.with(|inner| (inner.place, inner.behind_cached));
        let held_by = behind_cached.then(|| Box::new(HolderView { cached: true, ..holder() }));
        place.map(|place| Place { lock, place, sequence: 88, held_by })
    }

    /// Returns the deadline that a renewal sets.
    fn renewed(&self, target: &RenewalTarget) -> LogTime {
        let RenewalTarget::Hold { lease_ms, .. } = target else { return self.deadline() };
        let deadline = self.stamp().after_ms(*lease_ms);
        self.with(|inner| inner.ends = Some(deadline));
        deadline
    }

    fn with<T>(&self, act: impl FnOnce(&mut Inner) -> T) -> T {
        act(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the log time, which is the time of the clock.
    fn stamp(&self) -> LogTime {
        LogTime(self.clock.now().as_nanos() / 1_000_000)
    }

    fn reply(&self, outcome: Outcome) -> Reply {
        let index = self.with(|inner| {
            inner.index += 1;
            inner.index
        });
        Reply::new(index, self.stamp(), outcome)
    }

    fn deadline(&self) -> LogTime {
        self.stamp().after_ms(TTL.as_secs() * 1_000)
    }

    fn subscribed(&self) -> Events {
        let (sender, events) = Events::channel(1);
        self.with(|inner| inner.subscribers.push(sender));
        events
    }
}

impl LockService for Fake {
    async fn submit(&self, call: Call) -> Result<Reply, ServiceError> {
        if let Command::OpenSession(open) = &call.command {
            let (session, ttl_ms, deadline) = (SessionId::new(0, 7), open.ttl_ms, self.deadline());
            return Ok(self.reply(Outcome::Opened { session, ttl_ms, deadline }));
        }
        if let Command::Attach(_) = &call.command {
            return Ok(self.reply(Outcome::Attached { attachment: Attachment(1), deadline: self.deadline() }));
        }
        if let Command::Disconnected { .. } = &call.command {
            self.received.send_modify(|(_, disconnects)| *disconnects += 1);
        }
        if let Command::Acquire(acquire) = &call.command {
            self.received.send_modify(|(acquires, _)| *acquires += 1);
            sleep(self.with(|inner| inner.acquire_takes)).await;
            if self.with(|inner| inner.waits_are_over) {
                return Ok(self.reply(Outcome::TimedOut));
            }
            let granted = || Outcome::Granted(self.grant(acquire));
            return Ok(self.reply(self.queued().map_or_else(granted, Outcome::Queued)));
        }
        if let Command::CancelTake { .. } = &call.command {
            self.with(|inner| inner.withdrawals += 1);
        }
        if let Command::TakeLease(_) | Command::CancelTake { .. } = &call.command
            && let Some(answer) = self.with(|inner| inner.lease_answers.pop_front())
        {
            return answer.map(|outcome| self.reply(outcome));
        }
        if let Command::TakeLease(take) = &call.command {
            if self.with(|inner| inner.refuses_leases) {
                let held = Refusal::Held { lock: take.lock.clone(), holder: None, closed: None };
                return Ok(self.reply(Outcome::Refused(held)));
            }
            let (token, deadline) = (FencingToken::new(0, 31), Some(self.stamp().after_ms(limits::CLAIM_LEASE_MS_MAX)));
            return Ok(self.reply(Outcome::Granted(Grant { token, deadline, ends: None, waited_ms: 0 })));
        }
        Ok(self.reply(Outcome::Done))
    }

    async fn renew(&self, renewals: Vec<RenewalCall>) -> Result<Vec<Reply>, ServiceError> {
        if self.with(|inner| inner.silent) {
            std::future::pending::<()>().await;
        }
        let renewed = |renewal: RenewalCall| {
            let deadline = self.renewed(&renewal.target);
            self.reply(Outcome::Renewed { deadline, attempt: renewal.attempt, token: None })
        };
        let replies = renewals.into_iter().map(renewed).collect();
        sleep(self.with(|inner| inner.renewal_takes)).await;
        Ok(replies)
    }

    async fn wait_outcome(&self, _: ClaimRef) -> Result<Reply, ServiceError> {
        std::future::pending().await
    }

    async fn query(&self, query: Query, _: Freshness) -> Result<QueryReply, ServiceError> {
        if self.with(|inner| inner.refuses_queries) {
            return Err(ServiceError::Unauthenticated { why: "the token has ended".to_owned() });
        }
        if let Query::List(_) = query {
            return Ok(self.part());
        }
        let answer = if let Query::Claim { .. } = query {
            QueryResult::Claim { outcome: self.queued().map(Outcome::Queued), recalled: vec![] }
        } else if let Query::Check { token, .. } = query {
            let (since, deadline) = (Some(self.stamp()), Some(self.stamp().after_ms(LENGTHENED_MS)));
            QueryResult::Checked(Checked { state: TokenState::Valid, lowest_valid: token, since, deadline })
        } else {
            QueryResult::Totals(Totals::default())
        };
        Ok(QueryReply { index: 1, now: self.stamp(), answer })
    }

    async fn subscribe(&self, _: Subscription) -> Result<Events, ServiceError> {
        Ok(self.subscribed())
    }

    fn hold_events(&self, _: SessionId) -> Result<Events, ServiceError> {
        Ok(self.subscribed())
    }

    async fn status(&self) -> Result<Status, ServiceError> {
        Err(ServiceError::Internal("no test asks for the status".to_owned()))
    }

    async fn operate(&self, _: Operation) -> Result<(), ServiceError> {
        Ok(())
    }

    async fn backup(&self) -> Result<Download, ServiceError> {
        Err(ServiceError::Stopping)
    }
}
