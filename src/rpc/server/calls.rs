//! Calls of programs without a stream: defaults that the node fills in, acquires that wait within their call, and
//! answers that contain how long the caller may rely on them.

use std::sync::Arc;

use metrics::Counter;
use tonic::{Request, Status};

use super::caller::OfCallers;
use super::measured::overloaded;
use crate::client::{Retry, default_ttl_ms, submit_and_wait};
use crate::clock::{Clock, SystemClock};
use crate::limits;
use crate::model::{
    Grant, Handle, Invalid, LeaseRequestId, LockKey, LogTime, Outcome, Place, Refusal, Reply, parse_request_number,
};
use crate::rpc::background::Tasks;
use crate::rpc::claims::{Attempts, CancelOnDrop, DrawnNumbers, claimed};
use crate::rpc::convert::{Wire, call, hold_ended, namespace, proven, required, wait_over};
use crate::rpc::pb;
use crate::rpc::pb::acquire_request::Holder;
use crate::rpc::pb::command::Command as Asked;
use crate::rpc::pb::renewal::Target;
use crate::rpc::pb::{refresh_request, release_request};
use crate::service::{
    Advice, Call, ClaimRef, LockService, Places, REQUEST_WAIT, RenewalCall, ServiceError, TakenPlace, only_reply,
};

/// State that all unary calls of one node share.
#[derive(Clone)]
pub(super) struct Calls<S> {
    service: S,
    tasks: Tasks,
    clock: Arc<dyn Clock>,
    /// Limits the acquires and other calls that wait for an outcome, and the watches of single sessions, together with
    /// the cancels of calls whose clients disconnected.
    claims: Places,
    /// Counts the calls that were refused because there was no place in `claims`.
    overloaded: Counter,
    drawn: Arc<DrawnNumbers>,
}

/// Refuses a field that only an acquire in a session has.
fn only_in_a_session(field: &str, is_set: bool) -> Result<(), Status> {
    if is_set { Err(Invalid::new(field, "absent for a lease", "a value").into()) } else { Ok(()) }
}

/// Refuses a field that only a lease has.
fn only_for_a_lease(field: &str, is_set: bool) -> Result<(), Status> {
    if is_set { Err(Invalid::new(field, "absent in a session", "a value").into()) } else { Ok(()) }
}

/// Returns the namespace of a session's lock. A call with another namespace than the session's is refused.
fn of_session(session: &pb::SessionProof, asked: &str) -> Result<String, Status> {
    let own = namespace(&session.namespace)?;
    if asked.is_empty() || asked == own.as_str() {
        return Ok(own.to_string());
    }
    Err(Invalid::new("namespace", format!("that of the session, {own}"), asked).into())
}

impl<S> Calls<S> {
    pub(super) fn new(service: S, tasks: Tasks, node: u64) -> Self {
        let claims = Places::new(limits::UNARY_CLAIMS_MAX);
        let drawn = Arc::new(DrawnNumbers::new(node));
        Self { service, tasks, clock: Arc::new(SystemClock::new()), claims, overloaded: overloaded(node), drawn }
    }
}

impl<S: LockService> Calls<OfCallers<S>> {
    /// Returns a handle for the caller of a request.
    #[allow(clippy::result_large_err)] // The error type of tonic's handlers.
    pub(super) fn of<T>(&self, request: &Request<T>) -> Result<Calls<S>, Status> {
        let Self { service, tasks, clock, claims, overloaded, drawn } = self.clone();
        Ok(Calls { service: service.of(request)?, tasks, clock, claims, overloaded, drawn })
    }
}

impl<S: LockService> Calls<S> {
    /// Opens a session, with defaults for the fields that the caller left out.
    pub(super) async fn open(&self, mut asked: pb::OpenSession) -> Result<pb::OpenSessionReply, Status> {
        if asked.handle.is_empty() {
            asked.handle = Handle::from_random(self.clock.random_u128()).reveal().to_owned();
        }
        if asked.instance.is_empty() {
            asked.instance = "0".repeat(32);
        }
        if asked.ttl_ms == 0 {
            asked.ttl_ms = default_ttl_ms(self.service.status().await?.ttl_ms_min);
        }
        let namespace = namespace(&asked.namespace)?.to_string();
        let handle = asked.handle.clone();
        let reply = self.decided(read(Asked::OpenSession(asked))?).await?;
        let Outcome::Opened { session, ttl_ms, deadline } = reply.outcome else { return Err(unexpected(&reply)) };
        Ok(pb::OpenSessionReply {
            index: reply.index,
            stamp_ms: reply.stamp.0,
            session: Some(pb::SessionProof { id: session.as_u64(), handle, namespace }),
            ttl_ms,
            deadline_ms: deadline.0,
            valid_ms: valid_ms(reply.stamp, deadline),
        })
    }

