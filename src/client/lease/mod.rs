//! Token leases: locks without a session. A handle proves the hold, which has its own deadline.

pub(crate) mod request;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::client::Client;
use super::error::ClientError;
use super::hold::Released;
use super::on_drop::OnDrop;
use super::validity::{RenewalAnswer, Validity, less_margin};
use crate::clock::{Clock, Instant, millis};
use crate::faults::{self, Fault};
use crate::limits::REFRESH_TRIES_MAX;
use crate::model::{Command, FencingToken, Handle, LockKey, LockName, LogTime, Outcome, Refusal, RenewalTarget, Reply};
use crate::service::{Call, ErrorCode, LockService, Proof, RenewalCall, only_reply};

/// Creates a call without a session. It contains the age of its request, so that a late duplicate is refused.
pub(crate) fn lease_call(command: Command, clock: &dyn Clock, began: Instant, since: LogTime) -> Call {
    Call { age_ms: millis(clock.now().since(began)), since: Some(since), ..Call::new(command) }
}

/// A lock that is held without a session. Nothing renews it automatically, and dropping this value changes nothing:
/// every caller with the handle may refresh and release it, from any process.
#[derive(Debug)]
pub struct Lease<S: LockService> {
    pub(crate) client: Client<S>,
    pub(crate) lock: LockKey,
    pub(crate) handle: Handle,
    pub(crate) token: FencingToken,
    pub(crate) waited: Duration,
    pub(crate) duration: Duration,
    pub(crate) validity: Validity,
    /// The earliest end that a refresh without an answer may have set since the last answered one.
    pub(crate) doubt: Option<Instant>,
    pub(crate) attempts: RefreshCounter,
    /// Whether an earlier release may have been executed.
    pub(crate) release_in_doubt: AtomicBool,
}

impl<S: LockService> Lease<S> {
    /// Returns the fencing token of this grant.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Returns the secret that authorizes refreshes and the release.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Returns the name of the lock.
    #[must_use]
    pub fn name(&self) -> &LockName {
        &self.lock.name
    }

    /// Returns how long the request waited in the queue, in log time.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Returns the log time at which the lease ends, as the cluster last reported it.
    #[must_use]
    pub fn deadline(&self) -> LogTime {
        self.validity.deadline()
    }

    /// Returns how long the lock is certainly held unless it is refreshed. Reads the clock at each call.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        let now = self.client.settings.clock.now();
        let left = self.validity.left(now);
        self.doubt.map_or(left, |end| end.since(now).min(left))
    }

    /// Extends the lease: sets its end to its duration from now.
    pub async fn refresh(&mut self) -> Result<Refreshed, ClientError> {
        self.refresh_for(self.duration).await
    }

    /// Sets the end of the lease to this duration from now, which may be earlier than before. A success proves that the
    /// lock was held all the time. If the handle now holds the lock by another grant, the error is *not held*.
    ///
    /// After an *unknown* error, or if the future is dropped, the refresh may have been executed. The lease is then
    /// valid until the earlier of the old and the new end, until another refresh is answered.
    pub async fn refresh_for(&mut self, duration: Duration) -> Result<Refreshed, ClientError> {
        let before = self.doubt;
        let sets = self.client.settings.clock.now().after(less_margin(Duration::from_millis(millis(duration))));
        self.doubt = Some(before.map_or(sets, |before| before.min(sets)));
        let renewed = self.client.renew_lease(&self.lock, &self.handle, duration, &mut self.attempts).await;
        let renewed = renewed.and_then(|(answer, refreshed)| match refreshed.token {
            Some(token) if token == self.token => Ok((answer, refreshed)),
            Some(_) | None => Err(Refusal::NotHeld { lock: self.lock.clone() }.into()),
        });
        let gone = |error: &ClientError| matches!(error.code(), ErrorCode::NotHeld | ErrorCode::HeldByOther);
        let (mut answer, refreshed) = renewed.inspect_err(|error| {
            if gone(error) {
                self.validity.end();
            }
            if !matches!(error, ClientError::Service(error) if error.leaves_doubt()) {
                self.doubt = before;
            }
        })?;
        // Attempts before the answered one have no effect after it.
        self.doubt = None;
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

    /// Releases the lock. The release is repeated while it is not answered; after an attempt without an answer, of this
    /// call or of an earlier one, it succeeds even if the lock is no longer held. After an error the caller can release
    /// the lock again.
    pub async fn release(&self) -> Result<Released, ClientError> {
        self.client.drop_lease(self.lock.clone(), self.handle.clone(), &self.release_in_doubt).await
    }
}

/// The result of a refresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refreshed {
    /// The fencing token of the grant, if the service reports it.
    pub token: Option<FencingToken>,
    /// How long the lock is certainly held, counted from when the refresh was sent.
    pub valid_for: Duration,
    /// Log time of the refresh.
    pub at: LogTime,
    /// The log time at which the lease ends.
    pub deadline: LogTime,
}

