//! The calls of programs without a stream: what the node fills in for them, an acquire that waits within its call, and answers
//! that name what the caller may believe.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use super::convert::{Asked, error_to_status, hold_ended, reply_to_answer, uuid_text};
use super::pb;
use super::pb::acquire_request::Holder;
use super::tasks::Tasks;
use crate::client::{Retry, default_ttl_ms, settled};
use crate::clock::{Clock, Instant, SystemClock};
use crate::limits;
use crate::model::{Grant, Handle, Invalid, LeaseRequestId, LockKey, LogTime, Outcome, Place, Query, Refusal, Reply};
use crate::service::{Advice, Call, Freshness, LockService, NotSent, REQUEST_WAIT, RenewalCall, ServiceError};

/// So many nodes draw numbers that no other one draws.
const NODES: u64 = 1 << limits::DRAWN_REQUEST_NODE_BITS;

/// What unary calls of one node share.
pub(super) struct Calls<S> {
    service: S,
    tasks: Tasks,
    clock: Arc<dyn Clock>,
    /// Acquires that wait, and cancels of those whose callers went away: together they are bounded.
    claims: Arc<Semaphore>,
    /// The newest number that was drawn for a session's request.
    drawn: AtomicU64,
    /// What the numbers of this node end with.
    node: u64,
}

fn status(error: ServiceError) -> Status {
    error_to_status(&error)
}

impl<S: LockService> Calls<S> {
    pub(super) fn new(service: S, tasks: Tasks, node: u64) -> Self {
        let claims = Arc::new(Semaphore::new(limits::UNARY_CLAIMS_MAX));
        let node = node % NODES;
        Self { service, tasks, clock: Arc::new(SystemClock::new()), claims, drawn: AtomicU64::new(node), node }
    }

