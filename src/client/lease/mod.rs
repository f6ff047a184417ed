//! Token leases: locks without a session, proven by a handle, with an end of their own.

pub(crate) mod request;

use std::fmt;
use std::time::Duration;

use super::client::Client;
use super::error::ClientError;
use super::hold::Released;
use super::validity::{Answer, Validity};
use crate::clock::{Clock, Instant, millis};
use crate::faults::{self, Fault};
use crate::limits::REFRESH_TRIES_MAX;
use crate::model::{Command, FencingToken, Handle, LockKey, LockName, LogTime, Outcome, Refusal, RenewalTarget, Reply};
use crate::service::{Call, ErrorCode, LockService, Proof, RenewalCall, ServiceError};

/// A call without a session, with the age of its request, so that a late duplicate is refused.
pub(crate) fn lease_call(command: Command, clock: &dyn Clock, began: Instant, since: LogTime) -> (Call, Instant) {
    let sent = clock.now();
    (Call { age_ms: millis(sent.since(began)), since: Some(since), ..Call::new(command) }, sent)
}

/// A lock that is held without a session. Nothing renews it by itself, and dropping this value changes nothing: every caller
/// with the handle may refresh and release it, from any process.
pub struct Lease<S: LockService> {
    pub(crate) client: Client<S>,
    pub(crate) lock: LockKey,
    pub(crate) handle: Handle,
    pub(crate) token: FencingToken,
    pub(crate) waited: Duration,
    pub(crate) duration: Duration,
    pub(crate) validity: Validity,
    pub(crate) attempts: RefreshCounter,
}

impl<S: LockService> Lease<S> {
    /// The fencing token of this grant.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// The secret that refreshes and releases it.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Name of the lock.
    #[must_use]
    pub fn name(&self) -> &LockName {
        &self.lock.name
    }

    /// How long it stood in the queue, in log time.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// When it ends, in log time.
    #[must_use]
    pub fn deadline(&self) -> LogTime {
        self.validity.deadline()
    }

    /// How long it is surely held unless it is refreshed. Reads the clock at each call.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.validity.left(self.client.settings.clock.now())
    }

    /// Prolongs it by its own duration, from now.
    pub async fn refresh(&mut self) -> Result<Refreshed, ClientError> {
        self.refresh_for(self.duration).await
    }

    /// Lets it end so long from now, be that sooner or later than before. An answer proves that it was held all the time. Where
    /// the handle holds the lock by another grant now, this one is *not held*.
    pub async fn refresh_for(&mut self, duration: Duration) -> Result<Refreshed, ClientError> {
        let renewed = self.client.renew_lease(&self.lock, &self.handle, duration, &mut self.attempts).await;
        let renewed = renewed.and_then(|(answer, refreshed)| match refreshed.token {
            Some(token) if token == self.token => Ok((answer, refreshed)),
            Some(_) | None => Err(Refusal::NotHeld { lock: self.lock.clone() }.into()),
        });
        let gone = |error: &ClientError| matches!(error.word(), ErrorCode::NotHeld | ErrorCode::HeldByOther);
        let (mut answer, refreshed) = renewed.inspect_err(|error| {
            if gone(error) {
                self.validity.end();
            }
        })?;
        let now = self.client.settings.clock.now();
        if faults::on(Fault::LeaseFromArrival) {
            answer.sent = now;
        }
        if self.validity.is_passed(now) {
            self.validity = Validity::new(answer, None);
        }
        self.validity.answered(answer, now);
        Ok(refreshed)
    }

    /// Releases it.
    pub async fn release(self) -> Result<Released, ClientError> {
        self.client.drop_lease(self.lock.clone(), self.handle.clone()).await
    }
}

impl<S: LockService> fmt::Debug for Lease<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("lock", &self.lock).field("token", &self.token).finish_non_exhaustive()
    }
}

/// A lease was prolonged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refreshed {
    /// The fencing token of its grant, where the service reports it.
    pub token: Option<FencingToken>,
    /// How long it is surely held, counted from when the refresh was sent.
    pub valid_for: Duration,
    /// Log time of the refresh.
    pub at: LogTime,
    /// When it ends, in log time.
    pub deadline: LogTime,
}

/// Below a millisecond of log time: attempts of one caller grow there, and two callers begin at different points.
const FINE: u64 = 1 << 16;

/// One caller's numbers for the refreshes of a lease. Every caller with the handle may refresh it, from any process: so the
/// numbers come from log time, which all callers have in common.
///
/// - Every attempt is larger than those before it of the same caller.
/// - It is larger than those that were answered before the log time that this caller last learned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RefreshCounter {
    last: u64,
    known: LogTime,
}

