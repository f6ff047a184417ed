//! Waits for the outcome of a request that claims a lock, as long as one poll lasts.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::call::RequestContext;
use super::problem::{Decided, Failed};
use crate::client::submit_and_wait;
use crate::limits;
use crate::model::{Grant, Invalid, LockKey, LogTime, Outcome, Place, Query, QueryReply, QueryResult, Refusal, Reply};
use crate::rpc::claims::{Attempts, CancelOnDrop, claimed, free};
use crate::rpc::stopped;
use crate::service::{Call, ClaimRef, Freshness, LockService, ServiceError};

/// The outcome of a request, or its place in the queue after a poll.
pub(super) struct Settled<S: LockService> {
    pub(super) lock: LockKey,
    pub(super) reply: Reply,
    /// Stamp of the first entry of the log that this call caused. Until the call was sent, log time had not reached it.
    pub(super) first: LogTime,
    /// The last place in the queue that is known.
    ahead: Option<Place>,
    /// Withdraws the claim, unless its caller can send the same request again.
    guard: CancelOnDrop<S>,
}

impl<S: LockService> Settled<S> {
    /// Leaves the claim to its caller, which is about to get its identity.
    pub(super) fn leave(&mut self) {
        self.guard.open = None;
    }

    fn decided(&self) -> Decided {
        Decided::at(self.reply.index, self.reply.stamp)
    }

    /// Returns the grants of the request, with the names of their locks.
    pub(super) fn granted(&self) -> Result<Vec<(LockKey, Grant)>, Failed> {
        let key = |name| LockKey { namespace: self.lock.namespace.clone(), name };
        match &self.reply.outcome {
            Outcome::Granted(grant) => Ok(vec![(self.lock.clone(), grant.clone())]),
            Outcome::GrantedSet(grants) => {
                Ok(grants.iter().map(|(name, grant)| (key(name.clone()), grant.clone())).collect())
            }
            Outcome::TimedOut | Outcome::Withdrawn => Err(match &self.ahead {
                Some(Place { lock, held_by: holder, .. }) => {
                    let (lock, holder) = (key(lock.clone()), holder.clone());
                    Failed::refused(Refusal::Held { lock, holder, closed: None }, self.decided())
                }
                // This copy had no place: an earlier one had the whole wait, and the lock may be free now.
                None => Failed::WaitOver { lock: self.lock.name.to_string(), decided: self.decided() },
            }),
            Outcome::HoldEnded { reason } => {
                let (lock, decided) = (self.lock.name.to_string(), self.decided());
                Err(Failed::Lost { lock, reason: *reason, decided })
            }
            Outcome::Refused(refusal) => Err(Failed::refused(refusal.clone(), self.decided())),
            Outcome::Opened { .. }
            | Outcome::Attached { .. }
            | Outcome::Closed
            | Outcome::Renewed { .. }
            | Outcome::Queued(_)
            | Outcome::Released { .. }
            | Outcome::Downgraded
            | Outcome::Done
            | Outcome::Broken(_)
            | Outcome::HandedOver { .. }
            | Outcome::Freed { .. } => Err(Failed::unexpected(&self.reply.outcome)),
        }
    }
}

/// Whether a request has a place in the queue, and behind which hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Queued {
    No,
    Behind,
    BehindCached,
}

/// Returns how long an acquire may wait for its answer; `None` if it does not wait.
pub(super) fn poll(wait_ms: Option<u64>, poll_ms: Option<u64>) -> Result<Option<Duration>, Invalid> {
    let (poll_ms, wait_ms) = (bounded(poll_ms)?, wait_ms.unwrap_or(0));
    let poll_ms = poll_ms.unwrap_or(wait_ms.min(limits::HTTP_POLL_MS_DEFAULT_MAX));
    // The end of the wait is decided by log time, a little later than on this clock. A poll that is as long as the wait
    // has the outcome.
    let poll_ms = if wait_ms <= poll_ms { poll_ms + limits::REQUEST_MS_DEFAULT } else { poll_ms };
    Ok((wait_ms != 0).then_some(Duration::from_millis(poll_ms)))
}

/// Refuses a time that is too long to wait for an answer.
pub(super) fn bounded(poll_ms: Option<u64>) -> Result<Option<u64>, Invalid> {
    match poll_ms.filter(|poll_ms| limits::HTTP_POLL_MS_MAX < *poll_ms) {
        Some(poll_ms) => Err(Invalid::new("poll_ms", format!("at most {}", limits::HTTP_POLL_MS_MAX), poll_ms)),
        None => Ok(poll_ms),
    }
}