/// Number of steps within one millisecond of log time. Attempts of one caller increase in these steps, and each caller
/// begins at a random step.
const FINE: u64 = 1 << 16;

/// Numbers the refreshes of a lease by one caller. Every caller with the handle may refresh the lease, from any
/// process, so the numbers derive from log time, which all callers have in common.
///
/// - Each number is larger than all earlier ones of the same caller.
/// - It is larger than all numbers that were answered before the log time that this caller last learned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RefreshCounter {
    last: u64,
    known: LogTime,
}

impl RefreshCounter {
    /// Creates the counter of a caller that knows this log time.
    pub(crate) fn since(known: LogTime) -> Self {
        Self { last: 0, known }
    }

    /// Records the log time of an answer.
    pub(crate) fn answered(&mut self, stamp: LogTime) {
        self.known = self.known.max(stamp);
    }

    /// Returns the number of the next attempt.
    pub(crate) fn next(&mut self, clock: &dyn Clock) -> u64 {
        let begin = self.known.0.saturating_mul(FINE).saturating_add(clock.random_below(FINE));
        self.last = self.last.saturating_add(1).max(begin);
        self.last
    }
}

impl<S: LockService> Client<S> {
    /// Sets the end of this handle's lease to this duration from now, which may be earlier than before.
    pub async fn refresh(&self, name: &str, handle: &Handle, duration: Duration) -> Result<Refreshed, ClientError> {
        let lock = self.key(LockName::parse(name)?);
        let mut attempts = RefreshCounter::since(self.log_time().await?);
        Ok(self.renew_lease(&lock, handle, duration, &mut attempts).await?.1)
    }

    /// Releases a lease by its handle. After a call without an answer, *not held* may mean that it released the lease.
    pub async fn release(&self, name: &str, handle: &Handle) -> Result<Released, ClientError> {
        self.drop_lease(self.key(LockName::parse(name)?), handle.clone(), &AtomicBool::new(false)).await
    }

    async fn renew_lease(
        &self,
        lock: &LockKey,
        handle: &Handle,
        duration: Duration,
        attempts: &mut RefreshCounter,
    ) -> Result<(RenewalAnswer, Refreshed), ClientError> {
        let lease_ms = millis(duration);
        let target = RenewalTarget::Lease { lock: lock.clone(), handle: handle.clone(), lease_ms };
        let clock = &self.settings.clock;
        let mut tries = 0;
        loop {
            let attempt = || {
                let renewal =
                    RenewalCall { target: target.clone(), proof: Proof::Trusted, attempt: attempts.next(&**clock) };
                let (sent, answer) = (clock.now(), self.service.renew(vec![renewal]));
                async move { Ok((sent, answer.await.and_then(only_reply)?)) }
            };
            let (sent, Reply { index, stamp, outcome, .. }) = self.retry().until_answered(attempt).await?;
            let Outcome::Renewed { deadline, token, .. } = outcome else {
                return Err(ClientError::unexpected(outcome));
            };
            attempts.answered(stamp);
            tries += 1;
            // Another caller of the same lease knew a later log time. The answer contains that time, so the next
            // attempt is accepted. After several such answers, the last one still has the end of the lease.
            if deadline == stamp.after_ms(lease_ms) || REFRESH_TRIES_MAX <= tries {
                let answer = RenewalAnswer { sent, index, stamp, deadline };
                let valid_for = Validity::new(answer, None).left(sent);
                return Ok((answer, Refreshed { token, valid_for, at: stamp, deadline }));
            }
        }
    }

    /// Releases a lease. After an attempt with an unknown outcome, *not held* means that this client released it.
    /// `in_doubt` keeps that doubt from one call to the next, also if the caller drops this future.
    async fn drop_lease(&self, lock: LockKey, handle: Handle, in_doubt: &AtomicBool) -> Result<Released, ClientError> {
        let clock = &self.settings.clock;
        let (since, began) = (self.log_time().await?, clock.now());
        let command = Command::DropLease { lock, handle };
        let mut retry = self.retry();
        if in_doubt.load(Ordering::Relaxed) {
            retry.executed();
        }
        let mut retry = OnDrop::new((retry, in_doubt), |(retry, in_doubt)| {
            in_doubt.store(retry.is_in_doubt(), Ordering::Relaxed);
        });
        let attempt = || self.service.submit(lease_call(command.clone(), &**clock, began, since));
        let reply = retry.0.until_answered(attempt).await?;
        let gone = reply.outcome.hold_is_gone();
        if gone || matches!(reply.outcome, Outcome::Released { .. }) {
            // The answer ends the doubt: it does not excuse a later release.
            retry.disarm();
            in_doubt.store(false, Ordering::Relaxed);
        }
        if retry.0.is_in_doubt() && gone {
            return Ok(Released { index: reply.index, at: reply.stamp, left: 0 });
        }
        Released::from_reply(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    /// Numbers of one caller increase, and those of a caller that knows a later log time are larger than those of a
    /// caller that does not.
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
        assert!(other < early.next(&clock), "it never decreases");
    }
}
