//! Token leases: locks without a session, proven by a handle, with an end of their own.

use std::fmt;
use std::time::Duration;

use super::acquire::{Wait, granted, passed};
use super::attempts::Attempts;
use super::session::millis;
use super::validity::{Answer, Validity};
use super::{Client, ClientError, Released};
use crate::clock::{Clock, Instant};
use crate::limits::{REFRESH_TRIES_MAX, TTL_MS_DEFAULT_MIN};
use crate::model::{
    Claim, Command, FencingToken, Handle, HolderView, Invalid, LockKey, LockName, LogTime, Metadata, Mode, Outcome,
    Place, Refusal, RenewalTarget, Reply, TakeId, TakeLease,
};
use crate::service::{Call, ClaimRef, LockService, RenewalCall, ServiceError};

/// How a lease is to be taken. [`take`](Self::take) asks for it; values are checked there.
#[derive(Debug)]
#[must_use = "nothing is asked for before take()"]
pub struct LeaseRequest<S: LockService> {
    client: Client<S>,
    name: Result<LockName, Invalid>,
    mode: Mode,
    duration: Duration,
    handle: Option<Handle>,
    metadata: Option<Metadata>,
    why: Option<String>,
    wait: Wait,
}

impl<S: LockService> LeaseRequest<S> {
    pub(super) fn new(client: Client<S>, name: &str) -> Self {
        Self {
            client,
            name: LockName::parse(name),
            mode: Mode::Exclusive,
            duration: Duration::from_millis(TTL_MS_DEFAULT_MIN),
            handle: None,
            metadata: None,
            why: None,
            wait: Wait::Try,
        }
    }

    /// It ends so long after its grant or its last refresh; 10 s by default.
    pub fn duration(mut self, duration: Duration) -> Self {
        self.duration = duration;
        self
    }

    /// The secret that refreshes and releases it, instead of a random one.
    pub fn handle(mut self, handle: Handle) -> Self {
        self.handle = Some(handle);
        self
    }

    /// Exclusive, shared or permits; exclusive by default.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// What for; shown to whoever waits.
    pub fn why(mut self, why: &str) -> Self {
        self.why = Some(why.to_owned());
        self
    }

    /// What the holder says of itself, instead of the client's.
    pub fn metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// Waits at most so long, counted from the call of [`take`](Self::take); by default not at all.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Wait::For(wait);
        self
    }

    /// Does not wait.
    pub fn try_once(mut self) -> Self {
        self.wait = Wait::Try;
        self
    }

    /// Takes it, and waits as was said. Repeats itself under one id through errors.
    ///
    /// Dropped before its end it is withdrawn by a task of the client, as long as the client lives; after that the
    /// wait and the lease bound what is left of it.
    pub async fn take(self) -> Result<Lease<S>, ClientError> {
        let Self { client, name, mode, duration, handle, metadata, why, wait } = self;
        let clock = client.settings.clock.clone();
        let mut metadata = metadata.unwrap_or_else(|| client.settings.metadata.clone());
        if let Some(why) = why {
            metadata.why = why.into();
        }
        let take = TakeLease {
            lock: client.key(name?),
            take: TakeId(clock.random_u128()),
            handle: handle.unwrap_or_else(|| Handle::from_random(clock.random_u128())),
            mode,
            lease_ms: millis(duration),
            patience: wait.patience(),
            metadata: metadata.checked()?,
        };
        let began = clock.now();
        let mut taking =
            Taking { client: client.clone(), take: take.clone(), began, since: None, ahead: None, open: true };
        let settled = tokio::select! {
            biased;
            settled = taking.settle() => Some(settled?),
            () = passed(&*clock, wait.until(began)) => None,
        };
        let Some((sent, reply)) = settled else {
            taking.withdraw().await?;
            taking.open = false;
            return Err(ClientError::NotAcquired { lock: take.lock.name, holder: taking.ahead.take() });
        };
        let (index, stamp) = (reply.index, reply.stamp);
        let ahead = taking.ahead.take();
        // A refusal is final: there is nothing to withdraw.
        let grant = granted(reply.outcome, &take.lock.name, ahead).inspect_err(|_| taking.open = false)?;
        let deadline = grant.deadline.unwrap_or_else(|| stamp.after_ms(take.lease_ms));
        let mut lease = Lease {
            client: client.without_session(),
            lock: take.lock,
            handle: take.handle,
            token: grant.token,
            waited: Duration::from_millis(grant.waited_ms),
            duration,
            validity: Validity::new(Answer { sent: sent.unwrap_or(began), index, stamp, deadline }, None),
            attempts: Attempts::since(stamp),
        };
        if sent.is_none() {
            // The grant came while it waited: nothing that was sent since tells how its stamp and this clock relate.
            lease.refresh().await?;
        }
        // From here on the lease's own owner gives it back.
        taking.open = false;
        Ok(lease)
    }
}