impl<S: LockService> RequestContext<S> {
    /// Submits a request that claims a lock, and waits for its outcome; if it waits in the queue, until the poll is
    /// over. Without a poll, a request that waits because of an earlier copy returns its place at once. Behind a cached
    /// hold it waits a little, because the cluster lets even a request without a wait stand there.
    ///
    /// If the caller disconnects, a request that it named keeps its place, and another one is withdrawn. The same holds
    /// for an error that leaves the outcome unknown.
    pub(super) async fn settle(&self, call: &Call, named: bool, poll: Option<Duration>) -> Result<Settled<S>, Failed> {
        let no_claim = || ServiceError::Internal("a call that claims nothing".to_owned());
        let (claim, cancel) = claimed(call).ok_or_else(no_claim)?;
        let place = self.place(&self.api.claims)?;
        let _poll = poll.map(|_| self.place(&self.api.polls)).transpose()?;
        let api = &self.api;
        let (service, tasks, clock) = (self.service.clone(), api.tasks.clone(), Arc::clone(&api.clock));
        let open = (!named).then_some(cancel);
        let mut guard = CancelOnDrop { service, tasks, clock, open, place: Some(place) };
        let (attempts, mut ahead) = (Attempts::default(), None);
        let (queued, mut is_queued) = watch::channel(Queued::No);
        let attempt = || attempts.submit(&self.service, call);
        let stands = |place: &Place| {
            ahead = Some(place.clone());
            // Only the first request stands there without a wait.
            let cached = place.place == 1 && place.held_by.as_ref().is_some_and(|holder| holder.cached);
            queued.send_replace(if cached { Queued::BehindCached } else { Queued::Behind });
        };
        // A poll ends only after the request has its place.
        let over = async {
            if let Some(poll) = poll {
                sleep(poll).await;
            }
            let found = is_queued.wait_for(|queued| *queued != Queued::No).await;
            let behind_cached = found.is_ok_and(|queued| *queued == Queued::BehindCached);
            if poll.is_none() && behind_cached {
                // Log time decides, a little later than this clock.
                sleep(Duration::from_millis(2 * limits::TRY_BEHIND_CACHED_MS)).await;
            }
        };
        let mut retry = api.retry();
        let answered = tokio::select! {
            biased;
            settled = submit_and_wait(&self.service, &claim, &mut retry, attempt, stands) => {
                settled.map(|settled| Some(settled.reply))
            }
            () = over => Ok(None),
            () = stopped(self.api.stop.clone()) => Err(ServiceError::Stopping),
        };
        if answered.is_err() && !retry.is_in_doubt() {
            guard.open = None;
        }
        let reply = match answered.map_err(|error| retry.doubted(error))? {
            Some(reply) => reply,
            // The request has its place, so an error of this read must not say that nothing happened.
            None => {
                let standing = self.standing(&claim, ahead.as_ref()).await;
                standing.map_err(|error| retry.doubted(error))?
            }
        };
        let first = attempts.first().unwrap_or(reply.stamp);
        Ok(Settled { lock: claim.lock, reply, first, ahead, guard })
    }

    /// Reads a lock once it is free, or when the time is over.
    pub(super) async fn until_free(&self, lock: LockKey, longest: Duration) -> Result<QueryReply, Failed> {
        let _poll = self.place(&self.api.polls)?;
        let mut retry = self.api.retry();
        let ends = self.api.clock.now().after(longest);
        loop {
            let left = ends.since(self.api.clock.now());
            let error = tokio::select! {
                free = free(&self.service, lock.clone(), Some(left)) => match free {
                    Ok(reply) => return Ok(reply),
                    Err(error) => error,
                },
                stopping = self.stopped() => return Err(stopping),
            };
            retry.broke_off(error).await?;
        }
    }

