//! A lock service with answers that a test controls.
//!
//! The service's log time equals the client's time, so that a deadline is known to the millisecond.

mod service;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::time::{TICK, TokioClock, until};
use crate::client::Client;
use crate::clock::{Clock, Instant};
use crate::model::{
    Attachment, Checked, Command, EndReason, Event, EventKind, FencingToken, Grant, Handle, LockKey, LockName,
    LockView, LogTime, Namespace, Outcome, Position, Principal, Query, QueryResult, Refusal, RenewalTarget, Reply,
    SessionId, TokenState, Totals, ValidTokens, WallTime,
};
use crate::mutex::Mutex;
use crate::service::{EventSender, RenewalCall, ServiceError};

/// A call that the service received.
#[derive(Debug, Clone)]
pub(super) enum Asked {
    Submit(Command),
    Renew(RenewalCall),
    Settled,
    Query(Query),
    Subscribe,
    Status,
}

/// What the service does with a call.
pub(super) enum Reaction {
    /// Serves the call as a healthy cluster would.
    Serve,
    /// Executes a command and loses its answer.
    Lost,
    /// Answers a command or renewal with this outcome.
    Outcome(Outcome),
    /// Answers with this outcome, this duration later than usual.
    Late(Duration, Outcome),
    /// Answers a query with this result.
    Answer(QueryResult),
    Fail(ServiceError),
    Silence,
}

type Rule = Box<dyn FnMut(&Asked) -> Reaction + Send>;

/// The fake service. Clones are the same service.
#[derive(Clone)]
pub(super) struct Fake {
    pub(super) clock: Arc<TokioClock>,
    inner: Arc<Mutex<Inner>>,
}

impl std::fmt::Debug for Fake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a fake service")
    }
}

struct Inner {
    /// The delay of a call to the service, and of its answer.
    ways: (Duration, Duration),
    rule: Rule,
    asked: Vec<(Instant, Asked)>,
    index: u64,
    tokens: u64,
    ttl_ms: u64,
    /// The handle of the last opened session, and the deadline that its opening set.
    opened: Option<(Handle, LogTime)>,
    attached: watch::Sender<bool>,
    cluster_id: u128,
    /// Number of queries in progress, and the largest such number so far.
    questions: (usize, usize),
    valid: Vec<FencingToken>,
    subscribers: Vec<EventSender>,
    /// The recalled holds that renewals name.
    recalled: Vec<FencingToken>,
    /// Whether subscriptions end as soon as they begin.
    end_subscriptions_at_once: bool,
    /// Number of commands and renewals that were answered.
    answered: usize,
}

impl Fake {
    pub(super) fn new() -> Self {
        let clock = Arc::new(TokioClock::new());
        let inner = Inner {
            ways: (Duration::from_millis(1), Duration::from_millis(1)),
            rule: Box::new(|_| Reaction::Serve),
            asked: Vec::new(),
            index: 0,
            tokens: 0,
            ttl_ms: 0,
            opened: None,
            attached: watch::Sender::new(true),
            cluster_id: 1,
            questions: (0, 0),
            valid: Vec::new(),
            subscribers: Vec::new(),
            recalled: Vec::new(),
            end_subscriptions_at_once: false,
            answered: 0,
        };
        Self { clock, inner: Arc::new(Mutex::new(inner)) }
    }

    /// Returns a client of this service that uses its clock.
    pub(super) fn client(&self) -> Client<Self> {
        Client::new(self.clone()).clock(self.clock.clone())
    }

    /// Sets the delay of calls and of their answers.
    pub(super) fn ways(&self, there: Duration, back: Duration) {
        self.inner.lock().ways = (there, back);
    }

    /// Sets the rule for calls from now on.
    pub(super) fn rule(&self, rule: impl FnMut(&Asked) -> Reaction + Send + 'static) {
        self.inner.lock().rule = Box::new(rule);
    }

    /// Sets whether sessions of this service have a stream.
    pub(super) fn attached(&self, attached: bool) {
        self.inner.lock().attached.send_replace(attached);
    }

    /// Turns the service into another cluster, which was restored from a backup.
    pub(super) fn restored(&self) {
        let mut inner = self.inner.lock();
        inner.cluster_id += 1;
        inner.subscribers.clear();
    }

    /// Sets the valid tokens.
    pub(super) fn valid(&self, tokens: &[u64]) {
        let mut inner = self.inner.lock();
        inner.valid = tokens.iter().map(|token| FencingToken::new(0, *token)).collect();
        inner.tokens = inner.tokens.max(tokens.iter().copied().max().unwrap_or(0));
    }

    /// Returns the number of calls so far that match.
    pub(super) fn count(&self, of: impl Fn(&Asked) -> bool) -> usize {
        self.inner.lock().asked.iter().filter(|(_, asked)| of(asked)).count()
    }

