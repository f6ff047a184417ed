//! The guard of a held lock.

pub(crate) mod permit;
pub(crate) mod set;
pub(crate) mod watch;

use std::sync::Arc;
use std::time::Duration;

use self::permit::Permit;
use self::watch::{HoldRef, HoldWatch};
use super::error::{ClientError, Lost};
use super::hold::{Hold, HoldState, Released, RevokeRequest};
use super::on_drop::OnDrop;
use super::options::WaitLimit;
use super::session::commands::{HoldChange, SessionCommand};
use super::session::reference::SessionRef;
use super::wait::{granted, wait_until};
use crate::model::{FencingToken, LockName, LockValue, Mode, Outcome, SessionId};

/// Guard of a lock, of a share of one, or of permits of a semaphore. It keeps the session alive. Dropping it releases
/// the lock: the session's task repeats the release until it is answered or the session ends.
///
/// The guard may be sent to another task. The lock is lost when its session ends or when the lock's lease ends, if it
/// has one. The guard reports that *before* the cluster may grant the lock to another client. But it reports a break
/// or a hand-over only when the client learns of it, and then another client may hold the lock already. Therefore pass
/// [`token`](Self::token) to the resource, which refuses older ones, and do the work inside [`run`](Self::run).
#[derive(Debug)]
#[must_use = "dropping the guard releases the lock"]
pub struct LockGuard {
    held: OnDrop<HoldRef>,
    waited: Duration,
    permits: u32,
}

impl LockGuard {
    /// Creates the guard of a hold. If the hold has a separate lease, the session's task renews that lease. `gaps` is
    /// the number of gaps in the session's events before the hold was requested.
    pub(crate) fn new(session: SessionRef, hold: Arc<Hold>, waited: Duration, gaps: u64) -> Self {
        session.state.holds.add(&hold, gaps);
        Self::of_added(session, hold, waited)
    }

    /// Creates the guard of a hold that is in the session's table already.
    pub(crate) fn of_added(session: SessionRef, hold: Arc<Hold>, waited: Duration) -> Self {
        if hold.lease_ms().is_some() {
            session.run_in_background(session.service.renew_lease(session.state.clone(), hold.clone()));
        }
        let held = OnDrop::new(HoldRef { session, hold }, |held| {
            held.hold.release();
            // The session keeps a cached hold, if it can, and then sends nothing.
            if held.keep().is_none() {
                let release = held.release();
                // The change begins now, so that the hold counts as changing until the release is answered.
                let change = release.change();
                held.session.finish_in_background(release, change);
            }
        });
        Self { held, waited, permits: 1 }
    }

    /// Sets the number of permits of the guard, from the mode in which the lock was granted.
    pub(crate) fn held_in(mut self, mode: Mode) -> Self {
        self.permits = match mode {
            Mode::Exclusive | Mode::Shared => 1,
            Mode::Permits(count) => count,
        };
        self
    }

