//! Token leases: locks without a session, proven by a handle, with an end of their own.

use std::fmt;
use std::time::Duration;

use super::attempts::Attempts;
use super::session::millis;
use super::validity::{Answer, Validity};
use super::{Client, ClientError, Released};
use crate::clock::{Clock, Instant};
use crate::faults::{self, Fault};
use crate::limits::REFRESH_TRIES_MAX;
use crate::model::{Command, FencingToken, Handle, LockKey, LockName, LogTime, Outcome, Refusal, RenewalTarget, Reply};
use crate::service::{Call, LockService, Proof, RenewalCall, ServiceError, Word};

/// A sessionless command says since when it is under way, so that a late duplicate is never executed.
pub(super) fn aged(command: Command, clock: &dyn Clock, began: Instant, since: LogTime) -> (Call, Instant) {
    let sent = clock.now();
    (Call { age_ms: millis(sent.since(began)), since: Some(since), ..Call::new(command) }, sent)
}

/// A lock that is held without a session. Nothing renews it by itself, and dropping this value changes nothing:
/// whoever has the handle may refresh and release it, from any process.
pub struct Lease<S: LockService> {
    pub(super) client: Client<S>,
    pub(super) lock: LockKey,
    pub(super) handle: Handle,
    pub(super) token: FencingToken,
    pub(super) waited: Duration,
    pub(super) duration: Duration,
    pub(super) validity: Validity,
    pub(super) attempts: Attempts,
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

    /// Which lock.
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

    /// How long it is surely held unless it is refreshed. The clock is read at each call.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.validity.left(self.client.settings.clock.now())
    }

    /// Prolongs it by its own duration, from now.
    pub async fn refresh(&mut self) -> Result<Refreshed, ClientError> {
        self.refresh_for(self.duration).await
    }

    /// Lets it end so long from now, be that sooner or later than before. An answer proves that it was held all along. Where
    /// the handle holds the lock by another grant by now, this one is *not held*.
    pub async fn refresh_for(&mut self, duration: Duration) -> Result<Refreshed, ClientError> {
        let renewed = self.client.renew_lease(&self.lock, &self.handle, duration, &mut self.attempts).await;
        let renewed = renewed.and_then(|(answer, refreshed)| match refreshed.token {
            Some(token) if token == self.token => Ok((answer, refreshed)),
            Some(_) | None => Err(Refusal::NotHeld { lock: self.lock.clone() }.into()),
        });
        let gone = |error: &ClientError| matches!(error.word(), Word::NotHeld | Word::HeldByOther);
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

    /// Gives it back.
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
    /// The fencing token of its grant, where the service told it.
    pub token: Option<FencingToken>,
    /// How long it is surely held, counted from when the refresh was sent.
    pub valid_for: Duration,
    /// Log time of the refresh.
    pub at: LogTime,
    /// When it ends, in log time.
    pub deadline: LogTime,
}

impl<S: LockService> Client<S> {
    /// Prolongs a lease by its handle: it ends so long from now.
    pub async fn refresh(&self, name: &str, handle: &Handle, duration: Duration) -> Result<Refreshed, ClientError> {
        let lock = self.key(LockName::parse(name)?);
        let mut attempts = Attempts::since(self.log_time().await?);
        Ok(self.renew_lease(&lock, handle, duration, &mut attempts).await?.1)
    }

    /// Gives a lease back by its handle.
    pub async fn release(&self, name: &str, handle: &Handle) -> Result<Released, ClientError> {
        self.drop_lease(self.key(LockName::parse(name)?), handle.clone()).await
    }

    async fn renew_lease(
        &self,
        lock: &LockKey,
        handle: &Handle,
        duration: Duration,
        attempts: &mut Attempts,
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
            attempts.heard(stamp);
            tries += 1;
            // Another caller of the same lease knew of a later time. The answer tells which, so the next one counts; and
            // where that happens again and again, the answer says in any case when the lease ends.
            if deadline == stamp.after_ms(lease_ms) || REFRESH_TRIES_MAX <= tries {
                let answer = Answer { sent, index, stamp, deadline };
                let valid_for = Validity::new(answer, None).left(sent);
                return Ok((answer, Refreshed { token, valid_for, at: stamp, deadline }));
            }
        }
    }

    /// After an attempt with an unknown end, *not held* says that it was this client that gave the lease back.
    async fn drop_lease(&self, lock: LockKey, handle: Handle) -> Result<Released, ClientError> {
        let clock = &self.settings.clock;
        let (since, began) = (self.log_time().await?, clock.now());
        let command = Command::DropLease { lock, handle };
        let mut tries = 0_u32;
        let attempt = || {
            tries += 1;
            self.service.submit(aged(command.clone(), &**clock, began, since).0)
        };
        let reply = self.retry().until_answered(attempt).await?;
        let gone = matches!(reply.outcome, Outcome::Refused(Refusal::NotHeld { .. } | Refusal::HeldByOther { .. }));
        if tries > 1 && gone {
            return Ok(Released { index: reply.index, at: reply.stamp, left: 0 });
        }
        Released::from_reply(reply)
    }
}