    /// Renews a session.
    pub(super) async fn keep_alive(&self, asked: pb::KeepAliveRequest) -> Result<pb::KeepAliveReply, Status> {
        let session = required("session", asked.session)?;
        self.renewed(Target::Session(session), asked.attempt, None).await
    }

    /// Renews the lease of a hold.
    pub(super) async fn refresh(&self, asked: pb::RefreshRequest) -> Result<pb::KeepAliveReply, Status> {
        let pb::RefreshRequest { holder, namespace, lock, token, lease_ms, attempt } = asked;
        let lease_ms = if lease_ms == 0 { limits::TTL_MS_DEFAULT_MIN } else { lease_ms };
        let (target, held) = match required("holder", holder)? {
            refresh_request::Holder::Session(session) => {
                let lock = Some(pb::LockKey { namespace: of_session(&session, &namespace)?, name: lock });
                let hold = pb::HoldTarget { lock, session: Some(session), token, lease_ms };
                (Target::Hold(hold), Some(token))
            }
            refresh_request::Holder::Handle(handle) => {
                only_in_a_session("token", token != 0)?;
                let lock = Some(pb::LockKey { namespace, name: lock });
                (Target::Lease(pb::LeaseTarget { lock, handle, lease_ms }), None)
            }
        };
        self.renewed(target, attempt, held).await
    }

    /// Renews a session or a hold. A session's hold keeps the token in the request.
    async fn renewed(&self, target: Target, attempt: u64, held: Option<u64>) -> Result<pb::KeepAliveReply, Status> {
        let asked = pb::Renewal { target: Some(target), attempt };
        let renewal = RenewalCall::from_wire("renewal", asked)?;
        let reply = self.service.renew(vec![renewal]).await.and_then(only_reply)?;
        let Outcome::Renewed { deadline, token, .. } = reply.outcome else { return Err(unexpected(&reply)) };
        Ok(pb::KeepAliveReply {
            index: reply.index,
            stamp_ms: reply.stamp.0,
            token: token.map(|token| token.as_u64()).or(held),
            deadline_ms: deadline.0,
            valid_ms: valid_ms(reply.stamp, deadline),
            recalled: recalled(&reply),
        })
    }

    /// Releases a lock of a session, under a generated number if the caller names none, or a lease.
    pub(super) async fn release(&self, asked: pb::ReleaseRequest) -> Result<pb::Reply, Status> {
        let pb::ReleaseRequest { holder, namespace, lock, token, request, age_ms, since_ms } = asked;
        let asked = match required("holder", holder)? {
            release_request::Holder::Session(session) => {
                of_session(&session, &namespace)?;
                only_for_a_lease("age_ms", age_ms != 0)?;
                only_for_a_lease("since_ms", since_ms.is_some())?;
                let request = self.numbered(&request).await?;
                Asked::Release(pb::Release {
                    session: Some(session),
                    request,
                    answered_below: 0,
                    lock,
                    token,
                    acquire: 0,
                })
            }
            release_request::Holder::Handle(handle) => {
                only_in_a_session("token", token != 0)?;
                only_in_a_session("request", !request.is_empty())?;
                let lock = Some(pb::LockKey { namespace, name: lock });
                Asked::DropLease(pb::DropLease { lock, handle, age_ms, since_ms })
            }
        };
        self.answered(asked).await
    }

    /// Submits a command and returns its reply without waiting. A refusal is the error of the call.
    pub(super) async fn answered(&self, asked: Asked) -> Result<pb::Reply, Status> {
        Ok(self.decided(read(asked)?).await?.to_wire())
    }

    /// Submits a command and returns its reply without waiting. A refusal is a reply.
    pub(super) async fn submit(&self, asked: Asked) -> Result<pb::Reply, Status> {
        if let Asked::Attach(_) = &asked {
            return Err(Invalid::new("command", "one that needs no stream", "attach").into());
        }
        Ok(self.service.submit(read(asked)?).await?.to_wire())
    }

    /// Submits a call. A refusal is an error.
    async fn decided(&self, call: Call) -> Result<Reply, Status> {
        let reply = self.service.submit(call).await?;
        if let Outcome::Refused(_) = reply.outcome { Err(unexpected(&reply)) } else { Ok(reply) }
    }

