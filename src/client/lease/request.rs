//! A request for a lease. All its attempts have the same id, and it is withdrawn when its caller drops it.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::runtime::Handle as Runtime;

use crate::client::client::Client;
use crate::client::error::ClientError;
use crate::client::lease::{Lease, RefreshCounter, lease_call};
use crate::client::on_drop::OnDrop;
use crate::client::options::{RequestOptions, WaitLimit, mode_methods, request_methods};
use crate::client::retry::{Retry, remembered};
use crate::client::validity::{RenewalAnswer, Validity};
use crate::client::wait::{Settled, granted, no_answer, not_acquired, submit_and_wait, wait_until};
use crate::clock::{Instant, millis};
use crate::limits::TTL_MS_DEFAULT_MIN;
use crate::model::{
    Access, Claim, Command, Handle, Invalid, LeaseRequestId, LockName, LogTime, Mode, Outcome, Place, Query, TakeLease,
};
use crate::mutex::Mutex;
use crate::service::{ClaimRef, Freshness, LockService, ServiceError};

/// A request for a lease. By default it is exclusive and does not wait. [`take`](Self::take) checks the values and
/// sends it.
#[derive(Debug)]
#[must_use = "nothing is requested before take()"]
pub struct LeaseRequest<S: LockService> {
    client: Client<S>,
    name: Result<LockName, Invalid>,
    access: Access,
    options: RequestOptions,
    duration: Duration,
    handle: Option<Handle>,
}

impl<S: LockService> LeaseRequest<S> {
    fn new(client: Client<S>, name: &str) -> Self {
        Self {
            client,
            name: LockName::parse(name),
            access: Mode::Exclusive.into(),
            options: RequestOptions::new(WaitLimit::TRY),
            duration: Duration::from_millis(TTL_MS_DEFAULT_MIN),
            handle: None,
        }
    }

    /// Sets the time from the grant or the last refresh to the end of the lease; 10 s by default.
    pub fn duration(mut self, duration: Duration) -> Self {
        self.duration = duration;
        self
    }

    /// Sets the secret that authorizes refreshes and the release. A random one is used by default.
    pub fn handle(mut self, handle: Handle) -> Self {
        self.handle = Some(handle);
        self
    }

    /// Requests the lease and waits as its options say. Errors are retried under one id.
    ///
    /// If the future is dropped before it completes, a task of the client withdraws the request. If the client is
    /// dropped, too, the request may wait until its wait limit, and a granted lease lasts for its duration.
    pub async fn take(self) -> Result<Lease<S>, ClientError> {
        let Self { client, name, access, options, duration, handle } = self;
        let wait = options.wait;
        let clock = client.settings.clock.clone();
        let take = TakeLease {
            lock: client.key(name?),
            take: LeaseRequestId::from_random(clock.random_u128()),
            handle: handle.unwrap_or_else(|| Handle::from_random(clock.random_u128())),
            access,
            lease_ms: millis(duration),
            patience: wait.patience(),
            metadata: options.metadata(&client.settings.metadata)?,
            claim_ms: None,
        };
        let began = clock.now();
        let pending = PendingTake::new(client.clone(), take.clone(), began);
        let mut pending = OnDrop::new(pending, PendingTake::cancel_in_background);
        let settled = tokio::select! {
            biased;
            settled = pending.settle() => Some(settled?),
            () = wait_until(&*clock, wait.until(began)) => None,
        };
        let Some(Settled { reply, waited }) = settled else {
            if pending.since.is_none() {
                let last = pending.unread.lock().take();
                return Err(last.map_or_else(|| no_answer("reading the log time"), |error| error.of_read().into()));
            }
            pending.cancel(pending.client.retry()).await?;
            pending.disarm();
            return Err(not_acquired(&take.lock.name, pending.ahead.take()));
        };
        let (index, stamp, ahead, sent) = (reply.index, reply.stamp, pending.ahead.take(), pending.sent);
        // A refusal is final: there is nothing to withdraw.
        let grant = granted(reply.outcome, &take.lock.name, ahead).inspect_err(|_| pending.disarm())?;
        let deadline = grant.deadline.unwrap_or_else(|| stamp.after_ms(take.lease_ms));
        let sent = if waited { began } else { sent };
        let mut lease = Lease {
            client: client.without_session(),
            lock: take.lock,
            handle: take.handle,
            token: grant.token,
            waited: Duration::from_millis(grant.waited_ms),
            duration,
            validity: Validity::new(RenewalAnswer { sent, index, stamp, deadline }, None),
            doubt: None,
            attempts: RefreshCounter::since(stamp),
            release_in_doubt: AtomicBool::new(false),
        };
        if waited {
            // No attempt was sent after the grant, so nothing relates the stamp of the grant to this clock.
            lease.refresh().await.map_err(|error| pending.doubted(error))?;
        }
        // From here on the owner of the lease releases it.
        pending.disarm();
        Ok(lease)
    }
}