impl RefreshCounter {
    /// For a caller that knows this log time.
    pub(crate) fn since(known: LogTime) -> Self {
        Self { last: 0, known }
    }

    /// An answer has this log time.
    pub(crate) fn answered(&mut self, stamp: LogTime) {
        self.known = self.known.max(stamp);
    }

    /// The number of the next attempt.
    pub(crate) fn next(&mut self, clock: &dyn Clock) -> u64 {
        let begin = self.known.0.saturating_mul(FINE).saturating_add(clock.random_below(FINE));
        self.last = self.last.saturating_add(1).max(begin);
        self.last
    }
}

impl<S: LockService> Client<S> {
    /// Prolongs a lease by its handle: it ends so long from now.
    pub async fn refresh(&self, name: &str, handle: &Handle, duration: Duration) -> Result<Refreshed, ClientError> {
        let lock = self.key(LockName::parse(name)?);
        let mut attempts = RefreshCounter::since(self.log_time().await?);
        Ok(self.renew_lease(&lock, handle, duration, &mut attempts).await?.1)
    }

    /// Releases a lease by its handle.
    pub async fn release(&self, name: &str, handle: &Handle) -> Result<Released, ClientError> {
        self.drop_lease(self.key(LockName::parse(name)?), handle.clone()).await
    }

    async fn renew_lease(
        &self,
        lock: &LockKey,
        handle: &Handle,
        duration: Duration,
        attempts: &mut RefreshCounter,
    ) -> Result<(Answer, Refreshed), ClientError> {
        let lease_ms = millis(duration);
        let target = RenewalTarget::Lease { lock: lock.clone(), handle: handle.clone(), lease_ms };
        let clock = &self.settings.clock;
        let mut tries = 0;
        loop {
            let attempt = || {
                let renewal =
                    RenewalCall { target: target.clone(), proof: Proof::Trusted, attempt: attempts.next(&**clock) };
                let (sent, answer) = (clock.now(), self.service.renew(vec![renewal]));
                async move { Ok((sent, answer.await?)) }
            };
            let (sent, replies) = self.retry().until_answered(attempt).await?;
            let Some(Reply { index, stamp, outcome, .. }) = replies.into_iter().next() else {
                return Err(ServiceError::Internal("a renewal without an answer".into()).into());
            };
            let Outcome::Renewed { deadline, token, .. } = outcome else {
                return Err(ClientError::unexpected(outcome));
            };
            attempts.answered(stamp);
            tries += 1;
            // Another caller of the same lease knew of a later time. The answer has it, so that the next attempt counts; and
            // where that happens again and again, the answer has in any case the end of the lease.
            if deadline == stamp.after_ms(lease_ms) || REFRESH_TRIES_MAX <= tries {
                let answer = Answer { sent, index, stamp, deadline };
                let valid_for = Validity::new(answer, None).left(sent);
                return Ok((answer, Refreshed { token, valid_for, at: stamp, deadline }));
            }
        }
    }

    /// After an attempt with an unknown end, *not held* means that this client released the lease.
    async fn drop_lease(&self, lock: LockKey, handle: Handle) -> Result<Released, ClientError> {
        let clock = &self.settings.clock;
        let (since, began) = (self.log_time().await?, clock.now());
        let command = Command::DropLease { lock, handle };
        let mut tries = 0_u32;
        let attempt = || {
            tries += 1;
            self.service.submit(lease_call(command.clone(), &**clock, began, since).0)
        };
        let reply = self.retry().until_answered(attempt).await?;
        let gone = matches!(reply.outcome, Outcome::Refused(Refusal::NotHeld { .. } | Refusal::HeldByOther { .. }));
        if tries > 1 && gone {
            return Ok(Released { index: reply.index, at: reply.stamp, left: 0 });
        }
        Released::from_reply(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    /// RefreshCounter grow, and those of a caller that knows a later time are above those of one that does not.
    #[test]
    fn attempts_grow_with_log_time() {
        let clock = ManualClock::new(1);
        let mut early = RefreshCounter::since(LogTime(1_000));
        let first: Vec<_> = (0..100).map(|_| early.next(&clock)).collect();
        assert!(first.is_sorted_by(|one, next| one < next), "{first:?}");
        let mut late = RefreshCounter::since(LogTime(1_002));
        let other = late.next(&clock);
        assert!(first.iter().all(|attempt| *attempt < other));
        early.answered(LogTime(1_010));
        assert!(other < early.next(&clock));
        early.answered(LogTime(5));
        assert!(other < early.next(&clock), "it never goes back");
    }
}
