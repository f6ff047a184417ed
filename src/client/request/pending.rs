//! A request within a session, from its first attempt to its final answer. All attempts have the same number, and the
//! request is withdrawn when its caller drops it.

use std::sync::Arc;
use std::time::Duration;

use crate::client::client::Client;
use crate::client::error::ClientError;
use crate::client::guard::LockGuard;
#[cfg(feature = "cli")]
use crate::client::guard::set::SetGuard;
use crate::client::hold::{AtMost, Hold, Released};
use crate::client::on_drop::OnDrop;
use crate::client::options::{OnQueued, RequestOptions, SessionOptions, WaitLimit};
use crate::client::retry::after_doubt;
use crate::client::session::Session;
use crate::client::session::cached_holds::Ticket;
use crate::client::session::commands::{SessionCommand, is_too_old};
use crate::client::session::reference::SessionRef;
use crate::client::wait::{granted, not_acquired, submit_and_wait, wait_until};
use crate::clock::Instant;
use crate::model::{
    Access, Acquire, Claim, Command, EndReason, Grant, Invalid, LockName, LogTime, Outcome, Place, Reentry, Reply,
    RequestId, SmallMap,
};
use crate::service::{Call, ClaimRef, LockService, ServiceError};

pub(crate) enum SessionSource<S: LockService> {
    /// The session that the request was made from.
    Own(Session<S>),
    /// The client's shared session, which is opened if necessary.
    Shared(Client<S>),
}

impl<S: LockService> SessionSource<S> {
    /// Finds or opens the session, and returns when the wait is over. The wait counts from this call: both it and the
    /// request wait bound the opening of the session. If the session does not open in time, the last error of its
    /// opening is returned, because the state of the lock is not known.
    pub(crate) async fn open(self, wait: WaitLimit) -> Result<(Session<S>, Option<Instant>), ClientError> {
        match self {
            SessionSource::Own(session) => {
                let deadline = wait.until(session.settings.clock.now());
                Ok((session, deadline))
            }
            SessionSource::Shared(client) => {
                let now = client.settings.clock.now();
                let deadline = wait.until(now);
                let longest = now.after(client.settings.request_wait);
                let longest = deadline.map_or(longest, |deadline| deadline.min(longest));
                let session = tokio::select! {
                    biased;
                    session = client.shared_session() => session?,
                    () = wait_until(&*client.settings.clock, Some(longest)) => {
                        return Err(client.not_opened());
                    }
                };
                Ok((session, deadline))
            }
        }
    }
}

/// Acquires one lock or several together, and waits for the grant.
pub(crate) async fn acquire<S: LockService>(
    source: SessionSource<S>,
    locks: SmallMap<LockName, Access>,
    options: RequestOptions,
    mut session_options: SessionOptions,
) -> Result<Acquired, ClientError> {
    let (owner, extras) = session_options.checked(&locks)?;
    let SessionOptions { lease_ms, on_queued, .. } = session_options;
    let first = first_of(&locks)?;
    let (session, deadline) = source.open(options.wait).await?;
    let patience = options.wait.left(deadline, session.settings.clock.now()).patience();
    let metadata = options.metadata(&session.settings.metadata)?;
    let command = |request, answered_below| {
        Command::Acquire(Acquire { request, answered_below, locks, owner, patience, metadata, lease_ms, extras })
    };
    PendingAcquire::run(session, &first, command, on_queued, deadline).await
}

/// Returns the first of the locks. Refuses an empty set.
fn first_of(locks: &SmallMap<LockName, Access>) -> Result<LockName, Invalid> {
    locks.keys().next().cloned().ok_or_else(|| Invalid::new("locks", "at least one in a set", "none"))
}

/// Sends this acquire in a session that clients take over from each other, under the session's next number, and waits
/// for the grant. The next client may continue the request, so this one never withdraws it: only the cluster ends the
/// wait.
#[cfg(feature = "cli")]
pub(crate) async fn acquire_in<S: LockService>(
    session: &Session<S>,
    acquire: Acquire,
    on_queued: OnQueued,
) -> Result<SetGuard, ClientError> {
    let first = first_of(&acquire.locks)?;
    let command = |request, answered_below| Command::Acquire(Acquire { request, answered_below, ..acquire });
    let mut pending = PendingAcquire::new(session.clone(), &first, command, on_queued);
    pending.cancel.disarm();
    Ok(SetGuard::new(Box::pin(pending.finish(None)).await?.guards()?))
}