    /// Returns the number of a session's request; a generated one if the caller names none.
    async fn numbered(&self, request: &str) -> Result<u64, Status> {
        if request.is_empty() {
            return Ok(self.drawn.next(&self.service, &self.clock).await?);
        }
        Ok(parse_request_number(request)?)
    }

    /// Acquires a lock, in a session or as a lease, and waits for it.
    pub(super) async fn acquire(
        &self,
        asked: pb::AcquireRequest,
        stopped: impl Future<Output = ()>,
    ) -> Result<pb::AcquireReply, Status> {
        let named = !asked.request.is_empty();
        match required("holder", asked.holder.clone())? {
            Holder::Session(session) => {
                let asked = self.in_session(session, asked).await?;
                let request = asked.request.to_string();
                let reply = self.held(read(Asked::Acquire(asked))?, named, stopped).await?;
                Ok(pb::AcquireReply { request, ..reply })
            }
            Holder::Handle(handle) => {
                let asked = self.as_lease(handle, asked)?;
                let (request, handle) = (asked.take.clone(), asked.handle.clone());
                let reply = self.held(read(Asked::TakeLease(asked))?, named, stopped).await?;
                Ok(pb::AcquireReply { request, handle, ..reply })
            }
        }
    }

    /// Returns the command of an acquire in a session, with a generated number if the caller names none.
    async fn in_session(&self, session: pb::SessionProof, asked: pb::AcquireRequest) -> Result<pb::Acquire, Status> {
        of_session(&session, &asked.namespace)?;
        only_for_a_lease("age_ms", asked.age_ms != 0)?;
        only_for_a_lease("since_ms", asked.since_ms.is_some())?;
        Ok(pb::Acquire {
            session: Some(session),
            request: self.numbered(&asked.request).await?,
            answered_below: 0,
            lock: asked.lock,
            mode: asked.mode,
            limit: asked.limit,
            others: Vec::new(),
            owner: asked.owner,
            wait_ms: asked.wait_ms,
            metadata: asked.metadata,
            lease_ms: asked.lease_ms,
            extras: asked.extras,
        })
    }

    /// Returns the command of an acquire as a lease, with defaults for the fields that the caller left out.
    fn as_lease(&self, handle: String, asked: pb::AcquireRequest) -> Result<pb::TakeLease, Status> {
        only_in_a_session("owner", asked.owner.is_some())?;
        only_in_a_session("extras", asked.extras.is_some())?;
        if handle.is_empty() && !asked.request.is_empty() {
            return Err(Invalid::new("handle", "set where `request` is: a retry needs both", "nothing").into());
        }
        if !asked.request.is_empty() {
            LeaseRequestId::from_wire("request", asked.request.clone())?;
        }
        let drawn = || LeaseRequestId::from_random(self.clock.random_u128()).to_wire();
        let secret = || Handle::from_random(self.clock.random_u128()).reveal().to_owned();
        Ok(pb::TakeLease {
            lock: Some(pb::LockKey { namespace: asked.namespace, name: asked.lock }),
            take: if asked.request.is_empty() { drawn() } else { asked.request },
            handle: if handle.is_empty() { secret() } else { handle },
            mode: asked.mode,
            limit: asked.limit,
            lease_ms: asked.lease_ms.unwrap_or(limits::TTL_MS_DEFAULT_MIN),
            wait_ms: asked.wait_ms.or(Some(0)),
            metadata: asked.metadata,
            age_ms: asked.age_ms,
            since_ms: asked.since_ms,
            claim_ms: None,
        })
    }

