//! `acquire`: a lock as a lease, or one or several locks in a session.

use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::acquire_body::{AcquireBody, Prepared};
use super::call::{Answered, Call, RequestContext, decided};
use super::problem::{Decided, Failed};
use super::settle::{Settled, poll};
use crate::limits;
use crate::model::{
    Checked, Command, EndReason, Grant, LockKey, LogTime, Outcome, Place, Query, QueryResult, RenewalTarget, Reply,
    TakeLease,
};
use crate::service::{ErrorCode, Freshness, LockService, Proof, RenewalCall, only_reply};
use crate::shapes::Holder;

/// The grant, or the place in the queue.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub(super) enum Acquired {
    Granted(Granted),
    Waiting(Waiting),
}

/// A lock that was granted, or a set.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Granted {
    /// The word `granted`.
    state: &'static str,
    /// Name of the lock; not for a set.
    #[serde(skip_serializing_if = "Option::is_none")]
    lock: Option<String>,
    /// Fencing token; not for a set.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    /// The locks of a set.
    #[serde(skip_serializing_if = "Option::is_none")]
    locks: Option<Vec<GrantedMember>>,
    request: String,
    /// The secret that refreshes and releases a lease. Not for a hold of a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    handle: Option<String>,
    waited_ms: u64,
    /// Log time of the first entry of the log that the request caused. This field and the next two are there if the
    /// hold ends before its session, unless it is renewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    log_time_ms: Option<u64>,
    /// Log time of the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_ms: Option<u64>,
    /// The difference of the two.
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining_ms: Option<u64>,
}

/// One lock of a set that was granted.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct GrantedMember {
    pub(super) lock: String,
    pub(super) token: String,
}

/// The place of a request in the queue.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Waiting {
    /// The word `waiting`.
    state: &'static str,
    /// Position in the queue, from 1.
    place: u64,
    sequence: String,
    /// One of the holders.
    held_by: Option<Holder>,
    request: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    handle: Option<String>,
}

impl Call for AcquireBody {
    const WORD: &'static str = "acquire";
    const STATUSES: &'static [u16] = &[200, 202];
    const ERRORS: &'static [ErrorCode] = &[
        ErrorCode::NotAcquired,
        ErrorCode::AlreadyHeld,
        ErrorCode::KindMismatch,
        ErrorCode::Deadlock,
        ErrorCode::LimitMismatch,
        ErrorCode::LimitExceeded,
        ErrorCode::LimitUnknown,
        ErrorCode::Quota,
        ErrorCode::SessionEnded,
        ErrorCode::WrongHandle,
        ErrorCode::TooOld,
        ErrorCode::RequestReused,
        ErrorCode::Lost,
    ];
    type Answer = Acquired;

    async fn answer<S: LockService>(self, context: &RequestContext<S>) -> Result<Answered<Acquired>, Failed> {
        let poll = poll(self.wait_ms, self.poll_ms)?;
        let in_session = self.session.is_some();
        let prepared = if in_session { self.for_session(context).await? } else { self.for_lease(context)? };
        let Prepared { call, named, request, handle } = prepared;
        let settled = context.settle(&call, named, poll).await?;
        let mut moved = None;
        if let Command::TakeLease(take) = &call.command {
            moved = context.lengthened(&settled, take).await?;
        }
        answered(settled, moved, request, handle)
    }
}

/// The count of the renewal that lengthens a lease after its grant. Those of the caller are larger.
pub(super) const LENGTHENED_ATTEMPT: u64 = 1;