    /// A number for a request of a session whose program names none. Numbers grow with log time, so that the cluster may forget
    /// the lowest ones. Those of this node grow by themselves; those of two nodes end otherwise; and the random part keeps those
    /// after a start apart from those before, where log time stood still.
    async fn draw(&self) -> Result<String, ServiceError> {
        let LogTime(now_ms) = self.service.query(Query::Totals, Freshness::Stale).await?.now;
        let random = self.clock.random_below(1 << limits::DRAWN_REQUEST_RANDOM_BITS);
        let number = (now_ms << limits::DRAWN_REQUEST_RANDOM_BITS | random) * NODES + self.node;
        let next = |drawn: u64| number.max(drawn + NODES);
        let update = |drawn| Some(next(drawn));
        let before = self.drawn.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update).unwrap_or_default();
        Ok(next(before).to_string())
    }

    /// Draws what the caller of an acquire left out.
    pub(super) async fn filled(&self, mut asked: pb::AcquireRequest) -> Result<pb::AcquireRequest, ServiceError> {
        let unnamed = asked.request.is_empty();
        match &mut asked.holder {
            Some(Holder::Session(_)) if unnamed => asked.request = self.draw().await?,
            Some(Holder::Session(_)) | None => {}
            Some(Holder::Lease(lease)) => {
                if lease.handle.is_empty() && !unnamed {
                    return Err(Invalid::new("handle", "set where `request` is: a retry needs both", "nothing").into());
                }
                if lease.handle.is_empty() {
                    lease.handle = Handle::from_random(self.clock.random_u128()).reveal().to_owned();
                }
                if unnamed {
                    asked.request = uuid_text(LeaseRequestId::from_random(self.clock.random_u128()));
                }
            }
        }
        Ok(asked)
    }

    /// Draws the number that the caller of a release in a session left out.
    pub(super) async fn numbered(&self, mut asked: pb::ReleaseRequest) -> Result<pb::ReleaseRequest, ServiceError> {
        if asked.request.is_empty() && matches!(asked.holder, Some(pb::release_request::Holder::Session(_))) {
            asked.request = self.draw().await?;
        }
        Ok(asked)
    }

    /// Opens a session, with what the caller left out.
    pub(super) async fn open(&self, mut asked: pb::OpenSessionRequest) -> Result<pb::OpenSessionReply, Status> {
        if asked.handle.is_empty() {
            asked.handle = Handle::from_random(self.clock.random_u128()).reveal().to_owned();
        }
        if asked.instance.is_empty() {
            asked.instance = "0".repeat(32);
        }
        if asked.ttl_ms == 0 {
            asked.ttl_ms = default_ttl_ms(self.service.status().await.map_err(status)?.ttl_ms_min);
        }
        let handle = asked.handle.clone();
        let (namespace, reply) = self.command(asked.namespace.clone(), asked).await?;
        let Outcome::Opened { session, ttl_ms, deadline } = reply.outcome else { return Err(unexpected(&reply)) };
        Ok(pb::OpenSessionReply {
            namespace,
            index: reply.index,
            stamp_ms: reply.stamp.0,
            session: Some(pb::SessionProof { id: session.as_u64(), handle }),
            ttl_ms,
            deadline_ms: deadline.0,
            valid_ms: valid_ms(reply.stamp, deadline),
        })
    }

    pub(super) async fn close(&self, asked: pb::CloseSessionRequest) -> Result<pb::CloseSessionReply, Status> {
        let (namespace, reply) = self.command(asked.namespace.clone(), asked).await?;
        let Outcome::Closed = reply.outcome else { return Err(unexpected(&reply)) };
        Ok(pb::CloseSessionReply { namespace, index: reply.index, stamp_ms: reply.stamp.0 })
    }

    pub(super) async fn release(&self, asked: pb::ReleaseRequest) -> Result<pb::ReleaseReply, Status> {
        let asked = self.numbered(asked).await.map_err(status)?;
        let (namespace, reply) = self.command(asked.namespace.clone(), asked).await?;
        let Outcome::Released { left } = reply.outcome else { return Err(unexpected(&reply)) };
        Ok(pb::ReleaseReply { namespace, index: reply.index, stamp_ms: reply.stamp.0, left })
    }

    pub(super) async fn keep_alive(&self, asked: pb::KeepAliveRequest) -> Result<pb::KeepAliveReply, Status> {
        let (namespace, reply) = self.renewal(asked.namespace.clone(), asked).await?;
        let Outcome::Renewed { deadline, .. } = reply.outcome else { return Err(unexpected(&reply)) };
        Ok(pb::KeepAliveReply {
            namespace,
            index: reply.index,
            stamp_ms: reply.stamp.0,
            deadline_ms: deadline.0,
            valid_ms: valid_ms(reply.stamp, deadline),
        })
    }

    pub(super) async fn refresh(&self, asked: pb::RefreshRequest) -> Result<pb::RefreshReply, Status> {
        let held = asked.token;
        let (namespace, reply) = self.renewal(asked.namespace.clone(), asked).await?;
        let Outcome::Renewed { deadline, token, .. } = reply.outcome else { return Err(unexpected(&reply)) };
        Ok(pb::RefreshReply {
            namespace,
            index: reply.index,
            stamp_ms: reply.stamp.0,
            token: token.map_or(held, |token| token.as_u64()),
            deadline_ms: deadline.0,
            valid_ms: valid_ms(reply.stamp, deadline),
        })
    }

    /// Submits a call, and answers its namespace beside the outcome. A refusal is an error.
    async fn command<M>(&self, namespace: String, asked: M) -> Result<(String, Reply), Status>
    where
        Call: TryFrom<M, Error = Invalid>,
    {
        let call = Call::try_from(asked).map_err(|invalid| status(invalid.into()))?;
        named(&namespace, self.service.submit(call).await.map_err(status)?)
    }

    async fn renewal<M>(&self, namespace: String, asked: M) -> Result<(String, Reply), Status>
    where
        RenewalCall: TryFrom<M, Error = Invalid>,
    {
        let renewal = RenewalCall::try_from(asked).map_err(|invalid| status(invalid.into()))?;
        let mut replies = self.service.renew(vec![renewal]).await.map_err(status)?;
        let unanswered = || status(ServiceError::Internal("a renewal was not answered".to_owned()));
        let reply = replies.pop().ok_or_else(unanswered)?;
        named(&namespace, reply)
    }

    /// Takes what is asked for, and waits for it until `stopped` says that the node stops.
    ///
    /// Its claim is given up where the caller goes away. An error that leaves the outcome open gives it up only where the
    /// program named no request: one that did keeps its place, and asks again.
    pub(super) async fn acquire(
        &self,
        asked: pb::AcquireRequest,
        stopped: impl Future<Output = ()>,
    ) -> Result<pb::AcquireReply, Status> {
        let named = !asked.request.is_empty();
        let asked = self.filled(asked).await.map_err(status)?;
        let (request, handle) = (asked.request.clone(), lease_handle(&asked));
        let Asked { call, claim, cancel } = Asked::try_from(asked).map_err(|invalid| status(invalid.into()))?;
        let Ok(permit) = Arc::clone(&self.claims).try_acquire_owned() else {
            let overloaded = NotSent::Overloaded { pause_ms: limits::OVERLOADED_PAUSE_MS };
            return Err(status(ServiceError::not_sent(overloaded)));
        };
        let mut cancel = CancelOnDrop {
            service: self.service.clone(),
            tasks: self.tasks.clone(),
            clock: Arc::clone(&self.clock),
            open: Some((cancel, permit)),
        };
        let (first, arrived, mut ahead) = (OnceLock::new(), AtomicBool::new(false), None);
        let attempt = || {
            let (answer, first, arrived) = (self.service.submit(call.clone()), &first, &arrived);
            async move {
                let answer = answer.await;
                arrived.fetch_or(may_have_happened(&answer), Ordering::Relaxed);
                let reply = answer?;
                first.get_or_init(|| reply.stamp);
                Ok((Instant::default(), reply))
            }
        };
        let mut retry = Retry::new(Arc::clone(&self.clock), REQUEST_WAIT);
        let queued = |place: &Place| ahead = Some(place.clone());
        let answered = tokio::select! {
            answered = settled(&self.service, &claim, &mut retry, attempt, || self.service.settled(claim.clone()), queued) => {
                answered
            }
            () = stopped => Err(ServiceError::Stopping),
        };
        let reply = match answered {
            Ok(settled) => settled.reply,
            Err(error) => {
                if (named && error.advice() != Advice::GiveUp) || !arrived.into_inner() {
                    cancel.open = None;
                }
                return Err(status(error));
            }
        };
        cancel.open = None;
        let stamp = first.into_inner().unwrap_or(reply.stamp);
        let grant = granted(&claim.lock, &reply, ahead)?;
        let deadline = [grant.deadline, grant.ends].into_iter().flatten().min();
        Ok(pb::AcquireReply {
            namespace: claim.lock.namespace.to_string(),
            index: reply.index,
            stamp_ms: stamp.0,
            token: grant.token.as_u64(),
            request,
            handle,
            waited_ms: grant.waited_ms,
            deadline_ms: deadline.map(|deadline| deadline.0),
            valid_ms: deadline.map(|deadline| valid_ms(stamp, deadline)),
        })
    }
}