    /// Reads the current outcome or place of a claim. `known` is the place from which it started.
    async fn standing(&self, claim: &ClaimRef, known: Option<&Place>) -> Result<Reply, ServiceError> {
        let query = Query::Claim { lock: Some(claim.lock.clone()), claim: claim.claim };
        let read = || self.service.query(query.clone(), Freshness::Linearizable);
        let answered = self.api.retry().until_read(read).await?;
        let QueryResult::Claim { outcome, recalled } = answered.answer else {
            return Err(ServiceError::Internal("the service answered another query".to_owned()));
        };
        let outcome = outcome.or_else(|| known.cloned().map(Outcome::Queued));
        let outcome = outcome.ok_or_else(|| ServiceError::unknown("the cluster does not know the request"))?;
        Ok(Reply { index: answered.index, stamp: answered.now, outcome, recalled })
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use axum::http::HeaderMap;
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::super::acquire_body::AcquireBody;
    use super::super::stream;
    use super::super::tests::fake::{Fake, context};
    use super::super::watch::WatchQuery;
    use super::*;
    use crate::model::{Command, Handle, LockName, RequestId, SessionId};
    use crate::service::{Proof, Source};

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns an acquire that does not wait.
    fn acquire(context: &RequestContext<Fake>) -> Call {
        let body: AcquireBody = serde_json::from_value(serde_json::json!({"lock": "a"})).expect("fields");
        let acquire = body.acquire(RequestId { session: SessionId::new(0, 1), number: 1 }).expect("an acquire");
        let proof = Proof::Handle { handle: Handle::from_random(7), namespace: context.namespace.clone() };
        Call { proof, ..Call::new(Command::Acquire(acquire)) }
    }

    /// A copy without a wait of a request that waits is answered with its place, and not with the end of that wait.
    #[tokio::test(start_paused = true)]
    async fn a_copy_without_a_wait_is_answered_at_once() {
        let fake = Fake::new();
        fake.queue_acquires(3);
        let (context, _stop) = context(&fake);
        let call = acquire(&context);
        let settled = timeout(SECOND, context.settle(&call, true, None)).await.expect("at once").expect("a place");
        assert!(matches!(&settled.reply.outcome, Outcome::Queued(place) if place.place == 3), "{:?}", settled.reply);
    }

    /// Behind a cached hold, a request without a wait is not answered before the cluster has decided, if it does so in
    /// time.
    #[tokio::test(start_paused = true)]
    async fn a_try_behind_a_cached_hold_is_not_answered_at_once() {
        let fake = Fake::new();
        fake.queue_behind_cached();
        let (context, _stop) = context(&fake);
        let (call, decided) = (acquire(&context), Duration::from_millis(limits::TRY_BEHIND_CACHED_MS));
        assert!(timeout(decided, context.settle(&call, true, None)).await.is_err(), "answered before the outcome");
        let settled = timeout(SECOND, context.settle(&call, true, None)).await.expect("in time").expect("a place");
        assert!(matches!(&settled.reply.outcome, Outcome::Queued(_)), "{:?}", settled.reply);
    }

    /// A copy of a request whose wait was over before, or that was withdrawn, names no obstacle: the lock may be free.
    #[tokio::test(start_paused = true)]
    async fn a_copy_after_the_wait_names_no_obstacle() {
        let fake = Fake::new();
        let (context, _stop) = context(&fake);
        let mut settled = context.settle(&acquire(&context), true, None).await.expect("granted");
        for outcome in [Outcome::TimedOut, Outcome::Withdrawn] {
            settled.reply.outcome = outcome;
            let failed = settled.granted().expect_err("its wait is over");
            assert!(matches!(&failed, Failed::WaitOver { lock, .. } if lock == "a"), "{failed:?}");
        }
        settled.leave();
    }

    /// A request whose place cannot be read at the end of its poll may be granted later. So the error of that read does
    /// not say that nothing happened.
    #[tokio::test(start_paused = true)]
    async fn an_unreadable_place_leaves_the_outcome_unknown() {
        let fake = Fake::new();
        fake.queue_acquires(3);
        fake.refuse_queries();
        let (context, _stop) = context(&fake);
        let call = acquire(&context);
        let failed = context.settle(&call, true, Some(SECOND)).await.err().expect("an error");
        let Failed::Service(error, _) = failed else { panic!("{failed:?}") };
        assert!(matches!(*error, ServiceError::Unknown { .. }), "{error}");
    }

    /// A request has its place among the calls in progress until it is answered, also if its caller named it.
    #[tokio::test(start_paused = true)]
    async fn a_named_request_has_a_place_while_it_waits() {
        let fake = Fake::new();
        fake.acquire_takes(2 * SECOND);
        let (context, _stop) = context(&fake);
        let call = acquire(&context);
        for named in [false, true] {
            let mut waits = std::pin::pin!(context.settle(&call, named, None));
            assert!(timeout(SECOND, &mut waits).await.is_err(), "it waits");
            assert_eq!(context.api.claims.in_use(), 1, "named: {named}");
            waits.await.expect("granted").leave();
            assert_eq!(context.api.claims.in_use(), 0);
        }
    }

    /// A poll, a wait or a stream for which the port has no place counts as refused, although the service does not see
    /// it.
    #[tokio::test(start_paused = true)]
    async fn requests_without_a_place_are_counted() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let _recorded = metrics::set_default_local_recorder(&recorder);
        let counted = |times: usize| {
            let (text, series) =
                (recorder.handle().render(), r#"lockkeeper_refusals_total{node="1",word="overloaded"}"#);
            assert!(text.lines().any(|line| line == format!("{series} {times}")), "{times} in {text}");
        };
        let (waiting, _stop) = context(&Fake::new());
        let taken: Vec<_> = (0..).map_while(|id| waiting.api.polls.take(Source::Connection(id)).ok()).collect();
        assert!(!taken.is_empty(), "there were places");
        counted(0);
        waiting.settle(&acquire(&waiting), true, Some(SECOND)).await.err().expect("no place for the poll");
        counted(1);
        let lock = LockKey { namespace: waiting.namespace.clone(), name: LockName::parse("a").expect("legal") };
        waiting.until_free(lock, SECOND).await.expect_err("no place for the wait");
        counted(2);
        let watch: WatchQuery = serde_json::from_value(serde_json::json!({})).expect("fields");
        stream::begin(watch, waiting, &HeaderMap::new()).await.expect_err("no place for the stream");
        counted(3);
    }
}