/// A request without a final answer.
pub(crate) struct PendingAcquire<S: LockService> {
    session: Session<S>,
    call: Call,
    claim: ClaimRef,
    on_queued: OnQueued,
    /// The last known place in the queue.
    ahead: Option<Place>,
    /// Number of gaps in the session's events before the request began.
    gaps: u64,
    /// Withdraws the request with this number when its caller drops it.
    cancel: OnDrop<(SessionRef, u64)>,
}

/// A request with its final answer.
pub(crate) struct Acquired {
    session: SessionRef,
    /// The lock, or the first one of a set.
    name: LockName,
    /// The acquire as it was sent; `None` if a lost hold was resumed.
    asked: Option<Acquire>,
    reply: Reply,
    ahead: Option<Place>,
    /// Number of gaps in the session's events before the request began.
    gaps: u64,
}

impl<S: LockService> PendingAcquire<S> {
    /// Allocates a request number, submits a command under it, and waits for the outcome. `name` is the lock, or one
    /// lock of the set.
    pub(crate) async fn run(
        session: Session<S>,
        name: &LockName,
        command: impl FnOnce(RequestId, u64) -> Command,
        on_queued: OnQueued,
        deadline: Option<Instant>,
    ) -> Result<Acquired, ClientError> {
        Box::pin(Self::new(session, name, command, on_queued).finish(deadline)).await
    }

    /// Allocates a request number. The request is withdrawn if it is dropped from now on.
    fn new(
        session: Session<S>,
        name: &LockName,
        command: impl FnOnce(RequestId, u64) -> Command,
        on_queued: OnQueued,
    ) -> Self {
        let state = &session.reference.state;
        let (number, answered_below) = state.draw();
        let cancel = OnDrop::new((session.reference.clone(), number), |(session, number)| {
            session.cancel_in_background(*number);
        });
        let request = state.request(number);
        let call = state.call(command(request, answered_below));
        let claim = ClaimRef { lock: state.key(name), claim: Claim::Request(request) };
        let gaps = state.holds.gaps();
        Self { call, claim, session, on_queued, ahead: None, gaps, cancel }
    }

    /// Waits for the outcome. If the deadline comes first, the request is withdrawn.
    #[expect(clippy::manual_async_fn, reason = "an async fn would keep the request twice in its future")]
    fn finish(mut self, deadline: Option<Instant>) -> impl Future<Output = Result<Acquired, ClientError>> {
        async move {
            let session = self.session.reference.clone();
            let reply = tokio::select! {
                biased;
                reply = self.settle_renumbered() => Some(reply?),
                end = session.state.closed() => return Err(session.state.lost_error(end)),
                () = wait_until(&*session.state.clock, deadline) => None,
            };
            self.cancel.disarm();
            let (name, number) = (self.claim.lock.name, self.cancel.1);
            let Some(reply) = reply else {
                // It is certain only once the cancel is answered that the lock was not acquired.
                let in_doubt =
                    |error| if let ClientError::Service(error) = error { after_doubt(error).into() } else { error };
                session.run(SessionCommand::Cancel(number)).await.map_err(in_doubt)?;
                return Err(not_acquired(&name, self.ahead));
            };
            session.state.finish(number);
            session.state.holds.recalled(&reply.recalled);
            let asked = if let Command::Acquire(asked) = self.call.command { Some(asked) } else { None };
            Ok(Acquired { session, name, asked, reply, ahead: self.ahead, gaps: self.gaps })
        }
    }

    /// Settles the request. In a busy session, an acquire that was delayed, for example without a leader, can be too
    /// old when it arrives, and one that waited when its wait ends. Nothing lives under its number then, so it runs
    /// under another one.
    async fn settle_renumbered(&mut self) -> Result<Reply, ServiceError> {
        loop {
            let answer = self.settle().await;
            let Command::Acquire(acquire) = &mut self.call.command else { return answer };
            if !is_too_old(&answer) {
                return answer;
            }
            let state = &self.session.reference.state;
            let (number, answered_below) = state.draw();
            state.finish(std::mem::replace(&mut self.cancel.1, number));
            (acquire.request, acquire.answered_below) = (state.request(number), answered_below);
            self.claim.claim = Claim::Request(acquire.request);
        }
    }