impl<S: LockService> Client<S> {
    /// Creates a request for a lease: a lock without a session, proven by a handle.
    pub fn lease(&self, name: &str) -> LeaseRequest<S> {
        LeaseRequest::new(self.clone(), name)
    }
}

request_methods!(LeaseRequest);
mode_methods!(LeaseRequest);

/// A lease request without a final answer.
struct PendingTake<S: LockService> {
    client: Client<S>,
    take: TakeLease,
    began: Instant,
    /// When the last attempt was sent.
    sent: Instant,
    /// Log time before the request was first sent; `None` until then.
    since: Option<LogTime>,
    /// The last error of reading that log time.
    unread: Mutex<Option<ServiceError>>,
    /// The last known place in the queue.
    ahead: Option<Place>,
    retry: Retry,
    /// Runs the cancel, because the request may be dropped outside of a runtime.
    runtime: Option<Runtime>,
}

impl<S: LockService> PendingTake<S> {
    fn new(client: Client<S>, take: TakeLease, began: Instant) -> Self {
        let (retry, runtime) = (client.retry(), Runtime::try_current().ok());
        let unread = Mutex::new(None);
        Self { client, take, began, sent: began, since: None, unread, ahead: None, retry, runtime }
    }

    /// Submits the request and waits until it is granted or refused.
    async fn settle(&mut self) -> Result<Settled, ClientError> {
        let claim = ClaimRef { lock: self.take.lock.clone(), claim: Claim::Lease(self.take.take) };
        let Self { client, take, began, sent, since, unread, ahead, retry, .. } = self;
        let (service, unread) = (&client.service, &*unread);
        let read = || async {
            let answer = service.query(Query::Totals, Freshness::Linearizable).await;
            answer.inspect_err(|error| *unread.lock() = Some(error.clone()))
        };
        let before = client.retry().until_read(read).await?.now;
        *since = Some(before);
        let attempt = || {
            let clock = &*client.settings.clock;
            *sent = clock.now();
            service.submit(lease_call(Command::TakeLease(take.clone()), clock, *began, before))
        };
        let queued = |place: &Place| *ahead = Some(place.clone());
        Ok(submit_and_wait(service, &claim, retry, attempt, queued).await?)
    }

    /// Returns the error of a later step, which does not say that the request had no effect.
    fn doubted(&self, error: ClientError) -> ClientError {
        if let ClientError::Service(error) = error { self.retry.doubted(error).into() } else { error }
    }

    /// Withdraws the request, regardless of its outcome. Does nothing if it was never sent. If it fails, the error is
    /// *unknown* unless no attempt of the request can have been executed.
    fn cancel(&self, mut retry: Retry) -> impl Future<Output = Result<(), ClientError>> + Send + use<S> {
        // A cancel must keep alive neither a session nor the set of cancels that may own it.
        let (client, began, since) = (self.client.without_session(), self.began, self.since);
        let TakeLease { lock, take, handle, .. } = self.take.clone();
        let command = Command::CancelTake { lock, take, handle };
        if self.retry.is_in_doubt() {
            retry.executed();
        }
        async move {
            let Some(since) = since else { return Ok(()) };
            let clock = &client.settings.clock;
            let attempt = || async {
                client.service.submit(lease_call(command.clone(), &**clock, began, since)).await.and_then(remembered)
            };
            let outcome = retry.until_answered(attempt).await?.outcome;
            if outcome == Outcome::Withdrawn { Ok(()) } else { Err(ClientError::unexpected(outcome)) }
        }
    }

    /// Withdraws the request in a task of the client, unless no attempt of it can have been executed.
    fn cancel_in_background(&mut self) {
        if let (true, Some(runtime)) = (self.retry.is_in_doubt(), &self.runtime) {
            let cancel = self.cancel(self.client.retry().persistent());
            self.client.run_in_background(runtime, async move { drop(cancel.await) });
        }
    }
}
