//! Calls of clients without a stream that claim locks or wait for them: the claim of each and how it is withdrawn, the
//! numbers of requests whose clients name none, and the wait for a free lock. The gRPC calls and the HTTP port share
//! this module.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::{Either, pending};
use tokio::time::{sleep, timeout};

use super::background::Tasks;
use crate::client::{Retry, is_answer, remembered};
use crate::clock::Clock;
use crate::limits;
use crate::model::{Claim, Command, LockKey, LogTime, Query, QueryReply, QueryResult, Reply, TakeLease};
use crate::service::{
    Call, ClaimRef, Events, Freshness, LockService, NotSent, Proof, REQUEST_WAIT, Scope, ServiceError, Subscription,
    TakenPlace,
};

/// Number of nodes that generate different request numbers.
const NODES: u64 = 1 << limits::DRAWN_REQUEST_NODE_BITS;

/// Generates the numbers of session requests whose clients name none. All calls of a node share it.
pub(crate) struct DrawnNumbers {
    /// Newest number that was generated.
    newest: AtomicU64,
    /// Lowest bits of the numbers of this node.
    node: u64,
}

impl DrawnNumbers {
    /// Creates the generator of a node.
    pub(crate) fn new(node: u64) -> Self {
        let node = node % NODES;
        Self { newest: AtomicU64::new(node), node }
    }

    /// Generates a number. Numbers grow with log time, so that the cluster may forget the lowest ones. The numbers of
    /// one node always grow, and those of two nodes differ in their lowest bits. The random part separates the numbers
    /// after a restart from those before it, even if log time has not advanced.
    ///
    /// The leader is asked for log time: the number of a node that lags could be too old to be executed.
    pub(crate) async fn next(&self, service: &impl LockService, clock: &Arc<dyn Clock>) -> Result<u64, ServiceError> {
        let mut retry = Retry::new(Arc::clone(clock), REQUEST_WAIT).of_attempts_within(service.answers_within());
        let read = || service.query(Query::Totals, Freshness::Linearizable);
        let LogTime(now_ms) = retry.until_read(read).await?.now;
        let random = clock.random_below(1 << limits::DRAWN_REQUEST_RANDOM_BITS);
        let number = (now_ms << limits::DRAWN_REQUEST_RANDOM_BITS | random) * NODES + self.node;
        let next = |drawn: u64| number.max(drawn + NODES);
        let update = |drawn| Some(next(drawn));
        let before = self.newest.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update).unwrap_or_default();
        Ok(next(before))
    }
}

/// The attempts of one call that claims a lock.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    first: OnceLock<LogTime>,
}

impl Attempts {
    /// Submits the call once more.
    pub(crate) async fn submit<S: LockService>(&self, service: &S, call: &Call) -> Result<Reply, ServiceError> {
        let reply = service.submit(call.clone()).await?;
        self.first.get_or_init(|| reply.stamp);
        Ok(reply)
    }

    /// Returns the stamp of the first answered attempt.
    pub(crate) fn first(&self) -> Option<LogTime> {
        self.first.get().copied()
    }
}

/// Returns the claim of a call that may wait for a lock, and the call that withdraws it.
pub(crate) fn claimed(call: &Call) -> Option<(ClaimRef, Call)> {
    if let Command::TakeLease(TakeLease { lock, take, handle, .. }) = &call.command {
        let command = Command::CancelTake { lock: lock.clone(), take: *take, handle: handle.clone() };
        let claim = ClaimRef { lock: lock.clone(), claim: Claim::Lease(*take) };
        return Some((claim, Call { command, ..call.clone() }));
    }
    let ((name, request), Proof::Handle { namespace, .. }) = (call.command.may_wait()?, &call.proof) else {
        return None;
    };
    let lock = LockKey { namespace: namespace.clone(), name: name.clone() };
    let cancel = Call { command: Command::Cancel { request }, ..call.clone() };
    Some((ClaimRef { lock, claim: Claim::Request(request) }, cancel))
}

/// Withdraws the claim of a call that ends without an answer. A task of the server repeats the cancel until it is
/// answered. If the caller has lost its rights, or the cluster has no room to remember the cancel, the task waits for
/// them, for a limited time.
pub(crate) struct CancelOnDrop<S: LockService> {
    pub(crate) service: S,
    pub(crate) tasks: Tasks,
    pub(crate) clock: Arc<dyn Clock>,
    /// The cancel; `None` if the claim stays, because the call has its answer or its caller can repeat it.
    pub(crate) open: Option<Call>,
    /// The place of the call among those in progress, which it has until its claim is withdrawn or it ends.
    pub(crate) place: Option<TakenPlace>,
}

impl<S: LockService> Drop for CancelOnDrop<S> {
    fn drop(&mut self) {
        let (Some(cancel), place) = (self.open.take(), self.place.take()) else { return };
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let (service, clock) = (self.service.clone(), Arc::clone(&self.clock));
        self.tasks.run(async move {
            let submit = || service.submit(cancel.clone());
            let withdrawn = Retry::unlimited(Arc::clone(&clock)).until_answered(submit).await;
            let mut withdrawn = withdrawn.and_then(remembered);
            if withdrawn.as_ref().is_err_and(|error| !is_answer(error)) {
                // Without a bound, the claims of a token that is never valid again would keep their places. Without
                // room, the claim was not executed before: only a copy that is still on its way could be granted.
                let no_room = matches!(withdrawn, Err(ServiceError::NotSent { why: NotSent::LimitReached { .. }, .. }));
                let longest = Duration::from_millis(limits::TTL_MS_MAX_DEFAULT);
                let longest = if no_room { 2 * REQUEST_WAIT } else { longest };
                let again = || async { submit().await.and_then(remembered) };
                let mut retry = Retry::unlimited(clock).persistent();
                withdrawn = timeout(longest, retry.until_answered(again)).await.unwrap_or(withdrawn);
            }
            if let Err(error) = withdrawn {
                tracing::debug!(%error, "the claim of a cancelled call could not be withdrawn");
            }
            drop(place);
        });
    }
}

/// Returns the state of a lock, without its waiters, once it is free or when the time is over. It is read again only
/// after an event of the lock.
pub(crate) async fn free<S: LockService>(
    service: &S,
    lock: LockKey,
    longest: Option<Duration>,
) -> Result<QueryReply, ServiceError> {
    let scope = Scope::Namespace { namespace: lock.namespace.clone(), prefix: lock.name.to_string() };
    let subscription = || Subscription { scope: scope.clone(), after: None, cluster_id: None };
    // The time starts now, and not with the first read.
    let mut over = pin!(longest.map_or(Either::Right(pending()), |longest| Either::Left(sleep(longest))));
    let mut events = service.subscribe(subscription()).await?;
    loop {
        let query = Query::Holders { lock: lock.clone() };
        let answered = service.query(query, Freshness::Linearizable).await?;
        if matches!(&answered.answer, QueryResult::Lock(view) if view.free) {
            return Ok(answered);
        }
        let missed = tokio::select! {
            biased;
            () = &mut over => return Ok(answered),
            freed = may_be_free(&mut events, &lock) => !freed?,
        };
        if missed {
            events = service.subscribe(subscription()).await?;
        }
    }
}

/// Waits until the lock may have become free; returns false if events were missed and the subscription has ended.
async fn may_be_free(events: &mut Events, lock: &LockKey) -> Result<bool, ServiceError> {
    loop {
        match events.next().await {
            Ok(event) if event.may_free(lock) => return Ok(true),
            Ok(_) => {}
            Err(ServiceError::EventsMissed { .. }) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
}