    /// Submits the request and waits until it is granted or refused.
    async fn settle(&mut self) -> Result<Reply, ServiceError> {
        let service = &self.session.service;
        let mut retry = self.session.settings.retry().of_attempts_within(service.answers_within());
        // Boxed because a retry with a timeout moves the future several times.
        let attempt = || Box::pin(service.submit(self.call.clone()));
        let (ahead, on_queued) = (&mut self.ahead, &mut self.on_queued);
        let needed = &self.session.reference.state.stream_needed;
        let queued = |place: &Place| {
            needed.notify_waiters();
            *ahead = Some(place.clone());
            if let Some(report) = on_queued {
                report(place);
            }
        };
        Ok(submit_and_wait(service, &self.claim, &mut retry, attempt, queued).await?.reply)
    }
}

impl Acquired {
    /// Returns the grant of a single lock.
    fn grant(&mut self) -> Result<Grant, ClientError> {
        let outcome = std::mem::replace(&mut self.reply.outcome, Outcome::Done);
        granted(outcome, &self.name, self.ahead.take())
    }

    /// Returns the guard of a single lock.
    pub(crate) fn guard(mut self) -> Result<LockGuard, ClientError> {
        let grant = self.grant()?;
        Ok(self.guard_of(self.name.clone(), &grant))
    }

    /// Returns the guards of the requested set of locks, sorted by name. If one of the locks was broken before the
    /// answer arrived, the grant lacks it; then the other locks are released.
    pub(crate) fn guards(mut self) -> Result<Vec<LockGuard>, ClientError> {
        let grants = if let Outcome::GrantedSet(grants) = &mut self.reply.outcome {
            std::mem::take(grants)
        } else {
            // A set of one lock is granted as a single lock.
            vec![(self.name.clone(), self.grant()?)]
        };
        let mut names = self.asked.iter().flat_map(|asked| asked.locks.keys());
        let missing = names.find(|name| !grants.iter().any(|(granted, _)| granted == *name)).cloned();
        let guards: Vec<_> = grants.into_iter().map(|(name, grant)| self.guard_of(name, &grant)).collect();
        match missing {
            Some(lock) => Err(ClientError::HoldEnded { lock, reason: EndReason::Broken }),
            None => Ok(guards),
        }
    }

    /// Returns the guard of a cached hold, which the session's next acquires can take.
    pub(crate) fn cached_guard(mut self, ticket: Ticket) -> Result<LockGuard, ClientError> {
        let grant = self.grant()?;
        let entry = Released { index: self.reply.index, at: self.reply.stamp, left: 0 };
        let hold = Arc::new(Hold::new(self.name, grant.token, None, None).kept_as(entry));
        self.session.state.holds.add_cached(ticket, &hold, self.gaps);
        Ok(LockGuard::of_added(self.session, hold, Duration::from_millis(grant.waited_ms)))
    }

    fn guard_of(&self, name: LockName, grant: &Grant) -> LockGuard {
        let (state, at, asked) = (&self.session.state, (self.reply.stamp, self.reply.index), self.asked.as_ref());
        let end = |deadline| state.validity().for_hold(at, deadline, state.clock.now());
        let asked_ms = asked.and_then(|asked| asked.lease_ms);
        let length_ms = |deadline: LogTime| asked_ms.unwrap_or_else(|| deadline.ms_since(at.0));
        let lease = grant.deadline.map(|deadline| (length_ms(deadline), end(deadline)));
        let at_most = grant.ends.map(|ends| AtMost { granted: at, ends, session: state.shared_validity.clone() });
        let access = asked.and_then(|asked| asked.locks.get(&name)).copied();
        let mut hold = Hold::new(name, grant.token, lease, at_most);
        if let Some(asked) = asked.filter(|asked| asked.choices().reentry == Reentry::Count) {
            hold.acquire = asked.request.number;
        }
        let waited = Duration::from_millis(grant.waited_ms);
        let guard = LockGuard::new(self.session.clone(), Arc::new(hold), waited, self.gaps);
        match access {
            Some(access) => guard.held_in(access.mode),
            None => guard,
        }
    }
}
