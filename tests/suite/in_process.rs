//! A lock service without a log: one machine behind a mutex, on the system's clock. The smallest thing that a client
//! can be tested against.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockkeeper::clock::{Clock, Instant, SystemClock};
use lockkeeper::limits::EVENTS_WAITING_MAX;
use lockkeeper::machine::Machine;
use lockkeeper::model::{
    Answer, Answered, ClusterSettings, Command, Entry, Event, LogTime, Outcome, Principal, Query, Renewal, Reply,
    Submission, WallTime,
};
use lockkeeper::service::{
    Call, ClaimRef, Events, Freshness, LockService, RenewalCall, Scope, ServiceError, Status, Subscription,
};
use tokio::sync::{mpsc, watch};

/// How often whoever waits lets log time pass.
const TICK: Duration = Duration::from_millis(5);

/// See the module. Clones are the same service.
#[derive(Clone)]
pub(crate) struct InProcess {
    state: Arc<Mutex<State>>,
    applied: watch::Sender<u64>,
}

struct State {
    machine: Machine,
    clock: SystemClock,
    began: Instant,
    events: Vec<Event>,
    subscribers: Vec<(Scope, mpsc::Sender<Result<Event, ServiceError>>)>,
}

impl InProcess {
    /// An empty one whose sessions may be as short as `ttl_ms_min`.
    pub(crate) fn new(ttl_ms_min: u64) -> Self {
        let clock = SystemClock::new();
        let state =
            State { machine: Machine::new(), clock, began: clock.now(), events: Vec::new(), subscribers: Vec::new() };
        let service = Self { state: Arc::new(Mutex::new(state)), applied: watch::Sender::new(0) };
        let settings = ClusterSettings { timing_ms: [10, 50, 100], ttl_ms_min, ttl_ms_max: 600_000 };
        service.apply(vec![], vec![(Principal::default(), Command::Configure(settings))]);
        service
    }

    fn apply(&self, renewals: Vec<RenewalCall>, commands: Vec<(Principal, Command)>) -> (Vec<Reply>, Vec<Reply>) {
        let mut state = self.state.lock().expect("no test panics inside");
        let stamp = LogTime(state.clock.now().since(state.began).as_millis() as u64);
        let entry = Entry {
            stamp,
            wall: WallTime(stamp.0),
            renewals: renewals
                .into_iter()
                .map(|call| Renewal { target: call.target, attempt: call.attempt, receipt: stamp })
                .collect(),
            commands: commands.into_iter().map(|(principal, command)| Submission { principal, command }).collect(),
            digest: None,
        };
        let index = state.machine.applied() + 1;
        let applied = state.machine.apply(index, &entry);
        for event in applied.events {
            state
                .subscribers
                .retain(|(scope, sender)| !in_scope(scope, &event) || sender.try_send(Ok(event.clone())).is_ok());
            state.events.push(event);
        }
        drop(state);
        self.applied.send_replace(index);
        (applied.renewals, applied.commands)
    }

    fn look(&self, query: &Query) -> Answered {
        self.apply(vec![], vec![]);
        self.state.lock().expect("no test panics inside").machine.query(query)
    }
}

fn in_scope(scope: &Scope, event: &Event) -> bool {
    match scope {
        Scope::Namespace { namespace, prefix } => {
            event.namespace.as_ref().is_none_or(|of| of == namespace)
                && event.kind.lock().is_none_or(|lock| lock.name.as_str().starts_with(prefix))
        }
        Scope::Session(session) => event.kind.session() == Some(*session),
    }
}

impl LockService for InProcess {
    async fn submit(&self, call: Call) -> Result<Reply, ServiceError> {
        let (_, mut replies) = self.apply(vec![], vec![(call.principal, call.command)]);
        Ok(replies.remove(0))
    }

    async fn renew(&self, renewals: Vec<RenewalCall>) -> Result<Vec<Reply>, ServiceError> {
        Ok(self.apply(renewals, vec![]).0)
    }

    async fn settled(&self, claim: ClaimRef) -> Result<Reply, ServiceError> {
        let mut applied = self.applied.subscribe();
        let query = Query::Claim { lock: Some(claim.lock), claim: claim.claim };
        loop {
            applied.borrow_and_update();
            let answered = self.state.lock().expect("no test panics inside").machine.query(&query);
            let Answer::Claim(Some(outcome)) = answered.answer else {
                return Err(ServiceError::unknown("nothing is known of this claim"));
            };
            if !matches!(outcome, Outcome::Queued(_)) {
                return Ok(Reply { index: answered.index, stamp: answered.now, outcome });
            }
            if tokio::time::timeout(TICK, applied.changed()).await.is_err() {
                self.apply(vec![], vec![]);
            }
        }
    }

    async fn query(&self, query: Query, _: Freshness) -> Result<Answered, ServiceError> {
        Ok(self.look(&query))
    }

    async fn subscribe(&self, subscription: Subscription) -> Result<Events, ServiceError> {
        let (sender, receiver) = mpsc::channel(EVENTS_WAITING_MAX);
        let mut state = self.state.lock().expect("no test panics inside");
        let kept = state.events.iter().filter(|event| in_scope(&subscription.scope, event));
        for event in kept.filter(|event| subscription.after.is_some_and(|after| event.position > after)) {
            sender.try_send(Ok(event.clone())).expect("tests make few events");
        }
        state.subscribers.push((subscription.scope, sender));
        Ok(Events::new(receiver))
    }

    async fn status(&self) -> Result<Status, ServiceError> {
        let state = self.state.lock().expect("no test panics inside");
        let settings = state.machine.settings().expect("set when it began");
        Ok(Status {
            cluster: "in-process".to_owned(),
            cluster_id: 1,
            node: 1,
            leader: Some(1),
            term: 1,
            log_time: state.machine.now(),
            applied: state.machine.applied(),
            nodes: vec![],
            totals: state.machine.totals(),
            ttl_ms_min: settings.ttl_ms_min,
            ttl_ms_max: settings.ttl_ms_max,
        })
    }

    async fn transfer(&self, _: u64) -> Result<(), ServiceError> {
        Ok(())
    }
}
