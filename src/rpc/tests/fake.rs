//! A lock service for the tests of this module: the name of a lock decides its answer, and tests can read the calls.

use std::collections::{HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::model::{
    Acquire, Attachment, Checked, Command, Event, FencingToken, Grant, LockName, LockView, LogTime, Namespace, Outcome,
    Page, Part, Place, Position, Query, QueryReply, QueryResult, Refusal, RenewalTarget, Reply, SessionId, TokenState,
};
use crate::mutex::Mutex;
use crate::rpc::server::{routes, serve};
use crate::service::{
    Call, ClaimRef, Download, EventSender, Events, Freshness, LeaderHint, LockService, NotSent, Operation, RenewalCall,
    ServerInfo, ServiceError, Source, Status, Subscription,
};

pub(in crate::rpc) const SESSION: u64 = 7;
/// Default cluster of a node.
pub(in crate::rpc) const CLUSTER: u128 = 0xabc;

type Subscribers = Arc<Mutex<Vec<EventSender>>>;

/// A lock service whose answers depend on the name of the lock.
///
/// - An acquire of `free…` is granted at once. `busy…` is queued until [`Fake::grant`], and so is `portions…`, whose
///   wait returns several times. `late…` is not answered until [`Fake::grant`], and `stuck…` never. `full…` is
///   overloaded, `lost…` has an unknown outcome, and `forbidden…` and `held…` are refused.
/// - A query of `stuck` is never answered. A stale one is answered with an older log time.
/// - Releases are refused as *not held*, token by token of the lock `free`.
#[derive(Debug, Clone)]
pub(in crate::rpc) struct Fake {
    asked: mpsc::UnboundedSender<Call>,
    granted: Arc<watch::Sender<bool>>,
    subscribers: Subscribers,
    /// Number of `Disconnected` commands that fail.
    leaderless: Arc<AtomicUsize>,
    /// Number of cancels that are refused.
    refused: Arc<AtomicUsize>,
    stopping: Arc<AtomicBool>,
    /// Number of requests of web pages that the port refused.
    pages: Arc<AtomicUsize>,
    /// Answers to the next commands, before the usual ones.
    next: Arc<Mutex<VecDeque<Result<Outcome, ServiceError>>>>,
}

impl Fake {
    pub(in crate::rpc) fn new() -> (Self, mpsc::UnboundedReceiver<Call>) {
        let (asked, calls) = mpsc::unbounded_channel();
        (
            Self {
                asked,
                granted: Arc::new(watch::channel(false).0),
                subscribers: Arc::default(),
                leaderless: Arc::default(),
                refused: Arc::default(),
                stopping: Arc::default(),
                pages: Arc::default(),
                next: Arc::default(),
            },
            calls,
        )
    }

    /// Fails this number of `Disconnected` commands because there is no leader; the outcome of the last one is unknown.
    /// Linearizable reads fail until then.
    pub(in crate::rpc) fn lose_leader_for(&self, disconnects: usize) {
        self.leaderless.store(disconnects, SeqCst);
    }

    /// Refuses this number of cancels, as after the end of the caller's token.
    pub(in crate::rpc) fn refuse_cancels(&self, cancels: usize) {
        self.refused.store(cancels, SeqCst);
    }

    /// Sets the answers to the next commands. Later ones get the usual answers.
    pub(in crate::rpc) fn answer_next(&self, answers: impl IntoIterator<Item = Result<Outcome, ServiceError>>) {
        self.next.lock().extend(answers);
    }

    /// Answers all commands and requests of operators from now on that the node is stopping.
    pub(in crate::rpc) fn stops(&self) {
        self.stopping.store(true, SeqCst);
    }

    pub(in crate::rpc) fn pages(&self) -> usize {
        self.pages.load(SeqCst)
    }

    fn serving(&self) -> Result<(), ServiceError> {
        if self.stopping.load(SeqCst) { Err(ServiceError::Stopping) } else { Ok(()) }
    }

    /// Grants every queued acquire.
    pub(in crate::rpc) fn grant(&self) {
        self.granted.send_replace(true);
    }

    /// Sends an event to all subscribers.
    pub(in crate::rpc) async fn send_event(&self, event: Event) {
        let subscribers = self.subscribers.lock().clone();
        for subscriber in subscribers {
            let _ = subscriber.send(Ok(event.clone())).await;
        }
    }

    fn subscribed(&self) -> Events {
        let (sender, events) = Events::channel(8);
        self.subscribers.lock().push(sender);
        events
    }

    /// Ends all subscriptions with this error.
    pub(in crate::rpc) fn end_events(&self, error: &ServiceError) {
        let subscribers = std::mem::take(&mut *self.subscribers.lock());
        subscribers.into_iter().for_each(|subscriber| subscriber.end(error.clone()));
    }

    /// Ends all subscriptions, as for a reader that is too slow.
    pub(in crate::rpc) fn cut(&self) {
        let why = "the reader was too slow".to_owned();
        self.end_events(&ServiceError::EventsMissed { why, resume: Position { index: 3, n: 1 } });
    }

    pub(in crate::rpc) fn subscribers(&self) -> usize {
        self.subscribers.lock().len()
    }
}

pub(in crate::rpc) fn reply(outcome: Outcome) -> Reply {
    Reply::new(10, LogTime(1_000), outcome)
}

pub(in crate::rpc) fn granted() -> Outcome {
    let token = FencingToken::new(0, 33);
    Outcome::Granted(Grant { token, deadline: None, ends: None, waited_ms: 5 })
}

fn session() -> SessionId {
    SessionId::new(0, SESSION)
}

fn locked(acquire: &Acquire) -> &LockName {
    acquire.locks.keys().next().expect("at least one lock")
}

impl LockService for Fake {
    fn page_refused(&self, _: Source, _: Option<SocketAddr>, _: &ServiceError) {
        self.pages.fetch_add(1, SeqCst);
    }

    async fn submit(&self, call: Call) -> Result<Reply, ServiceError> {
        let _ = self.asked.send(call.clone());
        self.serving()?;
        if let Some(answer) = self.next.lock().pop_front() {
            return answer.map(reply);
        }
        let deadline = LogTime(11_000);
        let outcome = match call.command {
            Command::OpenSession(open) => Outcome::Opened { session: session(), ttl_ms: open.ttl_ms, deadline },
            Command::Attach(attach) => Outcome::Attached { attachment: Attachment(attach.attempt), deadline },
            Command::Acquire(acquire) if acquire.is_set() => Outcome::Done,
            Command::Acquire(acquire) => match locked(&acquire).as_str().trim_end_matches(char::is_numeric) {
                "busy" | "portions" => {
                    Outcome::Queued(Place { lock: locked(&acquire).clone(), place: 1, sequence: 9, held_by: None })
                }
                "stuck" => std::future::pending().await,
                "late" => {
                    let mut granted_now = self.granted.subscribe();
                    granted_now.wait_for(|granted| *granted).await.expect("it lives as long as its clones");
                    granted()
                }
                "full" => return Err(ServiceError::not_sent(NotSent::Overloaded { pause_ms: 50 })),
                "forbidden" => return Err(ServiceError::Forbidden { why: "only for captains".to_owned() }),
                "lost" => return Err(ServiceError::unknown("the leader changed")),
                "held" => Outcome::Refused(Refusal::LimitUnknown { lock: lock(locked(&acquire).as_str()) }),
                _ => granted(),
            },
            Command::TakeLease(take) if take.lock.name.as_str() == "held" => {
                Outcome::Refused(Refusal::Held { lock: take.lock, holder: None, closed: None })
            }
            Command::TakeLease(_) => granted(),
            Command::Cancel { .. } | Command::CancelTake { .. } => {
                let less = |left: usize| left.checked_sub(1);
                if self.refused.fetch_update(SeqCst, SeqCst, less).is_ok() {
                    return Err(ServiceError::Unauthenticated { why: "the token has ended".to_owned() });
                }
                Outcome::Withdrawn
            }
            Command::ChangeSetting(_) => Outcome::Done,
            Command::Alter(_) | Command::Manage(_) | Command::Document(_) => Outcome::Done,
            Command::Release(_) | Command::DropLease { .. } => Outcome::Released { left: 0 },
            Command::CloseSession { .. } | Command::EndSession(_) => Outcome::Closed,
            Command::Disconnected { .. } => {
                let less = |left: usize| left.checked_sub(1);
                match self.leaderless.fetch_update(SeqCst, SeqCst, less) {
                    Ok(1) => return Err(ServiceError::unknown("the leader changed")),
                    Ok(_) => return Err(ServiceError::not_sent(NotSent::NoLeader)),
                    Err(_) => Outcome::Done,
                }
            }
            Command::Tick
            | Command::LeaderlessGap { .. }
            | Command::Configure { .. }
            | Command::Announce(_)
            | Command::RaiseFeatures(_) => Outcome::Done,
        };
        Ok(reply(outcome))
    }

    async fn renew(&self, renewals: Vec<RenewalCall>) -> Result<Vec<Reply>, ServiceError> {
        let ended: HashSet<u64> = HashSet::from([404]);
        let answer = |renewal: RenewalCall| match renewal.target {
            RenewalTarget::Session(session) if ended.contains(&session.as_u64()) => {
                reply(Outcome::Refused(Refusal::WrongHandle))
            }
            RenewalTarget::Session(_) | RenewalTarget::Lease { .. } | RenewalTarget::Hold { .. } => {
                reply(Outcome::Renewed { deadline: LogTime(12_000), attempt: renewal.attempt, token: None })
            }
        };
        Ok(renewals.into_iter().map(answer).collect())
    }

    async fn wait_outcome(&self, claim: ClaimRef) -> Result<Reply, ServiceError> {
        let mut granted_now = self.granted.subscribe();
        if claim.lock.name.as_str().starts_with("portions") && !*granted_now.borrow() {
            tokio::task::yield_now().await;
            let place = Place { lock: claim.lock.name, place: 1, sequence: 9, held_by: None };
            return Ok(reply(Outcome::Queued(place)));
        }
        granted_now.wait_for(|granted| *granted).await.map_err(|_| ServiceError::Stopping)?;
        Ok(reply(granted()))
    }

    async fn query(&self, query: Query, freshness: Freshness) -> Result<QueryReply, ServiceError> {
        if freshness == Freshness::Linearizable && 0 < self.leaderless.load(SeqCst) {
            return Err(ServiceError::not_sent(NotSent::NoLeader));
        }
        let now = LogTime(if freshness == Freshness::Stale { 2 } else { 6 });
        let answer = match query {
            Query::Check { token, .. } => {
                let state = TokenState::Stale;
                QueryResult::Checked(Checked { state, lowest_valid: token, since: None, deadline: None })
            }
            Query::Inspect { lock } if lock.name.as_str() == "stuck" => std::future::pending().await,
            Query::Inspect { lock } | Query::Holders { lock } => QueryResult::Lock(LockView::free(lock)),
            Query::List(_) => QueryResult::Locks(Part { rows: vec![], next: None }),
            Query::Sessions { .. } => QueryResult::Sessions(Part { rows: vec![], next: None }),
            Query::Claim { .. } => QueryResult::Claim { outcome: Some(Outcome::TimedOut), recalled: vec![] },
            Query::Explain(_) => QueryResult::Explained(crate::model::Explanation::default()),
            Query::Documents { .. } => QueryResult::Documents(Part { rows: vec![], next: None }),
            Query::Pings { .. } => QueryResult::Pings(Page { rows: vec![], more: false }),
            Query::WouldBreak { .. } => QueryResult::WouldBreak(Outcome::Done),
            Query::Totals => QueryResult::Totals(crate::model::Totals { grants: 3, ..Default::default() }),
            Query::Tokens { lock } => QueryResult::Tokens(crate::model::ValidTokens {
                lock,
                seen: Position::default(),
                tokens: [crate::model::FencingToken::new(0, 3)].into(),
                next: crate::model::FencingToken::new(0, 4),
            }),
            Query::History { after, .. } => QueryResult::History(crate::model::HistoryPage {
                records: vec![],
                next: after,
                floor: Position::default(),
            }),
        };
        Ok(QueryReply { index: 8, now, answer })
    }

    async fn subscribe(&self, _: Subscription) -> Result<Events, ServiceError> {
        Ok(self.subscribed())
    }

    fn hold_events(&self, _: SessionId) -> Result<Events, ServiceError> {
        Ok(self.subscribed())
    }

    async fn status(&self) -> Result<Status, ServiceError> {
        Err(ServiceError::Forbidden { why: "only for captains".to_owned() })
    }

    async fn operate(&self, operation: Operation) -> Result<(), ServiceError> {
        self.serving()?;
        match operation {
            Operation::Transfer(_) | Operation::RaiseFeatures(1) => Ok(()),
            Operation::RaiseFeatures(to) => Err(Refusal::FeaturesUnsupported { to, node: 3, supports: Some(1) }.into()),
            Operation::ChangeMembers(change) => {
                Err(ServiceError::Forbidden { why: format!("this service has no members: {change:?}") })
            }
        }
    }

    async fn backup(&self) -> Result<Download, ServiceError> {
        Err(ServiceError::Forbidden { why: "this service makes no backups".to_owned() })
    }
}

pub(in crate::rpc) fn lock(name: &str) -> crate::model::LockKey {
    crate::model::LockKey { namespace: Namespace::default(), name: LockName::parse(name).expect("a legal name") }
}

/// A node that has only a client port.
pub(in crate::rpc) struct Node {
    pub(in crate::rpc) service: Fake,
    pub(in crate::rpc) calls: mpsc::UnboundedReceiver<Call>,
    pub(in crate::rpc) address: String,
    pub(in crate::rpc) cluster_id: watch::Sender<Option<u128>>,
    pub(in crate::rpc) leader: watch::Sender<Option<LeaderHint>>,
    pub(in crate::rpc) stop: watch::Sender<bool>,
    pub(in crate::rpc) serving: JoinHandle<()>,
}

impl Node {
    /// Serves on a free port; this node leads at first.
    pub(in crate::rpc) async fn start(id: u64) -> Self {
        Self::start_in(CLUSTER, id, "127.0.0.1:0").await
    }

    /// Serves as a node of this cluster, or of a cluster without an id yet, at this address.
    pub(in crate::rpc) async fn start_in(cluster_id: impl Into<Option<u128>>, id: u64, address: &str) -> Self {
        let (cluster_id, named) = watch::channel(cluster_id.into());
        let (service, calls) = Fake::new();
        let listener = TcpListener::bind(address).await.expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        let (leader, leaders) = watch::channel(Some(LeaderHint { node: id, client: address.clone() }));
        let (stop, stopped) = watch::channel(false);
        let info = ServerInfo {
            cluster: "harbour".to_owned(),
            cluster_id: named,
            node: id,
            leaderless_max: std::time::Duration::MAX,
            leader: leaders,
            endpoints: watch::channel(vec![]).1,
            connections: crate::net::ConnectionsMax::default(),
            deadlocks: watch::channel(Default::default()).1,
        };
        let routes = routes(service.clone(), info, stopped.clone()).expect("routes");
        let serving = tokio::spawn(async move { serve(routes, listener, None, stopped).await.expect("served") });
        Self { service, calls, address, cluster_id, leader, stop, serving }
    }

    /// Stops the node and its connections; its address is free then. Returns the calls that its service got.
    pub(in crate::rpc) async fn end(mut self) -> Vec<Call> {
        self.stop.send_replace(true);
        self.serving.await.expect("served");
        std::iter::from_fn(|| self.calls.try_recv().ok()).collect()
    }

    /// Returns the next command that the service got.
    pub(in crate::rpc) async fn asked(&mut self) -> Command {
        self.calls.recv().await.expect("the service lives").command
    }
}