/// Whether an attempt may have left a claim behind.
fn may_have_happened(answer: &Result<Reply, ServiceError>) -> bool {
    match answer {
        Ok(_) | Err(ServiceError::Unknown { .. } | ServiceError::Stopping | ServiceError::Internal(_)) => true,
        Err(
            ServiceError::NotSent { .. }
            | ServiceError::Invalid(_)
            | ServiceError::Refused(_)
            | ServiceError::Forbidden { .. }
            | ServiceError::EventsMissed { .. },
        ) => false,
    }
}

/// The secret of a lease, which its caller needs; that of a session is not answered again.
fn lease_handle(asked: &pb::AcquireRequest) -> String {
    match &asked.holder {
        Some(Holder::Lease(lease)) => lease.handle.clone(),
        Some(Holder::Session(_)) | None => String::new(),
    }
}

fn named(namespace: &str, reply: Reply) -> Result<(String, Reply), Status> {
    let namespace = super::convert::namespace(namespace).map_err(|invalid| status(invalid.into()))?.to_string();
    reply_to_answer(&reply)?;
    Ok((namespace, reply))
}

fn unexpected(reply: &Reply) -> Status {
    status(ServiceError::Internal(format!("the service answered another command: {:?}", reply.outcome)))
}

/// For how long the caller may believe in this end, counted from before it sent its call: log time had not reached the stamp
/// of the first entry then, and is never faster than real time.
fn valid_ms(stamp: LogTime, deadline: LogTime) -> u64 {
    deadline.ms_since(stamp).saturating_mul(1_000 - limits::DRIFT_MARGIN_PERMILLE) / 1_000
}