    /// Submits an acquire or take, and waits for its outcome until `stopped` completes because the node stops. The
    /// answer lacks the identity of the request.
    ///
    /// The claim is cancelled if the client disconnects. An error that leaves the outcome unknown cancels it only if
    /// the program named no request: a program that named one keeps its place and retries.
    async fn held(
        &self,
        call: Call,
        named: bool,
        stopped: impl Future<Output = ()>,
    ) -> Result<pb::AcquireReply, Status> {
        let no_claim = || ServiceError::Internal("a call that claims nothing".to_owned());
        let (claim, cancel) = claimed(&call).ok_or_else(no_claim)?;
        let place = self.place()?;
        let mut cancel = CancelOnDrop {
            service: self.service.clone(),
            tasks: self.tasks.clone(),
            clock: Arc::clone(&self.clock),
            open: Some(cancel),
            place: Some(place),
        };
        let (attempts, mut ahead) = (Attempts::default(), None);
        let attempt = || attempts.submit(&self.service, &call);
        let mut retry = Retry::new(Arc::clone(&self.clock), REQUEST_WAIT);
        let queued = |place: &Place| ahead = Some(place.clone());
        let answered = tokio::select! {
            answered = submit_and_wait(&self.service, &claim, &mut retry, attempt, queued) => answered,
            () = stopped => Err(ServiceError::Stopping),
        };
        let reply = match answered {
            Ok(settled) => settled.reply,
            Err(error) => {
                if (named && error.advice() != Advice::GiveUp) || !retry.is_in_doubt() {
                    cancel.open = None;
                }
                return Err(retry.doubted(error).into());
            }
        };
        cancel.open = None;
        let stamp = attempts.first().unwrap_or(reply.stamp);
        let grant = granted(&claim.lock, &reply, ahead)?;
        let deadline = [grant.deadline, grant.ends].into_iter().flatten().min();
        Ok(pb::AcquireReply {
            index: reply.index,
            stamp_ms: stamp.0,
            token: grant.token.as_u64(),
            waited_ms: grant.waited_ms,
            deadline_ms: deadline.map(|deadline| deadline.0),
            valid_ms: deadline.map(|deadline| valid_ms(stamp, deadline)),
            recalled: recalled(&reply),
            ..Default::default()
        })
    }

    /// Takes a place for a long call or stream of this caller. Counts the refusal of one for which there is no place.
    pub(super) fn place(&self) -> Result<TakenPlace, ServiceError> {
        self.claims.take(self.service.caller_source()).inspect_err(|_| self.overloaded.increment(1))
    }

    /// Waits for the outcome of a claim until `stopped` completes because the node stops.
    pub(super) async fn wait_outcome(
        &self,
        asked: pb::WaitOutcomeRequest,
        stopped: impl Future<Output = ()>,
    ) -> Result<pb::Reply, Status> {
        let claim = ClaimRef::from_wire("claim", asked)?;
        let _place = self.place()?;
        tokio::select! {
            answered = self.service.wait_outcome(claim) => Ok(answered?.to_wire()),
            () = stopped => Err(ServiceError::Stopping.into()),
        }
    }
}

fn recalled(reply: &Reply) -> Vec<u64> {
    reply.recalled.iter().map(|token| token.as_u64()).collect()
}

/// Returns the error of a call whose reply is no answer to it: the refusal, or that the outcome is of another command.
fn unexpected(reply: &Reply) -> Status {
    if let Outcome::Refused(refusal) = &reply.outcome {
        return ServiceError::Refused(refusal.clone()).into();
    }
    ServiceError::Internal(format!("the service answered another command: {:?}", reply.outcome)).into()
}

/// Returns the grant of a final outcome. The error says why there is no grant.
#[allow(clippy::wildcard_enum_match_arm, reason = "every other outcome is no answer to an acquire")]
fn granted<'a>(lock: &LockKey, reply: &'a Reply, ahead: Option<Place>) -> Result<&'a Grant, Status> {
    match &reply.outcome {
        Outcome::Granted(grant) => Ok(grant),
        Outcome::TimedOut | Outcome::Withdrawn => Err(ahead.map_or_else(
            || wait_over(lock),
            |place| {
                let (lock, holder) = (lock.clone(), place.held_by);
                ServiceError::Refused(Refusal::Held { lock, holder, closed: None }).into()
            },
        )),
        Outcome::HoldEnded { reason } => Err(hold_ended(lock, *reason)),
        _ => Err(unexpected(reply)),
    }
}

/// Converts a command of a unary call, which contains its session's proof.
fn read(asked: Asked) -> Result<Call, Status> {
    Ok(call(pb::Command { command: Some(asked) }, proven)?)
}

