//! One cluster, and operations that are sent before, during and after the kill of its leader.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use lockkeeper::client::{Client, Session};
use lockkeeper::model::{Command, Handle, LockName, LockView, Outcome, Reply, RequestId, SessionId};
use lockkeeper::rpc::RemoteService;
use lockkeeper::service::{Call, LockService, Proof, ServiceError};
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep};

use crate::cluster::{Cluster, PATIENCE, TURN};

/// Lowest number of the test's requests, above the numbers that the session's own client uses.
const NUMBERS_FROM: u64 = 1_000_000;
const PAUSE: Duration = Duration::from_millis(10);

pub(super) fn name(family: &str, at: usize) -> LockName {
    LockName::parse(&format!("{family}/{at}")).expect("short")
}

/// A session whose requests are numbered by the test, so that they can be repeated exactly.
pub(super) struct Caller {
    session: Session<RemoteService>,
    next: AtomicU64,
}

impl Caller {
    /// The next request id, and 0 as the number below which answers may be forgotten.
    pub(super) fn draw(&self) -> (RequestId, u64) {
        (RequestId { session: self.session.id(), number: self.next.fetch_add(1, SeqCst) }, 0)
    }

    pub(super) fn session(&self) -> SessionId {
        self.session.id()
    }

    pub(super) fn handle(&self) -> Handle {
        self.session.handle().clone()
    }

    pub(super) fn call(&self, command: Command) -> Call {
        let namespace = self.session.namespace().clone();
        Call { proof: Proof::Handle { handle: self.handle(), namespace }, ..Call::new(command) }
    }
}

/// One operation on one name.
pub(super) struct Op {
    at: usize,
    call: Call,
}

impl Op {
    pub(super) fn new(at: usize, caller: &Caller, command: Command) -> Self {
        Self { at, call: caller.call(command) }
    }

    /// An operation outside a session.
    pub(super) fn sessionless(at: usize, command: Command) -> Self {
        Self { at, call: Call::new(command) }
    }
}

/// An operation and its final answer.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) at: usize,
    pub(super) call: Call,
    pub(super) outcome: Outcome,
}

impl Done {
    pub(super) fn sequence(&self) -> Option<u64> {
        if let Outcome::Queued(place) = &self.outcome { Some(place.sequence) } else { None }
    }
}

/// A cluster whose leader is killed repeatedly.
pub(super) struct Scenario {
    family: &'static str,
    cluster: Cluster,
    pub(super) client: Client<RemoteService>,
    _turn: tokio::sync::MutexGuard<'static, ()>,
}

impl Scenario {
    pub(super) async fn begin(family: &'static str) -> Self {
        let turn = TURN.lock().await;
        let cluster = Cluster::start().await;
        let client = cluster.client();
        Self { family, cluster, client, _turn: turn }
    }

    pub(super) async fn caller(&self) -> Caller {
        let session = self.cluster.client().session().ttl(PATIENCE).open().await.expect("opened");
        Caller { session, next: AtomicU64::new(NUMBERS_FROM) }
    }

    pub(super) async fn view(&self, family: &str, at: usize) -> LockView {
        self.client.inspect(name(family, at).as_str()).await.expect("inspected").value
    }

    /// Repeats a call until it gets an answer.
    pub(super) async fn answer(&self, call: &Call) -> Reply {
        let started = Instant::now();
        loop {
            match self.client.service().submit(call.clone()).await {
                Ok(reply) => return reply,
                Err(ServiceError::NotSent { .. } | ServiceError::Unknown { .. }) => {}
                Err(error) => panic!("{call:?}: {error:?}"),
            }
            assert!(started.elapsed() < PATIENCE, "no answer to {call:?}");
            sleep(PAUSE).await;
        }
    }

    /// Repeats the call, which must get the same answer.
    pub(super) async fn answers(&self, call: &Call, outcome: &Outcome) {
        let again = self.answer(call).await.outcome;
        assert!(same(&again, outcome), "{again:?} is not {outcome:?}");
    }

    /// Sends a third of the operations and awaits their answers, sends a third and kills the leader at the first
    /// answer, and sends the rest. The next leader must repeat every answer that was received.
    pub(super) async fn through_a_kill(&mut self, mut ops: Vec<Op>) -> Vec<Done> {
        let leader = self.cluster.await_leader().await;
        let after = ops.split_off(ops.len() - ops.len() / 3);
        let under_way = ops.split_off(ops.len() / 2);
        let (before, mut calls) = (ops.len(), Vec::new());
        let mut received: Vec<Option<Outcome>> = Vec::new();
        for op in ops {
            received.push(Some(self.answer(&op.call).await.outcome));
            calls.push(op);
        }
        let mut tasks = JoinSet::new();
        self.send(&mut tasks, &mut calls, &mut received, under_way);
        let first = tasks.join_next().await;
        self.cluster.kill(leader);
        self.send(&mut tasks, &mut calls, &mut received, after);
        let rest = tasks.join_all().await;
        let mut answered = 0;
        for (at, answer) in first.into_iter().map(|first| first.expect("sent")).chain(rest) {
            answered += usize::from(answer.is_some());
            received[at] = answer;
        }
        let all = calls.len();
        eprintln!("{}: {before} of {all} answered before the kill, {answered} of the others at once", self.family);
        self.cluster.await_leader().await;
        let mut done = Vec::new();
        for (op, received) in calls.into_iter().zip(received) {
            let outcome = self.answer(&op.call).await.outcome;
            if let Some(received) = received {
                assert!(same(&outcome, &received), "{outcome:?} was {received:?}");
            }
            done.push(Done { at: op.at, call: op.call, outcome });
        }
        self.cluster.spawn(leader);
        for done in &done {
            self.answers(&done.call, &done.outcome).await;
        }
        done.sort_by_key(|done| done.at);
        done
    }

    /// Sends each operation once without waiting for its answer.
    fn send(
        &self,
        tasks: &mut JoinSet<(usize, Option<Outcome>)>,
        calls: &mut Vec<Op>,
        received: &mut Vec<Option<Outcome>>,
        ops: Vec<Op>,
    ) {
        for op in ops {
            let (at, service, call) = (calls.len(), self.client.service().clone(), op.call.clone());
            tasks.spawn(async move {
                match service.submit(call.clone()).await {
                    Ok(reply) => (at, Some(reply.outcome)),
                    Err(ServiceError::NotSent { .. } | ServiceError::Unknown { .. }) => (at, None),
                    Err(error) => panic!("{call:?}: {error:?}"),
                }
            });
            calls.push(op);
            received.push(None);
        }
    }
}

/// Returns true if two answers are the same. Only the sequence number of a queued request is compared, because the
/// waiters ahead of it change.
fn same(one: &Outcome, other: &Outcome) -> bool {
    match (one, other) {
        (Outcome::Queued(one), Outcome::Queued(other)) => one.sequence == other.sequence,
        (one, other) => one == other,
    }
}