/// The grant in a final outcome, or the error that says why there is none.
fn granted<'a>(lock: &LockKey, reply: &'a Reply, ahead: Option<Place>) -> Result<&'a Grant, Status> {
    match &reply.outcome {
        Outcome::Granted(grant) => Ok(grant),
        Outcome::TimedOut | Outcome::Withdrawn => {
            let holder = ahead.and_then(|place| place.held_by);
            Err(status(Refusal::Held { lock: lock.clone(), holder, closed: None }.into()))
        }
        Outcome::HoldEnded { reason } => Err(hold_ended(lock, *reason)),
        Outcome::Refused(_) => Err(reply_to_answer(reply).err().unwrap_or_else(|| unexpected(reply))),
        Outcome::Opened { .. }
        | Outcome::Attached { .. }
        | Outcome::Closed
        | Outcome::Renewed { .. }
        | Outcome::GrantedSet(_)
        | Outcome::Queued(_)
        | Outcome::Released { .. }
        | Outcome::Downgraded
        | Outcome::Done
        | Outcome::Broken(_)
        | Outcome::HandedOver { .. }
        | Outcome::Freed { .. } => Err(unexpected(reply)),
    }
}

/// Gives a claim up where its call ends without an answer: a task of the server repeats the cancel until it is answered.
struct CancelOnDrop<S: LockService> {
    service: S,
    tasks: Tasks,
    clock: Arc<dyn Clock>,
    open: Option<(Call, OwnedSemaphorePermit)>,
}