    /// Returns the calls so far that match, with the times at which they were sent.
    pub(super) fn asked(&self, of: impl Fn(&Asked) -> bool) -> Vec<(Instant, Asked)> {
        self.inner.lock().asked.iter().filter(|(_, asked)| of(asked)).cloned().collect()
    }

    /// Returns when the last matching call was sent.
    pub(super) fn sent(&self, of: impl Fn(&Asked) -> bool) -> Instant {
        self.asked(of).last().expect("it was asked").0
    }

    /// Waits until this number of further commands and renewals were answered and their callers have the answers.
    pub(super) async fn answers(&self, more: usize) {
        let before = self.inner.lock().answered;
        until(|| before + more <= self.inner.lock().answered).await;
        tokio::time::sleep(TICK).await;
    }

    /// Returns the largest number of queries that were in progress at the same time.
    pub(super) fn most_questions(&self) -> usize {
        self.inner.lock().questions.1
    }

    /// Sends this event or error to all subscribers.
    pub(super) async fn publish(&self, published: Result<Event, ServiceError>) {
        let subscribers = self.inner.lock().subscribers.clone();
        for subscriber in subscribers {
            subscriber.send(published.clone()).await;
        }
    }

    /// Sets the recalled holds that renewals name from now on.
    pub(super) fn recalled(&self, tokens: &[u64]) {
        self.inner.lock().recalled = tokens.iter().map(|token| FencingToken::new(0, *token)).collect();
    }

    /// Ends all subscriptions.
    pub(super) fn cut(&self) {
        self.inner.lock().subscribers.clear();
    }

    /// Makes subscriptions end as soon as they begin.
    pub(super) fn end_subscriptions_at_once(&self) {
        self.inner.lock().end_subscriptions_at_once = true;
    }

    /// Makes subscriptions last again.
    pub(super) fn followed(&self) {
        self.inner.lock().end_subscriptions_at_once = false;
    }

    /// Returns the current log time.
    pub(super) fn stamp(&self) -> LogTime {
        LogTime(1_000 + u64::try_from(self.clock.begun.elapsed().as_millis()).expect("a short test"))
    }

    /// Receives a call and applies the rule.
    async fn reach(&self, asked: Asked) -> Result<Reaction, ServiceError> {
        let ways = self.inner.lock().ways;
        let sent = self.clock.now();
        self.inner.lock().asked.push((sent, asked.clone()));
        tokio::time::sleep(ways.0).await;
        let reaction = (self.inner.lock().rule)(&asked);
        match reaction {
            Reaction::Silence => std::future::pending().await,
            Reaction::Fail(error) => {
                tokio::time::sleep(ways.1).await;
                Err(error)
            }
            Reaction::Late(late, outcome) => {
                tokio::time::sleep(late).await;
                Ok(Reaction::Outcome(outcome))
            }
            Reaction::Serve | Reaction::Lost | Reaction::Outcome(_) | Reaction::Answer(_) => Ok(reaction),
        }
    }

    /// Creates the answer now and returns it after the delay.
    async fn reply(&self, outcome: Outcome) -> Reply {
        let (index, ways) = {
            let mut inner = self.inner.lock();
            inner.index += 1;
            (inner.index, inner.ways)
        };
        let reply = Reply::new(index, self.stamp(), outcome);
        tokio::time::sleep(ways.1).await;
        self.inner.lock().answered += 1;
        reply
    }

    fn done(&self, command: &Command) -> Outcome {
        let stamp = self.stamp();
        let mut inner = self.inner.lock();
        let granted = |inner: &mut Inner, lease_ms: Option<u64>, at_most_ms: Option<u64>| {
            inner.tokens += 1;
            let (token, deadline) = (FencingToken::new(0, inner.tokens), lease_ms.map(|ms| stamp.after_ms(ms)));
            Grant { token, deadline, ends: at_most_ms.map(|ms| stamp.after_ms(ms)), waited_ms: 0 }
        };
        match command {
            Command::OpenSession(open) => {
                inner.ttl_ms = open.ttl_ms;
                let repeated = inner.opened.take().filter(|(handle, _)| *handle == open.handle);
                let deadline = repeated.map_or(stamp.after_ms(open.ttl_ms), |(_, deadline)| deadline);
                inner.opened = Some((open.handle.clone(), deadline));
                if deadline < stamp {
                    return Outcome::Refused(Refusal::Tombstoned { reason: EndReason::Expired });
                }
                Outcome::Opened { session: session(), ttl_ms: open.ttl_ms, deadline }
            }
            Command::Attach(attach) => {
                inner.attached.send_replace(true);
                Outcome::Attached { attachment: Attachment(attach.attempt), deadline: stamp.after_ms(inner.ttl_ms) }
            }
            Command::Acquire(acquire) => {
                Outcome::Granted(granted(&mut inner, acquire.lease_ms, acquire.choices().at_most_ms))
            }
            Command::TakeLease(take) => Outcome::Granted(granted(&mut inner, Some(take.lease_ms), None)),
            Command::Cancel { .. } | Command::CancelTake { .. } => Outcome::Withdrawn,
            Command::Release(_) | Command::DropLease { .. } => Outcome::Released { left: 0 },
            Command::Alter(_) => Outcome::Done,
            Command::CloseSession { .. } => Outcome::Closed,
            Command::Disconnected { .. }
            | Command::EndSession(_)
            | Command::ChangeSetting(_)
            | Command::Manage(_)
            | Command::Document(_)
            | Command::Tick
            | Command::LeaderlessGap { .. }
            | Command::Configure { .. }
            | Command::Announce(_)
            | Command::RaiseFeatures(_) => unreachable!("no test of this module submits {command:?}"),
        }
    }