/// Returns how long the caller may rely on this deadline, in milliseconds from before it sent its call. At that time,
/// log time had not reached the stamp of the first entry, and log time never runs faster than real time.
fn valid_ms(stamp: LogTime, deadline: LogTime) -> u64 {
    deadline.ms_since(stamp).saturating_mul(1_000 - limits::DRIFT_MARGIN_PERMILLE) / 1_000
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures_util::FutureExt;

    use super::*;
    use crate::model::{Claim, Command, LockName, Namespace, QuotaKind, RequestId, SessionId};
    use crate::rpc::fake::Fake;

    fn asked(lock: &str, request: &str) -> pb::AcquireRequest {
        let (id, handle) = (crate::rpc::fake::SESSION, "secret".to_owned());
        let holder = Some(Holder::Session(pb::SessionProof { id, handle, namespace: String::new() }));
        pb::AcquireRequest { holder, lock: lock.to_owned(), request: request.to_owned(), ..Default::default() }
    }

    /// A repeat of an acquire whose wait was over before is answered with the need for a new request, because the lock
    /// may be free now.
    #[test]
    fn a_repeat_after_the_wait_needs_a_new_request() {
        let lock = LockKey { namespace: Namespace::default(), name: LockName::parse("a").expect("legal") };
        let place = Place { lock: lock.name.clone(), place: 1, sequence: 1, held_by: None };
        for outcome in [Outcome::TimedOut, Outcome::Withdrawn] {
            let reply = Reply { index: 1, stamp: LogTime(1), outcome, recalled: Vec::new() };
            let repeat = granted(&lock, &reply, None).expect_err("its wait is over");
            assert!(repeat.message().ends_with("; send a new request"), "{repeat}");
            let waited = granted(&lock, &reply, Some(place.clone())).expect_err("it waited");
            assert!(waited.message().contains("others"), "{waited}");
            assert_eq!(repeat.code(), waited.code());
        }
    }

    /// A call that ends while it waits cancels its claim, even if the grant has arrived and was not read yet; a call
    /// that was answered cancels nothing.
    #[tokio::test]
    async fn a_dropped_call_cancels_its_claim() {
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

    /// A dropped call whose token has ended repeats its cancel, because the token may be valid again.
    #[tokio::test(start_paused = true)]
    async fn a_cancel_is_repeated_after_a_refusal_of_its_caller() {
        let (service, mut asks) = Fake::new();
        service.refuse_cancels(2);
        let calls = Calls::new(service, Tasks::default(), 1);
        let mut waits = Box::pin(calls.acquire(asked("busy", "3"), pending()));
        assert!(waits.as_mut().now_or_never().is_none(), "queued");
        assert!(matches!(asks.recv().await.expect("asked").command, Command::Acquire(_)));
        drop(waits);
        let longest = std::time::Duration::from_secs(60);
        for attempt in 1..=3 {
            let cancel = tokio::time::timeout(longest, asks.recv()).await.expect("repeated").expect("asked").command;
            assert!(matches!(cancel, Command::Cancel { .. }), "attempt {attempt}: {cancel:?}");
        }
    }

    /// The cluster remembers no refusal for want of room. After an attempt without an answer the outcome is unknown,
    /// and the cancel is repeated until there is room for it. A first attempt that is refused leaves nothing to cancel.
    #[tokio::test(start_paused = true)]
    async fn a_lease_without_room_is_cancelled_only_after_a_lost_answer() {
        let full = || Ok(Outcome::Refused(Refusal::Quota { what: QuotaKind::Takes, limit: 1 }));
        let lost = || Err(ServiceError::unknown("the leader changed"));
        let cases = [
            (vec![full()], tonic::Code::ResourceExhausted, (1, 0)),
            (vec![lost(), full(), full(), full()], tonic::Code::DeadlineExceeded, (2, 3)),
        ];
        for (answers, code, (takes, cancels)) in cases {
            let (service, mut asks) = Fake::new();
            service.answer_next(answers);
            let tasks = Tasks::default();
            let calls = Calls::new(service, tasks.clone(), 1);
            let holder = Some(Holder::Handle(String::new()));
            let asked = pb::AcquireRequest { holder, lock: "a".to_owned(), ..Default::default() };
            let status = calls.acquire(asked, pending()).await.expect_err("no room");
            assert_eq!(status.code(), code, "{status:?}");
            tasks.ended().await;
            let asked: Vec<_> = std::iter::from_fn(|| asks.try_recv().ok()).map(|call| call.command).collect();
            let number = |of: fn(&Command) -> bool| asked.iter().filter(|command| of(command)).count();
            assert_eq!(number(|command| matches!(command, Command::TakeLease(_))), takes, "{asked:?}");
            assert_eq!(number(|command| matches!(command, Command::CancelTake { .. })), cancels, "{asked:?}");
        }
    }

    /// Numbers that two nodes generate for one session never collide, and the numbers of one node grow, even if log
    /// time does not advance. They begin with the log time of the leader, so a node that lags generates none that are
    /// too old.
    #[tokio::test]
    async fn generated_numbers_never_collide() {
        let service = Fake::new().0;
        let nodes = [1, 2].map(|node| Calls::new(service.clone(), Tasks::default(), node));
        let mut drawn = [Vec::new(), Vec::new()];
        for _ in 0..1_000 {
            for (calls, drawn) in nodes.iter().zip(&mut drawn) {
                drawn.push(calls.drawn.next(&service, &calls.clock).await.expect("drawn"));
            }
        }
        assert!(drawn.iter().all(|drawn| drawn.is_sorted_by(|one, next| one < next)));
        assert!(drawn.iter().flatten().all(|number| *number < limits::OWN_REQUESTS_MIN));
        let below_log_time = limits::DRAWN_REQUEST_RANDOM_BITS + limits::DRAWN_REQUEST_NODE_BITS;
        assert!(drawn.iter().all(|drawn| drawn[0] >> below_log_time == 6));
        let all: std::collections::BTreeSet<_> = drawn.iter().flatten().collect();
        assert_eq!(all.len(), 2_000);
    }

    /// A call that the service refuses before it does anything cancels nothing.
    #[tokio::test]
    async fn a_call_that_never_arrived_cancels_nothing() {
        let (service, mut asks) = Fake::new();
        let calls = Calls::new(service, Tasks::default(), 1);
        let status = calls.acquire(asked("forbidden", "3"), pending()).await.expect_err("refused");
        assert_eq!(status.code(), tonic::Code::PermissionDenied, "{status:?}");
        assert!(matches!(asks.recv().await.expect("asked").command, Command::Acquire(_)));
        tokio::task::yield_now().await;
        assert!(asks.try_recv().is_err(), "a cancel of nothing");
    }

    /// A node that stops keeps the claim of a request that its program can repeat at another node, and cancels one that
    /// only this node knows.
    #[tokio::test]
    async fn a_named_request_keeps_its_place_when_the_node_stops() {
        let (service, mut asks) = Fake::new();
        let calls = Calls::new(service, Tasks::default(), 1);
        for (request, cancelled) in [("3", false), ("", true)] {
            // The call has submitted its command before it ends, in either order of polling.
            let stopped = async {
                tokio::task::yield_now().await;
                ready(()).await;
            };
            let status = calls.acquire(asked("busy", request), stopped).await.expect_err("stopped");
            assert_eq!(status.code(), tonic::Code::DeadlineExceeded, "it has a place: {status:?}");
            assert!(matches!(asks.recv().await.expect("asked").command, Command::Acquire(_)));
            tokio::task::yield_now().await;
            let next = asks.try_recv().map(|call| matches!(call.command, Command::Cancel { .. }));
            assert_eq!(next.unwrap_or(false), cancelled, "{request:?}");
        }
    }

    /// The acquires and outcomes that wait at one node are limited, together with the cancels of dropped acquires. Each
    /// one too many is counted.
    #[tokio::test]
    async fn waits_within_calls_are_bounded() {
        let (service, _asks) = Fake::new();
        let refused = Arc::new(AtomicU64::new(0));
        let (claims, overloaded) = (Places::new(1), Counter::from_arc(Arc::clone(&refused)));
        let calls = Calls { claims, overloaded, ..Calls::new(service, Tasks::default(), 1) };
        let mut waits = Box::pin(calls.acquire(asked("busy", "1"), pending()));
        assert!(waits.as_mut().now_or_never().is_none(), "queued");
        let status = calls.acquire(asked("free", "2"), pending()).await.expect_err("one too many");
        assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status:?}");
        drop(waits);
        let longest = std::time::Duration::from_millis(limits::REQUEST_MS_DEFAULT);
        let cancelled = async {
            while calls.claims.in_use() != 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(longest, cancelled).await.expect("the cancel is answered");
        calls.acquire(asked("free", "3"), pending()).await.expect("there is a place again");
        let lock = LockKey { namespace: Namespace::default(), name: LockName::parse("busy").expect("legal") };
        let request = RequestId { session: SessionId::from_u64(crate::rpc::fake::SESSION).expect("legal"), number: 1 };
        let outcome = || ClaimRef { lock: lock.clone(), claim: Claim::Request(request) }.to_wire();
        let mut waits = Box::pin(calls.wait_outcome(outcome(), pending()));
        assert!(waits.as_mut().now_or_never().is_none(), "it waits");
        let status = calls.wait_outcome(outcome(), pending()).await.expect_err("one too many");
        assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status:?}");
        drop(waits);
        assert_eq!((calls.claims.in_use(), refused.load(Ordering::Relaxed)), (0, 2));
    }
}