    /// Returns the fencing token of this grant, larger than that of every earlier grant. An [`upgrade`](Self::upgrade)
    /// replaces it.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.held.hold.token()
    }

    /// Returns the name of the lock.
    #[must_use]
    pub fn name(&self) -> &LockName {
        &self.held.hold.name
    }

    /// Returns the session of the hold.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.held.session.state.id
    }

    /// Returns how long the request waited in the queue, in log time.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Returns how long the lock is certainly held if no further renewal is answered; zero once it is lost. Reads the
    /// clock at each call.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.held.valid_for()
    }

    /// Returns how certain it is that the lock is held.
    #[must_use]
    pub fn state(&self) -> HoldState {
        self.held.state()
    }

    /// Waits until the lock is lost. Returns before another client may be granted the lock, except after a break, a
    /// hand-over or an operator's end of the session: then it returns as soon as the client learns of it.
    pub async fn lost(&self) -> Lost {
        self.watch().lost().await
    }

    /// Returns a watch of the hold, for a task that must detect the loss while another task owns the guard.
    #[must_use]
    pub fn watch(&self) -> HoldWatch {
        self.held.watch()
    }

    /// Returns a watch for the changes of the hold only. It may not detect a loss.
    pub(crate) fn changes(&self) -> HoldWatch {
        self.held.changes()
    }

    /// Waits until another client asks the holder to release, and returns each such request once. The request has no
    /// other effect: the holder decides.
    pub async fn revoke_requested(&self) -> RevokeRequest {
        self.held.begin_watch();
        self.held.hold.revoke_requested().await
    }

    /// Turns a shared hold into an exclusive one with a new token if no other holder shares the lock. Otherwise the
    /// upgrade is refused at once, and the hold stays as it is.
    pub async fn upgrade(&mut self) -> Result<FencingToken, ClientError> {
        self.upgrade_within(Duration::ZERO).await
    }

    /// Like [`upgrade`](Self::upgrade), but waits for at most this duration until the other holders have released,
    /// ahead of the whole queue. When two holders upgrade at the same time, the second one is refused at once. If the
    /// future is dropped, the upgrade is withdrawn; [`token`](Self::token) then shows whether it was granted
    /// nevertheless.
    pub async fn upgrade_within(&mut self, wait: Duration) -> Result<FencingToken, ClientError> {
        self.held.stop_caching();
        let (wait, session) = (WaitLimit::For(wait), self.held.session.clone());
        let deadline = wait.until(session.state.clock.now());
        let drawn = session.state.draw();
        let mut cancel =
            OnDrop::new((session.clone(), drawn.0), |(session, number)| session.cancel_in_background(*number));
        let change = HoldChange::Upgrade(wait.patience());
        let answer = session.run(SessionCommand::Change(self.held.hold.clone(), drawn, change));
        tokio::pin!(answer);
        // `cancel` withdraws the request at the deadline, and also if the caller drops this future, because the
        // session's task continues an upgrade without a caller.
        let answer = tokio::select! {
            biased;
            answer = &mut answer => answer?,
            () = wait_until(&*session.state.clock, deadline) => {
                cancel.run_now();
                answer.await?
            }
        };
        cancel.disarm();
        Ok(granted(answer.outcome, self.name(), None)?.token)
    }

    /// Turns an exclusive hold into a shared one, at once and under the same token. A shared hold stays as it is.
    pub async fn downgrade(&mut self) -> Result<(), ClientError> {
        self.change(HoldChange::Downgrade, Outcome::Downgraded).await
    }

    /// Changes the text that is kept with the hold and shown to every client; `None` removes it. After an error with an
    /// unknown outcome the session's task continues with the change, and later changes wait for it.
    pub async fn set_value(&self, value: Option<&str>) -> Result<(), ClientError> {
        let value = value.map(LockValue::parse).transpose()?;
        self.change(HoldChange::SetValue(value), Outcome::Done).await
    }

    async fn change(&self, change: HoldChange, done: Outcome) -> Result<(), ClientError> {
        let reply = self.held.session.run(self.held.change(change)).await?;
        if reply.outcome == done { Ok(()) } else { Err(ClientError::unexpected(reply.outcome)) }
    }

    /// Splits the hold into its permits, each of which is released separately; a lock has one. The iterator creates
    /// them one by one, and dropping it releases the remaining ones together. If the owner acquired this hold again,
    /// that reentry must be released before any permit is.
    #[must_use = "dropping the permits releases them"]
    pub fn into_permits(mut self) -> impl Iterator<Item = Permit> + Send {
        self.held.disarm();
        self.held.stop_caching();
        Permit::split(self.held.clone(), self.permits)
    }

    /// Runs work while the lock is held. If the lock is lost first, the work is dropped when [`lost`](Self::lost)
    /// returns: before another client may be granted the lock, except after a break, a hand-over or an operator's end
    /// of the session.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        run_while_held(work, || self.lost(), || self.state()).await
    }

    /// Releases the lock and returns the answer. If the future is dropped, the session's task completes the release.
    /// The task also does so after every error except a refusal: for example if the outcome is unknown, because the
    /// service did not answer within the client's request wait, or if the client's token is no longer valid.
    ///
    /// If the session keeps a [cached](crate::client::LockRequest::cached) hold, nothing is sent.
    pub async fn release(mut self) -> Result<Released, ClientError> {
        self.held.disarm();
        self.held.hold.release();
        if let Some(kept) = self.held.keep() {
            return Ok(kept);
        }
        Released::from_reply(self.held.session.run(self.held.release()).await?)
    }
}

/// Runs work until it ends or the hold is lost. A loss drops the work.
async fn run_while_held<W: Future, L: Future<Output = Lost>>(
    work: W,
    lost: impl Fn() -> L,
    state: impl Fn() -> HoldState,
) -> Result<W::Output, Lost> {
    let output = tokio::select! {
        biased;
        lost = lost() => return Err(lost),
        output = work => output,
    };
    // The last poll of the work may have taken longer than the lease.
    if state() == HoldState::Lost { Err(lost().await) } else { Ok(output) }
}
