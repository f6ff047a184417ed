//! Taking a lease: one id from the first try to the last, withdrawn where its caller goes away.

use std::time::Duration;

use super::attempts::Attempts;
use super::lease::{Lease, aged};
use super::session::millis;
use super::validity::{Answer, Validity};
use super::waiting::{Settled, granted, no_answer, not_acquired, passed, settled};
use super::wanted::{Wait, Wanted, mode_methods, wanted_methods};
use super::{Client, ClientError};
use crate::clock::Instant;
use crate::limits::TTL_MS_DEFAULT_MIN;
use crate::model::{
    Access, Claim, Command, Handle, Invalid, LeaseRequestId, LockName, LogTime, Mode, Outcome, Place, TakeLease,
};
use crate::service::{ClaimRef, LockService};

/// How a lease is to be taken, exclusive and without waiting by default. [`take`](Self::take) asks for it; values are
/// checked there.
#[derive(Debug)]
#[must_use = "nothing is asked for before take()"]
pub struct LeaseRequest<S: LockService> {
    client: Client<S>,
    name: Result<LockName, Invalid>,
    access: Access,
    wanted: Wanted,
    duration: Duration,
    handle: Option<Handle>,
}

impl<S: LockService> LeaseRequest<S> {
    pub(super) fn new(client: Client<S>, name: &str) -> Self {
        Self {
            client,
            name: LockName::parse(name),
            access: Mode::Exclusive.into(),
            wanted: Wanted::new(Wait::Try),
            duration: Duration::from_millis(TTL_MS_DEFAULT_MIN),
            handle: None,
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

    /// Takes it, and waits as was said. Repeats itself under one id through errors.
    ///
    /// Dropped before its end it is withdrawn by a task of the client, as long as the client lives; after that the
    /// wait and the lease bound what is left of it.
    pub async fn take(self) -> Result<Lease<S>, ClientError> {
        let Self { client, name, access, wanted: Wanted { metadata, why, wait }, duration, handle } = self;
        let clock = client.settings.clock.clone();
        let take = TakeLease {
            lock: client.key(name?),
            take: LeaseRequestId::from_random(clock.random_u128()),
            handle: handle.unwrap_or_else(|| Handle::from_random(clock.random_u128())),
            access,
            lease_ms: millis(duration),
            patience: wait.patience(),
            metadata: Wanted::metadata(metadata, why, &client.settings.metadata)?,
        };
        let began = clock.now();
        let mut taking =
            Taking { client: client.clone(), take: take.clone(), began, since: None, ahead: None, open: true };
        let settled = tokio::select! {
            biased;
            settled = taking.settle() => Some(settled?),
            () = passed(&*clock, wait.until(began)) => None,
        };
        let Some(Settled { sent, reply }) = settled else {
            if taking.since.is_none() {
                return Err(no_answer("asking for the time"));
            }
            taking.withdraw().await?;
            taking.open = false;
            return Err(not_acquired(&take.lock.name, taking.ahead.take()));
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

wanted_methods!(LeaseRequest);
mode_methods!(LeaseRequest);

/// A take on its way.
struct Taking<S: LockService> {
    client: Client<S>,
    take: TakeLease,
    began: Instant,
    /// Log time before it was first sent; `None` until then.
    since: Option<LogTime>,
    ahead: Option<Place>,
    /// Nothing final was answered yet, so dropping it has to withdraw it.
    open: bool,
}

impl<S: LockService> Taking<S> {
    /// Until there is an outcome that is not a place in the queue.
    async fn settle(&mut self) -> Result<Settled, ClientError> {
        let since = self.client.log_time().await?;
        self.since = Some(since);
        let claim = ClaimRef { lock: self.take.lock.clone(), claim: Claim::Lease(self.take.take) };
        let (service, clock) = (&self.client.service, &self.client.settings.clock);
        let attempt = || {
            let (call, sent) = aged(Command::TakeLease(self.take.clone()), &**clock, self.began, since);
            let answer = service.submit(call);
            async move { Ok((sent, answer.await?)) }
        };
        let ahead = &mut self.ahead;
        let queued = |place: &Place| *ahead = Some(place.clone());
        let wait = || service.settled(claim.clone());
        Ok(settled(service, &claim, &mut self.client.retry(), attempt, wait, queued).await?)
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
