//! A request for one lock within a session, and guards for holds that the session already has.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::client::client::Client;
use crate::client::error::ClientError;
use crate::client::guard::LockGuard;
use crate::client::hold::Hold;
use crate::client::options::{
    RequestOptions, SessionOptions, WaitLimit, mode_methods, request_methods, session_methods,
};
use crate::client::request::cached::acquire_cached;
use crate::client::request::pending::{PendingAcquire, SessionSource, acquire};
use crate::client::retry::Retry;
use crate::client::session::Session;
use crate::client::validity::{RenewalAnswer, Validity};
use crate::limits::LEASE_MS_MIN;
use crate::model::{
    Access, Alter, Alteration, Command, Fairness, FencingToken, Handle, HolderView, Invalid, LockName, Mode, Outcome,
    Query, QueryResult, Reentry, Refusal, RenewalTarget, Reply,
};
use crate::service::{Freshness, LockService, RenewalCall, only_reply};

/// A request for one lock. By default it is exclusive and waits as long as the session lives.
/// [`acquire`](Self::acquire) checks the values and sends it.
#[must_use = "nothing is requested before acquire()"]
pub struct LockRequest<S: LockService> {
    source: SessionSource<S>,
    name: Result<LockName, Invalid>,
    access: Access,
    options: RequestOptions,
    session_options: SessionOptions,
}

impl<S: LockService> Client<S> {
    /// Creates a request for a lock in the shared session, which this client opens when it is first needed and keeps
    /// until the client is dropped.
    pub fn lock(&self, name: &str) -> LockRequest<S> {
        LockRequest::new(SessionSource::Shared(self.clone()), name)
    }
}

impl<S: LockService> Session<S> {
    /// Creates a request for a lock in this session.
    pub fn lock(&self, name: &str) -> LockRequest<S> {
        LockRequest::new(SessionSource::Own(self.clone()), name)
    }
}

impl<S: LockService> LockRequest<S> {
    fn new(source: SessionSource<S>, name: &str) -> Self {
        let (options, session_options) = (RequestOptions::new(WaitLimit::WhileAlive), SessionOptions::default());
        Self { source, name: LockName::parse(name), access: Mode::Exclusive.into(), options, session_options }
    }

    /// Sets what happens if the same session and [`owner`](Self::owner) hold the lock already; by default the request
    /// is refused. If reentries are counted, each guard releases one of them, and the last one frees the lock.
    pub fn reentry(mut self, reentry: Reentry) -> Self {
        self.session_options.extras.reentry = reentry;
        self
    }

    /// Makes the request unfair: it may overtake other unfair requests and be overtaken by them, but never overtakes a
    /// fair one. It can starve.
    pub fn unfair(mut self) -> Self {
        self.session_options.extras.fairness = Fairness::Barging;
        self
    }

    /// Lets the session keep the hold after its guard is dropped, so that the session's next cached acquires of this
    /// lock take it without a message, under the same token. For a session that takes the same lock again and again.
    ///
    /// - The session releases the hold after the use that runs when another request waits for the lock, even one of the
    ///   same session that is not cached, and if no guard uses the hold for 30 s. It keeps at most 1,024 unused holds.
    /// - The cached acquires of one session wait for each other in the order of their calls.
    /// - Only for an exclusive lock, without an owner, a parent, a lease, a value, a lock-delay, `at_least`, `at_most`
    ///   and `unfair`. A change of the hold, such as [`downgrade`](LockGuard::downgrade), makes it an ordinary one.
    /// - The metadata and the reason are those of the acquire that was granted by the cluster.
    /// - Several uses share one token, so a resource cannot reject a late write of an earlier use of the same session.
    ///   After a crash of the session the lock stays closed until its TTL is over, even if no use was running.
    ///
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = lockkeeper::testing::Cluster::start(1, None).await?;
    /// # let client = lockkeeper::client::Client::new(cluster.leader().await);
    /// let session = client.session().open().await?;
    /// let first = session.lock("shard-7").cached().acquire().await?;
    /// let token = first.token();
    /// drop(first);
    /// let second = session.lock("shard-7").cached().acquire().await?;
    /// assert_eq!(second.token(), token);
    /// # Ok(())
    /// # }
    /// ```
    pub fn cached(mut self) -> Self {
        self.session_options.extras.cached = true;
        self
    }

    /// Sends the request and waits as its options say.
    ///
    /// - Errors and changes of leader are retried under one request number.
    /// - *Not acquired* means that the cluster has confirmed that no waiter and no hold of this request remain.
    /// - If the future is dropped, the session's task withdraws the request, so no waiter and no lock remain.
    pub async fn acquire(self) -> Result<LockGuard, ClientError> {
        let Self { source, name, access, options, session_options } = self;
        let name = name?;
        if session_options.extras.cached {
            return acquire_cached(source, name, access, options, session_options).await;
        }
        acquire(source, (name, access).into(), options, session_options).await?.guard()
    }
}