    fn renewed(&self, renewal: &RenewalCall) -> Outcome {
        let (ttl_ms, newest) = {
            let inner = self.inner.lock();
            (inner.ttl_ms, FencingToken::new(0, inner.tokens))
        };
        let (length_ms, token) = match &renewal.target {
            RenewalTarget::Session(_) => (ttl_ms, None),
            RenewalTarget::Hold { lease_ms, token, .. } => (*lease_ms, Some(*token)),
            RenewalTarget::Lease { lease_ms, .. } => (*lease_ms, Some(newest)),
        };
        Outcome::Renewed { deadline: self.stamp().after_ms(length_ms), attempt: renewal.attempt, token }
    }

    fn answer(&self, query: &Query) -> QueryResult {
        let inner = self.inner.lock();
        match query {
            Query::Totals => QueryResult::Totals(Totals::default()),
            Query::Inspect { lock } | Query::Holders { lock } => QueryResult::Lock(LockView::free(lock.clone())),
            Query::Check { token, .. } => {
                let state = TokenState::Valid;
                QueryResult::Checked(Checked { state, lowest_valid: *token, since: None, deadline: None })
            }
            Query::Claim { .. } => QueryResult::Claim { outcome: None, recalled: vec![] },
            Query::Tokens { lock } => QueryResult::Tokens(ValidTokens {
                lock: lock.clone(),
                seen: Position { index: inner.index, n: 0 },
                tokens: inner.valid.iter().copied().collect(),
                next: FencingToken::new(0, inner.tokens + 1),
            }),
            Query::WouldBreak { lock, .. } => {
                QueryResult::WouldBreak(Outcome::Refused(Refusal::NotHeld { lock: lock.clone() }))
            }
            Query::List(_)
            | Query::Sessions { .. }
            | Query::Explain(_)
            | Query::History { .. }
            | Query::Documents { .. }
            | Query::Pings { .. } => unreachable!("no test of this module sends {query:?}"),
        }
    }

    /// Returns an event after all previous answers: a grant of the lock `a` with this token.
    pub(super) fn granted(&self, token: u64) -> Event {
        let mut inner = self.inner.lock();
        inner.index += 1;
        inner.tokens = inner.tokens.max(token);
        let lock = LockKey { namespace: Namespace::default(), name: LockName::parse("a").expect("a name") };
        let claim = crate::model::Claim::Request(crate::model::RequestId { session: session(), number: token });
        let subject = crate::model::Subject::hold(&lock, claim, FencingToken::new(0, token));
        let kind = EventKind::Granted { mode: crate::model::Mode::Shared, waited_ms: 0 };
        let position = Position { index: inner.index, n: 0 };
        Event { position, at: LogTime(1), wall: WallTime(1), namespace: Some(Namespace::default()), subject, kind }
    }
}

pub(super) fn is_check(asked: &Asked) -> bool {
    matches!(asked, Asked::Query(Query::Check { .. }))
}

/// Returns the only session that the service opens.
pub(super) fn session() -> SessionId {
    SessionId::new(0, 7)
}

/// Returns a view of the lock `a`: the service's session holds it with this token until this deadline.
pub(super) fn view(token: FencingToken, deadline: LogTime) -> QueryResult {
    let lock = LockKey { namespace: Namespace::default(), name: LockName::parse("a").expect("a name") };
    let holder = crate::model::HolderView {
        session: Some(session()),
        owner: None,
        principal: Principal::default(),
        token,
        mode: crate::model::Mode::Exclusive,
        metadata: crate::model::Metadata::default(),
        since: LogTime(1),
        deadline: Some(deadline),
        cached: false,
        recalled: false,
    };
    QueryResult::Lock(LockView { holders: vec![holder], free: false, ..LockView::free(lock) })
}