impl<S: LockService> Drop for CancelOnDrop<S> {
    fn drop(&mut self) {
        let Some((cancel, permit)) = self.open.take() else { return };
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let (service, mut retry) = (self.service.clone(), Retry::for_ever(Arc::clone(&self.clock)));
        self.tasks.run(async move {
            if let Err(error) = retry.until_answered(|| service.submit(cancel.clone())).await {
                tracing::debug!(%error, "the claim of a cancelled call could not be withdrawn");
            }
            drop(permit);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::FutureExt;

    use super::*;
    use crate::model::Command;
    use crate::rpc::fake::Fake;

    fn asked(lock: &str, request: &str) -> pb::AcquireRequest {
        let session = pb::SessionProof { id: crate::rpc::fake::SESSION, handle: "secret".to_owned() };
        pb::AcquireRequest {
            lock: lock.to_owned(),
            holder: Some(Holder::Session(session)),
            request: request.to_owned(),
            ..Default::default()
        }
    }

    /// A call that ends while it waits gives its claim up, also where the grant is there already and the call was not looked at
    /// since; one that was answered gives up nothing.
    #[tokio::test]
    async fn a_call_that_goes_away_gives_its_claim_up() {
        for granted in [false, true] {
            let (service, mut asks) = Fake::new();
            let calls = Calls::new(service.clone(), Tasks::default(), 1);
            let mut waits = Box::pin(calls.acquire(asked("busy", "3"), pending()));
            assert!(waits.as_mut().now_or_never().is_none(), "queued");
            assert!(matches!(asks.recv().await.expect("asked").command, Command::Acquire(_)));
            if granted {
                service.grant();
            }
            drop(waits);
            let longest = std::time::Duration::from_millis(limits::REQUEST_MS_DEFAULT);
            let cancel = tokio::time::timeout(longest, asks.recv()).await.expect("cancelled").expect("asked").command;
            assert!(matches!(cancel, Command::Cancel { request } if request.number == 3), "{cancel:?}");

            let got = calls.acquire(asked("free", "4"), pending()).await.expect("granted");
            assert_eq!(got.request, "4");
            assert!(matches!(asks.recv().await.expect("asked").command, Command::Acquire(_)));
            assert!(asks.try_recv().is_err(), "an answered call cancels nothing");
        }
    }

    /// Numbers that two nodes draw for one session never meet, and those of one node grow, also where log time stands still.
    #[tokio::test]
    async fn drawn_numbers_never_meet() {
        let service = Fake::new().0;
        let nodes = [1, 2].map(|node| Calls::new(service.clone(), Tasks::default(), node));
        let mut drawn = [Vec::new(), Vec::new()];
        for _ in 0..1_000 {
            for (calls, drawn) in nodes.iter().zip(&mut drawn) {
                drawn.push(calls.draw().await.expect("drawn").parse::<u64>().expect("a number"));
            }
        }
        assert!(drawn.iter().all(|drawn| drawn.is_sorted_by(|one, next| one < next)));
        assert!(drawn.iter().flatten().all(|number| *number < limits::OWN_REQUESTS_MIN));
        let all: std::collections::BTreeSet<_> = drawn.iter().flatten().collect();
        assert_eq!(all.len(), 2_000);
    }

    /// A call that the service turns away before anything happened cancels nothing.
    #[tokio::test]
    async fn a_call_that_never_arrived_cancels_nothing() {
        let (service, mut asks) = Fake::new();
        let calls = Calls::new(service, Tasks::default(), 1);
        let status = calls.acquire(asked("forbidden", "3"), pending()).await.expect_err("turned away");
        assert_eq!(status.code(), tonic::Code::PermissionDenied, "{status:?}");
        assert!(matches!(asks.recv().await.expect("asked").command, Command::Acquire(_)));
        tokio::task::yield_now().await;
        assert!(asks.try_recv().is_err(), "a cancel of nothing");
    }

    /// A node that stops keeps the place of a request that its program can repeat at another node, and gives up one that only this
    /// node knows by name.
    #[tokio::test]
    async fn a_request_with_a_name_keeps_its_place_where_the_node_stops() {
        let (service, mut asks) = Fake::new();
        let calls = Calls::new(service, Tasks::default(), 1);
        for (request, cancelled) in [("3", false), ("", true)] {
            // Whichever of the two is looked at first, the call has asked before it ends.
            let stopped = async {
                tokio::task::yield_now().await;
                ready(()).await;
            };
            let status = calls.acquire(asked("busy", request), stopped).await.expect_err("stopped");
            assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}");
            assert!(matches!(asks.recv().await.expect("asked").command, Command::Acquire(_)));
            tokio::task::yield_now().await;
            let next = asks.try_recv().map(|call| matches!(call.command, Command::Cancel { .. }));
            assert_eq!(next.unwrap_or(false), cancelled, "{request:?}");
        }
    }

    /// The acquires of one node that wait are bounded, the cancels of those that went away included.
    #[tokio::test]
    async fn waits_within_calls_are_bounded() {
        let (service, _asks) = Fake::new();
        let calls = Calls { claims: Arc::new(Semaphore::new(1)), ..Calls::new(service, Tasks::default(), 1) };
        let mut waits = Box::pin(calls.acquire(asked("busy", "1"), pending()));
        assert!(waits.as_mut().now_or_never().is_none(), "queued");
        let status = calls.acquire(asked("free", "2"), pending()).await.expect_err("one too many");
        assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status:?}");
        drop(waits);
        let longest = std::time::Duration::from_millis(limits::REQUEST_MS_DEFAULT);
        let cancelled = tokio::time::timeout(longest, calls.claims.acquire()).await;
        drop(cancelled.expect("the cancel is answered").expect("open"));
        calls.acquire(asked("free", "3"), pending()).await.expect("there is a place again");
    }
}