/// Returns the answer for a settled request. `moved` is the end of a lease that was moved since its grant.
pub(super) fn answered<S: LockService>(
    mut settled: Settled<S>,
    moved: Option<LogTime>,
    request: String,
    handle: Option<String>,
) -> Result<Answered<Acquired>, Failed> {
    // Nothing below waits. A refusal is a final answer, too, and leaves nothing to withdraw.
    settled.leave();
    let value = if let Outcome::Queued(Place { place, sequence, held_by, .. }) = &settled.reply.outcome {
        let held_by = held_by.as_deref().map(|holder| Holder::new(holder, settled.reply.stamp));
        let (place, sequence) = (*place, sequence.to_string());
        Acquired::Waiting(Waiting { state: "waiting", place, sequence, held_by, request, handle })
    } else {
        let grants = settled.granted()?;
        let deadlines = grants.iter().flat_map(|(_, grant)| [grant.deadline, grant.ends]).flatten();
        let deadline = moved.or(deadlines.min());
        let member = |(lock, grant): &(LockKey, Grant)| (lock.name.to_string(), grant.token.to_string());
        let is_set = matches!(settled.reply.outcome, Outcome::GrantedSet(_));
        let only = grants.first().filter(|_| !is_set).map(member).unzip();
        let set = || grants.iter().map(member).map(|(lock, token)| GrantedMember { lock, token }).collect();
        Acquired::Granted(Granted {
            state: "granted",
            lock: only.0,
            token: only.1,
            locks: is_set.then(set),
            request,
            handle,
            waited_ms: grants.iter().map(|(_, grant)| grant.waited_ms).max().unwrap_or_default(),
            log_time_ms: deadline.map(|_| settled.first.0),
            deadline_ms: deadline.map(|deadline| deadline.0),
            remaining_ms: deadline.map(|deadline| deadline.ms_since(settled.first)),
        })
    };
    let status = if matches!(value, Acquired::Waiting(_)) { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok(Answered { status, ..Answered::by(&settled.reply, value) })
}

impl<S: LockService> RequestContext<S> {
    /// Sets the end of a lease that was granted for a short time only, and returns it. If another copy of the request
    /// or a refresh has moved the end, changes nothing and returns the current end. A late copy changes nothing once
    /// the caller has counted a refresh: it could shorten the lease.
    async fn lengthened(&self, settled: &Settled<S>, take: &TakeLease) -> Result<Option<LogTime>, Failed> {
        let Outcome::Granted(Grant { token, deadline: Some(deadline), .. }) = &settled.reply.outcome else {
            return Ok(None);
        };
        let short = limits::CLAIM_LEASE_MS_MAX;
        if take.lease_ms <= short || short < deadline.ms_since(settled.reply.stamp) {
            return Ok(None);
        }
        let check = Query::Check { lock: take.lock.clone(), token: *token };
        let mut retry = self.api.retry();
        // The lease is granted, so no error from here on says that nothing happened.
        retry.executed();
        let read = retry.until_read(|| self.service.query(check.clone(), Freshness::Linearizable)).await;
        let reply = read.map_err(|error| retry.doubted(error))?;
        let QueryResult::Checked(Checked { since, deadline, .. }) = reply.answer else {
            return Err(Failed::unexpected(reply.answer));
        };
        // They are equal, too, if the lease has ended: then the renewal is refused.
        if deadline != since.map(|since| since.after_ms(short)) {
            return Ok(deadline);
        }
        let (lock, handle, lease_ms) = (take.lock.clone(), take.handle.clone(), take.lease_ms);
        let target = RenewalTarget::Lease { lock, handle, lease_ms };
        let renewal = RenewalCall { target, proof: Proof::Trusted, attempt: LENGTHENED_ATTEMPT };
        let renewed = retry.until_answered(|| self.service.renew(vec![renewal.clone()])).await;
        match renewed.and_then(only_reply)? {
            Reply { outcome: Outcome::Renewed { deadline, .. }, .. } => Ok(Some(deadline)),
            reply if reply.outcome.hold_is_gone() => {
                let (lock, decided) = (take.lock.name.to_string(), Decided::at(reply.index, reply.stamp));
                Err(Failed::Lost { lock, reason: EndReason::Expired, decided })
            }
            reply => Err(decided(reply).map_or_else(|failed| failed, Failed::unexpected)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::fake::{Fake, LENGTHENED_MS, context};
    use super::*;
    use crate::model::{QuotaKind, Refusal};
    use crate::service::ServiceError;

    /// A poll whose lease was lengthened by another poll after its grant returns the new end. It reads the hold alone,
    /// and not the queue of the lock.
    #[tokio::test(start_paused = true)]
    async fn a_poll_returns_the_end_that_another_poll_has_set() {
        let (context, _stop) = context(&Fake::new());
        let body = serde_json::json!({"lock": "a", "lease_ms": LENGTHENED_MS, "wait_ms": 60_000});
        let body: AcquireBody = serde_json::from_value(body).expect("fields");
        let answered = body.answer(&context).await.expect("granted");
        let Acquired::Granted(granted) = &answered.value else { panic!("{:?}", answered.value) };
        assert_eq!(granted.remaining_ms, Some(LENGTHENED_MS));
    }

    /// Makes an acquire of a lease that is lengthened after its grant, and returns its error.
    async fn failed(fake: &Fake) -> Failed {
        let (context, _stop) = context(fake);
        let body = serde_json::json!({"lock": "a", "lease_ms": LENGTHENED_MS, "wait_ms": 60_000});
        let body: AcquireBody = serde_json::from_value(body).expect("fields");
        let failed = body.answer(&context).await.err().expect("an error");
        context.api.tasks.ended().await;
        failed
    }

    /// A lease that was granted and whose end cannot be moved leaves the outcome unknown. Its unnamed request is
    /// withdrawn.
    #[tokio::test(start_paused = true)]
    async fn an_error_after_the_grant_leaves_the_outcome_unknown() {
        let fake = Fake::new();
        fake.refuse_queries();
        let failed = failed(&fake).await;
        let Failed::Service(error, _) = failed else { panic!("{failed:?}") };
        assert!(matches!(*error, ServiceError::Unknown { .. }), "{error}");
        assert_eq!(fake.withdrawals(), 1);
    }

    /// An acquire that is refused has its final answer, so nothing is withdrawn.
    #[tokio::test(start_paused = true)]
    async fn a_refused_acquire_withdraws_nothing() {
        let fake = Fake::new();
        fake.refuse_leases();
        let failed = failed(&fake).await;
        let Failed::Service(error, _) = failed else { panic!("{failed:?}") };
        assert_eq!(error.code(), ErrorCode::NotAcquired);
        assert_eq!(fake.withdrawals(), 0);
    }

    /// The cluster remembers no refusal for want of room. After an attempt without an answer the outcome is unknown,
    /// and the withdrawal is repeated until there is room for it. A first attempt that is refused leaves nothing to
    /// withdraw.
    #[tokio::test(start_paused = true)]
    async fn a_lease_without_room_is_withdrawn_only_after_a_lost_answer() {
        let full = || Ok(Outcome::Refused(Refusal::Quota { what: QuotaKind::Takes, limit: 1 }));
        let lost = || Err(ServiceError::unknown("the leader changed"));
        let cases =
            [(vec![full()], ErrorCode::Quota, 0), (vec![lost(), full(), full(), full()], ErrorCode::Unknown, 3)];
        for (answers, code, withdrawals) in cases {
            let fake = Fake::new();
            fake.answer_leases(answers);
            let failed = failed(&fake).await;
            let Failed::Service(error, _) = failed else { panic!("{failed:?}") };
            assert_eq!(error.code(), code, "{error}");
            assert_eq!(fake.withdrawals(), withdrawals);
        }
    }
}