request_methods!(LockRequest);
mode_methods!(LockRequest);
session_methods!(LockRequest);

impl<S: LockService> Session<S> {
    /// Resumes a hold that was lost, under a new token. This is possible once, while the lock-delay keeps the name
    /// closed, and not after a break. The lost token and the handle of the session that lost it prove the right to
    /// resume the hold.
    pub async fn resume(&self, name: &str, lost: FencingToken, handle: &Handle) -> Result<LockGuard, ClientError> {
        let name = LockName::parse(name)?;
        let command = |request, answered_below| {
            let what = Alteration::Resume { token: lost, handle: handle.clone(), lease_ms: None };
            Command::Alter(Alter { request, answered_below, name: name.clone(), what })
        };
        let guard = PendingAcquire::run(self.clone(), &name, command, None, None).await?.guard()?;
        // The grant does not contain the number of permits. If the mode cannot be read, the hold or the session has
        // ended since.
        let state = &self.reference.state;
        let mode = tokio::select! {
            biased;
            held = self.held(guard.name(), guard.token(), Retry::unlimited(state.clock.clone())) => {
                held?.map(|(mode, _)| mode)
            }
            _ = state.closed() => None,
        };
        Ok(match mode {
            Some(mode) => guard.held_in(mode),
            None => guard,
        })
    }

    /// Returns the guard of a hold that was handed over to this session without a request. Refused if the
    /// session does not hold the lock under this token. Adopt a hold only once: two guards of one hold both release it.
    ///
    /// If the hold has a separate lease, its length becomes the time that was left of that lease.
    pub async fn adopt(&self, name: &str, token: FencingToken) -> Result<LockGuard, ClientError> {
        let name = LockName::parse(name)?;
        let gaps = self.reference.state.holds.gaps();
        let (mode, left_ms) = self.surely_held(&name, token).await?;
        let lease = self.lease_of(&name, token, left_ms.max(LEASE_MS_MIN)).await?;
        if lease.is_none() {
            // Its lease may have expired just before the renewal. Then the hold has ended by now.
            self.surely_held(&name, token).await?;
        }
        let hold = Arc::new(Hold::new(name, token, lease, None));
        Ok(LockGuard::new(self.reference.clone(), hold, Duration::ZERO, gaps).held_in(mode))
    }

    /// Returns the mode of this session's hold under this token, and the milliseconds until it ends without a renewal.
    /// Refused if the session does not hold the lock.
    async fn surely_held(&self, name: &LockName, token: FencingToken) -> Result<(Mode, u64), ClientError> {
        let held = self.held(name, token, self.settings.retry()).await?;
        held.ok_or_else(|| Refusal::NotHeld { lock: self.reference.state.key(name) }.into())
    }

    /// Renews the lease of a hold for this duration; `None` if the hold has no lease, which only a renewal shows.
    async fn lease_of(
        &self,
        name: &LockName,
        token: FencingToken,
        lease_ms: u64,
    ) -> Result<Option<(u64, Validity)>, ClientError> {
        let state = &self.reference.state;
        let target = RenewalTarget::Hold { lock: state.key(name), session: self.id(), token, lease_ms };
        let attempt = || {
            let (proof, attempt) = (state.proof(), state.next_hold_attempt());
            let renewal = RenewalCall { target: target.clone(), proof, attempt };
            let (sent, answer) = (state.clock.now(), self.service.renew(vec![renewal]));
            async move { Ok((sent, answer.await.and_then(only_reply)?)) }
        };
        let (sent, Reply { index, stamp, outcome, .. }) = self.settings.retry().until_answered(attempt).await?;
        if let Outcome::Renewed { deadline, .. } = outcome {
            return Ok(Some((lease_ms, Validity::new(RenewalAnswer { sent, index, stamp, deadline }, None))));
        }
        if outcome.hold_is_gone() { Ok(None) } else { Err(ClientError::unexpected(outcome)) }
    }

    /// Returns the mode of this session's hold under this token, and the milliseconds until the hold ends without a
    /// renewal; `None` if the session does not hold the lock.
    async fn held(
        &self,
        name: &LockName,
        token: FencingToken,
        mut retry: Retry,
    ) -> Result<Option<(Mode, u64)>, ClientError> {
        let query = Query::Holders { lock: self.reference.state.key(name) };
        let answered = retry.until_read(|| self.service.query(query.clone(), Freshness::Linearizable)).await?;
        let QueryResult::Lock(view) = answered.answer else { return Err(ClientError::unexpected_answer(&answered)) };
        let own = |holder: &&HolderView| holder.token == token && holder.session == Some(self.id());
        let held = view.holders.iter().find(own);
        Ok(held.and_then(|holder| Some((holder.mode, holder.deadline?.ms_since(answered.now)))))
    }
}

impl<S: LockService> fmt::Debug for LockRequest<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockRequest").field("name", &self.name).field("options", &self.options).finish_non_exhaustive()
    }
}