/// A take on its way.
struct Taking<S: LockService> {
    client: Client<S>,
    take: TakeLease,
    began: Instant,
    /// Log time before it was first sent; `None` until then.
    since: Option<LogTime>,
    ahead: Option<Box<HolderView>>,
    /// Nothing final was answered yet, so dropping it has to withdraw it.
    open: bool,
}

impl<S: LockService> Taking<S> {
    /// The final answer, and when the attempt that it answers was sent; `None` where it was waited for.
    async fn settle(&mut self) -> Result<(Option<Instant>, Reply), ClientError> {
        let since = self.client.log_time().await?;
        self.since = Some(since);
        let claim = ClaimRef { lock: self.take.lock.clone(), claim: Claim::Take(self.take.take) };
        let (service, clock) = (&self.client.service, &self.client.settings.clock);
        let mut retry = self.client.retry();
        loop {
            let attempt = || {
                let (call, sent) = aged(Command::TakeLease(self.take.clone()), &**clock, self.began, since);
                let answer = service.submit(call);
                async move { Ok((sent, answer.await?)) }
            };
            let (sent, reply) = retry.until_answered(attempt).await?;
            let Outcome::Queued(Place { held_by, .. }) = reply.outcome else { return Ok((Some(sent), reply)) };
            self.ahead = held_by.map(Box::new);
            match service.settled(claim.clone()).await {
                Ok(Reply { outcome: Outcome::Queued(_), .. }) => {}
                Ok(reply) => return Ok((None, reply)),
                Err(error) => retry.broke_off(error).await?,
            }
        }
    }

    /// Takes it back, whatever has become of it; nothing to do where it was never sent.
    fn withdraw(&self) -> impl Future<Output = Result<(), ClientError>> + Send + use<S> {
        // A withdrawal must not keep alive the set of withdrawals that may own it, nor a session.
        let (client, began, since) = (self.client.without_session(), self.began, self.since);
        let TakeLease { lock, take, handle, .. } = self.take.clone();
        let command = Command::CancelTake { lock, take, handle };
        async move {
            let Some(since) = since else { return Ok(()) };
            let clock = &client.settings.clock;
            let attempt = || client.service.submit(aged(command.clone(), &**clock, began, since).0);
            let reply = client.retry().until_answered(attempt).await?;
            // The only refusal there is says that the cluster had no room to remember the withdrawal.
            if reply.outcome == Outcome::Withdrawn { Ok(()) } else { Err(ClientError::unexpected(reply.outcome)) }
        }
    }
}

impl<S: LockService> Drop for Taking<S> {
    fn drop(&mut self) {
        if self.open && self.since.is_some() {
            let withdrawal = self.withdraw();
            self.client.withdraw_later(async move { drop(withdrawal.await) });
        }
    }
}

/// A sessionless command says since when it is under way, so that a late duplicate is never executed.
fn aged(command: Command, clock: &dyn Clock, began: Instant, since: LogTime) -> (Call, Instant) {
    let sent = clock.now();
    (Call { age_ms: millis(sent.since(began)), since: Some(since), ..Call::new(command) }, sent)
}

/// A lock that is held without a session. Nothing renews it by itself, and dropping this value changes nothing:
/// whoever has the handle may refresh and release it, from any process.
pub struct Lease<S: LockService> {
    client: Client<S>,
    lock: LockKey,
    handle: Handle,
    token: FencingToken,
    waited: Duration,
    duration: Duration,
    validity: Validity,
    attempts: Attempts,
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

    /// Lets it end so long from now, be that sooner or later than before. An answer proves that it was held all along.
    pub async fn refresh_for(&mut self, duration: Duration) -> Result<Refreshed, ClientError> {
        let renewed = self.client.renew_lease(&self.lock, &self.handle, duration, &mut self.attempts).await?;
        let (answer, refreshed) = renewed;
        let now = self.client.settings.clock.now();
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
                let renewal = RenewalCall { target: target.clone(), proof: None, attempt: attempts.next(&**clock) };
                let (sent, answer) = (clock.now(), self.service.renew(vec![renewal]));
                async move { Ok((sent, answer.await?)) }
            };
            let (sent, replies) = self.retry().until_answered(attempt).await?;
            let Some(Reply { index, stamp, outcome }) = replies.into_iter().next() else {
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
            return Ok(Released { index: reply.index, at: reply.stamp });
        }
        Released::from_reply(reply)
    }
}
